package io.keymill.mybatis;

import io.keymill.Mill;
import io.keymill.support.FieldIds;
import io.keymill.support.Versions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import org.apache.ibatis.builder.StaticSqlSource;
import org.apache.ibatis.executor.Executor;
import org.apache.ibatis.executor.keygen.Jdbc3KeyGenerator;
import org.apache.ibatis.executor.keygen.KeyGenerator;
import org.apache.ibatis.executor.keygen.SelectKeyGenerator;
import org.apache.ibatis.mapping.MappedStatement;
import org.apache.ibatis.mapping.SqlCommandType;
import org.apache.ibatis.plugin.Interceptor;
import org.apache.ibatis.plugin.Intercepts;
import org.apache.ibatis.plugin.Invocation;
import org.apache.ibatis.plugin.Signature;
import org.apache.ibatis.scripting.defaults.RawSqlSource;

/**
 * Sets the fields with {@link KeymillId} of what an {@code INSERT} is given: an object, a list or an array, and every one of them among
 * {@code @Param}s. All of a list take their ids in one step.
 *
 * <pre>{@code configuration.addInterceptor(new KeymillInterceptor());}</pre>
 */
@Intercepts(@Signature(type = Executor.class, method = "update", args = {MappedStatement.class, Object.class}))
public class KeymillInterceptor implements Interceptor {
    private final Supplier<Mill> mills;
    /** By statement and class: two statements may insert one class into two tables. */
    private final Map<String, Map<Class<?>, Filled[]>> known = new ConcurrentHashMap<>();

    /** A field with the ids that a statement fills it from. */
    private final class Filled {
        final IdFields.IdField field;
        private final MappedStatement statement;
        /** Null where the table may differ with the statement's parameters. */
        private final FieldIds ids;
        private final Map<String, FieldIds> byTable = new ConcurrentHashMap<>();

        Filled(MappedStatement statement, Object parameter, IdFields.IdField field) {
            refuseOtherKeys(statement, field);
            this.statement = statement;
            this.field = field;
            if (!field.spec.contains("{table}")) {
                ids = of(null);
            } else if (statement.getSqlSource() instanceof RawSqlSource || statement.getSqlSource() instanceof StaticSqlSource) {
                ids = of(table(parameter));
            } else {
                String table = FixedTable.of(statement.getSqlSource());
                ids = table == null ? null : of(table);
            }
        }

        FieldIds ids(Object parameter) {
            return ids != null ? ids : byTable.computeIfAbsent(table(parameter), this::of);
        }

        private FieldIds of(String table) {
            return FieldIds.of(mills, field.spec, table, field.field.getType(), field.name);
        }

        private String table(Object parameter) {
            String table = InsertedTable.of(statement.getBoundSql(parameter).getSql());
            if (table == null) {
                throw new IllegalStateException("the table of " + statement.getId() + " cannot be read from its SQL; name the source of " + field.name + " without {table}");
            }
            return table;
        }
    }

    /** Ids of the shared mill. */
    public KeymillInterceptor() {
        this(null);
    }

    /**
     * Ids of this mill.
     *
     * @param mills where the mill is found at each id; null: the shared mill
     */
    public KeymillInterceptor(Supplier<Mill> mills) {
        Versions.check("keymill-mybatis", KeymillInterceptor.class);
        this.mills = mills;
    }

    @Override
    public Object intercept(Invocation invocation) throws Throwable {
        MappedStatement statement = (MappedStatement) invocation.getArgs()[0];
        Object parameter = invocation.getArgs()[1];
        if (parameter != null && statement.getSqlCommandType() == SqlCommandType.INSERT) {
            fill(statement, parameter);
        }
        return invocation.proceed();
    }

    private void fill(MappedStatement statement, Object parameter) {
        Filled[] known = known(statement, parameter.getClass());
        if (known != null) {
            fillOne(known, parameter, parameter);
        } else if (parameter instanceof Map) {
            refuseTwo(statement, parameter, ((Map<?, ?>) parameter).values());
            // One list stands under several names, `list`, `collection`, `arg0` and its own: what has its id is left alone.
            Object last = null;
            for (Object value : ((Map<?, ?>) parameter).values()) {
                if (value != null && value != last) {
                    fillAll(statement, parameter, value);
                }
                last = value;
            }
        } else {
            fillAll(statement, parameter, parameter);
        }
    }

    /** Refuses objects of two kinds that would take from the same table: one of them is only referred to, and would become another row. */
    private void refuseTwo(MappedStatement statement, Object parameter, Collection<?> values) {
        if (isOne(values)) {
            return;
        }
        IdFields.IdField first = null;
        Object last = null;
        for (Object value : values) {
            if (value == null || value == last) {
                continue;
            }
            last = value;
            Collection<?> objects = listed(value);
            for (Object object : objects == null ? Collections.singletonList(value) : objects) {
                IdFields.IdField field = object == null ? null : unsetOfTable(statement, parameter, object);
                if (field != null && first != null && !field.field.equals(first.field)) {
                    throw new IllegalStateException(statement.getId() + " inserts into one table, and " + first.name + " and " + field.name
                            + " would both take its ids; first give an id to the object that the row only refers to, or name its source without {table}");
                }
                first = field == null ? first : field;
            }
        }
    }

