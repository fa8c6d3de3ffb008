package io.keymill;

import java.util.concurrent.atomic.AtomicBoolean;

/** Keeps whatever lies before a lane in memory away from it. */
abstract class LaneFront {
    long f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15;
}

/** The fields of a lane. */
abstract class LaneFields extends LaneFront {
    /** The numbers that callers count through now. */
    volatile Run run = Run.NONE;
    Well well;
    /** Set while one thread leases the next run; it never waits for a store while it is set. */
    AtomicBoolean leasing;
    /** Touched only by the thread that set {@code leasing}. */
    Lease lease;
}

/**
 * A cursor that threads share, over leased runs of numbers.
 *
 * <p><b>No number is given twice.</b> A run's numbers are this lane's alone. Who takes, adds to the run's count once and
 * gets the numbers between the count before and after; those under the run's size exist, and each count is reached once.
 * A run is never refilled: the next lease is a new object, so a thread that still holds the old one finds it used up.
 *
 * <p><b>Numbers rise.</b> Leases are made by one thread at a time, and the core's leases rise. A new run is published
 * only over one that is used up or revoked. A call that begins after another ended reads the run that one took from, or a
 * later one; in the same run, its count comes later. (A thread that looked at the word just before it was raised may
 * still take an old number afterwards; its call had begun before any call that got a newer one ended.)
 *
 * <p><b>A close ends it.</b> Where numbers may expire, each look at a run asks its word. Where only a close ends them, the
 * close counts the run up to more than it has, and whoever publishes the next one asks afterwards whether there was a close.
 *
 * <p><b>Batches do not overtake.</b> A batch takes what the run has left, and only then from the next lease, which it
 * publishes with its own part counted already.
 */
final class Lane extends LaneFields {
    long g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15;

    Lane(Well well) {
        this.well = well;
        this.leasing = new AtomicBoolean();
        this.lease = new Lease(well.expires);
    }

    /** A number when the run that was looked at gave none; 0 where nothing is in memory and the caller does not wait. */
    long next(Run seen, Wait wait) {
        Run old = seen;
        for (;;) {
            Run run = renew(old, wait);
            if (run == null) {
                return 0;
            }
            if (run.alive()) {
                long at = Atomics.use(run, 1);
                if (at < run.size) {
                    return run.lo + at;
                }
            }
            old = run;
        }
    }

    /** A text, as {@link #next}; null for 0. */
    String text(Run seen, Wait wait) {
        Run old = seen;
        for (;;) {
            Run run = renew(old, wait);
            if (run == null) {
                return null;
            }
            if (run.alive()) {
                long at = Atomics.use(run, 1);
                if (at < run.size) {
                    return run.prefix.textOf(run.lo + at, run.width);
                }
            }
            old = run;
        }
    }

    /** A run other than {@code old}, which is used up or revoked; null where there is none and the caller does not wait. */
    private Run renew(Run old, Wait wait) {
        for (int turns = 0;;) {
            Run now = run;
            if (now != old) {
                return now;
            }
            if (!leasing.compareAndSet(false, true)) {
                turns = Threads.spin(turns);
                continue;
            }
            long pause;
            try {
                now = run;
                if (now != old) {
                    return now;
                }
                pause = well.lease(lease, lease.size(well.block), 1, wait);
                if (pause == 0) {
                    now = new Run(lease, 0);
                    publish(now);
                    return now;
                }
            } finally {
                leasing.set(false);
            }
            if (!wait.pause(pause)) {
                return null;
            }
        }
    }

    /** Takes all the batch lacks, in rising order. Fails with part of it in hand only where other callers race. */
    void take(Batch batch, Wait wait) {
        for (int turns = 0; batch.lacks() > 0;) {
            Run now = run;
            if (now.left() >= batch.lacks() && now.alive()) {
                take(batch, now);
                continue;
            }
            if (!leasing.compareAndSet(false, true)) {
                turns = Threads.spin(turns);
                continue;
            }
            long pause;
            try {
                now = run;
                long left = now.alive() ? now.left() : 0;
                if (left >= batch.lacks()) {
                    continue;
                }
                // Leased before the rest of the run is taken: a store that is down costs no numbers.
                long lacks = batch.lacks() - left;
                pause = well.lease(lease, well.batchSize(lease, lacks), lacks, wait);
                if (pause == 0) {
                    Run next = new Run(lease, 0);
                    if (left > 0 && now.alive()) {
                        // More than it has: whoever comes now finds the run used up.
                        take(batch, now);
                    }
                    if (batch.lacks() > 0 && next.alive()) {
                        take(batch, next);
                    }
                    publish(next);
                }
            } finally {
                leasing.set(false);
            }
            if (pause > 0) {
                wait.pause(pause);
            }
        }
    }

    private void publish(Run next) {
        run = next;
        // After it was published: whoever closes sets the mark first and looks for runs then.
        if (well.isClosed()) {
            next.empty();
        }
    }

    /** The mill was closed. */
    void empty() {
        run.empty();
    }

    private static void take(Batch batch, Run run) {
        long wanted = batch.lacks();
        long at = Atomics.use(run, wanted);
        if (at < run.size) {
            long lo = run.lo + at;
            batch.add(lo, lo + Math.min(wanted, run.size - at), run.prefix, run.width);
        }
    }
}
