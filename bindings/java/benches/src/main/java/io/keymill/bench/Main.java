package io.keymill.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

/**
 * Runs every row on every JVM that is named, with one thread and with two, and prints the table with its goals:
 * {@code Main ROUNDS OUT.json JAVA…}. A row's figure is the median over the iterations of all its rounds.
 */
public final class Main {
    private static final String[] ROWS = {
        "bound_ownField", "bound_threadLocal", "bound_array1000", "bound_string16", "atomicLong", "bound_atomicAndCall", "cosid_chain", "keymill_handle", "keymill_thread", "keymill_process", "keymill_lazyThread", "keymill_lazyProcess", "keymill_fill1000",
        "keymill_take1000", "keymill_snowflake", "keymill_nextFor", "keymill_nextForText", "clock_millis", "yitter_1_21", "cosid_snowflake", "uid_cached", "shardingsphere_key", "hutool_snowflake", "uuid7", "tsid", "seed_factory",
        "cosid_chain_date", "keymill_factory_thread", "keymill_factory_process", "seed_factory_mariadb",
        "keymill_factory_mariadb",
    };

    /** Row, its rival, the least ratio with one thread and with two (0: no goal); for JVMs before 25, and from 25 on. */
    private static final Object[][] GOALS = {
        {"keymill_handle", "cosid_chain", 5, 15, 5, 15},
        {"keymill_thread", "cosid_chain", 3, 12, 3, 12},
        {"keymill_process", "cosid_chain", 1.2, 1.8, 1.2, 1.8},
        {"keymill_process", "atomicLong", 0.9, 0, 0.9, 0},
        {"keymill_snowflake", "yitter_1_21", 2, 2, 2, 2},
        {"keymill_snowflake", "cosid_snowflake", 2, 2, 2, 2},
        {"keymill_snowflake", "uid_cached", 2, 2, 2, 2},
        {"keymill_factory_thread", "seed_factory", 28, 70, 9, 24},
        {"keymill_factory_process", "seed_factory", 17, 13, 5, 5},
        {"keymill_factory_thread", "cosid_chain_date", 9, 11, 9, 11},
        {"keymill_factory_process", "cosid_chain_date", 5, 2, 5, 2},
        {"keymill_factory_mariadb", "seed_factory_mariadb", 40, 40, 40, 40},
    };

    private final Map<String, List<Double>> rates = new LinkedHashMap<>();

    private Main() {}

    public static void main(String[] arguments) throws RunnerException, IOException {
        Main main = new Main();
        int rounds = Integer.parseInt(arguments[0]);
        String[] javas = Arrays.copyOfRange(arguments, 2, arguments.length);
        String only = System.getProperty("only", ".*");
        for (int round = 0; round < rounds; round++) {
            for (String row : ROWS) {
                if (!row.matches(only) || row.endsWith("mariadb") && System.getenv("KEYMILL_TEST_MYSQL") == null) {
                    continue;
                }
                for (String java : javas) {
                    for (int threads = 1; threads <= 2; threads++) {
                        main.measure(java, row, threads);
                    }
                }
            }
        }
        for (String java : javas) {
            main.print(java);
        }
        main.write(Path.of(arguments[1]));
    }

    private static String key(String java, String row, int threads) {
        return java + " " + row + " " + threads;
    }

    private void measure(String java, String row, int threads) throws RunnerException {
        boolean server = row.endsWith("mariadb");
        OptionsBuilder options = new OptionsBuilder();
        options.include("\\." + Pattern.quote(row) + "$")
                .jvm(java)
                .forks(1)
                .threads(threads)
                // A small heap that is touched before the start: first touches are slow on virtual machines.
                .jvmArgs("-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch", "-XX:+UseG1GC")
                .warmupIterations(server ? 2 : 3)
                .warmupTime(TimeValue.milliseconds(500))
                .measurementIterations(server ? 4 : 5)
                .measurementTime(TimeValue.milliseconds(server ? 500 : 200))
                .verbosity(VerboseMode.SILENT)
                .syncIterations(true)
                .shouldFailOnError(true);
        System.err.print(".");
        for (RunResult result : new Runner(options.build()).run()) {
            List<Double> rates = this.rates.computeIfAbsent(key(java, row, threads), k -> new ArrayList<>());
            result.getBenchmarkResults().forEach(fork -> fork.getIterationResults().forEach(
                    iteration -> rates.add(iteration.getPrimaryResult().getScore())));
        }
    }

    private double rate(String java, String row, int threads) {
        List<Double> all = rates.get(key(java, row, threads));
        if (all == null) {
            return Double.NaN;
        }
        double[] sorted = all.stream().mapToDouble(d -> d).sorted().toArray();
        double middle = sorted[sorted.length / 2];
        return row.endsWith("1000") ? middle * 1000 : middle;
    }

    private void print(String java) throws IOException {
        int release = release(java);
        System.out.printf("%n### JDK %d%n%n", release);
        System.out.printf("| row | 1 thread, M/s | ns | 2 threads, M/s | ns in all |%n|---|---:|---:|---:|---:|%n");
        for (String row : ROWS) {
            double one = rate(java, row, 1);
            double two = rate(java, row, 2);
            if (!Double.isNaN(one)) {
                System.out.printf(Locale.ROOT, "| %s | %.4g | %.4g | %.4g | %.4g |%n", row, one, 1000 / one, two, 1000 / two);
            }
        }
        System.out.printf("%n| ratio | 1 thread | goal | 2 threads | goal | |%n|---|---:|---:|---:|---:|---|%n");
        for (Object[] goal : GOALS) {
            double one = rate(java, (String) goal[0], 1) / rate(java, (String) goal[1], 1);
            double two = rate(java, (String) goal[0], 2) / rate(java, (String) goal[1], 2);
            int at = release >= 25 ? 4 : 2;
            double wantOne = ((Number) goal[at]).doubleValue();
            double wantTwo = ((Number) goal[at + 1]).doubleValue();
            if (!Double.isNaN(one)) {
                System.out.printf(Locale.ROOT, "| %s / %s | %.3g | %s | %.3g | %s | %s |%n", goal[0], goal[1], one, goal[at], two,
                        goal[at + 1], one >= wantOne && two >= wantTwo ? "met" : "**missed**");
            }
        }
    }

    private static int release(String java) throws IOException {
        Path file = Path.of(java).toRealPath().getParent().getParent().resolve("release");
        for (String line : Files.readAllLines(file)) {
            if (line.startsWith("JAVA_VERSION=")) {
                return Integer.parseInt(line.replaceAll("[^\"]*\"([0-9]+).*", "$1"));
            }
        }
        return 0;
    }

    private void write(Path file) throws IOException {
        StringBuilder json = new StringBuilder("{");
        Map<String, List<Double>> sorted = new TreeMap<>(rates);
        sorted.forEach((key, all) -> json.append(json.length() > 1 ? ",\n" : "\n").append('"').append(key).append("\": ").append(all));
        Files.writeString(file, json.append("\n}\n"));
    }
}
