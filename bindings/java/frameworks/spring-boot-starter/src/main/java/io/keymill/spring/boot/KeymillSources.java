package io.keymill.spring.boot;

import io.keymill.Business;
import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.Serial;
import io.keymill.Source;
import io.keymill.support.Versions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.beans.factory.support.AutowireCandidateQualifier;
import org.springframework.beans.factory.support.BeanDefinitionRegistry;
import org.springframework.beans.factory.support.BeanDefinitionRegistryPostProcessor;
import org.springframework.beans.factory.support.RootBeanDefinition;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.core.env.Environment;
import org.springframework.util.ClassUtils;

/** The beans of {@code keymill.sources}: a {@link Source}, {@link Serial} or {@link Business} each. */
final class KeymillSources {
    static final String BEAN = "keymillSources";
    /** The bean that a context has with {@link KeymillAutoConfiguration}. */
    static final String REGISTRAR = "keymillSourceRegistrar";
    /** The bean that opens the mill. */
    static final String CONTEXT = "keymillContext";

    /** Whose beans migrate the schema while they are made; of Boot 2.7 to 3.5, and of 4. */
    private static final String[] MIGRATORS = {
        "org.springframework.boot.autoconfigure.flyway.FlywayMigrationInitializer", "org.springframework.boot.flyway.autoconfigure.FlywayMigrationInitializer", "liquibase.integration.spring.SpringLiquibase"
    };

    private final Mill mill;
    private final Map<String, String> specs;

    KeymillSources(Mill mill, Map<String, String> specs) {
        this.mill = mill;
        this.specs = specs;
    }

    static String property(String name) {
        return KeymillProperties.PREFIX + ".sources." + name;
    }

    /** The bean of a segment or a snowflake. */
    Source source(String name) {
        return asked(name, mill::source);
    }

    /** The bean of a serial. */
    Serial serial(String name) {
        return asked(name, spec -> mill.serial(spec.substring(spec.indexOf(':') + 1)));
    }

    /** The bean of business ids. */
    Business business(String name) {
        return asked(name, spec -> mill.business(spec.substring(spec.indexOf(':') + 1)));
    }

    private <T> T asked(String name, Function<String, T> verb) {
        String spec = specs.get(name);
        try {
            return verb.apply(spec);
        } catch (KeymillException e) {
            if (e.code() == Code.CLOSED) {
                throw e;
            }
            throw new KeymillPropertyException(property(name), e.getMessage(), "Correct the spec `" + spec + "`", e);
        }
    }

    /** Registers a bean definition for each property. */
    static final class Registrar implements BeanDefinitionRegistryPostProcessor {
        private final Environment environment;

        Registrar(Environment environment) {
            // The first bean of keymill in a context.
            Versions.check("keymill-spring-boot-starter", KeymillSources.class);
            this.environment = environment;
        }

        static Map<String, String> specs(Environment environment) {
            return Binder.get(environment).bind(KeymillProperties.PREFIX + ".sources", Bindable.mapOf(String.class, String.class)).orElseGet(java.util.Collections::emptyMap);
        }

        @Override
        public void postProcessBeanDefinitionRegistry(BeanDefinitionRegistry registry) {
            specs(environment).forEach((name, spec) -> {
                // A service class is often called as its source is: the bean's name is another, and the qualifier is the name.
                RootBeanDefinition definition = new RootBeanDefinition();
                definition.setFactoryBeanName(BEAN);
                definition.setFactoryMethodName(verb(name, spec));
                definition.getConstructorArgumentValues().addIndexedArgumentValue(0, name);
                definition.addQualifier(new AutowireCandidateQualifier(Qualifier.class, name));
                registry.registerBeanDefinition(property(name), definition);
            });
        }

        private static String verb(String name, String spec) {
            int colon = spec == null ? -1 : spec.indexOf(':');
            switch (colon < 0 ? "" : spec.substring(0, colon)) {
                case "segment":
                case "snowflake":
                    return "source";
                case "serial":
                    return "serial";
                case "business":
                    return "business";
                default:
                    throw new KeymillPropertyException(property(name), "`" + spec + "` is no source", "Write segment:NAME, snowflake:NAME, serial:TABLE/COLUMN or business:NAME, with options behind a question mark", null);
            }
        }

        /**
         * Tables are made after the first run of Flyway and Liquibase, which want an empty schema. Not where these wait for JPA, which
         * has the mill.
         */
        @Override
        public void postProcessBeanFactory(ConfigurableListableBeanFactory factory) {
            boolean makes = "missing".equalsIgnoreCase(environment.getProperty(KeymillProperties.PREFIX + ".init"));
            if (!makes || !factory.containsBeanDefinition(CONTEXT) || environment.getProperty("spring.jpa.defer-datasource-initialization", boolean.class, false)) {
                return;
            }
            List<String> first = new ArrayList<>();
            for (String migrator : MIGRATORS) {
                if (ClassUtils.isPresent(migrator, null)) {
                    first.addAll(Arrays.asList(factory.getBeanNamesForType(ClassUtils.resolveClassName(migrator, null), true, false)));
                }
            }
            factory.getBeanDefinition(CONTEXT).setDependsOn(first.toArray(new String[0]));
        }
    }
}
