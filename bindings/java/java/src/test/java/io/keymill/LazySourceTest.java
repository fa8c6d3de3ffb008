package io.keymill;

import static io.keymill.Checks.refused;
import static io.keymill.Checks.together;
import static io.keymill.Checks.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.NotSerializableException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The shared mill, and sources that are declared before it is open. */
class LazySourceTest {
    private static final LazySource DECLARED = Mill.lazy("segment:orders?step=100");

    @AfterEach
    void unshare() {
        Mill.share(null);
    }

    @Test
    void a_source_that_was_declared_before_the_mill_finds_it_at_its_first_id() {
        try (Mill mill = Mill.open("memory:")) {
            Mill.share(mill);
            assertEquals(1, DECLARED.next());
            assertEquals(2, mill.source("segment:orders?step=100").next(), "they are one source");
            assertEquals(3, DECLARED.getAsLong());
            assertEquals(mill, Mill.shared());
        }
    }

    @Test
    void every_verb_is_the_source_s() {
        try (Mill mill = Mill.open("memory:")) {
            Mill.share(mill);
            LazySource orders = Mill.lazy("segment:verbs");
            assertEquals(1, orders.next());
            assertEquals(2, orders.tryNext().getAsLong());
            assertEquals(4, orders.take(2)[1]);
            long[] ids = new long[2];
            orders.fill(ids);
            assertEquals(6, ids[1]);
            assertEquals(15, orders.stream().limit(2).sum());
            assertEquals("9", orders.nextText());
            assertEquals("11", orders.takeText(2)[1]);
            assertEquals(5, orders.parse(5).number().getAsLong());
            assertEquals(5, orders.parse("5").number().getAsLong());
            assertEquals(11, orders.stats().issued());
            assertEquals(mill.segment("verbs").settings(), orders.settings());
            assertEquals(12, orders.source().next());
            assertTrue(orders.lease(1).first() > 12);
            assertTrue(orders.handle().next() > 12);
            assertEquals("C001", Mill.lazy("serial:t/c?date='C'&number=000").nextText());
            assertEquals("ord_5", Mill.lazy("segment:forms?prefix=ord_").textOf(5));
            LazySource keyed = Mill.lazy("business:order");
            for (String text : new String[] {keyed.nextText("buyer-42"), keyed.nextText(42)}) {
                assertTrue(keyed.parse(text).gene().isPresent());
            }
            for (long id : new long[] {keyed.next("buyer-42"), keyed.take("buyer-42", 2)[1], keyed.business().next("buyer-42")}) {
                assertEquals(56443, keyed.parse(id).gene().getAsInt());
            }
            assertEquals(Gene.of(42), keyed.parse(keyed.next(42)).gene().getAsInt());
            assertEquals(Gene.of(42), keyed.parse(keyed.take(42, 1)[0]).gene().getAsInt());
            assertTrue(refused(Code.INVALID_ARGUMENT, keyed::next).getMessage().contains("next(key)"));
        }
    }

    @Test
    void ids_come_from_the_mill_that_was_shared_last_and_never_from_a_closed_one() throws Exception {
        Mill first = Mill.open("memory:");
        Mill.share(first);
        // The cursor is in the middle of a lease, whose numbers would be at hand.
        for (int id = 1; id <= 50; id++) {
            assertEquals(id, DECLARED.next());
        }
        try (Mill second = Mill.open("memory:")) {
            Mill.share(second);
            assertEquals(1, DECLARED.next());
            assertEquals("1", KeyFactory.getSerialNoByDS("t", "c", "", "0", 1));
            Mill.share(first);
            assertEquals(51, DECLARED.next(), "the first is still open");
            assertEquals("1", KeyFactory.getSerialNoByDS("t", "c", "", "0", 1), "the old method follows too");
            first.close();
            for (Runnable verb : new Runnable[] {DECLARED::next, DECLARED::tryNext, () -> DECLARED.take(1), DECLARED::nextText, Mill.lazy("segment:new")::next, Mill::shared}) {
                KeymillException closed = refused(Code.CLOSED, verb::run);
                assertTrue(closed.getMessage().contains("the shared mill was closed; share an open one with Mill.share(mill)"), closed.getMessage());
            }
            KeyFactory.use(second);
            assertEquals(2, DECLARED.next());
        }
    }

