package io.keymill;

import static io.keymill.Checks.refused;
import static io.keymill.TwoShards.FIRST;
import static io.keymill.TwoShards.ask;
import static io.keymill.TwoShards.insert;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import javax.sql.DataSource;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.mariadb.jdbc.MariaDbDataSource;
import org.mariadb.jdbc.MariaDbPoolDataSource;

/** Writes and reads over JDBC, on MariaDB by two drivers and on PostgreSQL. */
class ShardsTest {
    private static final String STAYING = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\n";
    private static final String MOVING = STAYING + "to = \"s2\"\n";

    private static Router router(String table) {
        return Router.fromText(table);
    }

    private static String version(int version, String table) {
        return table.replace("version = 1", "version = " + version);
    }

    @ParameterizedTest
    @ValueSource(strings = {"mariadb", "mysql", "postgresql"})
    void a_write_makes_the_rows_of_its_id_the_same_on_both_shards(String driver) throws Exception {
        try (TwoShards two = new TwoShards(driver)) {
            Shards shards = two.shards(router(MOVING));
            int seven = shards.write(FIRST, connection -> {
                insert(connection, FIRST);
                try (PreparedStatement all = connection.prepareStatement(
                        "UPDATE t_order SET note = ?, amount = 1.25, ratio = 0.1, at = '2026-10-25 02:30:00.123456', bytes = ? WHERE order_id = ?")) {
                    all.setString(1, "café ' \\ {d} ? %");
                    all.setBytes(2, new byte[] {0, (byte) 0xFF, '\'', '\\'});
                    all.setLong(3, FIRST);
                    all.executeUpdate();
                }
                return 7;
            });
            assertEquals(7, seven, "the work's value");
            assertEquals("1 2 1 2", two.counts());
            two.alike();

            // Two rows exchange a value that only one row may have.
            shards.write(FIRST, connection -> {
                String where = " WHERE item_of = " + FIRST + " AND n = ";
                ask(connection, "UPDATE t_item SET seat = NULL" + where + 1);
                ask(connection, "UPDATE t_item SET seat = " + FIRST + where + 2);
                return ask(connection, "UPDATE t_item SET seat = -" + FIRST + where + 1);
            });
            two.alike();
            assertEquals(Collections.singletonList("-" + FIRST), two.ask(1, "SELECT seat FROM t_item WHERE n = 1"));

            // What only one shard has.
            two.ask(1, "DELETE FROM t_item WHERE n = 1");
            two.ask(1, "INSERT INTO t_item (item_of, n, seat) VALUES (" + FIRST + ", 3, 3)");
            assertNull(shards.write(FIRST, connection -> null));
            two.alike();

            shards.write(FIRST, connection -> {
                ask(connection, "DELETE FROM t_item WHERE item_of = " + FIRST);
                return ask(connection, "DELETE FROM t_order WHERE order_id = " + FIRST);
            });
            assertEquals("0 0 0 0", two.counts());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"mariadb", "mysql", "postgresql"})
    void a_work_that_throws_leaves_nothing_and_its_own_exception_comes_back(String driver) throws Exception {
        try (TwoShards two = new TwoShards(driver)) {
            for (String table : new String[] {STAYING, MOVING}) {
                Shards shards = two.shards(router(table));
                List<Throwable> own = Arrays.asList(
                        new IOException("no seat is free"), new IllegalStateException(), new AssertionError("an error"), new SQLException("of the program", "45000"));
                for (Throwable error : own) {
                    Throwable thrown = assertThrows(Throwable.class, () -> shards.write(FIRST, connection -> {
                        insert(connection, FIRST);
                        throw sneaky(error);
                    }));
                    assertSame(error, thrown);
                    assertEquals("0 0 0 0", two.counts());
                }
                // What the work declares is what the caller handles.
                try {
                    shards.write(FIRST, connection -> {
                        if (connection.isClosed()) return 1;
                        throw new IOException("declared");
                    });
                } catch (IOException e) {
                    assertEquals("declared", e.getMessage());
                } catch (Exception e) {
                    throw new AssertionError(e);
                }
            }
        }
    }

    @SuppressWarnings("unchecked")
    private static <X extends Throwable> X sneaky(Throwable error) throws X {
        throw (X) error;
    }

