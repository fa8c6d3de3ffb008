package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.spring.boot.KeymillAutoConfiguration;
import io.keymill.spring.boot.KeymillDataAutoConfiguration;
import io.keymill.spring.boot.KeymillMybatisAutoConfiguration;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import org.apache.ibatis.annotations.Insert;
import org.apache.ibatis.session.SqlSessionFactory;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.mybatis.spring.boot.test.autoconfigure.MybatisTest;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.test.autoconfigure.data.jdbc.DataJdbcTest;
import org.springframework.boot.test.autoconfigure.data.r2dbc.DataR2dbcTest;
import org.springframework.boot.test.autoconfigure.orm.jpa.DataJpaTest;
import org.springframework.context.ApplicationContext;
import org.springframework.data.annotation.Id;
import org.springframework.data.jdbc.core.JdbcAggregateTemplate;
import org.springframework.data.r2dbc.core.R2dbcEntityTemplate;
import org.springframework.data.relational.core.mapping.Table;
import org.springframework.test.context.TestContextManager;

/** The slices of an application that Spring Boot and MyBatis test: ids come from `keymill.config` there too, or fail by name. */
class SlicesTest {
    @SpringBootConfiguration
    @EnableAutoConfiguration
    static class Application {}

    @Table("parcel")
    static class Parcel {
        @Id @io.keymill.spring.data.KeymillId Long id;
        String place = "";
    }

    static class Row {
        @io.keymill.mybatis.KeymillId Long id;
    }

    interface Rows {
        @Insert("insert into parcel (id, place) values (#{id}, '')")
        void insert(Row row);
    }

    private static final String CONFIG = "keymill.config=memory:";

    @DataJpaTest(properties = CONFIG)
    static class Jpa {}

    @DataJdbcTest(properties = CONFIG)
    static class Jdbc {}

    @DataR2dbcTest(properties = {CONFIG, "spring.r2dbc.url=r2dbc:h2:mem:///slice;DB_CLOSE_DELAY=-1;CASE_INSENSITIVE_IDENTIFIERS=TRUE"})
    static class R2dbc {}

    @MybatisTest(properties = CONFIG)
    static class Mybatis {}

    @DataJdbcTest(properties = CONFIG, excludeAutoConfiguration = KeymillDataAutoConfiguration.class)
    static class JdbcAlone {}

    @DataR2dbcTest(properties = {CONFIG, "spring.r2dbc.url=r2dbc:h2:mem:///alone;DB_CLOSE_DELAY=-1"}, excludeAutoConfiguration = KeymillDataAutoConfiguration.class)
    static class R2dbcAlone {}

    @MybatisTest(properties = CONFIG, excludeAutoConfiguration = KeymillMybatisAutoConfiguration.class)
    static class MybatisAlone {}

    @DataJdbcTest(properties = {CONFIG, "keymill.enabled=false"})
    static class Disabled {}

    @DataJdbcTest(properties = CONFIG, excludeAutoConfiguration = KeymillAutoConfiguration.class)
    static class WithoutMill {}

    private static ApplicationContext context(Class<?> slice) {
        return new TestContextManager(slice).getTestContext().getApplicationContext();
    }

    @AfterEach
    void nothing_was_made_beside_the_store() {
        Mill.share(null);
        assertFalse(Files.exists(Path.of("keymill.db")));
    }

    private static void isFirstId(long id, ApplicationContext context, String source) {
        assertEquals(1, id);
        assertEquals(1, context.getBean(Mill.class).source(source).stats().issued());
    }

    private static void persist(ApplicationContext context, Object entity) {
        try (Session session = ((SessionFactory) context.getBean("entityManagerFactory")).openSession()) {
            session.beginTransaction();
            session.persist(entity);
            session.getTransaction().commit();
        }
    }

    private static void table(ApplicationContext context) {
        context.getBean(org.springframework.jdbc.core.JdbcTemplate.class).execute("create table if not exists \"parcel\" (\"ID\" bigint primary key, \"PLACE\" varchar(40))");
    }

