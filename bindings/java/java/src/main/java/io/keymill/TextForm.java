package io.keymill;

import java.nio.charset.StandardCharsets;
import java.util.Map;

/** How ids of a source are written as text: {@code text=crockford&prefix=ord_}. The digits come from the core, which reads such texts. */
final class TextForm {
    /** The digits, the lowest first; null: decimal ones. */
    private final byte[] digits;
    private final int width;
    private final byte[] prefix;

    /** By what the core says of a source. */
    TextForm(Map<String, String> form) {
        width = Integer.parseInt(form.get("width"));
        digits = width == 0 ? null : ascii(form.get("digits"));
        prefix = ascii(form.get("prefix"));
    }

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    /** The text of an id. */
    String text(long id) {
        if (digits == null) {
            byte[] bytes = new byte[prefix.length + Digits.ROOM];
            System.arraycopy(prefix, 0, bytes, 0, prefix.length);
            return id < 0
                    ? Digits.first(bytes, prefix.length) + Long.toUnsignedString(id)
                    : Digits.text(bytes, prefix.length, id, 1);
        }
        byte[] bytes = new byte[prefix.length + width];
        System.arraycopy(prefix, 0, bytes, 0, prefix.length);
        long rest = id;
        int base = digits.length;
        int at = bytes.length - 1;
        if (rest < 0) {
            // The first division divides an unsigned number.
            long quotient = Long.divideUnsigned(rest, base);
            bytes[at--] = digits[(int) (rest - quotient * base)];
            rest = quotient;
        }
        // A form has more digits than an int holds; below that their divisions are short.
        while (rest > Integer.MAX_VALUE) {
            long quotient = rest / base;
            bytes[at--] = digits[(int) (rest - quotient * base)];
            rest = quotient;
        }
        int low = (int) rest;
        while (at >= prefix.length) {
            int quotient = low / base;
            bytes[at--] = digits[low - quotient * base];
            low = quotient;
        }
        return Digits.first(bytes, bytes.length);
    }
}
