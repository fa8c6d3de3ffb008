package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Mill;
import io.keymill.Source;
import io.keymill.spring.boot.KeymillAutoConfiguration;
import java.net.URI;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.ImportAutoConfiguration;
import org.springframework.boot.autoconfigure.task.TaskExecutionAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.task.AsyncTaskExecutor;

/** Boot's executor of virtual threads, which all share one carrier: the JVM's options say so. */
class VirtualThreadsTest {
    private static final int THREADS = 1000;

    @Configuration(proxyBeanMethods = false)
    @ImportAutoConfiguration({KeymillAutoConfiguration.class, TaskExecutionAutoConfiguration.class})
    static class Application {}

    @Test
    void a_thousand_threads_that_wait_for_a_silent_store_stop_no_other_one() throws Exception {
        Assumptions.assumeTrue(List.of(Stores.there()).contains(Stores.MARIADB), "no MariaDB");
        assertEquals("1", System.getProperty("jdk.virtualThreadScheduler.maxPoolSize"), "one carrier");
        Stores.MARIADB.mill("segment:near").close();
        URI url = URI.create(Stores.MARIADB.config());
        try (Relay relay = new Relay(url.getHost(), url.getPort());
                ConfigurableApplicationContext context = new SpringApplicationBuilder(Application.class).web(WebApplicationType.NONE).properties("spring.main.banner-mode=off", "spring.threads.virtual.enabled=true",
                        "keymill.config=mysql://" + url.getUserInfo() + "@127.0.0.1:" + relay.port + url.getPath(), "keymill.sources.near=segment:near?step=1000000").run()) {
            AsyncTaskExecutor executor = context.getBean("applicationTaskExecutor", AsyncTaskExecutor.class);
            Source far = context.getBean(Mill.class).source("segment:far?deadline=5m");
            Source near = context.getBean(Source.class);
            relay.silence(true);
            CountDownLatch begun = new CountDownLatch(THREADS);
            List<CompletableFuture<Long>> waiting = ids(executor, far, begun);
            // The last one begins after those before have left the carrier.
            assertTrue(begun.await(2, TimeUnit.MINUTES), begun.getCount() + " threads have not begun");
            assertDistinct(ids(executor, near, new CountDownLatch(THREADS)));
            assertFalse(waiting.stream().anyMatch(CompletableFuture::isDone), "an id of a store that is silent");
            relay.silence(false);
            assertDistinct(waiting);
        }
    }

    private static List<CompletableFuture<Long>> ids(AsyncTaskExecutor executor, Source source, CountDownLatch begun) {
        List<CompletableFuture<Long>> ids = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            ids.add(executor.submitCompletable(() -> {
                assertTrue(Thread.currentThread().isVirtual());
                begun.countDown();
                return source.next();
            }));
        }
        return ids;
    }

    private static void assertDistinct(List<CompletableFuture<Long>> ids) throws Exception {
        Set<Long> seen = new HashSet<>();
        for (CompletableFuture<Long> id : ids) {
            assertTrue(seen.add(id.get(2, TimeUnit.MINUTES)));
        }
    }
}
