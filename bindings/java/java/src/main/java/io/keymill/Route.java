package io.keymill;

import java.util.Optional;

/** Where an id or a business key belongs. */
public final class Route {
    private final int gene;
    private final String shard;
    private final String read;
    private final String mirror;
    private final boolean paused;
    private final String also;
    private final long version;

    Route(int gene, String shard, String read, String mirror, boolean paused, String also, long version) {
        this.gene = gene;
        this.shard = shard;
        this.read = read;
        this.mirror = mirror;
        this.paused = paused;
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
        return read;
    }

    /**
     * The shard that decides a write: {@link #shard}, until a move is finished.
     *
     * @return the name; nothing while the route is {@link #paused}
     */
    public Optional<String> write() {
        return paused ? Optional.empty() : Optional.of(shard);
    }

    /**
     * The second shard to write to, while the range moves: it follows {@link #write}, and a write is acknowledged when both have it. See
     * {@link Router#isCurrent}.
     *
     * @return the name, where there is one
     */
    public Optional<String> mirror() {
        return Optional.ofNullable(mirror);
    }

    /**
     * Whether writes of the range wait, because its move is about to be finished: for a second at most where all processes live. Take another
     * route then; reads go on.
     *
     * @return whether they wait
     */
    public boolean paused() {
        return paused;
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
        return "Route(gene=" + gene + ", shard=" + shard + ", read=" + read
                + (paused ? ", paused" : ", write=" + shard)
                + (mirror == null ? "" : ", mirror=" + mirror)
                + (also == null ? "" : ", also=" + also) + ", version=" + version + ")";
    }
}
