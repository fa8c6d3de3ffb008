package io.keymill;

import java.time.Duration;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.Stream;

/**
 * Dated serial numbers such as {@code 20261120000001}. The date belongs to the leased numbers, not to the moment of
 * writing: a number that was reserved for a day is only ever issued with that day, and each day starts at 1.
 *
 * <p>Order, waiting and interruption are as for {@link Source}.
 */
public final class Serial implements Supplier<String> {
    private final SourceBox box;

    Serial(SourceBox box) {
        this.box = box;
    }

    SourceBox box() {
        return box;
    }

    /**
     * The next serial number; waits at most the source's deadline when none is in memory.
     *
     * @return the text
     * @throws KeymillException as {@link Source#next}, and {@link Code#NUMBER_OVERFLOW}
     */
    public String next() {
        return box.text();
    }

    /**
     * {@link #next}.
     *
     * @return the text
     */
    @Override
    public String get() {
        return box.text();
    }

    /**
     * The next serial number if one is in memory; never waits.
     *
     * @return the text, or nothing
     * @throws KeymillException as {@link #next}
     */
    public Optional<String> tryNext() {
        return Optional.ofNullable(box.text(Wait.NEVER));
    }

    /**
     * {@link #next} for a caller that must not wait, as {@link Source#tryNext(Duration)}.
     *
     * @param waited how long the caller has waited for this number in all; zero at first
     * @return the text, or nothing
     * @throws KeymillException as {@link #next}: {@link Code#DEADLINE} once the deadline has passed
     */
    public Optional<String> tryNext(Duration waited) {
        return Optional.ofNullable(box.text(new Wait(Math.max(0, waited.toNanos()))));
    }

    /**
     * {@link #next} for a caller that must not block, as {@link Source#nextAsync()}.
     *
     * @return the text
     */
    public CompletableFuture<String> nextAsync() {
        return box.textAsync(Duration.ZERO);
    }

    /**
     * {@code count} serial numbers in rising order.
     *
     * @param count how many
     * @return the texts
     * @throws KeymillException as {@link #next}; {@link Code#INVALID_ARGUMENT} for a negative count, or more than memory
     *     holds
     */
    public String[] take(int count) {
        return Source.texts(box, count);
    }

    /**
     * Serial numbers without end.
     *
     * @return the stream
     */
    public Stream<String> stream() {
        return Stream.generate(this);
    }

    /**
     * Takes a serial number apart.
     *
     * @param text a text of this source
     * @return its parts
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a text this source cannot have made
     */
    public Parts parse(String text) {
        return new Parts(box.parse(text));
    }

    /**
     * The source's figures: serial numbers issued, numbers in memory, the rate, the present error.
     *
     * @return the figures
     * @throws KeymillException {@link Code#CLOSED}
     */
    public Stats stats() {
        return box.stats();
    }

    /** {@code serial:cust_info/custid}: kind and name, without options. */
    @Override
    public String toString() {
        return box.label;
    }
}
