package io.keymill.bench;

import java.util.ArrayList;
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

/** Prints the tables of the frameworks: {@code Main [ROUNDS]}. */
public final class Main {
    /** Row of {@link Hooks}, its name, the row of the core that it stands on, whether it is a hook. */
    private static final String[][] HOOKS = {
        {"source_next", "`source.next()`", "source_next"},
        {"source_boxed", "`source.next()` as a `Long` (bound)", "source_next"},
        {"hibernate", "**Hibernate**, `KeymillIdGenerator`", "source_next"},
        {"mybatisPlus", "**MyBatis-Plus**, `KeymillIdentifierGenerator`", "source_next"},
        {"mybatis", "**MyBatis**, `KeymillInterceptor`, one object", "source_next"},
        {"springData", "**Spring Data JDBC**, a class", "source_next"},
        {"springData_r2dbc", "**Spring Data R2DBC**, a class", "source_next"},
        {"springData_children", "**Spring Data JDBC**, each of an aggregate of ten", "source_next"},
        {"record_bound", "Spring Data's own copy of a record (bound)", "source_next"},
        {"springData_record", "**Spring Data JDBC**, a record", "source_next"},
        {"shardingSphere", "**ShardingSphere**, one key", "source_next"},
        {"defaultMill", "any of them, from the default mill", "source_next"},
        {"source_take", "`source.take(1000)`", "source_take"},
        {"mybatis_list", "**MyBatis**, a list of 1000", "source_take"},
        {"shardingSphere_list", "**ShardingSphere**, 1000 keys", "source_take"},
    };

    /** Measures one framework on one database. */
    private interface Measured {
        Map<String, double[]> on(Database database, double warmUp, double seconds);
    }

    private Main() {}

    public static void main(String[] arguments) throws RunnerException {
        LogManager.getLogManager().reset();
        int rounds = arguments.length == 0 ? 2 : Integer.parseInt(arguments[0]);
        String only = System.getProperty("only", ".*");
        if ("table_hibernate".matches(only)) {
            print("1000 entities in a transaction, Hibernate 7.4.13", Hibernate::measure);
        }
        if ("table_plus".matches(only)) {
            print("1000 rows by `insert(Collection)`, MyBatis-Plus 3.5.17", Plus::measure);
        }
        hooks(rounds, only);
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
            measured.on(database, h2 ? 6 : 8, h2 ? 5 : 12).forEach((name, figures) -> rows.computeIfAbsent(name, any -> new ArrayList<>()).add(figures));
        }
        System.out.println(head);
        System.out.println(line);
        rows.forEach((name, all) -> {
            StringBuilder row = new StringBuilder("| " + name + " |");
            for (double[] figures : all) {
                row.append(String.format(Locale.ROOT, " %d | %.2f |", Math.round(figures[0] / 100) * 100, figures[1]));
            }
            System.out.println(row);
        });
        System.out.println();
    }

    private static void hooks(int rounds, String only) throws RunnerException {
        Map<String, List<Double>> times = new LinkedHashMap<>();
        Map<String, List<Double>> bytes = new LinkedHashMap<>();
        for (int round = 0; round < rounds; round++) {
            for (String[] hook : HOOKS) {
                if (hook[0].matches(only)) {
                    measure(hook[0], times, bytes);
                }
            }
        }
        System.out.println("| an id's cost | ns | over the core | bytes |");
        System.out.println("|---|---:|---:|---:|");
        for (String[] hook : HOOKS) {
            if (times.containsKey(hook[0])) {
                double over = times.containsKey(hook[2]) ? median(times, hook[0]) - median(times, hook[2]) : Double.NaN;
                System.out.printf(Locale.ROOT, "| %s | %.1f | %s | %.0f |%n", hook[1], median(times, hook[0]), hook[0].equals(hook[2]) ? "" : String.format(Locale.ROOT, "%.1f", over), median(bytes, hook[0]));
            }
        }
    }

    private static void measure(String row, Map<String, List<Double>> times, Map<String, List<Double>> bytes) throws RunnerException {
        OptionsBuilder options = new OptionsBuilder();
        options.include("\\." + row + "$")
                .forks(1)
                .jvmArgs("-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch", "-XX:+UseG1GC")
                .warmupIterations(4)
                .warmupTime(TimeValue.milliseconds(400))
                .measurementIterations(7)
                .measurementTime(TimeValue.milliseconds(200))
                .addProfiler(GCProfiler.class)
                .verbosity(VerboseMode.SILENT)
                .shouldFailOnError(true);
        for (RunResult result : new Runner(options.build()).run()) {
            for (BenchmarkResult fork : result.getBenchmarkResults()) {
                for (IterationResult iteration : fork.getIterationResults()) {
                    times.computeIfAbsent(row, any -> new ArrayList<>()).add(iteration.getPrimaryResult().getScore());
                    iteration.getSecondaryResults().forEach((label, figure) -> {
                        if (label.contains("gc.alloc.rate.norm")) {
                            bytes.computeIfAbsent(row, any -> new ArrayList<>()).add(figure.getScore());
                        }
                    });
                }
            }
        }
    }

    private static double median(Map<String, List<Double>> all, String row) {
        return Rounds.median(all.get(row).stream().mapToDouble(d -> d).toArray());
    }
}
