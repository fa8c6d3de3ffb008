package io.keymill.support;

import java.lang.annotation.Annotation;
import java.lang.reflect.AnnotatedElement;
import java.util.regex.Pattern;

/** Refuses the annotation of another module, which is called as the module's own: its spec would be ignored, and no id be set. */
public final class Annotations {
    private static final Pattern OURS = Pattern.compile("io[.]keymill[.](hibernate|mybatis|spring[.]data)[.]KeymillId");

    private Annotations() {}

    /**
     * Looks at one field or method.
     *
     * @param element the field or method
     * @param name class and field, for the message
     * @param own the module's annotation
     * @throws IllegalStateException if it has another module's annotation and not this one
     */
    public static void refuseOthers(AnnotatedElement element, String name, Class<? extends Annotation> own) {
        if (element.isAnnotationPresent(own)) {
            return;
        }
        for (Annotation annotation : element.getAnnotations()) {
            String type = annotation.annotationType().getName();
            if (OURS.matcher(type).matches()) {
                throw new IllegalStateException(name + " has @" + type + ", which is not read here; import " + own.getName() + ", beside it where other frameworks use the class too");
            }
        }
    }
}
