package io.keymill;

import static io.keymill.Checks.refused;
import static io.keymill.Checks.together;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

class SourceTest {
    private final Mill mill = Mill.open("memory:");

    @AfterEach
    void close() {
        mill.close();
    }

    @Test
    void ids_follow_each_other_over_every_verb() {
        Source orders = mill.segment("orders");
        assertEquals(1, orders.next());
        assertArrayEquals(new long[] {2, 3, 4}, orders.take(3));
        assertEquals(OptionalLong.of(5), orders.tryNext());
        long[] filled = new long[2000];
        orders.fill(filled);
        assertEquals(6, filled[0]);
        assertEquals(2005, filled[1999]);
        assertArrayEquals(new long[] {2006, 2007}, orders.stream().limit(2).toArray());
        assertEquals(2008, mill.source("segment:orders").getAsLong());
        assertEquals("2009", orders.nextText());
        assertEquals("segment:orders", orders.toString());
    }

    @Test
    void a_lease_is_a_range_that_nobody_else_gets() {
        for (String order : new String[] {"process", "thread"}) {
            Source orders = mill.segment("leased_" + order + "?order=" + order);
            Set<Long> ids = new HashSet<>();
            assertTrue(ids.add(orders.next()));
            long leased = 0;
            while (leased < 5000) {
                Range range = orders.lease(700);
                assertTrue(range.size() >= 1 && range.size() <= 700, range.toString());
                assertEquals(range.first() + range.size(), range.end());
                assertTrue(range.stream().allMatch(ids::add), range.toString());
                leased += range.size();
                assertTrue(ids.add(orders.next()));
                assertTrue(Arrays.stream(orders.take(10)).allMatch(ids::add));
            }
        }
        Range last = mill.segment("end?start=9223372036854775807").lease(10);
        assertEquals("[9223372036854775807, 9223372036854775808)", last.toString());
        assertArrayEquals(new long[] {Long.MAX_VALUE}, last.stream().toArray());
        assertEquals(1, mill.segment("strided?scheme=tiny_id_info&delta=3&remainder=2").lease(10).size());
        refused(Code.INVALID_ARGUMENT, () -> mill.segment("orders").lease(0));
        refused(Code.INVALID_ARGUMENT, () -> mill.segment("orders").lease(-1));
        refused(Code.INVALID_ARGUMENT, () -> mill.source("snowflake:tx?worker=1").lease(10));
        refused(Code.INVALID_ARGUMENT, () -> mill.source("serial:t/c").lease(10));
    }

    @Test
    void stats_count_what_callers_have() {
        Source orders = mill.segment("counted");
        for (int i = 0; i < 500; i++) {
            orders.next();
        }
        orders.take(7);
        Stats stats = orders.stats();
        assertEquals("segment:counted", stats.source());
        assertEquals(507, stats.issued());
        assertEquals(stats.reserved(), stats.issued() + stats.left() + stats.lost());
        assertTrue(stats.left() > 0 && stats.refills() > 0 && stats.step() > 0, stats.toString());
        assertTrue(stats.lastRefill().isPresent() && stats.rate() >= 0 && stats.waits() <= 507, stats.toString());
        assertEquals(Optional.empty(), stats.refusal());
        assertEquals(Optional.empty(), stats.endsAt());
        assertEquals("segment:counted: issued 507, reserved " + stats.reserved() + ", left " + stats.left() + ", lost 0",
                stats.toString());

        Serial serial = mill.serial("counted/column?number=000000");
        serial.next();
        assertEquals(1, serial.stats().issued());

        Source time = mill.source("snowflake:counted?worker=1");
        time.next();
        Stats ofTime = time.stats();
        assertEquals(1, ofTime.issued());
        assertTrue(ofTime.lead().isPresent() && ofTime.endsAt().isPresent(), ofTime.toString());
        assertEquals(Optional.empty(), ofTime.runway());
        assertEquals(Optional.empty(), ofTime.leaseAge());

        Source leased = mill.source("snowflake:leased");
        leased.next();
        assertTrue(leased.stats().leaseAge().get().toMillis() < 60_000, leased.stats().leaseAge().toString());
    }