    /** What an application does that renews its mill under load. */
    @Test
    void a_mill_that_is_shared_later_is_asked_for_at_the_first_id_and_once() {
        AtomicInteger asked = new AtomicInteger();
        LazySource ids = Mill.lazy("segment:orders");
        try (Mill mill = Mill.open("memory:")) {
            Mill.shareLater(() -> {
                if (asked.incrementAndGet() == 1) {
                    throw new IllegalStateException("not yet");
                }
                return mill;
            });
            assertEquals(0, asked.get());
            assertEquals("not yet", assertThrows(IllegalStateException.class, ids::next).getMessage());
            assertEquals(1, ids.next());
            assertEquals(2, ids.next());
            assertSame(mill, Mill.shared());
            assertEquals(2, asked.get());
        }
        assertEquals(Code.CLOSED, assertThrows(KeymillException.class, ids::next).code());
        assertEquals(2, asked.get(), "it gives one mill");
        Mill.shareLater(() -> null);
        assertEquals(Code.INVALID_ARGUMENT, assertThrows(KeymillException.class, ids::next).code());
        assertEquals(Code.INVALID_ARGUMENT, assertThrows(KeymillException.class, () -> Mill.shareLater(null)).code());
    }

    @Test
    void a_default_mill_that_is_refused_serves_nothing_and_makes_no_file() {
        try (Mill mill = Mill.open("memory:")) {
            Mill.share(mill);
            Mill.refuseDefault("the context names another store");
            assertEquals(1, Mill.lazy("segment:refused").next(), "a mill that is shared serves");
            Mill.share(null);
            for (Runnable verb : new Runnable[] {Mill.lazy("segment:refused")::next, Mill::shared}) {
                String said = refused(Code.INVALID_CONFIG, verb::run).getMessage();
                assertTrue(said.contains("no mill is shared, and the context names another store"), said);
            }
            refused(Code.INVALID_CONFIG, () -> KeyFactory.getSerialNoByDS("refused", "c", "", "0", 1));
            assertFalse(new File("keymill.db").exists());
        } finally {
            Mill.refuseDefault(null);
        }
    }

    @Test
    void callers_do_not_see_that_a_mill_is_replaced_and_closed() throws Exception {
        Mill.share(Mill.open("memory:"));
        takenWhile(DECLARED, () -> {
            Mill before = Mill.shared();
            Mill.share(Mill.open("memory:"));
            before.close();
        });
        Mill.shared().close();
    }

    /** Four threads take ids, each by another verb, while a fifth one replaces the mill 300 times. */
    private static void takenWhile(LazySource ids, Runnable replace) throws Exception {
        AtomicInteger started = new AtomicInteger();
        AtomicBoolean done = new AtomicBoolean();
        LongSupplier[] verbs = {ids, () -> ids.take(3)[0], () -> Long.parseLong(ids.nextText()), () -> ids.tryNext().orElse(1)};
        AtomicInteger turn = new AtomicInteger();
        together(5, () -> {
            int mine = turn.getAndIncrement();
            if (mine == 4) {
                until("all are at work", 180, () -> started.get() == 4);
                try {
                    for (int round = 0; round < 300; round++) {
                        replace.run();
                    }
                } finally {
                    done.set(true);
                }
                return null;
            }
            started.incrementAndGet();
            while (!done.get()) {
                assertTrue(verbs[mine].getAsLong() > 0);
            }
            return null;
        });
    }

    @Test
    void sixty_four_first_callers_open_one_default_mill(@TempDir Path folder) throws Exception {
        assertEquals("6400 ids, 1 mill\n", child(folder, "memory:", "crowd"));
    }

    @Test
    void the_default_mill_serves_again_after_a_shared_one_and_after_its_close(@TempDir Path folder) throws Exception {
        assertEquals("1 1 2\nCLOSED: segment:orders: the default mill was closed; share an open one with Mill.share(mill), or Mill.share(null) for the default mill\nhigher\n",
                child(folder, "sqlite:ids.db", "default"));
    }

