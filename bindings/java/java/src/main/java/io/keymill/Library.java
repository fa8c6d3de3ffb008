package io.keymill;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.Locale;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/**
 * Finds and loads the native library, once for each class loader that loads this class.
 *
 * <p>A library file belongs to the one class loader that loaded it, so each unpacks a file of its own, and deletes it as
 * soon as it is loaded where the system allows that.
 */
final class Library {
    /** The path of a library to load instead of the one in the jar. */
    private static final String PROPERTY = "keymill.library";

    /** How the names of unpacked libraries begin. */
    private static final String PREFIX = "keymill-";

    private static final KeymillException FAILURE = load();

    private Library() {}

    /** Loads the library, or says each time again why it could not be loaded. */
    static void ensure() {
        if (FAILURE != null) {
            throw new KeymillException(Code.INVALID_CONFIG, reason(FAILURE), -1, FAILURE);
        }
    }

    private static String reason(KeymillException failure) {
        return failure.getMessage().substring(failure.code().name().length() + 2);
    }

    private static KeymillException load() {
        try {
            String given = System.getProperty(PROPERTY);
            if (given != null && !given.isEmpty()) {
                loadFile(Paths.get(given).toAbsolutePath());
            } else {
                unpack();
            }
            checkVersion();
            return null;
        } catch (KeymillException e) {
            return e;
        } catch (IOException | LinkageError | RuntimeException e) {
            return new KeymillException(
                    Code.INVALID_CONFIG,
                    "the native library cannot be loaded: " + e.getMessage() + "; the folder for temporary files ("
                            + System.getProperty("java.io.tmpdir") + ") must allow libraries, or -D" + PROPERTY
                            + "=PATH name one",
                    -1,
                    e);
        }
    }

    private static void loadFile(Path file) throws IOException {
        if (!Files.isReadable(file)) {
            throw new KeymillException(
                    Code.INVALID_CONFIG, "-D" + PROPERTY + "=" + file + ": there is no such file that can be read");
        }
        try {
            System.load(file.toString());
        } catch (UnsatisfiedLinkError e) {
            String message = String.valueOf(e.getMessage());
            if (!message.contains("already loaded in another classloader")) {
                throw e;
            }
            try (InputStream in = Files.newInputStream(file)) {
                loadCopy(in, file.getFileName().toString());
            }
        }
    }

    private static void unpack() throws IOException {
        String name = System.mapLibraryName("keymill_java");
        String resource = "native/" + platform() + "/" + name;
        try (InputStream in = Library.class.getResourceAsStream(resource)) {
            if (in == null) {
                throw new KeymillException(
                        Code.INVALID_CONFIG,
                        "this jar has no native library for " + platform() + " (looked for io/keymill/" + resource
                                + "); build one with `cargo build --release -p keymill-java` and name it with -D"
                                + PROPERTY + "=PATH");
            }
            loadCopy(in, name);
        }
    }

    private static void loadCopy(InputStream in, String name) throws IOException {
        Path file = Files.createTempFile(PREFIX, "-" + name);
        sweep(file.getParent(), "-" + name);
        try {
            Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
            System.load(file.toString());
        } finally {
            try {
                // It stays mapped; nothing is left behind.
                Files.deleteIfExists(file);
            } catch (IOException e) {
                file.toFile().deleteOnExit();
            }
        }
    }

    /**
     * Deletes what JVMs left that were killed between unpacking and deleting. A file of the last day may be that of a JVM
     * that is starting.
     */
    private static void sweep(Path folder, String suffix) {
        long yesterday = System.currentTimeMillis() - TimeUnit.DAYS.toMillis(1);
        // What `createTempFile` makes of the two, and nothing else.
        Pattern ours = Pattern.compile(Pattern.quote(PREFIX) + "[0-9]+" + Pattern.quote(suffix));
        try (DirectoryStream<Path> files = Files.newDirectoryStream(folder, PREFIX + "*")) {
            for (Path file : files) {
                if (ours.matcher(file.getFileName().toString()).matches()) {
                    sweep(file, yesterday);
                }
            }
        } catch (IOException | DirectoryIteratorException | SecurityException e) {
            // A folder that cannot be listed keeps nobody from starting.
        }
    }

    private static void sweep(Path file, long before) {
        try {
            BasicFileAttributes found = Files.readAttributes(file, BasicFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
            if (found.isRegularFile() && found.lastModifiedTime().toMillis() < before) {
                Files.deleteIfExists(file);
            }
        } catch (IOException | SecurityException e) {
            // Another user's, or somebody was quicker.
        }
    }

    private static void checkVersion() throws IOException {
        String wanted;
        try (InputStream in = Library.class.getResourceAsStream("version")) {
            if (in == null) {
                return;
            }
            wanted = new BufferedReader(new InputStreamReader(in, StandardCharsets.UTF_8)).readLine().trim();
        }
        String found = Native.version();
        if (!wanted.equals(found)) {
            throw new KeymillException(
                    Code.INVALID_CONFIG,
                    "the native library is of version " + found + ", the classes are of version " + wanted);
        }
    }

    /** {@code linux-x86_64}: the folder of this machine's library in the jar. */
    static String platform() {
        String os = System.getProperty("os.name", "").toLowerCase(Locale.ROOT);
        String arch = System.getProperty("os.arch", "").toLowerCase(Locale.ROOT);
        String system = os.contains("linux") ? "linux" : os.contains("mac") ? "macos" : os.contains("windows") ? "windows" : os;
        String machine = arch.equals("amd64") || arch.equals("x86_64") ? "x86_64"
                : arch.equals("arm64") || arch.equals("aarch64") ? "aarch64" : arch;
        return (system + "-" + machine).replaceAll("[^a-z0-9_.-]", "_");
    }
}
