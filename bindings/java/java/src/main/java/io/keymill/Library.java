package io.keymill;

import java.io.BufferedReader;
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

/**
 * Finds and loads the native library, once for each class loader that loads this class.
 *
 * <p>It looks for, in this order: the file that the property {@code keymill.library} or the variable
 * {@code KEYMILL_LIBRARY} names; a file in {@code java.library.path}; the library in the jar, unpacked to the folder that
 * {@code keymill.tmpdir} names, to the one for temporary files, or to the working folder. A named file that cannot be
 * loaded is an error; elsewhere the next place is tried.
 *
 * <p>A library file belongs to the one class loader that loaded it, so each unpacks a file of its own, and deletes it as
 * soon as it is loaded where the system allows that.
 */
final class Library {
    /** The path of a library to load instead of the one in the jar. */
    private static final String PROPERTY = "keymill.library";

    private static final String VARIABLE = "KEYMILL_LIBRARY";
    /** The folder to unpack to. */
    private static final String FOLDER = "keymill.tmpdir";

    private static final String REMEDY = "name a folder that is writable and not mounted noexec with -D" + FOLDER
            + "=FOLDER, or a library file with -D" + PROPERTY + "=FILE or " + VARIABLE + "=FILE";

    private static final String ACCESS =
            "allow it with --enable-native-access=ALL-UNNAMED, or =io.keymill where the jar is on the module path";

    /** How the names of unpacked libraries begin. */
    private static final String PREFIX = "keymill-";

    private static final KeymillException FAILURE = load();

    private Library() {}

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
                Path file = folder.isEmpty() ? null : Paths.get(folder, name).toAbsolutePath();
                if (file != null && Files.exists(file)) {
                    exists = true;
                    if (loadFile("java.library.path: " + file, file)) {
                        return file.toString();
                    }
                }
            }
            if (!exists) {
                attempts.add("java.library.path", "no " + name + " in " + path);
            }
            return unpack();
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

        /** Loads a copy from the first folder that lets it. */
        private boolean copy(String what, Opening library) {
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

        /** Into the file that was made, whose rights and owner stay. */
        private static void fill(Path file, Opening library) throws IOException {
            byte[] part = new byte[1 << 16];
            try (InputStream in = library.open();
                    OutputStream out = Files.newOutputStream(file, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS)) {
                for (int length; (length = in.read(part)) >= 0; ) {
                    out.write(part, 0, length);
                }
            }
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
     * Deletes what JVMs left that were killed between unpacking and deleting, beside the file that was just made. A file of the day
     * before it may be that of a JVM that is starting. This JVM's clock may be wrong, so the file system's is asked.
     */
    private static void sweep(Path made, String suffix) throws IOException {
        long yesterday = Files.getLastModifiedTime(made).toMillis() - TimeUnit.DAYS.toMillis(1);
        // What `createTempFile` makes of the two, and nothing else.
        Pattern ours = Pattern.compile(Pattern.quote(PREFIX) + "[0-9]+" + Pattern.quote(suffix));
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
