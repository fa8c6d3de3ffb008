package io.keymill;

import java.math.BigInteger;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.sql.DataSource;

/**
 * Writes and reads over the program's own connections, each on the shard where its id is, also while a range of ids moves to another shard.
 *
 * <p>A {@link #write(long, ShardWork) write} runs the program's work in a transaction on the shard that decides. While the id's range moves, the
 * rows of the id in the named tables are made the same on the other shard, and both are committed. Without a move it adds nothing but the route.
 *
 * <pre>{@code
 * Shards shards = Shards.of(mill.router("orders"), Map.of("s1", first, "s2", second))
 *         .table("t_order", "order_id")
 *         .table("t_item", "item_of");
 * shards.write(id, connection -> {
 *     try (PreparedStatement insert = connection.prepareStatement("INSERT INTO t_order (order_id, buyer_id) VALUES (?, ?)")) {
 *         insert.setLong(1, id);
 *         insert.setLong(2, buyer);
 *         return insert.executeUpdate();
 *     }
 * });
 * }</pre>
 *
 * <p>The servers are MySQL, MariaDB or PostgreSQL, through any driver of JDBC and any pool. Connections may come in autocommit mode; they go back
 * as they came. A connection that broke goes back closed, and its pool drops it. Safe from any number of threads.
 */
public final class Shards {
    /** A write of this thread is under way. A type of the JDK: nothing of a class loader stays with the thread. */
    private static final ThreadLocal<Boolean> WRITES = new ThreadLocal<>();

    private final RouterBox router;
    private final String[] names;
    private final DataSource[] sources;
    /** What the servers speak, once it is known. Threads that find it out at the same time find the same. */
    private final ShardKind[] kinds;
    private final List<String> tables;
    /** Negative: the default. */
    private final long deadlineMs;
    /** Null where no table is named yet. */
    private final ShardsBox box;

    private Shards(
            RouterBox router, String[] names, DataSource[] sources, ShardKind[] kinds, List<String> tables, long deadlineMs) {
        this.router = router;
        this.names = names;
        this.sources = sources;
        this.kinds = kinds;
        this.tables = tables;
        this.deadlineMs = deadlineMs;
        this.box = tables.isEmpty() ? null : made();
    }

    private ShardsBox made() {
        Packed words = new Packed();
        for (String word : tables) {
            words.bytes(Native.utf8(word, "the name of a table or a column"));
        }
        Packed shards = new Packed();
        for (String name : names) {
            shards.bytes(Native.utf8(name, "the name of a shard"));
        }
        return new ShardsBox(router.shards(words.toBytes(), shards.toBytes(), deadlineMs));
    }

    /**
     * Over the shards of a router's table. Tables must be named before it is used: see {@link #table}.
     *
     * @param router the router
     * @param sources for the name of each shard in the router's table, where its connections come from
     * @return the shards
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for null
     */
    public static Shards of(Router router, Map<String, ? extends DataSource> sources) {
        if (router == null || sources == null) {
            throw KeymillException.argument("the router or the map of shards is null");
        }
        TreeMap<String, DataSource> sorted = new TreeMap<>();
        for (Map.Entry<String, ? extends DataSource> source : sources.entrySet()) {
            if (source.getKey() == null || source.getValue() == null) {
                throw KeymillException.argument("the name of a shard or its `DataSource` is null");
            }
            sorted.put(source.getKey(), source.getValue());
        }
        int count = sorted.size();
        return new Shards(
                router.box(),
                sorted.keySet().toArray(new String[0]),
                sorted.values().toArray(new DataSource[0]),
                new ShardKind[count],
                new ArrayList<>(),
                -1);
    }

    /**
     * The same with one more table, whose rows belong to the ids. The first table is the root: each id that has rows has one there. Tables to which
     * foreign keys lead come first.
     *
     * @param name the table
     * @param key the column that holds the id: the first of the table's primary key
     * @return the shards with this table
     * @throws KeymillException {@link Code#INVALID_CONFIG} for an empty name, and for a table that is named twice
     */
    public Shards table(String name, String key) {
        List<String> more = new ArrayList<>(tables);
        more.add(name);
        more.add(key);
        return new Shards(router, names, sources, kinds, more, deadlineMs);
    }

    /**
     * The same with another deadline: how long a write is tried again while its range pauses, or because a step of the move came in between. It is
     * 15 s unless it is set. A statement that waits for a lock is not cut short.
     *
     * @param deadline the deadline
     * @return the shards with this deadline
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for null and a negative one
     */
    public Shards deadline(Duration deadline) {
        if (deadline == null || deadline.isNegative()) {
            throw KeymillException.argument("the deadline is null or negative");
        }
        long ms = deadline.getSeconds() > Integer.MAX_VALUE ? Integer.MAX_VALUE * 1000L : deadline.toMillis();
        return new Shards(router, names, sources, kinds, tables, ms);
    }

