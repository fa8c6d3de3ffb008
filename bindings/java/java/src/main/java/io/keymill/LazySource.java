package io.keymill;

import java.io.IOException;
import java.io.InvalidObjectException;
import java.io.NotSerializableException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import java.util.stream.LongStream;

/**
 * A source that is declared before a mill is open, as a model's field is: it holds only its spec. Its first id finds the mill
 * of {@link Mill#share}; where none is shared, it opens the default mill ({@link Mill#open()}), once for all callers.
 *
 * <pre>{@code
 * class Order {
 *     static final LazySource IDS = Mill.lazy("segment:orders");
 *     final long id = IDS.next();
 * }
 * }</pre>
 *
 * <p>After another {@link Mill#share} the next id comes from the new mill. Of a mill that was closed no id comes: as long as it is the
 * shared one, every verb throws {@link Code#CLOSED} and says what to do.
 *
 * <p>It is serializable: the spec travels, and is found anew where it arrives. Two with one spec are equal. Any number of
 * threads may use it; order, waiting and interruption are as for {@link Source}. A lazy source with a mill of its own
 * ({@link Mill#lazy(String, Supplier)}) is not serialized.
 */
public final class LazySource implements LongSupplier, Serializable {
    private static final long serialVersionUID = 1;

    /** What the source was declared by. */
    private final String spec;
    /** Gives the mill at each id; null: it is the shared one. */
    private final transient Supplier<? extends Mill> mills;
    /** Without a lock or a barrier: its fields are final, and what a thread misses it finds again. */
    private transient Resolved resolved;

    private static final class Resolved {
        final Origin origin;
        final Source source;

        Resolved(Origin origin, Source source) {
            this.origin = origin;
            this.source = source;
        }
    }

    LazySource(String spec, Supplier<? extends Mill> mills) {
        if (spec == null) {
            throw KeymillException.argument("the spec is null");
        }
        this.spec = spec;
        this.mills = mills;
    }

    /**
     * Refuses a source with a mill of its own: where it arrives it would take its ids from the shared one.
     *
     * @param out the stream
     * @throws IOException of the stream; for a source with a mill of its own
     */
    private void writeObject(ObjectOutputStream out) throws IOException {
        if (mills != null) {
            throw new NotSerializableException("a lazy source with a mill of its own");
        }
        out.defaultWriteObject();
    }

