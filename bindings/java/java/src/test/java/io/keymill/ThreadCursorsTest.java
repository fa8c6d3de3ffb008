package io.keymill;

import static io.keymill.Checks.together;
import static io.keymill.Checks.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.lang.ref.WeakReference;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.Arrays;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** What {@code order=thread} leaves in threads that others own, and what it keeps for them. */
class ThreadCursorsTest {
    /** As in a server whose pool outlives the applications that are deployed in it. */
    @Test
    void a_pool_thread_does_not_keep_the_class_loader_of_a_closed_mill() throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(2);
        try {
            for (int round = 0; round < 20; round++) {
                WeakReference<ClassLoader> loader = pool.submit(ThreadCursorsTest::deployed).get(60, TimeUnit.SECONDS);
                until("round " + round + ": the class loader is collected", 60, () -> {
                    System.gc();
                    return loader.get() == null;
                });
            }
        } finally {
            pool.shutdownNow();
        }
    }

    /** A class loader takes ids in this thread, closes its mill, and is reachable from nothing afterwards. */
    private static WeakReference<ClassLoader> deployed() throws Exception {
        URLClassLoader loader = new URLClassLoader(urls(), ClassLoader.getSystemClassLoader().getParent());
        Class<?> mill = loader.loadClass("io.keymill.Mill");
        AutoCloseable opened = (AutoCloseable) mill.getMethod("open", String.class).invoke(null, "memory:");
        Object ids = mill.getMethod("segment", String.class).invoke(opened, "a?order=thread");
        Object serials = mill.getMethod("serial", String.class).invoke(opened, "t/c?order=thread");
        assertEquals(1L, ids.getClass().getMethod("next").invoke(ids));
        assertTrue(((String) serials.getClass().getMethod("next").invoke(serials)).endsWith("1"));
        opened.close();
        loader.close();
        return new WeakReference<>(loader);
    }

    private static URL[] urls() {
        return Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
                .map(entry -> {
                    try {
                        return new File(entry).toURI().toURL();
                    } catch (MalformedURLException e) {
                        throw new AssertionError(e);
                    }
                })
                .toArray(URL[]::new);
    }

    /** More threads than the table has places. */
    @Test
    void a_thread_counts_on_through_its_block_after_collections() throws Exception {
        int threads = 150;
        try (Mill mill = Mill.open("memory:")) {
            Source orders = mill.segment("orders?order=thread&block=100&deadline=60s");
            CyclicBarrier taken = new CyclicBarrier(threads, System::gc);
            together(threads, () -> {
                long first = orders.next();
                for (int round = 1; round <= 3; round++) {
                    taken.await(120, TimeUnit.SECONDS);
                    assertEquals(first + round, orders.next(), "a new block");
                }
                return null;
            });
        }
    }

    @Test
    void cursors_of_ended_threads_are_dropped() throws Exception {
        try (Mill mill = Mill.open("memory:")) {
            Source orders = mill.segment("orders?order=thread&block=1&deadline=60s");
            for (int i = 0; i < 2_000; i++) {
                Thread thread = new Thread(orders::next);
                thread.start();
                thread.join();
            }
            int kept = orders.box().threads.count();
            assertTrue(kept <= ThreadCursors.PLACES + 1, kept + " cursors are kept");
        }
    }
}
