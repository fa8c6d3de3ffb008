package io.keymill;

import static io.keymill.Checks.refused;
import static io.keymill.Checks.together;
import static io.keymill.Checks.until;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.LongSupplier;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Opening, closing, memory, class loaders, and machines without a library. */
class LifeTest {
    @Test
    void after_close_every_verb_says_closed() {
        Mill mill = Mill.open("memory:");
        Source orders = mill.segment("orders");
        Source threads = mill.segment("threads?order=thread");
        Serial no = mill.serial("t/c");
        Source tx = mill.snowflake("tx?worker=1");
        Handle handle = orders.handle();
        orders.next();
        threads.next();
        no.next();
        tx.next();
        handle.next();
        mill.close();
        mill.close();
        assertTrue(mill.isClosed());
        for (Source source : Arrays.asList(orders, threads, tx)) {
            refused(Code.CLOSED, source::next);
            refused(Code.CLOSED, source::tryNext);
            refused(Code.CLOSED, () -> source.take(1));
            refused(Code.CLOSED, () -> source.stream().limit(1).sum());
            refused(Code.CLOSED, () -> source.handle().next());
            refused(Code.CLOSED, source::nextText);
        }
        refused(Code.CLOSED, no::next);
        refused(Code.CLOSED, no::tryNext);
        refused(Code.CLOSED, () -> no.take(1));
        refused(Code.CLOSED, handle::next);
        refused(Code.CLOSED, () -> mill.segment("another"));
        assertTrue(mill.metrics().contains("keymill_issued_total{source=\"segment:orders\"}"), "figures are told");
        assertEquals(5, tx.parse((5L << 12) | (1L << 40)).worker().getAsLong());
    }

    /** Leases of two numbers, so that many threads are leasing, or about to, at the moment of the close. */
    @Test
    void nobody_gets_a_number_after_a_close_has_returned() throws Exception {
        for (int round = 0; round < 300; round++) {
            Mill mill = Mill.open("memory:");
            Source shared = mill.segment("shared?block=2");
            Source own = mill.segment("own?block=2&order=thread");
            Source aged = mill.segment("aged?block=2&order=thread&ttl=1h");
            Serial bare = mill.serial("t/bare?block=2&order=thread&date=");
            AtomicInteger started = new AtomicInteger();
            AtomicBoolean returned = new AtomicBoolean();
            AtomicInteger turn = new AtomicInteger();
            together(6, () -> {
                int kind = turn.getAndIncrement();
                if (kind == 5) {
                    until("all are at work", 180, () -> started.get() == 5);
                    mill.close();
                    returned.set(true);
                    return null;
                }
                Handle handle = own.handle();
                LongSupplier[] verbs = {shared, handle, own, aged, () -> bare.next().length()};
                for (long took = 0; ; took++) {
                    boolean late = returned.get();
                    try {
                        verbs[kind].getAsLong();
                    } catch (KeymillException e) {
                        assertEquals(Code.CLOSED, e.code(), e.getMessage());
                        return null;
                    }
                    assertFalse(late, "verb " + kind + " gave a number");
                    if (took == 0) {
                        started.incrementAndGet();
                    }
                }
            });
        }
    }

    @Test
    void the_default_mill_is_the_property_else_the_variable_else_a_file(@TempDir Path folder) throws Exception {
        assertEquals("memory:", child(folder, "-Dkeymill.config=memory:", "KEYMILL_CONFIG=sqlite:other.db", "store").trim());
        assertEquals("sqlite:other.db", child(folder, null, "KEYMILL_CONFIG=sqlite:other.db", "store").trim());
        String says = child(folder, null, "KEYMILL_CONFIG=", "store");
        assertTrue(says.contains("INVALID_CONFIG") && says.contains("KEYMILL_CONFIG is empty"), says);
    }

    @Test
    void a_hundred_thousand_short_lived_sources_and_handles_give_their_memory_back() throws Exception {
        try (Mill mill = Mill.open("memory:")) {
            storm(mill, 5_000);
            collected();
            long before = resident();
            storm(mill, 100_000);
            collected();
            long grown = resident() - before;
            assertTrue(grown < 48 << 20, "100 000 sources and handles left " + (grown >> 20) + " MiB behind");
        }
    }

    private static void storm(Mill mill, int count) {
        for (int i = 0; i < count; i++) {
            Source source = mill.source(i % 2 == 0 ? "segment:storm" : "segment:storm?order=thread");
            assertTrue(source.handle().next() > 0);
            assertTrue(source.next() > 0);
            if (i % 10 == 0) {
                mill.serial("storm/c").next();
            }
        }
    }

