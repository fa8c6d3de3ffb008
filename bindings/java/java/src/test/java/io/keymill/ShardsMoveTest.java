package io.keymill;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.attribute.PosixFilePermissions;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Two programs write the same ids while an operator moves their range there and back: no acknowledged write is lost. */
class ShardsMoveTest {
    private static final String[] TABLES = {"--table", "t_order", "--key", "order_id", "--table", "t_item", "--key", "item_of"};

    @TempDir
    Path folder;

    private String store;

    /** As the operator types it, in the folder. */
    private void type(String... words) throws Exception {
        List<String> command = new ArrayList<>(Arrays.asList("keymill", "--mill", store));
        command.addAll(Arrays.asList(words));
        command.add("--yes");
        File said = folder.resolve("said").toFile();
        int exit = new ProcessBuilder(command).directory(folder.toFile()).redirectErrorStream(true).redirectOutput(said).start().waitFor();
        assertEquals(0, exit, String.join(" ", command) + "\n" + new String(Files.readAllBytes(said.toPath()), StandardCharsets.UTF_8));
    }

    private void step(String verb, String... more) throws Exception {
        List<String> words = new ArrayList<>(Arrays.asList("move", verb, "orders"));
        words.addAll(Arrays.asList(more));
        type(words.toArray(new String[0]));
    }

    private void rows(String verb, String... more) throws Exception {
        List<String> words = new ArrayList<>(Arrays.asList(TABLES));
        words.addAll(Arrays.asList("--from", "s1=file:s1.toml", "--to", "s2=file:s2.toml", "--wait"));
        words.addAll(Arrays.asList(more));
        step(verb, words.toArray(new String[0]));
    }

    private void cutOver() throws Exception {
        for (int percent : new int[] {5, 25, 50, 100}) {
            step("next", "--wait");
        }
    }

    private void file(String name, String text) throws Exception {
        Files.write(folder.resolve(name), text.getBytes(StandardCharsets.UTF_8));
        // Those with passwords are read by nobody else.
        Files.setPosixFilePermissions(folder.resolve(name), PosixFilePermissions.fromString("rw-------"));
    }

