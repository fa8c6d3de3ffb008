package io.keymill.shardingsphere;

import io.keymill.Mill;
import io.keymill.support.FieldIds;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/** The keys of the tables of a rule. */
final class Keys {
    static final String TYPE = "KEYMILL";

    private final Supplier<Mill> mills;
    private final String spec;
    private final Map<String, FieldIds> known = new ConcurrentHashMap<>();

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
    Collection<Comparable<?>> take(String table, String column, int count) {
        FieldIds ids = of(table, column);
        if (count == 1) {
            return Arrays.<Comparable<?>>asList((Comparable<?>) ids.next());
        }
        List<Comparable<?>> keys = new ArrayList<>(count);
        for (Object key : ids.take(count)) {
            keys.add((Comparable<?>) key);
        }
        return keys;
    }

    private FieldIds of(String table, String column) {
        // Any object: a segment gives numbers, a serial texts.
        return known.computeIfAbsent(table + "." + column, name -> FieldIds.of(mills, spec, table, Object.class, name));
    }

    /** A key of a rule that does not say which table it is for. */
    Comparable<?> next() {
        return (Comparable<?>) known.computeIfAbsent("", any -> FieldIds.of(mills, spec, null, Object.class, "the key generator " + TYPE)).next();
    }
}
