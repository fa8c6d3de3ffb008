package io.keymill.spring.boot;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.Collections;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.springframework.core.env.ConfigurableEnvironment;
import org.springframework.core.env.MapPropertySource;
import org.springframework.core.env.StandardEnvironment;
import org.springframework.core.env.SystemEnvironmentPropertySource;

class EarlyLibraryTest {
    private static ConfigurableEnvironment of(String name, String value) {
        ConfigurableEnvironment environment = new StandardEnvironment();
        environment.getPropertySources().addFirst(new MapPropertySource("test", Collections.singletonMap(name, value)));
        return environment;
    }

    @ParameterizedTest
    @CsvSource({"keymill.config, memory:, true", "spring.datasource.url, jdbc:mysql://db/shop, true", "keymill.init, missing, false", "spring.datasource.name, shop, false"})
    void the_library_is_unpacked_beside_the_start_where_a_store_is_named(String name, String value, boolean wanted) {
        assertEquals(wanted, EarlyLibrary.isWanted(of(name, value)));
    }

    @Test
    void a_variable_of_the_environment_names_a_store_too() {
        ConfigurableEnvironment environment = new StandardEnvironment();
        environment.getPropertySources().addFirst(new SystemEnvironmentPropertySource("test", Collections.singletonMap("KEYMILL_CONFIG", "memory:")));
        assertEquals(true, EarlyLibrary.isWanted(environment));
    }

    @Test
    void no_library_is_unpacked_where_keymill_is_not_enabled() {
        ConfigurableEnvironment environment = of("keymill.config", "memory:");
        environment.getPropertySources().addFirst(new MapPropertySource("off", Collections.singletonMap("keymill.enabled", "false")));
        assertEquals(false, EarlyLibrary.isWanted(environment));
    }
}
