package io.keymill;

import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicLongFieldUpdater;

/** The few operations for which Java 9 has something better; {@code META-INF/versions/9} has that. */
final class Atomics {
    private static final AtomicLongFieldUpdater<RunCount> USED =
            AtomicLongFieldUpdater.newUpdater(RunCount.class, "used");

    private Atomics() {}

    /**
     * A revocation word. A plain read: the compiler may keep its value through a tight loop, but never through a lease,
     * so a revocation is seen after one block at the latest.
     */
    static long read(ByteBuffer word) {
        return word.getLong(0);
    }

    /** Where a block ends; a volatile read, which x86 gives for nothing. */
    static long end(BlockFields block) {
        return block.end;
    }

    /** Counts {@code n} numbers of a run; answers with the count before. */
    static long use(RunCount run, long n) {
        return USED.getAndAdd(run, n);
    }

    /** Writes eight characters, the first in the lowest byte. */
    static void put8(byte[] text, int at, long characters) {
        for (int i = 0; i < 8; i++) {
            text[at + i] = (byte) (characters >>> (8 * i));
        }
    }

    /** A spinning thread's breath. */
    static void pause() {}
}
