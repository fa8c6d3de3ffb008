package io.keymill;

import java.math.BigInteger;
import java.time.Duration;
import java.util.Optional;

/**
 * Which shard an id or a business key belongs to, by a table of ranges over the 65 536 genes. Safe from any number of threads. A new
 * table replaces the old one as a whole; a bad one, or one of a lower version, is refused and the old one stays.
 *
 * <pre>{@code
 * Router router = mill.router("orders");
 * Route to = router.route(id);
 * String shard = to.read();
 * }</pre>
 */
public final class Router {
    private static final int WIDE_BYTES = 16;

    private final RouterBox box;

    Router(RouterBox box) {
        this.box = box;
    }

    RouterBox box() {
        return box;
    }

    /**
     * A router whose table is in a file, TOML or JSON. The file is read once; {@link #load} replaces the table.
     *
     * @param file the file
     * @return the router
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} where the file cannot be read; {@link Code#INVALID_CONFIG} with every
     *     fault of the table
     */
    public static Router open(String file) {
        return new Router(RouterBox.ofFile(Native.utf8(file, "file")));
    }

    /**
     * A router with this table: TOML, or JSON if the text begins with a brace.
     *
     * @param table the table
     * @return the router
     * @throws KeymillException {@link Code#INVALID_CONFIG} with every fault of the table
     */
    public static Router fromText(String table) {
        return new Router(RouterBox.ofText(Native.utf8(table, "table")));
    }

    /**
     * Replaces the table while other threads read.
     *
     * @param table the table
     * @return whether it is a new one; false: it is the present one
     * @throws KeymillException {@link Code#INVALID_CONFIG} with every fault of the table, or where its version is not higher than
     *     the present one
     */
    public boolean load(String table) {
        return box.load(Native.utf8(table, "table"));
    }

    /**
     * Where an id of 64 bits belongs.
     *
     * @param id the id
     * @return the route
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a negative id
     */
    public Route route(long id) {
        return box.route(id);
    }

    /**
     * Where an id belongs whose bytes are in big-endian order: 8 of them, or 16 of a wide id.
     *
     * @param id the bytes
     * @return the route
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for another length, or another form
     */
    public Route route(byte[] id) {
        if (id == null) {
            throw KeymillException.argument("id is null");
        }
        return box.routeBytes(id);
    }

    /**
     * Where an id of 128 bits belongs.
     *
     * @param id the id
     * @return the route
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for an id of another form
     */
    public Route routeWide(BigInteger id) {
        return box.routeBytes(wide(id));
    }

    /** The bytes of an id of 128 bits. */
    static byte[] wide(BigInteger id) {
        if (id == null || id.signum() < 0 || id.bitLength() > 8 * WIDE_BYTES) {
            throw KeymillException.argument("id is null, negative or has more than 128 bits");
        }
        byte[] digits = id.toByteArray();
        byte[] bytes = new byte[WIDE_BYTES];
        // The array may begin with a byte for the sign.
        int length = Math.min(digits.length, WIDE_BYTES);
        System.arraycopy(digits, digits.length - length, bytes, WIDE_BYTES - length, length);
        return bytes;
    }

    /**
     * Where the ids of an integer key belong.
     *
     * @param key the key
     * @return the route
     */
    public Route routeKey(long key) {
        return box.routeKey(key);
    }

    /**
     * Where the ids of a text key belong.
     *
     * @param key the key
     * @return the route
     * @throws KeymillException {@link Code#INVALID_ARGUMENT}: the key is null or has more than 64 KiB
     */
    public Route routeKey(String key) {
        return box.routeText(Native.utf8(key, "key"));
    }

    /**
     * Where the order belongs that has this order number, which needs no key. Where a range moves by number, the id decides, which is
     * encrypted: {@link Route#also} names the second shard then, and {@link #route(long)} with the unsealed id one shard.
     *
     * @param orderNo 16 bytes, or the 8 bytes of a number in big-endian order
     * @return the route
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for what is no order number
     */
    public Route routeOrderNo(byte[] orderNo) {
        return box.routeOrderNo(OrderNumbers.given(orderNo));
    }

    /**
     * As {@link #routeOrderNo(byte[])} for an order number of 8 bytes.
     *
     * @param orderNo the order number
     * @return the route
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a negative one
     */
    public Route routeOrderNo(long orderNo) {
        return box.routeOrderNo(orderNo);
    }

    /**
     * As {@link #routeOrderNo(byte[])} for the text of an order number, of 26 or of 14 characters.
     *
     * @param text the text
     * @return the route
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for another length or other characters
     */
    public Route routeOrderNo(String text) {
        return box.routeOrderNoText(Native.utf8(text, "the order number"));
    }

    /**
     * Whether a write by this route may still be committed: the present table says the same about where the ids of its gene are written, and
     * while the range moves, this process may answer for it. Steps that move only reads do not count. Asks no store and takes no lock.
     *
     * <p>A write while the range moves holds a transaction open on both shards, and asks this before it commits {@link Route#write}, then
     * {@link Route#mirror}. If the answer is no, roll both back, take a new route, and do the work again. A paused route is never current.
     *
     * @param route a route of this router
     * @return whether it may
     */
    public boolean isCurrent(Route route) {
        if (route == null) {
            throw KeymillException.argument("route is null");
        }
        return box.isCurrent(route);
    }

    /**
     * The version of the present table.
     *
     * @return the version
     */
    public long version() {
        return box.version();
    }

    /**
     * How long ago the store said that the table is the present one.
     *
     * @return the time, where the table is from a store
     */
    public Optional<Duration> age() {
        long ms = box.age();
        return ms < 0 ? Optional.empty() : Optional.of(Duration.ofMillis(ms));
    }

    @Override
    public String toString() {
        return "Router(version " + version() + ")";
    }
}
