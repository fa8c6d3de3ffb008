package io.keymill.bench;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.logging.LogManager;

/** Prints the tables of the frameworks. */
public final class Main {
    /** Measures one framework on one database. */
    private interface Measured {
        Map<String, double[]> on(Database database, double warmUp, double seconds);
    }

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        LogManager.getLogManager().reset();
        int rounds = arguments.length == 0 ? 2 : Integer.parseInt(arguments[0]);
        print("1000 entities in a transaction, Hibernate 7.4.13", Hibernate::measure);
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
}
