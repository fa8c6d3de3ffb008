package io.keymill.spring.data;

import io.keymill.Mill;
import java.util.function.Supplier;
import org.reactivestreams.Publisher;
import org.springframework.core.Ordered;
import org.springframework.data.r2dbc.mapping.event.BeforeConvertCallback;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.sql.SqlIdentifier;
import reactor.core.publisher.Mono;

/**
 * Sets the {@link KeymillId} properties of an entity. It never blocks an event loop: where no id is in memory the save goes on when one is
 * there, on Reactor's {@code boundedElastic}, or fails at the source's deadline. Until then it holds no thread.
 */
public class KeymillR2dbcCallback implements BeforeConvertCallback<Object>, Ordered {
    private final Filler filler;
    private final Waiting waiting;

    /**
     * Ids of this mill.
     *
     * @param mills where the mill is found at each id; null: the shared mill
     * @param context the entities
     */
    public KeymillR2dbcCallback(Supplier<Mill> mills, Supplier<RelationalMappingContext> context) {
        filler = new Filler(mills, context, null);
        waiting = new Waiting(filler);
    }

    @Override
    public Publisher<Object> onBeforeConvert(Object entity, SqlIdentifier table) {
        try {
            return Mono.just(filler.tryFill(entity));
        } catch (Filler.NotReady e) {
            return waiting.fill(entity, e.ids);
        }
    }

    @Override
    public int getOrder() {
        return 0;
    }
}
