package io.keymill;

import static io.keymill.Checks.refused;
import static io.keymill.Checks.together;
import static io.keymill.Checks.until;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashSet;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

class BusinessTest {
    private static final long GENE_OF_42 = 61763;
    private static final long GENE_OF_BUYER_42 = 56443;

    private final Mill mill = Mill.open("memory:");

    @AfterEach
    void close() {
        mill.close();
    }

    private static long id(long gene, long number) {
        return gene << 47 | number;
    }

    private static String repeated(int times) {
        char[] text = new char[times];
        Arrays.fill(text, 'x');
        return new String(text);
    }

    @Test
    void an_id_carries_the_gene_of_its_key() throws Exception {
        Business orders = mill.business("order");
        assertEquals(id(GENE_OF_42, 1), orders.next(42));
        assertEquals(id(GENE_OF_BUYER_42, 2), orders.next("buyer-42"));
        assertArrayEquals(new long[] {id(GENE_OF_42, 3), id(GENE_OF_42, 4)}, orders.take(42, 2));
        assertArrayEquals(new long[] {id(GENE_OF_BUYER_42, 5)}, orders.take("buyer-42", 1));
        assertEquals(0, orders.take(42, 0).length);
        assertEquals(OptionalLong.of(id(GENE_OF_42, 6)), orders.tryNext(42));
        assertEquals(OptionalLong.of(id(GENE_OF_BUYER_42, 7)), orders.tryNext("buyer-42"));
        assertEquals(id(45076, 8), orders.next(-1));
        assertEquals(id(59801, 9), orders.next(""));
        assertEquals(id(35689, 10), orders.next("用户"));
        // More than a step.
        long[] many = orders.take(42, 5000);
        for (int i = 0; i < many.length; i++) {
            assertEquals(id(GENE_OF_42, 11 + i), many[i]);
        }
        // Asked for again, it is the same source.
        assertEquals(id(GENE_OF_42, 5011), mill.business("order").next(42));
        assertEquals("business:order", orders.toString());
        assertEquals("business", orders.settings().get("kind"));
        assertEquals(5011, orders.stats().issued());
    }

    @Test
    void an_id_says_its_gene() {
        Business orders = mill.business("order?counters=16");
        long id = orders.next("buyer-42");
        byte[] bytes = new BigInteger(1, BigInteger.valueOf(id).toByteArray()).toByteArray();
        for (Parts parts : new Parts[] {
            orders.parse(id), orders.parse(Long.toString(id)), orders.parse(BigInteger.valueOf(id)), orders.parse(bytes),
            mill.source("business:order?counters=16").parse(id)
        }) {
            assertEquals(OptionalInt.of((int) GENE_OF_BUYER_42), parts.gene());
            assertEquals(OptionalLong.of(1), parts.number());
        }
        assertEquals("{gene=56443, number=1}", orders.parse(id).toString());
        for (Executable wrong : new Executable[] {
            () -> orders.parse(0),
            () -> orders.parse(-1),
            () -> orders.parse(Long.MIN_VALUE),
            () -> orders.parse((BigInteger) null),
            () -> orders.parse((byte[]) null),
            () -> orders.parse((String) null),
            () -> orders.parse("x"),
            () -> orders.parse(new byte[0]),
            () -> orders.parse(new byte[7]),
            () -> orders.parse(new byte[9]),
            () -> orders.parse(new byte[16]),
            () -> orders.parse(BigInteger.ONE.shiftLeft(200)),
        }) {
            refused(Code.INVALID_ARGUMENT, wrong);
        }
    }

    @Test
    void wide_ids_are_sixteen_bytes_or_a_big_integer() {
        Business orders = mill.business("order?wide=on");
        BigInteger first = BigInteger.valueOf(GENE_OF_BUYER_42).shiftLeft(111).or(BigInteger.ONE);
        byte[] id = orders.nextWide("buyer-42");
        assertEquals(16, id.length);
        assertEquals(first, new BigInteger(id));
        assertEquals(first.add(BigInteger.ONE), orders.nextWideInteger("buyer-42"));
        byte[][] more = orders.takeWide("buyer-42", 2);
        assertEquals(first.add(BigInteger.valueOf(3)), new BigInteger(more[1]));
        assertEquals(0, orders.takeWide(42, 0).length);
        assertEquals(BigInteger.valueOf(GENE_OF_42).shiftLeft(111).or(BigInteger.valueOf(5)), orders.nextWideInteger(42));
        assertEquals(6, orders.parse(orders.tryNextWide(42).get()).number().getAsLong());
        assertEquals(7, orders.parse(orders.tryNextWide("buyer-42").get()).number().getAsLong());
        assertEquals(8, orders.parse(orders.takeWide(42, 1)[0]).number().getAsLong());
        for (Parts parts : new Parts[] {orders.parse(id), orders.parse(first), orders.parse(first.toString())}) {
            assertEquals(OptionalInt.of((int) GENE_OF_BUYER_42), parts.gene());
            assertEquals(OptionalLong.of(1), parts.number());
        }
        // The type or the length says the form, never the size.
        long narrowId = id(GENE_OF_42, 7);
        assertEquals("{gene=61763, number=7}", orders.parse(narrowId).toString());
        assertEquals("{gene=61763, number=7}", orders.parse(ByteBuffer.allocate(8).putLong(narrowId).array()).toString());
        assertEquals("{gene=0, number=" + narrowId + "}", orders.parse(BigInteger.valueOf(narrowId)).toString());
        assertEquals("{gene=61763, number=7}", mill.source("business:order?wide=on").parse(narrowId).toString());
        refused(Code.INVALID_ARGUMENT, () -> orders.parse(Long.toString(narrowId)));
        refused(Code.INVALID_ARGUMENT, () -> orders.next(42));
        refused(Code.INVALID_ARGUMENT, () -> orders.next("buyer-42"));
        refused(Code.INVALID_ARGUMENT, () -> orders.tryNext(42));
        refused(Code.INVALID_ARGUMENT, () -> orders.take(42, 3));
        Business narrow = mill.business("narrow");
        refused(Code.INVALID_ARGUMENT, () -> narrow.nextWide(42));
        refused(Code.INVALID_ARGUMENT, () -> narrow.tryNextWide("a"));
        refused(Code.INVALID_ARGUMENT, () -> narrow.takeWide(42, 3));
        assertEquals(1, narrow.parse(narrow.next(42)).number().getAsLong());
    }

