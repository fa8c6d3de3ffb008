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
    /** By which the core sizes the next block: two numbers that are not read here. */
    private static final int LAST = PREFIX + MOST_PREFIX;
    private static final int SIZE = LAST + 16;

    private final ByteBuffer bytes = ByteBuffer.allocateDirect(SIZE).order(ByteOrder.nativeOrder());
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

    LeaseBuffer(boolean expires) {
        this.expires = expires;
    }

    /** Reads what was leased. */
    void read() {
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
