package io.keymill;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * The numbers leased last to one cursor. The native library writes them into a small direct buffer, whose address
 * crosses with each call, so that nothing of the JVM is touched in between.
 */
final class LeaseBuffer {
    private static final int LO = 0;
    private static final int HI = 8;
    private static final int LEASED_AT = 16;
    private static final int WORD = 24;
    private static final int WIDTH = 32;
    private static final int PREFIX_LENGTH = 40;
    private static final int PREFIX = 48;
    private static final int MOST_PREFIX = 64;

    private final ByteBuffer bytes = ByteBuffer.allocateDirect(PREFIX + MOST_PREFIX).order(ByteOrder.nativeOrder());
    final long address = Native.address(bytes);

    long lo;
    long hi;
    long leasedAt;
    int width = 1;
    Prefix prefix = Prefix.NONE;
    /** Null where only a close ends the lease: then no caller compares it. */
    ByteBuffer word;
    private long wordAddress;
    private final boolean expires;

    /** How many numbers to ask for, whether they came, and when. */
    private long size;
    private boolean came = true;
    private long cameAt;

    /** A lease is small while the demand is low, so that little is lost. */
    private static final long SMALLEST = 16;
    /** Leases that are used up within this time grow … */
    private static final long SOON = 2_000_000;
    /** … and those that last longer than this shrink. */
    private static final long LATE = 50_000_000;

    LeaseBuffer(boolean expires) {
        this.expires = expires;
    }

    /** How many numbers to ask for, at most {@code block}. A retry after a refusal asks for as many as before: waiting is no demand. */
    long size(long block) {
        if (!came) {
            return size;
        }
        came = false;
        long since = System.nanoTime() - cameAt;
        if (size == 0) {
            size = SMALLEST;
        } else if (since < SOON) {
            size *= 2;
        } else if (since > LATE) {
            size = Math.max(SMALLEST, size / 2);
        }
        size = Math.min(size, block);
        return size;
    }

    /** Reads what was leased. */
    void read() {
        came = true;
        cameAt = System.nanoTime();
        lo = bytes.getLong(LO);
        hi = bytes.getLong(HI);
        leasedAt = bytes.getLong(LEASED_AT);
        width = (int) bytes.getLong(WIDTH);
        long address = bytes.getLong(WORD);
        if (expires && address != wordAddress) {
            // Nearly always the same for the life of a source.
            word = Native.word(address).order(ByteOrder.nativeOrder());
            wordAddress = address;
        }
        int length = (int) bytes.getLong(PREFIX_LENGTH);
        if (!prefix.equals(bytes, PREFIX, length)) {
            byte[] text = new byte[length];
            for (int i = 0; i < length; i++) {
                text[i] = bytes.get(PREFIX + i);
            }
            prefix = new Prefix(text);
        }
    }
}
