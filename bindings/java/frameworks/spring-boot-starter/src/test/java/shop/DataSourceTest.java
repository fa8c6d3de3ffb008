package shop;

import static org.junit.jupiter.api.Assertions.assertTrue;

import com.zaxxer.hikari.HikariDataSource;
import io.keymill.Mill;
import io.keymill.Source;
import java.util.List;
import java.util.stream.Stream;
import javax.sql.DataSource;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.boot.WebApplicationType;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.context.annotation.ImportSelector;
import org.springframework.core.type.AnnotationMetadata;
import org.springframework.jdbc.datasource.DelegatingDataSource;
import org.springframework.jdbc.datasource.DriverManagerDataSource;
import org.springframework.util.ClassUtils;

/** Without `keymill.config` the store is what the application's pool connects with, or the application does not start. */
class DataSourceTest {
    /** Boot's configuration of the pool, where 2.7 to 3.5 have it, and 4. */
    static class OfBoot implements ImportSelector {
        @Override
        public String[] selectImports(AnnotationMetadata metadata) {
            String old = "org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration";
            return new String[] {ClassUtils.isPresent(old, null) ? old : "org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration"};
        }
    }

    @Configuration(proxyBeanMethods = false)
    @Import(OfBoot.class)
    static class Pooled {}

