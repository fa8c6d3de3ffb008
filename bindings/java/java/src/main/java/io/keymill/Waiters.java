package io.keymill;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * The threads that wait for numbers, in this class loader. Each has a token, with which it registers with its source, and parks. When the
 * keeper has news for some of them, it hands their tokens to the notifier, and the thread of this class unparks them. That thread runs
 * while others wait, and for a second longer. A thread that waits takes no processor time, and a virtual one holds no carrier.
 */
final class Waiters implements Runnable {
    static final Waiters ALL = new Waiters();

    /** A source that starves has waiters again and again: they find the thread running. */
    private static final long LINGER_NANOS = 1_000_000_000;
    /** The token of no waiter: the thread is to end unless some wait. */
    private static final long END = 0;

    /** The address of a box that is never freed. */
    final long notifier = Native.notifier();

    private final Map<Long, Thread> waiting = new ConcurrentHashMap<>();
    private final AtomicLong last = new AtomicLong(END);
    private final AtomicBoolean running = new AtomicBoolean();

    private Waiters() {}

    /** The calling thread waits from here on. Answers with its token. */
    long enter() {
        long token = last.incrementAndGet();
        waiting.put(token, Thread.currentThread());
        // The thread that ends clears the flag first, and looks for waiters then.
        if (running.compareAndSet(false, true)) {
            boolean started = false;
            try {
                Thread thread = new Thread(this, "keymill-waiters");
                thread.setDaemon(true);
                // It would keep the class loader of an application that has ended.
                thread.setContextClassLoader(null);
                thread.start();
                started = true;
            } finally {
                if (!started) {
                    running.set(false);
                    waiting.remove(token);
                }
            }
        }
        return token;
    }

    /** The thread with this token waits no more. */
    void leave(long token) {
        waiting.remove(token);
    }

    /** A mill was closed, perhaps the last one: the thread does not outlive an application. */
    void endIfIdle() {
        if (running.get()) {
            Native.tell(notifier, END);
        }
    }

    @Override
    public void run() {
        do {
            try {
                while (wake() || !waiting.isEmpty()) {}
            } catch (OutOfMemoryError e) {
                // The tokens are lost: all look for themselves.
                waiting.values().forEach(LockSupport::unpark);
            }
        } while (goesOn());
    }

    /** Unparks the threads that have news, once there are some. False where the thread may end. */
    private boolean wake() {
        long[] tokens = Native.awaitNews(notifier, LINGER_NANOS);
        boolean goesOn = tokens.length > 0;
        for (long token : tokens) {
            Thread thread = waiting.get(token);
            if (thread != null) {
                LockSupport.unpark(thread);
            }
            goesOn &= token != END;
        }
        return goesOn;
    }

    private boolean goesOn() {
        running.set(false);
        return !waiting.isEmpty() && running.compareAndSet(false, true);
    }
}
