package io.keymill.spring.boot;

import io.keymill.Mill;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.beans.factory.config.BeanPostProcessor;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.ConditionContext;
import org.springframework.context.annotation.Conditional;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.ConfigurationCondition;
import org.springframework.core.env.Environment;
import org.springframework.core.type.AnnotatedTypeMetadata;
import org.springframework.orm.jpa.AbstractEntityManagerFactoryBean;

/** The mill, which is closed with the context, its sources, and what shows its state. */
@AutoConfiguration(
        afterName = {
            "org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration",
            "org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration"
        })
@ConditionalOnProperty(prefix = KeymillProperties.PREFIX, name = "enabled", matchIfMissing = true)
@EnableConfigurationProperties(KeymillProperties.class)
public class KeymillAutoConfiguration {
    /** The mill of {@code keymill.config}, where the application has none of its own, and names a store or a source. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnMissingBean(Mill.class)
    @Conditional(StoreCondition.class)
    static class MillConfiguration {
        @Bean(KeymillSources.CONTEXT)
        ContextMill keymillContext(KeymillProperties properties, ListableBeanFactory beans, Environment environment) {
            return new ContextMill(properties, () -> DataSourceConfig.of(beans, environment));
        }

        @Bean(destroyMethod = "")
        Mill mill(ContextMill context) {
            return context.mill();
        }
    }

    /** Without a store and a source an application starts, and {@link KeymillGuard} refuses the first id. */
    static final class StoreCondition implements ConfigurationCondition {
        @Override
        public ConfigurationPhase getConfigurationPhase() {
            return ConfigurationPhase.REGISTER_BEAN;
        }

        @Override
        public boolean matches(ConditionContext context, AnnotatedTypeMetadata metadata) {
            return DataSourceConfig.isNamed(context.getBeanFactory(), context.getEnvironment()) || !KeymillSources.Registrar.specs(context.getEnvironment()).isEmpty();
        }
    }

    @Bean(SharedMill.BEAN)
    static SharedMill keymillSharedMill() {
        return new SharedMill();
    }

    @Bean(KeymillSources.BEAN)
    @ConditionalOnBean(Mill.class)
    KeymillSources keymillSources(Mill mill, Environment environment) {
        return new KeymillSources(mill, KeymillSources.Registrar.specs(environment));
    }

    @Bean(KeymillSources.REGISTRAR)
    static KeymillSources.Registrar keymillSourceRegistrar(Environment environment) {
        return new KeymillSources.Registrar(environment);
    }

    @Bean
    @ConditionalOnBean(Mill.class)
    @ConditionalOnProperty(prefix = KeymillProperties.PREFIX, name = "warm-up", matchIfMissing = true)
    WarmUp keymillWarmUp(Mill mill, Environment environment) {
        return new WarmUp(mill, KeymillSources.Registrar.specs(environment));
    }

    /** Hands this context's mill to Hibernate, whichever mill is shared. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.orm.jpa.AbstractEntityManagerFactoryBean")
    static class JpaConfiguration {
        @Bean
        static BeanPostProcessor keymillJpaProperties(ConfigurableListableBeanFactory beans) {
            return new BeanPostProcessor() {
                @Override
                public Object postProcessBeforeInitialization(Object bean, String name) {
                    if (bean instanceof AbstractEntityManagerFactoryBean && beans.getBeanNamesForType(Mill.class, true, false).length > 0) {
                        ((AbstractEntityManagerFactoryBean) bean).getJpaPropertyMap().putIfAbsent("keymill.mill", beans.getBean(Mill.class));
                        // So that it is closed after what writes entities.
                        for (Class<?> needed : new Class<?>[] {Mill.class, ContextMill.class}) {
                            for (String mill : beans.getBeanNamesForType(needed, true, false)) {
                                beans.registerDependentBean(mill, name);
                            }
                        }
                    }
                    return bean;
                }
            };
        }
    }
}
