package io.keymill;

/** The tables of a {@link Shards} in native memory, freed when the collector finds that they cannot be reached: as {@link MillBox}. */
final class ShardsBox {
    private static final NativeMemory MEMORY = new NativeMemory(ShardsBox::free);

    private final long address;

    ShardsBox(long address) {
        this.address = address;
        MEMORY.add(this, address);
    }

    /** A write, or a read, which {@link #end} frees. */
    long begin(long id, boolean reads) {
        return begin(address, id, reads);
    }

    long begin(byte[] id, boolean reads) {
        return beginBytes(address, id, reads);
    }

    private static native void free(long address);

    private native long begin(long address, long id, boolean reads);

    private native long beginBytes(long address, byte[] id, boolean reads);

    /** The next action, as {@link ShardRun} reads it. */
    static native long next(long write, int answer, byte[] bytes);

    /** The statement or the shard of the last action. */
    static native byte[] text(long write);

    static native void end(long write);
}
