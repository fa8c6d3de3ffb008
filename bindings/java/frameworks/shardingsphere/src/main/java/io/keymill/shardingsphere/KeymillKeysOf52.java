package io.keymill.shardingsphere;

import io.keymill.support.FieldIds;
import java.util.Properties;
import org.apache.shardingsphere.sharding.spi.KeyGenerateAlgorithm;

/** Keys for ShardingSphere 5.2: {@code type: KEYMILL}, with {@code source}, which it has to name: no table is said there. */
public final class KeymillKeysOf52 implements KeyGenerateAlgorithm {
    private Properties properties = new Properties();
    private FieldIds ids;

    /** Made by ShardingSphere. */
    public KeymillKeysOf52() {}

    @Override
    public void init(Properties given) {
        Keys.check(given);
        String source = given.getProperty("source");
        if (source == null || source.contains("{table}")) {
            throw new IllegalArgumentException("the key generator " + Keys.TYPE + " needs the property `source` without {table} on ShardingSphere 5.2, which does not say the table; write `source: segment:orders`, and a generator for each table");
        }
        properties = given;
        ids = new Keys(given).ofRule();
    }

    @Override
    public Comparable<?> generateKey() {
        return (Comparable<?>) ids.next();
    }

    @Override
    public String getType() {
        return Keys.TYPE;
    }

    @Override
    public Properties getProps() {
        return properties;
    }
}
