package io.keymill.shardingsphere;

import io.keymill.Mill;
import io.keymill.support.Versions;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/** The mill of an algorithm: ShardingSphere makes algorithms anew with each change of a rule, so none is theirs. */
final class Mills {
    private static final Map<String, Mill> BY_CONFIG = new ConcurrentHashMap<>();

    private Mills() {}

    /** One mill a configuration in this class loader, as long as it lives; without one the shared mill. */
    static Supplier<Mill> of(Properties properties) {
        Versions.check("keymill-shardingsphere", Mills.class);
        String config = properties.getProperty("config");
        if (config == null) {
            return Mill::shared;
        }
        Mill mill = BY_CONFIG.computeIfAbsent(config, Mill::open);
        return () -> mill;
    }
}
