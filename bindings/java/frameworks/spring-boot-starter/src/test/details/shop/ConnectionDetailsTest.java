package shop;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Mill;
import io.keymill.Source;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.jdbc.autoconfigure.JdbcConnectionDetails;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Primary;

/** The application's database as service connections, Docker Compose and Testcontainers say it: a bean, since Boot 3.1. */
class ConnectionDetailsTest {
    /** Of a class that is hidden, as Boot's are. */
    private static JdbcConnectionDetails details(String url, String user, String password) {
        return new JdbcConnectionDetails() {
            @Override
            public String getUsername() {
                return user;
            }

            @Override
            public String getPassword() {
                return password;
            }

            @Override
            public String getJdbcUrl() {
                return url;
            }
        };
    }

    @Configuration(proxyBeanMethods = false)
    static class OfMariaDb {
        @Bean
        JdbcConnectionDetails service() {
            return details(Stores.MARIADB.jdbcUrl(), Stores.MARIADB.user(), Stores.MARIADB.password());
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class OfH2 {
        @Bean
        JdbcConnectionDetails service() {
            return details("jdbc:h2:mem:shop", "sa", "hidden");
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class OfTwo {
        @Bean
        JdbcConnectionDetails service() {
            return details("jdbc:h2:mem:another", "sa", "");
        }

        @Bean
        @Primary
        JdbcConnectionDetails first() {
            return details("jdbc:mariadb://127.0.0.1:1/first", "ids", "hidden");
        }
    }

    /** Boot's own `DataSource` does not look at these where there is such a bean. */
    private static ConfigurableApplicationContext run(Class<?> details, String... properties) {
        String[] other = {"spring.datasource.url=jdbc:oracle:thin:@nowhere:1521/shop", "spring.datasource.username=nobody", "spring.datasource.password=none"};
        return BootTest.run(new Class<?>[] {BootTest.Small.class, details}, WebApplicationType.NONE, Stream.of(other, properties).flatMap(Stream::of).toArray(String[]::new));
    }

    @Test
    void the_store_is_the_database_of_the_connection_details_bean() {
        Assumptions.assumeTrue(List.of(Stores.there()).contains(Stores.MARIADB), "no MariaDB");
        try (ConfigurableApplicationContext context = run(OfMariaDb.class, "keymill.init=missing", "keymill.sources.detailed=segment:detailed");
                Mill mill = Mill.open(Stores.MARIADB.config())) {
            long id = context.getBean(Source.class).next();
            assertTrue(mill.source("segment:detailed").next() > id, "the same counter");
        }
    }

    @Test
    void of_several_the_primary_one_counts() {
        try (ConfigurableApplicationContext context = run(OfTwo.class)) {
            assertTrue(context.getBean(Mill.class).store().contains("127.0.0.1:1/first"), context.getBean(Mill.class).store());
        }
    }

    @Test
    void details_of_a_database_that_cannot_be_the_store_stop_the_start_and_are_named() {
        String said = BootTest.failure(OfH2.class);
        assertTrue(said.contains("The property keymill.config cannot be used: it is not set, and the database of the bean shop.ConnectionDetailsTest$1 (JdbcConnectionDetails) cannot be the store: INVALID_CONFIG"), said);
        assertTrue(said.contains("Set keymill.config to sqlite:FILE") && !said.contains("hidden"), said);
    }
}
