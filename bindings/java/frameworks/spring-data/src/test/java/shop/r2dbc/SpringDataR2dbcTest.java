package shop.r2dbc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Mill;
import io.keymill.spring.data.KeymillId;
import io.keymill.spring.data.KeymillR2dbcCallback;
import java.util.List;
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
