package io.keymill;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What a mill holds in native memory. It is freed when the collector finds that neither the mill nor a source of it can
 * be reached: sources point here. Natives are instance methods, so a call keeps its box reachable.
 */
final class MillBox {
    private static final ReferenceQueue<MillBox> UNREACHABLE = new ReferenceQueue<>();
    private static final Set<Grave> GRAVES = ConcurrentHashMap.newKeySet();

    private final long address;
    /** By the address of the native source: one well, with one cursor, for each source however often it is asked for. */
    private final ConcurrentHashMap<Long, Well> wells = new ConcurrentHashMap<>();

    private final ReentrantLock closing = new ReentrantLock();
    /** The core is closed. */
    volatile boolean closed;

    MillBox(String config) {
        Library.ensure();
        bury();
        address = open(config == null ? null : Native.utf8(config, "configuration"));
        GRAVES.add(new Grave(this, address));
    }

    private static final class Grave extends PhantomReference<MillBox> {
        private final long address;

        Grave(MillBox box, long address) {
            super(box, UNREACHABLE);
            this.address = address;
        }
    }

    /** Frees what nobody can reach. Done where mills open and sources are asked for: there is no thread for it. */
    static void bury() {
        for (Object dead = UNREACHABLE.poll(); dead != null; dead = UNREACHABLE.poll()) {
            Grave grave = (Grave) dead;
            if (GRAVES.remove(grave)) {
                free(grave.address);
            }
        }
    }

    static int open() {
        return GRAVES.size();
    }

    Well well(String spec) {
        bury();
        Long source = source(address, Native.utf8(spec, "spec"));
        Well well = wells.get(source);
        if (well == null) {
            Well fresh = new Well(this, source);
            well = wells.putIfAbsent(source, fresh);
            well = well == null ? fresh : well;
        }
        return well;
    }

    /**
     * Closes, and then empties every cursor over numbers that only a close ends, so that who takes one need not ask
     * whether the mill is open: an empty cursor makes it ask the core, which says CLOSED.
     *
     * <p>A cursor that is filled meanwhile is not missed: who fills one does so first and then looks at {@code closed},
     * here {@code closed} is set first and then cursors are looked for; all four are volatile, so one of the two sees the
     * other. One thread closes at a time, so that nobody returns before the cursors are empty.
     */
    void close() {
        closing.lock();
        try {
            close(address);
            closed = true;
            for (Well well : wells.values()) {
                well.empty();
            }
        } finally {
            closing.unlock();
        }
        bury();
    }

    boolean isClosed() {
        return isClosed(address);
    }

    String metrics() {
        return metrics(address);
    }

    String events() {
        return events(address);
    }

    String store() {
        return store(address);
    }

    String init(byte[] specs, boolean dryRun) {
        return init(address, specs, dryRun);
    }

    void advanceClock(long ms) {
        advanceClock(address, ms);
    }

    void setClock(long wallMs) {
        setClock(address, wallMs);
    }

    private static native long open(byte[] config);

    private static native void free(long address);

    private native long source(long address, byte[] spec);

    private native void close(long address);

    private native boolean isClosed(long address);

    private native String metrics(long address);

    private native String events(long address);

    private native String store(long address);

    private native String init(long address, byte[] specs, boolean dryRun);

    private native void advanceClock(long address, long ms);

    private native void setClock(long address, long wallMs);
}
