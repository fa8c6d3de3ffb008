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
    /** A row is written as a whole and never over a newer one. No value is left to the database: two of them would say different times. */
    private static final String WRITE = "INSERT INTO t_order (order_id, order_no, order_no_kv, buyer_id, version, created_at)"
            + " VALUES (?, ?, ?, ?, ?, FROM_UNIXTIME(? / 1000))"
            + " ON DUPLICATE KEY UPDATE version = GREATEST(version, VALUES(version))";
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

    private void write(String shard, Order order) throws SQLException {
        try (PreparedStatement statement = database(shard).prepareStatement(WRITE)) {
            statement.setLong(1, order.id);
            statement.setBytes(2, order.number);
            statement.setInt(3, keyVersion);
            statement.setLong(4, order.buyer);
            statement.setLong(5, order.version);
            statement.setLong(6, order.created);
            statement.executeUpdate();
        } catch (SQLException error) {
            forget(shard);
            throw error;
        }
    }

    /** The version that a shard has of an order; 0 where it has none. */
    private long read(String shard, long id) throws SQLException {
        try (PreparedStatement statement = database(shard).prepareStatement(READ)) {
            statement.setLong(1, id);
            try (ResultSet rows = statement.executeQuery()) {
                return rows.next() ? rows.getLong(1) : 0;
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

    /** Writes the order to its shard and to the mirror; again, by a new route, until both have answered in time. */
    private String write(Order order) throws InterruptedException {
        while (true) {
            long began = System.nanoTime();
            Route place = route(order.id);
            try {
                write(place.write(), order);
                if (place.mirror().isPresent()) write(place.mirror().get(), order);
                if (System.nanoTime() - began < SETTLE_NANOS) return place.write();
            } catch (SQLException error) {
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
