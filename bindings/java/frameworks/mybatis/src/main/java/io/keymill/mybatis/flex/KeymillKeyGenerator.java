package io.keymill.mybatis.flex;

import com.mybatisflex.core.keygen.IKeyGenerator;
import com.mybatisflex.core.keygen.KeyGeneratorFactory;
import com.mybatisflex.core.table.ColumnInfo;
import com.mybatisflex.core.table.TableInfo;
import com.mybatisflex.core.table.TableInfoFactory;
import io.keymill.Mill;
import io.keymill.support.FieldIds;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/**
 * Keys of MyBatis-Flex: {@code KeymillKeyGenerator.register()} once, and {@code @Id(keyType = KeyType.Generator, value = "keymill")} on
 * a key. Each table has a source of its own.
 */
public class KeymillKeyGenerator implements IKeyGenerator {
    /** What an entity names it by. */
    public static final String NAME = "keymill";

    private final Supplier<Mill> mills;
    private final String spec;
    private final Map<Class<?>, Map<String, FieldIds>> known = new ConcurrentHashMap<>();

    /**
     * Ids of this mill, from this source.
     *
     * @param mills where the mill is found at each id; null: the shared mill
     * @param spec the source; {@code {table}} in it stands for the entity's table
     */
    public KeymillKeyGenerator(Supplier<Mill> mills, String spec) {
        this.mills = mills;
        this.spec = spec;
    }

    /** Registers one under {@link #NAME}: ids of the shared mill, from {@code segment:{table}}. */
    public static void register() {
        KeyGeneratorFactory.register(NAME, new KeymillKeyGenerator(null, FieldIds.DEFAULT));
    }

    @Override
    public Object generate(Object entity, String column) {
        Map<String, FieldIds> ofEntity = known.get(entity.getClass());
        FieldIds ids = ofEntity == null ? null : ofEntity.get(column);
        if (ids == null) {
            ids = of(entity.getClass(), column);
            known.computeIfAbsent(entity.getClass(), any -> new ConcurrentHashMap<>()).put(column, ids);
        }
        return ids.next();
    }

    private FieldIds of(Class<?> entity, String column) {
        TableInfo table = TableInfoFactory.ofEntityClass(entity);
        for (ColumnInfo key : table.getPrimaryKeyList()) {
            if (key.getColumn().equals(column) || key.getProperty().equals(column)) {
                return FieldIds.of(mills, spec, table.getTableName(), key.getPropertyType(), entity.getName() + "." + key.getProperty());
            }
        }
        throw new IllegalArgumentException(entity.getName() + " has no key `" + column + "`");
    }
}
