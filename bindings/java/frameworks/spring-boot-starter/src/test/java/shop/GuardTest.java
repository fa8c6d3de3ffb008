package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Mill;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.AutoConfigurationPackage;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;

/** What an application must not do in silence. */
class GuardTest {
    @ParameterizedTest
    @ValueSource(booleans = {true, false})
    void the_endpoints_of_boot_show_no_secret_of_keymill(boolean enabled) throws IOException {
        String config = "mysql://ids:hidden@127.0.0.1:1/shop";
        try (ConfigurableApplicationContext context = BootTest.shop(Stores.H2_AND_SQLITE, "keymill.config=" + config, "KEYMILL_CONFIG=" + config, "KEYMILL_PASSWORD=hidden", "KEYMILL_ORDER_KEYS=hidden", "keymill.init=never", "keymill.warm-up=false",
                "keymill.enabled=" + enabled, "management.endpoint.env.show-values=always", "management.endpoint.configprops.show-values=always")) {
            for (String path : new String[] {"/actuator/env", "/actuator/env/keymill.config", "/actuator/env/KEYMILL_CONFIG", "/actuator/env/KEYMILL_PASSWORD", "/actuator/env/KEYMILL_ORDER_KEYS",
                    "/actuator/configprops"}) {
                String shown = BootTest.get(context, path);
                assertTrue(shown.startsWith("200 "), shown);
                assertTrue(shown.contains("******") || !enabled && path.endsWith("configprops"), shown);
                assertFalse(shown.contains("hidden"), path);
            }
            assertTrue(BootTest.get(context, "/actuator/env/keymill.warm-up").contains("\"value\":\"false\""), "the others are shown");
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @AutoConfigurationPackage(basePackages = "other")
    static class WithWrong {}

    @Test
    void an_entity_with_the_annotation_of_another_module_does_not_start() {
        Throwable said = Causes.root(assertThrows(RuntimeException.class, () -> BootTest.run(new Class<?>[] {WithWrong.class}, WebApplicationType.NONE, "keymill.config=memory:").close()));
        assertEquals("other.Wrong.id has @io.keymill.mybatis.KeymillId, which is not read here; import io.keymill.hibernate.KeymillId, beside it where other frameworks use the class too", said.getMessage());
    }

    @Test
    void entities_and_lazy_sources_get_no_id_where_keymill_is_not_enabled() {
        try (ConfigurableApplicationContext context = BootTest.shop(Stores.H2_AND_SQLITE, "keymill.enabled=false")) {
            Throwable said = Causes.root(assertThrows(RuntimeException.class, () -> context.getBean(BootTest.Orders.class).save(new Order())));
            assertEquals(IllegalStateException.class, said.getClass(), said.toString());
            assertTrue(said.getMessage().startsWith("keymill.enabled=false: no mill is shared for the ids of entities and lazy sources"), said.getMessage());
            said = Causes.root(assertThrows(RuntimeException.class, Mill.lazy("segment:orders")::next));
            assertTrue(said.getMessage().startsWith("keymill.enabled=false: "), said.getMessage());
            assertEquals(0, context.getBeanNamesForType(Mill.class).length);
        }
    }

    @Test
    void a_context_without_a_database_starts_and_the_first_id_says_what_to_write() {
        Mill.share(null);
        try (ConfigurableApplicationContext context = BootTest.small()) {
            assertEquals(0, context.getBeanNamesForType(Mill.class).length);
            KeymillException said = assertThrows(KeymillException.class, Mill.lazy("segment:orders")::next);
            assertEquals(Code.INVALID_CONFIG, said.code());
            assertTrue(said.getMessage().contains("segment:orders: no mill is shared, and keymill.config is not set, and this application context has no DataSource, whose database would be the store: Set keymill.config to sqlite:FILE"), said.getMessage());
            assertFalse(Files.exists(Path.of("keymill.db")));
        }
        try (ConfigurableApplicationContext context = BootTest.small("keymill.config=memory:")) {
            assertEquals(1, Mill.lazy("segment:orders").next());
        }
    }
}
