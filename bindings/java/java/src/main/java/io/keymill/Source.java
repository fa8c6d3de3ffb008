package io.keymill;

import java.time.Duration;
import java.util.Collections;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.function.LongSupplier;
import java.util.stream.LongStream;

/**
 * A named generator of ids inside a mill. All ids are positive.
 *
 * <p>With {@code order=process}, the default, ids rise strictly over all threads and all verbs, as one shared counter
 * would give. With {@code order=thread} each thread counts through a block of its own: ids are unique, rise within a
 * thread, and scale with cores. Across processes ids are unique and rise in trend only; gaps are normal. Numbers that were
 * leased into this process's memory are lost when the mill closes: at most {@code block} a cursor.
 *
 * <p>Any number of threads may use a source, virtual ones included: no monitor is held while waiting. A thread that is
 * interrupted while it waits throws {@link Code#DEADLINE} with an {@link InterruptedException} as the cause, and stays
 * interrupted; ids that are in memory are handed out to interrupted threads too.
 */
public final class Source implements LongSupplier {
    private final SourceBox box;
    /** The cursor of {@code order=process}; null where numbers come otherwise, or expire. */
    private final SharedCursor shared;
    /** The table of {@link ThreadCursors}; null where threads have no cursors. */
    private final Cursor[] table;
    /** Ids come one by one from the core. */
    private final boolean single;

    Source(SourceBox box) {
        this.box = box;
        this.shared = box.mode == SourceBox.SHARED && !box.expires ? box.shared : null;
        this.table = box.mode == SourceBox.THREAD ? box.threads.table : null;
        this.single = box.mode == SourceBox.SINGLE;
    }

    SourceBox box() {
        return box;
    }

    /**
     * The next id; waits at most the source's deadline when none is in memory.
     *
     * @return the id
     * @throws KeymillException {@link Code#DEADLINE}, {@code STORE_…}, {@link Code#EXHAUSTED}, {@link Code#CLOCK_BEHIND},
     *     {@link Code#LAYOUT_ENDED}, {@link Code#LEASE_LOST}, {@link Code#CLOSED}; {@link Code#INVALID_ARGUMENT} for a
     *     serial, whose numbers are handed out as text, and for business ids, which need a key: {@link Mill#business}
     */
    public long next() {
        if (shared != null) {
            // Numbers that do not expire: a close uses the lease up.
            Lease lease = shared.lease;
            long at = Atomics.use(lease, 1);
            if (at < lease.size) {
                return lease.lo + at;
            }
        } else if (table != null) {
            Thread thread = Thread.currentThread();
            Cursor mine = table[ThreadCursors.place(thread)];
            long number = mine.owner == thread ? mine.take() : box.threads.take(thread);
            if (number != 0) {
                return number;
            }
        } else if (single) {
            long id = box.quick();
            if (id > 0) {
                return id;
            }
        }
        return box.next();
    }

    /**
     * {@link #next}.
     *
     * @return the id
     */
    @Override
    public long getAsLong() {
        return next();
    }

    /**
     * The next id if one is in memory; never waits.
     *
     * @return the id, or nothing
     * @throws KeymillException as {@link #next}
     */
    public OptionalLong tryNext() {
        return tryNext(Wait.NEVER);
    }

    /**
     * {@link #next} for a caller that must not wait, such as an event loop's, and asks again after a while: the next id if one is in
     * memory, nothing where {@code next} would go on waiting, and what it would throw after this time.
     *
     * @param waited how long the caller has waited for this id in all; zero at first
     * @return the id, or nothing
     * @throws KeymillException as {@link #next}: {@link Code#DEADLINE} once the deadline has passed
     */
    public OptionalLong tryNext(Duration waited) {
        return tryNext(new Wait(Math.max(0, waited.toNanos())));
    }

    private OptionalLong tryNext(Wait wait) {
        long id = box.next(wait);
        return id == 0 ? OptionalLong.empty() : OptionalLong.of(id);
    }

    /**
     * The next id, for a caller that must not block: no thread waits. The future ends as {@link #next} would: with the id, or with its
     * exception. What depends on it runs in the common pool of {@link java.util.concurrent.ForkJoinPool}, or where that has less than two
     * threads in one of keymill's own, unless the id is in memory or an executor is named. A future that is cancelled waits no more; cancelled as its id arrives, it loses that id. Ids of several futures
     * are distinct, and have no order.
     *
     * @return the id, of a future of its own
     */
    public CompletableFuture<Long> nextAsync() {
        return nextAsync(Duration.ZERO);
    }

    /**
     * {@link #nextAsync()} for a caller that has waited before.
     *
     * @param waited how long, in all; the deadline counts it
     * @return the id
     */
    public CompletableFuture<Long> nextAsync(Duration waited) {
        return box.nextAsync(waited);
    }

