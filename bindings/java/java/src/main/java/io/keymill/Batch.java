package io.keymill;

import java.util.Arrays;

/**
 * A batch of numbers as it grows: runs of numbers, each with its date part. It is written out when all of it is there, so
 * that a caller who is refused finds the array as it was. Nearly always one run is all.
 */
final class Batch {
    private long lacking;
    private long[] bounds = new long[2];
    private Prefix[] prefixes = new Prefix[1];
    private int width = 1;
    private int runs;

    Batch(long count) {
        this.lacking = count;
    }

    long lacks() {
        return lacking;
    }

    /** Numbers that are this batch's now. */
    void add(long lo, long hi, Prefix prefix, int width) {
        if (runs == prefixes.length) {
            prefixes = Arrays.copyOf(prefixes, 2 * runs);
            bounds = Arrays.copyOf(bounds, 4 * runs);
        }
        bounds[2 * runs] = lo;
        bounds[2 * runs + 1] = hi;
        prefixes[runs++] = prefix;
        this.width = width;
        lacking -= hi - lo;
    }

    void write(long[] out) {
        int from = 0;
        for (int run = 0; run < runs; run++) {
            long lo = bounds[2 * run];
            int count = (int) (bounds[2 * run + 1] - lo);
            for (int i = 0; i < count; i++) {
                out[from + i] = lo + i;
            }
            from += count;
        }
    }

    void write(String[] out) {
        int at = 0;
        for (int run = 0; run < runs; run++) {
            Prefix prefix = prefixes[run];
            byte[] scratch = prefix.scratch();
            for (long number = bounds[2 * run]; number < bounds[2 * run + 1]; number++) {
                out[at++] = scratch == null
                        ? prefix.textOf(number, width)
                        : Digits.text(scratch, prefix.length, number, width);
            }
        }
    }
}
