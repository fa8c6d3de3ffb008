package io.keymill.spring.data;

import io.keymill.Mill;
import io.keymill.support.Annotations;
import io.keymill.support.FieldIds;
import io.keymill.support.TableKeys;
import io.keymill.support.Versions;
import java.lang.reflect.Field;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BiFunction;
import java.util.function.Function;
import java.util.function.Supplier;
import org.springframework.data.mapping.PersistentPropertyAccessor;
import org.springframework.data.mapping.model.EntityInstantiators;
import org.springframework.data.mapping.model.InstantiationAwarePropertyAccessor;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.mapping.RelationalPersistentEntity;
import org.springframework.data.relational.core.mapping.RelationalPersistentProperty;
import org.springframework.data.relational.core.sql.SqlIdentifier;
import org.springframework.util.ReflectionUtils;

/** Sets the annotated properties of an entity and of the entities in it; what cannot be changed is made anew by its constructor. */
final class Filler {
    private static final EntityInstantiators CONSTRUCTORS = new EntityInstantiators();

    private final Supplier<Mill> mills;
    private final Supplier<RelationalMappingContext> context;
    /** Null: the tables are not asked. */
    private final BiFunction<SqlIdentifier, SqlIdentifier, TableKeys> tables;
    private final Map<Class<?>, Member[]> known = new ConcurrentHashMap<>();

    /** An id is not in memory. */
    static final class NotReady extends RuntimeException {
        private static final long serialVersionUID = 1;
        final transient FieldIds ids;

        NotReady(FieldIds ids) {
            super("no id is in memory", null, false, false);
            this.ids = ids;
        }
    }

    Filler(Supplier<Mill> mills, Supplier<RelationalMappingContext> context, BiFunction<SqlIdentifier, SqlIdentifier, TableKeys> tables) {
        this.tables = tables;
        Versions.check("keymill-spring-data", Filler.class);
        this.mills = mills;
        this.context = context;
    }

    /** May wait for the store. */
    <T> T fill(T object) {
        return fill(object, FieldIds::next);
    }

    /** Never waits; throws {@link NotReady} where an id is not in memory. */
    <T> T tryFill(T object) {
        return fill(object, ids -> {
            Object id = ids.tryNext(Duration.ZERO);
            if (id == null) {
                throw new NotReady(ids);
            }
            return id;
        });
    }

    <T> T fill(T object, Function<FieldIds, Object> next) {
        if (object == null) {
            return null;
        }
        Member[] members = known.get(object.getClass());
        if (members == null) {
            members = read(object.getClass(), null);
            known.put(object.getClass(), members);
        }
        return fill(object, members, next);
    }

    private <T> T fill(T object, Member[] members, Function<FieldIds, Object> next) {
        T filled = object;
        for (Member member : members) {
            Object value = member.get(filled);
            if (member.annotation == null) {
                Object inner = member.property.isEmbedded() ? fillEmbedded(value, member, next) : fillValue(value, next);
                if (inner != value) {
                    filled = member.set(filled, inner);
                }
            } else if (FieldIds.isUnset(value, member.primitive)) {
                FieldIds ids = ids(member);
                filled = member.set(filled, member.keys == null ? next.apply(ids) : ids.next(member.keys));
            }
        }
        return filled;
    }

    /** A value in its owner's row; a class of such values may stand in several tables. */
    private Object fillEmbedded(Object value, Member owner, Function<FieldIds, Object> next) {
        if (value == null) {
            return null;
        }
        if (owner.embedded == null) {
            owner.embedded = read(owner.property.getType(), owner.table);
        }
        return fill(value, owner.embedded, next);
    }

