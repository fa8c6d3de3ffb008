package io.keymill;

import java.util.Optional;

/** Where an id or a business key belongs. */
public final class Route {
    private final int gene;
    private final String shard;
    private final String serves;
    private final String mirror;
    private final String also;
    private final long version;

    Route(int gene, String shard, String serves, String mirror, String also, long version) {
        this.gene = gene;
        this.shard = shard;
        this.serves = serves;
        this.mirror = mirror;
        this.also = also;
        this.version = version;
    }

    /**
     * The gene: the virtual node of the ring.
     *
     * @return 0 to 65535
     */
    public int gene() {
        return gene;
    }

    /**
     * The shard of the gene's range, as the table says it. While the range moves, the shard that it leaves.
     *
     * @return the name
     */
    public String shard() {
        return shard;
    }

    /**
     * The shard to read from.
     *
     * @return the name
     */
    public String read() {
        return serves;
    }

    /**
     * The shard to write to, whose answer counts.
     *
     * @return the name
     */
    public String write() {
        return serves;
    }

    /**
     * The second shard to write to, while the range moves: a write is acknowledged when both have it.
     *
     * @return the name, where there is one
     */
    public Optional<String> mirror() {
        return Optional.ofNullable(mirror);
    }

    /**
     * A second shard that may serve ids of this key: only for a key whose range moves by number, where each id decides.
     *
     * @return the name, where there is one
     */
    public Optional<String> also() {
        return Optional.ofNullable(also);
    }

    /**
     * The version of the table.
     *
     * @return the version
     */
    public long version() {
        return version;
    }

    @Override
    public String toString() {
        return "Route(gene=" + gene + ", shard=" + shard + ", read=" + serves + ", write=" + serves
                + (mirror == null ? "" : ", mirror=" + mirror)
                + (also == null ? "" : ", also=" + also) + ", version=" + version + ")";
    }
}
