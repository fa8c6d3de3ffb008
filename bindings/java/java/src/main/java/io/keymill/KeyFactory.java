package io.keymill;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * The hand-written KeyFactory's static method over the same table {@code key_producer}, with the same signature and without
 * its lock: change the import. Old and new nodes may share rows, but not over midnight: an old node with a slow clock sets the row back, which
 * is refused here as {@link Code#STORE_WENT_BACKWARDS}.
 *
 * <p>Options that are not arguments come from the mill's TOML file: {@code [serial]} with {@code order = "thread"} is the
 * fastest, {@code overflow = "widen"} gives a seventh digit after {@code 999999} as DecimalFormat did, where the default is
 * {@link Code#NUMBER_OVERFLOW}. Days are the days of the JVM's time zone, as SimpleDateFormat's were.
 */
public final class KeyFactory {
    /** Everything that is found without a lock: the mill, and an open-addressed table of what was asked of it. */
    private static volatile State state = new State(null, new Entry[8], 0);
    /** Of that table, what was put there last; beside it, because each step to it costs as much as the look. */
    private static volatile Entry newest;
    /** Held while both are changed, and for nothing that waits. */
    private static final Object CHANGE = new Object();

    private KeyFactory() {}

    /**
     * {@link Mill#share}: makes this the mill that serial numbers and lazy sources come from. Without it the first call opens
     * {@link Mill#open()}.
     *
     * @param mill an open mill; it stays the caller's to close
     */
    public static void use(Mill mill) {
        if (mill == null) {
            throw KeymillException.argument("the mill to use is null; Mill.share(null) goes back to the default mill");
        }
        Mill.share(mill);
    }

    /** Another mill is shared. */
    static void forget() {
        synchronized (CHANGE) {
            newest = null;
            state = new State(null, new Entry[8], 0);
        }
    }

    private static boolean replace(State old, State by, Entry entry) {
        synchronized (CHANGE) {
            if (state != old) {
                return false;
            }
            state = by;
            newest = entry;
            return true;
        }
    }

    /**
     * The next serial number, as {@code getSerialNoByDS("cust_info", "custid", "yyyyMMdd", "000000", 500)} gives
     * {@code 20261120000001}.
     *
     * @param table the table
     * @param column the column
     * @param dateFmt the date pattern, which may hold a quoted prefix
     * @param noFmt the number pattern, {@code 00000000} for eight digits
     * @param cacheSize how many numbers to reserve at a time, or a multiple of that at high rates; what the first call for a
     *     column says holds
     * @return the serial number
     * @throws KeymillException (unchecked) as {@link Serial#next}, never a {@code SQLException}
     * @throws Exception never another one; declared because the old method did, so that a {@code catch (SQLException e)}
     *     or {@code catch (Exception e)} around the call still compiles
     */
    public static String getSerialNoByDS(String table, String column, String dateFmt, String noFmt, int cacheSize)
            throws Exception {
        // Many programs number one column: the literals of the newest column need no search.
        Entry last = newest;
        if (last != null && last.table == table && last.column == column && last.dateFmt == dateFmt
                && last.noFmt == noFmt) {
            return last.box.text();
        }
        return search(table, column, dateFmt, noFmt, cacheSize);
    }

    /** Of its own, so that the compiler can put the common way into its callers. */
    private static String search(String table, String column, String dateFmt, String noFmt, int cacheSize) {
        Entry entry = table == null || column == null ? null : state.find(table, column, dateFmt, noFmt);
        return (entry == null ? first(table, column, dateFmt, noFmt, cacheSize) : entry).box.text();
    }

    private static int hash(String table, String column) {
        // Strings keep their hash.
        int hash = table.hashCode() * 31 + column.hashCode();
        return hash ^ (hash >>> 15);
    }

    private static Entry first(String table, String column, String dateFmt, String noFmt, int cacheSize) {
        for (;;) {
            State now = state;
            if (now.mill == null) {
                replace(now, new State(Mill.shared(), now.entries, 0), null);
                continue;
            }
            // Of two first calls with different sizes one comes first; the other's source would have an order of its own.
            Entry found = table == null || column == null ? null : now.find(table, column, dateFmt, noFmt);
            if (found != null) {
                return found;
            }
            Map<String, String> options = new LinkedHashMap<>();
            options.put("date", dateFmt);
            options.put("number", noFmt);
            options.put("step", Integer.toString(cacheSize));
            Serial serial = now.mill.serial(Arrays.asList(table, column), options);
            Entry entry = new Entry(table, column, dateFmt, noFmt, serial.box());
            if (replace(now, now.with(entry), entry)) {
                return entry;
            }
        }
    }

    /** Unchanging: a thread that holds it may read it for ever. */
    private static final class State {
        final Mill mill;
        final Entry[] entries;
        final int count;

        State(Mill mill, Entry[] entries, int count) {
            this.mill = mill;
            this.entries = entries;
            this.count = count;
        }

        /** What was asked before under these names and patterns; null: nothing. */
        Entry find(String table, String column, String dateFmt, String noFmt) {
            int mask = entries.length - 1;
            for (int at = hash(table, column) & mask; ; at = (at + 1) & mask) {
                Entry entry = entries[at];
                if (entry == null || entry.is(table, column, dateFmt, noFmt)) {
                    return entry;
                }
            }
        }

        State with(Entry entry) {
            int room = 2 * (count + 1) > entries.length ? 2 * entries.length : entries.length;
            Entry[] more = new Entry[room];
            for (Entry old : entries) {
                if (old != null) {
                    put(more, old);
                }
            }
            put(more, entry);
            return new State(mill, more, count + 1);
        }

        private static void put(Entry[] entries, Entry entry) {
            int at = hash(entry.table, entry.column) & (entries.length - 1);
            while (entries[at] != null) {
                at = (at + 1) & (entries.length - 1);
            }
            entries[at] = entry;
        }
    }

    private static final class Entry {
        final String table;
        final String column;
        final String dateFmt;
        final String noFmt;
        final SourceBox box;

        Entry(String table, String column, String dateFmt, String noFmt, SourceBox box) {
            this.table = table;
            this.column = column;
            this.dateFmt = dateFmt;
            this.noFmt = noFmt;
            this.box = box;
        }

        /** Callers nearly always pass the same literals. */
        boolean is(String table, String column, String dateFmt, String noFmt) {
            return same(this.table, table) && same(this.column, column) && same(this.dateFmt, dateFmt)
                    && same(this.noFmt, noFmt);
        }

        @SuppressWarnings("StringEquality")
        private static boolean same(String mine, String other) {
            return mine == other || mine.equals(other);
        }
    }
}