    /**
     * {@code count} ids, in rising order: one count instead of {@code count}, so by far the fastest way to many.
     *
     * @param count how many
     * @return the ids
     * @throws KeymillException as {@link #next}; {@link Code#INVALID_ARGUMENT} for a negative count, or more than memory
     *     holds
     */
    public long[] take(int count) {
        if (count < 0) {
            throw KeymillException.argument(count + " ids cannot be taken");
        }
        long[] ids;
        try {
            ids = new long[count];
        } catch (OutOfMemoryError e) {
            throw tooMany(count, "ids");
        }
        box.fill(ids);
        return ids;
    }

    /**
     * Fills an array with ids, in rising order: all of it, or none and an exception.
     *
     * @param ids the array
     * @throws KeymillException as {@link #next}; {@link Code#INVALID_ARGUMENT} for null
     */
    public void fill(long[] ids) {
        if (ids == null) {
            throw KeymillException.argument("the array to fill is null");
        }
        box.fill(ids);
    }

    /**
     * Leases numbers that follow each other to the caller alone, for a program that counts by itself: at least one and at
     * most {@code count}; one where ids do not follow each other ({@code delta=}). What is not used is lost. Later
     * calls of other verbs may give lower numbers.
     *
     * @param count how many at most
     * @return the numbers
     * @throws KeymillException as {@link #next}; {@link Code#INVALID_ARGUMENT} for a count below 1, and for snowflakes and
     *     serials
     */
    public Range lease(long count) {
        if (count < 1) {
            throw KeymillException.argument(count + " numbers cannot be leased; ask for at least 1");
        }
        return box.range(count);
    }

    /**
     * Ids without end.
     *
     * @return the stream; sequential, each id made when it is asked for
     */
    public LongStream stream() {
        return LongStream.generate(this);
    }

    /**
     * A handle that counts through blocks of its own: the fastest loop, for one thread at a time.
     *
     * @return the handle
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a serial
     */
    public Handle handle() {
        return new Handle(box);
    }

    /**
     * The next serial number as text; for the other kinds the id in the form that {@code text=} and {@code prefix=} say, in decimal
     * unless they are given.
     *
     * @return the text
     * @throws KeymillException as {@link #next}, and {@link Code#NUMBER_OVERFLOW}
     */
    public String nextText() {
        return box.text();
    }

    /**
     * {@link #nextText} for a caller that must not block, as {@link #nextAsync()}.
     *
     * @return the text
     */
    public CompletableFuture<String> nextTextAsync() {
        return nextTextAsync(Duration.ZERO);
    }

    /**
     * {@link #nextTextAsync()} for a caller that has waited before.
     *
     * @param waited how long, in all; the deadline counts it
     * @return the text
     */
    public CompletableFuture<String> nextTextAsync(Duration waited) {
        return box.textAsync(waited);
    }

    /**
     * {@code count} texts, as {@link #nextText} gives them.
     *
     * @param count how many
     * @return the texts
     * @throws KeymillException as {@link #take}
     */
    public String[] takeText(int count) {
        return texts(box, count);
    }

    /**
     * An id of this source as its texts are written: what {@link #nextText} would have given for it.
     *
     * @param id an id
     * @return the text
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a serial, whose text has a date
     */
    public String textOf(long id) {
        return box.textOf(id);
    }

    /**
     * Takes an id apart.
     *
     * @param id an id of this source
     * @return its parts
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a number this source cannot have made
     */
    public Parts parse(long id) {
        return new Parts(box.parse(id));
    }

    /**
     * Takes a text apart: a serial number, or an id in the source's form or in decimal.
     *
     * @param id a text of this source
     * @return its parts
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a text this source cannot have made
     */
    public Parts parse(String id) {
        return new Parts(box.parse(id));
    }

    /**
     * The source's figures: ids issued, numbers in memory, the rate, the present error.
     *
     * @return the figures
     * @throws KeymillException {@link Code#CLOSED}
     */
    public Stats stats() {
        return box.stats();
    }

    /**
     * What the source is, every default filled in: scheme, table, step, layout …
     *
     * @return settings by name
     */
    public Map<String, String> settings() {
        return Collections.unmodifiableMap(box.facts);
    }

    /**
     * {@code segment:orders}: kind and name, without options.
     */
    @Override
    public String toString() {
        return box.label;
    }

    /** As {@link #takeText}. */
    static String[] texts(SourceBox box, int count) {
        if (count < 0) {
            throw KeymillException.argument(count + " texts cannot be taken");
        }
        String[] texts;
        try {
            texts = new String[count];
        } catch (OutOfMemoryError e) {
            throw tooMany(count, "texts");
        }
        box.fill(texts);
        return texts;
    }

    static KeymillException tooMany(int count, String what) {
        return KeymillException.argument(count + " " + what + " do not fit into memory; take them in parts");
    }
}
