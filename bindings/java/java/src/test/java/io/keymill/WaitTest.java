package io.keymill;

import static io.keymill.Checks.quietestSecondMs;
import static io.keymill.Checks.refused;
import static io.keymill.Checks.together;
import static io.keymill.Checks.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;
import org.junit.jupiter.api.Test;

/** Waiting: deadlines, interrupts, virtual threads, stores that are silent or down. */
class WaitTest {
    private static long millisOf(Runnable verb) {
        long began = System.nanoTime();
        verb.run();
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
    }

    @Test
    void nobody_waits_longer_than_the_deadline() {
        try (Mill mill = Mill.open("memory:?script=silent:20s")) {
            for (String order : new String[] {"process", "thread"}) {
                Source orders = mill.segment("o?deadline=200ms&order=" + order);
                Serial no = mill.serial("t/c?deadline=200ms&order=" + order);
                long waited = millisOf(() -> {
                    refused(Code.DEADLINE, orders::next);
                    refused(Code.DEADLINE, () -> orders.take(5));
                    refused(Code.DEADLINE, () -> orders.handle().next());
                    refused(Code.DEADLINE, no::next);
                    refused(Code.DEADLINE, () -> no.take(5));
                });
                assertTrue(waited >= 950 && waited < 19_000, waited + " ms for five deadlines of 200 ms");
                assertEquals(OptionalLong.empty(), orders.tryNext());
                assertFalse(no.tryNext().isPresent());
                for (long soFar : new long[] {-1, 0, 1, 199}) {
                    assertEquals(OptionalLong.empty(), orders.tryNext(Duration.ofMillis(soFar)), "it would wait on");
                    assertFalse(no.tryNext(Duration.ofMillis(soFar)).isPresent());
                }
                refused(Code.DEADLINE, () -> orders.tryNext(Duration.ofMillis(200)));
                refused(Code.DEADLINE, () -> no.tryNext(Duration.ofMillis(200)));
            }
        }
    }

    @Test
    void an_array_that_could_not_be_filled_is_as_it_was() {
        try (Mill mill = Mill.open("memory:?script=ack,down:10000")) {
            Source orders = mill.segment("o?step=10&buffer=1ms&deadline=10s");
            assertEquals(1, orders.next());
            long[] ids = new long[5000];
            Arrays.fill(ids, -7);
            refused(Code.STORE_UNAVAILABLE, () -> orders.fill(ids));
            assertTrue(Arrays.stream(ids).allMatch(id -> id == -7));
            assertEquals(2, orders.next(), "a batch that was refused took numbers");
            Source tx = mill.snowflake("t?worker=1&deadline=1s");
            assertThrows(KeymillException.class, () -> tx.fill(ids));
            assertTrue(Arrays.stream(ids).allMatch(id -> id == -7));
        }
    }

    @Test
    void an_outage_is_an_error_with_a_hint_and_heals_by_itself() throws Exception {
        try (Mill mill = Mill.open("memory:?script=down:6")) {
            Source orders = mill.segment("o?deadline=500ms");
            KeymillException error = refused(Code.STORE_UNAVAILABLE, orders::next);
            assertTrue(error.retryAfter().isPresent());
            until("the store is back", 180, () -> {
                try {
                    return orders.next() > 0;
                } catch (KeymillException e) {
                    assertTrue(e.code() == Code.STORE_UNAVAILABLE || e.code() == Code.DEADLINE, e.getMessage());
                    return false;
                }
            });
        }
    }

    @Test
    void an_interrupt_ends_a_wait_keeps_its_flag_and_leaves_nothing_locked() throws Exception {
        long silentMs = 2000;
        try (Mill mill = Mill.open("memory:?script=silent:" + silentMs + "ms")) {
            long began = System.nanoTime();
            for (String spec : new String[] {"p?deadline=60s", "t?order=thread&deadline=60s"}) {
                Source orders = mill.segment(spec);
                for (LongSupplier verb : Arrays.<LongSupplier>asList(
                        orders, () -> orders.take(3)[0], () -> orders.handle().next(),
                        () -> mill.serial("t/c?deadline=60s").next().length(),
                        () -> mill.snowflake("tx?worker=1&deadline=60s").take(3)[0])) {
                    interrupted(verb, began + (silentMs - 500) * 1_000_000);
                }
            }
            Source orders = mill.segment("p?deadline=60s");
            List<Long> ids = together(4, orders::next);
            assertEquals(4, new HashSet<>(ids).size());
        }
    }

