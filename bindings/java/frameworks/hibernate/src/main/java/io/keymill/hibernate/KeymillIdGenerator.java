package io.keymill.hibernate;

import io.keymill.support.FieldIds;
import java.lang.reflect.Field;
import java.lang.reflect.Member;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.lang.reflect.TypeVariable;
import java.util.EnumSet;
import java.util.Objects;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.hibernate.dialect.Dialect;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.generator.AnnotationBasedGenerator;
import org.hibernate.generator.BeforeExecutionGenerator;
import org.hibernate.generator.EventType;
import org.hibernate.generator.EventTypeSets;
import org.hibernate.generator.GeneratorCreationContext;
import org.hibernate.mapping.Column;
import org.hibernate.mapping.PersistentClass;
import org.hibernate.mapping.Property;
import org.hibernate.mapping.Table;

/** What {@link KeymillId} names. It touches the session's connection at the first id only. */
public class KeymillIdGenerator implements BeforeExecutionGenerator, AnnotationBasedGenerator<KeymillId> {
    private static final long serialVersionUID = 1;

    private static final boolean PASSED = Identifiers.arePassed();

    private transient FieldIds ids;
    /** The field is an entity's whole identifier. */
    private transient boolean identifier;
    private transient boolean primitive;
    /** The key's table and column as they stand in SQL. */
    private transient String table;
    private transient String column;

    /** Made by Hibernate. */
    public KeymillIdGenerator() {}

    @Override
    public void initialize(KeymillId annotation, Member member, GeneratorCreationContext context) {
        PersistentClass entity = context.getPersistentClass();
        Property property = context.getProperty();
        Class<?> type = type(member, property);
        String field = member.getDeclaringClass().getName() + "." + member.getName();
        primitive = type.isPrimitive();
        identifier = entity != null && property != null && property == entity.getIdentifierProperty();
        if (identifier && property.getColumnSpan() == 1 && property.getSelectables().get(0) instanceof Column) {
            Dialect dialect = context.getDatabase().getDialect();
            table = qualified(entity.getRootTable(), context, dialect);
            column = ((Column) property.getSelectables().get(0)).getQuotedName(dialect);
        }
        ids = Mills.ids(context.getServiceRegistry(), annotation.value(), table(entity, property), type, field);
    }

    private static String qualified(Table table, GeneratorCreationContext context, Dialect dialect) {
        String catalog = table.getCatalog() == null ? context.getDefaultCatalog() : table.getQuotedCatalog(dialect);
        String schema = table.getSchema() == null ? context.getDefaultSchema() : table.getQuotedSchema(dialect);
        return Stream.of(catalog, schema, table.getQuotedName(dialect)).filter(Objects::nonNull).collect(Collectors.joining("."));
    }

    private static Class<?> type(Member member, Property property) {
        Type declared = member instanceof Method ? ((Method) member).getGenericReturnType() : ((Field) member).getGenericType();
        if (declared instanceof TypeVariable && property != null) {
            // Of a generic superclass: Hibernate knows which type the entity names, and refuses an entity that names none.
            return property.getType().getReturnedClass();
        }
        return member instanceof Method ? ((Method) member).getReturnType() : ((Field) member).getType();
    }

    /** An id's table is the table of the hierarchy's root, so that all of a hierarchy have one source. */
    private String table(PersistentClass entity, Property property) {
        if (!identifier && property != null && property.getValue() != null && property.getValue().getTable() != null) {
            return property.getValue().getTable().getName();
        }
        return entity == null ? null : entity.getRootTable().getName();
    }

    @Override
    public Object generate(SharedSessionContractImplementor session, Object owner, Object current, EventType event) {
        Object set = current;
        // An insert in HQL has no object.
        if (set == null && identifier && !PASSED && owner != null) {
            set = Identifiers.of(owner, null, session);
        }
        if (!FieldIds.isUnset(set, primitive)) {
            return set;
        }
        return table == null ? ids.next() : ids.next(Mills.keys(session, table, column));
    }

    @Override
    public EnumSet<EventType> getEventTypes() {
        return EventTypeSets.INSERT_ONLY;
    }

    /**
     * Since Hibernate 6.6: {@code persist} takes an entity whose id is set.
     *
     * @return true
     */
    public boolean allowAssignedIdentifiers() {
        return true;
    }
}