    @Test
    void a_write_inside_another_one_is_refused() throws Exception {
        try (TwoShards two = new TwoShards("mariadb")) {
            Shards shards = two.shards(router(STAYING));
            Shards others = two.shards(router(STAYING));
            KeymillException error = refused(Code.INVALID_ARGUMENT, () -> shards.write(FIRST, one -> others.write(FIRST + 1, connection -> null)));
            assertTrue(error.getMessage().contains("a write inside another one"), error.getMessage());
            shards.write(FIRST, connection -> shards.read(FIRST + 1, other -> null));
            shards.write(FIRST, connection -> null);
            // Of another thread it is none.
            shards.write(FIRST, connection -> CompletableFuture.supplyAsync(() -> shards.write(FIRST + 1, other -> "written")).get());
        }
    }

    @Test
    void what_is_not_there_is_named() throws Exception {
        try (TwoShards two = new TwoShards("mariadb")) {
            Router router = router(MOVING);
            Map<String, DataSource> first = Collections.singletonMap("s1", two.source(0));
            names("no table is named", Code.INVALID_CONFIG, () -> Shards.of(router, first).write(FIRST, connection -> null));
            names("no table is named", Code.INVALID_CONFIG, () -> Shards.of(router, first).read(FIRST, connection -> null));
            names("`t` is named twice", Code.INVALID_CONFIG, () -> Shards.of(router, first).table("t", "id").table("t", "id"));
            names("is empty", Code.INVALID_CONFIG, () -> Shards.of(router, first).table("", "id"));
            names("column is null", Code.INVALID_ARGUMENT, () -> Shards.of(router, first).table("t", null));
            names("is null", Code.INVALID_ARGUMENT, () -> Shards.of(null, first));
            names("is null", Code.INVALID_ARGUMENT, () -> Shards.of(router, Collections.singletonMap("s1", null)));
            names("the deadline is null", Code.INVALID_ARGUMENT, () -> Shards.of(router, first).deadline(null));
            names("the deadline is null or negative", Code.INVALID_ARGUMENT, () -> Shards.of(router, first).deadline(Duration.ofMillis(-1)));
            names("no table `none`", Code.STORE_REFUSED, () -> Shards.of(router, first).table("none", "id").write(FIRST, connection -> null));
            Shards shards = TwoShards.tables(Shards.of(router, first));
            names("names shard `s2`, for which there is no connection", Code.INVALID_CONFIG, () -> shards.write(FIRST, connection -> null));
            names("the work is null", Code.INVALID_ARGUMENT, () -> shards.write(FIRST, null));
            names("the work is null", Code.INVALID_ARGUMENT, () -> shards.read(FIRST, null));
            names("id is null", Code.INVALID_ARGUMENT, () -> shards.write((byte[]) null, connection -> null));
            refused(Code.INVALID_ARGUMENT, () -> shards.write(-1, connection -> null));
            refused(Code.INVALID_ARGUMENT, () -> shards.write(new byte[9], connection -> null));
            refused(Code.INVALID_ARGUMENT, () -> shards.writeWide(BigInteger.ONE.negate(), connection -> null));
            // Nothing of a refused write stays with the thread.
            shards.read(FIRST, connection -> null);
        }
    }

    private static void names(String says, Code code, org.junit.jupiter.api.function.Executable verb) {
        KeymillException error = refused(code, verb);
        assertTrue(error.getMessage().contains(says), error.getMessage());
    }

