package io.keymill;

import java.util.stream.LongStream;

/** Numbers that follow each other, from {@link #first} to below {@link #end}: what {@link Source#lease} gives. */
public final class Range {
    private final long first;
    private final long end;

    Range(long first, long end) {
        this.first = first;
        this.end = end;
    }

    /**
     * The first number.
     *
     * @return the number
     */
    public long first() {
        return first;
    }

    /**
     * One past the last number. Above the last number that there is, 2^63-1, this is 2^63, which Java shows as
     * {@link Long#MIN_VALUE}: count with {@link #size}.
     *
     * @return the number
     */
    public long end() {
        return end;
    }

    /**
     * How many numbers.
     *
     * @return at least 1
     */
    public long size() {
        return end - first;
    }

    /**
     * The numbers, rising.
     *
     * @return the stream
     */
    public LongStream stream() {
        return LongStream.rangeClosed(first, end - 1);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Range && ((Range) other).first == first && ((Range) other).end == end;
    }

    @Override
    public int hashCode() {
        return Long.hashCode(first) * 31 + Long.hashCode(end);
    }

    /** {@code [1, 1001)}. */
    @Override
    public String toString() {
        return "[" + first + ", " + Long.toUnsignedString(end) + ")";
    }
}
