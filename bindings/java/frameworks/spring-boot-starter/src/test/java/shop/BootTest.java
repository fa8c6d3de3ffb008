package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.read.ListAppender;
import io.keymill.Business;
import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.Serial;
import io.keymill.Source;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.slf4j.LoggerFactory;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.autoconfigure.ImportAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.jpa.repository.JpaRepository;
import org.springframework.data.jpa.repository.config.EnableJpaRepositories;

/** The starter in the Spring Boot of the class path, 2.7 to 4. */
class BootTest {
    interface Orders extends JpaRepository<Order, Long> {}

    /** A user's class; its bean is called as the source is. */
    static class OrderService {
        final Source ids;
        final Serial numbers;
        final Business sales;
        long last;

        OrderService(Source ids, Serial numbers, Business sales) {
            this.ids = ids;
            this.numbers = numbers;
            this.sales = sales;
        }

        /** Runs while the context closes. */
        public void flush() {
            last = ids.next();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @EnableJpaRepositories(considerNestedRepositories = true)
    @org.springframework.boot.autoconfigure.AutoConfigurationPackage
    static class Shop {}

    @Configuration(proxyBeanMethods = false)
    @ImportAutoConfiguration({io.keymill.spring.boot.KeymillAutoConfiguration.class, io.keymill.spring.boot.KeymillActuatorAutoConfiguration.class})
    static class Small {}

    @Configuration(proxyBeanMethods = false)
    static class Services {
        @Bean(destroyMethod = "flush")
        OrderService orders(@Qualifier("orders") Source ids, @Qualifier("customers") Serial numbers, @Qualifier("sales") Business sales) {
            return new OrderService(ids, numbers, sales);
        }
    }

    static Stores[] stores() {
        return Stores.there();
    }

    static ConfigurableApplicationContext run(Class<?>[] configurations, WebApplicationType web, String... properties) {
        return new SpringApplicationBuilder(configurations).web(web).properties("spring.main.banner-mode=off", "logging.level.root=warn").properties(properties).run();
    }

    static ConfigurableApplicationContext small(String... properties) {
        return run(new Class<?>[] {Small.class}, WebApplicationType.NONE, properties);
    }

    static ConfigurableApplicationContext shop(Stores stores, String... more) {
        List<String> properties = new ArrayList<>(List.of(
                "spring.datasource.url=" + stores.jdbcUrl(), "spring.datasource.username=" + stores.user(), "spring.datasource.password=" + stores.password(),
                "spring.jpa.hibernate.ddl-auto=create-drop", "spring.jpa.properties.hibernate.generate_statistics=true",
                "spring.jpa.properties.hibernate.jdbc.batch_size=100", "spring.jpa.properties.hibernate.order_inserts=true", "spring.jpa.open-in-view=false",
                "server.port=0", "keymill.config=" + stores.config(), "keymill.init=missing",
                "management.endpoints.web.exposure.include=*", "management.endpoint.health.show-details=always",
                "keymill.sources.orders=segment:orders"));
        properties.addAll(List.of(more));
        return run(new Class<?>[] {Shop.class}, WebApplicationType.SERVLET, properties.toArray(new String[0]));
    }

    static String get(ConfigurableApplicationContext context, String path) throws IOException {
        String port = context.getEnvironment().getProperty("local.server.port");
        HttpURLConnection connection = (HttpURLConnection) URI.create("http://127.0.0.1:" + port + path).toURL().openConnection();
        try (InputStream in = connection.getResponseCode() < 400 ? connection.getInputStream() : connection.getErrorStream()) {
            return connection.getResponseCode() + " " + new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    /** What the failure analysers say of a start that fails. */
    static String failure(Class<?> beans, String... properties) {
        ListAppender<ILoggingEvent> events = new ListAppender<>();
        events.start();
        SpringApplication application = new SpringApplicationBuilder(Small.class, beans)
                .web(WebApplicationType.NONE)
                .properties("spring.main.banner-mode=off", "logging.level.root=warn")
                .properties(properties)
                .initializers(context -> ((Logger) LoggerFactory.getLogger(Logger.ROOT_LOGGER_NAME)).addAppender(events))
                .build();
        assertThrows(RuntimeException.class, () -> application.run().close());
        return events.list.stream().map(ILoggingEvent::getFormattedMessage).filter(text -> text.contains("APPLICATION FAILED TO START")).collect(Collectors.joining());
    }

    @Test
    void sources_are_beans_by_their_qualifier_and_serve_until_their_users_are_gone() {
        Mill mill;
        OrderService orders;
        try (ConfigurableApplicationContext context = run(new Class<?>[] {Small.class, Services.class}, WebApplicationType.NONE, "keymill.config=" + Stores.H2_AND_SQLITE.config(),
                "keymill.sources.orders=segment:orders?step=1000", "keymill.sources.customers=serial:cust_info/custid?number=000000", "keymill.sources.sales=business:order")) {
            mill = context.getBean(Mill.class);
            orders = context.getBean(OrderService.class);
            assertSame(mill, Mill.shared());
            assertEquals(1, orders.ids.next());
            assertTrue(orders.numbers.next().endsWith("000001"), "the warm-up spends no number");
            assertTrue(orders.sales.next(42L) > 0);
        }
        assertTrue(orders.last > 1, "a bean that is destroyed still gets an id");
        assertTrue(mill.isClosed());
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_repository_saves_all_without_a_select_and_in_one_statement(Stores stores) {
        try (ConfigurableApplicationContext context = shop(stores)) {
            Orders repository = context.getBean(Orders.class);
            org.hibernate.stat.Statistics statistics = statistics(context);
            statistics.clear();
            List<Order> orders = Stream.generate(Order::new).limit(1000).collect(Collectors.toList());
            repository.saveAll(orders);
            Set<Long> ids = orders.stream().map(order -> order.id).collect(Collectors.toCollection(HashSet::new));
            assertEquals(1000, ids.size());
            assertEquals(1, statistics.getPrepareStatementCount());
            assertEquals(1000, repository.count());
        }
    }

    /** `EntityManagerFactory` is of another package in Boot 2.7. */
    private static org.hibernate.stat.Statistics statistics(ConfigurableApplicationContext context) {
        return ((org.hibernate.SessionFactory) context.getBean("entityManagerFactory")).getStatistics();
    }

    /** Without a word of configuration. */
    @Test
    void the_applications_database_is_the_store_where_none_is_named() {
        org.junit.jupiter.api.Assumptions.assumeTrue(List.of(Stores.there()).contains(Stores.MARIADB), "no MariaDB");
        try (ConfigurableApplicationContext context = shop(Stores.MARIADB, "keymill.config=")) {
            Order order = context.getBean(Orders.class).save(new Order());
            assertTrue(order.id > 0);
            assertTrue(context.getBean(Mill.class).store().contains("127.0.0.1"), context.getBean(Mill.class).store());
        }
    }

    @Test
    void two_contexts_at_once_have_a_mill_each() {
        String first = Stores.H2_AND_SQLITE.config();
        String second = Stores.H2_AND_SQLITE.config();
        try (ConfigurableApplicationContext one = shop(Stores.H2_AND_SQLITE, "keymill.config=" + first)) {
            try (ConfigurableApplicationContext two = shop(Stores.H2_AND_SQLITE, "keymill.config=" + second)) {
                assertSame(two.getBean(Mill.class), Mill.shared());
                Order order = one.getBean(Orders.class).save(new Order());
                assertEquals(1, order.id, "of its own mill");
                assertEquals(1, two.getBean(Orders.class).save(new Order()).id);
            }
            assertEquals(2, one.getBean(Orders.class).save(new Order()).id);
        }
    }

    @Test
    void health_meters_and_the_endpoint_over_http() throws IOException {
        try (ConfigurableApplicationContext context = shop(Stores.H2_AND_SQLITE)) {
            context.getBean(Orders.class).save(new Order());
            String health = get(context, "/actuator/health/keymill");
            assertTrue(health.startsWith("200 ") && health.contains("\"status\":\"UP\"") && health.contains("\"segment:orders\":{\"left\":"), health);
            String endpoint = get(context, "/actuator/keymill");
            assertTrue(endpoint.startsWith("200 ") && endpoint.contains("\"reserved\":800"), endpoint);
            String prometheus = get(context, "/actuator/prometheus");
            assertTrue(prometheus.contains("keymill_issued_total{source=\"segment:orders\""), names(prometheus).toString());
            context.getBean(Mill.class).segment("later").next();
            // What is new, a source or a metric that has a value now, comes with the reading after the next; they are a second apart.
            long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(1);
            while (!prometheus.contains("keymill_issued_total{source=\"segment:later\"") || !names(context.getBean(Mill.class).metrics()).equals(names(prometheus))) {
                assertTrue(System.nanoTime() < end, names(prometheus).toString());
                prometheus = get(context, "/actuator/prometheus");
            }
        }
    }

    /** The names of keymill's metrics, without a histogram's buckets and the largest value that Micrometer adds. */
    private static Set<String> names(String metrics) {
        return metrics.lines().filter(line -> line.startsWith("keymill_")).map(line -> line.split("[{ ]")[0])
                .filter(name -> !name.endsWith("_bucket") && !name.endsWith("_max")).collect(Collectors.toCollection(TreeSet::new));
    }

    @Test
    void an_application_starts_without_its_store_and_the_first_id_says_why() {
        String away = "keymill.config=mysql://ids:secret@127.0.0.1:1/shop";
        try (ConfigurableApplicationContext context = small(away, "keymill.sources.orders=segment:orders", "keymill.warm-up=false")) {
            Source orders = context.getBean(Source.class);
            KeymillException e = assertThrows(KeymillException.class, orders::next);
            assertEquals(Code.STORE_UNAVAILABLE, e.code());
            assertTrue(e.getMessage().contains("Connection refused"), e.getMessage());
        }
        String said = failure(Small.class, away, "keymill.sources.orders=segment:orders", "keymill.sources.customers=serial:a/b", "keymill.sources.sales=business:order");
        assertTrue(said.contains("The property keymill.sources.orders cannot be used: no first numbers: ") && said.contains("keymill.warm-up=false"), said);
        assertFalse(said.contains("secret"), said);
    }

    @Test
    void an_application_that_started_without_its_store_gets_ids_once_it_is_there() throws Exception {
        org.junit.jupiter.api.Assumptions.assumeTrue(List.of(Stores.there()).contains(Stores.MARIADB), "no MariaDB");
        Stores.MARIADB.mill("segment:later").close();
        URI url = URI.create(Stores.MARIADB.config());
        try (Relay relay = new Relay(url.getHost(), url.getPort())) {
            relay.stop();
            try (ConfigurableApplicationContext context = small("keymill.config=mysql://" + url.getUserInfo() + "@127.0.0.1:" + relay.port + url.getPath(),
                    "keymill.sources.later=segment:later?deadline=1s", "keymill.warm-up=false")) {
                Source later = context.getBean(Source.class);
                assertEquals(Code.STORE_UNAVAILABLE, assertThrows(KeymillException.class, later::next).code());
                relay.start();
                assertTrue(awaitId(later) > 0);
            }
        }
    }

    private static long awaitId(Source source) {
        for (long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(2); ; ) {
            try {
                return source.next();
            } catch (KeymillException e) {
                assertTrue(System.nanoTime() < end, e.getMessage());
            }
        }
    }

    @Test
    void health_is_down_while_a_source_is_empty_and_its_refills_fail() throws IOException {
        try (ConfigurableApplicationContext context = shop(Stores.H2_AND_SQLITE, "keymill.config=mysql://ids:secret@127.0.0.1:1/shop", "keymill.init=never", "keymill.warm-up=false")) {
            String health = get(context, "/actuator/health/keymill");
            assertTrue(health.contains("\"status\":\"UP\""), "no id was asked for: " + health);
            assertThrows(RuntimeException.class, () -> context.getBean(Orders.class).save(new Order()));
            health = get(context, "/actuator/health/keymill");
            assertTrue(health.startsWith("503 ") && health.contains("\"status\":\"DOWN\"") && health.contains("Connection refused"), health);
            assertFalse(health.contains("secret"), health);
        }
    }

    /** Which neither a property nor an entity names. */
    @Test
    void health_and_the_endpoint_know_sources_that_the_application_asks_for_itself() throws IOException {
        try (ConfigurableApplicationContext context = shop(Stores.H2_AND_SQLITE, "keymill.config=mysql://ids:secret@127.0.0.1:1/shop", "keymill.init=never", "keymill.warm-up=false")) {
            assertThrows(KeymillException.class, () -> Mill.lazy("segment:lazy").next());
            String health = get(context, "/actuator/health/keymill");
            assertTrue(health.startsWith("503 ") && health.contains("\"segment:lazy\":{"), health);
            Mill mill = context.getBean(Mill.class);
            for (Runnable verb : new Runnable[] {() -> mill.segment("direct").next(), () -> mill.serial("direct/no").next(), () -> mill.business("direct").next(42)}) {
                assertThrows(KeymillException.class, verb::run);
            }
            String endpoint = get(context, "/actuator/keymill");
            for (String source : new String[] {"segment:lazy", "segment:direct", "serial:direct/no", "business:direct"}) {
                assertTrue(endpoint.contains("\"" + source), source + ": " + endpoint);
            }
        }
    }

    /** The store behind a relay that is stopped: ids go on from memory, then health is down, and both come back. */
    @Test
    void a_store_that_stops_and_comes_back() throws Exception {
        org.junit.jupiter.api.Assumptions.assumeTrue(List.of(Stores.there()).contains(Stores.MARIADB), "no MariaDB");
        URI url = URI.create(Stores.MARIADB.config());
        try (Relay relay = new Relay(url.getHost(), url.getPort());
                ConfigurableApplicationContext context = shop(Stores.H2_AND_SQLITE, "keymill.config=mysql://" + url.getUserInfo() + "@127.0.0.1:" + relay.port + url.getPath(), "keymill.sources.few=segment:few?step=10&deadline=1s")) {
            Source few = context.getBean("keymill.sources.few", Source.class);
            long last = few.next();
            relay.stop();
            KeymillException stopped = null;
            for (int i = 0; stopped == null; i++) {
                assertTrue(i < 1_000_000, "ids without a store");
                try {
                    long id = few.next();
                    assertTrue(id > last);
                    last = id;
                } catch (KeymillException e) {
                    stopped = e;
                }
            }
            assertTrue(stopped.code() == Code.STORE_UNAVAILABLE || stopped.code() == Code.DEADLINE, stopped.toString());
            awaitHealth(context, "503 ", "\"status\":\"DOWN\"", few);
            relay.start();
            awaitHealth(context, "200 ", "\"status\":\"UP\"", few);
            assertTrue(few.next() > last);
        }
    }

    /** Callers go on asking, as they do. */
    private static void awaitHealth(ConfigurableApplicationContext context, String status, String text, Source source) throws IOException {
        long end = System.nanoTime() + TimeUnit.MINUTES.toNanos(2);
        String health = "";
        while (!health.startsWith(status) || !health.contains(text)) {
            assertTrue(System.nanoTime() < end, health);
            try {
                source.next();
            } catch (KeymillException e) {
                assertFalse(e.getMessage().isEmpty());
            }
            health = get(context, "/actuator/health/keymill");
        }
    }

    @Test
    void a_wrong_property_stops_the_start_and_says_what_is_valid() {
        String config = "keymill.config=memory:";
        String said = failure(Small.class, "keymill.confg=memory:");
        assertTrue(said.contains("keymill has no property keymill.confg") && said.contains("keymill.config, keymill.enabled, keymill.init"), said);
        said = failure(Small.class, "keymill.sources.orders=segment:orders");
        assertTrue(said.contains("The property keymill.config cannot be used: it is not set, and neither is spring.datasource.url") && said.contains("sqlite:FILE"), said);
        said = failure(Small.class, "spring.datasource.url=jdbc:oracle:thin:@db:1521/shop", "spring.datasource.password=secret");
        assertTrue(said.contains("the database of spring.datasource cannot be the store: INVALID_CONFIG") && said.contains("MySQL, MariaDB, TiDB, PostgreSQL or SQLite") && !said.contains("secret"), said);
        said = failure(Small.class, "keymill.config=oracle://ids:secret@db/shop");
        assertTrue(said.contains("The property keymill.config cannot be used: INVALID_CONFIG") && !said.contains("secret"), said);
        said = failure(Small.class, config, "keymill.sources.orders=orders");
        assertTrue(said.contains("The property keymill.sources.orders cannot be used: `orders` is no source") && said.contains("segment:NAME"), said);
        said = failure(Small.class, config, "keymill.sources.orders=segment:orders?stp=1000");
        assertTrue(said.contains("The property keymill.sources.orders cannot be used: INVALID_CONFIG") && said.contains("stp") && said.contains("min_step"), said);
        said = failure(Small.class, config, "keymill.init=always");
        assertTrue(said.contains("keymill.init") && said.contains("MISSING"), said);
        said = failure(Services.class, config, "keymill.sources.order=segment:orders");
        assertTrue(said.contains("The bean orders wants a Source called `orders`, and keymill.sources has {order=segment:orders}") && said.contains("Set keymill.sources.orders to segment:NAME"), said);
    }

    @Test
    void enabled_false_leaves_no_bean() {
        try (ConfigurableApplicationContext context = small("keymill.enabled=false", "keymill.sources.orders=segment:orders")) {
            assertEquals(0, context.getBeanNamesForType(Mill.class).length + context.getBeanNamesForType(Source.class).length);
        }
    }

    @Test
    void a_lazy_context_is_warm_when_it_has_started() {
        try (ConfigurableApplicationContext context = small("spring.main.lazy-initialization=true", "keymill.config=" + Stores.H2_AND_SQLITE.config(), "keymill.sources.orders=segment:orders")) {
            assertTrue(context.getBean(Mill.class).source("segment:orders").stats().left() > 0);
        }
    }

    @Test
    void the_applications_own_mill_is_the_shared_one() {
        Mill own = Mill.open("memory:");
        try (ConfigurableApplicationContext context = new SpringApplicationBuilder(Small.class)
                .web(WebApplicationType.NONE)
                .properties("spring.main.banner-mode=off", "keymill.sources.orders=segment:orders")
                .initializers(fresh -> fresh.getBeanFactory().registerSingleton("ownMill", own))
                .run()) {
            assertSame(own, Mill.shared());
            assertEquals(1, context.getBean(Source.class).next());
        }
        assertFalse(own.isClosed());
        own.close();
    }

    static class Application implements Runnable {
        @Override
        public void run() {
            small("keymill.config=memory:").close();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-spring-boot-starter"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
