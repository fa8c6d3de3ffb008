package io.keymill;

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import java.util.zip.CheckedInputStream;
import java.util.zip.Checksum;

/**
 * Finds and loads the native library, once for each class loader that loads this class.
 *
 * <p>It looks for, in this order: the file that the property {@code keymill.library} or the variable
 * {@code KEYMILL_LIBRARY} names; a file in {@code java.library.path}; the library in the jar, unpacked to the folder that
 * {@code keymill.tmpdir} names, to the one for temporary files, or to the working folder. A named file that cannot be
 * loaded is an error; elsewhere the next place is tried.
 *
 * <p>A library file belongs to the one class loader that loaded it, so each unpacks a file of its own, and deletes it as
 * soon as it is loaded. On Linux the file of a later class loader only leads to the library of the first. Windows deletes no loaded
 * file: see {@link KeptFile}.
 */
final class Library {
    /** The path of a library to load instead of the one in the jar. */
    private static final String PROPERTY = "keymill.library";

    private static final String VARIABLE = "KEYMILL_LIBRARY";
    /** The folder to unpack to. */
    private static final String FOLDER = "keymill.tmpdir";

    private static final String REMEDY = "name a folder that is writable and "
            + (platform().windows ? "where no policy forbids libraries" : "not mounted noexec") + " with -D" + FOLDER + "=FOLDER, or a library file with -D" + PROPERTY + "=FILE or " + VARIABLE + "=FILE";

    private static final String ACCESS =
            "allow it with --enable-native-access=ALL-UNNAMED, or =io.keymill where the jar is on the module path";

    /** How many class loaders of this JVM have a copy. */
    private static final String COPIES = "io.keymill.copies";

    /** How the names of unpacked libraries begin. */
    static final String PREFIX = "keymill-";

    private static final KeymillException FAILURE = load();

    private Library() {}

    /** Binds the natives of this class loader's classes by the library's function at this address; says how many. */
    private static native int bind(long function);

    /** Loads the library, or says each time again why it could not be loaded. */
    static void ensure() {
        if (FAILURE != null) {
            throw new KeymillException(Code.INVALID_CONFIG, FAILURE.reason(), FAILURE);
        }
    }

    private static KeymillException load() {
        try {
            refuseRelocation(Library.class.getName());
            Finder finder = new Finder();
            checkVersion(finder.find());
            return null;
        } catch (KeymillException e) {
            return e;
        } catch (IOException | LinkageError | RuntimeException e) {
            return new KeymillException(
                    Code.INVALID_CONFIG, "the native library cannot be loaded: " + Attempts.reason(e) + "; " + remedy(e), -1, e);
        }
    }

    /** Warns about a further copy, which stays in memory as long as the JVM: of another version, or where no library can be shared. */
    private static void count() {
        int copies;
        String jvm = jvm() + ":";
        synchronized (System.getProperties()) {
            String counted = System.getProperty(COPIES, "");
            copies = counted.matches(jvm + "[0-9]{1,9}") ? Integer.parseInt(counted.substring(jvm.length())) + 1 : 1;
            System.setProperty(COPIES, jvm + copies);
        }
        if (copies > 1) {
            warn("copy " + copies + " of keymill's native library was loaded in this JVM, for the class loader " + Library.class.getClassLoader()
                    + ": it stays in memory, and its " + (platform().windows ? "" : "deleted ") + "file on the disk, until the JVM ends. Give all applications of the JVM one version of keymill, or put the jar `keymill` where the server's own libraries are (Tomcat: lib), and not into WEB-INF/lib");
        }
    }

    /** Names this JVM: a child may inherit the properties, where all class loaders see what one of them writes. */
    static String jvm() {
        // One object a JVM.
        return Integer.toHexString(System.identityHashCode(ClassLoader.getSystemClassLoader()));
    }

    private static void warn(String text) {
        try {
            java.util.logging.Logger.getLogger("io.keymill").warning(text);
        } catch (LinkageError e) {
            // A JVM without the module java.logging.
        }
    }

