package io.keymill;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/**
 * The wait of a caller that has a future. The thread of {@link Waiters} tries for it when there are news, and when a pause is over. Other
 * threads only send that thread the token.
 */
final class AsyncWait<T> extends Wait implements Comparable<AsyncWait<?>> {
    /** Runs what depends on a future. It may block, so it runs neither on the thread of {@link Waiters} nor in a pool of one thread. */
    private static final Executor COMPLETIONS = ForkJoinPool.getCommonPoolParallelism() > 1 ? ForkJoinPool.commonPool() : ownPool();

    /** Of a pool of keymill's own, at most. */
    private static final int THREADS = 16;

    /** Gives null where it found nothing, after it called {@link #pause}. */
    private final Function<Wait, T> verb;
    /** How long the caller had waited before, in nanoseconds. */
    private final long before;

    private final CompletableFuture<T> future = new CompletableFuture<>();
    private long pause;
    /** When to try again, by {@link System#nanoTime}. */
    private long due;

    private volatile boolean over;

    /** Its threads are made when they are needed, and none outlives its work by much: it would keep the class loader of an application. */
    private static Executor ownPool() {
        ThreadPoolExecutor pool = new ThreadPoolExecutor(THREADS, THREADS, 100, TimeUnit.MILLISECONDS, new LinkedBlockingQueue<>(), task -> {
            Thread thread = new Thread(task, "keymill-futures");
            thread.setDaemon(true);
            thread.setContextClassLoader(null);
            return thread;
        });
        pool.allowCoreThreadTimeOut(true);
        return pool;
    }

    AsyncWait(SourceBox source, int gene, long before, Function<Wait, T> verb) {
        super(source, gene);
        this.before = before;
        this.verb = verb;
    }

    static <T> CompletableFuture<T> failed(KeymillException cause) {
        CompletableFuture<T> future = new CompletableFuture<>();
        future.completeExceptionally(cause);
        return future;
    }

    /** Tries at once, and waits where there is nothing. */
    CompletableFuture<T> begin() {
        T value;
        try {
            value = verb.apply(this);
        } catch (KeymillException e) {
            return failed(e);
        }
        if (value != null) {
            future.complete(value);
            return future;
        }
        beforeRegistration();
        // The program may cancel it, or complete it by itself.
        future.whenComplete((result, error) -> {
            if (!over) {
                tell();
            }
        });
        tell();
        return future;
    }

    @Override
    long waited() {
        return before + super.waited();
    }

    @Override
    boolean pause(long nanos) {
        pause = nanos;
        return false;
    }

    /** Tries again. Called by the thread of {@link Waiters}; locked, since the next one may run while {@link #stop} says that one failed. */
    @Override
    synchronized void wake() {
        Waiters.ALL.forgetTime(this);
        if (over || future.isDone()) {
            close();
            return;
        }
        try {
            unregister();
            register();
            T value = verb.apply(this);
            if (value == null) {
                due = System.nanoTime() + pause;
                Waiters.ALL.wakeInTime(this);
            } else {
                end(() -> future.complete(value));
            }
        } catch (Throwable e) {
            stop(e);
        }
    }

    /** When to try again, less than or equal to 0 where that time has come. */
    long dueIn() {
        return due - System.nanoTime();
    }

    @Override
    public int compareTo(AsyncWait<?> other) {
        return due == other.due ? Long.compare(token(), other.token()) : Long.signum(due - other.due);
    }

    @Override
    synchronized void stop(Throwable cause) {
        end(() -> future.completeExceptionally(cause));
    }

    private void end(Runnable completion) {
        close();
        try {
            COMPLETIONS.execute(completion);
        } catch (RejectedExecutionException | OutOfMemoryError e) {
            completion.run();
        }
    }

    @Override
    public void close() {
        over = true;
        super.close();
    }
}
