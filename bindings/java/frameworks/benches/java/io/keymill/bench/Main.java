package io.keymill.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.logging.LogManager;
import org.openjdk.jmh.profile.GCProfiler;
import org.openjdk.jmh.results.BenchmarkResult;
import org.openjdk.jmh.results.IterationResult;
import org.openjdk.jmh.results.RunResult;
import org.openjdk.jmh.runner.Runner;
import org.openjdk.jmh.runner.RunnerException;
import org.openjdk.jmh.runner.options.OptionsBuilder;
import org.openjdk.jmh.runner.options.TimeValue;
import org.openjdk.jmh.runner.options.VerboseMode;

/** Prints the tables of the frameworks: {@code Main ROUNDS LOG JAVA…}; the hooks on every JVM that is named. */
public final class Main {
    /** A row of {@link Hooks}, its name, and the row of the core that it stands on. */
    private static final String[][] HOOKS = {
        {"source_next", "`source.next()`", "source_next"},
        {"source_boxed", "`source.next()` as a `Long` (bound)", "source_next"},
        {"hibernate", "**Hibernate**, `KeymillIdGenerator`", "source_next"},
        {"mybatisPlus", "**MyBatis-Plus**, `KeymillIdentifierGenerator`", "source_next"},
        {"mybatis", "**MyBatis**, `KeymillInterceptor`, one object", "source_next"},
        {"mybatis_dynamic", "**MyBatis**, one object, a `<script>`, `{table}`", "source_next"},
        {"mybatisFlex", "**MyBatis-Flex**, `KeymillKeyGenerator`", "source_next"},
        {"springData", "**Spring Data JDBC**, a class", "source_next"},
        {"springData_r2dbc", "**Spring Data R2DBC**, a class", "source_next"},
        {"springData_children", "**Spring Data JDBC**, each of an aggregate of ten", "source_next"},
        {"record_bound", "Spring Data's own copy of a record (bound)", "source_next"},
        {"springData_record", "**Spring Data JDBC**, a record", "source_next"},
        {"shardingSphere", "**ShardingSphere**, one key", "source_next"},
        {"defaultMill", "any of them, from the default mill", "source_next"},
        {"source_take", "`source.take(1000)`", "source_take"},
        {"mybatis_list", "**MyBatis**, a list of 1000", "source_take"},
        {"mybatis_each", "**MyBatis**, a list of 1000 in a `<foreach>`, `{table}`", "source_take"},
        {"shardingSphere_list", "**ShardingSphere**, 1000 keys", "source_take"},
    };

    /** Measures one framework on one database. */
    private interface Measured {
        Map<String, double[]> on(Database database, double warmUp, double seconds);
    }

    private Main() {}

    public static void main(String[] arguments) throws RunnerException, IOException {
        LogManager.getLogManager().reset();
        int rounds = Integer.parseInt(arguments[0]);
        String[] javas = Arrays.copyOfRange(arguments, 2, arguments.length);
        String only = System.getProperty("only", ".*");
        if ("table_hibernate".matches(only)) {
            print("1000 entities in a transaction, Hibernate 7.4.13", Hibernate::measure);
        }
        if ("table_plus".matches(only)) {
            print("1000 rows by `insert(Collection)`, MyBatis-Plus 3.5.17", Plus::measure);
        }
        hooks(rounds, arguments[1], javas, only);
    }

