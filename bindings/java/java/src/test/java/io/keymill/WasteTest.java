package io.keymill;

import static io.keymill.Checks.together;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.function.LongSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** What is reserved and not used: the bound that docs/configuration.md states, and what processes that end lose. */
class WasteTest {
    private static final long MIN_STEP = 1_000;
    /** How many ids a second, in takes that are so many milliseconds apart, of so many ids each. */
    private static final long[][] RATES = {{1, 1_000, 1}, {10, 100, 1}, {1_000, 10, 10}};

    private static final String[] WAYS = {"process", "thread", "handle"};

    private static LongSupplier taker(Mill mill, String way) {
        Source source = source(mill, way);
        return way.equals("handle") ? source.handle() : source;
    }

    private static Source source(Mill mill, String way) {
        return mill.segment("orders?deadline=60s" + (way.equals("thread") ? "&order=thread" : ""));
    }

    @Test
    void what_is_reserved_and_not_used_stays_under_the_bound() {
        for (long[] rate : RATES) {
            for (String way : WAYS) {
                try (Mill mill = Mill.open("memory:?clock=manual")) {
                    Source source = source(mill, way);
                    LongSupplier taker = taker(mill, way);
                    long used = 0;
                    for (long ms = 0; ms < 70_000; ms += rate[1]) {
                        mill.advanceClock(rate[1]);
                        for (int i = 0; i < rate[2]; i++) {
                            taker.getAsLong();
                        }
                        used += rate[2];
                        long ahead = source.stats().reserved() - used;
                        long bound = rate[0] * 30 * 6 / 5 + 2 * MIN_STEP;
                        assertTrue(ahead < bound, way + " at " + rate[0] + "/s: " + ahead + " ahead after " + used);
                    }
                }
            }
        }
    }

    private static void burst(Mill mill, String way) {
        LongSupplier taker = taker(mill, way);
        for (int i = 0; i < 300; i++) {
            taker.getAsLong();
        }
    }

    /** The next id of a new process. */
    private static long next(String config) {
        try (Mill mill = Mill.open(config)) {
            return source(mill, "process").next();
        }
    }

    @Test
    void mills_that_give_300_ids_each_and_close_one_after_the_other_lose_none(@TempDir Path folder) throws Exception {
        for (String way : new String[] {"process", "thread"}) {
            for (boolean ended : new boolean[] {false, true}) {
                String config = "sqlite:" + folder.resolve(way + ended + ".db");
                for (int process = 0; process < 20; process++) {
                    try (Mill mill = Mill.open(config)) {
                        if (ended) {
                            Thread thread = new Thread(() -> burst(mill, way));
                            thread.start();
                            thread.join();
                        } else {
                            burst(mill, way);
                        }
                    }
                }
                assertEquals(6_001, next(config), way + (ended ? ", by a thread that has ended" : ""));
            }
        }
    }

    /** What is given back is given out again: by the next mill, or by this one until it is closed. */
    @Test
    void a_close_beside_threads_that_take_gives_back_no_number_that_was_given_out(@TempDir Path folder) throws Exception {
        for (String way : new String[] {"process", "thread"}) {
            String config = "sqlite:" + folder.resolve(way + ".db");
            Set<Long> given = new HashSet<>();
            for (int round = 0; round < 20; round++) {
                try (Mill mill = Mill.open(config)) {
                    Source source = source(mill, way);
                    long first = source.next();
                    List<List<Long>> ids = together(4, () -> takenUntilClosed(mill, source));
                    assertTrue(given.add(first), way + ": " + first);
                    for (List<Long> some : ids) {
                        some.forEach(id -> assertTrue(given.add(id), way + ": " + id));
                    }
                }
            }
        }
    }

    private static List<Long> takenUntilClosed(Mill mill, Source source) {
        List<Long> ids = new ArrayList<>();
        for (;;) {
            try {
                for (long id : ids.size() % 50 == 7 ? source.take(3) : new long[] {source.next()}) {
                    ids.add(id);
                }
            } catch (KeymillException e) {
                assertEquals(Code.CLOSED, e.code(), e.getMessage());
                return ids;
            }
            if (ids.size() == 2_000) {
                mill.close();
            }
        }
    }
}