    private static Process worker(String store, TwoShards two, Path log, int seed) throws Exception {
        String java = Paths.get(System.getProperty("java.home"), "bin", "java").toString();
        return new ProcessBuilder(java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path"), "io.keymill.ShardsWorker", store, two.words(), log.toString(), "" + seed)
                .redirectErrorStream(true).redirectOutput(new File(log + ".said")).start();
    }

    /** All drivers in {@code ci/test --all}, which sets the variable; otherwise one, because each takes half a minute. */
    private static Stream<String> drivers(String one) {
        return System.getenv("KEYMILL_ALL") == null ? Stream.of(one) : Stream.of("mariadb", "mysql", "postgresql");
    }

    static Stream<String> driversOfMoves() {
        return drivers("postgresql");
    }

    static Stream<String> driversOfBrokenConnections() {
        return drivers("mariadb");
    }

    @ParameterizedTest
    @MethodSource("driversOfMoves")
    void no_acknowledged_write_is_lost_while_a_range_moves_there_and_back(String driver) throws Exception {
        moves(driver, false);
    }

    @ParameterizedTest
    @MethodSource("driversOfBrokenConnections")
    void no_acknowledged_write_is_lost_where_connections_break(String driver) throws Exception {
        moves(driver, true);
    }

    /** Ends sessions of the programs until it is interrupted. */
    private static Thread breaks(TwoShards two) {
        Thread breaks = new Thread(() -> {
            Random chance = new Random();
            try {
                while (true) {
                    Thread.sleep(1 + chance.nextInt(60));
                    two.breakOne();
                }
            } catch (InterruptedException | SQLException e) {
                // The test is over.
            }
        });
        breaks.start();
        return breaks;
    }

    /** Both shards are alike; after broken connections the new one is repaired. */
    private void alike(boolean breaks) throws Exception {
        if (!breaks) {
            rows("verify");
            return;
        }
        for (int turn = 1; ; turn++) {
            try {
                rows("verify", "--repair", "--delete");
                return;
            } catch (AssertionError e) {
                // Another connection broke meanwhile.
                if (turn == 20) throw e;
            }
        }
    }

    private void moves(String driver, boolean breaks) throws Exception {
        Thread breaking = null;
        store = "sqlite:" + folder.resolve("routes.keymill") + "?busy=5s";
        List<Process> running = new ArrayList<>();
        try (TwoShards two = new TwoShards(driver)) {
            file("routes.toml", "version = 1\nsettle = \"200ms\"\n[[range]]\nupper = 65535\nshard = \"s1\"\n");
            for (int shard = 0; shard < 2; shard++) {
                file("s" + (shard + 1) + ".toml", "store = \"" + two.url(shard) + "\"\n");
            }
            type("route", "put", "orders", "routes.toml");
            List<Path> logs = new ArrayList<>();
            for (int seed = 1; seed <= 2; seed++) {
                logs.add(folder.resolve("log" + seed));
                running.add(worker(store, two, logs.get(seed - 1), seed));
            }
            for (Path log : logs) {
                Checks.until("a write before the move", 120, () -> log.toFile().length() > 2000);
            }
            breaking = breaks ? breaks(two) : null;
            String[] plan = {"keymill", "--mill", store, "move", "plan", "orders", "--shards", "s1,s2", "--out", "plan.toml"};
            assertEquals(0, new ProcessBuilder(plan).directory(folder.toFile()).start().waitFor());
            step("start", "--plan", "plan.toml", "--watch", "0s", "--wait");
            rows("copy");
            alike(breaks);
            cutOver();
            step("back", "--wait");
            alike(breaks);
            cutOver();
            alike(breaks);
            step("finish", "--wait");
            if (breaking != null) {
                breaking.interrupt();
                breaking.join();
            }
            for (Path log : logs) {
                long length = log.toFile().length();
                Checks.until("a write after the move", 120, () -> log.toFile().length() > length);
                Files.createFile(Paths.get(log + ".stop"));
            }
            for (Process one : running) {
                assertTrue(one.waitFor(120, TimeUnit.SECONDS));
                assertEquals(0, one.exitValue(), Files.readString(Paths.get(logs.get(running.indexOf(one)) + ".said")));
            }
            compare(driver + (breaks ? ", broken" : ""), two, logs);
        } finally {
            if (breaking != null) {
                breaking.interrupt();
            }
            running.forEach(Process::destroyForcibly);
        }
    }

    private static void compare(String driver, TwoShards two, List<Path> logs) throws Exception {
        Set<String> inserted = new HashSet<>();
        Set<String> deleted = new HashSet<>();
        Set<String> mayBeDeleted = new HashSet<>();
        int acknowledged = 0;
        int refused = 0;
        for (Path log : logs) {
            List<String> lines = Files.readAllLines(log);
            assertEquals("end", lines.get(lines.size() - 1));
            for (String line : lines) {
                switch (line.charAt(0)) {
                    case '+': inserted.add(line.substring(2)); break;
                    case '-': deleted.add(line.substring(2)); break;
                    case '?': mayBeDeleted.add(line.substring(2)); break;
                    case 'a': acknowledged++; break;
                    case 'r': refused++; break;
                    default: break;
                }
            }
        }
        Set<String> there = new HashSet<>(two.ask(1, "SELECT item_of, n FROM t_item"));
        Set<String> lost = new HashSet<>(inserted);
        lost.removeAll(deleted);
        lost.removeAll(mayBeDeleted);
        lost.removeAll(there);
        assertEquals(Set.of(), lost, "acknowledged and not there");
        Set<String> back = new HashSet<>(deleted);
        back.retainAll(there);
        assertEquals(Set.of(), back, "deleted and there");
        assertTrue(acknowledged > 100 && inserted.size() > 30 && deleted.size() > 10, acknowledged + " writes");
        System.out.println(driver + ": " + acknowledged + " writes acknowledged while a range moved, " + refused + " refused, " + inserted.size()
                + " rows came, " + deleted.size() + " went, 0 lost");
    }
}
