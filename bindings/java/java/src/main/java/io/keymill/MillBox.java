package io.keymill;

import java.time.DateTimeException;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.TimeZone;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.ReentrantLock;

/**
 * What a mill holds in native memory. It is freed when the collector finds that neither the mill nor a source of it can
 * be reached: sources point here. Natives are instance methods, so a call keeps its box reachable.
 */
final class MillBox {
    private static final NativeMemory MEMORY = new NativeMemory(MillBox::free);

    private final long address;
    /** By the address of the native source: each source has one box, and so one cursor, however often it is asked for. */
    private final ConcurrentHashMap<Long, SourceBox> sources = new ConcurrentHashMap<>();

    private final ReentrantLock closing = new ReentrantLock();
    /** The core is closed. */
    volatile boolean closed;

    MillBox(String config) {
        Library.ensure();
        freeUnreachable();
        address = open(config == null ? null : Native.utf8(config, "configuration"));
        MEMORY.add(this, address);
    }

    /** Frees the mills that are no longer reachable. Called where mills open and sources are asked for: there is no thread for it. */
    static void freeUnreachable() {
        MEMORY.freeUnreachable();
    }

    static int open() {
        return MEMORY.size();
    }

    SourceBox source(String spec) {
        freeUnreachable();
        long opened = source(address, Native.utf8(spec, "spec"), Native.utf8(zone(), "zone"));
        SourceBox known = sources.get(opened);
        if (known == null) {
            SourceBox fresh = new SourceBox(this, opened);
            known = sources.putIfAbsent(opened, fresh);
            known = known == null ? fresh : known;
        }
        return known;
    }

    /**
     * The JVM's time zone as the core names zones: {@code Asia/Shanghai}, {@code UTC}, {@code +08:00}. A program may have made one of its
     * own: with an offset that its id does not have, or with an id that is no zone's, which the core refuses where a serial needs it.
     */
    static String zone() {
        TimeZone zone = TimeZone.getDefault();
        try {
            Instant now = Instant.now();
            ZoneId known = zone.toZoneId();
            ZoneOffset offset = ZoneOffset.ofTotalSeconds(zone.getOffset(now.toEpochMilli()) / 1000);
            if (!known.getRules().getOffset(now).equals(offset)) {
                return zone.useDaylightTime() ? zone.getID() + ", changed by the program" : offset.getId();
            }
            String id = known.getId();
            return id.equals("Z") ? "UTC" : id.replaceFirst("^(GMT|UTC|UT)(?=[+-])", "");
        } catch (DateTimeException e) {
            return zone.getID();
        }
    }

    /**
     * Closes, and then empties every cursor over numbers that only a close ends, so that callers need not check whether the
     * mill is open: an empty cursor asks the core, which answers CLOSED.
     *
     * <p>A cursor that is filled meanwhile is not missed: its thread fills it first and then reads {@code closed}; here
     * {@code closed} is set first and then the cursors are emptied. All four are volatile, so one of the two sees the other.
     * One thread closes at a time, so that no close returns before the cursors are empty.
     */
    void close() {
        closing.lock();
        try {
            for (SourceBox box : sources.values()) {
                box.giveBack();
            }
            close(address);
            closed = true;
            for (SourceBox box : sources.values()) {
                box.empty();
            }
        } finally {
            closing.unlock();
        }
        Waiters.ALL.endIfIdle();
        freeUnreachable();
    }

    Router router(String name) {
        return new Router(new RouterBox(router(address, Native.utf8(name, "name"))));
    }

    boolean isClosed() {
        return isClosed(address);
    }

    List<Stats> stats() {
        List<Stats> stats = new ArrayList<>();
        for (SourceBox box : sources.values()) {
            stats.add(box.stats());
        }
        stats.sort(Comparator.comparing(Stats::source));
        return stats;
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

    private native long source(long address, byte[] spec, byte[] zone);

    private native long router(long address, byte[] name);

    private native void close(long address);

    private native boolean isClosed(long address);

    private native String metrics(long address);

    private native String events(long address);

    private native String store(long address);

    private native String init(long address, byte[] specs, boolean dryRun);

    private native void advanceClock(long address, long ms);

    private native void setClock(long address, long wallMs);
}
