package io.keymill;

import static io.keymill.Checks.quietestSecondMs;
import static io.keymill.Checks.refused;
import static io.keymill.Checks.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;
import java.util.function.IntFunction;
import org.junit.jupiter.api.Test;

/** Futures: their ids, deadlines, cancellations and what they cost. */
class AsyncTest {
    private static final int MANY = 10_000;

    /** All asynchronous verbs of sources with this option, one after the other. */
    private static IntFunction<CompletableFuture<?>> verbs(Mill mill, String options) {
        Source process = mill.segment("p?" + options);
        Source thread = mill.segment("t?order=thread&" + options);
        Serial serial = mill.serial("t/c?" + options);
        Business business = mill.business("b?" + options);
        LazySource lazy = Mill.lazy("segment:l?" + options, () -> mill);
        List<Function<Integer, CompletableFuture<?>>> all = List.of(
                i -> process.nextAsync(), i -> thread.nextAsync(), i -> process.nextTextAsync(), i -> serial.nextAsync(),
                i -> business.nextAsync((long) i), i -> business.nextAsync("k" + i), i -> lazy.nextAsync(), i -> lazy.nextTextAsync());
        return i -> all.get(i % all.size()).apply(i);
    }

    private static List<CompletableFuture<?>> many(IntFunction<CompletableFuture<?>> verbs) {
        List<CompletableFuture<?>> futures = new ArrayList<>();
        for (int i = 0; i < MANY; i++) {
            futures.add(verbs.apply(i));
        }
        return futures;
    }

    private static Code codeOf(CompletableFuture<?> future) {
        Throwable cause = assertThrows(ExecutionException.class, () -> future.get(60, TimeUnit.SECONDS)).getCause();
        return assertInstanceOf(KeymillException.class, cause).code();
    }

    private static boolean hasThread() {
        return Thread.getAllStackTraces().keySet().stream().anyMatch(thread -> thread.getName().equals("keymill-waiters"));
    }

