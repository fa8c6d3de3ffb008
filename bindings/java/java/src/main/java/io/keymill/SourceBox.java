package io.keymill;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/** One source, shared by every object that stands for it: its cursors, and the natives that fill them. */
final class SourceBox {
    /** What the source hands out, and which cursor counts. */
    static final int SHARED = 0;
    static final int THREAD = 1;
    /** One by one from the core: ids that do not follow each other. */
    static final int SINGLE = 2;
    static final int SHARED_TEXT = 3;
    static final int THREAD_TEXT = 4;
    /** Ids for keys, from the core. */
    static final int FOR_KEYS = 5;

    /** Instead of a count: the next block of a cursor. The core sizes it. */
    static final long BLOCK = 0;

    private final MillBox mill;
    private final long address;
    final int mode;
    /** Whether numbers in memory may end by themselves; else only a close ends them. */
    final boolean expires;
    final String label;
    final Map<String, String> facts;
    private final TextForm form;
    /** The cursor of {@code order=process}. */
    final SharedCursor shared;
    /** The cursors of {@code order=thread}. */
    final ThreadCursors threads;
    /** Cursors that a close must empty. */
    private final OpenCursors open = new OpenCursors();

    SourceBox(MillBox mill, long address) {
        this.mill = mill;
        this.address = address;
        facts = Native.map(facts(address));
        label = facts.get("label");
        form = new TextForm(Native.map(form(address)));
        expires = Boolean.parseBoolean(facts.get("expires"));
        mode = mode(
                facts.get("kind"),
                Boolean.parseBoolean(facts.get("counts")),
                Boolean.parseBoolean(facts.get("by_thread")));
        shared = new SharedCursor(this);
        threads = mode == THREAD || mode == THREAD_TEXT ? new ThreadCursors(this) : null;
    }

    private static int mode(String kind, boolean counts, boolean byThread) {
        if (kind.equals("business")) {
            return FOR_KEYS;
        }
        if (!counts) {
            return SINGLE;
        }
        if (kind.equals("serial")) {
            return byThread ? THREAD_TEXT : SHARED_TEXT;
        }
        return byThread ? THREAD : SHARED;
    }

    boolean givesText() {
        return mode == SHARED_TEXT || mode == THREAD_TEXT;
    }

    // ---- numbers ----

    /** The next id; waits when none is in memory. */
    long next() {
        if (mode == SHARED) {
            Lease lease = shared.lease;
            if (lease.alive()) {
                long at = Atomics.use(lease, 1);
                if (at < lease.size) {
                    return lease.lo + at;
                }
            }
            return await(lease);
        }
        return await(null);
    }

    /** The next id, after {@code seen} gave none. */
    private long await(Lease seen) {
        try (Wait wait = new Wait(this)) {
            return mode == SHARED ? shared.next(seen, wait) : next(wait);
        }
    }

    /** An id, or 0 where none is in memory and the caller does not wait here. */
    long next(Wait wait) {
        if (mode == SHARED) {
            return shared.next(null, wait);
        }
        if (mode == THREAD) {
            Cursor mine = threads.mine();
            return mine == null ? threads.stripe().next(null, wait) : nextOf(mine, wait);
        }
        return nextOfCore(wait);
    }

    /** The next number of a handle that has none. */
    long next(Cursor cursor) {
        if (mode == SINGLE) {
            return await(null);
        }
        checkNumbers();
        return awaitOf(cursor);
    }

    /** The next number of a cursor that has none. */
    private long awaitOf(Cursor cursor) {
        try (Wait wait = new Wait(this)) {
            return nextOf(cursor, wait);
        }
    }

    private long nextOf(Cursor cursor, Wait wait) {
        for (;;) {
            long number = cursor.take();
            if (number != 0) {
                return number;
            }
            if (!refill(cursor, wait)) {
                return 0;
            }
        }
    }

    private boolean refill(Cursor cursor, Wait wait) {
        for (;;) {
            LeaseBuffer buffer = bufferOf(cursor);
            long pause = lease(buffer, BLOCK, 1, wait);
            if (pause == 0) {
                refill(cursor, buffer);
                return true;
            }
            if (!wait.pause(pause)) {
                return false;
            }
        }
    }

    /** The buffer of a cursor, made at its first lease. */
    private LeaseBuffer bufferOf(Cursor cursor) {
        if (cursor.buffer == null) {
            cursor.buffer = new LeaseBuffer(expires);
            if (!expires) {
                open.add(cursor);
            }
        }
        return cursor.buffer;
    }