    @Test
    void a_default_mill_that_cannot_be_opened_is_told_with_the_spec_and_without_a_password(@TempDir Path folder) throws Exception {
        String says = child(folder, "mysql://app:hush@db:port/ids", "first");
        assertTrue(says.startsWith("INVALID_CONFIG: segment:orders: no mill is shared, and the default mill (KEYMILL_CONFIG=…) cannot be opened: "), says);
        assertFalse(says.contains("hush"), says);
        says = child(folder, "memory:", "wrong");
        assertTrue(says.startsWith("INVALID_CONFIG: segment:orders?stpe=5: ") && says.contains("`stpe`"), says);
    }

    private static byte[] written(Object object) throws Exception {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(object);
        }
        return bytes.toByteArray();
    }

    @Test
    void it_is_serialized_as_its_spec_and_found_anew() throws Exception {
        byte[] fresh = written(Mill.lazy("segment:orders?step=100"));
        try (Mill mill = Mill.open("memory:")) {
            Mill.share(mill);
            DECLARED.next();
            assertTrue(Arrays.equals(fresh, written(DECLARED)), "nothing of the mill travels");
            try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(fresh))) {
                LazySource back = (LazySource) in.readObject();
                assertEquals(DECLARED, back);
                assertEquals(DECLARED.hashCode(), back.hashCode());
                assertNotEquals(Mill.lazy("segment:orders"), back);
                assertEquals("segment:orders?step=100", back.spec());
                assertEquals("lazy segment:orders?step=100", back.toString());
                assertEquals(2, back.next());
            }
        }
        refused(Code.INVALID_ARGUMENT, () -> Mill.lazy(null));
    }

    @Test
    void a_lazy_source_of_a_supplier_takes_from_the_mill_that_it_gives_at_each_id() throws Exception {
        AtomicReference<Mill> present = new AtomicReference<>(Mill.open("memory:"));
        LazySource own = Mill.lazy("segment:orders", present::get);
        try (Mill shared = Mill.open("memory:"); Mill first = present.get(); Mill second = Mill.open("memory:")) {
            Mill.share(shared);
            assertEquals(1, own.next());
            assertEquals(2, own.tryNext(Duration.ZERO).getAsLong());
            assertEquals("3", own.tryNextText(Duration.ZERO).get());
            assertEquals(1, shared.segment("orders").next(), "the shared mill has another source");
            present.set(second);
            assertEquals(1, own.next());
            present.set(first);
            assertEquals(4, own.next());
            first.close();
            for (Runnable verb : new Runnable[] {own::next, own::tryNext, () -> own.take(1), Mill.lazy("segment:new", present::get)::next}) {
                assertFalse(refused(Code.CLOSED, verb::run).getMessage().contains("shared mill"));
            }
            present.set(second);
            assertEquals(2, own.next());
        }
        present.set(null);
        assertTrue(refused(Code.INVALID_ARGUMENT, own::next).getMessage().contains("gave null"));
        assertThrows(NotSerializableException.class, () -> written(own));
        assertNotEquals(own, Mill.lazy("segment:orders"));
        refused(Code.INVALID_ARGUMENT, () -> Mill.lazy("segment:orders", null));
    }

    @Test
    void callers_of_a_supplier_do_not_see_that_a_mill_is_replaced_and_closed() throws Exception {
        AtomicReference<Mill> present = new AtomicReference<>(Mill.open("memory:"));
        LazySource own = Mill.lazy("segment:orders", present::get);
        takenWhile(own, () -> present.getAndSet(Mill.open("memory:")).close());
        present.get().close();
    }

    @Test
    void a_text_that_is_asked_for_without_waiting_has_the_form_of_its_source() {
        try (Mill mill = Mill.open("memory:")) {
            Mill.share(mill);
            LazySource orders = Mill.lazy("segment:orders?text=crockford&prefix=ord_");
            assertEquals("ord_0000000000001", orders.nextText());
            assertEquals("ord_0000000000002", orders.tryNextText(Duration.ZERO).get());
            LazySource dated = Mill.lazy("serial:t/c?date='C'&number=000");
            assertEquals("C001", dated.nextText());
            assertEquals("C002", dated.tryNextText(Duration.ZERO).get());
        }
    }

    /** Two web applications, one of them deployed fifty times. */
    @Test
    void reloaded_classes_resolve_by_themselves_and_leave_no_thread_behind(@TempDir Path folder) throws Exception {
        try (URLClassLoader other = loader()) {
            AutoCloseable theirs = shared(other, "sqlite:" + folder.resolve("other.db"));
            int before = 0;
            Set<Long> ids = new HashSet<>();
            for (int round = 1; round <= 50; round++) {
                try (URLClassLoader loader = loader()) {
                    AutoCloseable mine = shared(loader, "sqlite:" + folder.resolve("mine.db"));
                    assertTrue(ids.add(next(loader)), "a new class begins where the file stands");
                    assertEquals(round, next(other), "another application's mill is not touched");
                    mine.close();
                }
                if (round == 5) {
                    before = threads();
                }
            }
            int limit = before;
            until("the threads of 45 closed mills are gone", 180, () -> threads() <= limit + 2);
            theirs.close();
        }
    }

    private static AutoCloseable shared(ClassLoader loader, String config) throws Exception {
        Class<?> mill = loader.loadClass("io.keymill.Mill");
        AutoCloseable opened = (AutoCloseable) mill.getMethod("open", String.class).invoke(null, config);
        mill.getMethod("share", mill).invoke(null, opened);
        return opened;
    }

    private static long next(ClassLoader loader) throws Exception {
        Object lazy = loader.loadClass("io.keymill.Mill").getMethod("lazy", String.class).invoke(null, "segment:orders");
        return (long) lazy.getClass().getMethod("next").invoke(lazy);
    }

    private static URLClassLoader loader() throws Exception {
        List<URL> urls = new ArrayList<>();
        for (String entry : System.getProperty("java.class.path").split(File.pathSeparator)) {
            urls.add(new File(entry).toURI().toURL());
        }
        return new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getSystemClassLoader().getParent());
    }

    private static int threads() {
        return new File("/proc/self/task").list().length;
    }

    /** Runs this class in a JVM of its own, where no mill was shared. */
    private static String child(Path folder, String config, String what) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Paths.get(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(Arrays.asList("-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8", "-cp", System.getProperty("java.class.path")));
        command.addAll(Arrays.asList(LazySourceTest.class.getName(), what));
        ProcessBuilder builder = new ProcessBuilder(command).directory(folder.toFile());
        builder.environment().put("KEYMILL_CONFIG", config);
        // Newer JVMs warn there of native libraries.
        builder.redirectError(ProcessBuilder.Redirect.INHERIT);
        Process process = builder.start();
        String out = new String(process.getInputStream().readAllBytes(), "UTF-8");
        assertTrue(process.waitFor(240, TimeUnit.SECONDS));
        assertEquals(0, process.exitValue(), out);
        return out;
    }

    /** What {@link #child} runs. */
    public static void main(String[] arguments) throws Exception {
        LazySource orders = Mill.lazy("segment:orders?deadline=60s");
        switch (arguments[0]) {
            case "crowd":
                Set<Long> ids = new HashSet<>();
                for (long[] mine : together(64, () -> orders.stream().limit(100).toArray())) {
                    Arrays.stream(mine).forEach(ids::add);
                }
                System.out.println(ids.size() + " ids, " + MillBox.open() + " mill");
                break;
            case "default":
                long first = Mill.lazy("segment:orders").next();
                try (Mill mill = Mill.open("memory:")) {
                    Mill.share(mill);
                    System.out.print(first + " " + Mill.lazy("segment:orders").next() + " ");
                }
                Mill.share(null);
                System.out.println(Mill.lazy("segment:orders").next());
                Mill.shared().close();
                told("segment:orders");
                Mill.share(null);
                System.out.println(Mill.lazy("segment:orders").next() > 2 ? "higher" : "again");
                break;
            default:
                told(arguments[0].equals("wrong") ? "segment:orders?stpe=5" : "segment:orders");
        }
    }

    private static void told(String spec) {
        try {
            System.out.println(Mill.lazy(spec).next());
        } catch (KeymillException e) {
            System.out.println(e.getMessage());
        }
    }
}
