package io.keymill.spring.boot;

import io.keymill.Mill;
import org.springframework.boot.actuate.autoconfigure.endpoint.condition.ConditionalOnAvailableEndpoint;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Health, meters and the endpoint, each where the application has what shows them. */
@AutoConfiguration(after = KeymillAutoConfiguration.class)
@ConditionalOnBean(Mill.class)
public class KeymillActuatorAutoConfiguration {
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.actuate.health.HealthIndicator")
    static class HealthConfiguration {
        @Bean
        @org.springframework.boot.actuate.autoconfigure.health.ConditionalOnEnabledHealthIndicator("keymill")
        KeymillHealth keymillHealthIndicator(Mill mill) {
            return new KeymillHealth(mill);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.health.contributor.HealthIndicator")
    static class HealthOfBoot4Configuration {
        @Bean
        @org.springframework.boot.health.autoconfigure.contributor.ConditionalOnEnabledHealthIndicator("keymill")
        KeymillHealthOfBoot4 keymillHealthIndicator(Mill mill) {
            return new KeymillHealthOfBoot4(mill);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "io.micrometer.core.instrument.binder.MeterBinder")
    static class MetersConfiguration {
        @Bean
        KeymillMeters keymillMeters(Mill mill) {
            return new KeymillMeters(mill);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.actuate.autoconfigure.endpoint.condition.ConditionalOnAvailableEndpoint")
    static class EndpointConfiguration {
        @Bean
        @ConditionalOnMissingBean
        @ConditionalOnAvailableEndpoint(endpoint = KeymillEndpoint.class)
        KeymillEndpoint keymillEndpoint(Mill mill) {
            return new KeymillEndpoint(mill);
        }
    }
}
