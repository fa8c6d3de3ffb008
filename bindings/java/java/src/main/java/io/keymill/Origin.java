package io.keymill;

import java.util.function.Supplier;

/** Where a lazy source finds its mill. */
interface Origin {
    /** The mill, for what a message names by {@code label}. */
    Mill mill(String label);

    /** Whether a source that was resolved here need not be resolved again. */
    boolean isPresent();

    /** What a verb threw, with what to do where the mill was closed. */
    KeymillException told(KeymillException e, String label);

    /** Whether what a verb threw comes of a mill that was replaced since, so that the verb is tried at the new one. */
    default boolean isReplaced(KeymillException e) {
        return e.code() == Code.CLOSED && !isPresent();
    }

    /** The mill that a supplier gave; another one takes its place when the supplier gives another one. */
    static Origin of(Supplier<? extends Mill> mills) {
        Mill mill = mills.get();
        if (mill == null) {
            throw KeymillException.argument("the supplier of the mill gave null");
        }
        return new Origin() {
            @Override
            public Mill mill(String label) {
                return mill;
            }

            @Override
            public boolean isPresent() {
                return mills.get() == mill;
            }

            @Override
            public KeymillException told(KeymillException e, String label) {
                return e;
            }
        };
    }
}
