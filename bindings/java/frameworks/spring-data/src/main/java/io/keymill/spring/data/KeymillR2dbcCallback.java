package io.keymill.spring.data;

import io.keymill.Mill;
import java.util.function.Supplier;
import org.reactivestreams.Publisher;
import org.springframework.core.Ordered;
import org.springframework.data.r2dbc.mapping.event.BeforeConvertCallback;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.sql.SqlIdentifier;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;

/** Sets the {@link KeymillId} properties of an entity. It never blocks an event loop: where no id is in memory another thread waits. */
public class KeymillR2dbcCallback implements BeforeConvertCallback<Object>, Ordered {
    private final Filler filler;

    /**
     * Ids of this mill.
     *
     * @param mills where the mill is found at each id; null: the shared mill
     * @param context the entities
     */
    public KeymillR2dbcCallback(Supplier<Mill> mills, Supplier<RelationalMappingContext> context) {
        filler = new Filler(mills, context);
    }

    @Override
    public Publisher<Object> onBeforeConvert(Object entity, SqlIdentifier table) {
        try {
            return Mono.just(filler.tryFill(entity));
        } catch (Filler.NotReady e) {
            return Mono.fromCallable(() -> filler.fill(entity)).subscribeOn(Schedulers.boundedElastic());
        }
    }

    @Override
    public int getOrder() {
        return 0;
    }
}
