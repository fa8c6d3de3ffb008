package io.keymill.json;

import java.lang.annotation.Annotation;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;

/** Which fields are ids. */
final class Ids {
    /** By name: no module of a framework has to be there. */
    private static final Set<String> ANNOTATIONS = new HashSet<>(Arrays.asList(
            "io.keymill.json.AsText", "io.keymill.hibernate.KeymillId", "io.keymill.mybatis.KeymillId", "io.keymill.spring.data.KeymillId"));

    private Ids() {}

    static boolean are(Iterable<Annotation> annotations) {
        for (Annotation annotation : annotations) {
            if (ANNOTATIONS.contains(annotation.annotationType().getName())) {
                return true;
            }
        }
        return false;
    }

    static boolean areNumbers(Class<?> type) {
        return type == long[].class || type == int[].class || type == short[].class;
    }

    static boolean isNumber(Class<?> type) {
        return Number.class.isAssignableFrom(type) || type == long.class || type == int.class || type == short.class;
    }

    /** {@code Object}, {@code Serializable} or {@code Comparable}: a member of a generic class. */
    static boolean mayBeNumber(Class<?> type) {
        return type.isAssignableFrom(Long.class);
    }
}
