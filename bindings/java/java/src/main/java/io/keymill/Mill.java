package io.keymill;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;

/**
 * An engine that hands out identifiers: one configuration, one background thread, any number of sources. Safe from any
 * number of threads, virtual ones included.
 *
 * <pre>{@code
 * try (Mill mill = Mill.open("sqlite:keymill.db")) {
 *     Source orders = mill.segment("orders");
 *     long id = orders.next();
 * }
 * }</pre>
 *
 * <p>Close it: a mill that is merely forgotten gives its memory and its thread back only when keymill is next used after
 * a collection. After {@link #close} every call answers {@link Code#CLOSED}.
 */
public final class Mill implements AutoCloseable {
    /** The system property that names the default mill, before the variable {@code KEYMILL_CONFIG}. */
    private static final String PROPERTY = "keymill.config";

    private final MillBox box;

    private Mill(MillBox box) {
        this.box = box;
    }

    /**
     * Opens the mill that the system property {@code keymill.config} names, else the environment variable
     * {@code KEYMILL_CONFIG}, else {@code sqlite:keymill.db}.
     *
     * @return the mill
     * @throws KeymillException as {@link #open(String)}
     */
    public static Mill open() {
        String config = System.getProperty(PROPERTY);
        return new Mill(new MillBox(config));
    }

    /**
     * Makes this the mill of this class loader that lazy sources and {@link KeyFactory} take from. After it their next ids come
     * from this mill, also where they came from another one before. The mill stays the caller's to close; while a
     * closed one is shared, they throw {@link Code#CLOSED}.
     *
     * @param mill an open mill; null: the default one again, as before the first call
     */
    public static void share(Mill mill) {
        Shared.set(mill);
    }

    /**
     * As {@link #share}, with the mill that this gives when the first id is asked for: for frameworks that make their mill when it is
     * needed. What it throws, the first id throws, and the next one asks again.
     *
     * @param mill gives the mill; asked by whatever thread needs it, perhaps by several at once, until it has given one
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for null
     */
    public static void shareLater(Supplier<? extends Mill> mill) {
        if (mill == null) {
            throw KeymillException.argument("the supplier is null");
        }
        Shared.later(mill);
    }

    /**
     * While no mill is shared, lazy sources and {@link KeyFactory} throw {@link Code#INVALID_CONFIG} with this reason instead of opening
     * the default mill: for frameworks whose configuration names another store.
     *
     * @param reason what the configuration says, and what to write; null: they open the default mill again
     */
    public static void refuseDefault(String reason) {
        Shared.refuseDefault(reason);
    }

    /**
     * The mill that lazy sources take from: the shared one, else the default one, which this opens if no id was asked for before.
     *
     * @return the mill
     * @throws KeymillException as {@link #open()}; {@link Code#CLOSED} while a closed mill is shared, with what to do
     */
    public static Mill shared() {
        for (;;) {
            Shared shared = Shared.current;
            Mill mill = shared.mill("the shared mill");
            if (!mill.box.closed) {
                return mill;
            }
            if (shared == Shared.current) {
                throw shared.closed("Mill.shared()", null);
            }
        }
    }

    /**
     * A source that is declared before a mill is open: {@code static final LazySource IDS = Mill.lazy("segment:orders")}. Nothing
     * is opened or looked at before its first id.
     *
     * @param spec the source, as {@link #source} names it
     * @return the source
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for null
     */
    public static LazySource lazy(String spec) {
        return new LazySource(spec, null);
    }

    /**
     * As {@link #lazy(String)}, of the mill that this gives instead of the shared one: for frameworks that have a mill of their own.
     *
     * @param spec the source, as {@link #source} names it
     * @param mills gives the mill; asked at each id, so that another mill takes the place of the one before
     * @return the source, which cannot be serialized
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for null
     */
    public static LazySource lazy(String spec, Supplier<? extends Mill> mills) {
        if (mills == null) {
            throw KeymillException.argument("the supplier is null");
        }
        return new LazySource(spec, mills);
    }

    /** The default mill in a message, and where its configuration stands; that may hold a password. */
    static String defaultName() {
        if (System.getProperty(PROPERTY) != null) {
            return "the default mill (-D" + PROPERTY + "=…)";
        }
        return System.getenv("KEYMILL_CONFIG") != null ? "the default mill (KEYMILL_CONFIG=…)" : "the default mill";
    }