    /** What to do after this failure. */
    static String remedy(Throwable failure) {
        // The class is of Java 9, and this one runs on 8. `--illegal-native-access=deny` makes `System.load` throw it.
        return failure.getClass().getName().equals("java.lang.IllegalCallerException") ? ACCESS : REMEDY;
    }

    /** The library's functions are named after these classes, so that a copy of them under another name finds none. */
    static void refuseRelocation(String name) {
        // Tools that relocate a package rewrite texts that look like a name in it.
        String own = String.join(".", "io", "keymill", "Library");
        if (!name.equals(own)) {
            throw new KeymillException(
                    Code.INVALID_CONFIG,
                    "keymill's package was relocated: " + own + " is now " + name
                            + ", and the native library does not know it; exclude the package from relocation when you shade");
        }
    }

    /** One search for the library. */
    private static final class Finder {
        private final String name = System.mapLibraryName("keymill_java");
        private final Platform platform = platform();
        private final Attempts attempts = new Attempts();
        /** What was unpacked last. */
        private String content;

        /** Where the loaded library came from. */
        String find() {
            String given = System.getProperty(PROPERTY);
            if (given != null && !given.isEmpty()) {
                return named("-D" + PROPERTY + "=" + given, given);
            }
            given = System.getenv(VARIABLE);
            if (given != null && !given.isEmpty()) {
                return named(VARIABLE + "=" + given, given);
            }
            String path = System.getProperty("java.library.path", "");
            boolean exists = false;
            for (String folder : path.split(File.pathSeparator)) {
                // An entry of Windows' `PATH` may have quotes, for which `Paths.get` throws.
                File file = new File(folder, name);
                if (!folder.isEmpty() && isTrusted(folder) && file.exists()) {
                    exists = true;
                    if (loadFile("java.library.path: " + file, file.toPath().toAbsolutePath())) {
                        return file.toString();
                    }
                }
            }
            if (!exists) {
                attempts.add("java.library.path", "no " + name + " in " + path);
            }
            return unpack();
        }

        /** On Windows the JVM adds the working folder to its path, where others than the program's owner may have put a file. */
        private boolean isTrusted(String folder) {
            return !platform.windows || new File(folder).isAbsolute();
        }

        private String named(String how, String file) {
            if (loadFile(how, Paths.get(file).toAbsolutePath())) {
                return how;
            }
            throw attempts.failure(
                    "the native library that is named cannot be loaded on " + platform,
                    "name another file, or none to use the library in the jar");
        }

        /** Loads a file of the user's. Another class loader may hold it already, and then a copy is loaded. */
        private boolean loadFile(String where, Path file) {
            Elf elf;
            try {
                elf = check(file);
            } catch (IOException e) {
                attempts.add(where, e);
                return false;
            }
            try {
                System.load(file.toString());
                count();
                return true;
            } catch (UnsatisfiedLinkError e) {
                if (elf != null && elf.libc() != null && platform.libc != null && !elf.libc().equals(platform.libc)) {
                    attempts.add(where, "it is built for " + elf.libc() + ", and this JVM runs on " + platform.libc);
                    return false;
                }
                attempts.add(where, file, e);
            }
            return copy("a copy of it", () -> Files.newInputStream(file));
        }

        /** The dynamic loader names the wrong reason where a file is for another machine, and may end the process where it is truncated. */
        private Elf check(Path file) throws IOException {
            if (!platform.linux) {
                return null;
            }
            Elf elf = Elf.read(file);
            if (!elf.machine.equals(platform.machine)) {
                throw new Elf.Damaged("it is built for " + elf.machine + ", and this JVM runs on " + platform.machine);
            }
            return elf;
        }

