package io.keymill;

/** One caller's wait for numbers: how long it has lasted, and for how long to pause. */
final class Wait {
    /** A wait of callers that do not wait. */
    static final Wait NEVER = new Wait(-1);

    /** Null for a caller that does not wait here. */
    private final String label;
    /** How long such a caller has waited elsewhere; less than 0: it does not wait at all. */
    private final long elsewhere;
    private long since;
    private boolean begun;

    Wait(String label) {
        this.label = label;
        elsewhere = -1;
    }

    /** Of a caller that asks again and again, and has waited for so long in all. */
    Wait(long elsewhere) {
        label = null;
        this.elsewhere = elsewhere;
    }

    /** For the native library: nanoseconds waited so far, or less than 0 for a caller that does not wait. */
    long waited() {
        if (label == null) {
            return elsewhere;
        }
        return begun ? Math.max(0, System.nanoTime() - since) : 0;
    }

    /** Pauses; false where the caller does not wait here. */
    boolean pause(long nanos) {
        if (label == null) {
            return false;
        }
        if (!begun) {
            begun = true;
            since = System.nanoTime();
        }
        Threads.park(nanos, label);
        return true;
    }
}
