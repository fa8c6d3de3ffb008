package io.keymill;

import java.util.Arrays;

/**
 * A batch of numbers as it grows: ranges, each with its date part. It is written out when all of it is there, so that an
 * exception leaves the array as it was. Nearly always one range is all.
 */
final class Batch {
    private long lacking;
    private long[] bounds = new long[2];
    private Prefix[] prefixes = new Prefix[1];
    private int width = 1;
    private int ranges;

    Batch(long count) {
        this.lacking = count;
    }

    long lacks() {
        return lacking;
    }

    /** Adds numbers that were taken for this batch. */
    void add(long lo, long hi, Prefix prefix, int width) {
        if (ranges == prefixes.length) {
            prefixes = Arrays.copyOf(prefixes, 2 * ranges);
            bounds = Arrays.copyOf(bounds, 4 * ranges);
        }
        bounds[2 * ranges] = lo;
        bounds[2 * ranges + 1] = hi;
        prefixes[ranges++] = prefix;
        this.width = width;
        lacking -= hi - lo;
    }

    void write(long[] out) {
        int from = 0;
        for (int range = 0; range < ranges; range++) {
            long lo = bounds[2 * range];
            int count = (int) (bounds[2 * range + 1] - lo);
            for (int i = 0; i < count; i++) {
                out[from + i] = lo + i;
            }
            from += count;
        }
    }

    void write(String[] out) {
        int at = 0;
        for (int range = 0; range < ranges; range++) {
            Prefix prefix = prefixes[range];
            byte[] scratch = prefix.scratch();
            for (long number = bounds[2 * range]; number < bounds[2 * range + 1]; number++) {
                out[at++] = scratch == null
                        ? prefix.textOf(number, width)
                        : Digits.text(scratch, prefix.length, number, width);
            }
        }
    }
}