    @Test
    void ids_are_numbers_or_bytes() throws Exception {
        try (TwoShards two = new TwoShards("mariadb")) {
            Shards shards = two.shards(router(MOVING));
            byte[] bytes = ByteBuffer.allocate(8).putLong(FIRST).array();
            shards.write(bytes, connection -> ask(connection, "INSERT INTO t_order (order_id) VALUES (" + FIRST + ")"));
            assertEquals("1 0 1 0", two.counts());
            String count = "SELECT COUNT(*) FROM t_order";
            assertEquals("[1]", shards.read(bytes, connection -> ask(connection, count)).toString());
            BigInteger wide = BigInteger.valueOf(32768).shiftLeft(111).or(BigInteger.TEN);
            assertEquals("[1]", shards.readWide(wide, connection -> ask(connection, count)).toString());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"mariadb", "mysql", "postgresql"})
    void without_a_move_one_connection_is_opened_and_goes_back_as_it_came(String driver) throws Exception {
        try (TwoShards two = new TwoShards(driver)) {
            TwoShards.Counted one = new TwoShards.Counted(two.source(0));
            TwoShards.Counted other = new TwoShards.Counted(two.source(1));
            Map<String, DataSource> sources = new TreeMap<>();
            sources.put("s1", one);
            sources.put("s2", other);
            Shards staying = TwoShards.tables(Shards.of(router(STAYING), sources));
            staying.write(FIRST, connection -> {
                assertFalse(connection.getAutoCommit());
                insert(connection, FIRST);
                return null;
            });
            assertEquals("[1]", staying.read(FIRST, connection -> ask(connection, "SELECT COUNT(*) FROM t_order")).toString());
            assertThrows(IOException.class, () -> staying.write(FIRST, connection -> {
                throw new IOException();
            }));
            assertEquals("1 2 0 0", two.counts());
            assertEquals(3, one.given.get());
            assertEquals(3, one.back.get());
            assertEquals(0, other.given.get());

            Shards moving = TwoShards.tables(Shards.of(router(MOVING), sources));
            moving.write(FIRST, connection -> null);
            assertEquals("1 2 1 2", two.counts());
            assertEquals(1, other.given.get());
            assertEquals(1, other.back.get());
            // The work that threw told the machine nothing of the database; what is in doubt is ended, and all others go back in autocommit mode.
            assertEquals(0, one.notAutoCommit.get() + other.notAutoCommit.get());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"mariadb", "mysql", "postgresql"})
    void connections_of_a_pool_go_back_as_they_came_in_either_mode(String driver) throws Exception {
        try (TwoShards two = new TwoShards(driver)) {
            for (boolean autoCommit : new boolean[] {true, false}) {
                try (HikariDataSource one = pool(two.source(0), autoCommit); HikariDataSource other = pool(two.source(1), autoCommit)) {
                    Map<String, DataSource> sources = new TreeMap<>();
                    sources.put("s1", one);
                    sources.put("s2", other);
                    Shards shards = TwoShards.tables(Shards.of(router(MOVING), sources));
                    String[] sessions = {session(two, one), session(two, other)};
                    String settings = two.isPostgres() ? "SELECT current_setting('TimeZone'), current_setting('lock_timeout')"
                            : "SELECT @@time_zone, @@sql_mode, @@innodb_lock_wait_timeout";
                    String before = settings(other, settings);
                    long id = FIRST + (autoCommit ? 1 : 2);
                    shards.write(id, connection -> {
                        insert(connection, id);
                        return null;
                    });
                    assertThrows(IOException.class, () -> shards.write(id, connection -> {
                        ask(connection, "DELETE FROM t_item WHERE item_of = " + id);
                        throw new IOException();
                    }));
                    two.alike();
                    assertEquals(before, settings(other, settings));
                    for (HikariDataSource pool : Arrays.asList(one, other)) {
                        try (Connection connection = pool.getConnection()) {
                            assertEquals(autoCommit, connection.getAutoCommit());
                        }
                    }
                    assertEquals(sessions[0] + sessions[1], session(two, one) + session(two, other), "no connection was ended");
                }
            }
            assertEquals("2 4 2 4", two.counts());
        }
    }

    private static HikariDataSource pool(DataSource source, boolean autoCommit) {
        HikariConfig config = new HikariConfig();
        config.setDataSource(source);
        config.setMaximumPoolSize(1);
        config.setAutoCommit(autoCommit);
        config.setConnectionTimeout(20_000);
        return new HikariDataSource(config);
    }

    private static String session(TwoShards two, DataSource source) throws SQLException {
        try (Connection connection = source.getConnection()) {
            return two.session(connection);
        }
    }

    private static String settings(DataSource source, String sql) throws SQLException {
        try (Connection connection = source.getConnection()) {
            return ask(connection, sql).get(0);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"mariadb", "mysql", "postgresql"})
    void a_connection_that_breaks_is_not_used_again(String driver) throws Exception {
        try (TwoShards two = new TwoShards(driver);
                HikariDataSource one = pool(two.source(0), true);
                HikariDataSource other = pool(two.source(1), true)) {
            Map<String, DataSource> sources = new TreeMap<>();
            sources.put("s1", one);
            sources.put("s2", other);
            Shards shards = TwoShards.tables(Shards.of(router(MOVING), sources)).deadline(Duration.ofSeconds(30));
            shards.write(FIRST, connection -> {
                insert(connection, FIRST);
                return null;
            });
            // Of the shard that decides, after the work: nothing is known of the work's exceptions, and the next attempt does it.
            AtomicInteger runs = new AtomicInteger();
            shards.write(FIRST, connection -> {
                ask(connection, "UPDATE t_order SET note = 'b'");
                if (runs.getAndIncrement() == 0) {
                    two.kill(two.session(connection));
                }
                return null;
            });
            assertEquals(2, runs.get());
            // Of the other one, before it is asked.
            two.kill(session(two, other));
            shards.write(FIRST, connection -> ask(connection, "UPDATE t_order SET note = 'c'"));
            two.alike();
            assertEquals(Collections.singletonList("c"), two.ask(1, "SELECT note FROM t_order"));
            // In the work: the program gets what it threw.
            SQLException broken = assertThrows(SQLException.class, () -> shards.write(FIRST, connection -> {
                two.kill(two.session(connection));
                return ask(connection, "UPDATE t_order SET note = 'd'");
            }));
            assertFalse(broken.getSQLState().isEmpty());
            shards.write(FIRST, connection -> ask(connection, "UPDATE t_order SET note = 'e'"));
            two.alike();
        }
    }