    /**
     * Refuses what no lazy source wrote.
     *
     * @param in the stream
     * @throws IOException of the stream; for a source without a spec
     * @throws ClassNotFoundException of the stream
     */
    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
        in.defaultReadObject();
        if (spec == null) {
            throw new InvalidObjectException("a lazy source without a spec");
        }
    }

    /**
     * The next id; waits at most the source's deadline when none is in memory.
     *
     * @return the id
     * @throws KeymillException as {@link Mill#source} and {@link Source#next}; where no mill is shared, as {@link Mill#open()}
     */
    public long next() {
        Resolved now = present();
        try {
            return now.source.next();
        } catch (KeymillException e) {
            return again(now, e);
        }
    }

    /** Of its own, so that the compiler can put the common way into its callers. */
    private long again(Resolved now, KeymillException e) {
        check(now, e);
        return next();
    }

    /** Returns where the verb is to be tried at another mill, else throws. */
    private void check(Resolved now, KeymillException e) {
        if (!now.origin.isReplaced(e)) {
            throw now.origin.told(e, spec);
        }
    }

    /** The source of the present mill; the source of the shared mill was looked at already. */
    private Resolved resolve() {
        Resolved now = resolved;
        return mills != null && now != null && now.origin.isPresent() ? now : resolveAnew();
    }

    private Resolved resolveAnew() {
        for (;;) {
            Origin origin = mills == null ? Shared.current : Origin.of(mills);
            Mill mill = origin.mill(spec);
            try {
                Resolved fresh = new Resolved(origin, mill.source(spec));
                resolved = fresh;
                return fresh;
            } catch (KeymillException e) {
                if (e.code() != Code.CLOSED) {
                    throw e.of(spec);
                }
                if (!origin.isReplaced(e)) {
                    throw origin.told(e, spec);
                }
            }
        }
    }

    /** What is resolved, of the present mill. Small, so that the compiler puts it into its callers. */
    private Resolved present() {
        Resolved now = resolved;
        return now == null || now.origin != Shared.current ? resolve() : now;
    }

    private <T> T ask(Function<Source, T> verb) {
        for (;;) {
            Resolved now = present();
            try {
                return verb.apply(now.source);
            } catch (KeymillException e) {
                check(now, e);
            }
        }
    }

    /** As {@link #ask}. */
    private <T> CompletableFuture<T> askAsync(Function<Source, CompletableFuture<T>> verb) {
        CompletableFuture<T> answer = new CompletableFuture<>();
        askAsync(verb, answer);
        return answer;
    }

    private <T> void askAsync(Function<Source, CompletableFuture<T>> verb, CompletableFuture<T> answer) {
        try {
            Resolved now = present();
            CompletableFuture<T> asked = verb.apply(now.source);
            asked.whenComplete((value, error) -> {
                if (error == null) {
                    answer.complete(value);
                } else {
                    failed(verb, answer, now, error);
                }
            });
            // Where it is cancelled.
            answer.whenComplete((value, error) -> asked.cancel(false));
        } catch (RuntimeException | Error e) {
            // Of a mill's supplier too, which is the program's own.
            answer.completeExceptionally(e);
        }
    }

    private <T> void failed(Function<Source, CompletableFuture<T>> verb, CompletableFuture<T> answer, Resolved now, Throwable error) {
        if (!(error instanceof KeymillException)) {
            answer.completeExceptionally(error);
            return;
        }
        try {
            check(now, (KeymillException) error);
            askAsync(verb, answer);
        } catch (RuntimeException | Error e) {
            answer.completeExceptionally(e);
        }
    }

    private <T> T askForKey(Function<Business, T> verb) {
        return ask(source -> verb.apply(new Business(source.box())));
    }

    /**
     * {@link #next()}.
     *
     * @return the id
     */
    @Override
    public long getAsLong() {
        return next();
    }

    /**
     * The next id if one is in memory; never waits.
     *
     * @return the id, or nothing
     * @throws KeymillException as {@link #next()}
     */
    public OptionalLong tryNext() {
        return ask(Source::tryNext);
    }

    /**
     * As {@link Source#tryNext(Duration)}.
     *
     * @param waited how long the caller has waited for this id in all; zero at first
     * @return the id, or nothing
     * @throws KeymillException as {@link #next()} and {@link Source#tryNext(Duration)}
     */
    public OptionalLong tryNext(Duration waited) {
        return ask(source -> source.tryNext(waited));
    }

    /**
     * {@link #nextText()} for a caller that must not wait and asks again, as {@link Serial#tryNext(Duration)}.
     *
     * @param waited how long the caller has waited for this text in all; zero at first
     * @return the text, or nothing
     * @throws KeymillException as {@link #next()} and {@link Serial#tryNext(Duration)}
     */
    public Optional<String> tryNextText(Duration waited) {
        return ask(source -> new Serial(source.box()).tryNext(waited));
    }

    /**
     * As {@link Source#nextAsync()}. A mill that is opened for it, or a source that is asked for, may block the caller.
     *
     * @return the id; its future ends as {@link #next()} would
     */
    public CompletableFuture<Long> nextAsync() {
        return askAsync(Source::nextAsync);
    }

    /**
     * As {@link Source#nextAsync(Duration)}.
     *
     * @param waited how long the caller has waited before, in all; the deadline counts it
     * @return the id, as {@link #nextAsync()}
     */
    public CompletableFuture<Long> nextAsync(Duration waited) {
        return askAsync(source -> source.nextAsync(waited));
    }

    /**
     * As {@link Source#nextTextAsync()}.
     *
     * @return the text, as {@link #nextAsync()}
     */
    public CompletableFuture<String> nextTextAsync() {
        return askAsync(Source::nextTextAsync);
    }

    /**
     * As {@link Source#nextTextAsync(Duration)}.
     *
     * @param waited how long the caller has waited before, in all; the deadline counts it
     * @return the text, as {@link #nextAsync()}
     */
    public CompletableFuture<String> nextTextAsync(Duration waited) {
        return askAsync(source -> source.nextTextAsync(waited));
    }

    /**
     * As {@link Source#take}.
     *
     * @param count how many
     * @return the ids
     * @throws KeymillException as {@link #next()} and {@link Source#take}
     */
    public long[] take(int count) {
        return ask(source -> source.take(count));
    }

    /**
     * As {@link Source#fill}.
     *
     * @param ids the array
     * @throws KeymillException as {@link #next()} and {@link Source#fill}
     */
    public void fill(long[] ids) {
        ask(source -> {
            source.fill(ids);
            return null;
        });
    }

    /**
     * As {@link Source#lease}.
     *
     * @param count how many at most
     * @return the numbers
     * @throws KeymillException as {@link #next()} and {@link Source#lease}
     */
    public Range lease(long count) {
        return ask(source -> source.lease(count));
    }

    /**
     * Ids without end.
     *
     * @return the stream; sequential, each id made when it is asked for
     */
    public LongStream stream() {
        return LongStream.generate(this);
    }

    /**
     * A handle of the source in the present mill, which it stays with.
     *
     * @return the handle
     * @throws KeymillException as {@link #next()} and {@link Source#handle}
     */
    public Handle handle() {
        return ask(Source::handle);
    }

    /**
     * As {@link Source#nextText}.
     *
     * @return the text
     * @throws KeymillException as {@link #next()} and {@link Source#nextText}
     */
    public String nextText() {
        return ask(Source::nextText);
    }

    /**
     * {@code count} texts, as {@link #nextText} gives them.
     *
     * @param count how many
     * @return the texts
     * @throws KeymillException as {@link #next()} and {@link Source#takeText}
     */
    public String[] takeText(int count) {
        return ask(source -> source.takeText(count));
    }

    /**
     * As {@link Source#textOf}.
     *
     * @param id an id of this source
     * @return the text
     * @throws KeymillException as {@link #next()} and {@link Source#textOf}
     */
    public String textOf(long id) {
        return ask(source -> source.textOf(id));
    }

    /**
     * The next business id for an integer key, as text.
     *
     * @param key the key
     * @return the text
     * @throws KeymillException as {@link #next()} and {@link Business#nextText(long)}
     */
    public String nextText(long key) {
        return askForKey(business -> business.nextText(key));
    }

    /**
     * The next business id for a text key, as text.
     *
     * @param key the key
     * @return the text
     * @throws KeymillException as {@link #next()} and {@link Business#nextText(String)}
     */
    public String nextText(String key) {
        return askForKey(business -> business.nextText(key));
    }

    /**
     * The next business id for an integer key.
     *
     * @param key the key
     * @return the id
     * @throws KeymillException as {@link #next()} and {@link Business#next(long)}
     */
    public long next(long key) {
        return askForKey(business -> business.next(key));
    }

    /**
     * The next business id for a text key.
     *
     * @param key the key
     * @return the id
     * @throws KeymillException as {@link #next()} and {@link Business#next(String)}
     */
    public long next(String key) {
        return askForKey(business -> business.next(key));
    }

    /**
     * {@code count} business ids for an integer key.
     *
     * @param key the key
     * @param count how many
     * @return the ids
     * @throws KeymillException as {@link #next()} and {@link Business#take(long, int)}
     */
    public long[] take(long key, int count) {
        return askForKey(business -> business.take(key, count));
    }

    /**
     * {@code count} business ids for a text key.
     *
     * @param key the key
     * @param count how many
     * @return the ids
     * @throws KeymillException as {@link #next()} and {@link Business#take(String, int)}
     */
    public long[] take(String key, int count) {
        return askForKey(business -> business.take(key, count));
    }

    /**
     * Takes an id apart.
     *
     * @param id an id of this source
     * @return its parts
     * @throws KeymillException as {@link #next()} and {@link Source#parse(long)}
     */
    public Parts parse(long id) {
        return ask(source -> source.parse(id));
    }

    /**
     * Takes a text apart: a serial number, or an id in decimal.
     *
     * @param id a text of this source
     * @return its parts
     * @throws KeymillException as {@link #next()} and {@link Source#parse(String)}
     */
    public Parts parse(String id) {
        return ask(source -> source.parse(id));
    }

    /**
     * The source's figures in the present mill.
     *
     * @return the figures
     * @throws KeymillException as {@link #next()}
     */
    public Stats stats() {
        return ask(Source::stats);
    }

    /**
     * Why this segment would give ids that are keys of a table already, for frameworks that know the table. A program that takes the
     * table's keys from this source has reserved each before, so the store's row is above it: a key from there on is another program's.
     *
     * @param table the table, for the message
     * @param highest its highest key, read before this call
     * @param from an id that this process was given where the table has keys from there on; 0: the store's row is asked
     * @return what was seen and what to do, or nothing
     * @throws KeymillException as {@link #next()}
     */
    public Optional<String> refusalOfKeys(String table, long highest, long from) {
        return Optional.ofNullable(ask(source -> source.box().refusalOfKeys(table, highest, from)));
    }

    /**
     * What the source is in the present mill, every default filled in.
     *
     * @return settings by name
     * @throws KeymillException as {@link #next()}
     */
    public Map<String, String> settings() {
        return ask(Source::settings);
    }

    /**
     * The source in the present mill, which it stays with: the verbs of a {@link Source}, without the look for another mill.
     *
     * @return the source
     * @throws KeymillException as {@link #next()}
     */
    public Source source() {
        return ask(source -> source);
    }

    /**
     * The business ids of the present mill, which they stay with: verbs that take a key, 128 bits included.
     *
     * @return the source
     * @throws KeymillException as {@link #next()}
     */
    public Business business() {
        return askForKey(business -> business);
    }

    /**
     * What the source was declared by.
     *
     * @return the spec, options included
     */
    public String spec() {
        return spec;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof LazySource && ((LazySource) other).spec.equals(spec) && ((LazySource) other).mills == mills;
    }

    @Override
    public int hashCode() {
        return spec.hashCode();
    }

    /** {@code lazy segment:orders}: the spec. */
    @Override
    public String toString() {
        return "lazy " + spec;
    }
}
