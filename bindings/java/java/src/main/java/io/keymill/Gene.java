package io.keymill;

/**
 * Genes: 16 bits of a business key that an id carries, so that the id alone says its shard. A text is its UTF-8 bytes, a number its
 * 8 bytes, so {@code Gene.of(42)} and {@code Gene.of("42")} differ.
 */
public final class Gene {
    private Gene() {}

    /**
     * The gene of an integer key.
     *
     * @param key the key; an unsigned one above 2^63-1 as the {@code long} with the same bits
     * @return 0 to 65535
     */
    public static int of(long key) {
        Library.ensure();
        return RouterBox.gene(key);
    }

    /**
     * The gene of a text key.
     *
     * @param key the key
     * @return 0 to 65535
     * @throws KeymillException {@link Code#INVALID_ARGUMENT}: the key is null or has more than 64 KiB
     */
    public static int of(String key) {
        Library.ensure();
        return RouterBox.geneOfText(Native.utf8(key, "key"));
    }
}
