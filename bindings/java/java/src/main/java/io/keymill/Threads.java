package io.keymill;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.concurrent.locks.LockSupport;

/** How a thread waits here: parked, never holding a monitor, so that a virtual thread leaves its carrier. */
final class Threads {
    /** {@code Thread.isVirtual}, where there is such a thing. */
    private static final MethodHandle VIRTUAL = find();

    private Threads() {}

    private static MethodHandle find() {
        try {
            return MethodHandles.publicLookup()
                    .findVirtual(Thread.class, "isVirtual", MethodType.methodType(boolean.class));
        } catch (ReflectiveOperationException e) {
            return null;
        }
    }

    static boolean isVirtual(Thread thread) {
        if (VIRTUAL == null) {
            return false;
        }
        try {
            return (boolean) VIRTUAL.invokeExact(thread);
        } catch (Throwable e) {
            return false;
        }
    }

    /** Waits for a thread that does something short; {@code turns} counts how often that was done. */
    static int spin(int turns) {
        if (turns < 100) {
            Atomics.pause();
        } else if (turns < 200) {
            Thread.yield();
        } else {
            LockSupport.parkNanos(50_000);
        }
        return turns + 1;
    }

    /** Parks for the pause that the core gave. An interrupt ends the wait: its flag stays set. */
    static void park(long pause, String label) {
        if (!Thread.currentThread().isInterrupted()) {
            LockSupport.parkNanos(pause);
        }
        if (Thread.currentThread().isInterrupted()) {
            throw new KeymillException(
                    Code.DEADLINE,
                    "interrupted while waiting for a number of `" + label + "`",
                    -1,
                    new InterruptedException());
        }
    }
}
