package shop.r2dbc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.spring.data.KeymillId;
import io.keymill.spring.data.KeymillR2dbcCallback;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.annotation.Id;
import org.springframework.data.r2dbc.repository.R2dbcRepository;
import org.springframework.data.r2dbc.repository.config.EnableR2dbcRepositories;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.mapping.Table;
import org.springframework.data.relational.core.sql.SqlIdentifier;
import org.springframework.r2dbc.core.DatabaseClient;
import reactor.core.Disposable;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;
import reactor.core.scheduler.Schedulers;
import shop.OtherVersion;
import shop.Stores;

/** Spring Data R2DBC in the Boot of the class path, on H2. */
class SpringDataR2dbcTest {
    @Table("orders")
    record Order(@Id @KeymillId Long id, @KeymillId("serial:{table}/no?number=000000") String no, String what) {}

    @Table("lines")
    record Line(@Id @KeymillId Long id) {}

    /** Of two sources. One of them gives texts. */
    @Table("parcels")
    record Parcel(@Id @KeymillId Long id, @KeymillId("serial:{table}/no?number=000000") String no) {}

    @Table("late")
    record Late(@Id @KeymillId("segment:{table}?deadline=1s") Long id) {}

    @Table("patient")
    record Patient(@Id @KeymillId("segment:{table}?deadline=600s") Long id) {}

    interface Orders extends R2dbcRepository<Order, Long> {}

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @EnableR2dbcRepositories(considerNestedRepositories = true)
    static class Shop {}

    private static ConfigurableApplicationContext run() {
        ConfigurableApplicationContext context = new SpringApplicationBuilder(Shop.class).web(WebApplicationType.NONE).properties(
                "spring.main.banner-mode=off", "logging.level.root=warn", "spring.r2dbc.url=r2dbc:h2:mem:///shop", "spring.r2dbc.generate-unique-name=true",
                "keymill.config=" + Stores.H2_AND_SQLITE.config(), "keymill.sources.orders=segment:orders").run();
        // Spring Data quotes names since 3.0.
        for (String name : new String[] {"orders", "\"orders\""}) {
            context.getBean(DatabaseClient.class).sql("create table if not exists " + name + " (id bigint primary key, no varchar(40) not null, what varchar(40))").then().block();
        }
        return context;
    }

    @Test
    void an_entity_is_inserted_with_its_id_and_updated_when_it_has_one() {
        try (ConfigurableApplicationContext context = run()) {
            Orders orders = context.getBean(Orders.class);
            Order saved = orders.save(new Order(null, null, "first")).block();
            assertNotNull(saved.id());
            assertTrue(saved.no().matches("\\d{14}"), saved.no());
            Order changed = orders.save(new Order(saved.id(), saved.no(), "second")).block();
            assertEquals(saved.id(), changed.id());
            assertEquals("second", orders.findById(saved.id()).block().what());
            List<Order> many = orders.saveAll(Flux.range(0, 1000).map(i -> new Order(null, null, "many"))).collectList().block();
            assertEquals(1000, many.stream().map(Order::id).distinct().count());
            assertEquals(1001, orders.count().block());
        }
    }

    /** Of a source that has nothing in memory yet another thread waits; afterwards the caller's own has it at once. */
    @Test
    void an_event_loop_never_waits() {
        try (ConfigurableApplicationContext context = run()) {
            Mill mill = context.getBean(Mill.class);
            KeymillR2dbcCallback callback = new KeymillR2dbcCallback(() -> mill, () -> context.getBean(RelationalMappingContext.class));
            String cold = thread(callback);
            assertTrue(cold.contains("boundedElastic"), cold);
            String warm = thread(callback);
            assertFalse(warm.contains("boundedElastic"), warm);
        }
    }

    private static String thread(KeymillR2dbcCallback callback) {
        return Mono.defer(() -> {
            assertTrue(Schedulers.isInNonBlockingThread());
            return Mono.from(callback.onBeforeConvert(new Line(null), SqlIdentifier.unquoted("lines")));
        }).map(line -> {
            assertNotNull(((Line) line).id());
            return Thread.currentThread().getName();
        }).subscribeOn(Schedulers.parallel()).block();
    }

    private interface Check {
        void on(Mill mill, KeymillR2dbcCallback callback) throws InterruptedException;
    }

