package io.keymill;

import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;

/**
 * The figures of a source since its mill was opened. They are read one by one while other threads take ids, so they may
 * differ by the ids that were taken in between.
 */
public final class Stats {
    private final Map<String, String> figures;
    /** Leased numbers that no caller has yet. */
    private final long held;

    Stats(String rows, long held) {
        figures = Native.map(rows);
        this.held = Math.min(held, number("issued"));
    }

    /**
     * The source: {@code segment:orders}.
     *
     * @return kind and name
     */
    public String source() {
        return figures.get("source");
    }

    /**
     * The source with its options, which distinguish two sources of one name.
     *
     * @return the spec
     */
    public String spec() {
        return figures.get("spec");
    }

    /**
     * Ids handed out. With {@code order=thread} and in a {@link Handle} the numbers of a block count when the block is leased.
     *
     * @return how many
     */
    public long issued() {
        return number("issued") - held;
    }

    /**
     * Numbers reserved from the store.
     *
     * @return how many
     */
    public long reserved() {
        return number("reserved");
    }

    /**
     * Numbers in memory.
     *
     * @return how many
     */
    public long left() {
        return number("left") + held;
    }

    /**
     * Numbers that were reserved and will not be handed out.
     *
     * @return how many
     */
    public long lost() {
        return number("lost");
    }

    /**
     * Reservations that were answered.
     *
     * @return how many
     */
    public long refills() {
        return number("refills");
    }

    /**
     * Calls that had to wait.
     *
     * @return how many
     */
    public long waits() {
        return number("waits");
    }

    /**
     * The size of the last reservation.
     *
     * @return how many numbers
     */
    public long step() {
        return number("step");
    }

    /**
     * When the last reservation was answered.
     *
     * @return the time, or nothing before the first
     */
    public Optional<Instant> lastRefill() {
        return figure("last_refill_ms").map(Long::parseLong).map(Instant::ofEpochMilli);
    }

    /**
     * Ids a second, as they were measured last.
     *
     * @return the rate
     */
    public double rate() {
        return Double.parseDouble(figures.get("rate"));
    }

    /**
     * How long the numbers in memory last at {@link #rate}; zero where none are left and callers get an error.
     *
     * @return the time, or nothing at a rate of 0
     */
    public Optional<Duration> runway() {
        return figure("runway_seconds").map(Double::parseDouble).map(seconds -> Duration.ofNanos((long) (seconds * 1e9)));
    }

    /**
     * How far a snowflake's time leads the wall clock.
     *
     * @return the lead, for snowflakes
     */
    public Optional<Duration> lead() {
        return figure("lead_ms").map(Long::parseLong).map(Duration::ofMillis);
    }

    /**
     * When a snowflake's layout ends.
     *
     * @return the time, for snowflakes
     */
    public Optional<Instant> endsAt() {
        return figure("ends_at_ms").map(Long::parseLong).map(Instant::ofEpochMilli);
    }

    /**
     * How long ago the lease of a snowflake's worker was renewed.
     *
     * @return the time, where there is a lease
     */
    public Optional<Duration> leaseAge() {
        return figure("lease_age_ms").map(Long::parseLong).map(Duration::ofMillis);
    }

    /**
     * The error that callers get now.
     *
     * @return code and message, or nothing
     */
    public Optional<String> refusal() {
        return figure("refusal");
    }

    /**
     * The time zone of a serial's dates; with {@code zone=local} it is the program's zone.
     *
     * @return such as {@code Asia/Shanghai}, or nothing
     */
    public Optional<String> zone() {
        return figure("zone");
    }

    private Optional<String> figure(String name) {
        return Optional.ofNullable(figures.get(name));
    }

    private long number(String name) {
        return Long.parseLong(figures.get(name));
    }

    /** {@code segment:orders: issued 7, reserved 1000, left 993, lost 0}. */
    @Override
    public String toString() {
        return source() + ": issued " + issued() + ", reserved " + reserved() + ", left " + left() + ", lost " + lost();
    }
}
