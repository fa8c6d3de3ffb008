import io.keymill.Business;
import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.OrderNumbers;
import io.keymill.Shards;
import java.io.PrintWriter;
import java.math.BigInteger;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import javax.sql.DataSource;
import org.mariadb.jdbc.MariaDbPoolDataSource;

/**
 * Orders of a shop whose rows lie on several databases: placed, changed and read again until a file says stop. shop.py says the arguments.
 *
 * <pre>java -cp keymill.jar:mariadb-java-client.jar Shop.java MILL KEYS SHARDS LOG SEED</pre>
 */
public class Shop {
    private static final int BUYERS = 2000;
    private static final String WRITE = "INSERT INTO t_order (order_id, order_no, order_no_kv, buyer_id, version, created_at)"
            + " VALUES (?, ?, ?, ?, ?, FROM_UNIXTIME(? / 1000)) ON DUPLICATE KEY UPDATE version = VALUES(version)";
    private static final String READ = "SELECT version FROM t_order WHERE order_id = ?";

    private static final class Order {
        long id;
        byte[] number;
        long buyer;
        long version = 1;
        final long created = System.currentTimeMillis();
    }

    /** The names of the shards by those of their databases. */
    private final Map<String, String> names = new HashMap<>();
    private Shards shards;
    private int keyVersion;

    private DataSource database(String place) throws SQLException {
        return new MariaDbPoolDataSource("jdbc:mariadb://" + place + "?user=keymill&password=secret&connectTimeout=2000&socketTimeout=2000&maxPoolSize=2"
                // Otherwise writers of new ids wait for each other's gaps.
                + "&transactionIsolation=READ-COMMITTED");
    }

    /** The name of the shard to which it was written. */
    private String write(Connection connection, Order order) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(WRITE)) {
            statement.setLong(1, order.id);
            statement.setBytes(2, order.number);
            statement.setInt(3, keyVersion);
            statement.setLong(4, order.buyer);
            statement.setLong(5, order.version);
            statement.setLong(6, order.created);
            statement.executeUpdate();
        }
        return names.get(connection.getCatalog());
    }

    /** The version that a shard has of an order; 0 where it has none. */
    private static long read(Connection connection, long id) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(READ)) {
            statement.setLong(1, id);
            try (ResultSet rows = statement.executeQuery()) {
                return rows.next() ? rows.getLong(1) : 0;
            }
        }
    }

    /** Writes the order until that is acknowledged: to write it twice changes nothing. */
    private String write(Order order) throws InterruptedException {
        while (true) {
            try {
                return shards.write(order.id, connection -> write(connection, order));
            } catch (KeymillException error) {
                mayPass(error);
            } catch (SQLException error) {
                // The connection broke in the work.
            }
            Thread.sleep(50);
        }
    }

    /** A process that was stopped lost its lease; a shard did not answer; the range paused. */
    private static void mayPass(KeymillException error) {
        if (error.code() != Code.LEASE_LOST && error.code() != Code.STORE_UNAVAILABLE && error.code() != Code.NOT_READY) throw error;
    }

    public static void main(String[] args) throws Exception {
        new Shop().run(args[0], args[1], args[2], args[3], new Random(Long.parseLong(args[4])));
    }

    private void run(String config, String keys, String places, String file, Random chance) throws Exception {
        Map<String, DataSource> sources = new HashMap<>();
        for (String shard : places.split(",")) {
            String[] place = shard.split("=");
            sources.put(place[0], database(place[1]));
            names.put(place[1].split("/")[1], place[0]);
        }
        double[] weights = new double[BUYERS];
        double sum = 0;
        for (int rank = 0; rank < BUYERS; rank++) weights[rank] = sum += 1.0 / (rank + 1);
        List<Order> mine = new ArrayList<>();
        try (Mill mill = Mill.open(config); PrintWriter log = new PrintWriter(file)) {
            shards = Shards.of(mill.router("orders"), sources).table("t_order", "order_id");
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
                try {
                    long found = shards.read(one.id, connection -> read(connection, one.id));
                    if (found != one.version) log.println("WRONG " + one.id + " version " + one.version + ", read " + found);
                } catch (KeymillException error) {
                    mayPass(error);
                } catch (SQLException error) {
                    // It is read another time.
                }
                Thread.sleep(5);
            }
        }
    }
}
