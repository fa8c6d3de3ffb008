package io.keymill;

import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicLongFieldUpdater;

/** The few operations for which Java 9 has something better; {@code META-INF/versions/9} has that. */
final class Atomics {
    private static final AtomicLongFieldUpdater<LeaseCount> USED =
            AtomicLongFieldUpdater.newUpdater(LeaseCount.class, "used");

    private Atomics() {}

    /**
     * A revocation word. A plain read: the compiler may keep its value through a tight loop, but never through a lease,
     * so a revocation is seen after one block at the latest.
     */
    static long read(ByteBuffer word) {
        return word.getLong(0);
    }

    /** Where a cursor ends; a volatile read, which x86 gives for nothing. */
    static long end(CursorFields cursor) {
        return cursor.end;
    }

    /** Counts {@code n} numbers of a lease; answers with the count before. */
    static long use(LeaseCount lease, long n) {
        return USED.getAndAdd(lease, n);
    }

    /** Writes eight characters, the first in the lowest byte. */
    static void put8(byte[] text, int at, long characters) {
        for (int i = 0; i < 8; i++) {
            text[at + i] = (byte) (characters >>> (8 * i));
        }
    }

    /** A hint to the processor that this thread spins. */
    static void pause() {}
}
