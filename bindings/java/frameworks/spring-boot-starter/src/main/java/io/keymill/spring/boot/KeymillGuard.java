package io.keymill.spring.boot;

import io.keymill.Mill;
import io.keymill.mybatis.KeymillInterceptor;
import io.keymill.spring.data.KeymillJdbcCallback;
import io.keymill.spring.data.KeymillR2dbcCallback;
import java.util.function.Supplier;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.BeanFactoryUtils;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.context.ApplicationContextInitializer;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.core.env.Environment;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.util.ClassUtils;

/**
 * Refuses ids in an application context that has no mill, or none for a framework that it has: a test slice or an exclusion, for instance.
 * The default mill would be another store, a new file of SQLite that counts from 1, and an annotated field would stay empty.
 */
public final class KeymillGuard implements ApplicationContextInitializer<ConfigurableApplicationContext> {
    private static final String JDBC = "org.springframework.data.jdbc.core.mapping.JdbcMappingContext";
    private static final String R2DBC = "org.springframework.data.r2dbc.mapping.event.BeforeConvertCallback";
    private static final String MYBATIS = "org.apache.ibatis.plugin.Interceptor";

    /** Made by Spring Boot. */
    public KeymillGuard() {}

    @Override
    public void initialize(ConfigurableApplicationContext context) {
        EarlyLibrary.begin(context.getEnvironment());
        context.addBeanFactoryPostProcessor(beans -> guard(beans, context.getEnvironment()));
    }

    private static void guard(ConfigurableListableBeanFactory beans, Environment environment) {
        if (has(beans, Mill.class)) {
            Mill.refuseDefault(null);
        } else if (isStoreNamed(beans, environment) && !isDefaultNamed()) {
            Mill.refuseDefault(reason(beans, environment, "KeymillAutoConfiguration"));
        }
        ClassLoader loader = KeymillGuard.class.getClassLoader();
        if (ClassUtils.isPresent(JDBC, loader)) {
            Data.refuseJdbc(beans, environment);
        }
        if (ClassUtils.isPresent(R2DBC, loader)) {
            Data.refuseR2dbc(beans, environment);
        }
        if (ClassUtils.isPresent(MYBATIS, loader)) {
            Mybatis.refuse(beans, environment);
        }
    }

    private static boolean isStoreNamed(ConfigurableListableBeanFactory beans, Environment environment) {
        return beans.containsBeanDefinition(KeymillSources.REGISTRAR) || DataSourceConfig.isNamed(beans, environment) || !KeymillSources.Registrar.specs(environment).isEmpty();
    }

    /** As {@link Mill#open()} finds it: it is no new file then. */
    private static boolean isDefaultNamed() {
        return System.getProperty("keymill.config") != null || System.getenv("KEYMILL_CONFIG") != null;
    }

    private static boolean has(ConfigurableListableBeanFactory beans, Class<?> type) {
        return BeanFactoryUtils.beanNamesForTypeIncludingAncestors(beans, type, true, false).length > 0;
    }

    /** Why this context serves no ids, and what to write. */
    private static String reason(ConfigurableListableBeanFactory beans, Environment environment, String wanted) {
        if ("false".equals(environment.getProperty("keymill.enabled"))) {
            return "keymill.enabled=false: remove the property, or share a mill with Mill.share(mill)";
        }
        if (beans.containsBeanDefinition(KeymillSources.REGISTRAR) && !has(beans, Mill.class)) {
            return "keymill.config is not set, and this application context has no DataSource, whose database would be the store: " + DataSourceConfig.ACTION;
        }
        return "this application context, a test slice for instance, does not have keymill's " + wanted + ": add @ImportAutoConfiguration({KeymillAutoConfiguration.class"
                + (wanted.equals("KeymillAutoConfiguration") ? "" : ", " + wanted + ".class") + "})";
    }

    private static Supplier<Mill> refusing(ConfigurableListableBeanFactory beans, Environment environment, String wanted) {
        return () -> {
            throw new IllegalStateException("no id: " + reason(beans, environment, wanted));
        };
    }

    /** Loaded where Spring Data is there. */
    private static final class Data {
        private static final String WANTED = "KeymillDataAutoConfiguration";

        static void refuseJdbc(ConfigurableListableBeanFactory beans, Environment environment) {
            if (!has(beans, KeymillJdbcCallback.class)) {
                beans.registerSingleton("keymillJdbcRefusal", new KeymillJdbcCallback(refusing(beans, environment, WANTED), context(beans, "jdbcMappingContext")));
            }
        }

        static void refuseR2dbc(ConfigurableListableBeanFactory beans, Environment environment) {
            if (!has(beans, KeymillR2dbcCallback.class)) {
                beans.registerSingleton("keymillR2dbcRefusal", new KeymillR2dbcCallback(refusing(beans, environment, WANTED), context(beans, "r2dbcMappingContext")));
            }
        }

        private static Supplier<RelationalMappingContext> context(BeanFactory beans, String name) {
            return () -> (RelationalMappingContext) beans.getBean(name);
        }
    }

    /** Loaded where MyBatis is there. */
    private static final class Mybatis {
        static void refuse(ConfigurableListableBeanFactory beans, Environment environment) {
            if (!has(beans, KeymillInterceptor.class)) {
                beans.registerSingleton("keymillMybatisRefusal", new KeymillInterceptor(refusing(beans, environment, "KeymillMybatisAutoConfiguration")));
            }
        }
    }
}