        private String unpack() {
            List<String> missing = new ArrayList<>();
            for (String candidate : platform.candidates()) {
                String resource = resource(candidate);
                if (Library.class.getResource(resource) == null) {
                    missing.add("io/keymill/" + resource);
                } else if (copy(candidate + " of the jar", () -> Library.class.getResourceAsStream(resource))) {
                    return "io/keymill/" + resource;
                }
            }
            if (missing.size() == platform.candidates().size()) {
                String has = Platform.ALL.stream().filter(one -> Library.class.getResource(resource(one)) != null)
                        .collect(Collectors.joining(", "));
                attempts.add("the jar", "no " + String.join(" nor ", missing) + ", only libraries for " + (has.isEmpty() ? "nothing" : has));
                throw attempts.failure(
                        "this jar has no native library for " + platform,
                        "take a jar that has one, or build it with `cargo build --release -p keymill-java` and name it with -D"
                                + PROPERTY + "=FILE or " + VARIABLE + "=FILE");
            }
            throw attempts.failure("the native library cannot be loaded on " + platform, REMEDY);
        }

        private String resource(String candidate) {
            return "native/" + candidate + "/" + name;
        }

        /** The library that another class loader has loaded, where it has this content, else a copy. */
        private boolean copy(String what, Opening library) {
            // One object a JVM, whatever the class loader: of two that begin at once one waits for the other's library.
            synchronized ("io.keymill.Library".intern()) {
                return isBound(library) || unpacked(what, library) && isPublished();
            }
        }

        private boolean isBound(Opening library) {
            byte[] jump = platform.linux ? OneLibrary.jump(platform.machine) : null;
            if (jump == null || !OneLibrary.isAny()) {
                return false;
            }
            long function;
            try {
                function = OneLibrary.find(content(library));
            } catch (IOException e) {
                attempts.add("the library of another class loader", e);
                return false;
            }
            if (function == 0 || !unpacked("a jump to the library of another class loader", () -> new ByteArrayInputStream(jump))) {
                return false;
            }
            if (bind(function) == 0) {
                throw new UnsatisfiedLinkError("the library of another class loader has none of these natives");
            }
            return true;
        }

        /** After this class loader loaded a copy. */
        private boolean isPublished() {
            count();
            try {
                OneLibrary.publish(content, Native.binder());
            } catch (IOException | UnsatisfiedLinkError e) {
                // The next class loader loads a copy too.
                attempts.add("saying where the library is", e);
            }
            return true;
        }

        private String content(Opening library) throws IOException {
            byte[] part = new byte[1 << 16];
            long length = 0;
            try (CheckedInputStream in = new CheckedInputStream(library.open(), new CRC32())) {
                for (int read; (read = in.read(part)) >= 0; ) {
                    length += read;
                }
                return contentOf(in.getChecksum(), length);
            }
        }

        private static String contentOf(Checksum sum, long length) {
            return Long.toHexString(sum.getValue()) + "-" + length;
        }

        /** Loads a file with these bytes from the first folder that lets it. */
        private boolean unpacked(String what, Opening library) {
            Set<Path> folders = new LinkedHashSet<>();
            for (String property : new String[] {FOLDER, "java.io.tmpdir", "user.dir"}) {
                String folder = System.getProperty(property);
                if (folder != null && !folder.isEmpty() && folders.add(Paths.get(folder).toAbsolutePath().normalize())
                        && load(what + ", unpacked to " + folder + " (" + property + ")", Paths.get(folder), library)) {
                    return true;
                }
            }
            return false;
        }

        private boolean load(String where, Path folder, Opening library) {
            Path file = folder;
            try {
                if (platform.windows && isKept(folder, library)) {
                    return true;
                }
                // Made anew, under a name that cannot be guessed, for this user alone.
                file = Files.createTempFile(folder.toAbsolutePath(), PREFIX, "-" + name);
                try {
                    sweep(file, "-" + name);
                    fill(file, library);
                    check(file);
                    System.load(file.toString());
                    return true;
                } finally {
                    delete(file);
                }
            } catch (IOException | UnsatisfiedLinkError e) {
                attempts.add(where, file, e);
                return false;
            }
        }

