package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static shop.Sessions.does;

import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.Source;
import io.keymill.hibernate.KeymillId;
import io.keymill.support.FieldIds;
import io.keymill.support.TableKeys;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableSet;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.hibernate.SessionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfEnvironmentVariable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Tables that have rows before their source is new, on one database and one store each. */
class RowsBeforeTest {
    @Entity(name = "Plain")
    static class Plain {
        @Id @KeymillId Long id;
    }

    @Entity(name = "Named")
    static class Named {
        @Id @KeymillId("segment:named") Long id;
    }

    private final String config = Stores.H2_AND_SQLITE.config();
    private final String database = Stores.H2_AND_SQLITE.jdbcUrl();
    /** The application's instances, with their mills, in the order of their start. */
    private final Map<SessionFactory, Mill> instances = new LinkedHashMap<>();

    @BeforeEach
    void tables() {
        Stores.run(database, "sa", "", "create table Plain (id bigint primary key)", "create table Named (id bigint primary key)");
    }

    @AfterEach
    void stop() {
        instances.forEach((sessions, mill) -> {
            sessions.close();
            mill.close();
        });
        instances.clear();
    }

    /** Starts an instance of the application. */
    private SessionFactory start() {
        Mill mill = Mill.open(config);
        SessionFactory sessions = Sessions.configuration(Stores.H2_AND_SQLITE, mill, Plain.class, Named.class)
                .setProperty("hibernate.connection.url", database).setProperty("hibernate.hbm2ddl.auto", "none").buildSessionFactory();
        instances.put(sessions, mill);
        return sessions;
    }

    private static long insert(SessionFactory sessions) {
        Plain plain = new Plain();
        does(sessions, session -> session.persist(plain));
        return plain.id;
    }

    private static String refusal(SessionFactory sessions, Object entity) {
        return Causes.root(assertThrows(RuntimeException.class, () -> does(sessions, session -> session.persist(entity)))).getMessage();
    }

    private String told(long next, long highest) {
        return "shop.RowsBeforeTest$Plain.id: segment:plain goes on at " + next + ", and the table Plain has keys up to " + highest
                + ", which this source did not give; stop every program that takes from it, run `keymill --mill '" + config + "' repair 'segment:plain' --to " + (highest + 1) + " --yes`, and start them again";
    }

    /** As `repair` does: the row stands above the keys. */
    private void raise(long above) {
        try (Mill mill = Mill.open(config)) {
            Source source = mill.segment("plain");
            while (source.next() <= above) {}
        }
    }

    @Test
    void each_start_and_each_instance_is_refused_until_the_row_was_raised() {
        Stores.run(database, "sa", "", "insert into Plain values (3), (7)");
        for (int start = 0; start < 3; start++) {
            SessionFactory sessions = start();
            assertEquals(told(1, 7), refusal(sessions, new Plain()));
            assertEquals(told(1, 7), refusal(sessions, new Plain()), "and every id");
            if (start == 1) {
                stop();
            }
        }
        stop();
        raise(7);
        Set<Long> ids = new HashSet<>();
        for (int start = 0; start < 2; start++) {
            SessionFactory sessions = start();
            for (int row = 0; row < 20; row++) {
                assertTrue(ids.add(insert(sessions)));
            }
        }
        assertTrue(ids.stream().allMatch(id -> id > 7), ids.toString());
    }

    @Test
    void keys_above_a_first_reservation_are_in_the_way_too() {
        Stores.run(database, "sa", "", "insert into Plain values (50000), (50002)");
        assertEquals(told(1, 50002), refusal(start(), new Plain()));
    }

    /** As Boot's warm-up does it, before the table is asked. */
    @ParameterizedTest
    @CsvSource({"3", "700", "50000"})
    void a_source_that_was_warmed_up_is_asked_about_what_it_has_reserved(long key) throws InterruptedException {
        Stores.run(database, "sa", "", "insert into Plain values (" + key + ")");
        SessionFactory sessions = start();
        Source source = instances.get(sessions).segment("plain");
        for (source.tryNext(); source.stats().left() == 0;) {
            Thread.sleep(1);
        }
        String said = refusal(sessions, new Plain());
        assertTrue(said.endsWith(told(1, key).substring(told(1, key).indexOf(", and the table"))), said);
        assertEquals(said, refusal(sessions, new Plain()));
    }

    /** As where two entities share a source, or a lazy source was asked before. */
    @Test
    void a_key_below_the_row_is_found_before_its_id_goes_out_where_the_process_took_ids_before() {
        Stores.run(database, "sa", "", "insert into Plain values (5), (9)");
        SessionFactory sessions = start();
        Source source = instances.get(sessions).segment("plain");
        assertEquals(1, source.next());
        assertEquals(2, source.next());
        assertEquals(3, insert(sessions));
        assertEquals(4, insert(sessions));
        assertEquals(told(5, 9), refusal(sessions, new Plain()));
        assertEquals(told(5, 9), refusal(sessions, new Plain()), "and every later id");
    }

