package io.keymill.spring.data;

import io.keymill.support.FieldIds;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import reactor.core.Disposable;
import reactor.core.Disposables;
import reactor.core.publisher.Mono;
import reactor.core.publisher.MonoSink;
import reactor.core.scheduler.Schedulers;

/** Saves whose ids are not in memory. Each asks for one id after another, and holds no thread meanwhile. */
final class Waiting {
    private final Filler filler;

    Waiting(Filler filler) {
        this.filler = filler;
    }

    /** The entity once it has its ids. The first missing id is this field's. The deadline begins with the subscription. */
    Mono<Object> fill(Object entity, FieldIds missing) {
        return Mono.create(sink -> new Save(entity, sink).await(missing));
    }

    private final class Save {
        private final long since = System.nanoTime();
        private final Object entity;
        private final MonoSink<Object> sink;
        /** Cancels the wait. */
        private final Disposable.Swap wait = Disposables.swap();
        /** Ids that were waited for and are not set yet. */
        private final Map<FieldIds, Object> held = new HashMap<>();

        Save(Object entity, MonoSink<Object> sink) {
            this.entity = entity;
            this.sink = sink;
            sink.onCancel(wait);
        }

        void await(FieldIds missing) {
            CompletableFuture<Object> asked = missing.nextAsync(waited());
            wait.update(() -> asked.cancel(false));
            asked.whenComplete((id, error) -> pass(() -> goOn(missing, id, error)));
        }

        /** What the application does next may block. */
        private void pass(Runnable next) {
            try {
                Schedulers.boundedElastic().schedule(next);
            } catch (RuntimeException e) {
                sink.error(e);
            }
        }

        private void goOn(FieldIds ids, Object id, Throwable error) {
            if (error != null) {
                sink.error(error);
                return;
            }
            held.put(ids, id);
            Object filled;
            try {
                filled = filler.fill(entity, this::next);
            } catch (Filler.NotReady e) {
                await(e.ids);
                return;
            } catch (Throwable e) {
                sink.error(e);
                return;
            }
            sink.success(filled);
        }

        private Object next(FieldIds ids) {
            Object id = held.remove(ids);
            if (id == null) {
                id = ids.tryNext(waited());
            }
            if (id == null) {
                throw new Filler.NotReady(ids);
            }
            return id;
        }

        /** Never zero, at which a wait is counted. */
        private Duration waited() {
            return Duration.ofNanos(Math.max(1, System.nanoTime() - since));
        }
    }
}