    @Test
    void stats_show_the_error_that_callers_get() {
        Source few = mill.segment("few?start=9223372036854775806");
        few.take(2);
        refused(Code.EXHAUSTED, few::next);
        assertTrue(few.stats().refusal().orElse("").contains("EXHAUSTED"), few.stats().refusal().toString());
        assertEquals(2, few.stats().issued());
    }

    @Test
    void with_order_thread_a_block_counts_as_issued_when_it_is_leased() {
        Source orders = mill.segment("by_thread?order=thread");
        orders.next();
        assertTrue(orders.stats().issued() >= 1, orders.stats().toString());
    }

    @Test
    void every_third_number_comes_by_every_verb() {
        for (String order : new String[] {"process", "thread"}) {
            Source orders = mill.segment("orders_" + order + "?scheme=tiny_id_info&delta=3&remainder=2&order=" + order);
            Set<Long> ids = new HashSet<>();
            for (int i = 0; i < 300; i++) {
                ids.add(orders.next());
            }
            long[] filled = new long[3000];
            orders.fill(filled);
            Handle mine = orders.handle();
            long[] own = {mine.next(), mine.next(), mine.getAsLong()};
            long[] more = {orders.tryNext().getAsLong(), Long.parseLong(orders.nextText()), Long.parseLong(orders.takeText(2)[1])};
            for (long[] some : new long[][] {filled, orders.take(1500), own, more, orders.stream().limit(4).toArray()}) {
                for (int i = 0; i < some.length; i++) {
                    assertTrue(i == 0 || some[i] > some[i - 1], order);
                    assertTrue(ids.add(some[i]), order + ": " + some[i] + " came twice");
                }
            }
            for (long id : ids) {
                assertEquals(2, id % 3, order);
            }
            assertEquals(4810, ids.size());
            refused(Code.INVALID_ARGUMENT, () -> orders.parse(3));
        }
    }

    @Test
    void in_process_order_no_id_comes_twice_and_none_is_smaller_than_one_that_was_there_before() throws Exception {
        Source orders = mill.segment("strict?min_step=3000");
        AtomicLong newest = new AtomicLong();
        List<long[]> taken = together(8, () -> {
            long[] mine = new long[200_000];
            for (int i = 0; i < mine.length; ) {
                long before = newest.get();
                int verb = ThreadLocalRandom.current().nextInt(64);
                long[] ids = verb == 0 ? orders.take(Math.min(mine.length - i, 1 + i % 3000))
                        : verb == 1 ? one(orders.tryNext())
                        : new long[] {orders.next()};
                for (long id : ids) {
                    assertTrue(id > before, id + " came after " + before);
                    mine[i++] = id;
                    before = id;
                }
                long last = before;
                newest.accumulateAndGet(last, Math::max);
            }
            return mine;
        });
        distinct(taken);
    }

    private static long[] one(OptionalLong id) {
        return id.isPresent() ? new long[] {id.getAsLong()} : new long[0];
    }

    @Test
    void waiting_for_a_slow_store_is_no_demand() {
        try (Mill slow = Mill.open("memory:?script=silent:200ms")) {
            slow.segment("orders").next();
            assertTrue(slow.metrics().contains("keymill_issued_total{source=\"segment:orders\"} 16"), slow.metrics());
        }
    }

    @Test
    void what_is_printed_names_the_source() {
        Source orders = mill.segment("printed");
        assertEquals("segment:printed", orders.toString());
        assertEquals("handle of segment:printed", orders.handle().toString());
    }

