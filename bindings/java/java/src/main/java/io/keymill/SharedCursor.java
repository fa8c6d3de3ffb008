package io.keymill;

import java.util.concurrent.atomic.AtomicBoolean;

/** Padding: no other object shares the cache lines of the fields. */
abstract class SharedCursorFront {
    long f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15;
}

/** The fields of a shared cursor. */
abstract class SharedCursorFields extends SharedCursorFront {
    /** The numbers that callers count through now. */
    volatile Lease lease = Lease.NONE;
    SourceBox source;
    /** Set while one thread fetches the next lease; it never waits for a store while it is set. */
    AtomicBoolean leasing;
    /** Touched only by the thread that set {@code leasing}. */
    LeaseBuffer buffer;
}

/**
 * A cursor that threads share. It counts through one {@link Lease} after another.
 *
 * <p><b>No number is given twice.</b> A lease's numbers belong to this cursor alone. A caller adds to the lease's count once and
 * gets the numbers between the count before and after; those below the lease's size exist, and each count is reached once. A
 * lease is never refilled: the next one is a new object, so a thread that still holds the old one finds it used up.
 *
 * <p><b>Numbers rise.</b> Leases are made by one thread at a time, and the core's leases rise. A new lease is published
 * only over a lease that is used up or revoked. A call that begins after another ended reads the other's lease or a
 * later one; in the same lease, its count comes later. (A thread that read the word just before it was raised may still
 * take an old number afterwards; its call had begun before any call that got a newer one ended.)
 *
 * <p><b>A close ends it.</b> Where numbers may expire, each caller compares the lease's word. Where only a close ends them, the
 * close sets the count above the lease's size, and a thread that publishes the next lease checks for a close afterwards.
 *
 * <p><b>Batches do not overtake.</b> A batch takes what the lease has left, and only then from the next lease, which it
 * publishes with its own part counted already.
 */
final class SharedCursor extends SharedCursorFields {
    long g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15;

    SharedCursor(SourceBox source) {
        this.source = source;
        this.leasing = new AtomicBoolean();
        this.buffer = new LeaseBuffer(source.expires);
    }

    /** A number after {@code seen} gave none; 0 where nothing is in memory and the caller does not wait. */
    long next(Lease seen, Wait wait) {
        Lease old = seen;
        for (;;) {
            Lease lease = renew(old, wait);
            if (lease == null) {
                return 0;
            }
            if (lease.alive()) {
                long at = Atomics.use(lease, 1);
                if (at < lease.size) {
                    return lease.lo + at;
                }
            }
            old = lease;
        }
    }

    /** A text, as {@link #next}; null for 0. */
    String text(Lease seen, Wait wait) {
        Lease old = seen;
        for (;;) {
            Lease lease = renew(old, wait);
            if (lease == null) {
                return null;
            }
            if (lease.alive()) {
                long at = Atomics.use(lease, 1);
                if (at < lease.size) {
                    return lease.prefix.textOf(lease.lo + at, lease.width);
                }
            }
            old = lease;
        }
    }

    /** A lease other than {@code old}, which is used up or revoked; null where there is none and the caller does not wait. */
    private Lease renew(Lease old, Wait wait) {
        for (int turns = 0;;) {
            Lease now = lease;
            if (now != old) {
                return now;
            }
            if (!leasing.compareAndSet(false, true)) {
                turns = Threads.spin(turns);
                continue;
            }
            long pause;
            try {
                now = lease;
                if (now != old) {
                    return now;
                }
                pause = source.lease(buffer, SourceBox.BLOCK, 1, wait);
                if (pause == 0) {
                    now = new Lease(buffer, 0);
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

    /** Takes all that the batch lacks, in rising order. Only a race with other callers can cost numbers when it fails. */
    void take(Batch batch, Wait wait) {
        for (int turns = 0; batch.lacks() > 0;) {
            Lease now = lease;
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
                now = lease;
                long left = now.alive() ? now.left() : 0;
                if (left >= batch.lacks()) {
                    continue;
                }
                // Fetched before the rest of the present lease is taken, so that an outage costs no numbers.
                long lacks = batch.lacks() - left;
                pause = source.lease(buffer, SourceBox.BLOCK, lacks, wait);
                if (pause == 0) {
                    Lease next = new Lease(buffer, 0);
                    if (left > 0 && now.alive()) {
                        // Counts past its end: later callers find the lease used up.
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

    private void publish(Lease next) {
        lease = next;
        // Checked after the lease is published: a close sets its flag first and empties leases then.
        if (source.isClosed()) {
            next.empty();
        }
    }

    /**
     * Gives back the numbers above the count. The count is raised above the size first, so no caller counts to one of them any more.
     */
    void giveBack() {
        for (int turns = 0; !leasing.compareAndSet(false, true);) {
            turns = Threads.spin(turns);
        }
        try {
            Lease now = lease;
            long at = Atomics.use(now, now.size);
            if (at < now.size) {
                source.giveBack(buffer, now.leasedAt, now.lo + at, now.lo + now.size);
            }
        } finally {
            leasing.set(false);
        }
    }

    /** The mill was closed. */
    void empty() {
        lease.empty();
    }

    private static void take(Batch batch, Lease lease) {
        long wanted = batch.lacks();
        long at = Atomics.use(lease, wanted);
        if (at < lease.size) {
            long lo = lease.lo + at;
            batch.add(lo, lo + Math.min(wanted, lease.size - at), lease.prefix, lease.width);
        }
    }
}
