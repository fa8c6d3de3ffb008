package io.keymill;

import java.math.BigInteger;
import java.util.Collections;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;

/**
 * Business ids: each carries the gene of its key, 16 bits that name a virtual node of the ring, so that the id alone says its
 * shard. All ids of one key have one gene. Ids of one gene rise within the process; across processes they are unique and rise in
 * trend.
 *
 * <pre>{@code
 * Business orders = mill.business("order");
 * long id = orders.next(42L);              // or orders.next("buyer-42")
 * int gene = orders.parse(id).gene().getAsInt();
 * }</pre>
 *
 * <p>A key is an integer or a text of at most 64 KiB in UTF-8; {@code 42} and {@code "42"} have different genes. An empty text is a
 * key. With {@code wide=on} ids have 128 bits: {@link #nextWide}.
 *
 * <p>Any number of threads may use it. Waiting and interruption are as for {@link Source}.
 */
public final class Business {
    private final SourceBox box;

    Business(SourceBox box) {
        this.box = box;
    }

    /**
     * The next id for an integer key; waits at most the source's deadline when none is in memory.
     *
     * @param key the key
     * @return the id, positive
     * @throws KeymillException {@link Code#DEADLINE}, {@code STORE_…}, {@link Code#EXHAUSTED}, {@link Code#CLOSED};
     *     {@link Code#INVALID_ARGUMENT} with {@code wide=on}
     */
    public long next(long key) {
        return box.nextFor(key);
    }

    /**
     * The next id for a text key; waits at most the source's deadline when none is in memory.
     *
     * @param key the key
     * @return the id, positive
     * @throws KeymillException as {@link #next(long)}; {@link Code#INVALID_ARGUMENT} for null, for a key longer than 64 KiB, and
     *     for half of a surrogate pair
     */
    public long next(String key) {
        return box.nextFor(Native.key(key));
    }

    /**
     * The next id for an integer key if one is in memory; never waits.
     *
     * @param key the key
     * @return the id, or nothing
     * @throws KeymillException as {@link #next(long)}
     */
    public OptionalLong tryNext(long key) {
        return optional(box.tryNextFor(key, null));
    }

    /**
     * The next id for a text key if one is in memory; never waits.
     *
     * @param key the key
     * @return the id, or nothing
     * @throws KeymillException as {@link #next(String)}
     */
    public OptionalLong tryNext(String key) {
        return optional(box.tryNextFor(0, Native.key(key)));
    }

    /**
     * {@link #next(long)} for a caller that must not block, as {@link Source#nextAsync()}.
     *
     * @param key the key
     * @return the id
     */
    public CompletableFuture<Long> nextAsync(long key) {
        return box.nextAsyncFor(key, null);
    }

    /**
     * {@link #next(String)} for a caller that must not block, as {@link Source#nextAsync()}.
     *
     * @param key the key
     * @return the id
     */
    public CompletableFuture<Long> nextAsync(String key) {
        byte[] text;
        try {
            text = Native.key(key);
        } catch (KeymillException e) {
            return AsyncWait.failed(e);
        }
        return box.nextAsyncFor(0, text);
    }

    /**
     * {@code count} ids for an integer key, in rising order: the fast way to many.
     *
     * @param key the key
     * @param count how many
     * @return the ids
     * @throws KeymillException as {@link #next(long)}; {@link Code#INVALID_ARGUMENT} for a negative count, or more than memory
     *     holds
     */
    public long[] take(long key, int count) {
        return take(key, null, count);
    }

    /**
     * {@code count} ids for a text key, in rising order.
     *
     * @param key the key
     * @param count how many
     * @return the ids
     * @throws KeymillException as {@link #next(String)} and {@link #take(long, int)}
     */
    public long[] take(String key, int count) {
        return take(0, Native.key(key), count);
    }

    private long[] take(long key, byte[] text, int count) {
        check(count);
        long[] ids;
        try {
            ids = new long[count];
        } catch (OutOfMemoryError e) {
            throw Source.tooMany(count, "ids");
        }
        box.fillFor(key, text, ids);
        return ids;
    }

    /**
     * The next id for an integer key as text, in the form that {@code text=} and {@code prefix=} say.
     *
     * @param key the key
     * @return the text
     * @throws KeymillException as {@link #next(long)}
     */
    public String nextText(long key) {
        return box.textOf(next(key));
    }

    /**
     * The next id for a text key as text, in the form that {@code text=} and {@code prefix=} say.
     *
     * @param key the key
     * @return the text
     * @throws KeymillException as {@link #next(String)}
     */
    public String nextText(String key) {
        return box.textOf(next(key));
    }

    /**
     * {@code count} ids for an integer key as texts.
     *
     * @param key the key
     * @param count how many
     * @return the texts
     * @throws KeymillException as {@link #take(long, int)}
     */
    public String[] takeText(long key, int count) {
        return texts(take(key, count));
    }

    /**
     * {@code count} ids for a text key as texts.
     *
     * @param key the key
     * @param count how many
     * @return the texts
     * @throws KeymillException as {@link #take(String, int)}
     */
    public String[] takeText(String key, int count) {
        return texts(take(key, count));
    }

    private String[] texts(long[] ids) {
        String[] texts = new String[ids.length];
        for (int i = 0; i < ids.length; i++) {
            texts[i] = box.textOf(ids[i]);
        }
        return texts;
    }

    /**
     * An id of this source as its texts are written.
     *
     * @param id an id of 64 bits
     * @return the text
     */
    public String textOf(long id) {
        return box.textOf(id);
    }

