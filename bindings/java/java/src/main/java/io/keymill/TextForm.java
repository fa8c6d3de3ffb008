package io.keymill;

import java.nio.charset.StandardCharsets;
import java.util.Map;

/** How ids of a source are written as text: {@code text=crockford&prefix=ord_}. The forms are those of the core's {@code text_form.rs}. */
final class TextForm {
    private static final byte[] CROCKFORD = ascii("0123456789ABCDEFGHJKMNPQRSTVWXYZ");
    private static final byte[] BASE62 = ascii("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
    private static final byte[] BASE36 = ascii("0123456789abcdefghijklmnopqrstuvwxyz");

    /** The digits; null: decimal ones. */
    private final byte[] digits;
    private final int width;
    private final byte[] prefix;

    private TextForm(byte[] digits, int width, String prefix) {
        this.digits = digits;
        this.width = width;
        this.prefix = ascii(prefix);
    }

    /** By the settings of a source. */
    static TextForm of(Map<String, String> settings) {
        String prefix = settings.containsKey("prefix") ? settings.get("prefix") : "";
        String name = settings.containsKey("text") ? settings.get("text") : "decimal";
        switch (name) {
            case "crockford":
                return new TextForm(CROCKFORD, 13, prefix);
            case "base62":
                return new TextForm(BASE62, 11, prefix);
            case "base36":
                return new TextForm(BASE36, 13, prefix);
            case "decimal":
                return new TextForm(null, 0, prefix);
            default:
                throw new IllegalStateException("the core knows a form that this class does not: " + name);
        }
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
            // The first division is that of an unsigned number.
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
