package io.keymill.spring.data;

import io.keymill.Mill;
import io.keymill.support.TableKeys;
import java.util.function.BiFunction;
import java.util.function.Supplier;
import org.springframework.core.Ordered;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.mapping.event.BeforeConvertCallback;
import org.springframework.data.relational.core.sql.SqlIdentifier;

/**
 * Sets the {@link KeymillId} properties of an aggregate, its children's too, after Spring Data has decided between an insert and an update:
 * {@code save} of an entity without an id stays an insert.
 */
public class KeymillJdbcCallback implements BeforeConvertCallback<Object>, Ordered {
    private final Filler filler;

    /**
     * Ids of this mill.
     *
     * @param mills where the mill is found at each id; null: the shared mill
     * @param context the entities
     */
    public KeymillJdbcCallback(Supplier<Mill> mills, Supplier<RelationalMappingContext> context) {
        this(mills, context, null);
    }

    /**
     * Ids of this mill, and each table is asked for its highest key before the first id of its entity.
     *
     * @param mills where the mill is found at each id; null: the shared mill
     * @param context the entities
     * @param tables asks a table, by its name and the key's column; null: none is asked
     */
    public KeymillJdbcCallback(Supplier<Mill> mills, Supplier<RelationalMappingContext> context, BiFunction<SqlIdentifier, SqlIdentifier, TableKeys> tables) {
        filler = new Filler(mills, context, tables);
    }

    @Override
    public Object onBeforeConvert(Object aggregate) {
        return filler.fill(aggregate);
    }

    @Override
    public int getOrder() {
        // Before auditing, which sees the id.
        return 0;
    }
}