    /**
     * Opens a mill from one string: {@code sqlite:FILE}, {@code memory:}, {@code mysql://user:password@host:port/database},
     * {@code postgres://…} and {@code redis://…} alike, or {@code file:CONFIG.toml}. Nothing is connected until a source needs it, so a store that is down does not keep a
     * program from starting.
     *
     * @param config the configuration
     * @return the mill
     * @throws KeymillException {@link Code#INVALID_CONFIG}: what is wrong and what is valid
     */
    public static Mill open(String config) {
        if (config == null) {
            throw KeymillException.argument("configuration is null; Mill.open() opens the default mill");
        }
        return new Mill(new MillBox(config));
    }

    /**
     * The configuration of a mill in the application's own database: {@code Mill.open(Mill.storeOf(url, properties))}.
     * Nothing is opened or asked. The string holds the password.
     *
     * @param url a JDBC URL, such as {@code jdbc:mysql://db:3306/shop?sslMode=REQUIRED}
     * @param properties the driver's properties beside it, {@code user} and {@code password} among them
     * @return what {@link #open(String)} takes
     * @throws KeymillException {@link Code#INVALID_CONFIG}: a parameter that says where, as whom or how encrypted in a way that a
     *     mill cannot, by its name; or a database that cannot be a store. No message holds a value. Other parameters are ignored
     *     and named by {@code ignored=}
     */
    public static String storeOf(String url, Map<String, String> properties) {
        if (properties == null) {
            throw KeymillException.argument("properties is null; Mill.storeOf(url) takes none");
        }
        Library.ensure();
        return Native.storeOf(url, properties);
    }

    /**
     * As {@link #storeOf(String, Map)}, of a URL that says everything.
     *
     * @param url a JDBC URL with user and password, or a URL such as {@code DATABASE_URL} holds
     * @return what {@link #open(String)} takes
     * @throws KeymillException as {@link #storeOf(String, Map)}
     */
    public static String storeOf(String url) {
        return storeOf(url, Collections.emptyMap());
    }

    /**
     * A source, named by one string: {@code segment:orders?step=1000}, {@code snowflake:tx?worker=5},
     * {@code serial:cust_info/custid?date=yyyyMMdd&number=000000}. Asking again gives the same numbers' next. The verbs
     * of business ids take a key: {@link #business}.
     *
     * @param spec kind, name and options
     * @return the source
     * @throws KeymillException {@link Code#INVALID_CONFIG} with the valid kinds, options or values;
     *     {@link Code#LAYOUT_ENDED}; {@link Code#CLOSED}
     */
    public Source source(String spec) {
        return new Source(box.source(spec));
    }

    /**
     * Numbers from a store's segments: {@code segment("orders")}, {@code segment("orders?step=1000")}.
     *
     * @param nameAndOptions the name, and options as in a spec
     * @return the source
     * @throws KeymillException as {@link #source}
     */
    public Source segment(String nameAndOptions) {
        return source(spec("segment", nameAndOptions));
    }

    /**
     * Numbers made of time, worker and sequence: {@code snowflake("tx?worker=5")}.
     *
     * @param nameAndOptions the name, and options as in a spec
     * @return the source
     * @throws KeymillException as {@link #source}
     */
    public Source snowflake(String nameAndOptions) {
        return source(spec("snowflake", nameAndOptions));
    }

    /**
     * Dated serial numbers: {@code serial("cust_info/custid?number=000000&order=thread")}.
     *
     * @param nameAndOptions table and column, and options as in a spec
     * @return the source
     * @throws KeymillException as {@link #source}
     */
    public Serial serial(String nameAndOptions) {
        return new Serial(box.source(spec("serial", nameAndOptions)));
    }

    /**
     * Dated serial numbers such as {@code 20261120000001}.
     *
     * @param table the table
     * @param column the column
     * @param date the date pattern, {@code yyyyMMdd} or {@code 'CUST'yyyyMMdd}; empty for numbers without a date
     * @param number the number pattern, {@code 000000} for six digits
     * @param step how many numbers to reserve at a time
     * @return the source
     * @throws KeymillException as {@link #source}
     */
    public Serial serial(String table, String column, String date, String number, int step) {
        Map<String, String> options = new LinkedHashMap<>();
        options.put("date", date);
        options.put("number", number);
        options.put("step", Integer.toString(step));
        return serial(Arrays.asList(table, column), options);
    }

