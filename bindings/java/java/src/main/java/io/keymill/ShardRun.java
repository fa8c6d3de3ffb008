package io.keymill;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLNonTransientConnectionException;
import java.sql.SQLRecoverableException;
import java.sql.Statement;
import java.sql.Types;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import javax.sql.DataSource;

/** One write or read: executes what the native library says, over two connections at most. {@code shards.rs} has the numbers of the actions. */
final class ShardRun {
    private static final int OPEN = 1;
    private static final int BEGIN = 2;
    private static final int ASK = 3;
    private static final int WORK = 4;
    private static final int COMMIT = 5;
    private static final int ROLLBACK = 6;
    private static final int CLOSE = 7;
    private static final int WAIT = 8;
    private static final int THROW = 9;
    private static final int DONE = 10;
    private static final int NEW = 1 << 8;
    private static final int MARK = 1 << 9;
    private static final int SHIFT = 16;

    private static final int READY = 0;
    private static final int ROWS = 3;
    private static final int FAILED = 4;
    private static final int BAD_CONFIG = 5;
    private static final int BAD_ARGUMENT = 6;
    private static final int UNNAMED = 7;
    private static final int SHARED = 8;

    /** How long a server that does not answer is asked to end a session. */
    private static final int END_MS = 1_000;

    private final Shards shards;
    private final long write;
    private final Held old = new Held();
    private Held other;
    /** What the last answer carries. */
    private byte[] bytes;
    /** What failed last. */
    private Throwable cause;

    /** A connection from its pool until it goes back there. */
    private static final class Held {
        Connection connection;
        boolean wasAutoCommit;
        boolean hasBegun;
        boolean isPostgres;
        boolean isMySql;
    }

    ShardRun(Shards shards, long write) {
        this.shards = shards;
        this.write = write;
    }

    /** Runs it to its end, and frees it. */
    <T, X extends Exception> T run(ShardWork<T, X> work) throws X {
        T value = null;
        Throwable thrown = null;
        int answer = READY;
        try {
            while (true) {
                long action = next(answer);
                Held held = (action & NEW) == 0 ? old : other();
                bytes = null;
                switch ((int) action & 0xFF) {
                    case OPEN:
                        answer = open(held, (int) (action >>> SHIFT), (action & MARK) != 0);
                        break;
                    case WORK:
                        try (ShardConnection connection = new ShardConnection(held.connection)) {
                            value = work.run(connection.seen());
                            answer = connection.refusal() == null ? READY : refused(BAD_ARGUMENT, connection.refusal());
                        } catch (Throwable e) {
                            thrown = e;
                            answer = failed(e, "");
                        }
                        break;
                    case CLOSE:
                        close(held, (action & MARK) != 0);
                        answer = READY;
                        break;
                    case WAIT:
                        park(TimeUnit.MICROSECONDS.toNanos(action >>> SHIFT));
                        answer = READY;
                        break;
                    case THROW:
                        throw ShardRun.<X>unchecked(thrown);
                    case DONE:
                        return value;
                    default:
                        answer = execute(held, (int) action & 0xFF);
                        break;
                }
            }
        } finally {
            // Only where an `Error` of the JVM came from a driver is anything held here.
            close(old, true);
            if (other != null) {
                close(other, true);
            }
            ShardsBox.end(write);
        }
    }

    private Held other() {
        if (other == null) {
            other = new Held();
        }
        return other;
    }

    private long next(int answer) {
        try {
            return ShardsBox.next(write, answer, bytes);
        } catch (KeymillException e) {
            if (cause != null && cause != e) {
                e.addSuppressed(cause);
            }
            throw e;
        }
    }

    private String text() {
        return new String(ShardsBox.text(write), StandardCharsets.UTF_8);
    }

    private int refused(int code, String message) {
        bytes = new Packed().text(message).toBytes();
        return code;
    }

