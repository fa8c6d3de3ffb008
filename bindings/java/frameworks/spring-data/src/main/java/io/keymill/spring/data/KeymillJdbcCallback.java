package io.keymill.spring.data;

import io.keymill.Mill;
import java.util.function.Supplier;
import org.springframework.core.Ordered;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.mapping.event.BeforeConvertCallback;

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
        filler = new Filler(mills, context);
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