    @Test
    void in_thread_order_no_id_comes_twice_and_ids_rise_within_a_thread() throws Exception {
        Source orders = mill.segment("loose?order=thread");
        List<long[]> taken = together(8, () -> {
            Handle handle = orders.handle();
            long[] mine = new long[300_000];
            long last = 0;
            long own = 0;
            for (int i = 0; i < mine.length; ) {
                if (i % 1000 == 500) {
                    int count = Math.min(mine.length - i, 1 + i % 2500);
                    for (long id : orders.take(count)) {
                        assertTrue(id > last);
                        last = mine[i++] = id;
                    }
                } else if (i % 3 == 0) {
                    long id = handle.next();
                    assertTrue(id > own);
                    own = mine[i++] = id;
                } else {
                    long id = orders.next();
                    assertTrue(id > last);
                    last = mine[i++] = id;
                }
            }
            return mine;
        });
        distinct(taken);
    }

    @Test
    void snowflakes_are_distinct_over_threads_and_verbs() throws Exception {
        Source tx = mill.snowflake("tx?worker=5&layout=time:41@1ms,worker:4,seq:18&order=thread");
        distinct(together(4, () -> {
            long[] mine = new long[50_000];
            int at = 0;
            Handle handle = tx.handle();
            while (at < mine.length) {
                mine[at++] = at % 2 == 0 ? handle.next() : tx.next();
                if (at % 1000 == 0) {
                    long[] batch = tx.take(Math.min(500, mine.length - at));
                    System.arraycopy(batch, 0, mine, at, batch.length);
                    at += batch.length;
                }
            }
            return mine;
        }));
        assertEquals(5, tx.parse(tx.next()).worker().getAsLong());
        assertTrue(tx.parse(tx.next()).time().get().toEpochMilli() > System.currentTimeMillis() - 60_000);
    }

    @Test
    void serials_are_distinct_in_both_orders() throws Exception {
        for (String order : new String[] {"process", "thread"}) {
            Serial no = mill.serial("t" + order + "/c?number=0000000000&order=" + order);
            List<String[]> taken = together(6, () -> {
                String[] mine = new String[60_000];
                for (int i = 0; i < mine.length; i++) {
                    if (i % 500 == 0 && i + 50 < mine.length) {
                        System.arraycopy(no.take(50), 0, mine, i, 50);
                        i += 49;
                    } else {
                        mine[i] = no.next();
                    }
                    assertEquals(18, mine[i].length());
                }
                return mine;
            });
            Set<String> all = new HashSet<>();
            taken.forEach(mine -> all.addAll(Arrays.asList(mine)));
            assertEquals(6 * 60_000, all.size(), order);
        }
    }

    @Test
    void a_source_that_is_asked_for_by_many_threads_is_one_source() throws Exception {
        AtomicReference<SourceBox> first = new AtomicReference<>();
        together(8, () -> {
            SourceBox box = mill.segment("same").box();
            first.compareAndSet(null, box);
            assertSame(first.get(), box);
            return null;
        });
    }

    @Test
    void a_mill_that_hands_out_nothing_leases_little() {
        Source cold = mill.segment("cold?min_step=100000");
        for (int i = 1; i <= 100; i++) {
            assertEquals(i, cold.next());
        }
        assertTrue(cold.handle().next() <= 100 + 512, "a cold source leased too much");
    }

    @Test
    void a_batch_beyond_the_heap_is_an_argument_not_a_crash() {
        refused(Code.INVALID_ARGUMENT, () -> mill.segment("huge").take(Integer.MAX_VALUE));
        refused(Code.INVALID_ARGUMENT, () -> mill.serial("huge/c").take(Integer.MAX_VALUE));
    }