    private static void interrupted(LongSupplier verb, long stillSilent) throws InterruptedException {
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        AtomicReference<Boolean> flag = new AtomicReference<>();
        Thread thread = new Thread(() -> {
            try {
                verb.getAsLong();
            } catch (Throwable e) {
                thrown.set(e);
            }
            flag.set(Thread.currentThread().isInterrupted());
        });
        thread.start();
        until("it waits", 60, () -> thread.getState() == Thread.State.TIMED_WAITING || !thread.isAlive());
        boolean early = System.nanoTime() < stillSilent;
        thread.interrupt();
        thread.join(30_000);
        assertFalse(thread.isAlive(), "an interrupt did not end the wait");
        if (thrown.get() == null) {
            assertFalse(early, "the interrupt was ignored: nobody can have got an id before the store answered");
            return;
        }
        KeymillException error = assertInstanceOf(KeymillException.class, thrown.get());
        assertEquals(Code.DEADLINE, error.code());
        assertInstanceOf(InterruptedException.class, error.getCause());
        assertTrue(flag.get(), "the interrupt was swallowed");
    }

    @Test
    void an_interrupted_thread_still_gets_what_is_in_memory() {
        try (Mill mill = Mill.open("memory:")) {
            Source orders = mill.segment("o");
            assertEquals(1, orders.next());
            Thread.currentThread().interrupt();
            assertEquals(2, orders.next());
            assertTrue(Thread.interrupted());
        }
    }

    /** Run with one carrier (ci/steps/java does): a virtual thread that pinned it while waiting would stop the others. */
    @Test
    void virtual_threads_wait_without_their_carrier_and_get_distinct_ids() throws Exception {
        ExecutorService each = virtualThreads();
        assumeTrue(each != null, "this JVM has no virtual threads");
        try (Mill mill = Mill.open("memory:?script=silent:6s")) {
            for (String order : new String[] {"process", "thread"}) {
                Source orders = mill.segment(order + "?deadline=60s&order=" + order);
                Set<Long> ids = ConcurrentHashMap.newKeySet();
                Future<?>[] waiting = new Future<?>[2000];
                for (int i = 0; i < waiting.length; i++) {
                    waiting[i] = each.submit(() -> {
                        long last = 0;
                        for (int n = 0; n < 50; n++) {
                            long id = n == 20 ? orders.take(2)[1] : orders.next();
                            assertTrue(id > last, "ids rise within a thread");
                            last = id;
                            ids.add(id);
                        }
                    });
                }
                long began = System.nanoTime();
                each.submit(() -> assertTrue(Thread.currentThread().isAlive())).get(240, TimeUnit.SECONDS);
                assertTrue(System.nanoTime() - began < 4_000_000_000L, "the carrier was held");
                for (Future<?> one : waiting) {
                    one.get(240, TimeUnit.SECONDS);
                }
                assertEquals(100_000, ids.size());
            }
        } finally {
            each.shutdownNow();
        }
    }

    /** Their cursors are shared and hold a run each: without the close emptying them, each would have numbers to give. */
    @Test
    void a_close_empties_the_cursors_of_virtual_threads() throws Exception {
        ExecutorService each = virtualThreads();
        assumeTrue(each != null, "this JVM has no virtual threads");
        try {
            Mill mill = Mill.open("memory:");
            Source orders = mill.segment("orders?order=thread");
            Serial serial = mill.serial("t/c?order=thread&date=");
            // Sixteen cursors, found by the thread's id: a few hundred threads use them all, before and after.
            List<Future<?>> running = new ArrayList<>();
            for (int i = 0; i < 200; i++) {
                running.add(each.submit(() -> {
                    assertTrue(orders.next() > 0);
                    assertTrue(serial.next().length() > 0);
                }));
            }
            for (Future<?> one : running) {
                one.get(240, TimeUnit.SECONDS);
            }
            mill.close();
            running.clear();
            for (int i = 0; i < 200; i++) {
                running.add(each.submit(() -> {
                    refused(Code.CLOSED, orders::next);
                    refused(Code.CLOSED, orders::tryNext);
                    refused(Code.CLOSED, () -> orders.take(2));
                    refused(Code.CLOSED, serial::next);
                    refused(Code.CLOSED, serial::tryNext);
                    refused(Code.CLOSED, () -> serial.take(2));
                }));
            }
            for (Future<?> one : running) {
                one.get(240, TimeUnit.SECONDS);
            }
        } finally {
            each.shutdownNow();
        }
    }

