package io.keymill;

import java.util.Optional;
import java.util.concurrent.atomic.AtomicReferenceArray;

/** What a router holds in native memory, freed when the collector finds that it cannot be reached: as {@link MillBox}. */
final class RouterBox {
    private static final NativeMemory MEMORY = new NativeMemory(RouterBox::free);

    /** Names have 16 bits of a number; as many of them are kept as strings. */
    private static final int KEPT_NAMES = 1 << 10;

    private static final long HAS_MIRROR = 1L << 48;
    private static final long ALSO_THERE = 1L << 49;
    private static final long PAUSED = 1L << 50;

    private final long address;
    /** The names of shards by their numbers, which never change. */
    private final AtomicReferenceArray<String> names = new AtomicReferenceArray<>(KEPT_NAMES);

    RouterBox(long address) {
        this.address = address;
        MEMORY.add(this, address);
    }

    static RouterBox ofFile(byte[] file) {
        Library.ensure();
        return new RouterBox(open(file));
    }

    static RouterBox ofText(byte[] table) {
        Library.ensure();
        return new RouterBox(fromText(table));
    }

    boolean load(byte[] table) {
        return load(address, table);
    }

    Route route(long id) {
        long[] out = new long[3];
        route(address, id, out);
        return route(out);
    }

    Route routeBytes(byte[] id) {
        long[] out = new long[3];
        routeBytes(address, id, out);
        return route(out);
    }

    Route routeKey(long key) {
        long[] out = new long[3];
        routeKey(address, key, out);
        return route(out);
    }

    Route routeText(byte[] key) {
        long[] out = new long[3];
        routeText(address, key, out);
        return route(out);
    }

    Route routeOrderNo(byte[] orderNo) {
        long[] out = new long[3];
        routeOrderNo(address, orderNo, out);
        return route(out);
    }

    Route routeOrderNo(long orderNo) {
        long[] out = new long[3];
        routeOrderNo8(address, orderNo, out);
        return route(out);
    }

    Route routeOrderNoText(byte[] text) {
        long[] out = new long[3];
        routeOrderNoText(address, text, out);
        return route(out);
    }

    boolean isCurrent(Route route) {
        return isCurrent(address, route.gene(), bytes(route.write()), bytes(route.mirror()));
    }

    private static byte[] bytes(Optional<String> name) {
        return name.map(text -> Native.utf8(text, "the route")).orElse(null);
    }

    /** The address of what a {@link ShardsBox} holds. */
    long shards(byte[] tables, byte[] shards, long deadlineMs) {
        return shards(address, tables, shards, deadlineMs);
    }

    long version() {
        return version(address);
    }

    long age() {
        return age(address);
    }

    /** From gene, version, and the numbers of the names. */
    private Route route(long[] out) {
        int shard = (int) out[2] & 0xFFFF;
        int read = (int) (out[2] >>> 16) & 0xFFFF;
        String name = name(shard);
        String mirror = (out[2] & HAS_MIRROR) == 0 ? null : name((int) (out[2] >>> 32) & 0xFFFF);
        String also = (out[2] & ALSO_THERE) == 0 ? null : mirror;
        boolean paused = (out[2] & PAUSED) != 0;
        return new Route((int) out[0], name, read == shard ? name : name(read), mirror, paused, also, out[1]);
    }

    private String name(int number) {
        if (number >= KEPT_NAMES) {
            return name(address, number);
        }
        String name = names.get(number);
        if (name == null) {
            name = name(address, number);
            names.set(number, name);
        }
        return name;
    }

    static native int gene(long key);

    static native int geneOfText(byte[] key);

    private static native long open(byte[] file);

    private static native long fromText(byte[] table);

    private static native void free(long address);

    private native boolean load(long address, byte[] table);

    private native void route(long address, long id, long[] out);

    private native void routeBytes(long address, byte[] id, long[] out);

    private native void routeKey(long address, long key, long[] out);

    private native void routeText(long address, byte[] key, long[] out);

    private native void routeOrderNo(long address, byte[] orderNo, long[] out);

    private native void routeOrderNo8(long address, long orderNo, long[] out);

    private native void routeOrderNoText(long address, byte[] text, long[] out);

    private native boolean isCurrent(long address, int gene, byte[] write, byte[] mirror);

    private native String name(long address, int number);

    private native long version(long address);

    private native long age(long address);

    private native long shards(long address, byte[] tables, byte[] shards, long deadlineMs);
}
