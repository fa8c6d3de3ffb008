package io.keymill;

import java.nio.ByteBuffer;

/** Padding: no other object shares the cache line of the count. */
abstract class LeaseFront {
    long f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15;
}

/** The one field of a lease that is written. */
abstract class LeaseCount extends LeaseFront {
    /** How many numbers are used; above the size where callers came too late. */
    volatile long used;
}

/** Padding: the fields that every thread reads have another cache line than the count. */
abstract class LeaseGap extends LeaseCount {
    long g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15;
}

/**
 * A range of numbers that threads share. Everything but the count is fixed, so a thread that holds an old lease can only get
 * numbers of that lease, each once, or find it used up. The count starts at 0 and is added to {@code lo}: it cannot
 * overflow, however often an empty lease is asked.
 */
final class Lease extends LeaseGap {
    final long lo;
    final long size;
    /** The numbers may be issued while {@code word} reads {@code leasedAt}; null where only a close ends them. */
    final ByteBuffer word;
    final long leasedAt;
    final Prefix prefix;
    final int width;

    /** What the buffer holds; its first {@code used} numbers are taken already. */
    Lease(LeaseBuffer buffer, long used) {
        this.lo = buffer.lo;
        this.size = buffer.hi - buffer.lo;
        this.word = buffer.word;
        this.leasedAt = buffer.leasedAt;
        this.prefix = buffer.prefix;
        this.width = buffer.width;
        this.used = used;
    }

    private Lease() {
        lo = 0;
        size = 0;
        word = null;
        leasedAt = 0;
        prefix = Prefix.NONE;
        width = 1;
    }

    /** Before the first lease: it has no number. */
    static final Lease NONE = new Lease();

    /** Above the size of any lease, and too low for callers to count it up to an overflow. */
    private static final long ALL = 1L << 62;

    boolean alive() {
        return word == null || Atomics.read(word) == leasedAt;
    }

    /** Nothing of it may be issued any more. Counts that race with this end above the size, too. */
    void empty() {
        used = ALL;
    }

    /** How many numbers are left, at most. */
    long left() {
        return Math.max(0, size - used);
    }
}