    @Test
    void a_connection_that_is_in_doubt_and_alive_does_not_go_back_into_its_pool() throws Exception {
        try (TwoShards maria = new TwoShards("mariadb"); TwoShards mysql = new TwoShards("mysql"); TwoShards postgres = new TwoShards("postgresql")) {
            for (TwoShards two : Arrays.asList(maria, mysql, postgres)) {
                try (HikariDataSource pool = pool(two.source(0), true)) {
                    endsIn(two, pool);
                }
            }
            // Its `abort` gives a connection back.
            try (MariaDbPoolDataSource pool = new MariaDbPoolDataSource(((MariaDbDataSource) maria.source(0)).getUrl() + "?user=shop&password=secret&maxPoolSize=1")) {
                endsIn(maria, pool);
            }
        }
    }

    private static void endsIn(TwoShards two, DataSource pool) throws SQLException {
        Connection connection = pool.getConnection();
        connection.setAutoCommit(false);
        String session = two.session(connection);
        insert(connection, FIRST);
        ShardRun.end(connection, !two.isPostgres());
        try (Connection next = pool.getConnection()) {
            assertNotEquals(session, two.session(next));
            assertTrue(next.getAutoCommit());
        }
        assertEquals("0 0 0 0", two.counts());
    }

    @ParameterizedTest
    @ValueSource(strings = {"mariadb", "postgresql"})
    void a_work_that_ends_its_transaction_is_refused_also_where_the_exception_is_swallowed(String driver) throws Exception {
        try (TwoShards two = new TwoShards(driver)) {
            Shards shards = two.shards(router(MOVING));
            List<ShardWork<Object, SQLException>> works = Arrays.asList(
                    connection -> {
                        connection.commit();
                        return null;
                    },
                    connection -> {
                        connection.rollback();
                        return null;
                    },
                    connection -> {
                        connection.setAutoCommit(true);
                        return null;
                    });
            for (ShardWork<Object, SQLException> work : works) {
                KeymillException error = refused(Code.INVALID_ARGUMENT, () -> shards.write(FIRST, connection -> {
                    insert(connection, FIRST);
                    assertTrue(assertThrows(SQLException.class, () -> work.run(connection)).getMessage().contains("`write` commits after the work"));
                    return null;
                }));
                assertTrue(error.getMessage().contains("on the connection of a shard"), error.getMessage());
                assertEquals("0 0 0 0", two.counts());
            }
            Connection[] kept = new Connection[1];
            shards.write(FIRST, connection -> {
                kept[0] = connection;
                insert(connection, FIRST);
                connection.setAutoCommit(false);
                Savepoint here = connection.setSavepoint();
                ask(connection, "DELETE FROM t_item");
                connection.rollback(here);
                connection.close();
                assertFalse(connection.isClosed());
                assertEquals(connection, connection);
                assertNotEquals(connection, two.source(0));
                assertTrue(connection.toString().startsWith("shard connection of ") && connection.hashCode() == kept[0].hashCode());
                return null;
            });
            assertEquals("1 2 1 2", two.counts());
            assertTrue(kept[0].isClosed());
            assertTrue(assertThrows(SQLException.class, () -> ask(kept[0], "SELECT 1")).getMessage().contains("is over"));
        }
    }

