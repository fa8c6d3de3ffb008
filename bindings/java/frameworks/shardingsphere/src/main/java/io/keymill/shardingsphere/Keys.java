package io.keymill.shardingsphere;

import io.keymill.Mill;
import io.keymill.support.FieldIds;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/** The keys of the tables of a rule. */
final class Keys {
    static final String TYPE = "KEYMILL";

    private final Supplier<Mill> mills;
    private final String spec;
    private final Map<String, Map<String, FieldIds>> known = new ConcurrentHashMap<>();

    Keys(Properties properties) {
        mills = Mills.of(properties);
        spec = properties.getProperty("source", FieldIds.DEFAULT);
    }

    static void check(Properties properties) {
        for (Object name : properties.keySet()) {
            if (!name.equals("source") && !name.equals("config")) {
                throw new IllegalArgumentException("the key generator " + TYPE + " has no property `" + name + "`; it has source and config");
            }
        }
    }

    /** {@code count} keys in one step. */
    @SuppressWarnings("unchecked")
    Collection<Comparable<?>> take(String table, String column, int count) {
        FieldIds ids = of(table, column);
        // Numbers and texts: all of them can be compared.
        return (Collection<Comparable<?>>) (Collection<?>) (count == 1 ? Collections.singletonList(ids.next()) : Arrays.asList(ids.take(count)));
    }

    private FieldIds of(String table, String column) {
        Map<String, FieldIds> ofTable = known.get(table);
        FieldIds ids = ofTable == null ? null : ofTable.get(column);
        if (ids == null) {
            // Any object: a segment gives numbers, a serial texts.
            ids = FieldIds.of(mills, spec, table, Object.class, table + "." + column);
            known.computeIfAbsent(table, any -> new ConcurrentHashMap<>()).put(column, ids);
        }
        return ids;
    }

    /** The keys of a rule that does not say which table it is for. */
    FieldIds ofRule() {
        return FieldIds.of(mills, spec, null, Object.class, "the key generator " + TYPE);
    }
}
