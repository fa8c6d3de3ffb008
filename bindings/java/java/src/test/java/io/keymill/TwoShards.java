package io.keymill;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.mysql.cj.jdbc.MysqlDataSource;
import java.io.PrintWriter;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.URI;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLFeatureNotSupportedException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.logging.Logger;
import javax.sql.DataSource;
import org.mariadb.jdbc.MariaDbDataSource;
import org.postgresql.ds.PGSimpleDataSource;

/** Two databases of one server, as the shards `s1` and `s2`, with an order and its items in each. */
final class TwoShards implements AutoCloseable {
    /** The first id of the range that moves where there are two shards: genes 32768 to 65535. */
    static final long FIRST = 32768L << 47;

    private static final String[] MYSQL = {
        "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, note VARCHAR(40) CHARACTER SET latin1, amount DECIMAL(20,6), ratio FLOAT, at TIMESTAMP(6) NULL,"
                + " bytes VARBINARY(20), kind ENUM('a', 'é') CHARACTER SET utf8mb4, version BIGINT NOT NULL DEFAULT 0)",
        "CREATE TABLE t_item (item_of BIGINT, n BIGINT, seat BIGINT UNIQUE, name VARCHAR(40) CHARACTER SET utf8mb4, version BIGINT NOT NULL DEFAULT 0,"
                + " PRIMARY KEY (item_of, n), FOREIGN KEY (item_of) REFERENCES t_order (order_id))",
    };
    private static final String[] POSTGRES = {
        "CREATE TABLE t_order (order_id bigint PRIMARY KEY, note varchar(40), amount numeric(20,6), ratio real, at timestamptz, bytes bytea, kind text[],"
                + " version bigint NOT NULL DEFAULT 0)",
        "CREATE TABLE t_item (item_of bigint REFERENCES t_order, n bigint, seat bigint UNIQUE, name varchar(40), version bigint NOT NULL DEFAULT 0,"
                + " PRIMARY KEY (item_of, n))",
    };

    final String driver;
    private final String[] names;

    /** Of a driver: mariadb, mysql (to the same server) or postgresql. */
    TwoShards(String driver) throws Exception {
        this.driver = driver;
        String unique = ProcessHandle.current().pid() + "_" + System.nanoTime() % 1_000_000_000;
        names = new String[] {"shards_a_" + unique, "shards_b_" + unique};
        assumeTrue(server() != null && !server().isEmpty(), "not run: no server of " + driver + " is named");
        for (String name : names) {
            if (isPostgres()) {
                try (Connection connection = connect(null); Statement statement = connection.createStatement()) {
                    statement.execute("CREATE SCHEMA " + name);
                }
            } else {
                root("CREATE USER IF NOT EXISTS shop@'%' IDENTIFIED BY 'secret'; CREATE DATABASE " + name + "; GRANT ALL ON " + name + ".* TO keymill@'%', shop@'%'");
            }
        }
        for (int shard = 0; shard < 2; shard++) {
            for (String table : isPostgres() ? POSTGRES : MYSQL) {
                ask(shard, table);
            }
        }
    }

    /** Those that another process has made. */
    private TwoShards(String driver, String[] names) {
        this.driver = driver;
        this.names = names;
    }

    static TwoShards named(String words) {
        String[] parts = words.split(",");
        return new TwoShards(parts[0], new String[] {parts[1], parts[2]});
    }

    String words() {
        return driver + "," + names[0] + "," + names[1];
    }

    @Override
    public void close() throws Exception {
        for (String name : names) {
            if (isPostgres()) {
                try (Connection connection = connect(null); Statement statement = connection.createStatement()) {
                    statement.execute("DROP SCHEMA " + name + " CASCADE");
                }
            } else {
                root("DROP DATABASE " + name);
            }
        }
    }

    boolean isPostgres() {
        return driver.equals("postgresql");
    }

    private String server() {
        return System.getenv(isPostgres() ? "KEYMILL_TEST_POSTGRES" : "KEYMILL_TEST_MYSQL");
    }

    private static void root(String sql) throws Exception {
        String[] words = {System.getenv("KEYMILL_TEST_MARIADB"), "root", "-e", sql};
        assertEquals(0, new ProcessBuilder(words).inheritIO().start().waitFor());
    }

    /** For the operator's command. */
    String url(int shard) {
        String server = server();
        return isPostgres() ? server + "?schema=" + names[shard] : server.substring(0, server.lastIndexOf('/') + 1) + names[shard];
    }

    /** The connections of a shard. A program is another user than the operator. */
    DataSource source(int shard) throws SQLException {
        return source(names[shard]);
    }

    private Connection connect(String name) throws SQLException {
        return source(name).getConnection();
    }

