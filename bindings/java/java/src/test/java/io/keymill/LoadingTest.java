package io.keymill;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.jar.JarOutputStream;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import java.util.stream.Stream;
import java.util.zip.CRC32;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Where the library is looked for, and what a program is told that has none: JVMs with jars and folders as users have them. */
@Tag("loading")
class LoadingTest {
    private static final String LIBRARY = System.mapLibraryName("keymill_java");
    private static final Path JAR = Paths.get(location(Library.class));
    private static final String ARM = "linux-aarch64";

    @TempDir
    Path folder;

    private static String location(Class<?> one) {
        return one.getProtectionDomain().getCodeSource().getLocation().getPath();
    }

    // Places.

    @Test
    void a_folder_that_forbids_libraries_is_passed_over() throws Exception {
        Path noexec = Files.createDirectory(folder.resolve("noexec"));
        Run run = new Run().mount("-o noexec tmpfs " + noexec).property("java.io.tmpdir", noexec);
        assertEquals("1 2 3", run.says());
        // The same where the first folder is named for it, and the temporary one is good.
        assertEquals("1 2 3", new Run().mount("-o noexec tmpfs " + noexec).property("keymill.tmpdir", noexec).says());
        String says = new Run().mount("-o noexec tmpfs " + noexec).property("java.io.tmpdir", noexec).property("user.dir", noexec)
                .property("keymill.tmpdir", "/nowhere").says();
        assertOrder(says, "INVALID_CONFIG", "(1) java.library.path: no " + LIBRARY, "(2)", "/nowhere (keymill.tmpdir): no such",
                "(3)", noexec + " (java.io.tmpdir): ", "failed to map", "-Dkeymill.tmpdir=", "-Dkeymill.library=");
        assertNothingLeft(folder);
    }

    @Test
    void a_read_only_system_needs_one_folder() throws Exception {
        Path writable = Files.createDirectory(folder.resolve("writable"));
        String says = new Run().readOnly().says();
        assertOrder(says, "INVALID_CONFIG", "(java.io.tmpdir): Read-only file system", "(user.dir): Read-only file system", "-Dkeymill.tmpdir=");
        assertEquals("1 2 3", new Run().mount("tmpfs " + writable).readOnly().property("keymill.tmpdir", writable).says());
    }

    @Test
    void a_full_folder_is_passed_over() throws Exception {
        Path full = Files.createDirectory(folder.resolve("full"));
        assertEquals("1 2 3", new Run().mount("-o size=64k tmpfs " + full).property("java.io.tmpdir", full).says());
        String says = new Run().mount("-o size=64k tmpfs " + full).property("java.io.tmpdir", full).property("user.dir", "/proc").says();
        assertOrder(says, "INVALID_CONFIG", full + " (java.io.tmpdir): No space left on device", "/proc (user.dir): ");
    }

    // Files that the user names.

    @Test
    void a_named_file_comes_first_and_its_failure_is_an_error() throws Exception {
        Path library = unpacked("mine.so");
        assertEquals("1 2 3", new Run().variable("KEYMILL_LIBRARY", library).nowhere().says());
        // The property wins over the variable, and neither is passed over.
        assertEquals("1 2 3", new Run().variable("KEYMILL_LIBRARY", "/nowhere.so").property("keymill.library", library).says());
        assertOrder(new Run().variable("KEYMILL_LIBRARY", "/nowhere.so").says(), "INVALID_CONFIG", "KEYMILL_LIBRARY=/nowhere.so: no such file");
        assertOrder(new Run().property("keymill.library", folder).says(), "INVALID_CONFIG", "-Dkeymill.library=" + folder + ": ");
        assertOrder(new Run().property("keymill.library", JAR).says(), "INVALID_CONFIG", "-Dkeymill.library=" + JAR + ": it is not an ELF file");
        Path libc = Paths.get("/proc/self/exe").toRealPath();
        assertOrder(new Run().property("keymill.library", libc).nowhere().says(), "INVALID_CONFIG");
    }

