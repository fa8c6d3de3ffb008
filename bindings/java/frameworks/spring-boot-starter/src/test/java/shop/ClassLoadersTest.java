package shop;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Source;
import java.io.File;
import java.lang.ref.WeakReference;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.IntFunction;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/** Web applications in one JVM: each has a class loader of its own with all jars, and the server's threads outlive it. */
class ClassLoadersTest {
    private static final int APPLICATIONS = 2;
    private static final int IDS = 20_000;

    /** An application, as its class loader sees it: from the outside a function of the JVM's own types. */
    public static final class Deployed implements IntFunction<long[]>, AutoCloseable {
        private final ConfigurableApplicationContext context;

        public Deployed(String config) {
            // As a WAR starts: the server ends it, and no hook of the JVM.
            context = new SpringApplicationBuilder(BootTest.Small.class).web(WebApplicationType.NONE).registerShutdownHook(false)
                    .properties("spring.main.banner-mode=off", "logging.level.root=warn", "logging.register-shutdown-hook=false")
                    .properties("keymill.config=" + config, "keymill.init=missing", "keymill.sources.deployed=segment:deployed?step=100").run();
        }

        @Override
        public long[] apply(int count) {
            Source source = context.getBean(Source.class);
            long[] ids = new long[count];
            for (int i = 0; i < count; i++) {
                ids[i] = source.next();
            }
            return ids;
        }

        @Override
        public void close() {
            context.close();
        }
    }

    /** Up to JDK 17 the JVM itself keeps the type of a record's field: of the record whose first hash code was asked for last. */
    private record Last(ClassLoadersTest field) {}

    private static void await(BooleanSupplier condition, String otherwise) {
        for (long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1); !condition.getAsBoolean(); ) {
            assertTrue(System.nanoTime() < end, otherwise);
        }
    }

    private static URL[] classPath() throws MalformedURLException {
        List<URL> urls = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            urls.add(new File(entry).toURI().toURL());
        }
        return urls.toArray(new URL[0]);
    }

    /** What a server's thread does for an application. */
    private static <T> Future<T> as(ClassLoader loader, ExecutorService server, Callable<T> work) {
        return server.submit(() -> {
            Thread thread = Thread.currentThread();
            ClassLoader own = thread.getContextClassLoader();
            thread.setContextClassLoader(loader);
            try {
                return work.call();
            } finally {
                thread.setContextClassLoader(own);
            }
        });
    }

    @Test
    void two_class_loaders_have_disjoint_ids_of_one_store_and_leave_nothing_behind() throws Exception {
        Assumptions.assumeTrue(List.of(Stores.there()).contains(Stores.MARIADB), "no MariaDB");
        ExecutorService server = Executors.newFixedThreadPool(APPLICATIONS);
        try {
            long before = Tasks.ofKeymill();
            List<WeakReference<ClassLoader>> loaders = deployAndUndeploy(server);
            await(() -> Tasks.ofKeymill() <= before, "threads of a closed mill are left");
            new Last(this).hashCode();
            for (WeakReference<ClassLoader> loader : loaders) {
                await(() -> {
                    System.gc();
                    return loader.get() == null;
                }, "a class loader is still reachable");
            }
        } finally {
            server.shutdown();
        }
    }

    @SuppressWarnings("unchecked")
    private static List<WeakReference<ClassLoader>> deployAndUndeploy(ExecutorService server) throws Exception {
        List<WeakReference<ClassLoader>> loaders = new ArrayList<>();
        List<URLClassLoader> open = new ArrayList<>();
        List<Object> applications = new ArrayList<>();
        for (int i = 0; i < APPLICATIONS; i++) {
            URLClassLoader loader = new URLClassLoader(classPath(), ClassLoader.getPlatformClassLoader());
            open.add(loader);
            loaders.add(new WeakReference<>(loader));
            applications.add(as(loader, server, () -> loader.loadClass(Deployed.class.getName()).getConstructor(String.class).newInstance(Stores.MARIADB.config())).get());
        }
        CyclicBarrier together = new CyclicBarrier(APPLICATIONS);
        List<Future<long[]>> taken = new ArrayList<>();
        for (int i = 0; i < APPLICATIONS; i++) {
            IntFunction<long[]> application = (IntFunction<long[]>) applications.get(i);
            taken.add(as(open.get(i), server, () -> {
                together.await(1, TimeUnit.MINUTES);
                return application.apply(IDS);
            }));
        }
        Set<Long> ids = new HashSet<>();
        for (Future<long[]> some : taken) {
            for (long id : some.get()) {
                assertTrue(ids.add(id), id + " came twice");
            }
        }
        for (int i = 0; i < APPLICATIONS; i++) {
            AutoCloseable application = (AutoCloseable) applications.get(i);
            as(open.get(i), server, () -> {
                application.close();
                return null;
            }).get();
            open.get(i).close();
        }
        return loaders;
    }
}
