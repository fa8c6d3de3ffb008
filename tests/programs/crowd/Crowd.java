import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.Router;
import io.keymill.Shards;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.sql.DataSource;

/**
 * Changes fifty hot ids through Shards until a file says stop; crowd.py tells the arguments and the lines of the log, and does the same.
 *
 * <pre>java -cp keymill.jar:HikariCP.jar:mariadb-java-client.jar:postgresql.jar Crowd MILL KIND SHARDS LOG NAME WORKERS</pre>
 */
public class Crowd {
    private static final long FIRST = 32768L << 47;
    private static final int IDS = 50;
    private static final int ITEMS = 6;

    private final boolean isPostgres;
    private final String file;
    private final String name;
    private final FileOutputStream log;

    private Crowd(String kind, String file, String name) throws IOException {
        isPostgres = kind.equals("postgres");
        this.file = file;
        this.name = name;
        log = new FileOutputStream(file, true);
    }

    /** One line, in one write. */
    private void note(Object... words) {
        StringBuilder line = new StringBuilder();
        for (Object word : words) line.append(line.length() == 0 ? "" : " ").append(word);
        try {
            log.write(line.append('\n').toString().getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private DataSource database(String place, int workers) {
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl(isPostgres ? "jdbc:postgresql://" + place + "?socketTimeout=60" : "jdbc:mariadb://" + place + "?socketTimeout=60000");
        config.setUsername("shop");
        config.setPassword("secret");
        config.setMaximumPoolSize(workers + 1);
        config.setMinimumIdle(0);
        // Otherwise writers of new ids wait for each other's gaps.
        config.setTransactionIsolation("TRANSACTION_READ_COMMITTED");
        // A server that is away is no reason to end before the first write.
        config.setInitializationFailTimeout(-1);
        return new HikariDataSource(config);
    }

    private static int run(Connection connection, String sql, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int at = 0; at < values.length; at++) statement.setObject(at + 1, values[at]);
            return statement.executeUpdate();
        }
    }

    private static List<Object[]> ask(Connection connection, String sql, long id) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setLong(1, id);
            try (ResultSet rows = statement.executeQuery()) {
                List<Object[]> found = new ArrayList<>();
                while (rows.next()) {
                    Object[] row = new Object[rows.getMetaData().getColumnCount()];
                    for (int at = 0; at < row.length; at++) row[at] = rows.getObject(at + 1);
                    found.add(row);
                }
                return found;
            }
        }
    }

    /** One run of one work. */
    private final class Work {
        private final Connection connection;
        private final long id;
        private final Random chance;
        private final Map<Long, Long> items = new TreeMap<>();

        Work(Connection connection, long id, Random chance) {
            this.connection = connection;
            this.id = id;
            this.chance = chance;
        }

        private <T> T one(List<T> list) {
            return list.get(chance.nextInt(list.size()));
        }

        private void insertOrder(String token) throws SQLException {
            run(connection, "INSERT INTO t_order (order_id, counter, token) VALUES (?, 0, ?)", id, token);
        }

        private void insert(long n) throws SQLException {
            List<Long> free = new ArrayList<>();
            for (long at = 1; at <= ITEMS; at++) free.add((id - FIRST) / 2 * 100 + at);
            free.removeAll(items.values());
            long seat = one(free);
            run(connection, "INSERT INTO t_item (item_of, n, seat, name) VALUES (?, ?, ?, ?)", id, n, seat, "\u540d" + n);
            items.put(n, seat);
        }

        private void delete(long n) throws SQLException {
            run(connection, "DELETE FROM t_item WHERE item_of = ? AND n = ?", id, n);
            items.remove(n);
        }

        private void seat(long n, Long seat) throws SQLException {
            if (seat == null) run(connection, "UPDATE t_item SET seat = NULL WHERE item_of = ? AND n = ?", id, n);
            else run(connection, "UPDATE t_item SET seat = ? WHERE item_of = ? AND n = ?", seat, id, n);
        }

        /** The counter and the token that it leaves. */
        String change(int worker, String token) throws SQLException, InterruptedException {
            List<Object[]> before = ask(connection, "SELECT counter, token FROM t_order WHERE order_id = ? FOR UPDATE", id);
            long counter;
            if (before.isEmpty()) {
                insertOrder(token);
                // The id is locked from now on.
                counter = System.nanoTime() / 1000;
            } else {
                counter = (Long) before.get(0)[0] + 1;
                for (Object[] row : ask(connection, "SELECT n, seat FROM t_item WHERE item_of = ? FOR UPDATE", id)) items.put((Long) row[0], (Long) row[1]);
            }
            if (chance.nextInt(100) == 0) Thread.sleep(20 + chance.nextInt(180));
            int what = chance.nextInt(10);
            List<Long> there = new ArrayList<>(items.keySet());
            List<Long> absent = new ArrayList<>();
            for (long n = 1; n <= ITEMS; n++) if (!items.containsKey(n)) absent.add(n);
            boolean isGone = false;
            if (before.isEmpty()) {
                Collections.shuffle(absent, chance);
                for (long n : absent.subList(0, chance.nextInt(4))) insert(n);
            } else if (what == 0) {
                for (long n : there) delete(n);
                run(connection, "DELETE FROM t_order WHERE order_id = ?", id);
                isGone = true;
            } else if (what == 1) {
                // The whole order comes back at once, with other seats.
                for (long n : there) delete(n);
                run(connection, "DELETE FROM t_order WHERE order_id = ?", id);
                insertOrder(token);
                Collections.reverse(there);
                for (long n : there) insert(n);
            } else if (what <= 3 && !absent.isEmpty()) {
                insert(one(absent));
            } else if (what == 4 && !there.isEmpty()) {
                delete(one(there));
            } else if (what >= 5 && what <= 6 && there.size() > 1) {
                // Two rows exchange a value that only one row may have.
                Collections.shuffle(there, chance);
                long first = there.get(0);
                long second = there.get(1);
                Long seat = items.get(first);
                seat(first, null);
                seat(second, seat);
                seat(first, items.get(second));
                items.put(first, items.get(second));
                items.put(second, seat);
            } else if (what == 7 && !there.isEmpty()) {
                // A key comes back.
                long n = one(there);
                delete(n);
                insert(n);
            }
            String state = items.entrySet().stream().map(item -> item.getKey() + ":" + item.getValue()).collect(Collectors.joining(","));
            if (!isGone) {
                run(connection, "UPDATE t_order SET counter = ?, token = ?, note = ?, amount = ? + 0.25 WHERE order_id = ?", counter, token, "\u00e9'" + state, counter, id);
            }
            String found = before.isEmpty() ? "- -" : before.get(0)[0] + " " + before.get(0)[1];
            note("try", worker, id, found, counter, token, isGone ? "gone" : state.isEmpty() ? "none" : state);
            return counter + " " + token;
        }
    }

    private static void mayPass(KeymillException error) {
        if (error.code() != Code.STORE_UNAVAILABLE && error.code() != Code.NOT_READY && error.code() != Code.LEASE_LOST) throw error;
    }

    private void work(Shards shards, int worker) throws Exception {
        Random chance = new Random();
        int[] runs = {0};
        Path stop = Paths.get(file + ".stop");
        Path hold = Paths.get(file + ".hold");
        String held = "";
        while (!Files.exists(stop)) {
            if (Files.exists(hold)) {
                try {
                    String number = new String(Files.readAllBytes(hold), StandardCharsets.UTF_8);
                    if (!number.equals(held)) note("hold", worker, held = number);
                } catch (NoSuchFileException error) {
                    // It goes on.
                }
                Thread.sleep(20);
                continue;
            }
            long id = FIRST + 2 * chance.nextInt(IDS);
            long began = System.nanoTime();
            try {
                String done = shards.write(id, connection -> {
                    try {
                        return new Work(connection, id, chance).change(worker, name + "/" + worker + "/" + ++runs[0]);
                    } catch (InterruptedException error) {
                        throw new IllegalStateException(error);
                    }
                });
                note("ack", worker, id, done, began, System.nanoTime());
            } catch (KeymillException | SQLException error) {
                long ended = System.nanoTime();
                if (error instanceof KeymillException) mayPass((KeymillException) error);
                String said = String.valueOf(error.getMessage());
                Object code = error instanceof KeymillException ? ((KeymillException) error).code() : error.getClass().getSimpleName();
                note("no", worker, id, began, ended, said.contains("not acknowledged") ? "maybe" : "sure", code, said.replaceAll("\\s+", " "));
            }
            if (chance.nextBoolean()) read(shards, worker, FIRST + 2 * chance.nextInt(IDS));
        }
    }

    private void read(Shards shards, int worker, long id) {
        String items = isPostgres ? "string_agg(n || ':' || seat, ',' ORDER BY n)" : "GROUP_CONCAT(CONCAT(n, ':', seat) ORDER BY n)";
        String sql = "SELECT counter, token, note, (SELECT " + items + " FROM t_item WHERE item_of = order_id) FROM t_order WHERE order_id = ?";
        long began = System.nanoTime();
        List<Object[]> found;
        try {
            found = shards.read(id, connection -> ask(connection, sql, id));
        } catch (KeymillException error) {
            mayPass(error);
            return;
        } catch (SQLException error) {
            return;
        }
        long ended = System.nanoTime();
        Object[] row = found.isEmpty() ? new Object[] {"-", "-", "\u00e9'", ""} : found.get(0);
        if (!row[2].equals("\u00e9'" + (row[3] == null ? "" : row[3]))) note("WRONG", id, row[0], row[1], row[2], row[3]);
        note("read", worker, id, row[0], row[1], began, ended);
    }

    /** Its first look at the store may be cut off. */
    private static Router router(Mill mill) {
        while (true) {
            try {
                return mill.router("orders");
            } catch (KeymillException error) {
                mayPass(error);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        Crowd crowd = new Crowd(args[1], args[3], args[4]);
        int workers = Integer.parseInt(args[5]);
        Map<String, DataSource> sources = new HashMap<>();
        for (String shard : args[2].split(",")) sources.put(shard.split("=")[0], crowd.database(shard.split("=")[1], workers));
        List<Throwable> failed = Collections.synchronizedList(new ArrayList<>());
        try (Mill mill = Mill.open(args[0])) {
            Shards shards = Shards.of(router(mill), sources).table("t_order", "order_id").table("t_item", "item_of");
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number < workers; number++) {
                int worker = number;
                Thread thread = new Thread(() -> {
                    try {
                        crowd.work(shards, worker);
                    } catch (Throwable error) {
                        error.printStackTrace();
                        failed.add(error);
                    }
                });
                threads.add(thread);
                thread.start();
            }
            for (Thread thread : threads) thread.join();
        }
        System.exit(failed.size());
    }
}