    @Test
    void mills_that_nobody_closed_are_freed_when_nobody_can_reach_them() throws Exception {
        collected();
        int before = MillBox.open();
        for (int i = 0; i < 300; i++) {
            // The source keeps its mill reachable; then neither is.
            Source source = Mill.open("memory:").segment("a");
            assertEquals(1, source.next());
        }
        collected();
        until("forgotten mills are freed", 180, () -> {
            System.gc();
            MillBox.freeUnreachable();
            return MillBox.open() <= before + 1;
        });
    }

    @Test
    void a_source_keeps_a_mill_that_nobody_else_holds_at_work() throws Exception {
        Source source = Mill.open("memory:").segment("a");
        for (int i = 1; i <= 20; i++) {
            assertEquals(i, source.next());
            System.gc();
            MillBox.freeUnreachable();
        }
    }

    private static void collected() throws InterruptedException {
        for (int i = 0; i < 5; i++) {
            System.gc();
            MillBox.freeUnreachable();
            Thread.sleep(50);
        }
        until("direct buffers are collected", 180, () -> {
            System.gc();
            long count = 0;
            for (BufferPoolMXBean pool : ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class)) {
                count += pool.getCount();
            }
            return count < 5_000;
        });
    }

    private static long resident() throws IOException {
        try (Stream<String> lines = Files.lines(Paths.get("/proc/self/status"))) {
            String line = lines.filter(l -> l.startsWith("VmRSS:")).findFirst().get();
            return Long.parseLong(line.replaceAll("\\D", "")) << 10;
        }
    }

    @Test
    void each_class_loader_has_a_library_of_its_own() throws Exception {
        List<Class<?>> mills = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            // Not closed: its classes are used after the loop.
            URLClassLoader loader = new URLClassLoader(urls(), ClassLoader.getSystemClassLoader().getParent());
            Class<?> mill = loader.loadClass("io.keymill.Mill");
            AutoCloseable opened = (AutoCloseable) mill.getMethod("open", String.class).invoke(null, "memory:");
            Object source = mill.getMethod("segment", String.class).invoke(opened, "a");
            assertEquals(1L, source.getClass().getMethod("next").invoke(source));
            opened.close();
            mills.add(mill);
        }
        assertNotSame(mills.get(0), mills.get(1));
    }

    /** Two copies of SQLite in a process must not, which LoadingTest shows. */
    @Test
    void two_class_loaders_with_one_library_share_a_sqlite_file(@TempDir Path folder) throws Exception {
        String store = "sqlite:" + folder.resolve("ids.db");
        // Of this JVM's class loader the library may be a file that was named, which is another one.
        try (URLClassLoader first = new URLClassLoader(urls(), ClassLoader.getSystemClassLoader().getParent());
                URLClassLoader second = new URLClassLoader(urls(), ClassLoader.getSystemClassLoader().getParent());
                AutoCloseable one = opened(first, store);
                AutoCloseable other = opened(second, store)) {
            Set<Object> ids = new HashSet<>();
            for (int i = 0; i < 2500; i++) {
                assertTrue(ids.add(next(one)) && ids.add(next(other)), "an id came twice");
            }
        }
    }

    private static AutoCloseable opened(ClassLoader loader, String store) throws Exception {
        return (AutoCloseable) loader.loadClass("io.keymill.Mill").getMethod("open", String.class).invoke(null, store);
    }

    private static Object next(AutoCloseable mill) throws Exception {
        Object orders = mill.getClass().getMethod("segment", String.class).invoke(mill, "orders");
        return orders.getClass().getMethod("next").invoke(orders);
    }

    private static URL[] urls() {
        return Arrays.stream(System.getProperty("java.class.path").split(File.pathSeparator))
                .map(entry -> {
                    try {
                        return new File(entry).toURI().toURL();
                    } catch (IOException e) {
                        throw new AssertionError(e);
                    }
                })
                .toArray(URL[]::new);
    }

    @Test
    void nothing_is_left_in_the_folder_for_temporary_files(@TempDir Path folder) throws Exception {
        child(folder, "-Djava.io.tmpdir=" + folder, null, "take");
        try (Stream<Path> left = Files.list(folder)) {
            assertFalse(left.anyMatch(file -> file.toString().contains("libkeymill")));
        }
    }

    @Test
    void what_killed_jvms_left_unpacked_goes_at_the_next_start(@TempDir Path folder) throws Exception {
        String library = System.mapLibraryName("keymill_java");
        Instant before = Instant.now().minus(Duration.ofHours(25));
        Path stale = Files.createFile(folder.resolve("keymill-123456789-" + library));
        Path large = Files.write(folder.resolve("keymill-12345678901234567890-" + library), new byte[100]);
        Path young = Files.createFile(folder.resolve("keymill-987654321-" + library));
        Path[] others = {
            Files.createFile(folder.resolve("keymill-mine-" + library)),
            Files.createFile(folder.resolve("keymill-123-notes.txt")),
            Files.createFile(folder.resolve("my-keymill-123-" + library)),
            Files.createFile(folder.resolve("keymill-" + library)),
        };
        for (Path file : new Path[] {stale, large, others[0], others[1], others[2], others[3]}) {
            Files.setLastModifiedTime(file, FileTime.from(before));
        }
        Path directory = Files.createDirectory(folder.resolve("keymill-55-" + library));
        Files.setLastModifiedTime(directory, FileTime.from(before));
        assertEquals("1 2 3", child(folder, "-Djava.io.tmpdir=" + folder, null, "take").trim());
        assertFalse(Files.exists(stale) || Files.exists(large), "a day old, and ours");
        assertTrue(Files.exists(young), "it may belong to a JVM that is starting");
        for (Path other : others) {
            assertTrue(Files.exists(other), other + " is not ours");
        }
        assertTrue(Files.exists(directory));
    }

    @Test
    void a_machine_without_a_library_is_named_and_what_to_do(@TempDir Path folder) throws Exception {
        String says = child(folder, "-Dos.arch=riscv64", null, "take");
        assertTrue(says.contains("INVALID_CONFIG") && says.contains("linux-riscv64") && says.contains("keymill.library"), says);
        says = child(folder, "-Dkeymill.library=/nowhere/lib.so", null, "take");
        assertTrue(says.contains("INVALID_CONFIG") && says.contains("/nowhere/lib.so"), says);
        // The working folder comes after the folder for temporary files.
        assertEquals("1 2 3", child(folder, "-Djava.io.tmpdir=/nowhere", null, "take").trim());
    }

    @Test
    void the_library_that_a_property_names_is_loaded_by_several_loaders_too(@TempDir Path folder) throws Exception {
        Path library = folder.resolve(System.mapLibraryName("mine"));
        try (java.io.InputStream in =
                Library.class.getResourceAsStream("native/" + Library.platform().candidates().get(0) + "/" + System.mapLibraryName("keymill_java"))) {
            Files.copy(in, library, StandardCopyOption.REPLACE_EXISTING);
        }
        assertEquals("1 2 3", child(folder, "-Dkeymill.library=" + library, null, "take").trim());
        assertEquals("1 1", child(folder, "-Dkeymill.library=" + library, null, "loaders").trim());
    }

    /** Runs this class in a JVM of its own. */
    private static String child(Path folder, String property, String variable, String what) throws Exception {
        List<String> command = new ArrayList<>();
        command.add(Paths.get(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(Arrays.asList("-Xmx64m", "-XX:TieredStopAtLevel=1", "-cp", System.getProperty("java.class.path")));
        String multiRelease = System.getProperty("jdk.util.jar.enableMultiRelease");
        if (multiRelease != null) {
            command.add("-Djdk.util.jar.enableMultiRelease=" + multiRelease);
        }
        if (property != null) {
            command.add(property);
        }
        command.addAll(Arrays.asList(LifeTest.class.getName(), what));
        ProcessBuilder builder = new ProcessBuilder(command).directory(folder.toFile());
        builder.environment().remove("KEYMILL_CONFIG");
        if (variable != null) {
            builder.environment().put(variable.split("=", 2)[0], variable.split("=", 2)[1]);
        }
        builder.redirectError(folder.resolve("stderr").toFile());
        Process process = builder.start();
        String out = new String(process.getInputStream().readAllBytes());
        assertTrue(process.waitFor(240, TimeUnit.SECONDS));
        assertEquals(0, process.exitValue(), () -> {
            try {
                return new String(Files.readAllBytes(folder.resolve("stderr")));
            } catch (IOException e) {
                return e.toString();
            }
        });
        return out;
    }

    /** What {@link #child} runs. */
    public static void main(String[] arguments) throws Exception {
        try {
            switch (arguments[0]) {
                case "store":
                    try (Mill mill = Mill.open()) {
                        System.out.println(mill.store());
                    }
                    break;
                case "loaders":
                    StringBuilder ids = new StringBuilder();
                    for (int i = 0; i < 2; i++) {
                        URLClassLoader loader = new URLClassLoader(urls(), ClassLoader.getSystemClassLoader().getParent());
                        Class<?> mill = loader.loadClass("io.keymill.Mill");
                        Object opened = mill.getMethod("open", String.class).invoke(null, "memory:");
                        Object source = mill.getMethod("segment", String.class).invoke(opened, "a");
                        ids.append(source.getClass().getMethod("next").invoke(source)).append(' ');
                    }
                    System.out.println(ids);
                    break;
                default:
                    // Left open: a mill does not keep a JVM from ending.
                    Source source = Mill.open("memory:").segment("a");
                    System.out.println(source.next() + " " + source.next() + " " + source.next());
            }
        } catch (KeymillException e) {
            System.out.println(e.getMessage());
        }
    }
}
