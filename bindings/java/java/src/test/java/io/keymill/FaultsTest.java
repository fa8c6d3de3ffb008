package io.keymill;

import static io.keymill.Checks.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Processes that are killed and a server that is stopped, on the MariaDB that {@code KEYMILL_TEST_MYSQL} names. */
class FaultsTest {
    private static String url;

    @BeforeAll
    static void server() {
        url = System.getenv("KEYMILL_TEST_MYSQL");
        assumeTrue(url != null && !url.isEmpty(), "not run: KEYMILL_TEST_MYSQL names no server");
    }

    private static String unique(String name) {
        return name + "_" + ProcessHandle.current().pid() + "_" + System.nanoTime() % 1_000_000;
    }

    /** The same server for the old KeyFactory. */
    private static String jdbc() {
        URI server = URI.create(url);
        String[] user = server.getUserInfo().split(":");
        return "jdbc:mariadb://" + server.getHost() + ":" + server.getPort() + server.getPath() + "?user=" + user[0]
                + "&password=" + user[1];
    }

    @Test
    void thirty_killed_processes_leave_no_duplicate(@TempDir Path folder) throws Exception {
        String orders = "segment:" + unique("orders") + "?min_step=50";
        String threads = "segment:" + unique("threads") + "?order=thread&min_step=50";
        String serials = "serial:" + unique("cust") + "/custid?number=0000000000&step=100";
        try (Mill mill = Mill.open(url)) {
            mill.init(orders, threads, serials);
        }
        for (String spec : new String[] {orders, threads, serials}) {
            int at = spec.indexOf(':') + 1;
            kill(folder.resolve(spec.substring(at, at + 4)), 10, new String[] {"source", url, spec});
        }
    }

    @Test
    void an_old_node_and_new_ones_share_a_row_under_kills_without_a_duplicate(@TempDir Path folder) throws Exception {
        String table = unique("shared");
        try (Mill mill = Mill.open(url)) {
            mill.init("serial:" + table + "/custid?number=0000000000");
        }
        kill(folder.resolve("shared"), 12, new String[] {"factory", url, table}, new String[] {"seed", jdbc(), table},
                new String[] {"source", url, "serial:" + table + "/custid?number=0000000000&step=50&order=thread"});
    }