    @Test
    void one_connection_for_both_shards_is_refused_and_so_is_a_server_of_another_kind() throws Exception {
        try (TwoShards two = new TwoShards("mariadb"); Connection only = two.source(0).getConnection()) {
            Map<String, DataSource> sources = new TreeMap<>();
            for (String name : new String[] {"s1", "s2"}) {
                sources.put(name, giving(() -> unclosed(only)));
            }
            names("is given the connection of shard `s1`", Code.INVALID_CONFIG,
                    () -> TwoShards.tables(Shards.of(router(MOVING), sources)).write(FIRST, connection -> null));
            sources.put("s1", giving(() -> null));
            names("gives null", Code.INVALID_CONFIG, () -> TwoShards.tables(Shards.of(router(MOVING), sources)).write(FIRST, connection -> null));

            org.sqlite.SQLiteDataSource sqlite = new org.sqlite.SQLiteDataSource();
            sqlite.setUrl("jdbc:sqlite::memory:");
            sources.put("s1", sqlite);
            names("shard `s1` is SQLite", Code.INVALID_CONFIG, () -> TwoShards.tables(Shards.of(router(MOVING), sources)).write(FIRST, connection -> null));
            // Without a move no statement is keymill's.
            assertEquals("[1]", TwoShards.tables(Shards.of(router(STAYING), sources)).write(FIRST, connection -> ask(connection, "SELECT 1")).toString());
        }
    }

    private interface Gives {
        Connection connection() throws SQLException;
    }

    private static DataSource giving(Gives gives) {
        return (DataSource) java.lang.reflect.Proxy.newProxyInstance(ShardsTest.class.getClassLoader(), new Class<?>[] {DataSource.class},
                (proxy, method, arguments) -> gives.connection());
    }

    /** As a pool wraps it. */
    private static Connection unclosed(Connection connection) {
        return (Connection) java.lang.reflect.Proxy.newProxyInstance(ShardsTest.class.getClassLoader(), new Class<?>[] {Connection.class},
                (proxy, method, arguments) -> method.getName().equals("close") || method.getName().equals("abort") ? null
                        : method.getName().equals("unwrap") ? connection : method.invoke(connection, arguments));
    }

    @ParameterizedTest
    @ValueSource(strings = {"mariadb", "mysql", "postgresql"})
    void writes_of_one_id_come_one_after_the_other(String driver) throws Exception {
        try (TwoShards two = new TwoShards(driver)) {
            Shards shards = two.shards(router(MOVING)).deadline(Duration.ofMinutes(2));
            shards.write(FIRST, connection -> {
                insert(connection, FIRST);
                return null;
            });
            AtomicInteger inside = new AtomicInteger();
            AtomicInteger most = new AtomicInteger();
            int threads = 4;
            int writes = 10;
            Checks.together(threads, () -> {
                for (int i = 0; i < writes; i++) {
                    shards.write(FIRST, connection -> {
                        most.accumulateAndGet(inside.incrementAndGet(), Math::max);
                        String version = ask(connection, "SELECT version FROM t_order WHERE order_id = " + FIRST).get(0);
                        // No lock of the work's own, and no sum in the database: only the writes' order keeps the count.
                        ask(connection, "UPDATE t_order SET version = " + (Long.parseLong(version) + 1) + " WHERE order_id = " + FIRST);
                        inside.decrementAndGet();
                        return null;
                    });
                }
                return null;
            });
            assertEquals(1, most.get());
            assertEquals(Collections.singletonList("" + threads * writes), two.ask(0, "SELECT version FROM t_order"));
            two.alike();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"mariadb", "postgresql"})
    void a_write_in_which_a_step_comes_is_done_again_where_the_id_is_written_now(String driver) throws Exception {
        try (TwoShards two = new TwoShards(driver)) {
            String[][] steps = {
                {MOVING, version(2, STAYING).replace("s1", "s2"), "0 0 1 2"},
                {STAYING, version(2, MOVING), "1 2 2 4"},
                {MOVING, version(2, STAYING), "2 4 2 4"},
                {MOVING, version(2, MOVING) + "percent = 50\n", "3 6 3 6"},
            };
            for (int step = 0; step < steps.length; step++) {
                long id = FIRST + step;
                Router router = router(steps[step][0]);
                String next = steps[step][1];
                AtomicInteger runs = new AtomicInteger();
                two.shards(router).write(id, connection -> {
                    insert(connection, id);
                    runs.incrementAndGet();
                    router.load(next);
                    return null;
                });
                assertEquals(next.contains("percent") ? 1 : 2, runs.get(), next);
                assertEquals(steps[step][2], two.counts(), next);
            }
        }
    }

