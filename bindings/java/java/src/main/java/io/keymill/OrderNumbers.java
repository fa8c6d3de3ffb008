package io.keymill;

import java.math.BigInteger;
import java.util.Arrays;
import java.util.Map;

/**
 * Turns business ids into order numbers, which may be shown to anyone, and back. The gene in an order number stays readable, and the number
 * is encrypted with keys of this tenant and this table. Safe from any number of threads.
 *
 * <pre>{@code
 * OrderNumbers numbers = OrderNumbers.open("keys.toml", "tenant", "orders");
 * byte[] no = numbers.seal(id);
 * long same = numbers.unseal(no);
 * }</pre>
 */
public final class OrderNumbers {
    private static final int BYTES = 16;
    private static final int KEY_BYTES = 32;
    private static final int LAST_VERSION = 255;

    /** The keys, which are wiped when the collector finds that this cannot be reached. */
    private static final NativeMemory MEMORY = new NativeMemory(OrderNumbers::free);

    private final long address;

    private OrderNumbers(long address) {
        this.address = address;
        MEMORY.add(this, address);
    }

    /**
     * With the keys of a file, for one tenant and one table; either may be empty. Other users must not be able to read the file.
     *
     * @param file the key file
     * @param tenant the tenant
     * @param table the table
     * @return the order numbers
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} where the file cannot be read; {@link Code#INVALID_CONFIG} where others can
     *     read it, and with what is wrong in it
     */
    public static OrderNumbers open(String file, String tenant, String table) {
        Library.ensure();
        return new OrderNumbers(open(Native.utf8(file, "file"), Native.utf8(tenant, "tenant"), Native.utf8(table, "table")));
    }

    /**
     * With the keys in the environment variable {@code KEYMILL_ORDER_KEYS}, which has the text of a key file.
     *
     * @param tenant the tenant
     * @param table the table
     * @return the order numbers
     * @throws KeymillException {@link Code#INVALID_CONFIG} where it is not set, and with what is wrong in it
     */
    public static OrderNumbers fromEnv(String tenant, String table) {
        Library.ensure();
        return new OrderNumbers(fromEnv(Native.utf8(tenant, "tenant"), Native.utf8(table, "table")));
    }

    /**
     * With keys of the caller's. What is copied of them on the way is wiped.
     *
     * @param keys versions, 1 to 255, with 32 bytes each
     * @param sealWith the version that seals
     * @param tenant the tenant
     * @param table the table
     * @return the order numbers
     * @throws KeymillException {@link Code#INVALID_ARGUMENT}: no key, a key that has not 32 bytes, a version that is none, or no key of
     *     {@code sealWith}
     */
    public static OrderNumbers fromKeys(Map<Integer, byte[]> keys, int sealWith, String tenant, String table) {
        if (keys == null) {
            throw KeymillException.argument("keys are null");
        }
        byte[] versions = new byte[keys.size()];
        byte[] all = new byte[KEY_BYTES * versions.length];
        try {
            int at = 0;
            for (Map.Entry<Integer, byte[]> key : keys.entrySet()) {
                if (key.getKey() == null || key.getValue() == null) {
                    throw KeymillException.argument("a key or its version is null");
                }
                if (key.getValue().length != KEY_BYTES) {
                    throw KeymillException.argument(
                            "key " + key.getKey() + " has " + key.getValue().length + " bytes; a key has 32");
                }
                versions[at] = version(key.getKey());
                System.arraycopy(key.getValue(), 0, all, KEY_BYTES * at, KEY_BYTES);
                at++;
            }
            Library.ensure();
            return new OrderNumbers(fromKeys(
                    versions, all, version(sealWith), Native.utf8(tenant, "tenant"), Native.utf8(table, "table")));
        } finally {
            Arrays.fill(all, (byte) 0);
        }
    }

    private static byte version(int version) {
        if (version < 0 || version > LAST_VERSION) {
            throw KeymillException.argument(version + " is no key version; versions are 1 to 255");
        }
        return (byte) version;
    }

