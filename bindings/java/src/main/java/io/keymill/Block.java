package io.keymill;

import java.nio.ByteBuffer;

/** Keeps whatever lies before a block in memory away from it. */
abstract class BlockFront {
    long f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11, f12, f13, f14, f15;
}

/** The fields of a block. */
abstract class BlockFields extends BlockFront {
    long next;
    long end;
    long leasedAt = 1;
    ByteBuffer word = Run.NONE.word;
    Prefix prefix = Prefix.NONE;
    int width = 1;
    /** Where texts are written: the prefix stands in it already. Longer than any text, so that nothing shares its lines. */
    byte[] scratch;
    Lease lease;
    /** Whose block it is; null for a handle's. Fixed before another thread can see the block. */
    final Thread owner;

    BlockFields(Thread owner) {
        this.owner = owner;
    }
}

/**
 * Leased numbers that one owner counts through, a thread or a handle. Padded at both ends: the collector moves small
 * objects next to each other. A block knows nothing of its source, so that a thread's block does not keep it reachable.
 */
class Block extends BlockFields {
    long g0, g1, g2, g3, g4, g5, g6, g7, g8, g9, g10, g11, g12, g13, g14, g15;

    Block(Thread owner) {
        super(owner);
    }

    /** The next number, or 0 when a new block is needed. */
    final long take() {
        long number = next;
        // Not `number < end`: behind the largest number, `end` is negative.
        if (end - number > 0 && Atomics.read(word) == leasedAt) {
            next = number + 1;
            return number;
        }
        return 0;
    }

    final long left() {
        return Atomics.read(word) == leasedAt ? end - next : 0;
    }

    /** Takes over what was leased. */
    final void refill(Lease lease) {
        next = lease.lo;
        end = lease.hi;
        leasedAt = lease.leasedAt;
        word = lease.word;
        width = lease.width;
        if (prefix != lease.prefix || scratch == null) {
            prefix = lease.prefix;
            scratch = prefix.scratch();
        }
    }

    /** The text of a number that was taken from this block. */
    final String text(long number) {
        byte[] bytes = scratch;
        return bytes == null ? prefix.textOf(number, width) : Digits.text(bytes, prefix.length, number, width);
    }
}
