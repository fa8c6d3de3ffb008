package io.keymill.spring.data;

import io.keymill.Mill;
import io.keymill.support.FieldIds;
import io.keymill.support.Versions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.function.Supplier;
import org.springframework.data.mapping.PersistentPropertyAccessor;
import org.springframework.data.mapping.model.EntityInstantiators;
import org.springframework.data.mapping.model.InstantiationAwarePropertyAccessor;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.mapping.RelationalPersistentEntity;
import org.springframework.data.relational.core.mapping.RelationalPersistentProperty;

/** Sets the annotated properties of an entity and of the entities in it; what cannot be changed is made anew by its constructor. */
final class Filler {
    private static final EntityInstantiators CONSTRUCTORS = new EntityInstantiators();

    private final Supplier<Mill> mills;
    private final Supplier<RelationalMappingContext> context;
    private final Map<RelationalPersistentProperty, FieldIds> known = new ConcurrentHashMap<>();

    /** A null of {@link #fill}'s ids: no id is in memory. */
    static final class NotReady extends RuntimeException {
        private static final long serialVersionUID = 1;
        static final NotReady INSTANCE = new NotReady();

        private NotReady() {
            super("no id is in memory", null, false, false);
        }
    }

    Filler(Supplier<Mill> mills, Supplier<RelationalMappingContext> context) {
        Versions.check("keymill-spring-data", Filler.class);
        this.mills = mills;
        this.context = context;
    }

    /** May wait for the store. */
    <T> T fill(T object) {
        return fill(object, FieldIds::next);
    }

    /** Never waits; throws {@link NotReady} where an id is not in memory, and for a serial. */
    <T> T tryFill(T object) {
        return fill(object, ids -> {
            Object id = ids.tryNext();
            if (id == null) {
                throw NotReady.INSTANCE;
            }
            return id;
        });
    }

    private <T> T fill(T object, Function<FieldIds, Object> next) {
        if (object == null) {
            return null;
        }
        RelationalPersistentEntity<?> entity = context.get().getPersistentEntity(object.getClass());
        if (entity == null) {
            return object;
        }
        PersistentPropertyAccessor<T> accessor = new InstantiationAwarePropertyAccessor<>(object, entity::getPropertyAccessor, CONSTRUCTORS);
        for (RelationalPersistentProperty property : entity) {
            KeymillId annotation = property.findAnnotation(KeymillId.class);
            if (annotation != null) {
                if (FieldIds.isUnset(accessor.getProperty(property), property.getType().isPrimitive())) {
                    accessor.setProperty(property, next.apply(ids(entity, property, annotation)));
                }
            } else if (property.isEntity()) {
                Object value = accessor.getProperty(property);
                Object filled = fillValue(value, next);
                if (filled != value) {
                    accessor.setProperty(property, filled);
                }
            }
        }
        return accessor.getBean();
    }

    /** The same one where nothing in it was made anew. */
    private Object fillValue(Object value, Function<FieldIds, Object> next) {
        if (value instanceof Map) {
            Map<Object, Object> filled = new LinkedHashMap<>();
            boolean same = true;
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                Object one = fill(entry.getValue(), next);
                same &= one == entry.getValue();
                filled.put(entry.getKey(), one);
            }
            return same ? value : filled;
        }
        if (value instanceof Collection) {
            Collection<?> before = (Collection<?>) value;
            List<Object> filled = new ArrayList<>(before.size());
            boolean same = fillAll(before, filled, next);
            return same ? value : value instanceof Set ? new LinkedHashSet<>(filled) : filled;
        }
        if (value instanceof Object[]) {
            Object[] before = (Object[]) value;
            List<Object> filled = new ArrayList<>(before.length);
            fillAll(Arrays.asList(before), filled, next);
            for (int i = 0; i < before.length; i++) {
                before[i] = filled.get(i);
            }
            return value;
        }
        return fill(value, next);
    }

    private boolean fillAll(Collection<?> before, List<Object> filled, Function<FieldIds, Object> next) {
        boolean same = true;
        for (Object each : before) {
            Object one = fill(each, next);
            same &= one == each;
            filled.add(one);
        }
        return same;
    }

    private FieldIds ids(RelationalPersistentEntity<?> entity, RelationalPersistentProperty property, KeymillId annotation) {
        return known.computeIfAbsent(property, any -> FieldIds.of(mills, annotation.value(), entity.getTableName().getReference(), property.getType(), entity.getType().getName() + "." + property.getName()));
    }
}
