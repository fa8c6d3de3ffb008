package io.keymill.spring.boot;

import io.keymill.Mill;
import io.keymill.spring.data.KeymillJdbcCallback;
import io.keymill.spring.data.KeymillR2dbcCallback;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;

/** Spring Data JDBC and R2DBC, each where the application has it. */
@AutoConfiguration(after = KeymillAutoConfiguration.class)
@ConditionalOnBean(Mill.class)
public class KeymillDataAutoConfiguration {
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.data.jdbc.core.mapping.JdbcMappingContext")
    static class JdbcConfiguration {
        @Bean
        @ConditionalOnMissingBean
        KeymillJdbcCallback keymillJdbcCallback(Mill mill, BeanFactory beans) {
            return new KeymillJdbcCallback(() -> mill, () -> (RelationalMappingContext) beans.getBean("jdbcMappingContext"));
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.data.r2dbc.mapping.event.BeforeConvertCallback")
    static class R2dbcConfiguration {
        @Bean
        @ConditionalOnMissingBean
        KeymillR2dbcCallback keymillR2dbcCallback(Mill mill, BeanFactory beans) {
            return new KeymillR2dbcCallback(() -> mill, () -> (RelationalMappingContext) beans.getBean("r2dbcMappingContext"));
        }
    }
}
