package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.LazySource;
import io.keymill.Mill;
import io.keymill.Stats;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.beans.factory.InitializingBean;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Which mill lazy sources take from while application contexts start and close; the default mill is never opened. */
class SharingTest {
    private static final LazySource IDS = Mill.lazy("segment:lazy");

    @AfterEach
    void share_none() {
        Mill.share(null);
    }

    /** A bean that needs an id while it is made. */
    static class Eager implements InitializingBean {
        long id;

        @Override
        public void afterPropertiesSet() {
            id = IDS.next();
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class First {
        @Bean
        static Eager eager() {
            return new Eager();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration(excludeName = {
            "org.springframework.boot.autoconfigure.orm.jpa.HibernateJpaAutoConfiguration", "org.springframework.boot.hibernate.autoconfigure.HibernateJpaAutoConfiguration",
            "org.springframework.boot.autoconfigure.jdbc.DataSourceAutoConfiguration", "org.springframework.boot.jdbc.autoconfigure.DataSourceAutoConfiguration"})
    static class Shop {}

    private static ConfigurableApplicationContext run(String... properties) {
        return new SpringApplicationBuilder(First.class, Shop.class).web(WebApplicationType.NONE).properties("spring.main.banner-mode=off").properties(properties).run();
    }

    @Test
    void a_bean_that_is_made_first_takes_from_the_contexts_mill_and_none_after_its_close() {
        Path defaultStore = Path.of("keymill.db");
        boolean there = Files.exists(defaultStore);
        ConfigurableApplicationContext context = run("keymill.config=" + Stores.H2_AND_SQLITE.config(), "keymill.init=missing", "keymill.sources.lazy=segment:lazy");
        Mill mill = context.getBean(Mill.class);
        assertEquals(1, context.getBean(Eager.class).id);
        assertSame(mill, Mill.shared());
        long id = IDS.next();
        assertTrue(id > 1);
        context.close();
        assertTrue(mill.isClosed());
        KeymillException e = assertThrows(KeymillException.class, IDS::next);
        assertEquals(Code.CLOSED, e.code());
        assertTrue(e.getMessage().contains("the shared mill was closed; share an open one"), e.getMessage());
        assertEquals(there, Files.exists(defaultStore), "the default mill was opened");
    }

    /** A thread of the application, a scheduler's for instance, that asks before the mill is there. */
    @Configuration(proxyBeanMethods = false)
    static class Crowded {
        static final CompletableFuture<Long> id = new CompletableFuture<>();
        static volatile Thread maker;

        @Bean
        static InitializingBean early() {
            return () -> {
                Thread asks = new Thread(() -> {
                    try {
                        id.complete(IDS.next());
                    } catch (Throwable e) {
                        id.completeExceptionally(e);
                    }
                });
                asks.start();
                while (maker == null && asks.getState() == Thread.State.RUNNABLE) {
                    Thread.sleep(1);
                }
            };
        }

        @Bean
        Mill slow() {
            maker = Thread.currentThread();
            return Mill.open("memory:");
        }
    }

    /** Two threads that make beans at once get in each other's way: Spring 6.2 and later end the start. */
    @Test
    void a_thread_that_asks_while_the_application_starts_waits_for_the_mill_that_the_start_makes() throws Exception {
        try (ConfigurableApplicationContext context = new SpringApplicationBuilder(Crowded.class, Shop.class).web(WebApplicationType.NONE).properties("spring.main.banner-mode=off").run()) {
            assertSame(Thread.currentThread(), Crowded.maker);
            assertTrue(Crowded.id.get(60, TimeUnit.SECONDS) > 0);
            assertSame(context.getBean(Mill.class), Mill.shared());
        }
    }

    /** The first context's requests never get a number of another store. */
    @Test
    void a_context_that_closes_hands_nothing_to_another_one() {
        try (ConfigurableApplicationContext first = run("keymill.config=memory:"); ConfigurableApplicationContext second = run("keymill.config=" + Stores.H2_AND_SQLITE.config())) {
            assertSame(second.getBean(Mill.class), Mill.shared());
            second.close();
            assertFalse(first.getBean(Mill.class).isClosed());
            assertEquals(Code.CLOSED, assertThrows(KeymillException.class, IDS::next).code());
            assertTrue(assertThrows(KeymillException.class, Mill::shared).getMessage().startsWith("CLOSED: Mill.shared(): the shared mill was closed; share an open one"));
        }
    }

    /** A bean that writes an entity while the context closes; keymill's beans are made when it is made already. */
    static class Journal implements DisposableBean {
        private final ObjectProvider<BootTest.Orders> orders;
        static Long last;

        Journal(ObjectProvider<BootTest.Orders> orders) {
            this.orders = orders;
            // What Boot makes at a repository's first call is there then.
            orders.getObject().count();
        }

        @Override
        public void destroy() {
            last = orders.getObject().save(new Order()).id;
        }
    }

    @Configuration(proxyBeanMethods = false)
    static class WithJournal {
        @Bean
        Journal journal(ObjectProvider<BootTest.Orders> orders) {
            return new Journal(orders);
        }
    }

    @Test
    void entities_are_written_until_the_last_bean_is_destroyed() {
        Stores stores = Stores.H2_AND_SQLITE;
        Journal.last = null;
        BootTest.run(new Class<?>[] {WithJournal.class, BootTest.Shop.class}, WebApplicationType.NONE, "spring.datasource.url=" + stores.jdbcUrl(),
                "spring.jpa.hibernate.ddl-auto=create-drop", "keymill.config=" + stores.config()).close();
        assertTrue(Journal.last > 0);
    }

    @Test
    void health_and_the_endpoint_know_a_source_that_was_asked_for_directly() {
        try (ConfigurableApplicationContext context = run("keymill.config=memory:")) {
            context.getBean(Mill.class).segment("direct").next();
            assertEquals(List.of("segment:direct", "segment:lazy"), context.getBean(Mill.class).stats().stream().map(Stats::source).collect(Collectors.toList()));
        }
    }

    @Test
    void a_context_that_does_not_start_shares_nothing() {
        assertThrows(RuntimeException.class, () -> run("keymill.config=nothing:x").close());
        RuntimeException e = assertThrows(RuntimeException.class, IDS::next);
        assertTrue(e.getMessage().contains("closed"), e.getMessage());
    }
}