    private int open(Held held, int number, boolean isMirrored) {
        if (number == 0) {
            return refused(UNNAMED, "name its `DataSource` in the map of `Shards.of`");
        }
        DataSource source = shards.source(number);
        try {
            Connection connection = source.getConnection();
            if (connection == null) {
                return refused(BAD_CONFIG, "the `DataSource` of shard `" + text() + "` gives null; it gives a connection for each call");
            }
            held.connection = connection;
            held.isMySql = false;
            held.hasBegun = false;
            if (held != old && isSame(old.connection, connection)) {
                held.connection = null;
                return refused(SHARED, "each shard needs its own `DataSource`");
            }
            held.wasAutoCommit = connection.getAutoCommit();
            if (!held.wasAutoCommit && isSpringsOwn(connection)) {
                give(held);
                return refused(BAD_CONFIG, "shard `" + text()
                        + "` got the connection of a transaction that Spring has begun, and would end it: the map of `Shards.of` needs the pool's own `DataSource`, not a proxy of it");
            }
            ShardKind kind = shards.kind(number, connection);
            held.isMySql = kind == ShardKind.MYSQL;
            if (kind == ShardKind.OTHER) {
                if (isMirrored) {
                    String name = connection.getMetaData().getDatabaseProductName();
                    give(held);
                    return refused(BAD_CONFIG, "shard `" + text() + "` is " + name
                            + ": rows are carried over between servers of MySQL, MariaDB or PostgreSQL");
                }
                // Without a second shard no statement is keymill's own.
                kind = ShardKind.MYSQL;
            }
            held.isPostgres = kind == ShardKind.POSTGRES;
            return kind.answer;
        } catch (SQLException | RuntimeException e) {
            close(held, true);
            return failed(e, e.getMessage());
        }
    }

    /** Whether a {@code TransactionAwareDataSourceProxy} gave it: in the midst of a transaction its work would be rolled back or committed here. */
    private static boolean isSpringsOwn(Connection connection) {
        for (Class<?> type : connection.getClass().getInterfaces()) {
            if (type.getName().equals("org.springframework.jdbc.datasource.ConnectionProxy")) {
                return true;
            }
        }
        return false;
    }

    /** Whether a pool has given one connection twice, in whatever it wraps it. */
    private static boolean isSame(Connection one, Connection two) throws SQLException {
        return one == two || physical(one) == physical(two);
    }

    private static Connection physical(Connection connection) {
        Connection at = connection;
        try {
            // A pool's own class may be what it is asked for, once or several times.
            for (int depth = 0; depth < 8; depth++) {
                Connection inner = at.unwrap(Connection.class);
                if (inner == null || inner == at) {
                    return at;
                }
                at = inner;
            }
        } catch (SQLException | RuntimeException e) {
            // It wraps nothing that can be had.
        }
        return at;
    }

    private int execute(Held held, int action) {
        try {
            switch (action) {
                case BEGIN:
                    begin(held);
                    return READY;
                case ASK:
                    return ask(held.connection, text());
                case COMMIT:
                    commit(held);
                    return READY;
                case ROLLBACK:
                    held.connection.rollback();
                    return READY;
                default:
                    throw new IllegalStateException("an unknown action: " + action);
            }
        } catch (SQLException | RuntimeException e) {
            return failed(e, e.getMessage());
        }
    }

    /** A transaction begins with its first statement. */
    private static void begin(Held held) throws SQLException {
        if (held.hasBegun) {
            return;
        }
        if (held.wasAutoCommit) {
            held.connection.setAutoCommit(false);
        } else {
            // What another user of the pool has read would be what this transaction sees.
            held.connection.rollback();
        }
        held.hasBegun = true;
    }

    /**
     * PostgreSQL rolls back where a statement has failed whose exception the work has swallowed, and neither it nor its driver calls that an error.
     * The first of two statements in one message is one.
     */
    private static void commit(Held held) throws SQLException {
        if (held.isPostgres) {
            try (Statement statement = held.connection.createStatement()) {
                statement.execute("SELECT 1; COMMIT");
            }
        }
        // After that one the driver knows that there is nothing left, and a pool sees a commit.
        held.connection.commit();
    }