    @Test
    void wrong_keys_and_counts_are_refused_in_words() {
        Business orders = mill.business("order");
        for (Executable verb : new Executable[] {
            () -> orders.next(null), () -> orders.tryNext(null), () -> orders.take(null, 3), () -> orders.nextWide(null),
        }) {
            assertTrue(refused(Code.INVALID_ARGUMENT, verb).getMessage().contains("the key is null"));
        }
        String longest = repeated(65536);
        assertTrue(orders.next(longest) > 0);
        for (Executable verb : new Executable[] {
            () -> orders.next(longest + "x"),
            () -> orders.tryNext(longest + "x"),
            () -> orders.take(longest + "x", 3),
            () -> orders.nextWide(longest + "x"),
        }) {
            assertTrue(refused(Code.INVALID_ARGUMENT, verb).getMessage().contains("65536"));
        }
        assertTrue(refused(Code.INVALID_ARGUMENT, () -> orders.next("\ud800")).getMessage().contains("surrogate"));
        // A whole pair is a character: U+10437.
        assertTrue(orders.next("\ud801\udc37") > 0);
        refused(Code.INVALID_ARGUMENT, () -> orders.take(42, -1));
        refused(Code.INVALID_ARGUMENT, () -> orders.take("a", -1));
        refused(Code.INVALID_CONFIG, () -> mill.business("order?counters=3"));
        refused(Code.INVALID_ARGUMENT, () -> mill.business(null));
    }

    @Test
    void a_source_says_which_verbs_have_ids_for_keys() {
        Source orders = mill.source("business:order");
        for (Executable verb : new Executable[] {
            orders::next,
            orders::tryNext,
            orders::nextText,
            () -> orders.take(3),
            () -> orders.takeText(3),
            () -> orders.lease(3),
            () -> orders.handle().next(),
        }) {
            String said = refused(Code.INVALID_ARGUMENT, verb).getMessage();
            assertTrue(said.contains("mill.business") && said.contains("next(key)"), said);
        }
    }

    @Test
    void threads_get_ids_of_their_own() throws Exception {
        Business orders = mill.business("order?counters=4&order=thread");
        Set<Long> all = new HashSet<>();
        for (Set<Long> mine : together(4, () -> {
            Set<Long> ids = new HashSet<>();
            long before = 0;
            for (int i = 0; i < 20_000; i++) {
                long id = i % 2 == 0 ? orders.next(7) : orders.next("buyer-" + i % 10);
                assertTrue(ids.add(id));
                if (i % 2 == 0) {
                    assertTrue(id > before, "ids of one gene rise within a thread");
                    before = id;
                }
            }
            Arrays.stream(orders.take(7, 500)).forEach(ids::add);
            return ids;
        })) {
            all.addAll(mine);
        }
        assertEquals(4 * 20_500, all.size());
    }

    @Test
    void nobody_waits_longer_than_the_deadline_and_a_caller_that_waits_can_be_interrupted() throws Exception {
        try (Mill silent = Mill.open("memory:?script=silent:20s")) {
            Business orders = silent.business("o?deadline=200ms");
            refused(Code.DEADLINE, () -> orders.next(42));
            refused(Code.DEADLINE, () -> orders.next("buyer-42"));
            refused(Code.DEADLINE, () -> orders.take(42, 5));
            assertEquals(OptionalLong.empty(), orders.tryNext(42));
            Business wide = silent.business("w?deadline=200ms&wide=on");
            refused(Code.DEADLINE, () -> wide.nextWide(42));
            refused(Code.DEADLINE, () -> wide.takeWide(42, 5));
            assertEquals(false, wide.tryNextWide(42).isPresent());
            Business patient = silent.business("p?deadline=60s");
            AtomicReference<Throwable> thrown = new AtomicReference<>();
            Thread waiter = new Thread(() -> thrown.set(assertThrows(KeymillException.class, () -> patient.next(42))));
            waiter.start();
            until("it waits", 15, () -> waiter.getState() == Thread.State.TIMED_WAITING);
            waiter.interrupt();
            waiter.join(50_000);
            assertTrue(thrown.get() instanceof KeymillException && thrown.get().getCause() instanceof InterruptedException);
        }
    }

    @Test
    void a_closed_mill_is_said() {
        Business orders = mill.business("order");
        orders.next(42);
        mill.close();
        refused(Code.CLOSED, () -> orders.next(42));
        refused(Code.CLOSED, () -> orders.next("a"));
        refused(Code.CLOSED, () -> orders.tryNext(42));
        refused(Code.CLOSED, () -> orders.take(42, 3));
    }
}