    private void refill(Cursor cursor, LeaseBuffer buffer) {
        cursor.refill(buffer);
        // Checked after the cursor is filled: a close sets its flag first and empties cursors then.
        if (mill.closed) {
            cursor.empty();
        }
    }

    boolean isClosed() {
        return mill.closed;
    }

    /** Gives back what is left in the cursors that no other thread can be counting through. Called before the mill closes. */
    void giveBack() {
        shared.giveBack();
        if (threads != null) {
            threads.giveBack();
        }
    }

    /** Gives back what is left in a cursor, for its owner: this is its thread, or that thread has ended. */
    void giveBack(Cursor cursor) {
        long left = cursor.left();
        if (left > 0) {
            long lo = cursor.next;
            cursor.next = lo + left;
            giveBack(cursor.buffer, cursor.leasedAt, lo, lo + left);
        }
    }

    /** Gives back the numbers {@code [lo, hi)} of what was leased last into the buffer. The core may issue them at once. */
    void giveBack(LeaseBuffer buffer, long leasedAt, long lo, long hi) {
        giveBack(address, buffer.address, leasedAt, lo, hi);
    }

    /** The mill was closed: nothing in memory may be issued any more. */
    void empty() {
        shared.empty();
        if (threads != null) {
            threads.empty();
        }
        open.empty();
    }

    /** An id of the core, or less than 1 where none is in memory. */
    long quick() {
        return tryId(address, 0);
    }

    private long nextOfCore(Wait wait) {
        checkNumbers();
        for (;;) {
            long id = tryId(address, wait.waited());
            if (id > 0) {
                return id;
            }
            if (!wait.pause(-id)) {
                return 0;
            }
        }
    }

    /** Fills the array: all of it, or none and an exception. */
    void fill(long[] out) {
        checkNumbers();
        if (out.length == 0) {
            return;
        }
        if (mode == SINGLE) {
            fillFromCore(out);
            return;
        }
        Batch batch = new Batch(out.length);
        take(batch);
        batch.write(out);
    }

    private void fillFromCore(long[] out) {
        collect(complete(ask(address, out.length)), out);
    }

    /** Waits until a batch of the core is complete; a batch that fails is freed. */
    private long complete(long batch) {
        boolean complete = false;
        try (Wait wait = new Wait(this)) {
            if (poll(batch) != 0) {
                for (long pause = pollOrRegister(batch, wait); pause != 0; pause = pollOrRegister(batch, wait)) {
                    wait.park(pause);
                }
            }
            complete = true;
        } finally {
            if (!complete) {
                forget(batch);
            }
        }
        return batch;
    }

    // ---- for keys: a key is `text` unless that is null ----

    long nextFor(long key) {
        long id = tryIdFor(address, key, 0);
        return id > 0 ? id : idFor(key, null, -id);
    }

    long nextFor(byte[] text) {
        long id = tryIdForText(address, text, 0);
        return id > 0 ? id : idFor(0, text, -id);
    }

    /** An id, or 0 where none is in memory. */
    long tryNextFor(long key, byte[] text) {
        return Math.max(0, tryIdFor(key, text, Wait.NEVER));
    }

    private long idFor(long key, byte[] text, long pause) {
        try (Wait wait = new Wait(this, gene(key, text))) {
            for (;;) {
                wait.pause(pause);
                long id = tryIdFor(key, text, wait);
                if (id > 0) {
                    return id;
                }
                pause = -id;
            }
        }
    }

    private static int gene(long key, byte[] text) {
        return text == null ? RouterBox.gene(key) : RouterBox.geneOfText(text);
    }

    private long tryIdFor(long key, byte[] text, Wait wait) {
        return text == null
                ? tryIdFor(address, key, wait.waited())
                : tryIdForText(address, text, wait.waited());
    }

    /** Fills the array: all of it, or none and an exception. */
    void fillFor(long key, byte[] text, long[] out) {
        collect(complete(askFor(address, key, text, out.length, false)), out);
    }

    /** An id of 16 bytes. */
    byte[] nextWideFor(long key, byte[] text) {
        byte[] id = new byte[16];
        long pause = tryWide(address, key, text, 0, id);
        if (pause != 0) {
            awaitWideFor(key, text, pause, id);
        }
        return id;
    }

