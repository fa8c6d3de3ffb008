package io.keymill;

import static io.keymill.Checks.refused;
import static io.keymill.Checks.together;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Method;
import java.sql.SQLException;
import java.time.LocalDate;
import java.time.ZoneId;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Optional;
import java.util.SimpleTimeZone;
import java.util.Set;
import java.util.TimeZone;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class KeyFactoryTest {
    private Mill mill;
    private final TimeZone zone = TimeZone.getDefault();

    @BeforeEach
    void open() {
        mill = Mill.open("memory:");
        KeyFactory.use(mill);
    }

    @AfterEach
    void close() {
        TimeZone.setDefault(zone);
        mill.close();
    }

    private static String today(String pattern, String zone) {
        return LocalDate.now(ZoneId.of(zone)).format(DateTimeFormatter.ofPattern(pattern));
    }

    @Test
    void the_same_arguments_give_what_the_old_one_gives() throws Exception {
        for (String[] formats : new String[][] {
            {"yyyyMMdd", "000000"}, {"'CUST'yyyyMMdd", "00000000"}, {"yyyy", "0"}, {"yyyyMM", "0000"}, {"'客户'yyyyMMdd", "000000"}
        }) {
            for (int i = 0; i < 9; i++) {
                String old = seed.KeyFactory.getSerialNoByDS("cust_info", "custid", formats[0], formats[1], 500);
                assertEquals(old, KeyFactory.getSerialNoByDS("cust_info", "custid", formats[0], formats[1], 500));
            }
        }
    }

    /** What stands around the old call. It compiles, which is half of the test. */
    private static String asOldProgramsDo() {
        try {
            return KeyFactory.getSerialNoByDS("shop", "id", "", "0", 1);
        } catch (SQLException e) {
            throw new IllegalStateException(e);
        } catch (Exception e) {
            return e.getClass().getSimpleName();
        }
    }

    @Test
    void old_programs_compile_with_the_import_changed() throws Exception {
        Class<?>[] arguments = {String.class, String.class, String.class, String.class, int.class};
        Method mine = KeyFactory.class.getMethod("getSerialNoByDS", arguments);
        Method old = seed.KeyFactory.class.getMethod("getSerialNoByDS", arguments);
        assertEquals(old.toString().replace("seed.", "io.keymill."), mine.toString());
        assertEquals("1", asOldProgramsDo());
        mill.close();
        assertEquals("KeymillException", asOldProgramsDo());
    }

    @Test
    void two_spellings_of_a_column_never_give_one_serial_twice() throws Exception {
        Set<String> all = new HashSet<>();
        for (int round = 0; round < 2000; round++) {
            for (String[] names : new String[][] {{"cust", "id"}, {"CUST", "ID"}, {"Cust", "Id"}}) {
                String serial = KeyFactory.getSerialNoByDS(names[0], names[1], "yyyyMMdd", "000000", 50);
                assertTrue(all.add(serial), serial + " came twice");
            }
        }
    }

    @Test
    void columns_are_told_apart_and_many_are_found_again() throws Exception {
        for (int round = 1; round <= 3; round++) {
            for (int i = 0; i < 300; i++) {
                // Not the same objects as before: arguments are compared, not their places in memory.
                String serial = KeyFactory.getSerialNoByDS(new String("t" + i), new String("c"), new String(""), new String("0000"), 5);
                assertEquals(String.format("%04d", round), serial);
            }
        }
        assertEquals("0001", KeyFactory.getSerialNoByDS("t1", "d", "", "0000", 5));
        assertEquals("00001", KeyFactory.getSerialNoByDS("t1", "c", "", "00000", 5));
        assertEquals("0004", KeyFactory.getSerialNoByDS("t1", "c", "", "0000", 99), "the first call's size holds");
    }

    @Test
    void many_threads_get_distinct_serials_from_the_first_call_on() throws Exception {
        List<String[]> taken = together(8, () -> {
            String[] mine = new String[30_000];
            for (int i = 0; i < mine.length; i++) {
                mine[i] = KeyFactory.getSerialNoByDS("t", "c", "yyyyMMdd", "00000000", 500);
            }
            return mine;
        });
        Set<String> all = new HashSet<>();
        taken.forEach(mine -> all.addAll(Arrays.asList(mine)));
        assertEquals(8 * 30_000, all.size());
    }

    @Test
    void first_calls_that_race_with_other_sizes_have_one_order() throws Exception {
        for (int round = 0; round < 100; round++) {
            mill.close();
            open();
            AtomicInteger size = new AtomicInteger(100);
            AtomicLong latest = new AtomicLong();
            together(8, () -> {
                int mine = size.incrementAndGet();
                for (int i = 0; i < 20; i++) {
                    long before = latest.get();
                    long number = Long.parseLong(KeyFactory.getSerialNoByDS("race", "c", "", "00000000", mine));
                    assertTrue(number > before, number + " after " + before);
                    latest.accumulateAndGet(number, Math::max);
                }
                return null;
            });
        }
    }

    @Test
    void days_are_those_of_the_jvms_time_zone() throws Exception {
        for (String name : new String[] {"Pacific/Kiritimati", "Pacific/Pago_Pago", "GMT+14:00", "GMT-11:00", "UTC", "PST", "Asia/Shanghai"}) {
            TimeZone.setDefault(TimeZone.getTimeZone(name));
            String id = TimeZone.getDefault().toZoneId().getId();
            String before = today("yyyyMMdd", id);
            String serial = KeyFactory.getSerialNoByDS("zone", name, "yyyyMMdd", "000000", 500);
            assertTrue(serial.equals(before + "000001") || serial.equals(today("yyyyMMdd", id) + "000001"), name + " " + serial);
        }
    }

    @Test
    void a_zone_of_the_programs_own_counts_by_its_offset_and_one_without_a_name_stops_only_serials_that_need_it() {
        try (Mill mill = Mill.open("memory:")) {
            TimeZone.setDefault(new SimpleTimeZone(8 * 3_600_000, "CST"));
            Serial china = mill.serial("own_zone/a");
            china.next();
            assertEquals(Optional.of("+08:00"), china.stats().zone());
            TimeZone.setDefault(new SimpleTimeZone(8 * 3_600_000, "China"));
            assertEquals(1, mill.segment("orders").next());
            mill.source("serial:own_zone/b?zone=UTC").nextText();
            assertTrue(refused(Code.INVALID_CONFIG, () -> mill.serial("own_zone/c")).getMessage().contains("China"));
        }
    }

    @Test
    void every_way_to_a_serial_has_the_jvms_time_zone_also_where_it_was_set_late() throws Exception {
        for (String name : new String[] {"Pacific/Kiritimati", "Pacific/Pago_Pago", "GMT+14:00", "UTC"}) {
            TimeZone.setDefault(TimeZone.getTimeZone(name));
            String id = TimeZone.getDefault().toZoneId().getId();
            String row = "serial:late/" + name.replaceAll("[/:+]", "_");
            String before = today("yyyyMMdd", id);
            String serial = mill.serial(row.substring("serial:".length())).next();
            String lazy = Mill.lazy(row, () -> mill).nextText();
            for (String text : new String[] {serial, lazy}) {
                assertTrue(text.startsWith(before) || text.startsWith(today("yyyyMMdd", id)), name + " " + text);
            }
        }
        TimeZone.setDefault(TimeZone.getTimeZone("Asia/Shanghai"));
        KeyFactory.getSerialNoByDS("late", "agrees", "yyyyMMdd", "00000000", 500);
        Serial serial = mill.serial("late/agrees");
        assertEquals(Optional.of("Asia/Shanghai"), serial.stats().zone());
        TimeZone.setDefault(TimeZone.getTimeZone("UTC"));
        KeymillException two = refused(Code.INVALID_CONFIG, () -> mill.serial("late/agrees"));
        assertTrue(two.getMessage().contains("Asia/Shanghai") && two.getMessage().contains("UTC"), two.getMessage());
    }

    @Test
    void wrong_arguments_are_refused() throws Exception {
        refused(Code.INVALID_ARGUMENT, () -> KeyFactory.use(null));
        refused(Code.INVALID_ARGUMENT, () -> KeyFactory.getSerialNoByDS(null, "c", "", "0", 1));
        refused(Code.INVALID_ARGUMENT, () -> KeyFactory.getSerialNoByDS("t", null, "", "0", 1));
        refused(Code.INVALID_ARGUMENT, () -> KeyFactory.getSerialNoByDS("t", "c", null, "0", 1));
        refused(Code.INVALID_ARGUMENT, () -> KeyFactory.getSerialNoByDS("t", "c", "", null, 1));
        refused(Code.INVALID_CONFIG, () -> KeyFactory.getSerialNoByDS("t", "c", "", "0x", 1));
        refused(Code.INVALID_CONFIG, () -> KeyFactory.getSerialNoByDS("t", "c", "", "0", 0));
        refused(Code.INVALID_CONFIG, () -> KeyFactory.getSerialNoByDS("", "c", "", "0", 1));
        assertEquals("1", KeyFactory.getSerialNoByDS("t", "c", "", "0", 1));
        refused(Code.INVALID_ARGUMENT, () -> KeyFactory.getSerialNoByDS("t", "c", null, "0", 1));
        mill.close();
        refused(Code.CLOSED, () -> KeyFactory.getSerialNoByDS("t", "c", "", "0", 1));
        refused(Code.CLOSED, () -> KeyFactory.getSerialNoByDS("u", "c", "", "0", 1));
    }

    @Test
    void the_width_is_a_contract_unless_it_may_grow() throws Exception {
        for (int i = 1; i <= 9; i++) {
            assertEquals("" + i, KeyFactory.getSerialNoByDS("w", "c", "", "0", 1));
        }
        KeymillException ended = refused(Code.NUMBER_OVERFLOW, () -> KeyFactory.getSerialNoByDS("w", "c", "", "0", 1));
        assertEquals(Optional.empty(), ended.retryAfter(), "there is no next period");
        Serial wide = mill.serial("v/c?date=&number=0&overflow=widen");
        assertEquals("12", wide.take(12)[11]);
    }
}
