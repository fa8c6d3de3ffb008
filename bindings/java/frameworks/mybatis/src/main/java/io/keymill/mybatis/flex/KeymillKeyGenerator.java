package io.keymill.mybatis.flex;

import com.mybatisflex.annotation.InsertListener;
import com.mybatisflex.annotation.KeyType;
import com.mybatisflex.core.FlexGlobalConfig;
import com.mybatisflex.core.keygen.IKeyGenerator;
import com.mybatisflex.core.keygen.KeyGeneratorFactory;
import com.mybatisflex.core.table.IdInfo;
import com.mybatisflex.core.table.TableInfo;
import com.mybatisflex.core.table.TableInfoFactory;
import io.keymill.Mill;
import io.keymill.support.FieldIds;
import io.keymill.support.Versions;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/**
 * Keys of MyBatis-Flex: {@code KeymillKeyGenerator.register()} once, and {@code @Id(keyType = KeyType.Generator, value = "keymill")} on
 * a key. Each table has a source of its own. A generator with another source is registered under another name, beside that one.
 */
public class KeymillKeyGenerator implements IKeyGenerator {
    /** What an entity names it by. */
    public static final String NAME = "keymill";

    /** MyBatis-Flex tells listeners of every object that it inserts, whatever it is. */
    private static final InsertListener PRIMITIVES = new Primitives();

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
        Versions.check("keymill-mybatis", KeymillKeyGenerator.class);
        this.mills = mills;
        this.spec = spec;
    }

    /** Registers one under {@link #NAME}: ids of the shared mill, from {@code segment:{table}}. */
    public static void register() {
        register(null);
    }

    /**
     * Registers one under {@link #NAME}: ids of this mill, from {@code segment:{table}}. MyBatis-Flex keeps one
     * generator of a name for all session factories: a factory takes the generator that is registered when it is built.
     *
     * @param mills where the mill is found at each id; null: the shared mill
     * @return the registered generator
     */
    public static KeymillKeyGenerator register(Supplier<Mill> mills) {
        KeymillKeyGenerator generator = new KeymillKeyGenerator(mills, FieldIds.DEFAULT);
        KeyGeneratorFactory.register(NAME, generator);
        FlexGlobalConfig config = FlexGlobalConfig.getDefaultConfig();
        List<InsertListener> listeners = config.getInsertListener(Object.class);
        if (listeners == null || !listeners.contains(PRIMITIVES)) {
            config.registerInsertListener(PRIMITIVES, Object.class);
        }
        return generator;
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
        for (IdInfo key : table.getPrimaryKeyList()) {
            if (key.getColumn().equals(column) || key.getProperty().equals(column)) {
                return FieldIds.of(mills, spec, table.getTableName(), key.getPropertyType(), entity.getName() + "." + key.getProperty());
            }
        }
        throw new IllegalArgumentException(entity.getName() + " has no key `" + column + "`");
    }

    /** Refuses a primitive key before its row is written: MyBatis-Flex asks no generator for one, and its rows would all have the key 0. */
    private static final class Primitives implements InsertListener {
        private static final ClassValue<String> REFUSED = new ClassValue<String>() {
            @Override
            protected String computeValue(Class<?> entity) {
                for (IdInfo key : TableInfoFactory.ofEntityClass(entity).getPrimaryKeyList()) {
                    Class<?> type = key.getPropertyType();
                    boolean isOurs = key.getKeyType() == KeyType.Generator && KeyGeneratorFactory.getKeyGenerator(key.getValue()) instanceof KeymillKeyGenerator;
                    if (isOurs && type.isPrimitive()) {
                        return entity.getName() + "." + key.getProperty() + " is a primitive " + type + ", for which MyBatis-Flex asks no generator; make it a " + (type == int.class ? "Integer" : "Long");
                    }
                }
                return null;
            }
        };

        @Override
        public void onInsert(Object entity) {
            String refused = REFUSED.get(entity.getClass());
            if (refused != null) {
                throw new IllegalStateException(refused);
            }
        }
    }
}