    /** An array that is one. */
    static byte[] given(byte[] orderNo) {
        if (orderNo == null) {
            throw KeymillException.argument("the order number is null");
        }
        return orderNo;
    }

    private static long[] given(long[] numbers) {
        if (numbers == null) {
            throw KeymillException.argument("the array is null");
        }
        return numbers;
    }

    /**
     * The same keys, with only this version in use: it seals, it opens order numbers of 8 bytes, and order numbers of 16 bytes have to be of
     * this version.
     *
     * @param version the version
     * @return the order numbers
     * @throws KeymillException {@link Code#INVALID_ARGUMENT}: it is 0 or not loaded
     */
    public OrderNumbers withVersion(int version) {
        return new OrderNumbers(withVersion(address, version(version)));
    }

    /**
     * The version that seals, which belongs into a column beside order numbers of 8 bytes.
     *
     * @return 1 to 255
     */
    public int version() {
        return version(address);
    }

    /**
     * The order number of an id of 64 bits.
     *
     * @param id the id
     * @return 16 bytes
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for a negative id
     */
    public byte[] seal(long id) {
        byte[] out = new byte[BYTES];
        seal(address, id, out);
        return out;
    }

    /**
     * The id in an order number of 16 bytes.
     *
     * @param orderNo the order number
     * @return the id
     * @throws KeymillException {@link Code#FORGED} for what was not sealed with these keys for this tenant and this table;
     *     {@link Code#INVALID_ARGUMENT} for another length, and for a key version that is 0 or not loaded
     */
    public long unseal(byte[] orderNo) {
        return unseal(address, given(orderNo));
    }

    /**
     * The order number of an id of 128 bits.
     *
     * @param id the 16 bytes of the id, as {@link Business#nextWide(long)} gives them
     * @return 16 bytes
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} for an id of another form
     */
    public byte[] sealWide(byte[] id) {
        if (id == null) {
            throw KeymillException.argument("id is null");
        }
        byte[] out = new byte[BYTES];
        sealWide(address, id, out);
        return out;
    }

    /**
     * The order number of an id of 128 bits.
     *
     * @param id the id
     * @return 16 bytes
     * @throws KeymillException as {@link #sealWide(byte[])}
     */
    public byte[] sealWide(BigInteger id) {
        return sealWide(Router.wide(id));
    }

    /**
     * The id of 128 bits in an order number.
     *
     * @param orderNo the order number
     * @return the 16 bytes of the id; {@code new BigInteger(id)} is its number
     * @throws KeymillException as {@link #unseal}; {@link Code#FORGED} for the order number of an id of 64 bits
     */
    public byte[] unsealWide(byte[] orderNo) {
        byte[] out = new byte[BYTES];
        unsealWide(address, given(orderNo), out);
        return out;
    }

    /**
     * The order number of 8 bytes: a positive number. It hides the number in the id and has no room for a check: every positive number opens
     * as some id.
     *
     * @param id the id
     * @return the order number
     * @throws KeymillException as {@link #seal}
     */
    public long seal8(long id) {
        return seal8(address, id);
    }

    /**
     * The id in an order number of 8 bytes, of the version of {@link #withVersion} or of the only version that is loaded.
     *
     * @param orderNo the order number
     * @return the id
     * @throws KeymillException {@link Code#INVALID_ARGUMENT} where several versions are loaded and none was chosen, and for a negative one
     */
    public long unseal8(long orderNo) {
        return unseal8(address, orderNo);
    }

    /**
     * The order numbers of many ids, several times as fast as one by one.
     *
     * @param ids the ids
     * @return 16 bytes each
     * @throws KeymillException as {@link #seal}
     */
    public byte[][] sealAll(long[] ids) {
        byte[] all = new byte[Math.multiplyExact(BYTES, given(ids).length)];
        sealAll(address, ids, all);
        byte[][] orderNos = new byte[ids.length][];
        for (int i = 0; i < orderNos.length; i++) {
            orderNos[i] = Arrays.copyOfRange(all, BYTES * i, BYTES * (i + 1));
        }
        return orderNos;
    }

