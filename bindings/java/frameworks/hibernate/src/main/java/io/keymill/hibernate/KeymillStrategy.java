package io.keymill.hibernate;

import io.keymill.support.FieldIds;
import java.io.Serializable;
import java.util.Properties;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.id.IdentifierGenerator;
import org.hibernate.id.PersistentIdentifierGenerator;
import org.hibernate.service.ServiceRegistry;
import org.hibernate.type.Type;

/**
 * Ids by the name of a class, for Hibernate 5.6 to 6.1, and for later ones until 8:
 *
 * <pre>{@code
 * @Id @GeneratedValue(generator = "orders")
 * @GenericGenerator(name = "orders", strategy = "io.keymill.hibernate.KeymillStrategy",
 *         parameters = @Parameter(name = "source", value = "segment:orders"))
 * Long id;
 * }</pre>
 *
 * <p>Without the parameter the source is {@code segment:{table}}. An id that is set is kept where Hibernate asks for one: by
 * {@code save} and {@code merge}; {@code persist} refuses an entity whose id is set.
 */
public class KeymillStrategy implements IdentifierGenerator {
    private static final long serialVersionUID = 1;
    private static final String SOURCE = "source";

    private transient FieldIds ids;
    private transient String entity;
    /** The key's table and column as they stand in SQL. */
    private transient String table;
    private transient String column;

    /** Made by Hibernate. */
    public KeymillStrategy() {}

    @Override
    public void configure(Type type, Properties parameters, ServiceRegistry registry) {
        entity = parameters.getProperty(ENTITY_NAME);
        table = parameters.getProperty(PersistentIdentifierGenerator.TABLE);
        column = parameters.getProperty(PersistentIdentifierGenerator.PK);
        String spec = parameters.getProperty(SOURCE, FieldIds.DEFAULT);
        ids = Mills.ids(registry, spec, table, type.getReturnedClass(), entity + "'s id");
    }

    /** Both {@code Serializable generate(…)}, as in Hibernate 5, and {@code Object generate(…)}, as since 6. */
    @Override
    public Serializable generate(SharedSessionContractImplementor session, Object owner) {
        // Of a primitive field too: 0 is not set.
        Object current = owner == null ? null : Identifiers.of(owner, entity, session);
        return (Serializable) (FieldIds.isUnset(current, true) ? ids.next(Mills.keys(session, table, column)) : current);
    }
}
