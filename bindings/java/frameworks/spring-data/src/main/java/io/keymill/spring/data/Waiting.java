package io.keymill.spring.data;

import io.keymill.support.FieldIds;
import java.time.Duration;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import reactor.core.publisher.Mono;
import reactor.core.publisher.MonoSink;
import reactor.core.scheduler.Schedulers;

/**
 * Saves whose ids are not in memory. One thread asks for all of them, so that none holds a thread of Reactor's, however many there are:
 * for each source it asks on behalf of the oldest save, until that save has its id or its error. The thread ends when no save waits.
 */
final class Waiting {
    /** A store's answer takes about as long. */
    private static final long PAUSE = TimeUnit.MILLISECONDS.toNanos(1);

    private final Filler filler;
    /** Those that the thread has not seen yet. */
    private final Queue<Save> arrived = new ConcurrentLinkedQueue<>();
    /** Those that it asks for, by the id that each waits for. Its alone. */
    private final Map<FieldIds, PriorityQueue<Save>> waiting = new HashMap<>();
    private final Object change = new Object();
    /** There is a thread. Guarded by {@link #change}. */
    private boolean running;

    Waiting(Filler filler) {
        this.filler = filler;
    }

    /** The entity once it has its ids, the first missing one of which is of this field; the deadline begins with the subscription. */
    Mono<Object> fill(Object entity, FieldIds missing) {
        return Mono.create(sink -> {
            arrived.add(new Save(entity, missing, sink));
            synchronized (change) {
                if (!running) {
                    Thread thread = new Thread(this::run, "keymill-r2dbc");
                    thread.setDaemon(true);
                    thread.start();
                    running = true;
                }
            }
        });
    }

    private void run() {
        try {
            do {
                ask();
            } while (goesOn());
        } catch (RuntimeException | Error e) {
            // Memory has run out, for instance: the next save's thread goes on with all.
            synchronized (change) {
                running = false;
            }
            throw e;
        }
    }

    private void ask() {
        for (Save save = arrived.poll(); save != null; save = arrived.poll()) {
            waiting.computeIfAbsent(save.missing, any -> new PriorityQueue<>()).add(save);
        }
        for (Iterator<PriorityQueue<Save>> each = waiting.values().iterator(); each.hasNext(); ) {
            PriorityQueue<Save> saves = each.next();
            while (!saves.isEmpty() && saves.peek().ends()) {
                saves.remove();
            }
            if (saves.isEmpty()) {
                each.remove();
            }
        }
    }

    private boolean goesOn() {
        if (!waiting.isEmpty()) {
            LockSupport.parkNanos(PAUSE);
            return true;
        }
        synchronized (change) {
            running = !arrived.isEmpty();
            return running;
        }
    }

    private final class Save implements Comparable<Save> {
        private final long since = System.nanoTime();
        private final Object entity;
        private final MonoSink<Object> sink;
        /** Ids that were waited for and are not set yet. */
        private final Map<FieldIds, Object> held = new HashMap<>();
        private FieldIds missing;
        private volatile boolean cancelled;

        Save(Object entity, FieldIds missing, MonoSink<Object> sink) {
            this.entity = entity;
            this.missing = missing;
            this.sink = sink;
            sink.onCancel(() -> cancelled = true);
        }

        @Override
        public int compareTo(Save other) {
            return Long.signum(since - other.since);
        }

        /** Whether it waits for this id no longer. */
        boolean ends() {
            if (cancelled) {
                return true;
            }
            try {
                Object id = missing.tryNext(waited());
                if (id == null) {
                    return false;
                }
                held.put(missing, id);
                Object filled = filler.fill(entity, this::next);
                pass(() -> sink.success(filled));
            } catch (Filler.NotReady e) {
                missing = e.ids;
                arrived.add(this);
            } catch (Throwable e) {
                pass(() -> sink.error(e));
            }
            return true;
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

        /** What the application does next may block. */
        private void pass(Runnable result) {
            try {
                Schedulers.boundedElastic().schedule(result);
            } catch (RuntimeException e) {
                sink.error(e);
            }
        }
    }
}
