package io.keymill.support;

import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.LazySource;
import io.keymill.Mill;
import io.keymill.Stats;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Locale;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * The ids of one field, as values of the field's type. What cannot fit is refused when this is made, and a number that an
 * {@code int} or {@code short} does not hold before it wraps. The source is looked for at the first id, and again where another
 * mill is shared.
 */
public final class FieldIds {
    /** The spec of a field that names none. */
    public static final String DEFAULT = "segment:{table}";

    private final LazySource source;
    private final String field;
    private final FieldType type;
    /** Ids are texts in the form that the source's options name: a serial's, and others in a text field. */
    private final boolean text;
    /** The table that is to be asked before the first id goes out; null: none is. */
    private final String table;
    /**
     * A lock and no monitor, so that virtual threads do not pin. Held while the store's row is asked, and never while the table is: that
     * may wait for a row of another transaction, whose thread may wait for this lock.
     */
    private final ReentrantLock asking = new ReentrantLock();
    /** The table had no key above this number when it was asked; {@link #UNKNOWN} before that, and once ids are refused. */
    private volatile long highest = UNKNOWN;
    /** Where the table has no key, below {@link #highest}; null before that was asked. */
    private volatile Gap gap;
    /** Why no id goes out; read and written under {@link #asking}. */
    private String refusal;
    /** How often the store's row could not be asked, and why last; written under {@link #asking}. */
    private volatile int failures;
    private KeymillException failed;
    /** The table could not be asked, last at {@link #askedAt}: it is asked again once {@link #PAUSE} is over. */
    private volatile boolean unasked;
    private volatile long askedAt;

    private static final long UNKNOWN = Long.MAX_VALUE;
    /** A table that this login may never read costs a query each second, not one for each id. */
    private static final long PAUSE = TimeUnit.SECONDS.toNanos(1);

    /** Ids that are no key: {@code from <= id < to}. */
    private static final class Gap {
        final long from;
        final long to;

        Gap(long from, long to) {
            this.from = from;
            this.to = to;
        }
    }

    private FieldIds(LazySource source, String field, FieldType type, boolean text, String table) {
        this.source = source;
        this.field = field;
        this.type = type;
        this.text = text;
        this.table = table;
    }

    /**
     * The ids of a field.
     *
     * @param mills where the mill is found at each id; null: the shared mill
     * @param spec the source; {@code {table}} in it stands for the table
     * @param table the table's name, with or without schema and quotes; null where the field has none
     * @param type the field's type
     * @param field class and field, for messages: {@code shop.Order.id}
     * @return the ids
     * @throws IllegalStateException if the spec's kind does not give what the field holds. Not an {@code IllegalArgumentException}:
     *     Spring's callbacks swallow those whose message begins with the class's name
     */
    public static FieldIds of(Supplier<Mill> mills, String spec, String table, Class<?> type, String field) {
        String named = withTable(spec, table, field);
        int colon = named.indexOf(':');
        String kind = colon < 0 ? named : named.substring(0, colon);
        FieldType known = FieldType.of(type);
        if (known == null) {
            throw new IllegalStateException(field + " is a " + type.getName() + ", which holds no id of `" + named + "`; a field with an id is a " + FieldType.NAMES);
        }
        switch (kind) {
            case "segment":
                break;
            case "snowflake":
                if (known == FieldType.INT || known == FieldType.SHORT) {
                    throw new IllegalStateException(field + " is " + known.name + ", and `" + named + "` gives numbers of up to 63 bits; make the field and its column a long (BIGINT)");
                }
                break;
            case "serial":
                if (known != FieldType.TEXT && known != FieldType.ANY) {
                    throw new IllegalStateException(field + " is " + known.name + ", and `" + named + "` gives text; make the field a String, or name a `segment:` or `snowflake:`");
                }
                break;
            case "business":
                throw new IllegalStateException(field + " names `" + named + "`, whose ids need a key; call Mill.business(…).next(key) and set the field");
            default:
                throw new IllegalStateException(field + " names `" + named + "`, which is no source; a field takes from segment:NAME, snowflake:NAME or serial:TABLE/COLUMN");
        }
        LazySource source = mills == null ? Mill.lazy(named) : Mill.lazy(named, mills);
        boolean text = known == FieldType.TEXT || kind.equals("serial");
        return new FieldIds(source, field, known, text, kind.equals("segment") && !text ? table : null);
    }

    private static String withTable(String spec, String table, String field) {
        if (spec == null || spec.isEmpty()) {
            throw new IllegalStateException(field + " names an empty spec; name a source, such as `" + DEFAULT + "`");
        }
        if (spec.replace("{table}", "").matches(".*[{}].*")) {
            throw new IllegalStateException(field + " names `" + spec + "`; the one word in braces is {table}");
        }
        if (!spec.contains("{table}")) {
            return spec;
        }
        if (table == null || tableOf(table).isEmpty()) {
            throw new IllegalStateException(field + " names `" + spec + "`, and its table is not known; write the source's name in place of {table}");
        }
        return spec.replace("{table}", encode(tableOf(table)));
    }