    private static void mapped(ApplicationContext context, Row row) {
        SqlSessionFactory sessions = context.getBean(SqlSessionFactory.class);
        sessions.getConfiguration().addMapper(Rows.class);
        context.getBean(org.springframework.jdbc.core.JdbcTemplate.class).execute("create table if not exists parcel (id bigint primary key, place varchar(40))");
        sessions.getConfiguration().getMapper(Rows.class, context.getBean(org.mybatis.spring.SqlSessionTemplate.class)).insert(row);
    }

    @Test
    void the_slice_of_jpa() {
        ApplicationContext context = context(Jpa.class);
        Order order = new Order();
        persist(context, order);
        isFirstId(order.id, context, "segment:orders");
    }

    @Test
    void the_slice_of_spring_data_jdbc() {
        ApplicationContext context = context(Jdbc.class);
        table(context);
        isFirstId(context.getBean(JdbcAggregateTemplate.class).insert(new Parcel()).id, context, "segment:parcel");
    }

    @Test
    void the_slice_of_spring_data_r2dbc() {
        ApplicationContext context = context(R2dbc.class);
        R2dbcEntityTemplate template = context.getBean(R2dbcEntityTemplate.class);
        template.getDatabaseClient().sql("create table parcel (id bigint primary key, place varchar(40))").then().block(Duration.ofMinutes(1));
        isFirstId(template.insert(new Parcel()).block(Duration.ofMinutes(1)).id, context, "segment:parcel");
    }

    @Test
    void the_slice_of_mybatis() {
        ApplicationContext context = context(Mybatis.class);
        Row row = new Row();
        mapped(context, row);
        isFirstId(row.id, context, "segment:parcel");
    }

    @Test
    void an_annotated_field_that_nothing_fills_fails_by_name() {
        JdbcAggregateTemplate jdbc = context(JdbcAlone.class).getBean(JdbcAggregateTemplate.class);
        isRefused("does not have keymill's KeymillDataAutoConfiguration: add @ImportAutoConfiguration({KeymillAutoConfiguration.class, KeymillDataAutoConfiguration.class})", () -> jdbc.insert(new Parcel()));
        R2dbcEntityTemplate r2dbc = context(R2dbcAlone.class).getBean(R2dbcEntityTemplate.class);
        isRefused("KeymillDataAutoConfiguration.class})", () -> r2dbc.insert(new Parcel()).block(Duration.ofMinutes(1)));
        ApplicationContext mybatis = context(MybatisAlone.class);
        isRefused("does not have keymill's KeymillMybatisAutoConfiguration: add @ImportAutoConfiguration({", () -> mapped(mybatis, new Row()));
        JdbcAggregateTemplate disabled = context(Disabled.class).getBean(JdbcAggregateTemplate.class);
        isRefused("keymill.enabled=false: ", () -> disabled.insert(new Parcel()));
    }

    @Test
    void a_context_without_a_mill_serves_nothing_from_the_default_mill() {
        JdbcAggregateTemplate template = context(WithoutMill.class).getBean(JdbcAggregateTemplate.class);
        isRefused("does not have keymill's Keymill", () -> template.insert(new Parcel()));
        Throwable said = Causes.root(assertThrows(KeymillException.class, Mill.lazy("segment:lazy")::next));
        assertTrue(said.getMessage().contains("segment:lazy: no mill is shared, and this application context, a test slice for instance, does not have keymill's KeymillAutoConfiguration: add @ImportAutoConfiguration({KeymillAutoConfiguration.class})"), said.getMessage());
    }

    private static void isRefused(String why, Runnable insert) {
        Throwable said = Causes.root(assertThrows(RuntimeException.class, insert::run));
        assertTrue(said.getMessage().contains("no id: ") && said.getMessage().contains(why), said.toString());
    }
}
