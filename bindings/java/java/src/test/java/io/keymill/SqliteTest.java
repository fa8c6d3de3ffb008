package io.keymill;

import static io.keymill.Checks.refused;
import static io.keymill.Checks.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.sql.Connection;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A SQLite file is keymill's own. sqlite-jdbc is a second SQLite library in the process. */
class SqliteTest {
    private static final int ROUNDS = 100;

    @Test
    void a_file_that_sqlite_jdbc_has_open_is_refused_until_it_is_closed(@TempDir Path folder) throws Exception {
        String path = folder.resolve("ids.db").toString();
        List<Long> ids = new ArrayList<>();
        try (Mill mill = Mill.open("sqlite:" + path)) {
            Source orders = mill.segment("orders?step=10&max_step=10&deadline=60s");
            take(orders, ids);
            try (Connection beside = Beside.connect(path)) {
                assertEquals("1", Beside.value(beside, "SELECT count(*) FROM keymill_segment"));
                long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
                KeymillException refusal = refused(Code.STORE_UNSAFE, () -> {
                    while (System.nanoTime() < end) {
                        take(orders, ids);
                    }
                });
                assertTrue(refusal.getMessage().contains("name a file of keymill's own"), refusal.getMessage());
                try (Mill other = Mill.open("sqlite:" + path)) {
                    refused(Code.STORE_UNSAFE, () -> other.segment("orders").next());
                }
            }
            until("the file is served again", 120, () -> {
                try {
                    take(orders, ids);
                    return true;
                } catch (KeymillException e) {
                    return false;
                }
            });
        }
        assertEquals(ids.size(), new HashSet<>(ids).size(), "an id came twice");
    }

    private static void take(Source source, List<Long> ids) {
        for (long id : source.take(5)) {
            ids.add(id);
        }
    }

    @Test
    void sqlite_jdbc_in_three_processes_beside_keymill_costs_no_id_and_no_row_where_that_is_accepted(@TempDir Path folder)
            throws Exception {
        String path = folder.resolve("ids.db").toString();
        List<String> ids = new ArrayList<>();
        try (Mill mill = Mill.open("sqlite:" + path + "?durability=warn")) {
            ids.addAll(Arrays.asList(mill.segment("orders?step=5&max_step=5").takeText(5)));
        }
        try (Connection app = Beside.connect(path); Statement statement = app.createStatement()) {
            statement.executeUpdate("CREATE TABLE app (id INTEGER PRIMARY KEY, text)");
        }
        List<Process> processes = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            processes.add(start(folder.resolve(i + ".ids"), "sqlite:" + path + "?durability=warn&busy=5s", path));
        }
        for (int i = 0; i < 3; i++) {
            Path out = folder.resolve(i + ".ids");
            assertEquals(0, processes.get(i).waitFor(), Files.readString(Paths.get(out + ".stderr")));
            ids.addAll(Files.readAllLines(out));
        }
        assertEquals(5 + 3 * ROUNDS * 5, ids.size());
        assertEquals(ids.size(), new HashSet<>(ids).size(), "an id came twice");
        try (Connection app = Beside.connect(path)) {
            assertEquals(Integer.toString(3 * ROUNDS), Beside.value(app, "SELECT count(*) FROM app"));
            assertEquals("ok", Beside.value(app, "PRAGMA integrity_check"));
        }
    }

    /** Starts {@link Beside} in a JVM of its own, whose output is {@code out}. */
    private static Process start(Path out, String config, String path) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Paths.get(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(Arrays.asList("-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path")));
        command.addAll(Arrays.asList(Beside.class.getName(), config, path, Integer.toString(ROUNDS)));
        return new ProcessBuilder(command).redirectOutput(out.toFile()).redirectError(new File(out + ".stderr")).start();
    }
}