    /** A name as it stands in a spec: percent-encoded where it must be. */
    private static String encode(String name) {
        StringBuilder encoded = new StringBuilder(name.length());
        for (byte b : name.getBytes(StandardCharsets.UTF_8)) {
            boolean plain = b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '_' || b == '-' || b == '.' || b == '$';
            if (plain) {
                encoded.append((char) b);
            } else {
                encoded.append('%').append(Character.forDigit((b >> 4) & 15, 16)).append(Character.forDigit(b & 15, 16));
            }
        }
        return encoded.toString();
    }

    /**
     * One name for a table, in whatever way it is written: without schema, quotes and letter case. Two tables that share a name so share a
     * source, which costs nothing; one table with two sources would get each id twice.
     */
    private static String tableOf(String name) {
        String table = name.substring(name.lastIndexOf('.') + 1).trim();
        return table.replaceAll("^[`\"\\[]|[`\"\\]]$", "").toLowerCase(Locale.ROOT);
    }

    /**
     * The next id; waits at most the source's deadline when none is in memory.
     *
     * @return a value of the field's type
     * @throws KeymillException as {@link LazySource#next}, with the field
     * @throws ArithmeticException if the number is too large for the field
     */
    public Object next() {
        return text ? source.nextText() : type.value(source.next(), field);
    }

    /**
     * As {@link #next()}, for the key of a table. The first one asks the table: where it has keys from the store's row on, every id is
     * refused, before one is used. An id below the highest key goes out only where the table does not have it; where it does, that id and
     * every later one is refused. While the table cannot be asked, ids go out, and the next ones ask it again.
     *
     * @param keys the table's keys, asked at the first id, and for ids below the highest key
     * @return a value of the field's type
     * @throws KeymillException as {@link #next()}
     * @throws IllegalStateException if the table has such keys, with what to run
     * @throws ArithmeticException if the number is too large for the field
     */
    public Object next(TableKeys keys) {
        if (table == null) {
            return next();
        }
        boolean isDue = unasked && System.nanoTime() - askedAt >= PAUSE;
        long id = highest == UNKNOWN || isDue ? first(keys) : source.next();
        if (!isFree(id)) {
            look(keys, id);
        }
        return type.value(id, field);
    }

    private boolean isFree(long id) {
        Gap known = gap;
        return id > highest || known != null && known.from <= id && id < known.to;
    }

    private long first(TableKeys keys) {
        int before = failures;
        askedAt = System.nanoTime();
        // Before this process reserves numbers: a reservation of its own would lift the row above keys that the source did not give.
        TableKeys.Found found = keys.key(false, Long.MIN_VALUE);
        OptionalLong id = OptionalLong.empty();
        asking.lock();
        try {
            checkIsServed();
            if (failures != before) {
                // Another thread has waited for the store meanwhile. A thread that waited anew would hold up the next one by as much.
                throw failed;
            }
            if (highest == UNKNOWN || unasked) {
                id = compare(found);
            }
        } catch (KeymillException e) {
            failed = e;
            failures++;
            throw e;
        } finally {
            asking.unlock();
        }
        return id.isPresent() ? id.getAsLong() : source.next();
    }

    /** Refuses keys from the store's row on. An id: it was in memory, and the row could not be read. */
    private OptionalLong compare(TableKeys.Found found) {
        long key = found.key().orElse(0);
        OptionalLong id = OptionalLong.empty();
        try {
            if (key > 0) {
                refuse(source.refusalOfKeys(table, key, 0));
            }
        } catch (KeymillException e) {
            // What is in memory was reserved before. Each id is still looked for in the table.
            id = e.code() == Code.STORE_UNAVAILABLE || e.code() == Code.DEADLINE ? source.tryNext() : id;
            if (!id.isPresent()) {
                throw e;
            }
        }
        highest = key;
        unasked = !found.isKnown();
        return id;
    }

    /**
     * Refuses an id that is a key. This process alone was given the id, and has not used it, so another program wrote that key. Keys above
     * it may be ids of other processes and threads: they say only up to where no other key is.
     */
    private void look(TableKeys keys, long id) {
        TableKeys.Found above = keys.key(true, id);
        if (!above.isKnown()) {
            return;
        }
        long key = above.key().orElse(UNKNOWN);
        Optional<String> refused = Optional.empty();
        if (key == id || isReserved(key, id)) {
            long last = keys.key(false, Long.MIN_VALUE).key().orElse(key);
            refused = source.refusalOfKeys(table, Math.max(key, last), id);
        }
        asking.lock();
        try {
            checkIsServed();
            refuse(refused);
            if (key == UNKNOWN) {
                highest = Math.min(highest, id - 1);
            } else {
                gap = new Gap(id, key);
            }
        } finally {
            asking.unlock();
        }
    }

