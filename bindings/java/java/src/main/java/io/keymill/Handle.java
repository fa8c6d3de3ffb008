package io.keymill;

import java.util.function.LongSupplier;

/**
 * A block of ids of its own: the fastest loop, for one thread at a time. Ids are unique and rise
 * within the handle. A dropped handle loses the rest of its block; a handle needs no close.
 */
public final class Handle extends Cursor implements LongSupplier {
    private final SourceBox box;

    Handle(SourceBox box) {
        super(null);
        box.checkNumbers();
        this.box = box;
    }

    /**
     * The next id of this handle; a new block is leased when the last one is used up or revoked.
     *
     * @return the id
     * @throws KeymillException as {@link Source#next}
     */
    public long next() {
        long number = take();
        return number != 0 ? number : refilled();
    }

    private long refilled() {
        return box.next(this);
    }

    /**
     * The source's kind and name.
     *
     * @return {@code handle of segment:orders}
     */
    @Override
    public String toString() {
        return "handle of " + box.label;
    }

    /**
     * {@link #next}.
     *
     * @return the id
     */
    @Override
    public long getAsLong() {
        return next();
    }
}
