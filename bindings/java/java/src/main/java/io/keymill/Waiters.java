package io.keymill;

import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The waits for numbers in this class loader. Each has a token, with which it registers with its source. When the keeper has news for some
 * of them, it hands their tokens to the notifier, and the thread of this class wakes them. That thread runs while there are waits, and for
 * a second longer. A thread that waits takes no processor time, and a virtual one holds no carrier.
 */
final class Waiters implements Runnable {
    static final Waiters ALL = new Waiters();

    /** A source that starves has waits again and again: they find the thread running. */
    private static final long LINGER_NANOS = 1_000_000_000;
    /** The token of no wait: the thread is to end unless there are some. */
    private static final long END = 0;

    /** The address of a box that is never freed. */
    final long notifier = Native.notifier();

    private final Map<Long, Wait> waiting = new ConcurrentHashMap<>();
    /** The waits that are to be woken at a time, in that order. Used by the thread alone. */
    private final TreeSet<AsyncWait<?>> timed = new TreeSet<>();

    private final AtomicLong last = new AtomicLong(END);
    private final AtomicBoolean running = new AtomicBoolean();

    private Waiters() {}

    long newToken() {
        return last.incrementAndGet();
    }

    /** A wait begins. */
    void enter(long token, Wait wait) {
        waiting.put(token, wait);
    }

    /** The wait with this token is over. */
    void leave(long token) {
        waiting.remove(token);
    }

    /** For a wait that has entered: starts the thread unless it runs. False where the system gives none, so that the wait is not woken. */
    boolean start() {
        // The thread that ends clears the flag first, and looks for waits then.
        if (running.get() || !running.compareAndSet(false, true)) {
            return true;
        }
        try {
            Thread thread = new Thread(this, "keymill-waiters");
            thread.setDaemon(true);
            // It would keep the class loader of an application that has ended.
            thread.setContextClassLoader(null);
            thread.start();
            return true;
        } catch (RuntimeException | Error e) {
            stop(e);
            return false;
        }
    }

    /** There is no thread: callers that wait look for themselves, and try to start one. */
    private void stop(Throwable cause) {
        timed.clear();
        running.set(false);
        waiting.values().forEach(wait -> wait.stop(cause));
    }

    /** Wakes a wait when its time has come, unless it is woken before. Called by the thread. */
    void wakeInTime(AsyncWait<?> wait) {
        timed.add(wait);
    }

    void forgetTime(AsyncWait<?> wait) {
        timed.remove(wait);
    }

    /** A mill was closed, perhaps the last one: the thread does not outlive an application. */
    void endIfIdle() {
        if (running.get()) {
            Native.tell(notifier, END);
        }
    }

    @Override
    public void run() {
        try {
            do {
                while (wake() || isAny()) {}
            } while (goesOn());
        } catch (Throwable e) {
            // Memory has run out, for instance, and tokens are lost.
            stop(e);
            throw e;
        }
    }

    /** Wakes the waits that have news or whose time has come, once there are some. False where the thread may end. */
    private boolean wake() {
        long longest = timed.isEmpty() ? LINGER_NANOS : Math.min(LINGER_NANOS, Math.max(0, timed.first().dueIn()));
        long[] tokens = Native.awaitNews(notifier, longest);
        boolean goesOn = tokens.length > 0;
        for (long token : tokens) {
            Wait wait = waiting.get(token);
            if (wait != null) {
                wait.wake();
            }
            goesOn &= token != END;
        }
        while (!timed.isEmpty() && timed.first().dueIn() <= 0) {
            timed.first().wake();
        }
        return goesOn;
    }

    private boolean goesOn() {
        running.set(false);
        return isAny() && running.compareAndSet(false, true);
    }

    /** Not by the map's size, which may be wrong while others enter and leave: it must not miss a wait that has entered. */
    private boolean isAny() {
        return waiting.keySet().iterator().hasNext();
    }
}
