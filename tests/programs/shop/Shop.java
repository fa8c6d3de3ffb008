import io.keymill.Business;
import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.OrderNumbers;
import io.keymill.Route;
import io.keymill.Router;
import java.io.PrintWriter;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * Orders of a shop whose rows lie on several databases: placed, changed and read again until a file says stop. shop.py says the arguments.
 *
 * <pre>java -cp keymill.jar:mariadb-java-client.jar Shop.java MILL KEYS SHARDS LOG SEED</pre>
 */
public class Shop {
    private static final int BUYERS = 2000;
    private static final String COLUMNS = "order_id, order_no, order_no_kv, buyer_id, version, created_at";
    /** No value is left to the database: two of them would say different times. */
    private static final String WRITE = "INSERT INTO t_order (" + COLUMNS + ") VALUES (?, ?, ?, ?, ?, FROM_UNIXTIME(? / 1000))"
            + " ON DUPLICATE KEY UPDATE version = VALUES(version)";
    private static final String LOCK = "SELECT " + COLUMNS + " FROM t_order WHERE order_id = ? FOR UPDATE";
    /** What the other shard has, as the one that decides has it. */
    private static final String SAME =
            "INSERT INTO t_order (" + COLUMNS + ") VALUES (?, ?, ?, ?, ?, ?) ON DUPLICATE KEY UPDATE version = VALUES(version)";
    private static final String READ = "SELECT version FROM t_order WHERE order_id = ?";
    /** A write takes less than settle of the route table, or it does not count. */
    private static final long SETTLE_NANOS = 2_000_000_000L;

    private static final class Order {
        long id;
        byte[] number;
        long buyer;
        long version = 1;
        final long created = System.currentTimeMillis();
    }

    private final Map<String, String> places = new HashMap<>();
    private final Map<String, Connection> connections = new HashMap<>();
    private Router router;
    private int keyVersion;

    private Connection database(String shard) throws SQLException {
        Connection connection = connections.get(shard);
        if (connection == null) {
            String url = "jdbc:mariadb://" + places.get(shard) + "?user=keymill&password=secret&connectTimeout=2000&socketTimeout=2000";
            connection = DriverManager.getConnection(url);
            // Otherwise writers of new ids wait for each other's gaps.
            connection.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED);
            connection.setAutoCommit(false);
            connections.put(shard, connection);
        }
        return connection;
    }

    private void forget(String shard) {
        Connection connection = connections.remove(shard);
        try {
            if (connection != null) connection.close();
        } catch (SQLException ignored) {
            // It was broken.
        }
    }

    private void write(Connection old, Order order) throws SQLException {
        try (PreparedStatement statement = old.prepareStatement(WRITE)) {
            statement.setLong(1, order.id);
            statement.setBytes(2, order.number);
            statement.setInt(3, keyVersion);
            statement.setLong(4, order.buyer);
            statement.setLong(5, order.version);
            statement.setLong(6, order.created);
            statement.executeUpdate();
        }
    }

    /** Locks the order on a shard, and makes its row of another shard the same where one is given. */
    private static void lock(Connection on, long id, Connection other) throws SQLException {
        try (PreparedStatement locked = on.prepareStatement(LOCK)) {
            locked.setLong(1, id);
            ResultSet row = locked.executeQuery();
            if (other == null || !row.next()) return;
            try (PreparedStatement same = other.prepareStatement(SAME)) {
                for (int column = 1; column <= 6; column++) same.setObject(column, row.getObject(column));
                same.executeUpdate();
            }
        }
    }

    /** The version that a shard has of an order; 0 where it has none. */
    private long read(String shard, long id) throws SQLException {
        try (PreparedStatement statement = database(shard).prepareStatement(READ)) {
            statement.setLong(1, id);
            try (ResultSet rows = statement.executeQuery()) {
                return rows.next() ? rows.getLong(1) : 0;
            } finally {
                database(shard).commit();
            }
        } catch (SQLException error) {
            forget(shard);
            throw error;
        }
    }

    /** Where an order is now. A process that lost its lease waits until the store has answered it again. */
    private Route route(long id) throws InterruptedException {
        while (true) {
            try {
                return router.route(id);
            } catch (KeymillException error) {
                if (error.code() != Code.LEASE_LOST) throw error;
                Thread.sleep(50);
            }
        }
    }

    /** Writes the order to the shard that decides, and makes the row of the other one the same; again, by a new route, until both are committed. */
    private String write(Order order) throws InterruptedException {
        while (true) {
            long began = System.nanoTime();
            Route place = route(order.id);
            if (place.paused()) {
                Thread.sleep(50);
                continue;
            }
            String shard = place.write().get();
            try {
                Connection old = database(shard);
                Connection other = place.mirror().isPresent() ? database(place.mirror().get()) : null;
                lock(old, order.id, null);
                write(old, order);
                boolean counts;
                if (other == null) {
                    counts = System.nanoTime() - began < SETTLE_NANOS;
                } else {
                    lock(other, order.id, null);
                    lock(old, order.id, other);
                    counts = router.isCurrent(place);
                }
                if (counts) {
                    old.commit();
                    if (other != null) other.commit();
                    return shard;
                }
                old.rollback();
                if (other != null) other.rollback();
            } catch (SQLException error) {
                forget(shard);
                place.mirror().ifPresent(this::forget);
                Thread.sleep(50);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        new Shop().run(args[0], args[1], args[2], args[3], new Random(Long.parseLong(args[4])));
    }

    private void run(String config, String keys, String shards, String file, Random chance) throws Exception {
        for (String shard : shards.split(",")) places.put(shard.split("=")[0], shard.split("=")[1]);
        double[] weights = new double[BUYERS];
        double sum = 0;
        for (int rank = 0; rank < BUYERS; rank++) weights[rank] = sum += 1.0 / (rank + 1);
        List<Order> mine = new ArrayList<>();
        try (Mill mill = Mill.open(config); PrintWriter log = new PrintWriter(file)) {
            router = mill.router("orders");
            OrderNumbers numbers = OrderNumbers.open(keys, "acme", "t_order");
            keyVersion = numbers.version();
            Business orders = mill.business("order?counters=1024&deadline=60s");
            while (!Files.exists(Paths.get(file + ".stop"))) {
                Order order;
                boolean isNew = mine.isEmpty() || chance.nextDouble() >= 0.2;
                if (isNew) {
                    order = new Order();
                    double at = chance.nextDouble() * sum;
                    while (weights[(int) order.buyer] <= at) order.buyer++;
                    order.buyer++;
                    order.id = orders.next(order.buyer);
                    order.number = numbers.seal(order.id);
                } else {
                    order = mine.get(chance.nextInt(mine.size()));
                    order.version++;
                }
                String shard = write(order);
                log.println(System.currentTimeMillis() + (isNew ? " placed " : " changed ") + order.id + " "
                        + String.format("%032x", new BigInteger(1, order.number)) + " " + order.buyer + " " + order.version + " " + shard);
                log.flush();
                if (isNew) mine.add(order);
                Order one = mine.get(chance.nextInt(mine.size()));
                Route place = route(one.id);
                try {
                    long found = read(place.read(), one.id);
                    if (found != one.version) log.println("WRONG " + one.id + " version " + one.version + ", read " + found + " from " + place);
                } catch (SQLException error) {
                    continue;
                }
                Thread.sleep(5);
            }
        }
    }
}
