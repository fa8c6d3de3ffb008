package io.keymill.spring.boot;

import io.keymill.KeymillException;
import io.keymill.Mill;
import java.util.LinkedHashMap;
import java.util.Map;
import org.springframework.beans.factory.ListableBeanFactory;
import org.springframework.boot.context.properties.bind.Bindable;
import org.springframework.boot.context.properties.bind.Binder;
import org.springframework.core.env.Environment;
import org.springframework.util.ClassUtils;
import org.springframework.util.ReflectionUtils;

/** The mill's configuration in the application's own database, as its {@code DataSource} is configured. */
final class DataSourceConfig {
    private static final String PREFIX = "spring.datasource";
    /** What service connections, Docker Compose and cloud bindings give; 3.1 to 3.5, and 4. */
    private static final String[] DETAILS = {
        "org.springframework.boot.autoconfigure.jdbc.JdbcConnectionDetails", "org.springframework.boot.jdbc.autoconfigure.JdbcConnectionDetails"
    };
    private static final String ACTION = "Set keymill.config to sqlite:FILE, mysql://user:password@host:port/database, postgres://…, redis://…, memory: or file:CONFIG.toml";

    private DataSourceConfig() {}

    static String of(ListableBeanFactory beans, Environment environment) {
        Binder binder = Binder.get(environment);
        String url = binder.bind(PREFIX + ".url", String.class).orElse(null);
        String user = binder.bind(PREFIX + ".username", String.class).orElse(null);
        String password = binder.bind(PREFIX + ".password", String.class).orElse(null);
        Map<String, String> properties = new LinkedHashMap<>(binder.bind(PREFIX + ".hikari.data-source-properties", Bindable.mapOf(String.class, String.class)).orElseGet(LinkedHashMap::new));
        String from = PREFIX;
        Class<?> type = detailsType();
        // As Boot asks for it: of several, the primary one.
        Object details = type == null ? null : beans.getBeanProvider(type, false).getIfAvailable();
        if (details != null) {
            url = ask(type, details, "getJdbcUrl");
            user = ask(type, details, "getUsername");
            password = ask(type, details, "getPassword");
            // Boot's own, beside the interface, is made of these properties.
            from = details.getClass().getPackage() == type.getPackage() ? PREFIX : "the bean " + details.getClass().getName() + " (" + type.getSimpleName() + ")";
        }
        if (url == null) {
            throw new KeymillPropertyException("keymill.config", "it is not set, and neither is " + PREFIX + ".url, whose database would be the store", ACTION, null);
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
            throw new KeymillPropertyException("keymill.config", "it is not set, and the database of " + from + " cannot be the store: " + e.getMessage(), ACTION, e);
        }
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
