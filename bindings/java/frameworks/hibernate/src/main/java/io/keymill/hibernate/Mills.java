package io.keymill.hibernate;

import io.keymill.Mill;
import io.keymill.support.FieldIds;
import io.keymill.support.TableKeys;
import io.keymill.support.Versions;
import java.util.Map;
import java.util.function.Supplier;
import org.hibernate.engine.config.spi.ConfigurationService;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.service.ServiceRegistry;

/** The mill of a session factory. */
final class Mills {
    /** The setting with a {@link Mill} for this session factory alone, or with a {@code Supplier} of one. */
    static final String SETTING = "keymill.mill";
    /** A property of Spring Boot and of the JVM. */
    private static final String CONFIG = "keymill.config";

    private Mills() {}

    /** Null: the shared one. */
    static Supplier<Mill> of(ServiceRegistry registry) {
        Map<?, ?> settings = registry.getService(ConfigurationService.class).getSettings();
        Object setting = settings.get(SETTING);
        if (setting == null) {
            // Hibernate's settings have the JVM's properties too. Another store would be ignored, and ids come from the default mill.
            Object config = settings.get(CONFIG);
            if (config != null && !config.equals(System.getProperty(CONFIG))) {
                throw new IllegalArgumentException("Hibernate has no setting " + CONFIG + "; open the mill yourself, Mill.open(…), and give it as the setting " + SETTING + " or to Mill.share(mill)");
            }
            return null;
        }
        if (setting instanceof Mill) {
            Mill mill = (Mill) setting;
            return () -> mill;
        }
        if (setting instanceof Supplier) {
            Supplier<?> supplier = (Supplier<?>) setting;
            return () -> (Mill) supplier.get();
        }
        throw new IllegalArgumentException("the setting " + SETTING + " is a " + setting.getClass().getName() + "; it is an io.keymill.Mill or a Supplier of one");
    }

    static TableKeys keys(SharedSessionContractImplementor session, String table, String column) {
        return (lowest, from) -> TableKeys.ask(session.getJdbcCoordinator().getLogicalConnection().getPhysicalConnection(), table, column, lowest, from);
    }

    static FieldIds ids(ServiceRegistry registry, String spec, String table, Class<?> type, String field) {
        Versions.check("keymill-hibernate", Mills.class);
        return FieldIds.of(of(registry), spec, table, type, field);
    }
}