    @Test
    void a_library_of_another_program_is_named() throws Exception {
        Path other = Paths.get(System.getProperty("java.home"), "lib", "libzip.so");
        assumeTrue(Files.exists(other), "not run: this JVM has no libzip.so");
        assertOrder(new Run().property("keymill.library", Files.copy(other, folder.resolve("other.so"))).says(),
                "INVALID_CONFIG", "other.so is not keymill's library for Java");
    }

    @Test
    void a_truncated_file_is_named_before_the_loader_can_crash() throws Exception {
        byte[] whole = Files.readAllBytes(unpacked(LIBRARY));
        for (int length : new int[] {0, 63, 4096, whole.length / 2, whole.length - 1}) {
            Path cut = Files.write(folder.resolve("cut.so"), Arrays.copyOf(whole, length));
            assertOrder(new Run().property("keymill.library", cut).says(), "INVALID_CONFIG", "cut.so: it is ", "name another file");
        }
        // Found in the path it is passed over; in the jar it is the last.
        Files.write(folder.resolve(LIBRARY), Arrays.copyOf(whole, 5000));
        assertEquals("1 2 3", new Run().property("java.library.path", folder).says());
        Path jar = jar("truncated.jar", (name, bytes) -> name.endsWith(".so") ? Arrays.copyOf(bytes, bytes.length / 3) : bytes);
        assertOrder(new Run().jar(jar).says(), "INVALID_CONFIG", "of the jar, unpacked to ", "it is truncated");
    }

    @Test
    void the_library_path_is_searched_before_the_jar_is_unpacked() throws Exception {
        Path empty = Files.createDirectory(folder.resolve("empty"));
        unpacked(LIBRARY);
        assertEquals("1 2 3", new Run().property("java.library.path", empty + File.pathSeparator + folder).nowhere().says());
    }

    @Test
    void a_library_for_another_machine_is_named() throws Exception {
        byte[] foreign = Files.readAllBytes(unpacked(LIBRARY));
        assumeTrue(Library.platform().machine.equals("x86_64"), "not run: the machine is not x86_64");
        foreign[18] = (byte) 183;
        Files.write(folder.resolve(LIBRARY), foreign);
        assertOrder(new Run().property("keymill.library", folder.resolve(LIBRARY)).says(),
                "INVALID_CONFIG", "it is built for aarch64, and this JVM runs on x86_64");
        assertEquals("1 2 3", new Run().property("java.library.path", folder).says());
        // A jar for other machines only.
        Path jar = jar("arm.jar", (name, bytes) -> name.endsWith(".so") ? null : bytes, "io/keymill/native/" + ARM + "/" + LIBRARY, foreign);
        String says = new Run().jar(jar).says();
        assertOrder(says, "INVALID_CONFIG: this jar has no native library for linux-x86_64 (/proc/self/exe runs on /",
                "java.library.path", "no io/keymill/native/linux-x86_64/" + LIBRARY + ", only libraries for " + ARM, "cargo build", "-Dkeymill.library=");
    }

    @Test
    void a_library_for_another_libc_is_named() throws Exception {
        Path other = Paths.get(System.getProperty("keymill.root", "."), "target", "platforms", "linux-x86_64-musl", LIBRARY);
        assumeTrue(Files.exists(other) && Library.platform().candidates().equals(List.of("linux-x86_64")),
                "not run: ci/package/platforms has built no library for musl");
        assertOrder(new Run().property("keymill.library", other).says(), "INVALID_CONFIG", "it is built for musl, and this JVM runs on glibc");
    }

    @Test
    void where_the_libc_is_not_known_both_libraries_are_tried() throws Exception {
        byte[] whole = Files.readAllBytes(unpacked("whole.so"));
        String machine = "io/keymill/native/linux-" + Library.platform().machine;
        Path jar = jar("both.jar", (name, bytes) -> name.endsWith(".so") ? Arrays.copyOf(bytes, 5000) : bytes, machine + "-musl/" + LIBRARY, whole);
        // Without /proc the JVM's program does not find its own libraries either.
        assertEquals("1 2 3", new Run().mount("tmpfs /proc").variable("LD_LIBRARY_PATH", Paths.get(System.getProperty("java.home"), "lib"))
                .jar(jar).says());
    }

    // Jars.

