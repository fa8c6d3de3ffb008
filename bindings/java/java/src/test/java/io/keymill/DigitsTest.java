package io.keymill;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.ThreadLocalRandom;
import org.junit.jupiter.api.Test;

class DigitsTest {
    @Test
    void digits_are_what_format_gives_at_every_width_and_at_every_edge() {
        for (int width = 1; width <= 18; width++) {
            for (long power = 1, i = 0; i < 19; i++, power *= 10) {
                same(power, width);
                same(power - 1, width);
                same(power + 1, width);
                for (int n = 0; n < 200; n++) {
                    same(ThreadLocalRandom.current().nextLong(power, Math.max(power + 1, power * 9)), width);
                }
            }
            same(Long.MAX_VALUE, width);
        }
    }

    private static void same(long number, int width) {
        assertEquals("D" + String.format("%0" + width + "d", number), new Prefix(new byte[] {'D'}).textOf(number, width));
    }

    @Test
    void every_group_of_eight_digits_is_right() {
        for (long n = 0; n < 100_000_000; n += 4_999) {
            assertEquals(String.format("%08d", n), Prefix.NONE.textOf(n, 8));
        }
    }

    @Test
    void a_prefix_of_any_script_stands_before_the_digits() {
        for (String text : new String[] {"", "CUST20261120", "é20261120", "客户20261120", "𝔊1"}) {
            Prefix prefix = new Prefix(text.getBytes(StandardCharsets.UTF_8));
            Cursor cursor = new Cursor(null);
            cursor.prefix = prefix;
            cursor.scratch = prefix.scratch();
            cursor.width = 6;
            assertEquals(text + "000042", prefix.textOf(42, 6));
            // In a row and in leaps, over the pattern's last number too.
            for (long number : new long[] {42, 43, 44, 99, 100, 999_998, 999_999, 1_000_000, 1_000_001, 7, 8}) {
                assertEquals(text + String.format("%06d", number), cursor.text(number));
            }
        }
    }
}
