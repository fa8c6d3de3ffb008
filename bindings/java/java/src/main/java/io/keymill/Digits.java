package io.keymill;

/**
 * Numbers as zero-padded decimal digits, eight at a time in one register. The technique of splitting eight digits in
 * three steps is Paul Khuong's ("How to print integers really fast", 2017).
 */
final class Digits {
    /** Bytes that may be written from where a number begins: 19 digits, and what the last eight overhang. */
    static final int ROOM = 32;

    private static final long EIGHT = 100_000_000L;
    private static final long[] POWER = new long[19];

    static {
        POWER[0] = 1;
        for (int i = 1; i < POWER.length; i++) {
            POWER[i] = POWER[i - 1] * 10;
        }
    }

    private Digits() {}

    /** The text that {@code bytes} begins with, {@code at} characters, and the number with at least {@code width} digits. */
    static String text(byte[] bytes, int at, long number, int width) {
        return first(bytes, write(bytes, at, number, width));
    }

    /** Writes the number with at least {@code width} digits; answers with where it ends. */
    static int write(byte[] bytes, int at, long number, int width) {
        int digits = width;
        if (digits > 18 || number >= POWER[digits]) {
            digits = count(number);
        }
        if (digits <= 8) {
            // The wanted digits come first; what is behind them is not part of the text.
            Atomics.put8(bytes, at, eight(number) >>> (8 * (8 - digits)));
        } else {
            long rest = number / EIGHT;
            int front = digits - 8;
            if (front <= 8) {
                Atomics.put8(bytes, at, eight(rest) >>> (8 * (8 - front)));
            } else {
                long first = rest / EIGHT;
                Atomics.put8(bytes, at, eight(first) >>> (8 * (16 - front)));
                Atomics.put8(bytes, at + front - 8, eight(rest % EIGHT));
            }
            Atomics.put8(bytes, at + front, eight(number % EIGHT));
        }
        return at + digits;
    }

    /**
     * The first characters of an array. This constructor is the quickest there is: each byte is a character, no charset is
     * asked; and a length that is known when it is compiled makes it half as dear again, so the usual ones stand here.
     */
    @SuppressWarnings("deprecation")
    static String first(byte[] bytes, int length) {
        switch (length) {
            case 14:
                return new String(bytes, 0, 0, 14);
            case 15:
                return new String(bytes, 0, 0, 15);
            case 16:
                return new String(bytes, 0, 0, 16);
            case 17:
                return new String(bytes, 0, 0, 17);
            case 18:
                return new String(bytes, 0, 0, 18);
            case 19:
                return new String(bytes, 0, 0, 19);
            case 20:
                return new String(bytes, 0, 0, 20);
            default:
                return new String(bytes, 0, 0, length);
        }
    }

    private static int count(long number) {
        int digits = 1;
        while (digits < 19 && number >= POWER[digits]) {
            digits++;
        }
        return digits;
    }

    /** Eight characters, the first in the lowest byte. */
    private static long eight(long number) {
        // Four digits in each half, then two in each quarter, then one in each byte.
        long halves = (number / 10_000) | ((number % 10_000) << 32);
        long hundreds = ((halves * 10_486) >>> 20) & 0x7f_0000_007fL;
        long quarters = hundreds | ((halves - 100 * hundreds) << 16);
        long tens = ((quarters * 103) >>> 10) & 0x000f_000f_000f_000fL;
        long bytes = tens | ((quarters - 10 * tens) << 8);
        return bytes | 0x3030_3030_3030_3030L;
    }
}
