package io.keymill;

import java.lang.ref.Reference;
import java.lang.ref.WeakReference;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * The cursors of {@code order=thread}: one for each platform thread that takes ids.
 *
 * <p>A thread finds its cursor in a {@link ThreadLocal}. Before that it looks into a small table by its id, which costs half
 * as much. The first thread in a place keeps it; others go on without one. A cursor in the table is used only by the thread
 * that the cursor names as its owner, so a stale read, or a thread with a wrong id, finds another thread's cursor and leaves it
 * alone.
 *
 * <p>The source keeps the cursors, and a thread refers to its own weakly: a thread of a pool that outlives an application would
 * otherwise keep the class loader of the application. A source drops the cursors of threads that have ended when other threads
 * begin.
 */
final class ThreadCursors {
    static final int PLACES = 64;
    /** Marks a free place. */
    private static final Cursor FREE = new Cursor(null);

    /** Virtual threads share this many cursors: a cursor for each would be a waste. */
    private static final int STRIPES = 16;

    private final SourceBox source;
    final Cursor[] table = table();
    private final ThreadLocal<Reference<Cursor>> kept = new ThreadLocal<>();
    /** The cursors of all threads that live, and of some that have ended. */
    private final Set<Cursor> cursors = ConcurrentHashMap.newKeySet();
    /** How many cursors there may be before cursors of ended threads are looked for. */
    private volatile int limit = PLACES;
    private final AtomicReferenceArray<SharedCursor> stripes = new AtomicReferenceArray<>(STRIPES);

    ThreadCursors(SourceBox source) {
        this.source = source;
    }

    private static Cursor[] table() {
        Cursor[] table = new Cursor[PLACES];
        Arrays.fill(table, FREE);
        return table;
    }

    /** The calling thread's cursor; null for a virtual thread. */
    Cursor mine() {
        Thread thread = Thread.currentThread();
        Cursor cursor = table[place(thread)];
        return cursor.owner == thread ? cursor : find(thread);
    }

    @SuppressWarnings("deprecation")
    static int place(Thread thread) {
        return (int) thread.getId() & (PLACES - 1);
    }

    private Cursor find(Thread thread) {
        if (Threads.isVirtual(thread)) {
            return null;
        }
        Reference<Cursor> reference = kept.get();
        Cursor cursor = reference == null ? null : reference.get();
        return cursor == null ? add(thread) : cursor;
    }

    /** The next number of the calling thread, which has no place in the table; 0 when a new block must be leased. */
    long take(Thread thread) {
        Cursor cursor = find(thread);
        return cursor == null ? 0 : cursor.take();
    }

    private Cursor add(Thread thread) {
        Cursor cursor = new Cursor(thread);
        cursors.add(cursor);
        // Twice as many as there are: threads that come and go cost each other a constant number of looks.
        if (cursors.size() > limit) {
            giveBackOfEnded();
            limit = Math.max(PLACES, 2 * cursors.size());
        }
        kept.set(new WeakReference<>(cursor));
        claim(thread, cursor);
        return cursor;
    }

    /**
     * Removes the cursors of threads that have ended, and gives back what is left in them. A thread that is not alive has made its last
     * change to its cursor, and this thread sees it. Of several threads that come here, one removes a cursor.
     */
    private void giveBackOfEnded() {
        for (Cursor cursor : cursors) {
            if (!cursor.owner.isAlive() && cursors.remove(cursor)) {
                source.giveBack(cursor);
            }
        }
    }

    /**
     * Gives back what is left in the cursors of virtual threads, of threads that have ended and of the calling thread. The other threads
     * may be counting: what is left in their cursors is lost.
     */
    void giveBack() {
        for (int at = 0; at < STRIPES; at++) {
            SharedCursor stripe = stripes.get(at);
            if (stripe != null) {
                stripe.giveBack();
            }
        }
        giveBackOfEnded();
        for (Cursor cursor : cursors) {
            if (cursor.owner == Thread.currentThread()) {
                source.giveBack(cursor);
            }
        }
    }

    /** How many cursors of threads are kept. */
    int count() {
        return cursors.size();
    }

    /** Takes a free place, or the place of a thread that has ended. All such places are freed: the table would keep them reachable. */
    private void claim(Thread thread, Cursor cursor) {
        for (int at = 0; at < PLACES; at++) {
            Cursor other = table[at];
            if (other != FREE && !other.owner.isAlive()) {
                table[at] = FREE;
            }
        }
        int at = place(thread);
        if (table[at] == FREE) {
            table[at] = cursor;
        }
    }

    /** Empties the cursors of virtual threads. */
    void empty() {
        for (int at = 0; at < STRIPES; at++) {
            SharedCursor stripe = stripes.get(at);
            if (stripe != null) {
                stripe.empty();
            }
        }
    }

    /** A virtual thread always uses the same cursor, so its numbers rise. */
    @SuppressWarnings("deprecation")
    SharedCursor stripe() {
        int at = (int) Thread.currentThread().getId() & (STRIPES - 1);
        SharedCursor stripe = stripes.get(at);
        if (stripe == null) {
            stripes.compareAndSet(at, null, new SharedCursor(source));
            stripe = stripes.get(at);
        }
        return stripe;
    }
}
