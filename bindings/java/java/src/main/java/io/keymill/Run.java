package io.keymill;

import java.nio.ByteBuffer;

/** Keeps whatever lies before a run in memory away from its counter. */
abstract class RunFront {
    long f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15;
}

/** The one field of a run that is written. */
abstract class RunCount extends RunFront {
    /** How many numbers of the run are used; more than it has, where callers came too late. */
    volatile long used;
}

/** Keeps the counter away from the fields that every thread reads. */
abstract class RunGap extends RunCount {
    long g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15;
}

/**
 * Leased numbers that threads share: everything but the count is fixed, so a thread that holds an old run can only get
 * numbers of that run, each once, or find it used up. The count starts at 0 and is added to {@code lo}: it cannot
 * overflow, however often an empty run is asked.
 */
final class Run extends RunGap {
    final long lo;
    final long size;
    /** The numbers may be issued while {@code word} reads {@code leasedAt}; null where only a close ends them. */
    final ByteBuffer word;
    final long leasedAt;
    final Prefix prefix;
    final int width;

    /** A lease of which the first {@code used} numbers belong to whoever made it. */
    Run(Lease lease, long used) {
        this.lo = lease.lo;
        this.size = lease.hi - lease.lo;
        this.word = lease.word;
        this.leasedAt = lease.leasedAt;
        this.prefix = lease.prefix;
        this.width = lease.width;
        this.used = used;
    }

    private Run() {
        lo = 0;
        size = 0;
        word = null;
        leasedAt = 0;
        prefix = Prefix.NONE;
        width = 1;
    }

    /** Before the first lease: it has no number. */
    static final Run NONE = new Run();

    /** More than any run has, and no number of callers counts it up to an overflow. */
    private static final long ALL = 1L << 62;

    boolean alive() {
        return word == null || Atomics.read(word) == leasedAt;
    }

    /** Nothing of it may be issued any more. Counts that race with this end at more than the run has, too. */
    void empty() {
        used = ALL;
    }

    /** How many numbers are left, at most. */
    long left() {
        return Math.max(0, size - used);
    }
}
