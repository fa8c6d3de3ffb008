package org.apache.shardingsphere.infra.algorithm.keygen.spi;

import java.util.Collection;
import org.apache.shardingsphere.infra.algorithm.core.ShardingSphereAlgorithm;
import org.apache.shardingsphere.infra.algorithm.core.context.AlgorithmSQLContext;

/** Where the interface is from 5.5.4 on. */
public interface KeyGenerateAlgorithm extends ShardingSphereAlgorithm {
    /**
     * Keys.
     *
     * @param context table and column
     * @param count how many
     * @return the keys
     */
    Collection<? extends Comparable<?>> generateKeys(AlgorithmSQLContext context, int count);

    /**
     * Whether the keys are what a statement's generated keys are.
     *
     * @return whether they are
     */
    default boolean isSupportAutoIncrement() {
        return false;
    }
}
