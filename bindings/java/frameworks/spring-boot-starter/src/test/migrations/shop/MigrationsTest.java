package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Mill;
import io.keymill.Source;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import liquibase.integration.spring.SpringLiquibase;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.autoconfigure.flyway.FlywayMigrationStrategy;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;

/** keymill's tables are made after the first run of what migrates the schema, which wants an empty one. */
class MigrationsTest {
    /** The first of the application's beans wants the mill. */
    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Shop {
        final List<String> ran = new ArrayList<>();

        @Bean
        List<String> early(Mill mill) {
            ran.add("mill");
            return ran;
        }

        @Bean
        FlywayMigrationStrategy flywayStrategy(Environment environment) {
            return flyway -> {
                ran.add("Flyway" + existing(environment));
                flyway.migrate();
            };
        }

        @Bean
        SpringLiquibase liquibase(Environment environment) {
            return new SpringLiquibase() {
                @Override
                public void afterPropertiesSet() {
                    ran.add("Liquibase" + existing(environment));
                }
            };
        }

        private static String existing(Environment environment) {
            return Files.exists(Path.of(environment.getProperty("keymill.config").substring("sqlite:".length()))) ? " after the tables" : "";
        }
    }

    @Test
    void tables_are_made_after_flyway_and_liquibase() {
        String config = Stores.H2_AND_SQLITE.config();
        try (ConfigurableApplicationContext context = new SpringApplicationBuilder(Shop.class).web(WebApplicationType.NONE)
                .properties("spring.main.banner-mode=off", "logging.level.root=warn", "spring.datasource.url=" + Stores.H2_AND_SQLITE.jdbcUrl(), "keymill.config=" + config, "keymill.init=missing", "keymill.sources.orders=segment:orders")
                .run()) {
            List<String> ran = context.getBean(Shop.class).ran;
            assertEquals("mill", ran.get(2), ran.toString());
            assertTrue(ran.contains("Flyway") && ran.contains("Liquibase"), ran.toString());
            assertEquals(1, context.getBean(Source.class).next());
        }
    }
}
