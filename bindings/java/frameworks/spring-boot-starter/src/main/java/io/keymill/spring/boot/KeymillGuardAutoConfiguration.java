package io.keymill.spring.boot;

import io.keymill.Mill;
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
        /** The string may hold a password, and its property is called as nothing that Boot masks; with {@code show-values=always} it masks nothing. */
        @Bean
        SanitizingFunction keymillConfigMask() {
            return data -> isConfig(data.getKey()) ? data.withValue(SanitizableData.SANITIZED_VALUE) : data;
        }

        /** Also as {@code KEYMILL_CONFIG}. */
        private static boolean isConfig(String key) {
            return key.replaceAll("[^A-Za-z]", "").toLowerCase(Locale.ROOT).equals("keymillconfig");
        }
    }

    /** Entities and lazy sources would take ids from the default mill, a new file of SQLite that counts from 1. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnProperty(prefix = KeymillProperties.PREFIX, name = "enabled", havingValue = "false")
    static class DisabledConfiguration {
        @Bean
        static BeanFactoryPostProcessor keymillRefusal() {
            return beans -> Mill.shareLater(() -> {
                throw new IllegalStateException("keymill.enabled=false: no mill is shared for the ids of entities and lazy sources; remove the property, or share a mill with Mill.share(mill)");
            });
        }
    }
}
