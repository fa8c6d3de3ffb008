package io.keymill.spring.boot;

import io.keymill.KeymillException;
import io.keymill.Mill;
import java.lang.reflect.Method;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import javax.sql.DataSource;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.beans.factory.NoUniqueBeanDefinitionException;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.core.env.Environment;
import org.springframework.util.ClassUtils;
import org.springframework.util.ObjectUtils;
import org.springframework.util.ReflectionUtils;
import org.springframework.util.StringUtils;

/**
 * The mill's configuration in the application's own database: what its {@code DataSource} connects with. What is not known to lead to
 * the same database, with the same login and encryption, is refused.
 */
final class DataSourceConfig {
    private static final String PREFIX = "spring.datasource";
    /** What service connections, Docker Compose and cloud bindings give; 3.1 to 3.5, and 4. */
    private static final String[] DETAILS = {
        "org.springframework.boot.autoconfigure.jdbc.JdbcConnectionDetails", "org.springframework.boot.jdbc.autoconfigure.JdbcConnectionDetails"
    };
    /** What Boot binds to a pool, or asks for one. */
    private static final String[] OF_POOLS = {"hikari", "tomcat", "dbcp2", "oracleucp", "xa", "jndi-name"};
    static final String ACTION = "Set keymill.config to sqlite:FILE, mysql://user:password@host:port/database, postgres://…, redis://…, memory: or file:CONFIG.toml";

    /** The pools whose getters say what they connect with. */
    private enum Pool {
        HIKARI(
                "com.zaxxer.hikari.HikariDataSource", "JdbcUrl", "DataSourceProperties", "ConnectionInitSql",
                "DataSource", "DataSourceClassName", "DataSourceJNDI", "CredentialsProvider", "CredentialsProviderClassName", "Catalog", "Schema"),
        TOMCAT("org.apache.tomcat.jdbc.pool.DataSource", "Url", "DbProperties", "InitSQL", "DataSource", "DataSourceJNDI", "DefaultCatalog"),
        DBCP2("org.apache.commons.dbcp2.BasicDataSource", "Url", "ConnectionProperties", "ConnectionInitSqls", "ConnectionFactoryClassName", "DefaultCatalog", "DefaultSchema");

        /** Not of a subclass or a proxy: its connections may be others. */
        private final String type;
        private final String url;
        private final String properties;
        /** SQL for each new connection: of no effect on the store where it only sets variables. */
        private final String sql;
        /** With one of these the URL and the login do not say where statements go. */
        private final String[] elsewhere;

        Pool(String type, String url, String properties, String sql, String... elsewhere) {
            this.type = type;
            this.url = url;
            this.properties = properties;
            this.sql = sql;
            this.elsewhere = elsewhere;
        }
    }

    private DataSourceConfig() {}

    /** Whether the application names a store: by {@code keymill.config}, or by a database of its own. */
    static boolean isNamed(ListableBeanFactory beans, Environment environment) {
        Class<?> details = detailsType();
        return StringUtils.hasText(environment.getProperty(KeymillProperties.PREFIX + ".config"))
                || Binder.get(environment).bind(PREFIX, Bindable.mapOf(String.class, Object.class)).isBound()
                || beans.getBeanNamesForType(DataSource.class, true, false).length > 0
                || details != null && beans.getBeanNamesForType(details, true, false).length > 0;
    }

    static String of(ListableBeanFactory beans, Environment environment) {
        DataSource source;
        try {
            // As Boot asks for it: of several, the primary one.
            source = beans.getBeanProvider(DataSource.class).getIfAvailable();
        } catch (NoUniqueBeanDefinitionException e) {
            throw refused("there are several DataSource beans and none is @Primary, so none of their databases can be the store", e);
        }
        return source == null ? ofSettings(beans, Binder.get(environment)) : ofPool(source);
    }

    private static String ofPool(DataSource source) {
        String type = source.getClass().getName();
        for (Pool pool : Pool.values()) {
            if (pool.type.equals(type)) {
                return ofPool(pool, source, "the DataSource bean (" + type + ")");
            }
        }
        throw refused("the DataSource bean is of " + type + ", which does not show how it connects", null);
    }

