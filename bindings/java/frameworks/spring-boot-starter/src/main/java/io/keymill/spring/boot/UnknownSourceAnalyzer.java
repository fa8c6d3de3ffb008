package io.keymill.spring.boot;

import io.keymill.Business;
import io.keymill.Serial;
import io.keymill.Source;
import java.util.TreeMap;
import org.springframework.beans.factory.InjectionPoint;
import org.springframework.beans.factory.NoSuchBeanDefinitionException;
import org.springframework.beans.factory.UnsatisfiedDependencyException;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.diagnostics.AbstractFailureAnalyzer;
import org.springframework.boot.diagnostics.FailureAnalysis;
import org.springframework.core.Ordered;
import org.springframework.core.ResolvableType;
import org.springframework.core.env.Environment;

/** Names the source that is asked for and not configured, and those that are. */
final class UnknownSourceAnalyzer extends AbstractFailureAnalyzer<UnsatisfiedDependencyException> implements Ordered {
    private final Environment environment;

    UnknownSourceAnalyzer(Environment environment) {
        this.environment = environment;
    }

    @Override
    public int getOrder() {
        return Ordered.HIGHEST_PRECEDENCE;
    }

    @Override
    protected FailureAnalysis analyze(Throwable root, UnsatisfiedDependencyException e) {
        NoSuchBeanDefinitionException missing = findCause(root, NoSuchBeanDefinitionException.class);
        UnsatisfiedDependencyException innermost = e;
        while (innermost.getCause() instanceof UnsatisfiedDependencyException) {
            innermost = (UnsatisfiedDependencyException) innermost.getCause();
        }
        ResolvableType type = missing == null ? null : missing.getResolvableType();
        Class<?> wanted = type == null ? null : type.resolve();
        if (wanted != Source.class && wanted != Serial.class && wanted != Business.class) {
            return null;
        }
        InjectionPoint point = innermost.getInjectionPoint();
        Qualifier qualifier = point == null ? null : point.getAnnotation(Qualifier.class);
        String name = qualifier == null ? "NAME" : qualifier.value();
        TreeMap<String, String> specs = new TreeMap<>(KeymillSources.Registrar.specs(environment));
        String kinds = wanted == Serial.class ? "serial:TABLE/COLUMN" : wanted == Business.class ? "business:NAME" : "segment:NAME or snowflake:NAME";
        return new FailureAnalysis(
                "The bean " + innermost.getBeanName() + " wants a " + wanted.getSimpleName() + (qualifier == null ? "" : " called `" + name + "`") + ", and " + (specs.isEmpty() ? "keymill.sources is empty" : "keymill.sources has " + specs),
                "Set " + KeymillSources.property(name) + " to " + kinds + ", or name one of those with @Qualifier.", e);
    }
}