    /** Four workers at a time, of these kinds by turns; each is at work before it is killed, at a random moment. */
    private static void kill(Path folder, int kills, String[]... kinds) throws Exception {
        Files.createDirectories(folder);
        List<Process> running = new ArrayList<>();
        List<Path> logs = new ArrayList<>();
        int started = 0;
        try {
            for (int killed = 0; killed < kills; ) {
                while (running.size() < 4) {
                    Path log = folder.resolve(started + ".ids");
                    running.add(start(kinds[started % kinds.length], log));
                    logs.add(log);
                    started++;
                }
                int victim = ThreadLocalRandom.current().nextInt(running.size());
                Process process = running.get(victim);
                Path log = logs.get(victim);
                until("a worker takes ids", 240, () -> {
                    assertTrue(process.isAlive(), () -> errors(log));
                    return log.toFile().length() > 0;
                });
                LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(20_000_000));
                process.destroyForcibly().waitFor();
                running.remove(victim);
                logs.remove(victim);
                killed++;
            }
        } finally {
            for (Process process : running) {
                process.destroyForcibly().waitFor();
            }
        }
        System.out.println(String.join(" ", kinds[0][0], kinds[0][2]) + ": " + kills + " kills, " + distinct(folder)
                + " ids, 0 duplicates");
    }

    private static Process start(String[] kind, Path log) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(Paths.get(System.getProperty("java.home"), "bin", "java").toString());
        command.add("-Xmx64m");
        command.add("-XX:TieredStopAtLevel=1");
        command.add("-cp");
        command.add(System.getProperty("java.class.path"));
        command.add(Worker.class.getName());
        command.addAll(List.of(kind));
        command.add(log.toString());
        return new ProcessBuilder(command)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .redirectError(new File(log + ".stderr"))
                .start();
    }

    private static String errors(Path log) {
        try {
            return Files.readString(Paths.get(log + ".stderr"));
        } catch (IOException e) {
            return e.toString();
        }
    }

    private static int distinct(Path folder) throws IOException {
        Map<String, Path> seen = new HashMap<>();
        try (var logs = Files.list(folder)) {
            for (Path log : (Iterable<Path>) logs.filter(file -> file.toString().endsWith(".ids"))::iterator) {
                String text = Files.readString(log);
                for (String line : text.substring(0, Math.max(0, text.lastIndexOf('\n'))).split("\n")) {
                    assertNull(line.isEmpty() ? null : seen.put(line, log), line + " came twice");
                }
            }
        }
        assertTrue(seen.size() > 100, "only " + seen.size() + " ids");
        return seen.size();
    }

    private static void mariadb(String verb) throws Exception {
        Process process = new ProcessBuilder(System.getenv("KEYMILL_TEST_MARIADB"), verb).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        assertTrue(process.waitFor(300, TimeUnit.SECONDS));
        assertEquals(0, process.exitValue());
    }

    @Test
    void a_server_stopped_for_ten_seconds_is_not_felt_while_the_runway_lasts_then_a_clear_error_and_back() throws Exception {
        assumeTrue(System.getenv("KEYMILL_TEST_MARIADB") != null, "not run: KEYMILL_TEST_MARIADB is no script");
        try (Mill patient = Mill.open(url + "?timeout=25s&connect_timeout=25s")) {
            patient.init();
        }
        try (Mill mill = Mill.open(url)) {
            // Four takers at full pace use 20 000 a second: these last, whatever rate a busy machine had before.
            Takers steady = new Takers(mill.segment(unique("steady") + "?buffer=60s&min_step=10000000"), 10);
            Takers short_ = new Takers(mill.segment(unique("short") + "?deadline=300ms&buffer=200ms&min_step=10&order=thread"), 1);
            steady.start(4);
            short_.start(2);
            until("ids flow", 240, () -> steady.taken.get() > 1000 && short_.taken.get() > 1000);
            // Before there were numbers, a busy machine may have been late.
            steady.errors.clear();
            long before = steady.taken.get();
            mariadb("kill");
            Thread.sleep(10_000);
            long without = steady.taken.get() - before;
            mariadb("start");
            long back = short_.taken.get();
            until("ids flow again", 240, () -> short_.taken.get() > back + 2000);
            steady.stop();
            short_.stop();
            assertTrue(without > 1000, "only " + without + " ids flowed without a server");
            assertEquals(List.of(), List.copyOf(steady.errors), "felt although the runway lasted");
            assertTrue(short_.errors.size() > 3, "a short runway must end");
            for (Refusal refusal : short_.errors) {
                assertTrue(refusal.code == Code.STORE_UNAVAILABLE || refusal.code == Code.DEADLINE, refusal.toString());
                // The machine may be busy; the server is away for longer.
                assertTrue(refusal.millis < 8300, refusal + " with a deadline of 300 ms");
            }
            System.out.println("store stopped for 10 s: " + without + " ids from memory without an error, " + short_.errors.size()
                    + " refusals beyond a runway of 200 ms, then back");
        }
    }

    private static final class Refusal {
        private final Code code;
        private final long millis;

        Refusal(Code code, long millis) {
            this.code = code;
            this.millis = millis;
        }

        @Override
        public String toString() {
            return code + " after " + millis + " ms";
        }
    }

    private static final class Takers {
        private final Source source;
        private final int batch;
        private final AtomicLong taken = new AtomicLong();
        private final Queue<Refusal> errors = new ConcurrentLinkedQueue<>();
        private final AtomicBoolean stop = new AtomicBoolean();
        private final List<Thread> threads = new ArrayList<>();

        Takers(Source source, int batch) {
            this.source = source;
            this.batch = batch;
        }

        void start(int count) {
            for (int i = 0; i < count; i++) {
                Thread thread = new Thread(this::take);
                thread.start();
                threads.add(thread);
            }
        }

        private void take() {
            long last = 0;
            while (!stop.get()) {
                long asked = System.nanoTime();
                try {
                    for (long id : source.take(batch)) {
                        assertTrue(id > last);
                        last = id;
                    }
                    taken.addAndGet(batch);
                } catch (KeymillException e) {
                    errors.add(new Refusal(e.code(), TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - asked)));
                }
                LockSupport.parkNanos(2_000_000);
            }
        }

        void stop() throws InterruptedException {
            stop.set(true);
            for (Thread thread : threads) {
                thread.join(60_000);
            }
        }
    }
}
