package io.keymill;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;

/** How a source writes an id of 64 bits as text: a prefix and digits. The digits are the core's. */
final class TextForm {
    /** The lowest digit first. */
    private final byte[] digits;
    /** How many digits a text has; decimal ones are as many as the number needs. */
    private final int width;
    private final byte[] prefix;
    private final String prefixText;
    private final boolean plain;

    TextForm(Map<String, String> rows) {
        digits = rows.get("digits").getBytes(StandardCharsets.US_ASCII);
        width = Integer.parseInt(rows.get("width"));
        prefixText = rows.get("prefix");
        prefix = prefixText.getBytes(StandardCharsets.US_ASCII);
        plain = digits.length == 10 && prefix.length == 0;
    }

    /** The text of an id. */
    String of(long id) {
        if (plain) {
            return Long.toString(id);
        }
        return digits.length == 10 ? prefixText + id : fixed(id);
    }

    @SuppressWarnings("deprecation")
    private String fixed(long id) {
        byte[] text = Arrays.copyOf(prefix, prefix.length + width);
        int least = prefix.length;
        long rest = id;
        int at = text.length - 1;
        // Divided by constants, which the compiler makes multiplications of.
        switch (digits.length) {
            case 32:
                for (; at >= least; at--, rest >>>= 5) {
                    text[at] = digits[(int) (rest & 31)];
                }
                break;
            case 36:
                for (; at >= least; at--, rest /= 36) {
                    text[at] = digits[(int) (rest % 36)];
                }
                break;
            case 62:
                for (; at >= least; at--, rest /= 62) {
                    text[at] = digits[(int) (rest % 62)];
                }
                break;
            default:
                throw new AssertionError(digits.length + " digits");
        }
        return new String(text, 0);
    }
}
