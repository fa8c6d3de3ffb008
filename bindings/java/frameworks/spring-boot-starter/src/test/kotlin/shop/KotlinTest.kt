package shop

import io.keymill.hibernate.KeymillId as HibernateId
import io.keymill.spring.data.KeymillId
import jakarta.persistence.Entity
import jakarta.persistence.Id as JpaId
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.params.ParameterizedTest
import org.junit.jupiter.params.provider.MethodSource
import org.springframework.boot.WebApplicationType
import org.springframework.boot.autoconfigure.EnableAutoConfiguration
import org.springframework.boot.builder.SpringApplicationBuilder
import org.springframework.boot.persistence.autoconfigure.EntityScan
import org.springframework.context.ConfigurableApplicationContext
import org.springframework.context.annotation.Configuration
import org.springframework.data.annotation.Id
import org.springframework.data.jdbc.core.JdbcAggregateTemplate
import org.springframework.data.jdbc.repository.config.EnableJdbcRepositories
import org.springframework.data.jpa.repository.JpaRepository
import org.springframework.data.jpa.repository.config.EnableJpaRepositories
import org.springframework.data.relational.core.mapping.MappedCollection
import org.springframework.data.relational.core.mapping.Table
import org.springframework.data.repository.CrudRepository

/** Nothing of it can be changed: Spring Data makes it anew. */
@Table("kt_purchase")
data class Purchase(
    @Id @field:KeymillId val id: Long? = null,
    @field:KeymillId("serial:{table}/no?number=000000") val no: String? = null,
    val what: String,
    @MappedCollection(idColumn = "purchase") val lines: Set<Line> = emptySet(),
)

/** Without `field:`, since the annotation fits nothing else of a property. */
@Table("kt_line")
data class Line(@Id @KeymillId val id: Long?, val amount: Int)

/** Hibernate makes it by its constructor without parameters, which Kotlin adds where all have defaults. */
@Entity(name = "kt_account")
data class Account(@JpaId @field:HibernateId val id: Long? = null, @field:HibernateId("serial:{table}/no?number=000000") var no: String? = null, var owner: String = "")

interface Purchases : CrudRepository<Purchase, Long>

interface Accounts : JpaRepository<Account, Long>

@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@EntityScan(basePackageClasses = [Account::class])
@EnableJpaRepositories(basePackageClasses = [Accounts::class])
@EnableJdbcRepositories(basePackageClasses = [Purchases::class])
class Shop

/** Data classes as entities. */
class KotlinTest {
    companion object {
        @JvmStatic
        fun stores(): Array<Stores> = Stores.there()
    }

    private fun run(stores: Stores): ConfigurableApplicationContext {
        val url = stores.jdbcUrl() + if (stores == Stores.H2_AND_SQLITE) ";CASE_INSENSITIVE_IDENTIFIERS=TRUE" else ""
        Stores.run(
            url, stores.user(), stores.password(), "drop table if exists kt_line", "drop table if exists kt_purchase",
            "create table kt_purchase (id bigint primary key, no varchar(40) not null, what varchar(40))", "create table kt_line (id bigint primary key, purchase bigint not null, amount int)",
        )
        return SpringApplicationBuilder(Shop::class.java).web(WebApplicationType.NONE).properties(
            "spring.main.banner-mode=off", "logging.level.root=warn", "spring.datasource.url=$url", "spring.datasource.username=${stores.user()}", "spring.datasource.password=${stores.password()}",
            "spring.jpa.hibernate.ddl-auto=create-drop", "keymill.config=${stores.config()}", "keymill.init=missing", "keymill.sources.purchases=segment:kt_purchase", "keymill.sources.numbers=serial:kt_purchase/no?number=000000",
        ).run()
    }

    @ParameterizedTest
    @MethodSource("stores")
    fun spring_data_fills_a_data_class_and_its_children(stores: Stores) {
        run(stores).use { context ->
            val purchases = context.getBean(Purchases::class.java)
            val fresh = Purchase(what = "a book", lines = setOf(Line(null, 1), Line(null, 2)))
            val saved = purchases.save(fresh)
            assertNull(fresh.id)
            assertTrue(saved.id!! > 0 && saved.no!!.length == 14, "$saved")
            assertEquals(setOf(1, 2), saved.lines.map { it.amount }.toSet())
            assertEquals(2, saved.lines.mapNotNull { it.id }.toSet().size)
            assertEquals(saved, purchases.findById(saved.id).get())
            assertEquals(saved.copy(what = "two books"), purchases.save(saved.copy(what = "two books")))
            val all = purchases.saveAll(List(1000) { Purchase(what = "a pen") })
            assertEquals(1000, all.map { it.id }.toSet().size)
            assertEquals(1001, purchases.count())
            val kept = context.getBean(JdbcAggregateTemplate::class.java).insert(Purchase(9_000_000, "mine", "a lamp"))
            assertEquals(9_000_000L to "mine", kept.id to kept.no)
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    fun hibernate_fills_a_data_class(stores: Stores) {
        run(stores).use { context ->
            val accounts = context.getBean(Accounts::class.java)
            val fresh = List(1000) { Account(owner = "owner $it") }
            accounts.saveAll(fresh)
            assertEquals(1000, fresh.mapNotNull { it.id }.toSet().size)
            assertEquals(1000, fresh.mapNotNull { it.no }.toSet().size)
            assertEquals(fresh[7], accounts.findById(fresh[7].id!!).get())
            assertEquals(9_000_000L, accounts.save(Account(9_000_000, "mine", "me")).id)
            assertEquals("mine", accounts.findById(9_000_000).get().no)
        }
    }
}