    private static void print(String title, Measured measured) {
        Database[] databases = System.getenv("KEYMILL_TEST_MYSQL") == null ? new Database[] {Database.H2} : Database.values();
        Map<String, List<double[]>> rows = new LinkedHashMap<>();
        StringBuilder head = new StringBuilder("| " + title + " |");
        StringBuilder line = new StringBuilder("|---|");
        for (Database database : databases) {
            boolean h2 = database == Database.H2;
            head.append(h2 ? " H2, rows/s | of the bound |" : " MariaDB, rows/s | of the bound |");
            line.append("---:|---:|");
            measured.on(database, 4, h2 ? 3 : 8).forEach((name, figures) -> rows.computeIfAbsent(name, any -> new ArrayList<>()).add(figures));
        }
        System.out.println(head);
        System.out.println(line);
        rows.forEach((name, all) -> {
            StringBuilder row = new StringBuilder("| " + name + " |");
            for (double[] figures : all) {
                row.append(String.format(Locale.ROOT, " %,d | %.2f |", Math.round(figures[0] / 100) * 100, figures[1]).replace(',', ' '));
            }
            System.out.println(row);
        });
        System.out.println();
    }

    private static void hooks(int rounds, String log, String[] javas, String only) throws RunnerException, IOException {
        Map<String, List<Double>> times = new HashMap<>();
        Map<String, List<Double>> bytes = new HashMap<>();
        for (int round = 0; round < rounds; round++) {
            for (String[] hook : HOOKS) {
                for (String java : javas) {
                    if (hook[0].matches(only)) {
                        measure(java, hook[0], log, times.computeIfAbsent(java + hook[0], any -> new ArrayList<>()), bytes.computeIfAbsent(java + hook[0], any -> new ArrayList<>()));
                    }
                }
            }
        }
        StringBuilder head = new StringBuilder("| what an id costs |");
        StringBuilder line = new StringBuilder("|---|");
        for (String java : javas) {
            head.append(" JDK ").append(release(java)).append(": ns | over the core | bytes |");
            line.append("---:|---:|---:|");
        }
        System.out.println(head);
        System.out.println(line);
        for (String[] hook : HOOKS) {
            if (hook[0].matches(only)) {
                StringBuilder row = new StringBuilder("| " + hook[1] + " |");
                for (String java : javas) {
                    double time = median(times.get(java + hook[0]));
                    boolean over = !hook[0].equals(hook[2]) && times.containsKey(java + hook[2]);
                    row.append(String.format(Locale.ROOT, " %.1f | %s | %.0f |", time, over ? String.format(Locale.ROOT, "%.1f", time - median(times.get(java + hook[2]))) : "", median(bytes.get(java + hook[0]))));
                }
                System.out.println(row);
            }
        }
    }

    private static void measure(String java, String row, String log, List<Double> times, List<Double> bytes) throws RunnerException {
        OptionsBuilder options = new OptionsBuilder();
        options.include("\\." + row + "$")
                .jvm(java)
                .forks(1)
                // A small heap that is touched before the start, as the core's bench has it.
                .jvmArgs("-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch", "-XX:+UseG1GC")
                .warmupIterations(2)
                .warmupTime(TimeValue.milliseconds(300))
                .measurementIterations(3)
                .measurementTime(TimeValue.milliseconds(120))
                .addProfiler(GCProfiler.class)
                // What newer JVMs warn of would stand between the tables.
                .output(log)
                .verbosity(VerboseMode.SILENT)
                .shouldFailOnError(true);
        for (RunResult result : new Runner(options.build()).run()) {
            for (BenchmarkResult fork : result.getBenchmarkResults()) {
                for (IterationResult iteration : fork.getIterationResults()) {
                    times.add(iteration.getPrimaryResult().getScore());
                    iteration.getSecondaryResults().forEach((label, figure) -> {
                        if (label.contains("gc.alloc.rate.norm")) {
                            bytes.add(figure.getScore());
                        }
                    });
                }
            }
        }
    }

    private static double median(List<Double> values) {
        return Rounds.median(values.stream().mapToDouble(d -> d).toArray());
    }

    private static String release(String java) throws IOException {
        for (String line : Files.readAllLines(Path.of(java).toRealPath().getParent().resolveSibling("release"))) {
            if (line.startsWith("JAVA_VERSION=")) {
                return line.replaceAll("[^\"]*\"([0-9]+).*", "$1");
            }
        }
        return "?";
    }
}
