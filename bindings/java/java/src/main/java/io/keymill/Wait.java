package io.keymill;

/** One caller's wait for numbers: how long it has lasted, and for how long to pause. */
final class Wait {
    /** A wait of callers that do not wait. */
    static final Wait NEVER = new Wait(null);

    private final String label;
    private long since;
    private boolean begun;

    Wait(String label) {
        this.label = label;
    }

    /** For the native library: nanoseconds waited so far, or less than 0 for a caller that does not wait. */
    long waited() {
        if (label == null) {
            return -1;
        }
        return begun ? Math.max(0, System.nanoTime() - since) : 0;
    }

    /** Pauses; false where the caller does not wait. */
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
