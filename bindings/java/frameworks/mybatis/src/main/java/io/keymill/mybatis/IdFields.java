package io.keymill.mybatis;

import io.keymill.support.Annotations;
import io.keymill.support.FieldIds;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.List;

/** The annotated fields of a class, its superclasses' before its own. */
final class IdFields {
    private IdFields() {}

    static IdField[] of(Class<?> type) {
        List<IdField> fields = new ArrayList<>();
        for (Class<?> at = type; at != null && !at.getName().startsWith("java."); at = at.getSuperclass()) {
            int own = 0;
            for (Field field : at.getDeclaredFields()) {
                Annotations.refuseOthers(field, at.getName() + "." + field.getName(), KeymillId.class);
                KeymillId annotation = field.getAnnotation(KeymillId.class);
                if (annotation != null) {
                    fields.add(own++, new IdField(field, annotation.value()));
                }
            }
        }
        return fields.toArray(new IdField[0]);
    }

    /** A field with its spec. */
    static final class IdField {
        final Field field;
        final String spec;
        final String name;
        private final boolean primitive;

        IdField(Field field, String spec) {
            this.field = field;
            this.spec = spec;
            primitive = field.getType().isPrimitive();
            name = field.getDeclaringClass().getName() + "." + field.getName();
            String fixed = fixed(field);
            if (fixed != null) {
                throw new IllegalStateException(name + " has @KeymillId and cannot be set, being " + fixed + "; take the id before the object is made: Mill.lazy(\"" + spec.replace("{table}", "TABLE") + "\").next()");
            }
            field.setAccessible(true);
        }

        /** What keeps a field from being set; null: nothing. */
        private static String fixed(Field field) {
            Class<?> parent = field.getDeclaringClass().getSuperclass();
            if (Modifier.isStatic(field.getModifiers())) {
                return "static";
            } else if (parent != null && parent.getName().equals("java.lang.Record")) {
                return "a record's";
            }
            // The compiler may have put the first value of these into whatever reads them.
            boolean constant = field.getType().isPrimitive() || field.getType() == String.class;
            return constant && Modifier.isFinal(field.getModifiers()) ? "final" : null;
        }

        boolean isUnset(Object object) {
            try {
                return FieldIds.isUnset(field.get(object), primitive);
            } catch (IllegalAccessException e) {
                throw new IllegalStateException(name + " cannot be read", e);
            }
        }

        void set(Object object, Object value) {
            try {
                field.set(object, value);
            } catch (IllegalAccessException e) {
                throw new IllegalStateException(name + " cannot be set", e);
            }
        }
    }
}