    @Test
    void a_write_waits_while_its_range_pauses_and_no_longer_than_its_deadline() throws Exception {
        try (TwoShards two = new TwoShards("mariadb")) {
            String pausing = MOVING + "percent = 100\npaused = true\n";
            Router router = router(pausing);
            Shards shards = two.shards(router);
            KeymillException late = refused(Code.NOT_READY, () -> shards.deadline(Duration.ofMillis(100)).write(FIRST, connection -> null));
            assertTrue(late.retryAfter().isPresent());
            // Reads go on.
            shards.read(FIRST, connection -> null);
            CountDownLatch begins = new CountDownLatch(1);
            CompletableFuture<Boolean> written = CompletableFuture.supplyAsync(() -> {
                begins.countDown();
                return shards.deadline(Duration.ofMinutes(2)).write(FIRST, connection -> true);
            });
            begins.await();
            assertThrows(java.util.concurrent.TimeoutException.class, () -> written.get(200, TimeUnit.MILLISECONDS));
            router.load(version(2, STAYING).replace("s1", "s2"));
            assertTrue(written.get(60, TimeUnit.SECONDS));
        }
    }

    @Test
    void an_interrupt_ends_the_wait_and_nothing_is_held() throws Exception {
        try (TwoShards two = new TwoShards("mariadb")) {
            TwoShards.Counted counted = new TwoShards.Counted(two.source(0));
            Shards shards = TwoShards.tables(Shards.of(router(MOVING + "percent = 100\npaused = true\n"), Collections.singletonMap("s1", counted)));
            List<Throwable> thrown = new ArrayList<>();
            Thread waits = new Thread(() -> {
                thrown.add(assertThrows(KeymillException.class, () -> shards.deadline(Duration.ofHours(1)).write(FIRST, connection -> null)));
                thrown.add(Thread.currentThread().isInterrupted() ? null : new AssertionError("the flag is gone"));
            });
            waits.start();
            waits.interrupt();
            waits.join(TimeUnit.MINUTES.toMillis(2));
            assertEquals(Code.DEADLINE, ((KeymillException) thrown.get(0)).code());
            assertNull(thrown.get(1));
            assertEquals(counted.given.get(), counted.back.get());
        }
    }

    @Test
    void a_work_that_swallows_a_failed_statement_is_not_acknowledged_on_postgresql() throws Exception {
        try (TwoShards two = new TwoShards("postgresql")) {
            for (String table : new String[] {STAYING, MOVING}) {
                Throwable error = assertThrows(KeymillException.class, () -> two.shards(router(table)).deadline(Duration.ofMillis(200)).write(FIRST, connection -> {
                    insert(connection, FIRST);
                    assertThrows(SQLException.class, () -> insert(connection, FIRST));
                    return null;
                }));
                assertTrue(error.getMessage().contains("nothing was written"), error.getMessage());
                assertTrue(error.getSuppressed().length > 0 && error.getSuppressed()[0] instanceof SQLException, "the driver's exception");
                assertEquals("0 0 0 0", two.counts());
            }
        }
    }

    @Test
    void a_deadlock_in_the_work_is_tried_again() throws Exception {
        for (String driver : new String[] {"mariadb", "mysql", "postgresql"}) {
            try (TwoShards two = new TwoShards(driver)) {
                Shards shards = two.shards(router(STAYING)).deadline(Duration.ofMinutes(2));
                for (long id = FIRST; id < FIRST + 2; id++) {
                    long order = id;
                    shards.write(id, connection -> {
                        insert(connection, order);
                        return null;
                    });
                }
                AtomicInteger runs = new AtomicInteger();
                java.util.concurrent.CyclicBarrier both = new java.util.concurrent.CyclicBarrier(2);
                AtomicInteger turn = new AtomicInteger();
                Checks.together(2, () -> {
                    long mine = FIRST + turn.getAndIncrement();
                    boolean[] first = {true};
                    return shards.write(mine, connection -> {
                        runs.incrementAndGet();
                        ask(connection, "UPDATE t_order SET version = version + 1 WHERE order_id = " + mine);
                        if (first[0]) {
                            first[0] = false;
                            both.await();
                        }
                        return ask(connection, "UPDATE t_order SET version = version + 1 WHERE order_id = " + (2 * FIRST + 1 - mine));
                    });
                });
                assertEquals(3, runs.get(), driver);
                assertEquals(Arrays.asList("2", "2"), two.ask(0, "SELECT version FROM t_order"));
            }
        }
    }
}