    /** Whether they are one object under several names, or none. */
    private static boolean isOne(Collection<?> values) {
        Object one = null;
        for (Object value : values) {
            if (value != null && one != null && value != one) {
                return false;
            }
            one = value == null ? one : value;
        }
        return true;
    }

    /** The elements of a list or an array; null: it is an object. */
    private static Collection<?> listed(Object value) {
        return value instanceof Collection ? (Collection<?>) value : value instanceof Object[] ? Arrays.asList((Object[]) value) : null;
    }

    /** The first unset field of an object that takes from the statement's table; null: none. */
    private IdFields.IdField unsetOfTable(MappedStatement statement, Object parameter, Object object) {
        for (Filled filled : filled(statement, parameter, object.getClass())) {
            if (filled.field.spec.contains("{table}") && filled.field.isUnset(object)) {
                return filled.field;
            }
        }
        return null;
    }

    private void fillAll(MappedStatement statement, Object parameter, Object value) {
        Collection<?> objects = listed(value);
        if (objects != null) {
            fillEach(statement, parameter, objects);
        } else {
            fillOne(filled(statement, parameter, value.getClass()), parameter, value);
        }
    }

    private static void fillOne(Filled[] fields, Object parameter, Object object) {
        for (Filled filled : fields) {
            if (filled.field.isUnset(object)) {
                filled.field.set(object, filled.ids(parameter).next());
            }
        }
    }

    private void fillEach(MappedStatement statement, Object parameter, Collection<?> objects) {
        Class<?> kind = null;
        List<Object> same = new ArrayList<>(objects.size());
        for (Object object : objects) {
            if (object == null) {
                continue;
            }
            if (object.getClass() != kind) {
                fillSame(statement, parameter, kind, same);
                same.clear();
                kind = object.getClass();
            }
            same.add(object);
        }
        fillSame(statement, parameter, kind, same);
    }

    private void fillSame(MappedStatement statement, Object parameter, Class<?> type, List<Object> objects) {
        if (objects.isEmpty()) {
            return;
        }
        for (Filled filled : filled(statement, parameter, type)) {
            int unset = 0;
            for (Object object : objects) {
                if (filled.field.isUnset(object)) {
                    unset++;
                }
            }
            if (unset > 0) {
                Object[] values = filled.ids(parameter).take(unset);
                int at = 0;
                for (Object object : objects) {
                    // An object that stands twice in a list has its id the second time; one number is left over then.
                    if (filled.field.isUnset(object)) {
                        filled.field.set(object, values[at++]);
                    }
                }
            }
        }
    }

    /** Null: not asked for yet; always for a map, a collection or an array: each of its elements is filled. */
    private Filled[] known(MappedStatement statement, Class<?> type) {
        Map<Class<?>, Filled[]> ofStatement = known.get(statement.getId());
        return ofStatement == null ? null : ofStatement.get(type);
    }

    private Filled[] filled(MappedStatement statement, Object parameter, Class<?> type) {
        Filled[] filled = known(statement, type);
        if (filled == null) {
            IdFields.IdField[] fields = IdFields.of(type);
            filled = new Filled[fields.length];
            for (int i = 0; i < fields.length; i++) {
                filled[i] = new Filled(statement, parameter, fields[i]);
            }
            if (!Map.class.isAssignableFrom(type) && !Collection.class.isAssignableFrom(type)) {
                known.computeIfAbsent(statement.getId(), any -> new ConcurrentHashMap<>()).put(type, filled);
            }
        }
        return filled;
    }

    /** The database's key would overwrite the field after the row was inserted with another one. */
    private static void refuseOtherKeys(MappedStatement statement, IdFields.IdField field) {
        KeyGenerator generator = statement.getKeyGenerator();
        String[] properties = null;
        String what = null;
        if (generator instanceof Jdbc3KeyGenerator) {
            properties = statement.getKeyProperties();
            what = "useGeneratedKeys";
        } else if (generator instanceof SelectKeyGenerator) {
            properties = statement.getConfiguration().getMappedStatement(statement.getId() + SelectKeyGenerator.SELECT_KEY_SUFFIX).getKeyProperties();
            what = "<selectKey>";
        }
        for (String property : properties == null ? new String[0] : properties) {
            if (property.equals(field.field.getName()) || property.endsWith("." + field.field.getName())) {
                throw new IllegalStateException(statement.getId() + " sets `" + property + "` by " + what + ", and " + field.name + " has @KeymillId; remove one of them");
            }
        }
    }
}