    /**
     * The next id of 128 bits for an integer key, of a source with {@code wide=on}.
     *
     * @param key the key
     * @return the id: 16 bytes, big-endian, as for a {@code VARBINARY(16)}
     * @throws KeymillException as {@link #next(long)}; {@link Code#INVALID_ARGUMENT} without {@code wide=on}
     */
    public byte[] nextWide(long key) {
        return box.nextWideFor(key, null);
    }

    /**
     * The next id of 128 bits for a text key, of a source with {@code wide=on}.
     *
     * @param key the key
     * @return the id: 16 bytes, big-endian
     * @throws KeymillException as {@link #next(String)}; {@link Code#INVALID_ARGUMENT} without {@code wide=on}
     */
    public byte[] nextWide(String key) {
        return box.nextWideFor(0, Native.key(key));
    }

    /**
     * {@link #nextWide(long)} as a number.
     *
     * @param key the key
     * @return the id, positive
     * @throws KeymillException as {@link #nextWide(long)}
     */
    public BigInteger nextWideInteger(long key) {
        return new BigInteger(nextWide(key));
    }

    /**
     * {@link #nextWide(String)} as a number.
     *
     * @param key the key
     * @return the id, positive
     * @throws KeymillException as {@link #nextWide(String)}
     */
    public BigInteger nextWideInteger(String key) {
        return new BigInteger(nextWide(key));
    }

    /**
     * The next id of 128 bits for an integer key if one is in memory; never waits.
     *
     * @param key the key
     * @return the id, or nothing
     * @throws KeymillException as {@link #nextWide(long)}
     */
    public Optional<byte[]> tryNextWide(long key) {
        return Optional.ofNullable(box.tryNextWideFor(key, null));
    }

    /**
     * The next id of 128 bits for a text key if one is in memory; never waits.
     *
     * @param key the key
     * @return the id, or nothing
     * @throws KeymillException as {@link #nextWide(String)}
     */
    public Optional<byte[]> tryNextWide(String key) {
        return Optional.ofNullable(box.tryNextWideFor(0, Native.key(key)));
    }

    /**
     * {@code count} ids of 128 bits for an integer key, in rising order.
     *
     * @param key the key
     * @param count how many
     * @return the ids, 16 bytes each
     * @throws KeymillException as {@link #nextWide(long)} and {@link #take(long, int)}
     */
    public byte[][] takeWide(long key, int count) {
        return takeWide(key, null, count);
    }

    /**
     * {@code count} ids of 128 bits for a text key, in rising order.
     *
     * @param key the key
     * @param count how many
     * @return the ids, 16 bytes each
     * @throws KeymillException as {@link #nextWide(String)} and {@link #take(long, int)}
     */
    public byte[][] takeWide(String key, int count) {
        return takeWide(0, Native.key(key), count);
    }

    private byte[][] takeWide(long key, byte[] text, int count) {
        check(count);
        if (count > Integer.MAX_VALUE / 16) {
            throw Source.tooMany(count, "ids");
        }
        byte[][] ids;
        try {
            ids = new byte[count][];
        } catch (OutOfMemoryError e) {
            throw Source.tooMany(count, "ids");
        }
        box.fillWideFor(key, text, ids);
        return ids;
    }

    /**
     * Takes an id of 64 bits apart: its gene, and its number.
     *
     * @param id an id of this source
     * @return its parts
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a number this source cannot have made
     */
    public Parts parse(long id) {
        return new Parts(box.parse(id));
    }

    /**
     * Takes an id apart. With {@code wide=on} the number is an id of 128 bits, however small it is.
     *
     * @param id an id of this source
     * @return its parts
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a number this source cannot have made, and for null
     */
    public Parts parse(BigInteger id) {
        if (id == null) {
            throw KeymillException.argument("the id is null");
        }
        return "on".equals(box.facts.get("wide")) ? parse(Router.wide(id)) : new Parts(box.parseNumber(id.toString()));
    }

    /**
     * Takes the bytes of an id apart: 16 bytes of 128 bits, or 8 bytes of 64 bits, big-endian.
     *
     * @param id an id of this source
     * @return its parts
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for another length, and as {@link #parse(long)}
     */
    public Parts parse(byte[] id) {
        if (id == null || (id.length != 8 && id.length != 16)) {
            throw KeymillException.argument(
                    "an id has 8 or 16 bytes, this has " + (id == null ? "none: it is null" : Integer.toString(id.length)));
        }
        return new Parts(box.parse(id));
    }

    /**
     * Takes a text apart: an id in decimal, or {@code 0x} and its 16 or 32 hexadecimal digits.
     *
     * @param id an id of this source
     * @return its parts
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a text this source cannot have made; with {@code wide=on} also for
     *     a decimal number that may be an id of 64 bits or another one of 128
     */
    public Parts parse(String id) {
        return new Parts(box.parse(id));
    }

    /**
     * The source's figures, over all its counters.
     *
     * @return the figures
     * @throws KeymillException {@link Code#CLOSED}
     */
    public Stats stats() {
        return box.stats();
    }

    /**
     * What the source is, every default filled in.
     *
     * @return settings by name
     */
    public Map<String, String> settings() {
        return Collections.unmodifiableMap(box.facts);
    }

    /** {@code business:order}: kind and name, without options. */
    @Override
    public String toString() {
        return box.label;
    }

    private static OptionalLong optional(long id) {
        return id == 0 ? OptionalLong.empty() : OptionalLong.of(id);
    }

    private static void check(int count) {
        if (count < 0) {
            throw KeymillException.argument(count + " ids cannot be taken");
        }
    }
}
