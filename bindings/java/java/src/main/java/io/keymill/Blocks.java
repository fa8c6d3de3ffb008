package io.keymill;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * The blocks of {@code order=thread}: one for each platform thread that takes.
 *
 * <p>A thread keeps its block in a {@link ThreadLocal}. Before that it looks into a small table by its id, which costs half
 * as much; whoever holds a place there keeps it, others go on without one. A block in the table is used only by the thread
 * that the block itself names as its owner, so a stale look, or a thread that lies about its id, finds somebody else's
 * block and leaves it alone.
 */
final class Blocks {
    private static final int PLACES = 64;
    /** Stands where nobody has settled. */
    private static final Block NOBODY = new Block(null);
    /** A table that nobody settles in. */
    static final Block[] DESERTED = table();

    /** Virtual threads share this many cursors: a block for each would be a waste. */
    private static final int STRIPES = 16;

    private final Well well;
    final Block[] table = table();
    private final ThreadLocal<Block> kept = new ThreadLocal<>();
    private final AtomicReferenceArray<Lane> stripes = new AtomicReferenceArray<>(STRIPES);

    Blocks(Well well) {
        this.well = well;
    }

    private static Block[] table() {
        Block[] table = new Block[PLACES];
        Arrays.fill(table, NOBODY);
        return table;
    }

    /** The calling thread's block; null for a virtual thread. */
    Block mine() {
        Thread thread = Thread.currentThread();
        Block block = table[place(thread)];
        return block.owner == thread ? block : find(thread);
    }

    @SuppressWarnings("deprecation")
    static int place(Thread thread) {
        return (int) thread.getId() & (PLACES - 1);
    }

    private Block find(Thread thread) {
        if (Threads.isVirtual(thread)) {
            return null;
        }
        Block block = kept.get();
        if (block == null) {
            block = new Block(thread);
            kept.set(block);
            settle(thread, block);
        }
        return block;
    }

    /** Takes the place of a thread that has ended, and forgets others that have: the table would keep them reachable. */
    private void settle(Thread thread, Block block) {
        for (int at = 0; at < PLACES; at++) {
            Block other = table[at];
            if (other != NOBODY && !other.owner.isAlive()) {
                table[at] = NOBODY;
            }
        }
        int at = place(thread);
        if (table[at] == NOBODY) {
            table[at] = block;
        }
    }

    /** Empties the cursors of virtual threads. */
    void empty() {
        for (int at = 0; at < STRIPES; at++) {
            Lane stripe = stripes.get(at);
            if (stripe != null) {
                stripe.empty();
            }
        }
    }

    /** A virtual thread always uses the same cursor, so its numbers rise. */
    @SuppressWarnings("deprecation")
    Lane stripe() {
        int at = (int) Thread.currentThread().getId() & (STRIPES - 1);
        Lane stripe = stripes.get(at);
        if (stripe == null) {
            stripes.compareAndSet(at, null, new Lane(well));
            stripe = stripes.get(at);
        }
        return stripe;
    }
}
