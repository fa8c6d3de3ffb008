package io.keymill.support;

import io.keymill.Mill;
import io.keymill.Source;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.WeakHashMap;

/** The sources that fields took from, for what shows a mill's state. */
public final class UsedSources {
    private static final Map<Mill, Map<String, Source>> BY_MILL = new WeakHashMap<>();

    private UsedSources() {}

    /**
     * Notes that a source of this mill is in use.
     *
     * @param mill the mill
     * @param spec what the source was asked for by
     * @param source the source
     */
    public static void add(Mill mill, String spec, Source source) {
        synchronized (BY_MILL) {
            BY_MILL.computeIfAbsent(mill, any -> new LinkedHashMap<>()).put(spec, source);
        }
    }

    /**
     * The sources of this mill that are in use.
     *
     * @param mill the mill
     * @return the sources
     */
    public static Collection<Source> of(Mill mill) {
        synchronized (BY_MILL) {
            return new ArrayList<>(BY_MILL.getOrDefault(mill, Collections.emptyMap()).values());
        }
    }
}