    private int ask(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.setEscapeProcessing(false);
            if (!statement.execute(sql)) {
                return READY;
            }
            try (ResultSet rows = statement.getResultSet()) {
                int columns = rows.getMetaData().getColumnCount();
                boolean[] areBytes = new boolean[columns];
                for (int i = 0; i < columns; i++) {
                    areBytes[i] = isBinary(rows.getMetaData().getColumnType(i + 1));
                }
                Packed all = new Packed();
                while (rows.next()) {
                    all.number(columns);
                    for (int i = 0; i < columns; i++) {
                        if (areBytes[i]) {
                            all.bytes(rows.getBytes(i + 1));
                        } else {
                            all.text(rows.getString(i + 1));
                        }
                    }
                }
                bytes = all.toBytes();
                return ROWS;
            }
        }
    }

    private static boolean isBinary(int type) {
        return type == Types.BINARY || type == Types.VARBINARY || type == Types.LONGVARBINARY || type == Types.BLOB;
    }

    /** What an exception, or what caused it, says about the database; where it says nothing, these words are all. */
    private int failed(Throwable error, String words) {
        cause = error;
        SQLException said = null;
        boolean isBroken = false;
        Throwable at = error;
        for (int depth = 0; at != null && depth < 100; depth++) {
            if (at instanceof SQLException) {
                SQLException one = (SQLException) at;
                // The outermost one may be a wrapper of a pool or a framework that says nothing.
                if (said == null || said.getSQLState() == null && said.getErrorCode() == 0) {
                    said = one;
                }
                isBroken |= at instanceof SQLNonTransientConnectionException || at instanceof SQLRecoverableException;
            }
            isBroken |= at instanceof IOException && said != null;
            at = at.getCause();
        }
        String state = said == null || said.getSQLState() == null ? "" : said.getSQLState();
        int number = said == null ? 0 : said.getErrorCode();
        bytes = new Packed()
                .text(state)
                .number(Math.max(number, 0))
                .text(said == null ? words : said.getMessage())
                .number(isBroken ? 1 : 0)
                .toBytes();
        return FAILED;
    }

    /** Gives a connection back, or ends it. */
    private static void close(Held held, boolean ends) {
        if (held.connection == null) {
            return;
        }
        if (ends) {
            end(held.connection, held.isMySql);
            held.connection = null;
        } else {
            give(held);
        }
    }

    /** Into its pool, as it was. */
    private static void give(Held held) {
        Connection connection = held.connection;
        held.connection = null;
        try {
            if (held.hasBegun && held.wasAutoCommit) {
                connection.setAutoCommit(true);
            }
            connection.close();
        } catch (SQLException | RuntimeException e) {
            end(connection, held.isMySql);
        }
    }

    /** The server rolls back, and no pool has the session any more. */
    static void end(Connection connection, boolean isMySql) {
        if (isMySql) {
            // The pool of MariaDB's driver takes an `abort` for a `close`: this one ends at the server, and the rollback finds that out.
            quietly(() -> {
                connection.setNetworkTimeout(Runnable::run, END_MS);
                try (Statement statement = connection.createStatement()) {
                    statement.execute("KILL CONNECTION_ID()");
                }
            });
            quietly(connection::rollback);
        }
        quietly(() -> connection.abort(Runnable::run));
        // A pool drops a connection at which it has seen an error.
        quietly(connection::rollback);
        quietly(connection::close);
    }

    private interface Step {
        void run() throws SQLException;
    }

    /** Each step may find that the connection is over, or that its driver lacks it. */
    private static void quietly(Step step) {
        try {
            step.run();
        } catch (SQLException | RuntimeException | LinkageError e) {
            // The next one goes on.
        }
    }

    /** Waits, parked. No connection is held meanwhile. */
    private static void park(long nanos) {
        if (!Thread.currentThread().isInterrupted()) {
            LockSupport.parkNanos(nanos);
        }
        if (Thread.currentThread().isInterrupted()) {
            throw new KeymillException(
                    Code.DEADLINE,
                    "interrupted while the write waited for a step of a move; nothing was written",
                    -1,
                    new InterruptedException());
        }
    }

    /** The work's own exception, which the caller's method declares. */
    @SuppressWarnings("unchecked")
    private static <X extends Throwable> X unchecked(Throwable thrown) throws X {
        throw (X) thrown;
    }
}
