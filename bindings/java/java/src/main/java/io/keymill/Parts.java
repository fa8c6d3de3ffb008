package io.keymill;

import java.time.Instant;
import java.util.Collections;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;

/** What an id or a serial number is made of. */
public final class Parts {
    private final Map<String, String> fields;
    private final String timeMs;

    Parts(String rows) {
        fields = Native.map(rows);
        timeMs = fields.remove("time_ms");
    }

    /**
     * When a snowflake was made.
     *
     * @return the time, for snowflakes
     */
    public Optional<Instant> time() {
        return timeMs == null ? Optional.empty() : Optional.of(Instant.ofEpochMilli(Long.parseLong(timeMs)));
    }

    /**
     * The data centre of a snowflake whose source was given its worker as {@code DC+N}.
     *
     * @return the data centre, where there is one
     */
    public OptionalLong datacenter() {
        return number("datacenter");
    }

    /**
     * A snowflake's worker; within its data centre where there is one.
     *
     * @return the worker, for snowflakes
     */
    public OptionalLong worker() {
        return number("worker");
    }

    /**
     * A snowflake's sequence.
     *
     * @return the sequence, for snowflakes
     */
    public OptionalLong sequence() {
        return number("sequence");
    }

    /**
     * A serial number's date part.
     *
     * @return the date part, for serials
     */
    public Optional<String> date() {
        return Optional.ofNullable(fields.get("date"));
    }

    /**
     * The gene of a business id: its virtual node.
     *
     * @return the gene, for business ids
     */
    public OptionalInt gene() {
        String text = fields.get("gene");
        return text == null ? OptionalInt.empty() : OptionalInt.of(Integer.parseInt(text));
    }

    /**
     * A segment's id, or the number of a serial or of a business id.
     *
     * @return the number, for segments, serials and business ids
     */
    public OptionalLong number() {
        return number("number");
    }

    /**
     * Every part by its name, in the order people read them; time as RFC 3339.
     *
     * @return the parts
     */
    public Map<String, String> fields() {
        return Collections.unmodifiableMap(fields);
    }

    private OptionalLong number(String name) {
        String text = fields.get(name);
        return text == null ? OptionalLong.empty() : OptionalLong.of(Long.parseLong(text));
    }

    @Override
    public String toString() {
        return fields.toString();
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Parts && fields.equals(((Parts) other).fields);
    }

    @Override
    public int hashCode() {
        return fields.hashCode();
    }
}
