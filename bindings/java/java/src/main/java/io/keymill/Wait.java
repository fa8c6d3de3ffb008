package io.keymill;

import java.util.concurrent.locks.LockSupport;

/**
 * One caller's wait for numbers: how long it has lasted, and for how long to pause. A caller that pauses is registered with its source, and
 * woken when there are news for it.
 */
class Wait implements AutoCloseable {
    /** A wait of callers that do not wait. */
    static final Wait NEVER = new Wait(-1);
    /** In place of a gene: of a source without keys. */
    static final int NO_GENE = -1;

    /** The longest pause of a caller that is not woken. */
    private static final long UNWOKEN_NANOS = 10_000_000;

    /** Null for a caller that does not wait here. */
    private final SourceBox source;

    private final int gene;
    /** How long such a caller has waited elsewhere; less than 0: it does not wait at all. */
    private final long elsewhere;

    private long since;
    private Thread thread;
    /** Its token among the {@link Waiters}, and its registration; 0: none. */
    private long token;

    private long registration;
    /** Whether there is a thread that wakes it. */
    private boolean woken;
    /** There were news since it registered. Not only the thread's permit, which another park between may have taken. */
    private volatile boolean news;

    Wait(SourceBox source) {
        this(source, NO_GENE);
    }

    Wait(SourceBox source, int gene) {
        this.source = source;
        this.gene = gene;
        elsewhere = -1;
    }

    /** Of a caller that asks again and again, and has waited for so long in all. */
    Wait(long elsewhere) {
        source = null;
        gene = NO_GENE;
        this.elsewhere = elsewhere;
    }

    /**
     * For the native library: nanoseconds waited so far, or less than 0 for a caller that does not wait. More than 0: the caller is
     * registered, or does not wait here.
     */
    long waited() {
        if (source == null) {
            return elsewhere;
        }
        return token == 0 ? 0 : Math.max(1, System.nanoTime() - since);
    }

    /**
     * After a try that found no number: pauses until there are news, at most for so long. The first time it does not pause: news may have
     * come before the caller was registered, so it has to try again. False where the caller does not wait here.
     */
    boolean pause(long nanos) {
        if (source == null) {
            return false;
        }
        if (token != 0) {
            park(nanos);
        }
        register();
        return true;
    }

    final void register() {
        registration = source.register(gene, beforeRegistration());
    }

    /** Called before each registration; what comes from here on is news. Answers with the token to register. */
    final long beforeRegistration() {
        if (token == 0) {
            since = System.nanoTime();
            thread = Thread.currentThread();
            token = Waiters.ALL.newToken();
            Waiters.ALL.enter(token, this);
        }
        news = false;
        woken = Waiters.ALL.start();
        return token;
    }

    /** Parks until there are news, at most for so long. */
    void park(long nanos) {
        Threads.park(news ? 0 : woken ? nanos : Math.min(nanos, UNWOKEN_NANOS), source.label);
        unregister();
    }

    /** There are news, or may be. Called by the thread of {@link Waiters}. */
    void wake() {
        news = true;
        LockSupport.unpark(thread);
    }

    /** The thread of {@link Waiters} has ended, by this. Called by any thread. */
    void stop(Throwable cause) {
        wake();
    }

    /** Has the thread of {@link Waiters} wake it. */
    final void tell() {
        Native.tell(Waiters.ALL.notifier, token);
    }

    final long token() {
        return token;
    }

    final void unregister() {
        if (registration != 0) {
            source.unregister(registration);
            registration = 0;
        }
    }

    /** The wait is over. */
    @Override
    public void close() {
        if (token != 0) {
            unregister();
            Waiters.ALL.leave(token);
        }
    }
}