    @Test
    void wrong_arguments_are_refused_and_say_what_is_wrong() {
        Source orders = mill.segment("orders");
        refused(Code.INVALID_ARGUMENT, () -> orders.take(-1));
        refused(Code.INVALID_ARGUMENT, () -> orders.fill(null));
        refused(Code.INVALID_ARGUMENT, () -> orders.parse((String) null));
        refused(Code.INVALID_ARGUMENT, () -> orders.parse("a1"));
        refused(Code.INVALID_ARGUMENT, () -> orders.parse(-5));
        refused(Code.INVALID_ARGUMENT, () -> orders.takeText(-1));
        refused(Code.INVALID_ARGUMENT, () -> mill.source(null));
        refused(Code.INVALID_ARGUMENT, () -> mill.segment(null));
        refused(Code.INVALID_ARGUMENT, () -> mill.source("segment:\ud800"));
        refused(Code.INVALID_ARGUMENT, () -> Mill.open(null));
        refused(Code.INVALID_ARGUMENT, () -> mill.serial("t", null, "", "0", 1));
        refused(Code.INVALID_CONFIG, () -> mill.serial("t", "c", "yyyyQQ", "0", 1));
        refused(Code.INVALID_CONFIG, () -> mill.serial("t", "c", "", "0", -1));
        refused(Code.INVALID_CONFIG, () -> Mill.open("oracle:x"));
        refused(Code.INVALID_CONFIG, () -> Mill.open(""));
        refused(Code.INVALID_CONFIG, () -> mill.segment("a\0b"));
        KeymillException typo = refused(Code.INVALID_CONFIG, () -> mill.source("segment:orders?stpe=5"));
        assertTrue(typo.getMessage().contains("step"), typo.getMessage());
        Source serial = mill.source("serial:t/c");
        refused(Code.INVALID_ARGUMENT, serial::next);
        refused(Code.INVALID_ARGUMENT, serial::tryNext);
        refused(Code.INVALID_ARGUMENT, () -> serial.take(1));
        refused(Code.INVALID_ARGUMENT, serial::handle);
        refused(Code.INVALID_ARGUMENT, () -> mill.setClock(0));
        refused(Code.INVALID_ARGUMENT, () -> mill.advanceClock(-1));
    }

    @Test
    void a_password_is_in_no_message() {
        KeymillException wrong = refused(Code.INVALID_CONFIG, () -> Mill.open("mysql://app:hunter2@h/db?tls=perhaps"));
        assertFalse(wrong.getMessage().contains("hunter2"), wrong.getMessage());
        try (Mill down = Mill.open("mysql://app:hunter2@127.0.0.1:1/db")) {
            assertFalse(down.toString().contains("hunter2") || down.store().contains("hunter2"));
            KeymillException error = refused(Code.STORE_UNAVAILABLE, down.segment("a?deadline=2s")::next);
            assertFalse(error.getMessage().contains("hunter2"), error.getMessage());
            assertFalse(String.join("\n", down.events()).contains("hunter2"));
        }
    }

    @Test
    void the_numbers_end_without_a_wrap() {
        Source last = mill.segment("last?start=9223372036854775805");
        assertArrayEquals(new long[] {Long.MAX_VALUE - 2, Long.MAX_VALUE - 1, Long.MAX_VALUE}, last.take(3));
        refused(Code.EXHAUSTED, last::next);
        refused(Code.EXHAUSTED, last::next);
        Source each = mill.segment("each?start=9223372036854775800");
        for (long id = 9223372036854775800L; id > 0; id++) {
            assertEquals(id, each.next());
        }
        refused(Code.EXHAUSTED, each::next);
        Handle handle = mill.segment("handle?start=9223372036854775807").handle();
        assertEquals(Long.MAX_VALUE, handle.next());
        refused(Code.EXHAUSTED, handle::next);
    }

    @Test
    void metrics_and_settings_say_what_is_there() {
        mill.segment("orders").next();
        assertTrue(mill.metrics().contains("orders"));
        assertEquals("process", mill.segment("orders").settings().get("order"));
        assertEquals("memory:", mill.store());
        assertFalse(mill.init("segment:x").contains(null));
    }

    private static void distinct(List<long[]> taken) {
        long[] all = taken.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        for (int i = 1; i < all.length; i++) {
            assertTrue(all[i - 1] < all[i], all[i] + " came twice");
        }
        assertTrue(all[0] > 0);
    }
}
