package io.keymill;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.function.Executable;

/** What the tests share. */
final class Checks {
    private Checks() {}

    /** The verb answers with this code. */
    static KeymillException refused(Code code, Executable verb) {
        KeymillException error = assertThrows(KeymillException.class, verb);
        assertEquals(code, error.code(), error.getMessage());
        return error;
    }

    /** Waits for a condition, at most for this long. */
    static void until(String what, long seconds, BooleanSupplier isTrue) throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (!isTrue.getAsBoolean()) {
            assertTrue(System.nanoTime() < end, "not within " + seconds + " s: " + what);
            Thread.sleep(2);
        }
    }

    /** Runs the same in so many threads at once; answers with what each made. */
    static <T> List<T> together(int threads, Callable<T> work) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        CyclicBarrier start = new CyclicBarrier(threads);
        List<Future<T>> running = new ArrayList<>();
        try {
            for (int i = 0; i < threads; i++) {
                running.add(pool.submit(() -> {
                    start.await();
                    return work.call();
                }));
            }
            List<T> made = new ArrayList<>();
            for (Future<T> one : running) {
                made.add(one.get(300, TimeUnit.SECONDS));
            }
            return made;
        } catch (ExecutionException e) {
            throw new AssertionError(e.getCause());
        } finally {
            pool.shutdownNow();
        }
    }

    /** Less than asking once a millisecond takes, 760 ms for ten thousand futures, and more than a JVM takes on a busy machine, 110 ms. */
    static final long NO_PROCESSOR_MS = 300;

    /**
     * How much processor time this process takes in the quietest of five seconds, in milliseconds. What waits and is woken takes none in
     * each of them; the compilers and what other tests have left behind are busy in some.
     */
    static long quietestSecondMs() throws InterruptedException {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long least = Long.MAX_VALUE;
        for (int second = 0; second < 5; second++) {
            long before = system.getProcessCpuTime();
            Thread.sleep(1_000);
            least = Math.min(least, system.getProcessCpuTime() - before);
        }
        return TimeUnit.NANOSECONDS.toMillis(least);
    }
}
