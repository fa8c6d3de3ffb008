package io.keymill;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** The few operations that need VarHandle. */
final class Atomics {
    private static final VarHandle WORD =
            MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.nativeOrder());
    private static final VarHandle TEXT =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
    private static final VarHandle USED;
    private static final VarHandle END;

    static {
        try {
            USED = MethodHandles.lookup().findVarHandle(LeaseCount.class, "used", long.class);
            END = MethodHandles.lookup().findVarHandle(CursorFields.class, "end", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private Atomics() {}

    /** A revocation word; the read is not moved out of a loop. */
    static long read(ByteBuffer word) {
        return (long) WORD.getOpaque(word, 0);
    }

    /** Where a cursor ends; the read is not moved out of a loop. */
    static long end(CursorFields cursor) {
        return (long) END.getOpaque(cursor);
    }

    /** Counts {@code n} numbers of a lease; answers with the count before. */
    static long use(LeaseCount lease, long n) {
        return (long) USED.getAndAdd(lease, n);
    }

    /** Writes eight characters, the first in the lowest byte. */
    static void put8(byte[] text, int at, long characters) {
        TEXT.set(text, at, characters);
    }

    /** A hint to the processor that this thread spins. */
    static void pause() {
        Thread.onSpinWait();
    }
}