    @Test
    void a_library_of_another_version_is_refused_and_both_jars_are_named() throws Exception {
        Path other = jar("other.jar", (name, bytes) -> name.equals("io/keymill/version") ? "9.9.9".getBytes(StandardCharsets.UTF_8) : bytes);
        assertOrder(new Run().jar(other).says(), "INVALID_CONFIG", "the native library is of version ", "native/linux-", "the classes are of version 9.9.9");
        Path classes = jar("classes.jar", (name, bytes) -> name.equals("io/keymill/version") ? "9.9.9".getBytes(StandardCharsets.UTF_8)
                : name.endsWith(".so") ? null : bytes);
        assertOrder(new Run().jar(classes, JAR).says(), "INVALID_CONFIG", "the classes are of version 9.9.9", "2 times", "classes.jar", JAR.getFileName().toString(), "one version");
    }

    @Test
    void two_versions_in_two_class_loaders_both_serve_but_not_on_one_sqlite_file() throws Exception {
        Library.ensure();
        String own = Native.version();
        Path jar = jar("second.jar", (name, bytes) -> name.equals("io/keymill/version") || name.endsWith(".so")
                ? latin(bytes).replace(own, "9.9.9").getBytes(StandardCharsets.ISO_8859_1) : bytes);
        try (URLClassLoader loader = new URLClassLoader(new URL[] {jar.toUri().toURL()}, ClassLoader.getSystemClassLoader().getParent());
                Mill mill = Mill.open("sqlite:" + folder.resolve("one.db"))) {
            Class<?> other = loader.loadClass("io.keymill.Mill");
            Source orders = mill.segment("orders");
            assertEquals(1, orders.next());
            assertEquals(1L, next(other, "sqlite:" + folder.resolve("other.db")));
            Throwable refused = assertThrows(InvocationTargetException.class, () -> next(other, "sqlite:" + folder.resolve("one.db"))).getCause();
            assertTrue(refused.getMessage().startsWith("STORE_UNSAFE") && refused.getMessage().contains("second copy"), refused.getMessage());
            assertEquals(2, orders.next());
            Method version = loader.loadClass("io.keymill.Native").getDeclaredMethod("version");
            version.setAccessible(true);
            assertEquals("9.9.9", version.invoke(null));
        }
    }

    /** Each of a redeployed application. */
    private static URLClassLoader loader(Path jar) throws Exception {
        return new URLClassLoader(new URL[] {jar.toUri().toURL()}, ClassLoader.getSystemClassLoader().getParent());
    }

    private static long libraries() throws Exception {
        try (Stream<String> lines = Files.lines(Paths.get("/proc/self/maps"), StandardCharsets.ISO_8859_1)) {
            // A library has megabytes of code; what leads to one has a page.
            return lines.filter(line -> line.contains(LIBRARY) && line.contains(" r-xp ")).map(line -> line.split("[- ]"))
                    .filter(range -> Long.parseLong(range[1], 16) - Long.parseLong(range[0], 16) > 1 << 20).count();
        }
    }

    @Test
    void class_loaders_share_one_library_and_each_has_its_natives_bound() throws Exception {
        Native.version();
        try (URLClassLoader first = loader(JAR)) {
            assertEquals(1L, next(first.loadClass("io.keymill.Mill"), "memory:"));
        }
        long before = libraries();
        for (int i = 0; i < 5; i++) {
            try (URLClassLoader loader = loader(JAR)) {
                Class<?> mill = loader.loadClass("io.keymill.Mill");
                assertEquals(1L, next(mill, "memory:"));
                Throwable refused = assertThrows(InvocationTargetException.class, () -> mill.getMethod("open", String.class).invoke(null, "unheard:of")).getCause();
                assertEquals(loader, refused.getClass().getClassLoader(), refused.toString());
                Method binder = loader.loadClass("io.keymill.Native").getDeclaredMethod("binder");
                Method bind = loader.loadClass("io.keymill.Library").getDeclaredMethod("bind", long.class);
                binder.setAccessible(true);
                bind.setAccessible(true);
                // All but `bind` itself.
                assertEquals(natives(loader) - 1, bind.invoke(null, binder.invoke(null)), "natives.rs lists those that the classes declare");
            }
        }
        assertEquals(before, libraries());
    }