    @Configuration(proxyBeanMethods = false)
    static class Own {
        @Bean
        DataSource shop() {
            HikariDataSource pool = new HikariDataSource();
            pool.setJdbcUrl("jdbc:mysql://127.0.0.1:1/own");
            pool.setUsername("app");
            return pool;
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class Unknown {
        @Bean
        DataSource shop() {
            return new DriverManagerDataSource("jdbc:mysql://127.0.0.1:1/unknown");
        }
    }

    @Configuration(proxyBeanMethods = false)
    @Import(Own.class)
    static class Wrapped {
        @Bean
        static BeanPostProcessor wrapper() {
            return new BeanPostProcessor() {
                @Override
                public Object postProcessAfterInitialization(Object bean, String name) {
                    return bean instanceof DataSource ? new DelegatingDataSource((DataSource) bean) : bean;
                }
            };
        }
    }

    @Configuration(proxyBeanMethods = false)
    @Import(Own.class)
    static class Two {
        @Bean
        DataSource another() {
            return new HikariDataSource();
        }
    }

    private static final String[] URL = {"spring.datasource.url=jdbc:mariadb://127.0.0.1:1/shop", "spring.datasource.username=app", "spring.datasource.password=hidden"};

    private static ConfigurableApplicationContext run(Class<?> beans, String... properties) {
        return BootTest.run(new Class<?>[] {BootTest.Small.class, beans}, WebApplicationType.NONE, with(properties));
    }

    private static String refusal(Class<?> beans, String... properties) {
        String said = BootTest.failure(beans, with(properties));
        assertTrue(said.contains("The property keymill.config cannot be used: it is not set, and ") && said.contains("Set keymill.config to sqlite:FILE") && !said.contains("hidden"), said);
        return said;
    }

    private static String[] with(String... properties) {
        return Stream.of(URL, properties).flatMap(Stream::of).toArray(String[]::new);
    }

    @ParameterizedTest
    @CsvSource({"com.zaxxer.hikari.HikariDataSource, hikari, jdbc-url", "org.apache.tomcat.jdbc.pool.DataSource, tomcat, url", "org.apache.commons.dbcp2.BasicDataSource, dbcp2, url"})
    void the_store_is_what_the_pool_connects_with(String type, String pool, String url) {
        Assumptions.assumeTrue(List.of(Stores.there()).contains(Stores.MARIADB), "no MariaDB");
        String settings = "spring.datasource." + pool + ".";
        try (ConfigurableApplicationContext context = run(Pooled.class, "spring.datasource.type=" + type, settings + url + "=" + Stores.MARIADB.jdbcUrl(),
                        settings + "username=" + Stores.MARIADB.user(), settings + "password=" + Stores.MARIADB.password(), "keymill.init=missing", "keymill.sources.pooled=segment:pooled");
                Mill mill = Mill.open(Stores.MARIADB.config())) {
            long id = context.getBean(Source.class).next();
            assertTrue(mill.source("segment:pooled").next() > id, "the same counter");
        }
    }

    @Test
    void the_store_is_what_the_applications_own_pool_connects_with() {
        try (ConfigurableApplicationContext context = run(Own.class)) {
            assertTrue(context.getBean(Mill.class).store().contains("127.0.0.1:1/own"), context.getBean(Mill.class).store());
        }
    }

    /** A parameter that no driver has, and that speaks of encryption, shows that it is read. */
    @ParameterizedTest
    @CsvSource({
        "com.zaxxer.hikari.HikariDataSource, hikari.data-source-properties.unheardSsl=1", "org.apache.tomcat.jdbc.pool.DataSource, tomcat.connection-properties=unheardSsl=1;",
        "org.apache.tomcat.jdbc.pool.DataSource, tomcat.db-properties.unheardSsl=1", "org.apache.commons.dbcp2.BasicDataSource, dbcp2.connection-properties=unheardSsl=1"
    })
    void parameters_of_the_driver_are_parameters_of_the_store(String type, String property) {
        String said = refusal(Pooled.class, "spring.datasource.type=" + type, "spring.datasource." + property);
        assertTrue(said.contains("the database of the DataSource bean (" + type + ") cannot be the store: INVALID_CONFIG") && said.contains("unheardSsl"), said);
    }

    @ParameterizedTest
    @CsvSource({
        "com.zaxxer.hikari.HikariDataSource, hikari.schema, ids", "com.zaxxer.hikari.HikariDataSource, hikari.catalog, ids",
        "com.zaxxer.hikari.HikariDataSource, hikari.data-source-class-name, org.mariadb.jdbc.MariaDbDataSource",
        "com.zaxxer.hikari.HikariDataSource, hikari.data-source-j-n-d-i, java:comp/shop",
        "org.apache.tomcat.jdbc.pool.DataSource, tomcat.default-catalog, ids", "org.apache.tomcat.jdbc.pool.DataSource, tomcat.data-source-j-n-d-i, java:comp/shop",
        "org.apache.commons.dbcp2.BasicDataSource, dbcp2.default-catalog, ids",
        "org.apache.commons.dbcp2.BasicDataSource, dbcp2.default-schema, ids", "org.apache.commons.dbcp2.BasicDataSource, dbcp2.connection-factory-class-name, shop.Connections"
    })
    void settings_that_lead_connections_elsewhere_stop_the_start_and_are_named(String type, String property, String value) {
        String said = refusal(Pooled.class, "spring.datasource.type=" + type, "spring.datasource." + property + "=" + value);
        assertTrue(said.contains("the DataSource bean (" + type + ") has spring.datasource." + property + ", "), said);
    }

    @ParameterizedTest
    @CsvSource({
        "com.zaxxer.hikari.HikariDataSource, hikari.connection-init-sql", "org.apache.tomcat.jdbc.pool.DataSource, tomcat.init-s-q-l",
        "org.apache.commons.dbcp2.BasicDataSource, dbcp2.connection-init-sqls"
    })
    void sql_for_each_connection_that_does_more_than_set_variables_stops_the_start(String type, String property) {
        String said = refusal(Pooled.class, "spring.datasource.type=" + type, "spring.datasource." + property + "=set role ids");
        assertTrue(said.contains("the database of the DataSource bean (" + type + ") cannot be the store: INVALID_CONFIG") && said.contains("`connectionInitSql`"), said);
        // The store is read before the sources: what is wrong with a source shows that the pool was taken.
        said = BootTest.failure(Pooled.class, with("spring.datasource.type=" + type, "spring.datasource." + property + "=set names utf8mb4", "keymill.sources.unheard=unheard:1"));
        assertTrue(said.contains("The property keymill.sources.unheard cannot be used"), said);
    }

    @Test
    void a_data_source_that_does_not_say_what_it_connects_with_stops_the_start() {
        String said = refusal(Unknown.class);
        assertTrue(said.contains("the DataSource bean is of " + DriverManagerDataSource.class.getName()), said);
        said = refusal(Wrapped.class);
        assertTrue(said.contains("the DataSource bean is of " + DelegatingDataSource.class.getName()), said);
        said = refusal(Two.class);
        assertTrue(said.contains("there are several DataSource beans and none is @Primary"), said);
    }

    @ParameterizedTest
    @ValueSource(strings = {"hikari.data-source-properties.sslMode", "tomcat.connection-properties", "dbcp2.url", "oracleucp.user", "xa.properties.user", "jndi-name"})
    void settings_of_a_pool_that_is_no_bean_stop_the_start_and_are_named(String property) {
        String said = refusal(BootTest.Small.class, "spring.datasource." + property + "=some");
        assertTrue(said.contains("there is no DataSource bean, to which spring.datasource." + property.split("[.]")[0] + " would apply"), said);
    }
}