        private boolean isKept(Path folder, Opening library) throws IOException {
            byte[] bytes;
            try (InputStream in = library.open()) {
                bytes = KeptFile.read(in);
            }
            CRC32 sum = new CRC32();
            sum.update(bytes, 0, bytes.length);
            content = contentOf(sum, bytes.length);
            return new KeptFile(folder.toAbsolutePath(), PREFIX + content, "-" + name, bytes).load();
        }

        /** Into the file that was made, whose rights and owner stay. */
        private void fill(Path file, Opening library) throws IOException {
            byte[] part = new byte[1 << 16];
            CRC32 sum = new CRC32();
            long all = 0;
            try (InputStream in = library.open();
                    OutputStream out = Files.newOutputStream(file, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS)) {
                for (int length; (length = in.read(part)) >= 0; ) {
                    out.write(part, 0, length);
                    sum.update(part, 0, length);
                    all += length;
                }
            }
            content = contentOf(sum, all);
        }

        private static void delete(Path file) {
            try {
                // A loaded library stays mapped; nothing is left behind.
                Files.deleteIfExists(file);
            } catch (IOException e) {
                file.toFile().deleteOnExit();
            }
        }
    }

    /** Bytes of a library. */
    private interface Opening {
        InputStream open() throws IOException;
    }

    /**
     * Deletes what JVMs left that were killed between unpacking and deleting, beside the file that was just made, and on Windows what other
     * versions have kept. A file of the day
     * before it may belong to a JVM that is starting. This JVM's clock may be wrong, so the file system's is asked.
     */
    static void sweep(Path made, String suffix) throws IOException {
        long yesterday = Files.getLastModifiedTime(made).toMillis() - TimeUnit.DAYS.toMillis(1);
        // What `createTempFile` and `KeptFile` make of the two, and nothing else.
        Pattern ours = Pattern.compile(Pattern.quote(PREFIX) + (platform().windows ? "[0-9a-f-]+" : "[0-9]+") + Pattern.quote(suffix));
        try (DirectoryStream<Path> files = Files.newDirectoryStream(made.getParent(), PREFIX + "*")) {
            for (Path file : files) {
                if (ours.matcher(file.getFileName().toString()).matches()) {
                    sweep(file, yesterday);
                }
            }
        } catch (IOException | DirectoryIteratorException | SecurityException e) {
            // A folder that cannot be listed is no reason not to start.
        }
    }

    private static void sweep(Path file, long before) {
        try {
            BasicFileAttributes found = Files.readAttributes(file, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
            if (found.isRegularFile() && found.lastModifiedTime().toMillis() < before) {
                Files.deleteIfExists(file);
            }
        } catch (IOException | SecurityException e) {
            // Another user's file, or another process has deleted it.
        }
    }

    private static void checkVersion(String from) throws IOException {
        String wanted;
        try (InputStream in = Library.class.getResourceAsStream("version")) {
            if (in == null) {
                return;
            }
            wanted = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8)).readLine().trim();
        }
        String found;
        try {
            found = Native.version();
        } catch (UnsatisfiedLinkError e) {
            throw new KeymillException(
                    Code.INVALID_CONFIG, from + " is not keymill's library for Java: it has no Native.version", -1, e);
        }
        if (!wanted.equals(found)) {
            throw new KeymillException(
                    Code.INVALID_CONFIG,
                    "the native library is of version " + found + " (" + from + "), the classes are of version " + wanted + jars()
                            + "; give both the same version, and a program one version of keymill");
        }
    }

    /** The jars of keymill that this program has, where there are several. */
    private static String jars() throws IOException {
        ClassLoader loader = Library.class.getClassLoader();
        List<URL> all = loader == null ? Collections.emptyList() : Collections.list(loader.getResources("io/keymill/version"));
        return all.size() < 2 ? "" : " (the class path has keymill " + all.size() + " times: " + all + ")";
    }

    /** What this process runs on. */
    static Platform platform() {
        return new Platform(
                System.getProperty("os.name", ""), System.getProperty("os.arch", ""), Paths.get("/proc/self/exe"));
    }
}
