package io.keymill;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** A serial's date part, which belongs to the leased numbers and not to the moment of writing. */
final class Prefix {
    static final Prefix NONE = new Prefix(new byte[0]);

    /** Room behind the longest number, so that no other object shares the lines that are written. */
    private static final int ROOM = 32 + 128;

    private final byte[] utf8;
    private final String text;
    /** The characters where each is one byte; else null. */
    private final byte[] latin;
    final int length;
    /** The first eight bytes, the first in the lowest: a prefix that is not longer is written in one go. */
    private final long head;

    Prefix(byte[] utf8) {
        this.utf8 = utf8;
        this.text = new String(utf8, StandardCharsets.UTF_8);
        boolean isLatin = text.chars().allMatch(c -> c < 256);
        this.latin = isLatin ? text.getBytes(StandardCharsets.ISO_8859_1) : null;
        this.length = text.length();
        long head = 0;
        for (int i = 0; latin != null && i < Math.min(8, length); i++) {
            head |= (latin[i] & 0xFFL) << (8 * i);
        }
        this.head = head;
    }

    boolean equals(ByteBuffer bytes, int at, int length) {
        if (length != utf8.length) {
            return false;
        }
        for (int i = 0; i < length; i++) {
            if (bytes.get(at + i) != utf8[i]) {
                return false;
            }
        }
        return true;
    }

    /** An array that begins with this prefix and has room for any number; null where characters are not single bytes. */
    byte[] scratch() {
        return latin == null ? null : java.util.Arrays.copyOf(latin, length + ROOM);
    }

    /** The text of a number, without a scratch of the caller's. */
    String textOf(long number, int width) {
        if (latin != null && length <= 8) {
            byte[] bytes = new byte[8 + Digits.ROOM];
            Atomics.put8(bytes, 0, head);
            return Digits.text(bytes, length, number, width);
        }
        if (latin == null) {
            return text + Digits.text(new byte[Digits.ROOM], 0, number, width);
        }
        byte[] bytes = new byte[length + Digits.ROOM];
        System.arraycopy(latin, 0, bytes, 0, length);
        return Digits.text(bytes, length, number, width);
    }
}