    /** Whether this process has reserved this key and not used it. It is known of one reservation only. Nothing but its id is used. */
    private boolean isReserved(long key, long id) {
        Stats stats = source.stats();
        return stats.refills() == 1 && stats.issued() == 1 && key <= id + stats.left() && source.stats().issued() == 1;
    }

    private void checkIsServed() {
        if (refusal != null) {
            throw new IllegalStateException(refusal);
        }
    }

    private void refuse(Optional<String> refused) {
        if (refused.isPresent()) {
            refusal = field + ": " + refused.get();
            gap = null;
            highest = UNKNOWN;
            throw new IllegalStateException(refusal);
        }
    }

    /**
     * {@code count} ids in rising order, in one step.
     *
     * @param count how many
     * @return values of the field's type
     * @throws KeymillException as {@link #next}
     * @throws ArithmeticException if a number is too large for the field
     */
    public Object[] take(int count) {
        if (text) {
            return source.takeText(count);
        }
        long[] ids = source.take(count);
        Object[] values = new Object[ids.length];
        for (int i = 0; i < ids.length; i++) {
            values[i] = type.value(ids[i], field);
        }
        return values;
    }

    /**
     * The next id if one is in memory, for a caller that must not wait and asks again.
     *
     * @param waited how long the caller has waited for this id in all; zero at first
     * @return a value of the field's type, or null
     * @throws KeymillException as {@link #next}, once it would throw after this time
     * @throws ArithmeticException if the number is too large for the field
     */
    public Object tryNext(Duration waited) {
        if (text) {
            return source.tryNextText(waited).orElse(null);
        }
        OptionalLong id = source.tryNext(waited);
        return id.isPresent() ? type.value(id.getAsLong(), field) : null;
    }

    /**
     * {@link #next()} for a caller that must not block; no thread waits.
     *
     * @param waited how long the caller has waited before, in all; the source's deadline counts it
     * @return a value of the field's type, or the exception that {@link #next()} would throw; once cancelled, it waits no more
     */
    public CompletableFuture<Object> nextAsync(Duration waited) {
        CompletableFuture<Object> value = new CompletableFuture<>();
        CompletableFuture<?> asked = text ? source.nextTextAsync(waited) : source.nextAsync(waited);
        asked.whenComplete((id, error) -> {
            try {
                if (error == null) {
                    value.complete(text ? id : type.value((Long) id, field));
                } else {
                    value.completeExceptionally(error);
                }
            } catch (ArithmeticException e) {
                value.completeExceptionally(e);
            }
        });
        value.whenComplete((id, error) -> asked.cancel(false));
        return value;
    }

    /**
     * Whether this value says that the field was not set: null, and 0 in a primitive field.
     *
     * @param value the field's value
     * @param primitive whether the field is a primitive
     * @return whether an id is to be made
     */
    public static boolean isUnset(Object value, boolean primitive) {
        return value == null || primitive && value instanceof Number && ((Number) value).longValue() == 0;
    }

    /** {@code shop.Order.id from segment:orders}. */
    @Override
    public String toString() {
        return field + " from " + source.spec();
    }

    /** The types of fields that hold an id. */
    private enum FieldType {
        LONG("a long"),
        INT("an int"),
        SHORT("a short"),
        BIG_INTEGER("a BigInteger"),
        BIG_DECIMAL("a BigDecimal"),
        TEXT("a String"),
        /** {@code Object}, {@code Serializable}, {@code Comparable}, {@code Number}: a generic superclass's field. */
        ANY("any object");

        static final String NAMES = "long, int, short, BigInteger, BigDecimal or String";

        final String name;

        FieldType(String name) {
            this.name = name;
        }

        static FieldType of(Class<?> type) {
            if (type == long.class || type == Long.class) {
                return LONG;
            } else if (type == int.class || type == Integer.class) {
                return INT;
            } else if (type == short.class || type == Short.class) {
                return SHORT;
            } else if (type == BigInteger.class) {
                return BIG_INTEGER;
            } else if (type == BigDecimal.class) {
                return BIG_DECIMAL;
            } else if (type == String.class || type == CharSequence.class) {
                return TEXT;
            }
            return type.isAssignableFrom(Long.class) ? ANY : null;
        }

        Object value(long id, String field) {
            switch (this) {
                case INT:
                    if (id != (int) id) {
                        throw tooLarge(id, field, Integer.MAX_VALUE);
                    }
                    return (int) id;
                case SHORT:
                    if (id != (short) id) {
                        throw tooLarge(id, field, Short.MAX_VALUE);
                    }
                    return (short) id;
                case BIG_INTEGER:
                    return BigInteger.valueOf(id);
                case BIG_DECIMAL:
                    return BigDecimal.valueOf(id);
                default:
                    return id;
            }
        }

        private ArithmeticException tooLarge(long id, String field, long largest) {
            return new ArithmeticException(field + " is " + name + ", which holds numbers up to " + largest + ", and its next id is " + id + "; make the field and its column a long (BIGINT)");
        }
    }
}