    /**
     * The members of a class that are to be set or looked into; asked once, since the context looks types up under a lock.
     *
     * @param owner the table in whose rows the class's values are; null: the class's own
     */
    private Member[] read(Class<?> type, String owner) {
        RelationalPersistentEntity<?> entity = context.get().getPersistentEntity(type);
        List<Member> members = new ArrayList<>();
        if (entity != null) {
            for (RelationalPersistentProperty property : entity) {
                if (property.getField() != null) {
                    Annotations.refuseOthers(property.getField(), type.getName() + "." + property.getName(), KeymillId.class);
                }
                KeymillId annotation = property.findAnnotation(KeymillId.class);
                if (annotation != null || property.isEntity()) {
                    // A value in its owner's row: the column has a prefix, and is not asked for.
                    TableKeys keys = tables == null || annotation == null || owner != null ? null : tables.apply(entity.getTableName(), property.getColumnName());
                    members.add(new Member(entity, property, annotation, owner == null ? table(entity) : owner, keys));
                }
            }
        }
        return members.toArray(new Member[0]);
    }

    /** The same one where nothing in it was made anew; what is sorted stays so, as the property's type may want it. */
    @SuppressWarnings("unchecked")
    private Object fillValue(Object value, Function<FieldIds, Object> next) {
        if (value instanceof Map) {
            Map<Object, Object> filled = value instanceof SortedMap ? new TreeMap<Object, Object>(((SortedMap<Object, ?>) value).comparator()) : new LinkedHashMap<>();
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
            return same ? value : value instanceof SortedSet ? sorted((SortedSet<Object>) value, filled) : value instanceof Set ? new LinkedHashSet<>(filled) : filled;
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

    private static SortedSet<Object> sorted(SortedSet<Object> before, List<Object> filled) {
        SortedSet<Object> sorted = new TreeSet<>(before.comparator());
        sorted.addAll(filled);
        return sorted;
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

    private FieldIds ids(Member member) {
        FieldIds ids = member.ids;
        if (ids == null) {
            ids = FieldIds.of(mills, member.annotation.value(), member.table, member.property.getType(), member.entity.getType().getName() + "." + member.property.getName());
            member.ids = ids;
        }
        return ids;
    }

    /** In Spring Data 2 a name with a schema is more than one name, and has no reference. */
    private static String table(RelationalPersistentEntity<?> entity) {
        String table = null;
        for (SqlIdentifier part : entity.getTableName()) {
            table = part.getReference();
        }
        return table;
    }

    /** A property; read and set as Spring Data does it, a field without an accessor made for each call. */
    private static final class Member {
        final RelationalPersistentEntity<?> entity;
        final RelationalPersistentProperty property;
        /** Null: an entity, or several. */
        final KeymillId annotation;
        final String table;
        /** Null: the table is not asked. */
        final TableKeys keys;
        final boolean primitive;
        /** Null where Spring Data calls a getter and a setter. */
        private final Field field;
        /** Without a lock: its fields are final, and two of them take from one source. */
        FieldIds ids;
        /** The fillers of the value in an embedded property, once it had one. */
        volatile Member[] embedded;

        Member(RelationalPersistentEntity<?> entity, RelationalPersistentProperty property, KeymillId annotation, String table, TableKeys keys) {
            this.keys = keys;
            this.entity = entity;
            this.property = property;
            this.annotation = annotation;
            this.table = table;
            primitive = property.getType().isPrimitive();
            field = property.usePropertyAccess() ? null : property.getField();
            if (field != null) {
                ReflectionUtils.makeAccessible(field);
            }
        }

        Object get(Object object) {
            return field == null ? entity.getPropertyAccessor(object).getProperty(property) : ReflectionUtils.getField(field, object);
        }

        /** Returns the object, or its copy with the value where the object cannot be changed. */
        <T> T set(T object, Object value) {
            if (field != null && !property.isImmutable()) {
                ReflectionUtils.setField(field, object, value);
                return object;
            }
            PersistentPropertyAccessor<T> accessor = new InstantiationAwarePropertyAccessor<>(object, entity::getPropertyAccessor, CONSTRUCTORS);
            accessor.setProperty(property, value);
            return accessor.getBean();
        }
    }
}
