package io.keymill;

import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * The mill that lazy sources and {@link KeyFactory} take from: the shared mill; the default mill while none is shared. Each
 * class loader that has keymill has one.
 */
final class Shared implements Origin {
    /** Another object after each share: a lazy source compares it with the object that it resolved at. */
    static volatile Shared current = new Shared(null, null);

    /** A lock and no monitor, so that virtual threads do not pin. Held for nothing that asks a store. */
    private static final ReentrantLock CHANGE = new ReentrantLock();
    /** The default mill, once it was needed. Written under {@link #CHANGE}. */
    private static volatile Mill opened;
    /** Why the default mill serves nothing; null: it serves. */
    private static volatile String refusal;

    /** Null: the default mill, or a mill that {@link #later} has not given yet. */
    private volatile Mill mill;
    /** Null where it has given the mill: what made it is not held longer than that. */
    private volatile Supplier<? extends Mill> later;

    private Shared(Mill mill, Supplier<? extends Mill> later) {
        this.mill = mill;
        this.later = later;
    }

    /** Makes this the shared mill; null: the default one again, anew where that one was closed. */
    static void set(Mill mill) {
        set(mill, null);
    }

    /** Makes the mill that this gives at the first id the shared one. */
    static void later(Supplier<? extends Mill> later) {
        set(null, later);
    }

    /** What asks the default mill gets this reason instead of an id; null: an id again. */
    static void refuseDefault(String reason) {
        CHANGE.lock();
        try {
            refusal = reason;
            if (current.mill == null && current.later == null) {
                // What was resolved at the default mill asks anew.
                current = new Shared(null, null);
                KeyFactory.forget();
            }
        } finally {
            CHANGE.unlock();
        }
    }

    private static void set(Mill mill, Supplier<? extends Mill> later) {
        CHANGE.lock();
        try {
            if (mill == null && later == null && opened != null && opened.isClosed()) {
                opened = null;
            }
            current = new Shared(mill, later);
            KeyFactory.forget();
        } finally {
            CHANGE.unlock();
        }
    }

    /** Of many first callers one opens the default mill. */
    @Override
    public Mill mill(String label) {
        // Read before the mill: it is unset after the mill is set.
        Supplier<? extends Mill> giving = later;
        Mill now = mill;
        if (now != null) {
            return now;
        }
        if (giving != null) {
            return given(giving);
        }
        String refused = refusal;
        if (refused != null) {
            throw new KeymillException(Code.INVALID_CONFIG, label + ": no mill is shared, and " + refused);
        }
        // Each id of a framework comes this way: no lock where the mill is there.
        Mill there = opened;
        if (there != null) {
            return there;
        }
        CHANGE.lock();
        try {
            if (opened == null) {
                opened = Mill.open();
            }
            return opened;
        } catch (KeymillException e) {
            throw new KeymillException(e.code(), label + ": no mill is shared, and " + Mill.defaultName() + " cannot be opened: " + e.reason() + "; share a mill with Mill.share(mill)", e);
        } finally {
            CHANGE.unlock();
        }
    }

    /** Without a lock: what gives the mill may wait for other threads. */
    private Mill given(Supplier<? extends Mill> giving) {
        Mill now = giving.get();
        if (now == null) {
            throw KeymillException.argument("the supplier of the shared mill gave null");
        }
        mill = now;
        later = null;
        return now;
    }

    @Override
    public boolean isPresent() {
        return current == this;
    }

    @Override
    public KeymillException told(KeymillException e, String label) {
        return e.code() == Code.CLOSED ? closed(label, e) : e;
    }

    KeymillException closed(String label, KeymillException cause) {
        String what = mill != null ? "the shared mill was closed" : "the default mill was closed";
        return new KeymillException(Code.CLOSED, label + ": " + what + "; share an open one with Mill.share(mill), or Mill.share(null) for the default mill", cause);
    }
}
