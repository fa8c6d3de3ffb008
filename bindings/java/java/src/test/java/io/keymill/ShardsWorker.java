package io.keymill;

import static io.keymill.TwoShards.ask;

import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A process that changes orders and their items until a file says stop: MILL SHARDS LOG SEED. A line for each acknowledged item: {@code + id n} it
 * came, {@code - id n} it went, {@code ? id n} it may have gone, by a write that was not acknowledged.
 */
public final class ShardsWorker {
    static final int IDS = 12;
    private static final int THREADS = 3;
    /** At most so long does a thread pause between two writes: in the short run it leaves processors to other steps. */
    private static final int PAUSE_MS = System.getenv("KEYMILL_ALL") == null ? 20 : 0;

    private ShardsWorker() {}

    public static void main(String[] arguments) throws Exception {
        TwoShards two = TwoShards.named(arguments[1]);
        long seed = Long.parseLong(arguments[3]);
        AtomicLong numbers = new AtomicLong(seed * 1_000_000_000);
        AtomicLong threads = new AtomicLong();
        try (Mill mill = Mill.open(arguments[0]); PrintWriter log = new PrintWriter(arguments[2], "UTF-8")) {
            Shards shards = two.shards(mill.router("orders")).deadline(Duration.ofMinutes(2));
            Checks.together(THREADS, () -> {
                Random chance = new Random(seed * 100 + threads.getAndIncrement());
                while (!Files.exists(Paths.get(arguments[2] + ".stop"))) {
                    Thread.sleep(chance.nextInt(PAUSE_MS + 1));
                    change(shards, TwoShards.FIRST + chance.nextInt(IDS), chance, numbers, log);
                }
                return null;
            });
            log.println("end");
        }
    }

    private static void change(Shards shards, long id, Random chance, AtomicLong numbers, PrintWriter log) {
        List<String> done = new ArrayList<>();
        try {
            shards.write(id, connection -> {
                done.clear();
                work(connection, id, chance, numbers, done);
                return null;
            });
            synchronized (log) {
                done.forEach(log::println);
                log.println("acknowledged");
                log.flush();
            }
        } catch (SQLException | KeymillException e) {
            if (e instanceof KeymillException) {
                Code code = ((KeymillException) e).code();
                if (code != Code.STORE_UNAVAILABLE && code != Code.NOT_READY) {
                    throw (KeymillException) e;
                }
            }
            synchronized (log) {
                done.stream().filter(line -> line.startsWith("-")).forEach(line -> log.println("?" + line.substring(1)));
                log.println("refused " + e.getMessage().replace('\n', ' '));
                log.flush();
            }
        }
    }

    private static void work(Connection connection, long id, Random chance, AtomicLong numbers, List<String> done) throws SQLException {
        String items = " WHERE item_of = " + id;
        boolean isThere = !ask(connection, "SELECT order_id FROM t_order WHERE order_id = " + id + " FOR UPDATE").isEmpty();
        if (!isThere) {
            ask(connection, "INSERT INTO t_order (order_id, note, amount, ratio, at) VALUES (" + id + ", 'caf\u00e9 ''" + chance.nextInt(1000) + "', "
                    + chance.nextInt(1000) + ".25, 0.1, '2026-10-25 02:30:00.123456')");
        }
        List<String> there = ask(connection, "SELECT n FROM t_item" + items + " ORDER BY n");
        int what = chance.nextInt(10);
        if (what == 0 && isThere) {
            ask(connection, "DELETE FROM t_item" + items);
            ask(connection, "DELETE FROM t_order WHERE order_id = " + id);
            there.forEach(n -> done.add("- " + id + " " + n));
        } else if (what == 1 && !there.isEmpty()) {
            String n = there.get(chance.nextInt(there.size()));
            ask(connection, "DELETE FROM t_item" + items + " AND n = " + n);
            done.add("- " + id + " " + n);
        } else if (what <= 3 && there.size() > 1) {
            String one = there.get(0);
            String two = there.get(there.size() - 1);
            String seat = "SELECT seat FROM t_item" + items + " AND n = ";
            String first = ask(connection, seat + one).get(0);
            String last = ask(connection, seat + two).get(0);
            String set = "UPDATE t_item SET seat = ";
            ask(connection, set + "NULL" + items + " AND n = " + one);
            ask(connection, set + first + items + " AND n = " + two);
            ask(connection, set + last + items + " AND n = " + one);
        } else if (what <= 5) {
            ask(connection, "UPDATE t_order SET amount = " + chance.nextInt(100_000) + ", version = version + 1 WHERE order_id = " + id);
        } else {
            long n = numbers.getAndIncrement();
            ask(connection, "INSERT INTO t_item (item_of, n, seat, name) VALUES (" + id + ", " + n + ", " + n + ", '\u540d" + n + "')");
            done.add("+ " + id + " " + n);
        }
    }
}