    private void awaitWideFor(long key, byte[] text, long first, byte[] id) {
        try (Wait wait = new Wait(this, gene(key, text))) {
            for (long pause = first; pause != 0; pause = tryWide(address, key, text, wait.waited(), id)) {
                wait.pause(pause);
            }
        }
    }

    /** An id of 16 bytes, or null where none is in memory. */
    byte[] tryNextWideFor(long key, byte[] text) {
        byte[] id = new byte[16];
        return tryWide(address, key, text, Wait.NEVER.waited(), id) == 0 ? id : null;
    }

    /** Fills the array with ids of 16 bytes: all of it, or none and an exception. */
    void fillWideFor(long key, byte[] text, byte[][] out) {
        long batch = complete(askFor(address, key, text, out.length, true));
        byte[] flat = new byte[16 * out.length];
        collectWide(batch, flat);
        for (int i = 0; i < out.length; i++) {
            out[i] = Arrays.copyOfRange(flat, 16 * i, 16 * i + 16);
        }
    }

    // ---- futures; `waited`: before the call ----

    CompletableFuture<Long> nextAsync(Duration waited) {
        return await(Wait.NO_GENE, waited, wait -> {
            long id = next(wait);
            return id == 0 ? null : id;
        });
    }

    CompletableFuture<String> textAsync(Duration waited) {
        return await(Wait.NO_GENE, waited, this::text);
    }

    CompletableFuture<Long> nextAsyncFor(long key, byte[] text) {
        return await(gene(key, text), Duration.ZERO, wait -> {
            long id = tryIdFor(key, text, wait);
            if (id <= 0) {
                wait.pause(-id);
                return null;
            }
            return id;
        });
    }

    private <T> CompletableFuture<T> await(int gene, Duration waited, Function<Wait, T> verb) {
        return new AsyncWait<>(this, gene, Math.max(0, waited.toNanos()), verb).begin();
    }

    // ---- texts ----

    String text() {
        if (mode == THREAD_TEXT) {
            Cursor mine = threads.mine();
            if (mine != null) {
                long number = mine.take();
                return mine.text(number != 0 ? number : awaitOf(mine));
            }
            return awaitText(threads.stripe(), null);
        }
        return mode == SHARED_TEXT ? sharedText() : form.text(next());
    }

    /** An id of this source as its texts are written. */
    String textOf(long id) {
        if (givesText()) {
            throw KeymillException.argument("a serial's text has a date, and its number does not; use next");
        }
        return form.text(id);
    }

    /** A method of its own, small enough for the compiler to inline. */
    private String sharedText() {
        Lease lease = shared.lease;
        if (lease.alive()) {
            long at = Atomics.use(lease, 1);
            if (at < lease.size) {
                return lease.prefix.textOf(lease.lo + at, lease.width);
            }
        }
        return awaitText(shared, lease);
    }

    private String awaitText(SharedCursor cursor, Lease seen) {
        try (Wait wait = new Wait(this)) {
            return cursor.text(seen, wait);
        }
    }

    /** A text, or null where none is in memory and the caller does not wait here. */
    String text(Wait wait) {
        if (mode == THREAD_TEXT) {
            Cursor mine = threads.mine();
            if (mine == null) {
                return threads.stripe().text(null, wait);
            }
            long number = nextOf(mine, wait);
            return number == 0 ? null : mine.text(number);
        }
        if (mode == SHARED_TEXT) {
            return shared.text(null, wait);
        }
        long id = next(wait);
        return id == 0 ? null : form.text(id);
    }

    /** Fills the array: all of it, or none and an exception. */
    void fill(String[] out) {
        if (out.length == 0) {
            return;
        }
        if (givesText()) {
            Batch batch = new Batch(out.length);
            take(batch);
            batch.write(out);
            return;
        }
        long[] ids = new long[out.length];
        fill(ids);
        for (int i = 0; i < ids.length; i++) {
            out[i] = form.text(ids[i]);
        }
    }

    // ---- both ----

    private void take(Batch batch) {
        try (Wait wait = new Wait(this)) {
            take(batch, wait);
        }
    }

    private void take(Batch batch, Wait wait) {
        if (mode == SHARED || mode == SHARED_TEXT) {
            shared.take(batch, wait);
            return;
        }
        Cursor mine = threads.mine();
        if (mine == null) {
            threads.stripe().take(batch, wait);
        } else {
            take(mine, batch, wait);
        }
    }

