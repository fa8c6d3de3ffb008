package io.keymill;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

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
}