    private DataSource source(String name) throws SQLException {
        URI uri = URI.create(server());
        String[] user = uri.getUserInfo().split(":");
        String password = isPostgres() && user.length < 2 ? "" : isPostgres() ? user[1] : "secret";
        switch (driver) {
            case "mariadb":
                MariaDbDataSource mariadb = new MariaDbDataSource("jdbc:mariadb://" + uri.getHost() + ":" + uri.getPort() + "/" + name);
                mariadb.setUser("shop");
                mariadb.setPassword(password);
                return mariadb;
            case "mysql":
                MysqlDataSource mysql = new MysqlDataSource();
                mysql.setUrl("jdbc:mysql://" + uri.getHost() + ":" + uri.getPort() + "/" + name + "?sslMode=DISABLED&allowPublicKeyRetrieval=true");
                mysql.setUser("shop");
                mysql.setPassword(password);
                return mysql;
            default:
                PGSimpleDataSource postgres = new PGSimpleDataSource();
                postgres.setUrl("jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath());
                postgres.setUser(user[0]);
                postgres.setPassword(password);
                if (name != null) {
                    postgres.setCurrentSchema(name);
                    postgres.setApplicationName(name);
                }
                return postgres;
        }
    }

    Map<String, DataSource> sources() throws SQLException {
        Map<String, DataSource> sources = new LinkedHashMap<>();
        sources.put("s1", source(0));
        sources.put("s2", source(1));
        return sources;
    }

    Shards shards(Router router) throws SQLException {
        return tables(Shards.of(router, sources()));
    }

    static Shards tables(Shards shards) {
        return shards.table("t_order", "order_id").table("t_item", "item_of");
    }

    /** What a statement says in a shard. */
    List<String> ask(int shard, String sql) throws SQLException {
        try (Connection connection = connect(names[shard])) {
            return ask(connection, sql);
        }
    }

    /** The rows of a statement, each as one text. */
    static List<String> ask(Connection connection, String sql) throws SQLException {
        List<String> rows = new ArrayList<>();
        try (Statement statement = connection.createStatement()) {
            if (statement.execute(sql)) {
                try (ResultSet found = statement.getResultSet()) {
                    while (found.next()) {
                        String[] row = new String[found.getMetaData().getColumnCount()];
                        for (int i = 0; i < row.length; i++) {
                            row[i] = String.valueOf(found.getObject(i + 1) instanceof byte[] ? Arrays.toString(found.getBytes(i + 1)) : found.getString(i + 1));
                        }
                        rows.add(String.join(" ", row));
                    }
                }
            }
        }
        return rows;
    }

    static void insert(Connection connection, long id) throws SQLException {
        ask(connection, "INSERT INTO t_order (order_id, note) VALUES (" + id + ", 'a')");
        ask(connection, "INSERT INTO t_item (item_of, n, seat) VALUES (" + id + ", 1, " + id + "), (" + id + ", 2, -" + id + ")");
    }

    /** Orders and items of the first shard, and of the second. */
    String counts() throws SQLException {
        List<String> counts = new ArrayList<>();
        for (int shard = 0; shard < 2; shard++) {
            counts.add(ask(shard, "SELECT COUNT(*) FROM t_order").get(0));
            counts.add(ask(shard, "SELECT COUNT(*) FROM t_item").get(0));
        }
        return String.join(" ", counts);
    }

    /** All rows of both shards are the same. */
    void alike() throws SQLException {
        for (String table : new String[] {"t_order ORDER BY order_id", "t_item ORDER BY item_of, n"}) {
            assertEquals(String.join("\n", ask(0, "SELECT * FROM " + table)), String.join("\n", ask(1, "SELECT * FROM " + table)));
        }
    }

    /** The number of a session at its server. */
    String session(Connection connection) throws SQLException {
        return ask(connection, isPostgres() ? "SELECT pg_backend_pid()" : "SELECT CONNECTION_ID()").get(0);
    }

    /** Ends a session at its server. */
    void kill(String session) throws SQLException {
        ask(0, isPostgres() ? "SELECT pg_terminate_backend(" + session + ")" : "KILL " + session);
    }

    /** Ends one of the programs' sessions, whatever it does. */
    void breakOne() throws SQLException {
        if (isPostgres()) {
            ask(0, "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE application_name IN ('" + names[0] + "', '" + names[1]
                    + "') AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1) one");
            return;
        }
        URI uri = URI.create(server());
        try (Connection root = DriverManager.getConnection("jdbc:mariadb://" + uri.getHost() + ":" + uri.getPort() + "/?user=root")) {
            for (String id : ask(root, "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'shop' ORDER BY RAND() LIMIT 1")) {
                try {
                    ask(root, "KILL " + id);
                } catch (SQLException e) {
                    // It has ended meanwhile.
                }
            }
        }
    }

    /** Counts the connections that it gives, and those that came back. */
    static final class Counted implements DataSource {
        private final DataSource source;
        final AtomicInteger given = new AtomicInteger();
        final AtomicInteger back = new AtomicInteger();
        final AtomicInteger notAutoCommit = new AtomicInteger();

        Counted(DataSource source) {
            this.source = source;
        }

        @Override
        public Connection getConnection() throws SQLException {
            given.incrementAndGet();
            Connection connection = source.getConnection();
            InvocationHandler handler = (proxy, method, arguments) -> {
                if (method.getName().equals("close")) {
                    back.incrementAndGet();
                    if (!connection.isClosed() && !connection.getAutoCommit()) {
                        notAutoCommit.incrementAndGet();
                    }
                }
                try {
                    return method.invoke(connection, arguments);
                } catch (InvocationTargetException e) {
                    throw e.getCause();
                }
            };
            return (Connection) Proxy.newProxyInstance(Counted.class.getClassLoader(), new Class<?>[] {Connection.class}, handler);
        }

        @Override
        public Connection getConnection(String user, String password) throws SQLException {
            throw new SQLFeatureNotSupportedException();
        }

        @Override
        public PrintWriter getLogWriter() {
            return null;
        }

        @Override
        public void setLogWriter(PrintWriter out) {}

        @Override
        public void setLoginTimeout(int seconds) {}

        @Override
        public int getLoginTimeout() {
            return 0;
        }

        @Override
        public Logger getParentLogger() throws SQLFeatureNotSupportedException {
            throw new SQLFeatureNotSupportedException();
        }

        @Override
        public <T> T unwrap(Class<T> type) throws SQLException {
            throw new SQLException();
        }

        @Override
        public boolean isWrapperFor(Class<?> type) {
            return false;
        }
    }
}
