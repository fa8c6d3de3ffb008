package io.keymill.spring.boot;

import io.keymill.json.KeymillJackson2;
import io.keymill.json.KeymillJackson3;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Ids as text in JSON, for the Jackson that the application has. */
@AutoConfiguration
@ConditionalOnProperty(prefix = KeymillProperties.PREFIX, name = "enabled", matchIfMissing = true)
public class KeymillJsonAutoConfiguration {
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = {"io.keymill.json.AsText", "com.fasterxml.jackson.databind.module.SimpleModule"})
    static class Jackson2Configuration {
        @Bean
        KeymillJackson2 keymillJackson2() {
            return new KeymillJackson2();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = {"io.keymill.json.AsText", "tools.jackson.databind.module.SimpleModule"})
    static class Jackson3Configuration {
        @Bean
        KeymillJackson3 keymillJackson3() {
            return new KeymillJackson3();
        }
    }
}
