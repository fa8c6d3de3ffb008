package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Mill;
import java.util.Collection;
import java.util.Properties;
import java.util.ServiceLoader;
import java.util.TreeSet;
import org.apache.shardingsphere.infra.algorithm.core.context.AlgorithmSQLContext;
import org.apache.shardingsphere.infra.algorithm.keygen.spi.KeyGenerateAlgorithm;
import org.junit.jupiter.api.Test;

/** The interface of ShardingSphere 5.5.4, as a stub has it. */
class NewerShardingSphereTest {
    @Test
    void the_interface_of_5_5_4_is_served_in_one_step() {
        try (Mill mill = Mill.open("memory:")) {
            Mill.share(mill);
            KeyGenerateAlgorithm algorithm = ServiceLoader.load(KeyGenerateAlgorithm.class).iterator().next();
            assertEquals("KEYMILL", algorithm.getType());
            algorithm.init(new Properties());
            Collection<? extends Comparable<?>> keys = algorithm.generateKeys(new AlgorithmSQLContext("shop", "public", "orders", "id"), 1000);
            assertEquals(1000, new TreeSet<Object>(keys).size());
            assertTrue(algorithm.isSupportAutoIncrement());
            assertTrue(mill.metrics().contains("segment:orders"));
        } finally {
            Mill.share(null);
        }
    }
}