    private static int natives(ClassLoader loader) throws Exception {
        int natives = 0;
        try (JarFile jar = new JarFile(JAR.toFile())) {
            for (JarEntry entry : Collections.list(jar.entries())) {
                if (entry.getName().matches("io/keymill/[^/]*[.]class") && !entry.getName().contains("-info")) {
                    for (Method method : loader.loadClass(entry.getName().replace('/', '.').replace(".class", "")).getDeclaredMethods()) {
                        natives += Modifier.isNative(method.getModifiers()) ? 1 : 0;
                    }
                }
            }
        }
        return natives;
    }

    @Test
    void a_class_loader_with_another_library_is_told_that_the_copy_stays() throws Exception {
        Native.version();
        List<String> said = new CopyOnWriteArrayList<>();
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord record) {
                said.add(record.getMessage());
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        Logger logger = Logger.getLogger("io.keymill");
        logger.addHandler(handler);
        Path jar = jar("third.jar", (name, bytes) -> name.equals("io/keymill/version") || name.endsWith(".so")
                ? latin(bytes).replace(Native.version(), "8.8.8").getBytes(StandardCharsets.ISO_8859_1) : bytes);
        try (URLClassLoader loader = loader(jar)) {
            assertEquals(1L, next(loader.loadClass("io.keymill.Mill"), "memory:"));
            assertTrue(said.size() == 1 && said.get(0).matches("copy [0-9]+ of keymill's native library was loaded in this JVM, for the class loader java.net.URLClassLoader.*Tomcat: lib.*"), said.toString());
        } finally {
            logger.removeHandler(handler);
        }
    }

    private static Object next(Class<?> type, String store) throws Exception {
        try (AutoCloseable mill = (AutoCloseable) type.getMethod("open", String.class).invoke(null, store)) {
            Object source = type.getMethod("segment", String.class).invoke(mill, "orders");
            return source.getClass().getMethod("next").invoke(source);
        }
    }

    @Test
    void a_jvm_that_denies_native_access_is_told_which_option_allows_it() throws Exception {
        String newest = System.getProperty("keymill.newest_java");
        assumeTrue(newest != null, "not run: -Dkeymill.newest_java names no JDK from 24 on");
        Run run = new Run().java(newest).option("--illegal-native-access=deny");
        assertOrder(run.says(), "INVALID_CONFIG", "Illegal native access", "--enable-native-access=ALL-UNNAMED");
        assertEquals("1 2 3", run.option("--enable-native-access=ALL-UNNAMED").says());
    }

    @Test
    void a_relocated_package_is_told_not_to_be() throws Exception {
        // As a shading tool does it, with a name of the same length.
        Path shaded = jar("shaded.jar", (name, bytes) -> name.endsWith(".class") ? replaced(bytes, "keymill", "shadowd") : bytes);
        Path classes = Files.createDirectories(folder.resolve("classes/io/shadowd"));
        try (Stream<Path> all = Files.list(Paths.get(location(LifeTest.class), "io", "keymill"))) {
            for (Path one : (Iterable<Path>) all.filter(file -> file.getFileName().toString().startsWith("LifeTest"))::iterator) {
                Files.write(classes.resolve(one.getFileName()), replaced(Files.readAllBytes(one), "keymill", "shadowd"));
            }
        }
        Path moved = renamed(shaded, "io/keymill/", "io/shadowd/");
        String says = new Run().path(moved + File.pathSeparator + folder.resolve("classes")).main("io.shadowd.LifeTest").says();
        assertOrder(says, "INVALID_CONFIG", "relocated: io.keymill.Library is now io.shadowd.Library", "exclude");
    }

