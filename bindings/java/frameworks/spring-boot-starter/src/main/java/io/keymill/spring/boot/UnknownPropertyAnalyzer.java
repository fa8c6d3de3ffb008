package io.keymill.spring.boot;

import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.Locale;
import java.util.TreeSet;
import org.springframework.boot.context.properties.bind.BindException;
import org.springframework.boot.context.properties.bind.UnboundConfigurationPropertiesException;
import org.springframework.boot.context.properties.source.ConfigurationProperty;
import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;
import org.springframework.core.Ordered;

/** Names the property below {@code keymill} that does not exist, and those that do. */
final class UnknownPropertyAnalyzer extends AbstractFailureAnalyzer<BindException> implements Ordered {
    @Override
    public int getOrder() {
        // Before Boot's own, which does not say what is valid.
        return Ordered.HIGHEST_PRECEDENCE;
    }

    @Override
    protected FailureAnalysis analyze(Throwable root, BindException e) {
        if (!e.getName().toString().equals(KeymillProperties.PREFIX) || !(e.getCause() instanceof UnboundConfigurationPropertiesException)) {
            return null;
        }
        TreeSet<String> unknown = new TreeSet<>();
        for (ConfigurationProperty property : ((UnboundConfigurationPropertiesException) e.getCause()).getUnboundProperties()) {
            unknown.add(property.getName() + (property.getOrigin() == null ? "" : " (" + property.getOrigin() + ")"));
        }
        return new FailureAnalysis("keymill has no property " + String.join(", ", unknown), "Use one of " + String.join(", ", names()) + ".", e);
    }

    private static TreeSet<String> names() {
        TreeSet<String> names = new TreeSet<>();
        add(names, KeymillProperties.PREFIX, KeymillProperties.class);
        return names;
    }

    private static void add(TreeSet<String> names, String prefix, Class<?> properties) {
        for (Field field : properties.getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers())) {
                continue;
            }
            String name = prefix + "." + field.getName().replaceAll("(?=[A-Z])", "-").toLowerCase(Locale.ROOT);
            if (field.getType().getDeclaringClass() == KeymillProperties.class && !field.getType().isEnum()) {
                add(names, name, field.getType());
            } else {
                names.add(name);
            }
        }
    }
}