    /**
     * Does the work in a transaction on the shard that decides where this id is written. It is done again where a step of a move came in between,
     * or the database ended the transaction in favour of another one (a deadlock, say), so it changes nothing but this transaction.
     *
     * <p>When it returns, the work is committed. When it throws {@link Code#STORE_UNAVAILABLE}, the message says whether something may have been
     * written; for every other exception, the work's own included, nothing was. A write in the work of another write is refused.
     *
     * @param id the id
     * @param work the work
     * @param <T> what it answers with
     * @param <X> what it throws
     * @return its answer
     * @throws X the work's own exception
     * @throws KeymillException {@link Code#NOT_READY}: the deadline passed while the range paused; {@link Code#STORE_UNAVAILABLE}: a shard did not
     *     answer; {@link Code#STORE_REFUSED}: a shard refuses the rows or a statement; {@link Code#INVALID_CONFIG}: no table is named, or no
     *     {@code DataSource} for the shard; {@link Code#INVALID_ARGUMENT}: a negative id, a write in another one, or a work that ended its transaction
     */
    public <T, X extends Exception> T write(long id, ShardWork<T, X> work) throws X {
        enter(work);
        try {
            return new ShardRun(this, box().begin(id, false)).run(work);
        } finally {
            WRITES.remove();
        }
    }

    /**
     * As {@link #write(long, ShardWork)}, of an id whose bytes are in big-endian order: 8 of them, or 16 of a wide id.
     *
     * @param id the bytes
     * @param work the work
     * @param <T> what it answers with
     * @param <X> what it throws
     * @return its answer
     * @throws X the work's own exception
     */
    public <T, X extends Exception> T write(byte[] id, ShardWork<T, X> work) throws X {
        enter(work);
        try {
            return new ShardRun(this, box().begin(given(id), false)).run(work);
        } finally {
            WRITES.remove();
        }
    }

    /**
     * As {@link #write(long, ShardWork)}, of an id of 128 bits.
     *
     * @param id the id
     * @param work the work
     * @param <T> what it answers with
     * @param <X> what it throws
     * @return its answer
     * @throws X the work's own exception
     */
    public <T, X extends Exception> T writeWide(BigInteger id, ShardWork<T, X> work) throws X {
        return write(Router.wide(id), work);
    }

    /**
     * Does the work on the shard from which this id is read, in a transaction of its own that is rolled back after it.
     *
     * @param id the id
     * @param work the work
     * @param <T> what it answers with
     * @param <X> what it throws
     * @return its answer
     * @throws X the work's own exception
     * @throws KeymillException {@link Code#LEASE_LOST}: the range moves, and this process could not follow in time; {@link Code#STORE_UNAVAILABLE}: the
     *     shard did not answer; {@link Code#INVALID_CONFIG} and {@link Code#INVALID_ARGUMENT} as for a write
     */
    public <T, X extends Exception> T read(long id, ShardWork<T, X> work) throws X {
        return new ShardRun(this, box(work).begin(id, true)).run(work);
    }

    /**
     * As {@link #read(long, ShardWork)}, of an id whose bytes are in big-endian order: 8 of them, or 16 of a wide id.
     *
     * @param id the bytes
     * @param work the work
     * @param <T> what it answers with
     * @param <X> what it throws
     * @return its answer
     * @throws X the work's own exception
     */
    public <T, X extends Exception> T read(byte[] id, ShardWork<T, X> work) throws X {
        return new ShardRun(this, box(work).begin(given(id), true)).run(work);
    }

    /**
     * As {@link #read(long, ShardWork)}, of an id of 128 bits.
     *
     * @param id the id
     * @param work the work
     * @param <T> what it answers with
     * @param <X> what it throws
     * @return its answer
     * @throws X the work's own exception
     */
    public <T, X extends Exception> T readWide(BigInteger id, ShardWork<T, X> work) throws X {
        return read(Router.wide(id), work);
    }

    private static void enter(ShardWork<?, ?> work) {
        if (work == null) {
            throw KeymillException.argument("the work is null");
        }
        if (WRITES.get() != null) {
            throw KeymillException.argument(
                    "a write inside another one would wait for its locks: this thread's first write has not ended");
        }
        WRITES.set(Boolean.TRUE);
    }

    private static byte[] given(byte[] id) {
        if (id == null) {
            throw KeymillException.argument("id is null");
        }
        return id;
    }

    private ShardsBox box(ShardWork<?, ?> work) {
        if (work == null) {
            throw KeymillException.argument("the work is null");
        }
        return box();
    }

    /** Where no table is named, the native library says so. */
    private ShardsBox box() {
        return box == null ? made() : box;
    }

    /** By the number that the native library has for the shard's name. */
    DataSource source(int number) {
        return sources[number - 1];
    }

    ShardKind kind(int number, Connection connection) throws SQLException {
        ShardKind kind = kinds[number - 1];
        if (kind == null) {
            kind = ShardKind.named(connection.getMetaData().getDatabaseProductName());
            kinds[number - 1] = kind;
        }
        return kind;
    }

    @Override
    public String toString() {
        return "Shards(" + String.join(", ", names) + ")";
    }
}