    private static String ofPool(Pool pool, DataSource source, String bean) {
        // Tomcat's pool itself has a sentence in place of the password.
        Object settings = pool == Pool.TOMCAT ? get(source, "PoolProperties") : source;
        for (String name : pool.elsewhere) {
            if (!ObjectUtils.isEmpty(get(settings, name))) {
                throw refused(bean + " has " + property(pool, name) + ", so its URL does not say where statements go", null);
            }
        }
        Map<String, String> properties = new LinkedHashMap<>();
        Map<?, ?> given = (Map<?, ?>) get(settings, pool.properties);
        if (given != null) {
            given.forEach((name, value) -> properties.put(String.valueOf(name), String.valueOf(value)));
        }
        Object sql = get(settings, pool.sql);
        if (!ObjectUtils.isEmpty(sql)) {
            properties.put("connectionInitSql", sql instanceof Collection ? StringUtils.collectionToDelimitedString((Collection<?>) sql, ";") : sql.toString());
        }
        return store(bean, (String) get(settings, pool.url), (String) get(settings, "Username"), (String) get(settings, "Password"), properties);
    }

    /** Where no pool connects: an application with R2DBC, for instance. */
    private static String ofSettings(ListableBeanFactory beans, Binder binder) {
        for (String name : OF_POOLS) {
            if (binder.bind(PREFIX + "." + name, Bindable.of(Object.class)).isBound() || binder.bind(PREFIX + "." + name, Bindable.mapOf(String.class, Object.class)).isBound()) {
                throw refused("there is no DataSource bean, to which " + PREFIX + "." + name + " would apply", null);
            }
        }
        Class<?> type = detailsType();
        Object details = type == null ? null : beans.getBeanProvider(type, false).getIfAvailable();
        if (details != null) {
            // Boot's own, beside the interface, is made of these properties.
            String from = details.getClass().getPackage() == type.getPackage() ? PREFIX : "the bean " + details.getClass().getName() + " (" + type.getSimpleName() + ")";
            return store(from, ask(type, details, "getJdbcUrl"), ask(type, details, "getUsername"), ask(type, details, "getPassword"), new LinkedHashMap<>());
        }
        return store(PREFIX, text(binder, ".url"), text(binder, ".username"), text(binder, ".password"), new LinkedHashMap<>());
    }

    private static String store(String from, String url, String user, String password, Map<String, String> properties) {
        if (url == null) {
            throw refused(from.equals(PREFIX) ? "neither is " + PREFIX + ".url, whose database would be the store" : from + " has no URL", null);
        }
        if (user != null) {
            properties.put("user", user);
        }
        if (password != null) {
            properties.put("password", password);
        }
        try {
            return Mill.storeOf(url, properties);
        } catch (KeymillException e) {
            throw refused("the database of " + from + " cannot be the store: " + e.getMessage(), e);
        }
    }

    private static KeymillPropertyException refused(String why, Exception cause) {
        return new KeymillPropertyException("keymill.config", "it is not set, and " + why, ACTION, cause);
    }

    /** As Boot spells it: a hyphen before each capital letter. */
    private static String property(Pool pool, String name) {
        return PREFIX + "." + pool.name().toLowerCase(Locale.ROOT) + name.replaceAll("([A-Z])", "-$1").toLowerCase(Locale.ROOT).replaceFirst("-", ".");
    }

    /** Null where the pool's version has no such property. */
    private static Object get(Object settings, String name) {
        Method getter = ReflectionUtils.findMethod(settings.getClass(), "get" + name);
        if (getter == null) {
            return null;
        }
        // DBCP2 hides one of them.
        ReflectionUtils.makeAccessible(getter);
        return ReflectionUtils.invokeMethod(getter, settings);
    }

    private static String text(Binder binder, String name) {
        return binder.bind(PREFIX + name, String.class).orElse(null);
    }

    private static Class<?> detailsType() {
        ClassLoader loader = DataSourceConfig.class.getClassLoader();
        for (String name : DETAILS) {
            if (ClassUtils.isPresent(name, loader)) {
                return ClassUtils.resolveClassName(name, loader);
            }
        }
        return null;
    }

    private static String ask(Class<?> type, Object details, String getter) {
        return (String) ReflectionUtils.invokeMethod(ReflectionUtils.findMethod(type, getter), details);
    }
}