    @Test
    void futures_that_wait_take_no_processor_time_and_end_with_the_deadline() throws Exception {
        try (Mill mill = Mill.open("memory:?script=silent:60s")) {
            long began = System.nanoTime();
            List<CompletableFuture<?>> futures = many(verbs(mill, "deadline=25s"));
            Thread.sleep(2_000);
            long tookMs = quietestSecondMs();
            System.out.println(MANY + " futures that wait a second took " + tookMs + " ms of a processor");
            assertTrue(futures.stream().noneMatch(CompletableFuture::isDone), "the store has not answered yet");
            assertTrue(tookMs < Checks.NO_PROCESSOR_MS, tookMs + " ms of a processor");
            for (CompletableFuture<?> future : futures) {
                assertEquals(Code.DEADLINE, codeOf(future));
            }
            long tookS = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - began);
            assertTrue(tookS >= 24 && tookS < 55, "deadlines of 25 s took " + tookS + " s");
        }
    }

    @Test
    void a_close_ends_all_and_leaves_no_thread() throws Exception {
        Mill mill = Mill.open("memory:?script=silent:60s");
        IntFunction<CompletableFuture<?>> verbs = verbs(mill, "deadline=120s");
        List<CompletableFuture<?>> futures = many(verbs);
        mill.close();
        for (CompletableFuture<?> future : futures) {
            assertEquals(Code.CLOSED, codeOf(future));
        }
        assertEquals(Code.CLOSED, codeOf(verbs.apply(0)));
        until("the thread has ended", 30, () -> !hasThread());
    }

    /** Cancelled ones wait no more, and lose at most the ids that had come. */
    @Test
    void ids_that_arrive_are_distinct_and_none_is_lost_to_a_cancellation_before() throws Exception {
        try (Mill mill = Mill.open("memory:?script=silent:15s")) {
            Source orders = mill.segment("o?deadline=120s&step=20000");
            List<CompletableFuture<Long>> futures = new ArrayList<>();
            for (int i = 0; i < 2 * MANY; i++) {
                futures.add(orders.nextAsync());
            }
            for (int i = 1; i < futures.size(); i += 2) {
                assertTrue(futures.get(i).cancel(false), "the store was silent");
            }
            Set<Long> ids = new HashSet<>();
            for (int i = 0; i < futures.size(); i += 2) {
                assertTrue(ids.add(futures.get(i).get(120, TimeUnit.SECONDS)), "an id came twice");
            }
            assertEquals(MANY, ids.stream().mapToLong(id -> id).max().getAsLong(), "a future that was cancelled took an id");
            assertEquals(MANY + 1, orders.nextAsync().get(1, TimeUnit.SECONDS));
            assertEquals(MANY + 2, orders.next());
        }
    }

    /** A source of short steps: most futures are woken and find nothing, again and again. */
    @Test
    void no_future_is_forgotten_where_ids_are_few() throws Exception {
        for (String order : new String[] {"process", "thread"}) {
            try (Mill mill = Mill.open("memory:")) {
                Source orders = mill.segment("o?step=10&buffer=1ms&deadline=60s&order=" + order);
                List<CompletableFuture<Long>> futures = new ArrayList<>();
                for (int i = 0; i < MANY; i++) {
                    futures.add(orders.nextAsync());
                }
                Set<Long> ids = new HashSet<>();
                for (CompletableFuture<Long> future : futures) {
                    assertTrue(ids.add(future.get(120, TimeUnit.SECONDS)), "an id came twice");
                }
            }
        }
    }

    @Test
    void what_depends_on_a_future_may_block() throws Exception {
        try (Mill mill = Mill.open("memory:?script=silent:500ms")) {
            Source orders = mill.segment("o?deadline=30s");
            Source others = mill.segment("x?deadline=30s");
            AtomicReference<Thread> ran = new AtomicReference<>();
            CompletableFuture<Long> sum = orders.nextAsync().thenApply(id -> {
                ran.set(Thread.currentThread());
                return id + others.next();
            });
            assertEquals(2, sum.get(60, TimeUnit.SECONDS));
            assertFalse(ran.get().getName().equals("keymill-waiters"), "the thread that wakes the others was blocked");
        }
    }

    /** Also where the common pool has one thread, on two processors. */
    @Test
    void what_blocks_holds_back_no_other_future() throws Exception {
        CountDownLatch end = new CountDownLatch(1);
        try (Mill mill = Mill.open("memory:?script=silent:500ms")) {
            CompletableFuture<Void> blocks = mill.segment("o?deadline=30s").nextAsync().thenAccept(id -> {
                try {
                    end.await();
                } catch (InterruptedException e) {
                    Thread.currentThread().interrupt();
                }
            });
            List<CompletableFuture<Long>> others = new ArrayList<>();
            for (int i = 0; i < 20; i++) {
                others.add(mill.segment("x" + i + "?deadline=30s").nextAsync());
            }
            for (CompletableFuture<Long> other : others) {
                assertEquals(1, other.get(20, TimeUnit.SECONDS));
            }
            assertFalse(blocks.isDone());
        } finally {
            end.countDown();
        }
    }

    @Test
    void what_is_wrong_is_in_the_future() {
        try (Mill mill = Mill.open("memory:")) {
            assertEquals(Code.INVALID_ARGUMENT, codeOf(mill.source("serial:t/c").nextAsync()));
            assertEquals(Code.INVALID_ARGUMENT, codeOf(mill.source("business:b").nextAsync()));
            assertEquals(Code.INVALID_ARGUMENT, codeOf(mill.business("b").nextAsync(null)));
            refused(Code.INVALID_ARGUMENT, () -> mill.source("serial:t/c").next());
        }
    }

    /** A caller that follows the shared mill is passed on to the next one; a cancellation reaches the source. */
    @Test
    void a_lazy_source_goes_on_at_the_mill_that_replaces_a_closed_one() throws Exception {
        Mill first = Mill.open("memory:?script=silent:60s");
        try (Mill second = Mill.open("memory:")) {
            AtomicReference<Mill> present = new AtomicReference<>(first);
            LazySource orders = Mill.lazy("segment:o?deadline=60s", present::get);
            CompletableFuture<Long> id = orders.nextAsync();
            CompletableFuture<Long> cancelled = orders.nextAsync();
            assertTrue(cancelled.cancel(true));
            assertFalse(id.isDone());
            present.set(second);
            first.close();
            assertEquals(1, id.get(60, TimeUnit.SECONDS));
            assertEquals(2, orders.next(), "the cancelled one took an id");
        }
    }

    @Test
    void a_supplier_that_fails_ends_the_future_of_a_lazy_source() {
        Mill mill = Mill.open("memory:?script=silent:60s");
        AtomicBoolean ended = new AtomicBoolean();
        LazySource lazy = Mill.lazy("segment:o?deadline=120s", () -> {
            if (ended.get()) {
                throw new IllegalStateException("the context has ended");
            }
            return mill;
        });
        CompletableFuture<Long> waiting = lazy.nextAsync();
        ended.set(true);
        mill.close();
        for (CompletableFuture<Long> future : List.of(waiting, lazy.nextAsync())) {
            Throwable cause = assertThrows(ExecutionException.class, () -> future.get(60, TimeUnit.SECONDS)).getCause();
            assertInstanceOf(IllegalStateException.class, cause);
        }
    }
}
