package io.keymill.mybatis;

import io.keymill.Mill;
import io.keymill.support.FieldIds;
import io.keymill.support.Versions;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
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
    /** By statement and field, and by table where the statement's SQL is made anew each time. */
    private final Map<String, FieldIds> known = new ConcurrentHashMap<>();

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
        if (parameter instanceof Map) {
            // One list stands under several names: `list`, `collection`, `arg0` and its own.
            Set<Object> values = Collections.newSetFromMap(new IdentityHashMap<>());
            for (Object value : ((Map<?, ?>) parameter).values()) {
                if (value != null && values.add(value)) {
                    fillAll(statement, parameter, value);
                }
            }
        } else {
            fillAll(statement, parameter, parameter);
        }
    }

    private void fillAll(MappedStatement statement, Object parameter, Object value) {
        if (value instanceof Collection) {
            fillEach(statement, parameter, (Collection<?>) value);
        } else if (value instanceof Object[]) {
            fillEach(statement, parameter, Arrays.asList((Object[]) value));
        } else {
            fillEach(statement, parameter, Collections.singletonList(value));
        }
    }

    private void fillEach(MappedStatement statement, Object parameter, Collection<?> objects) {
        Class<?> of = null;
        List<Object> same = new ArrayList<>(objects.size());
        for (Object object : objects) {
            if (object == null) {
                continue;
            }
            if (object.getClass() != of) {
                fillSame(statement, parameter, of, same);
                same.clear();
                of = object.getClass();
            }
            same.add(object);
        }
        fillSame(statement, parameter, of, same);
    }

    private void fillSame(MappedStatement statement, Object parameter, Class<?> type, List<Object> objects) {
        if (objects.isEmpty()) {
            return;
        }
        for (IdFields.IdField field : IdFields.of(type)) {
            boolean primitive = field.field.getType().isPrimitive();
            // An object that stands twice in a list gets one id.
            Set<Object> unset = Collections.newSetFromMap(new IdentityHashMap<>());
            for (Object object : objects) {
                if (FieldIds.isUnset(field.get(object), primitive)) {
                    unset.add(object);
                }
            }
            FieldIds ids = ids(statement, parameter, field);
            if (unset.size() == 1) {
                field.set(unset.iterator().next(), ids.next());
            } else if (!unset.isEmpty()) {
                Object[] values = ids.take(unset.size());
                int at = 0;
                for (Object object : objects) {
                    if (unset.remove(object)) {
                        field.set(object, values[at++]);
                    }
                }
            }
        }
    }

    private FieldIds ids(MappedStatement statement, Object parameter, IdFields.IdField field) {
        String table = isMadeAnew(statement) ? table(statement, parameter, field) : null;
        String key = statement.getId() + ' ' + field.name + (table == null ? "" : ' ' + table);
        FieldIds ids = known.get(key);
        if (ids == null) {
            refuseOtherKeys(statement, field);
            table = table == null ? table(statement, parameter, field) : table;
            ids = FieldIds.of(mills, field.spec, table, field.field.getType(), field.name);
            known.put(key, ids);
        }
        return ids;
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

    /** Whether the statement's SQL depends on its parameters, and its table may do so too. */
    private static boolean isMadeAnew(MappedStatement statement) {
        return !(statement.getSqlSource() instanceof RawSqlSource) && !(statement.getSqlSource() instanceof StaticSqlSource);
    }

    /** Null where the spec does not name it. */
    private static String table(MappedStatement statement, Object parameter, IdFields.IdField field) {
        if (!field.spec.contains("{table}")) {
            return null;
        }
        String table = InsertedTable.of(statement.getBoundSql(parameter).getSql());
        if (table == null) {
            throw new IllegalStateException("the table of " + statement.getId() + " cannot be read from its SQL; name the source of " + field.name + " without {table}");
        }
        return table;
    }
}