    private static void with(String config, Check check) throws InterruptedException {
        RelationalMappingContext entities = new RelationalMappingContext();
        try (Mill mill = Mill.open(config)) {
            check.on(mill, new KeymillR2dbcCallback(() -> mill, () -> entities));
        }
    }

    /** A store that takes connections and never answers. */
    private static void withSilentStore(Check check) throws Exception {
        try (ServerSocket silent = new ServerSocket(0, 500, InetAddress.getLoopbackAddress())) {
            with("mysql://ids:secret@127.0.0.1:" + silent.getLocalPort() + "/shop", check);
        }
    }

    private static Mono<Object> save(KeymillR2dbcCallback callback, Object entity) {
        return Mono.defer(() -> Mono.from(callback.onBeforeConvert(entity, SqlIdentifier.unquoted("any"))));
    }

    /** Threads of keymill's own. */
    private static long threads() {
        return Thread.getAllStackTraces().keySet().stream().filter(thread -> thread.getName().equals("keymill-waiters")).count();
    }

    /** Reactor's threads that are in keymill's code. */
    private static long held() {
        return Thread.getAllStackTraces().entrySet().stream().filter(thread -> thread.getKey().getName().startsWith("boundedElastic"))
                .filter(thread -> Arrays.stream(thread.getValue()).anyMatch(frame -> frame.getClassName().startsWith("io.keymill."))).count();
    }

    private static void awaitNoThread() throws InterruptedException {
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
        while (threads() > 0) {
            assertTrue(System.nanoTime() < end, "a thread stays where no save waits");
            Thread.sleep(1);
        }
    }

    /** More saves than Reactor's threads could wait for one after the other within the minute. */
    @Test
    void saves_that_wait_hold_no_thread_and_fail_at_their_deadline() throws Exception {
        withSilentStore((mill, callback) -> {
            List<Mono<Object>> saves = new ArrayList<>();
            for (int i = 0; i < 4000; i++) {
                Mono<Object> save = save(callback, new Late(null)).cache();
                save.subscribe(saved -> {}, e -> {});
                saves.add(save);
            }
            assertEquals(0, held());
            assertTrue(threads() <= 1);
            Mono<List<Throwable>> errors = Flux.fromIterable(saves).concatMap(save -> save.map(saved -> new AssertionError("an id of a silent store")).cast(Throwable.class).onErrorResume(Mono::just)).collectList();
            for (Throwable e : errors.block(Duration.ofMinutes(1))) {
                Code code = ((KeymillException) e).code();
                // On a machine so busy that the store was given up first.
                assertTrue(code == Code.DEADLINE || code == Code.STORE_UNAVAILABLE, e.toString());
                assertTrue(e.getMessage().contains("segment:late"), e.getMessage());
            }
            awaitNoThread();
        });
    }

    @Test
    void saves_that_wait_for_two_sources_get_their_ids_when_the_store_answers() throws InterruptedException {
        with("memory:?script=silent:200ms", (mill, callback) -> {
            List<Mono<Object>> saves = new ArrayList<>();
            for (int i = 0; i < 3000; i++) {
                saves.add(save(callback, new Parcel(null, null)).subscribeOn(Schedulers.parallel()));
            }
            List<Object> parcels = Flux.merge(Flux.fromIterable(saves), 3000).collectList().block(Duration.ofMinutes(2));
            assertEquals(3000, parcels.stream().map(parcel -> ((Parcel) parcel).id()).distinct().count());
            assertEquals(3000, parcels.stream().map(parcel -> ((Parcel) parcel).no()).distinct().count());
            awaitNoThread();
        });
    }

    @Test
    void a_save_that_is_cancelled_or_whose_mill_is_closed_leaves_no_thread() throws Exception {
        withSilentStore((mill, callback) -> {
            Disposable cancelled = save(callback, new Patient(null)).subscribe();
            assertEquals(1, threads());
            cancelled.dispose();
            awaitNoThread();
            Mono<Object> closed = save(callback, new Patient(null)).cache();
            closed.subscribe(saved -> {}, e -> {});
            mill.close();
            assertEquals(Code.CLOSED, assertThrows(KeymillException.class, () -> closed.block(Duration.ofMinutes(1))).code());
            awaitNoThread();
        });
    }

    static class Application implements Runnable {
        @Override
        public void run() {
            new io.keymill.spring.data.KeymillR2dbcCallback(null, null);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-spring-data"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
