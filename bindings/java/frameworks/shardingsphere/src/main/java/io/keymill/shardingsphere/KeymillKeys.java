package io.keymill.shardingsphere;

import java.util.Collection;
import java.util.Properties;
import org.apache.shardingsphere.infra.algorithm.core.context.AlgorithmSQLContext;
import org.apache.shardingsphere.infra.algorithm.keygen.core.KeyGenerateAlgorithm;

/** Keys for ShardingSphere 5.5.0 to 5.5.3: {@code type: KEYMILL}, with {@code source}, by default {@code segment:{table}}. */
public final class KeymillKeys implements KeyGenerateAlgorithm {
    private Keys keys;

    /** Made by ShardingSphere. */
    public KeymillKeys() {}

    @Override
    public void init(Properties properties) {
        Keys.check(properties);
        keys = new Keys(properties);
    }

    @Override
    public Collection<? extends Comparable<?>> generateKeys(AlgorithmSQLContext context, int count) {
        return keys.take(context.getTableName(), context.getColumnName(), count);
    }

    @Override
    public boolean isSupportAutoIncrement() {
        return true;
    }

    @Override
    public String getType() {
        return Keys.TYPE;
    }
}
