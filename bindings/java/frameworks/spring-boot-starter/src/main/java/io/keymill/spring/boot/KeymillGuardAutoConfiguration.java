package io.keymill.spring.boot;

import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.springframework.beans.factory.config.BeanFactoryPostProcessor;
import org.springframework.boot.actuate.endpoint.SanitizableData;
import org.springframework.boot.actuate.endpoint.SanitizingFunction;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** What holds where {@code keymill.enabled} is false too. */
@AutoConfiguration
public class KeymillGuardAutoConfiguration {
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.actuate.endpoint.SanitizingFunction")
    static class SanitizingConfiguration {
        /** What holds a secret: variables of the environment, also as properties in any spelling. A test compares the list with what keymill reads. */
        private static final List<String> SECRETS = Arrays.asList("KEYMILL_CONFIG", "KEYMILL_PASSWORD", "KEYMILL_ORDER_KEYS");

        /** Boot masks some names only, and none with {@code show-values=always}. */
        @Bean
        SanitizingFunction keymillSecretsMask() {
            return data -> isSecret(data.getKey()) ? data.withValue(SanitizableData.SANITIZED_VALUE) : data;
        }

        private static boolean isSecret(String key) {
            return SECRETS.stream().anyMatch(secret -> letters(secret).equals(letters(key)));
        }

        private static String letters(String key) {
            return key.replaceAll("[^A-Za-z]", "").toLowerCase(Locale.ROOT);
        }
    }

    /** Entities and lazy sources would take ids from the default mill, a new file of SQLite that counts from 1. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnProperty(prefix = KeymillProperties.PREFIX, name = "enabled", havingValue = "false")
    static class DisabledConfiguration {
        @Bean
        static BeanFactoryPostProcessor keymillRefusal() {
            return beans -> SharedMill.share(() -> {
                throw new IllegalStateException("keymill.enabled=false: no mill is shared for the ids of entities and lazy sources; remove the property, or share a mill with Mill.share(mill)");
            });
        }
    }
}