    /** There are so many that the cost of each shows: a thread that asks each millisecond takes microseconds of a processor each time. */
    @Test
    void threads_that_wait_take_no_processor_time_and_are_woken_when_the_store_answers() throws Exception {
        ExecutorService virtual = virtualThreads();
        ExecutorService threads = virtual == null ? Executors.newFixedThreadPool(1_000) : virtual;
        int waiters = virtual == null ? 1_000 : 10_000;
        long silentMs = 40_000;
        try (Mill mill = Mill.open("memory:?script=silent:" + silentMs + "ms")) {
            Source process = mill.segment("p?deadline=120s");
            Source thread = mill.segment("t?deadline=120s&order=thread");
            Serial serial = mill.serial("t/c?deadline=120s");
            Business business = mill.business("b?deadline=120s");
            AtomicLong began = new AtomicLong();
            List<Future<?>> running = new ArrayList<>();
            for (int i = 0; i < waiters; i++) {
                long key = i;
                List<Runnable> verbs = List.of(
                        process::next, thread::next, () -> process.take(3), serial::next,
                        () -> business.next(key), () -> business.take("k" + key, 2), () -> business.nextText(key));
                running.add(threads.submit(() -> {
                    began.incrementAndGet();
                    verbs.get((int) (key % verbs.size())).run();
                }));
            }
            until("all wait", 30, () -> began.get() == waiters);
            Thread.sleep(1_000);
            long tookMs = quietestSecondMs();
            System.out.println(waiters + " threads that wait a second took " + tookMs + " ms of a processor");
            assertTrue(running.stream().noneMatch(Future::isDone), "the store has not answered yet");
            assertTrue(tookMs < Checks.NO_PROCESSOR_MS, tookMs + " ms of a processor");
            for (Future<?> one : running) {
                one.get(120, TimeUnit.SECONDS);
            }
        } finally {
            threads.shutdownNow();
        }
    }

    /** A thread that spins for another's lease parks too, and takes the permit of the wake-up with it. */
    @Test
    void news_are_not_lost_to_another_park_of_the_thread() {
        try (Mill mill = Mill.open("memory:?script=silent:30s");
                Wait wait = new Wait(mill.segment("o?deadline=60s").box())) {
            wait.pause(1);
            wait.wake();
            LockSupport.parkNanos(1_000_000);
            assertTrue(millisOf(() -> wait.pause(20_000_000_000L)) < 10_000, "it paused");
            assertTrue(millisOf(() -> wait.pause(50_000_000)) >= 50, "news are those since it registered");
        }
    }

    private static ExecutorService virtualThreads() {
        try {
            return (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    @Test
    void closing_while_sixteen_threads_take_says_closed_to_all() throws Exception {
        for (String spec : new String[] {
            "segment:p", "segment:t?order=thread", "serial:s/c?number=000000000000",
            "serial:s/t?number=000000000000&order=thread", "snowflake:x?worker=3"
        }) {
            Mill mill = Mill.open("memory:");
            Source source = mill.source(spec);
            boolean text = spec.startsWith("serial");
            Thread closer = new Thread(() -> {
                try {
                    Thread.sleep(30);
                } catch (InterruptedException e) {
                    return;
                }
                mill.close();
            });
            closer.start();
            List<Long> last = together(16, () -> {
                Handle handle = text ? null : source.handle();
                for (long n = 0; ; n++) {
                    try {
                        if (text) {
                            source.nextText();
                        } else if (n % 100 == 0) {
                            source.take(100);
                        } else if (n % 2 == 0) {
                            handle.next();
                        } else {
                            source.next();
                        }
                    } catch (KeymillException e) {
                        assertEquals(Code.CLOSED, e.code(), e.getMessage());
                        return n;
                    }
                }
            });
            assertEquals(16, last.size());
            closer.join();
            assertThrows(KeymillException.class, source::nextText);
        }
    }
}
