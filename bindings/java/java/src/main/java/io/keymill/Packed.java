package io.keymill;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/** Bytes for the native library: numbers of 32 bits, the highest byte first, and texts after their lengths. */
final class Packed {
    private final ByteArrayOutputStream out = new ByteArrayOutputStream();

    Packed number(int number) {
        out.write(number >>> 24);
        out.write(number >>> 16);
        out.write(number >>> 8);
        out.write(number);
        return this;
    }

    /** Null has the length -1. */
    Packed bytes(byte[] bytes) {
        number(bytes == null ? -1 : bytes.length);
        if (bytes != null) {
            out.write(bytes, 0, bytes.length);
        }
        return this;
    }

    /** What UTF-8 cannot hold becomes a question mark: a text of a driver. */
    Packed text(String text) {
        return bytes(text == null ? null : text.getBytes(StandardCharsets.UTF_8));
    }

    byte[] toBytes() {
        return out.toByteArray();
    }
}
