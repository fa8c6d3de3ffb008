package io.keymill;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.OpenOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.HashSet;
import java.util.Set;

/**
 * A library on Windows, where no file can be deleted that a process has loaded: it stays in its folder, under a name of its content, for
 * all JVMs and their later starts. Each class loader of a JVM needs a file of its own, so the name ends with a number.
 */
final class KeptFile {
    /** Class loaders of one JVM, and files that something else holds. Beyond that each loads a file that is not kept. */
    private static final int MOST = 16;
    /** A property for each file that a class loader has loaded, with the name of the JVM: a class loader sees nothing else of the others. */
    private static final String LOADED = "io.keymill.kept.";

    private final Path folder;
    private final String prefix;
    private final String suffix;
    private final byte[] bytes;

    /** Files are called {@code PREFIX-NUMBER SUFFIX}. */
    KeptFile(Path folder, String prefix, String suffix, byte[] bytes) {
        this.folder = folder;
        this.prefix = prefix;
        this.suffix = suffix;
        this.bytes = bytes;
    }

    static byte[] read(InputStream in) throws IOException {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        byte[] part = new byte[1 << 16];
        for (int length; (length = in.read(part)) >= 0; ) {
            all.write(part, 0, length);
        }
        return all.toByteArray();
    }

    /** Loads a file with these bytes, which is made where there is none; false: none can be kept here. */
    boolean load() throws IOException {
        Set<OpenOption> alone = alone();
        if (alone.isEmpty()) {
            return false;
        }
        for (int number = 1; number <= MOST; number++) {
            Path file = folder.resolve(prefix + "-" + number + suffix);
            if (loads(file, alone) || replaced(file) && loads(file, alone)) {
                return true;
            }
        }
        return false;
    }

    /** Loads the file if it has these bytes. Nothing can change or replace it between the comparison and the load. */
    private boolean loads(Path file, Set<OpenOption> alone) {
        try (FileChannel in = FileChannel.open(file, alone)) {
            if (!isSame(in)) {
                return false;
            }
            String loaded = LOADED + file.toFile().getCanonicalPath();
            try {
                System.load(file.toString());
            } catch (UnsatisfiedLinkError e) {
                // A further file helps against another class loader of this JVM, which holds it until it is collected, but not against a policy.
                if (!Library.jvm().equals(System.getProperty(loaded))) {
                    throw e;
                }
                return false;
            }
            System.setProperty(loaded, Library.jvm());
            return true;
        } catch (IOException e) {
            // Not there, or held by a program that writes.
            return false;
        }
    }

    private boolean isSame(FileChannel in) throws IOException {
        if (in.size() != bytes.length) {
            return false;
        }
        ByteBuffer found = ByteBuffer.allocate(bytes.length);
        while (found.hasRemaining() && in.read(found) >= 0) {
            // Reads on.
        }
        return found.flip().equals(ByteBuffer.wrap(bytes));
    }

    /** Puts a whole file in the place of a missing or damaged one; false: what is there has these bytes, or cannot be deleted. */
    private boolean replaced(Path file) throws IOException {
        boolean isDamaged = false;
        try (FileChannel in = FileChannel.open(file, StandardOpenOption.READ)) {
            isDamaged = !isSame(in);
            if (!isDamaged) {
                return false;
            }
        } catch (NoSuchFileException e) {
            // It is made below. Another JVM may make it meanwhile, so it is not deleted first.
        } catch (IOException e) {
            return false;
        }
        // The file gets its name when it is whole.
        Path made = Files.createTempFile(folder, Library.PREFIX, suffix);
        try {
            Library.sweep(made, suffix);
            Files.write(made, bytes);
            return moved(made, file, isDamaged);
        } finally {
            try {
                Files.deleteIfExists(made);
            } catch (IOException e) {
                made.toFile().deleteOnExit();
            }
        }
    }

    private static boolean moved(Path made, Path file, boolean isDamaged) {
        try {
            if (isDamaged) {
                Files.deleteIfExists(file);
            }
            Files.move(made, file);
            return true;
        } catch (FileAlreadyExistsException e) {
            // Another JVM was quicker.
            return true;
        } catch (IOException e) {
            // A program holds one of the two, such as a virus scanner.
            return false;
        }
    }

    /** Options to read a file that nobody else may write, rename or delete meanwhile. A runtime that lacks their module, jdk.unsupported, has none. */
    private static Set<OpenOption> alone() {
        Set<OpenOption> options = new HashSet<>();
        try {
            for (Object option : Class.forName("com.sun.nio.file.ExtendedOpenOption").getEnumConstants()) {
                if (option.toString().equals("NOSHARE_WRITE") || option.toString().equals("NOSHARE_DELETE")) {
                    options.add((OpenOption) option);
                }
            }
        } catch (ClassNotFoundException | LinkageError e) {
            return options;
        }
        options.add(StandardOpenOption.READ);
        return options;
    }
}