    /** They are above this one's next number or beside it, and each was given once. */
    @Test
    void ids_of_other_threads_and_instances_are_no_reason_to_refuse_where_the_process_took_ids_before() throws Exception {
        Set<Long> ids = java.util.concurrent.ConcurrentHashMap.newKeySet();
        for (int instance = 0; instance < 3; instance++) {
            assertTrue(ids.add(instances.get(start()).segment("plain").next()));
        }
        ExecutorService threads = Executors.newFixedThreadPool(6);
        List<Future<?>> writers = new java.util.ArrayList<>();
        for (SessionFactory sessions : instances.keySet()) {
            for (int thread = 0; thread < 2; thread++) {
                writers.add(threads.submit(() -> {
                    for (int row = 0; row < 1500; row++) {
                        long id = insert(sessions);
                        assertTrue(ids.add(id), () -> id + " came twice");
                    }
                }));
            }
        }
        threads.shutdown();
        for (Future<?> writer : writers) {
            writer.get(5, TimeUnit.MINUTES);
        }
        assertEquals(3 + 6 * 1500, ids.size());
    }

    /** Keys of a table that changes, without a database. */
    private static TableKeys keys(NavigableSet<Long> table) {
        return (lowest, from) -> {
            Long key = lowest ? table.ceiling(from) : table.isEmpty() || table.last() < from ? null : table.last();
            return key == null ? TableKeys.Found.NONE : TableKeys.Found.of(key);
        };
    }

    /** The store is silent, or refuses connections, after the source has reserved. */
    @ParameterizedTest
    @EnabledIfEnvironmentVariable(named = "KEYMILL_TEST_MYSQL", matches = ".+")
    @ValueSource(booleans = {true, false})
    void numbers_in_memory_go_out_while_the_store_is_away_but_for_those_that_the_table_has(boolean silent) throws Exception {
        String direct = Stores.MARIADB.config();
        URI url = URI.create(direct);
        try (Relay relay = new Relay(url.getHost(), url.getPort());
                Mill mill = Mill.open(direct.replace(":" + url.getPort(), ":" + relay.port))) {
            mill.init();
            String spec = "segment:away_" + System.nanoTime() + "?deadline=500ms";
            assertEquals(1, mill.source(spec).next());
            relay.silence(silent);
            if (!silent) {
                relay.stop();
            }
            FieldIds ids = FieldIds.of(() -> mill, spec, "Plain", Long.class, "shop.Plain.id");
            TableKeys keys = keys(new TreeSet<>(Arrays.asList(4L, 7L)));
            assertEquals(2L, ids.next(keys));
            assertEquals(3L, ids.next(keys));
            String said = assertThrows(IllegalStateException.class, () -> ids.next(keys)).getMessage();
            assertTrue(said.contains(" goes on at 4, and the table Plain has keys up to 7"), said);
            // Of a source that has nothing in memory the row is read, or no id goes out.
            FieldIds cold = FieldIds.of(() -> mill, "segment:cold_" + System.nanoTime() + "?deadline=500ms", "Plain", Long.class, "shop.Plain.id");
            Code code = assertThrows(KeymillException.class, () -> cold.next(keys)).code();
            assertTrue(code == Code.DEADLINE || code == Code.STORE_UNAVAILABLE, code.toString());
            relay.silence(false);
        }
    }

    private static FieldIds ids(Mill mill, String options) {
        return FieldIds.of(() -> mill, "segment:{table}" + options, "Plain", Long.class, "shop.Plain.id");
    }

    @Test
    void a_table_whose_connection_ends_is_asked_again() {
        Connection ends = (Connection) Proxy.newProxyInstance(getClass().getClassLoader(), new Class<?>[] {Connection.class}, (proxy, method, arguments) -> {
            throw new SQLException("the connection was killed", "08006");
        });
        try (Mill mill = Mill.open("memory:")) {
            FieldIds ids = ids(mill, "");
            String said = assertThrows(IllegalStateException.class, () -> ids.next((lowest, from) -> TableKeys.ask(ends, "Plain", "id", lowest, from))).getMessage();
            assertEquals("the table Plain cannot be asked for its keys, so no id goes out; repeat the transaction", said);
            said = assertThrows(IllegalStateException.class, () -> ids.next((lowest, from) -> TableKeys.Found.of(7))).getMessage();
            assertTrue(said.startsWith("shop.Plain.id: segment:plain goes on at 1, and the table Plain has keys up to 7"), said);
        }
    }

