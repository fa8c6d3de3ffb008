package io.keymill.support;

import io.keymill.Mill;

/** The mill that fields take from where none is named: the one that was shared last, else the default one. */
public final class SharedMill {
    private static volatile Mill shared;

    private SharedMill() {}

    /**
     * Makes this the shared mill.
     *
     * @param mill an open mill; null: the default one again
     */
    public static void share(Mill mill) {
        shared = mill;
    }

    /**
     * The shared mill; opens the default one ({@link Mill#open()}) where none was shared.
     *
     * @return the mill
     */
    public static Mill get() {
        Mill mill = shared;
        return mill != null ? mill : Default.MILL;
    }

    private static final class Default {
        static final Mill MILL = Mill.open();
    }
}
