package io.keymill;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.github.f4b6a3.tsid.Tsid;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** Ids as text. What the texts are is in tests/vectors; here it is read by others. */
class TextFormTest {
    private final Mill mill = Mill.open("memory:");

    @AfterEach
    void close() {
        mill.close();
    }

    @Test
    void a_tsid_library_reads_crockford_texts_and_keymill_reads_its_own() {
        Source orders = mill.source("segment:orders?text=crockford");
        for (long id : ids()) {
            String text = orders.textOf(id);
            assertEquals(id, Tsid.from(text).toLong());
            assertEquals(text, Tsid.from(id).toString());
            assertEquals(id, orders.parse(Tsid.from(id).toLowerCase()).number().getAsLong());
        }
    }

    @Test
    void the_jdk_reads_base36_texts() {
        Source orders = mill.source("segment:orders?text=base36&prefix=ord_");
        for (long id : ids()) {
            assertEquals(id, Long.parseLong(orders.textOf(id).substring(4), 36));
        }
    }

    @Test
    void texts_have_the_order_of_their_numbers() {
        List<Long> ids = ids();
        Collections.sort(ids);
        for (String form : new String[] {"crockford", "base36", "base62"}) {
            Source orders = mill.source("segment:orders?prefix=t&text=" + form);
            for (int i = 1; i < ids.size(); i++) {
                String before = orders.textOf(ids.get(i - 1));
                String text = orders.textOf(ids.get(i));
                assertEquals(Long.compare(ids.get(i - 1), ids.get(i)), Integer.signum(before.compareTo(text)), before + " " + text);
                assertEquals((long) ids.get(i), orders.parse(text).number().getAsLong());
            }
        }
    }

    @Test
    void every_verb_of_texts_writes_the_form() {
        for (String order : new String[] {"process", "thread"}) {
            Source orders = mill.source("segment:" + order + "?text=base62&prefix=o_&order=" + order);
            assertEquals("o_00000000001", orders.nextText());
            assertArrayEquals(new String[] {"o_00000000002", "o_00000000003"}, orders.takeText(2));
            assertEquals(4, orders.next());
            assertEquals(4, orders.parse("o_00000000004").number().getAsLong());
        }
        Source tx = mill.source("snowflake:tx?worker=5&text=crockford&prefix=tx_");
        assertTrue(tx.nextText().matches("tx_0[0-9A-HJKMNP-TV-Z]{12}"));
        assertEquals(5, tx.parse(tx.takeText(3)[2]).worker().getAsLong());
    }

    @Test
    void ids_for_keys_have_texts() {
        Business orders = mill.business("order?text=base36");
        String text = orders.nextText("buyer-42");
        assertEquals(56443, orders.parse(text).gene().getAsInt());
        assertEquals(text, orders.textOf(Long.parseLong(text, 36)));
        assertEquals(orders.parse(text).toString(), orders.parse(Long.parseLong(text, 36)).toString());
        assertEquals(orders.parse(text).toString(), orders.parse(BigInteger.valueOf(Long.parseLong(text, 36))).toString());
        assertEquals(2, orders.takeText(42L, 2).length);
    }

    @Test
    void a_number_of_thirteen_digits_is_a_number_and_its_text_is_the_form() {
        Source orders = mill.source("segment:orders?text=crockford");
        assertEquals(1_000_000_000_000L, orders.parse(1_000_000_000_000L).number().getAsLong());
        assertEquals(1L << 60, orders.parse("1000000000000").number().getAsLong());
    }

    private static List<Long> ids() {
        List<Long> ids = new ArrayList<>();
        SplittableRandom random = new SplittableRandom(25);
        for (int shift = 1; shift < 64; shift++) {
            for (int i = 0; i < 20; i++) {
                ids.add(Math.max(1, random.nextLong() >>> shift));
            }
            ids.add(Math.max(1, Long.MAX_VALUE >>> shift));
        }
        ids.add(1L);
        ids.add(Long.MAX_VALUE);
        return ids;
    }
}