    /** A batch begins with what the thread's own cursor has left, so that its numbers rise within the thread. */
    private void take(Cursor mine, Batch batch, Wait wait) {
        LeaseBuffer buffer = bufferOf(mine);
        while (batch.lacks() > 0) {
            long left = Math.min(mine.left(), batch.lacks());
            if (left < batch.lacks()) {
                long lacks = batch.lacks() - left;
                long pause = lease(buffer, BLOCK, lacks, wait);
                if (pause > 0) {
                    wait.pause(pause);
                    continue;
                }
            }
            if (left > 0 && mine.left() > 0) {
                batch.add(mine.next, mine.next + left, mine.prefix, mine.width);
                mine.next += left;
            }
            if (batch.lacks() > 0) {
                refill(mine, buffer);
            }
        }
    }

    /** Leases at most {@code count} numbers to the caller; waits until there is one. */
    Range range(long count) {
        checkNumbers();
        LeaseBuffer buffer = new LeaseBuffer(false);
        try (Wait wait = new Wait(this)) {
            for (long pause = lease(buffer, count, 1, wait); pause != 0; pause = lease(buffer, count, 1, wait)) {
                wait.pause(pause);
            }
        }
        return new Range(buffer.lo, buffer.hi);
    }

    void checkNumbers() {
        if (mode == FOR_KEYS) {
            throw KeymillException.argument("`" + label + "` makes ids for keys: take them with `next(key)` of `mill.business(…)`, which is `next_for` elsewhere");
        }
        if (givesText()) {
            refuse(address);
        }
    }

    /** Leases at most {@code count} numbers, or {@link #BLOCK}, if {@code enough} are there; 0, or for how long to pause. Never blocks. */
    long lease(LeaseBuffer buffer, long count, long enough, Wait wait) {
        long pause = tryLease(address, buffer.address, count, enough, wait.waited());
        if (pause == 0) {
            buffer.read();
        }
        return pause;
    }

    String parse(String text) {
        return parse(address, Native.utf8(text, "id"));
    }

    /** The parts of an id of 8 or 16 bytes. */
    String parse(byte[] id) {
        return parseBytes(address, id);
    }

    /** The parts of an id. */
    String parse(long id) {
        // A long has 64 bits, also where the source is wide.
        return parseNumber(mode == FOR_KEYS && id >= 0 ? String.format("0x%016x", id) : Long.toString(id));
    }

    /** The parts of an id with these digits, which are no text of the source's form, whatever width they have. */
    String parseNumber(String digits) {
        return parseNumber(address, Native.utf8(digits, "id"));
    }

    Stats stats() {
        String figures = stats(address);
        // The core counts leased numbers as issued; those in the shared cursor are still to come.
        Lease lease = shared.lease;
        return new Stats(figures, lease.alive() ? lease.left() : 0);
    }

    /** Null: no id would be such a key. */
    String refusalOfKeys(String table, long highest, long from) {
        return refusalOfKeys(address, Native.utf8(table, "table"), highest, from);
    }

    // Instance natives: the call keeps this object, and through it the mill, reachable.

    private native long tryLease(long address, long buffer, long count, long enough, long waited);

    private native void giveBack(long address, long buffer, long leasedAt, long lo, long hi);

    private native long tryId(long address, long waited);

    private native long tryIdFor(long address, long key, long waited);

    private native long tryIdForText(long address, byte[] key, long waited);

    private native long tryWide(long address, long key, byte[] text, long waited, byte[] out);

    private native long ask(long address, int count);

    private native long askFor(long address, long key, byte[] text, int count, boolean wide);

    private native void collectWide(long batch, byte[] out);

    /** Registers the caller that has the token with the source, or with the counter of a gene. The answer is to be unregistered. */
    long register(int gene, long token) {
        return register(address, gene, Waiters.ALL.notifier, token);
    }

    private native long register(long address, int gene, long notifier, long token);

    native void unregister(long registration);

    private native long poll(long batch);

    private long pollOrRegister(long batch, Wait wait) {
        return pollOrRegister(batch, Waiters.ALL.notifier, wait.beforeRegistration());
    }

    private native long pollOrRegister(long batch, long notifier, long token);

    private native void collect(long batch, long[] out);

    private native void forget(long batch);

    private native String parse(long address, byte[] text);

    private native String parseNumber(long address, byte[] digits);

    private native String parseBytes(long address, byte[] id);

    private native String stats(long address);

    private native String facts(long address);

    private native String form(long address);

    private native void refuse(long address);

    private native String refusalOfKeys(long address, byte[] table, long highest, long from);

    MillBox mill() {
        return mill;
    }
}