    /** Any options the core knows. */
    Serial serial(List<String> name, Map<String, String> options) {
        return new Serial(box.source(Native.spec("serial", name, options)));
    }

    /**
     * The router whose table the store has under this name. The mill reads the table every 10 s, every second while a range
     * moves. If the store is lost, the router goes on with its table.
     *
     * @param name the name that {@code keymill route put} was given
     * @return the router
     * @throws KeymillException {@link Code#STORE_REFUSED} where the store has no such table; {@link Code#INVALID_CONFIG} with every
     *     fault of the table; {@link Code#STORE_UNAVAILABLE}; {@link Code#CLOSED}
     */
    public Router router(String name) {
        return box.router(name);
    }

    /**
     * Ids that carry the gene of a key, and so their shard: {@code business("order")},
     * {@code business("order?counters=1024&wide=on")}.
     *
     * @param nameAndOptions the name, and options as in a spec
     * @return the source
     * @throws KeymillException as {@link #source}
     */
    public Business business(String nameAndOptions) {
        return new Business(box.source(spec("business", nameAndOptions)));
    }

    private static String spec(String kind, String nameAndOptions) {
        if (nameAndOptions == null) {
            throw KeymillException.argument("the name of a " + kind + " is null");
        }
        return kind + ":" + nameAndOptions;
    }

    /**
     * Creates what these sources need in the store, keymill's own table where none is named. What exists is left alone.
     * SQLite and memory need no such call.
     *
     * @param specs sources, as {@link #source} names them
     * @return the statements that were run
     * @throws KeymillException {@link Code#STORE_UNAVAILABLE}, {@link Code#STORE_REFUSED}, {@link Code#INVALID_CONFIG}
     */
    public List<String> init(String... specs) {
        StringBuilder lines = new StringBuilder();
        for (String spec : specs) {
            if (spec == null || spec.indexOf('\n') >= 0) {
                throw KeymillException.argument("a spec to init is null or has several lines");
            }
            lines.append(spec).append('\n');
        }
        return column(box.init(Native.utf8(lines.toString(), "specs"), false), 1);
    }

    /**
     * Every figure as Prometheus text; empty after {@link #close}.
     *
     * @return the metrics
     */
    public String metrics() {
        return box.metrics();
    }

    /**
     * The figures of every source that was asked for, by name.
     *
     * @return the figures
     * @throws KeymillException {@link Code#CLOSED} after {@link #close}
     */
    public List<Stats> stats() {
        return box.stats();
    }

    /**
     * What happened since the last call, one line each; at most the last 256 are kept.
     *
     * @return the events
     */
    public List<String> events() {
        return column(box.events(), 1);
    }

    /**
     * The store as it may be shown: never a user or a password.
     *
     * @return the store
     */
    public String store() {
        return box.store();
    }

    /**
     * Sets the wall clock of a mill that was opened with {@code clock=manual}, for tests.
     *
     * @param wallMs milliseconds since 1970
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} on a mill that runs on the machine's clock
     */
    public void setClock(long wallMs) {
        box.setClock(wallMs);
    }

    /**
     * Moves the clock of a mill that was opened with {@code clock=manual} forward, for tests.
     *
     * @param ms milliseconds
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} on a mill that runs on the machine's clock
     */
    public void advanceClock(long ms) {
        box.advanceClock(ms);
    }

    /**
     * Whether the mill was closed.
     *
     * @return whether it was
     */
    public boolean isClosed() {
        return box.isClosed();
    }

    /** Closes for good: every later call answers {@link Code#CLOSED}. Closing twice is nothing. */
    @Override
    public void close() {
        box.close();
    }

    private static List<String> column(String rows, int at) {
        List<String> column = new ArrayList<>();
        for (String[] row : Native.rows(rows)) {
            column.add(row[at]);
        }
        return column;
    }

    @Override
    public String toString() {
        return "Mill(" + box.store() + ")";
    }
}