    @Test
    void a_spring_boot_jar_that_nests_the_jar_works() throws Exception {
        Path loader = Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
                .filter(entry -> entry.contains("spring-boot-loader")).map(Paths::get).findFirst().orElseThrow();
        Path fat = folder.resolve("fat.jar");
        try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(fat))) {
            put(out, "META-INF/MANIFEST.MF", ("Manifest-Version: 1.0\nMain-Class: org.springframework.boot.loader.launch.JarLauncher\n"
                    + "Start-Class: io.keymill.LifeTest\nSpring-Boot-Classes: BOOT-INF/classes/\nSpring-Boot-Lib: BOOT-INF/lib/\n")
                    .getBytes(StandardCharsets.UTF_8));
            for (String directory : new String[] {"BOOT-INF/", "BOOT-INF/classes/", "BOOT-INF/lib/"}) {
                put(out, directory, new byte[0]);
            }
            try (JarFile in = new JarFile(loader.toFile())) {
                for (JarEntry entry : Collections.list(in.entries())) {
                    if (entry.getName().endsWith(".class")) {
                        put(out, entry.getName(), in.getInputStream(entry).readAllBytes());
                    }
                }
            }
            try (Stream<Path> all = Files.list(Paths.get(location(LifeTest.class), "io", "keymill"))) {
                for (Path one : (Iterable<Path>) all.filter(file -> file.getFileName().toString().startsWith("LifeTest"))::iterator) {
                    put(out, "BOOT-INF/classes/io/keymill/" + one.getFileName(), Files.readAllBytes(one));
                }
            }
            // Nested jars are stored, not packed.
            byte[] jar = Files.readAllBytes(JAR);
            CRC32 sum = new CRC32();
            sum.update(jar);
            JarEntry nested = new JarEntry("BOOT-INF/lib/keymill.jar");
            nested.setMethod(JarEntry.STORED);
            nested.setSize(jar.length);
            nested.setCrc(sum.getValue());
            out.putNextEntry(nested);
            out.write(jar);
        }
        assertEquals("1 2 3", new Run().path(null).arguments("-jar", fat.toString(), "take").says());
        Path noexec = Files.createDirectory(folder.resolve("noexec"));
        assertEquals("1 2 3", new Run().mount("-o noexec tmpfs " + noexec).property("java.io.tmpdir", noexec).path(null)
                .arguments("-jar", fat.toString(), "take").says());
    }

    // What the tests share.

    private interface Change {
        byte[] of(String name, byte[] bytes) throws IOException;
    }

    /** The library of this platform as a file. */
    private Path unpacked(String name) throws IOException {
        String resource = "native/" + Library.platform().candidates().get(0) + "/" + LIBRARY;
        try (InputStream in = Library.class.getResourceAsStream(resource)) {
            return Files.write(folder.resolve(name), in.readAllBytes());
        }
    }

    /** A jar as keymill's, with changed entries and one more. */
    private Path jar(String name, Change change, Object... more) throws IOException {
        Path made = folder.resolve(name);
        try (JarFile in = new JarFile(JAR.toFile()); JarOutputStream out = new JarOutputStream(Files.newOutputStream(made))) {
            out.setLevel(1);
            for (JarEntry entry : Collections.list(in.entries())) {
                byte[] bytes = entry.isDirectory() ? null : change.of(entry.getName(), in.getInputStream(entry).readAllBytes());
                if (bytes != null) {
                    put(out, entry.getName(), bytes);
                }
            }
            if (more.length > 0) {
                put(out, (String) more[0], (byte[]) more[1]);
            }
        }
        return made;
    }

    /** A jar whose entries are named anew. */
    private Path renamed(Path from, String old, String now) throws IOException {
        Path made = folder.resolve("renamed.jar");
        try (JarFile in = new JarFile(from.toFile()); JarOutputStream out = new JarOutputStream(Files.newOutputStream(made))) {
            out.setLevel(1);
            for (JarEntry entry : Collections.list(in.entries())) {
                put(out, entry.getName().replace(old, now), in.getInputStream(entry).readAllBytes());
            }
        }
        return made;
    }

    private static void put(JarOutputStream out, String name, byte[] bytes) throws IOException {
        out.putNextEntry(new JarEntry(name));
        out.write(bytes);
        out.closeEntry();
    }

    private static byte[] replaced(byte[] bytes, String old, String now) {
        String text = latin(bytes);
        for (String mark : new String[] {"/", "."}) {
            text = text.replace("io" + mark + old, "io" + mark + now);
        }
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    private static String latin(byte[] bytes) {
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }

    /** The text has all of these, in this order. */
    private static void assertOrder(String says, String... parts) {
        int at = 0;
        for (String part : parts) {
            int found = says.indexOf(part, at);
            assertTrue(found >= 0, () -> "`" + part + "` is missing in: " + says);
            at = found;
        }
        assertFalse(says.trim().contains("\n"), says);
    }

    private static void assertNothingLeft(Path folder) throws IOException {
        try (Stream<Path> left = Files.walk(folder)) {
            assertFalse(left.anyMatch(file -> file.toString().endsWith("-" + LIBRARY)));
        }
    }

    /** A JVM that takes three ids, and what it prints. */
    private final class Run {
        private final List<String> mounts = new ArrayList<>();
        private final List<String> properties = new ArrayList<>();
        private final Map<String, String> variables = new HashMap<>();
        private String java = Paths.get(System.getProperty("java.home"), "bin", "java").toString();
        private String path = System.getProperty("java.class.path");
        private String[] arguments = {"io.keymill.LifeTest", "take"};

        /** In a mount namespace of its own, which root may make. */
        Run mount(String arguments) {
            return before("mount -t tmpfs " + arguments);
        }

        Run readOnly() {
            return before("mount -o remount,bind,ro /");
        }

        private Run before(String command) {
            mounts.add(command);
            return this;
        }

        Run property(String name, Object value) {
            properties.add("-D" + name + "=" + value);
            return this;
        }

        /** By this JVM instead of the present one. */
        Run java(String java) {
            this.java = java;
            return this;
        }

        Run option(String option) {
            properties.add(option);
            return this;
        }

        Run variable(String name, Object value) {
            variables.put(name, value.toString());
            return this;
        }

        /** No folder takes an unpacked library. */
        Run nowhere() {
            return property("java.io.tmpdir", "/proc").property("user.dir", "/proc");
        }

        /** These jars instead of keymill's. */
        Run jar(Path... jars) {
            List<String> entries = new ArrayList<>();
            for (Path jar : jars) {
                entries.add(jar.toString());
            }
            for (String entry : path.split(File.pathSeparator)) {
                if (!Paths.get(entry).equals(JAR)) {
                    entries.add(entry);
                }
            }
            return path(String.join(File.pathSeparator, entries));
        }

        Run path(String path) {
            this.path = path;
            return this;
        }

        Run main(String name) {
            return arguments(name, "take");
        }

        Run arguments(String... arguments) {
            this.arguments = arguments;
            return this;
        }

        String says() throws Exception {
            List<String> command = new ArrayList<>();
            if (!mounts.isEmpty()) {
                assumeTrue(mountable(), "not run: no namespace for mounts can be made (unshare -m)");
                Collections.addAll(command, "unshare", "-m", "sh", "-c", String.join(" && ", mounts) + " && exec \"$@\"", "sh");
            }
            Collections.addAll(command, java, "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData");
            String multiRelease = System.getProperty("jdk.util.jar.enableMultiRelease");
            if (multiRelease != null) {
                command.add("-Djdk.util.jar.enableMultiRelease=" + multiRelease);
            }
            command.addAll(properties);
            if (path != null) {
                Collections.addAll(command, "-cp", path);
            }
            Collections.addAll(command, arguments);
            ProcessBuilder builder = new ProcessBuilder(command).directory(folder.toFile());
            builder.environment().keySet().removeAll(List.of("KEYMILL_CONFIG", "KEYMILL_LIBRARY"));
            builder.environment().putAll(variables);
            // A pipe: a file could not be written on a read-only system.
            Process process = builder.start();
            process.getOutputStream().close();
            String errors = text(process.getErrorStream());
            String out = text(process.getInputStream());
            assertTrue(process.waitFor(300, TimeUnit.SECONDS));
            assertEquals(0, process.exitValue(), errors + out);
            return out.trim();
        }

        private String text(InputStream in) throws IOException {
            return new String(in.readAllBytes(), StandardCharsets.UTF_8);
        }
    }

    private static Boolean mountable;

    private static synchronized boolean mountable() throws Exception {
        if (mountable == null) {
            Process process = new ProcessBuilder("unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt")
                    .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
            mountable = process.waitFor() == 0;
        }
        return mountable;
    }
}
