package io.keymill.bench;

import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/** Transactions of 1000 rows that take turns: each round runs every one once, in an order of its own. */
final class Rounds {
    static final int ROWS = 1000;

    private final Map<String, Runnable> transactions = new LinkedHashMap<>();
    private final Runnable clear;

    /** {@code clear} empties the tables, now and then and outside the time. */
    Rounds(Runnable clear) {
        this.clear = clear;
    }

    /** The last one is the bound. */
    void add(String name, Runnable transaction) {
        transactions.put(name, transaction);
    }

    /** Of each transaction the median of its rows a second, and of its ratios to the bound of the same round. */
    Map<String, double[]> measure(double warmUp, double seconds) {
        String[] names = transactions.keySet().toArray(new String[0]);
        run(names, warmUp, 5);
        clear.run();
        double[][] times = run(names, seconds, 15);
        Map<String, double[]> figures = new LinkedHashMap<>();
        double[] bound = times[names.length - 1];
        for (int i = 0; i < names.length; i++) {
            double[] ratios = new double[bound.length];
            for (int round = 0; round < ratios.length; round++) {
                ratios[round] = bound[round] / times[i][round];
            }
            figures.put(names[i], new double[] {ROWS / median(times[i]), median(ratios)});
        }
        return figures;
    }

    private double[][] run(String[] names, double seconds, int atLeast) {
        double[][] times = new double[names.length][];
        Arrays.setAll(times, i -> new double[16]);
        long end = System.nanoTime() + (long) (seconds * 1e9);
        // Not one after the other each time: what a transaction leaves to do behind it would fall on the same neighbour.
        List<Integer> order = IntStream.range(0, names.length).boxed().collect(Collectors.toList());
        Random random = new Random(1);
        int round = 0;
        for (; round < atLeast || System.nanoTime() < end; round++) {
            Collections.shuffle(order, random);
            for (int i : order) {
                long began = System.nanoTime();
                transactions.get(names[i]).run();
                double time = (System.nanoTime() - began) / 1e9;
                if (round == times[i].length) {
                    times[i] = Arrays.copyOf(times[i], 2 * round);
                }
                times[i][round] = time;
            }
            if (round % 100 == 99) {
                clear.run();
            }
        }
        for (int i = 0; i < times.length; i++) {
            times[i] = Arrays.copyOf(times[i], round);
        }
        return times;
    }

    static double median(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
