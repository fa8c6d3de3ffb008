package io.keymill;

import java.nio.ByteBuffer;

/** Padding: no other object shares the cache lines of the fields. */
abstract class CursorFront {
    long f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15;
}

/** The fields of a cursor. */
abstract class CursorFields extends CursorFront {
    long next;
    /**
     * One past the last number; 0 where the word must be compared for each. Written by the owner, and set to 0 by a close of
     * the mill: see {@link MillBox#close()}.
     */
    volatile long end;
    /** One past the last number that may be issued while {@code word} reads {@code leasedAt}. */
    long expiringEnd;
    long leasedAt;
    /** Null where only a close ends what was leased. */
    ByteBuffer word;
    Prefix prefix = Prefix.NONE;
    int width = 1;
    /** Where texts are written: the prefix stands in it already. Longer than any text, so that nothing shares its lines. */
    byte[] scratch;
    /** The number whose text stands in the scratch, and how long the text is; 0: none. */
    long written;
    int length;
    LeaseBuffer buffer;
    /** The thread that counts; null for a handle. Fixed before another thread can see the cursor. */
    final Thread owner;

    CursorFields(Thread owner) {
        this.owner = owner;
    }
}

/**
 * Counts through leased numbers for one owner, a thread or a handle. Padded at both ends: the collector moves small objects
 * next to each other. The source keeps its threads' cursors reachable, and a handle its own: see {@link ThreadCursors}.
 */
class Cursor extends CursorFields {
    long g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15;

    Cursor(Thread owner) {
        super(owner);
    }

    /** The next number, or 0 when a new block must be leased. */
    final long take() {
        long number = next;
        // Not `number < end`: behind the largest number, `end` is negative.
        if (Atomics.end(this) - number > 0 || lives() && expiringEnd - number > 0) {
            next = number + 1;
            return number;
        }
        return 0;
    }

    private boolean lives() {
        return word != null && Atomics.read(word) == leasedAt;
    }

    final long left() {
        return Math.max(0, lives() ? expiringEnd - next : end - next);
    }

    /** Nothing that was leased may be issued any more. Any thread may call this. */
    final void empty() {
        end = 0;
    }

    /** Takes over the leased numbers. */
    final void refill(LeaseBuffer buffer) {
        next = buffer.lo;
        if (buffer.word == null) {
            end = buffer.hi;
        } else {
            expiringEnd = buffer.hi;
            word = buffer.word;
        }
        leasedAt = buffer.leasedAt;
        width = buffer.width;
        if (prefix != buffer.prefix || scratch == null) {
            prefix = buffer.prefix;
            scratch = prefix.scratch();
            written = 0;
        }
    }

    /** The text of a number that was taken from this cursor. */
    final String text(long number) {
        byte[] bytes = scratch;
        if (bytes == null) {
            return prefix.textOf(number, width);
        }
        if (written != number) {
            write(number);
        }
        int end = length;
        String text = Digits.first(bytes, end);
        // The next text is written ahead: a copy that follows its own stores would have to wait for them. Nine times of ten
        // only the last digit changes.
        byte last = bytes[end - 1];
        if (last != '9') {
            bytes[end - 1] = (byte) (last + 1);
            written = number + 1;
        } else {
            write(number + 1);
        }
        return text;
    }

    private void write(long number) {
        length = Digits.write(scratch, prefix.length, number, width);
        written = number;
    }
}
