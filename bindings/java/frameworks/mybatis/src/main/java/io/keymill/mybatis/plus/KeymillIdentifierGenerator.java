package io.keymill.mybatis.plus;

import com.baomidou.mybatisplus.annotation.IdType;
import com.baomidou.mybatisplus.core.incrementer.IdentifierGenerator;
import com.baomidou.mybatisplus.core.metadata.TableInfo;
import com.baomidou.mybatisplus.core.metadata.TableInfoHelper;
import io.keymill.Mill;
import io.keymill.mybatis.KeymillId;
import io.keymill.support.Annotations;
import io.keymill.support.FieldIds;
import io.keymill.support.TableKeys;
import io.keymill.support.Versions;
import java.lang.reflect.Field;
import java.sql.SQLException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;
import java.util.regex.Pattern;
import org.apache.ibatis.mapping.Environment;
import org.apache.ibatis.session.Configuration;
import org.apache.ibatis.transaction.Transaction;

/**
 * Ids of entities whose key is {@code IdType.ASSIGN_ID}, MyBatis-Plus' default, or {@code ASSIGN_UUID}; the entities stay as they are.
 * Each table has a source of its own; {@link KeymillId} on an entity's key names another one. A key that is set is kept.
 *
 * <p>{@code IdWorker.getId()} and {@code getIdStr()}, which know no entity, take from a source of their own.
 */
public class KeymillIdentifierGenerator implements IdentifierGenerator {
    /** The source of {@code IdWorker}. */
    public static final String ID_WORKER = "segment:id_worker";

    private static final Pattern GIVES_TEXT = Pattern.compile("^serial:|[?&](text|prefix)=");

    private final Supplier<Mill> mills;
    private final String spec;
    private final FieldIds others;
    private final Map<Class<?>, EntityIds> known = new ConcurrentHashMap<>();

    /** Ids of the shared mill, from {@code segment:{table}}. */
    public KeymillIdentifierGenerator() {
        this(null, FieldIds.DEFAULT, ID_WORKER);
    }

    /**
     * Ids of this mill, from these sources.
     *
     * @param mills where the mill is found at each id; null: the shared mill
     * @param spec the source of an entity, {@code {table}} in it stands for its table
     * @param idWorker the source of {@code IdWorker}
     */
    public KeymillIdentifierGenerator(Supplier<Mill> mills, String spec, String idWorker) {
        Versions.check("keymill-mybatis", KeymillIdentifierGenerator.class);
        this.mills = mills;
        this.spec = spec;
        others = FieldIds.of(mills, idWorker, null, Long.class, "IdWorker");
    }

    /** The ids of an entity, with its table. */
    private static final class EntityIds {
        private final FieldIds ids;
        private final TableInfo table;

        EntityIds(FieldIds ids, TableInfo table) {
            this.ids = ids;
            this.table = table;
        }

        Object next() {
            return ids.next(this::ask);
        }

        /** In the present transaction where Spring has one. */
        private TableKeys.Found ask(boolean lowest, long from) {
            Environment environment = table.getConfiguration().getEnvironment();
            Transaction transaction = environment.getTransactionFactory().newTransaction(environment.getDataSource(), null, true);
            try {
                return TableKeys.ask(transaction.getConnection(), table.getTableName(), table.getKeyColumn(), lowest, from);
            } catch (SQLException e) {
                return TableKeys.Found.UNKNOWN;
            } finally {
                close(transaction);
            }
        }

        private static void close(Transaction transaction) {
            try {
                transaction.close();
            } catch (SQLException e) {
                // It has read, and that is over.
            }
        }
    }

    @Override
    public Number nextId(Object entity) {
        return (Number) next(entity);
    }

    @Override
    public String nextUUID(Object entity) {
        return String.valueOf(next(entity));
    }

    private Object next(Object entity) {
        if (entity == null) {
            return others.next();
        }
        EntityIds ids = known.get(entity.getClass());
        if (ids == null) {
            TableInfo table = TableInfoHelper.getTableInfo(entity.getClass());
            if (table == null || table.getKeyProperty() == null) {
                // Not kept: the mapper that makes it an entity may come later.
                return others.next();
            }
            EntityIds fresh = new EntityIds(of(table), table);
            EntityIds other = known.putIfAbsent(entity.getClass(), fresh);
            ids = other == null ? fresh : other;
        }
        return ids.next();
    }

    /**
     * Refuses the entities of this configuration whose keys MyBatis-Plus would not fill, or would cut off.
     *
     * @param configuration of a session factory
     * @throws IllegalStateException the first one, with class and field
     */
    public void check(Configuration configuration) {
        // MyBatis-Plus keeps the tables of all session factories in one place.
        for (TableInfo table : TableInfoHelper.getTableInfos()) {
            IdType type = table.getIdType();
            if (table.getConfiguration() == configuration && table.getKeyProperty() != null && (type == IdType.ASSIGN_ID || type == IdType.ASSIGN_UUID)) {
                of(table);
            }
        }
    }

    private FieldIds of(TableInfo table) {
        String field = table.getEntityType().getName() + "." + table.getKeyProperty();
        Class<?> type = table.getKeyType();
        if (type != null && type.isPrimitive()) {
            throw new IllegalStateException(field + " is a primitive " + type + ", for which MyBatis-Plus asks no generator; make it a " + (type == int.class ? "Integer" : "Long"));
        }
        String spec = spec(table);
        if (type == String.class && table.getIdType() == IdType.ASSIGN_ID && GIVES_TEXT.matcher(spec).find()) {
            throw new IllegalStateException(field + " takes texts from `" + spec + "`, and MyBatis-Plus asks for a number; write @TableId(type = IdType.ASSIGN_UUID)");
        }
        // MyBatis-Plus converts the number to the field's type, and cuts it off where it does not fit: it gets that type here. A String
        // with ASSIGN_ID is written from a number.
        boolean text = table.getIdType() == IdType.ASSIGN_UUID;
        Class<?> wanted = text || type == null ? String.class : Number.class.isAssignableFrom(type) ? type : type == String.class ? Long.class : type;
        return FieldIds.of(mills, spec, table.getTableName(), wanted, field);
    }

    private String spec(TableInfo table) {
        for (Class<?> at = table.getEntityType(); at != null; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (field.getName().equals(table.getKeyProperty())) {
                    Annotations.refuseOthers(field, at.getName() + "." + field.getName(), KeymillId.class);
                    KeymillId annotation = field.getAnnotation(KeymillId.class);
                    return annotation == null ? spec : annotation.value();
                }
            }
        }
        return spec;
    }
}
