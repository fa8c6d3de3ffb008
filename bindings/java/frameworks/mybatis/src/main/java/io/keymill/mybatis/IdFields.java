package io.keymill.mybatis;

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
            Class<?> parent = field.getDeclaringClass().getSuperclass();
            if (Modifier.isStatic(field.getModifiers()) || parent != null && parent.getName().equals("java.lang.Record")) {
                throw new IllegalArgumentException(name + " has @KeymillId and cannot be set, being " + (Modifier.isStatic(field.getModifiers()) ? "static" : "a record's") + "; take the id before the object is made: Mill.lazy(\"" + spec + "\").next()");
            }
            field.setAccessible(true);
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
