package io.keymill;

import java.util.function.LongSupplier;

/**
 * A block of ids owned by whoever holds the handle: the fastest loop, for one thread at a time. Ids are unique and rise
 * within the handle. What is left in a handle that is dropped is lost; nothing is to be closed.
 */
public final class Handle extends Block implements LongSupplier {
    private final Well well;

    Handle(Well well) {
        super(null);
        well.checkNumbers();
        this.well = well;
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
        return well.next(this, new Wait(well.label));
    }

    /**
     * The source's kind and name.
     *
     * @return {@code handle of segment:orders}
     */
    @Override
    public String toString() {
        return "handle of " + well.label;
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
