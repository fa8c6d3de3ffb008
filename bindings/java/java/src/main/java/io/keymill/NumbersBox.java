package io.keymill;


/** The keys of order numbers in native memory, wiped when the collector finds that they cannot be reached: as {@link RouterBox}. */
final class NumbersBox {
    private static final NativeMemory MEMORY = new NativeMemory(NumbersBox::free);

    private final long address;

    NumbersBox(long address) {
        this.address = address;
        MEMORY.add(this, address);
    }

    static NumbersBox ofFile(byte[] file, byte[] tenant, byte[] table) {
        Library.ensure();
        return new NumbersBox(open(file, tenant, table));
    }

    static NumbersBox ofEnvironment(byte[] tenant, byte[] table) {
        Library.ensure();
        return new NumbersBox(fromEnv(tenant, table));
    }

    static NumbersBox ofKeys(byte[] versions, byte[] keys, byte sealWith, byte[] tenant, byte[] table) {
        Library.ensure();
        return new NumbersBox(fromKeys(versions, keys, sealWith, tenant, table));
    }

    NumbersBox withVersion(byte version) {
        return new NumbersBox(withVersion(address, version));
    }

    int version() {
        return version(address);
    }

    void seal(long id, byte[] out) {
        seal(address, id, out);
    }

    long unseal(byte[] orderNo) {
        return unseal(address, orderNo);
    }

    void sealWide(byte[] id, byte[] out) {
        sealWide(address, id, out);
    }

    void unsealWide(byte[] orderNo, byte[] out) {
        unsealWide(address, orderNo, out);
    }

    long seal8(long id) {
        return seal8(address, id);
    }

    long unseal8(long orderNo) {
        return unseal8(address, orderNo);
    }

    void sealAll(long[] ids, byte[] out) {
        sealAll(address, ids, out);
    }

    void unsealAll(byte[] orderNos, long[] out) {
        unsealAll(address, orderNos, out);
    }

    void seal8All(long[] ids, long[] out) {
        seal8All(address, ids, out);
    }

    void unseal8All(long[] orderNos, long[] out) {
        unseal8All(address, orderNos, out);
    }

    String sealText(long id) {
        return sealText(address, id);
    }

    long unsealText(byte[] text) {
        return unsealText(address, text);
    }

    String sealWideText(byte[] id) {
        return sealWideText(address, id);
    }

    void unsealWideText(byte[] text, byte[] out) {
        unsealWideText(address, text, out);
    }

    String seal8Text(long id) {
        return seal8Text(address, id);
    }

    long unseal8Text(byte[] text) {
        return unseal8Text(address, text);
    }

    private static native long open(byte[] file, byte[] tenant, byte[] table);

    private static native long fromEnv(byte[] tenant, byte[] table);

    private static native long fromKeys(byte[] versions, byte[] keys, byte sealWith, byte[] tenant, byte[] table);

    private static native void free(long address);

    private native long withVersion(long address, byte version);

    private native int version(long address);

    private native void seal(long address, long id, byte[] out);

    private native long unseal(long address, byte[] orderNo);

    private native void sealWide(long address, byte[] id, byte[] out);

    private native void unsealWide(long address, byte[] orderNo, byte[] out);

    private native long seal8(long address, long id);

    private native long unseal8(long address, long orderNo);

    private native void sealAll(long address, long[] ids, byte[] out);

    private native void unsealAll(long address, byte[] orderNos, long[] out);

    private native void seal8All(long address, long[] ids, long[] out);

    private native void unseal8All(long address, long[] orderNos, long[] out);

    private native String sealText(long address, long id);

    private native long unsealText(long address, byte[] text);

    private native String sealWideText(long address, byte[] id);

    private native void unsealWideText(long address, byte[] text, byte[] out);

    private native String seal8Text(long address, long id);

    private native long unseal8Text(long address, byte[] text);
}
