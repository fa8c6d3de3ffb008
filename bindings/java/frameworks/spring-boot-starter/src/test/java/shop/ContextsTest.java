package shop;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Mill;
import io.keymill.Source;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.ref.WeakReference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.springframework.context.ConfigurableApplicationContext;

/** One JVM in which application contexts come and go, as test suites and hot redeploys have it. */
class ContextsTest {
    private static final int CONTEXTS = 200;
    /** From here on the JVM has loaded what a context needs, and the stubs that it makes for a method that was often reflected on. */
    private static final int WARM = 20;

    /** What a JVM holds after a collection. */
    private static final class Held {
        final long threads = entries("/proc/self/task");
        final long descriptors = entries("/proc/self/fd");
        final long classes;
        final long metaspace;

        Held() throws IOException {
            System.gc();
            classes = ManagementFactory.getClassLoadingMXBean().getLoadedClassCount();
            metaspace = ManagementFactory.getMemoryPoolMXBeans().stream().filter(pool -> pool.getName().equals("Metaspace")).mapToLong(ContextsTest::used).sum();
        }

        @Override
        public String toString() {
            return threads + " threads, " + descriptors + " descriptors, " + classes + " classes, " + metaspace + " bytes of metaspace";
        }
    }

    private static long used(MemoryPoolMXBean pool) {
        return pool.getUsage().getUsed();
    }

    /** Native threads too. */
    private static long entries(String folder) throws IOException {
        try (Stream<Path> entries = Files.list(Path.of(folder))) {
            return entries.count();
        }
    }

    /** Each context is closed before the next opens the same file, and numbers go on. */
    @Test
    void two_hundred_contexts_leave_no_thread_no_descriptor_no_class_and_no_mill() throws IOException {
        String config = "keymill.config=" + Stores.H2_AND_SQLITE.config();
        List<WeakReference<Mill>> mills = new ArrayList<>();
        Held early = null;
        long last = 0;
        for (int i = 1; i <= CONTEXTS; i++) {
            last = idAbove(last, config, mills);
            if (i == WARM) {
                early = new Held();
            }
        }
        Held late = new Held();
        // The last one stays shared.
        assertTrue(mills.stream().filter(mill -> mill.get() != null).count() <= 1, "mills of closed contexts are still reachable");
        String both = late + "; after " + WARM + " contexts " + early;
        assertTrue(late.threads <= early.threads + 2 && late.descriptors <= early.descriptors + 2, both);
        // A class that each context leaves is twice the one margin, and takes more than a KiB.
        assertTrue(late.classes - early.classes < (CONTEXTS - WARM) / 2 && late.metaspace - early.metaspace < (CONTEXTS - WARM) * 1024, both);
    }

    private static long idAbove(long last, String config, List<WeakReference<Mill>> mills) {
        try (ConfigurableApplicationContext context = BootTest.small(config, "keymill.sources.orders=segment:orders")) {
            mills.add(new WeakReference<>(context.getBean(Mill.class)));
            long id = context.getBean(Source.class).next();
            assertTrue(id > last, id + " after " + last);
            return id;
        }
    }
}
