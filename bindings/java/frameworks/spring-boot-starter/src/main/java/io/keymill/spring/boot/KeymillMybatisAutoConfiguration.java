package io.keymill.spring.boot;

import com.baomidou.mybatisplus.core.incrementer.IdentifierGenerator;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.mybatis.KeymillInterceptor;
import io.keymill.mybatis.flex.KeymillKeyGenerator;
import io.keymill.mybatis.plus.KeymillIdentifierGenerator;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.apache.ibatis.session.SqlSessionFactory;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.config.BeanFactoryPostProcessor;
import org.springframework.boot.autoconfigure.AbstractDependsOnBeanFactoryPostProcessor;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** MyBatis, MyBatis-Plus and MyBatis-Flex, each where the application has it. */
@AutoConfiguration(after = KeymillAutoConfiguration.class)
@ConditionalOnBean(Mill.class)
public class KeymillMybatisAutoConfiguration {
    private static final Log LOG = LogFactory.getLog(KeymillMybatisAutoConfiguration.class);

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.apache.ibatis.plugin.Interceptor")
    static class InterceptorConfiguration {
        @Bean
        @ConditionalOnMissingBean
        KeymillInterceptor keymillInterceptor(Mill mill) {
            return new KeymillInterceptor(() -> mill);
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "com.baomidou.mybatisplus.core.incrementer.IdentifierGenerator")
    static class PlusConfiguration {
        @Bean
        @ConditionalOnMissingBean(IdentifierGenerator.class)
        KeymillIdentifierGenerator keymillIdentifierGenerator(Mill mill, KeymillProperties properties) {
            KeymillProperties.MybatisPlus plus = properties.getMybatisPlus();
            // On a mill of its own: the application's would show sources that nothing takes from.
            try (Mill probe = Mill.open("memory:")) {
                check(probe, "keymill.mybatis-plus.source", plus.getSource());
                check(probe, "keymill.mybatis-plus.id-worker", plus.getIdWorker());
            }
            try {
                return new KeymillIdentifierGenerator(() -> mill, plus.getSource(), plus.getIdWorker());
            } catch (IllegalStateException e) {
                throw new KeymillPropertyException("keymill.mybatis-plus.id-worker", e.getMessage(), "Correct it", e);
            }
        }

        /** Refuses a spec that cannot be read. */
        private static void check(Mill probe, String property, String spec) {
            try {
                probe.source(spec.replace("{table}", "table"));
            } catch (KeymillException e) {
                throw new KeymillPropertyException(property, e.getMessage(), "Correct the spec `" + spec + "`", e);
            }
        }

        /** When the mappers are known. */
        @Bean
        SmartInitializingSingleton keymillKeyTypes(ObjectProvider<KeymillIdentifierGenerator> generators, ObjectProvider<SqlSessionFactory> factories) {
            return () -> {
                KeymillIdentifierGenerator generator = generators.getIfAvailable();
                if (generator == null) {
                    LOG.info("MyBatis-Plus takes its ids from the application's own IdentifierGenerator bean, and none from keymill");
                } else {
                    factories.forEach(factory -> check(generator, factory));
                }
            };
        }

        private static void check(KeymillIdentifierGenerator generator, SqlSessionFactory factory) {
            try {
                generator.check(factory.getConfiguration());
            } catch (IllegalStateException e) {
                throw new KeymillPropertyException("keymill.mybatis-plus.source", e.getMessage(), "Change the field, or give it another @TableId(type = …)", e);
            }
        }
    }

    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "com.mybatisflex.core.keygen.KeyGeneratorFactory")
    static class FlexConfiguration {
        /** Session factories look for it while they are built. */
        @Bean
        KeymillKeyGenerator keymillKeyGenerator(Mill mill) {
            return KeymillKeyGenerator.register(() -> mill);
        }

        @Bean
        static BeanFactoryPostProcessor keymillKeyGeneratorFirst() {
            return new AbstractDependsOnBeanFactoryPostProcessor(SqlSessionFactory.class, KeymillKeyGenerator.class) {};
        }
    }
}