    /** A connection on which every statement fails, and which stays usable. */
    private static Connection failing() {
        return (Connection) Proxy.newProxyInstance(RowsBeforeTest.class.getClassLoader(), new Class<?>[] {Connection.class}, (proxy, method, arguments) -> {
            if (method.getName().equals("getAutoCommit")) {
                return true;
            }
            throw new SQLException("the table is locked by a migration", "55P03");
        });
    }

    @Test
    void a_table_whose_query_failed_is_asked_again() throws InterruptedException {
        try (Mill mill = Mill.open("memory:")) {
            FieldIds ids = ids(mill, "?step=100");
            assertEquals(1L, ids.next((lowest, from) -> TableKeys.ask(failing(), "Plain", "id", lowest, from)));
            TableKeys keys = keys(new TreeSet<>(Collections.singleton(1_000_000_000L)));
            String said = null;
            for (long until = System.nanoTime() + TimeUnit.MINUTES.toNanos(1); said == null && System.nanoTime() < until; Thread.sleep(10)) {
                try {
                    ids.next(keys);
                } catch (IllegalStateException e) {
                    said = e.getMessage();
                }
            }
            assertTrue(said != null && said.contains("the table Plain has keys up to 1000000000"), said);
        }
    }

    /** A query may wait for a row of another transaction, whose thread takes an id next: before the first id, or for one of a later one. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void a_thread_that_asks_the_table_holds_up_no_other_one(boolean later) throws Exception {
        try (Mill mill = Mill.open("memory:")) {
            // The row stands above the key.
            assertEquals(1, mill.segment("plain").next());
            FieldIds ids = ids(mill, "");
            TableKeys table = keys(new TreeSet<>(Collections.singleton(500L)));
            CountDownLatch asks = new CountDownLatch(1);
            CountDownLatch answered = new CountDownLatch(1);
            TableKeys waits = (lowest, from) -> {
                if (lowest == later) {
                    asks.countDown();
                    while (answered.getCount() > 0) {
                        Thread.yield();
                    }
                }
                return table.key(lowest, from);
            };
            ExecutorService threads = Executors.newFixedThreadPool(2);
            try {
                Future<Object> waiting = threads.submit(() -> ids.next(waits));
                assertTrue(asks.await(1, TimeUnit.MINUTES));
                Object beside = threads.submit(() -> ids.next(table)).get(1, TimeUnit.MINUTES);
                answered.countDown();
                assertTrue(!beside.equals(waiting.get(1, TimeUnit.MINUTES)));
            } finally {
                answered.countDown();
                threads.shutdown();
            }
        }
    }

    /** Each would wait for its own deadline, and behind the others. */
    @Test
    void threads_that_wait_for_the_first_id_of_a_table_fail_together() throws Exception {
        try (Mill mill = Mill.open("memory:?script=silent:8s")) {
            FieldIds ids = ids(mill, "?deadline=1s");
            ExecutorService threads = Executors.newFixedThreadPool(10);
            List<Future<Object>> asked = threads.invokeAll(Collections.nCopies(10, () -> ids.next((lowest, from) -> TableKeys.Found.NONE)), 5, TimeUnit.SECONDS);
            threads.shutdown();
            for (Future<Object> one : asked) {
                assertTrue(!one.isCancelled(), "it waited for all before it");
                assertTrue(assertThrows(ExecutionException.class, one::get).getCause() instanceof KeymillException);
            }
        }
    }

    @Test
    void a_source_with_a_name_of_its_own_is_asked_about_too() {
        Stores.run(database, "sa", "", "insert into Named values (5)");
        String said = refusal(start(), new Named());
        assertTrue(said.startsWith("shop.RowsBeforeTest$Named.id: segment:named goes on at 1, and the table Named has keys up to 5, "), said);
    }

    /** Each has a range of its own: an instance that starts finds keys above its own, which others were given. */
    @Test
    void instances_that_run_beside_each_other_are_not_refused() throws InterruptedException {
        Set<Long> ids = new HashSet<>();
        SessionFactory first = start();
        // Reserved before the others begin, and first used after them.
        Source warm = instances.get(first).segment("plain");
        for (warm.tryNext(); warm.stats().left() == 0;) {
            Thread.sleep(1);
        }
        for (int instance = 0; instance < 5; instance++) {
            SessionFactory sessions = start();
            for (int row = 0; row < 300; row++) {
                assertTrue(ids.add(insert(sessions)));
            }
        }
        for (SessionFactory sessions : instances.keySet()) {
            assertTrue(ids.add(insert(sessions)));
        }
        stop();
        assertTrue(ids.add(insert(start())), "nor after a restart of all");
    }
}