    /**
     * The ids in many order numbers of 16 bytes: all of them, or an error that names a wrong number.
     *
     * @param orderNos the order numbers
     * @return the ids
     * @throws KeymillException as {@link #unseal}
     */
    public long[] unsealAll(byte[][] orderNos) {
        if (orderNos == null) {
            throw KeymillException.argument("the array is null");
        }
        byte[] all = new byte[Math.multiplyExact(BYTES, orderNos.length)];
        for (int i = 0; i < orderNos.length; i++) {
            if (given(orderNos[i]).length != BYTES) {
                throw KeymillException.argument("order number " + (i + 1) + " of " + orderNos.length + ": an order number has 16 bytes, and this one "
                        + orderNos[i].length);
            }
            System.arraycopy(orderNos[i], 0, all, BYTES * i, BYTES);
        }
        long[] ids = new long[orderNos.length];
        unsealAll(address, all, ids);
        return ids;
    }

    /**
     * The order numbers of 8 bytes of many ids.
     *
     * @param ids the ids
     * @return the order numbers
     * @throws KeymillException as {@link #seal8}
     */
    public long[] seal8All(long[] ids) {
        long[] out = new long[given(ids).length];
        seal8All(address, ids, out);
        return out;
    }

    /**
     * The ids in many order numbers of 8 bytes, which one version has sealed.
     *
     * @param orderNos the order numbers
     * @return the ids
     * @throws KeymillException as {@link #unseal8}
     */
    public long[] unseal8All(long[] orderNos) {
        long[] out = new long[given(orderNos).length];
        unseal8All(address, orderNos, out);
        return out;
    }

    /**
     * The order number of an id of 64 bits as text.
     *
     * @param id the id
     * @return 26 characters
     * @throws KeymillException as {@link #seal}
     */
    public String sealText(long id) {
        return sealText(address, id);
    }

    /**
     * The id in the text of an order number of 16 bytes. Small letters are read too, and i, l and o as the digits that they look like.
     *
     * @param text the text
     * @return the id
     * @throws KeymillException as {@link #unseal}; {@link Code#INVALID_ARGUMENT} for another length or other characters
     */
    public long unsealText(String text) {
        return unsealText(address, Native.utf8(text, "the order number"));
    }

    /**
     * The order number of an id of 128 bits as text.
     *
     * @param id the 16 bytes of the id
     * @return 26 characters
     * @throws KeymillException as {@link #sealWide(byte[])}
     */
    public String sealWideText(byte[] id) {
        if (id == null) {
            throw KeymillException.argument("id is null");
        }
        return sealWideText(address, id);
    }

    /**
     * The id of 128 bits in the text of an order number.
     *
     * @param text the text
     * @return the 16 bytes of the id
     * @throws KeymillException as {@link #unsealText} and {@link #unsealWide}
     */
    public byte[] unsealWideText(String text) {
        byte[] out = new byte[BYTES];
        unsealWideText(address, Native.utf8(text, "the order number"), out);
        return out;
    }

    /**
     * The order number of 8 bytes as text. Its last character finds typing errors.
     *
     * @param id the id
     * @return 14 characters
     * @throws KeymillException as {@link #seal8}
     */
    public String seal8Text(long id) {
        return seal8Text(address, id);
    }

    /**
     * The id in the text of an order number of 8 bytes.
     *
     * @param text the text
     * @return the id
     * @throws KeymillException as {@link #unseal8}; {@link Code#INVALID_ARGUMENT} for another length, other characters or another check
     *     symbol
     */
    public long unseal8Text(String text) {
        return unseal8Text(address, Native.utf8(text, "the order number"));
    }

    /** Without a key. */
    @Override
    public String toString() {
        return "OrderNumbers(version " + version() + ")";
    }

    // Instance natives: the call keeps this object reachable.

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
