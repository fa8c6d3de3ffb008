package io.keymill;

import java.io.IOException;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Locale;

/**
 * What this process runs on, as the folders of the libraries in the jar are named.
 *
 * <p>Which libc that is, the program itself says: the kernel starts it with the dynamic loader that its file names. The
 * distribution does not say it, since either libc can be installed on any.
 */
final class Platform {
    /** Platforms that a jar may have a library for. */
    static final List<String> ALL = Collections.unmodifiableList(
            Arrays.asList("linux-x86_64", "linux-aarch64", "linux-x86_64-musl", "linux-aarch64-musl", "macos-aarch64", "macos-x86_64", "windows-x86_64"));

    final boolean linux;
    final boolean windows;
    /** {@code x86_64}, {@code aarch64}, or what {@code os.arch} says. */
    final String machine;
    /** {@code glibc}, {@code musl}, or null where the program does not say. */
    final String libc;
    private final String system;
    private final String why;

    Platform(String os, String arch, Path program) {
        String name = os.toLowerCase(Locale.ROOT);
        system = clean(name.contains("linux") ? "linux" : name.contains("mac") ? "macos" : name.contains("windows") ? "windows" : name);
        linux = system.equals("linux");
        windows = system.equals("windows");
        String kind = arch.toLowerCase(Locale.ROOT);
        machine = kind.equals("amd64") || kind.equals("x86_64") ? "x86_64"
                : kind.equals("arm64") || kind.equals("aarch64") ? "aarch64" : clean(kind);
        String libc = null;
        String why = "";
        if (linux) {
            try {
                Elf elf = Elf.read(program);
                libc = elf.libc();
                why = elf.interpreter == null ? program + " names no interpreter" : program + " runs on " + elf.interpreter;
            } catch (IOException | SecurityException e) {
                why = program + " cannot be read: " + Attempts.reason(e);
            }
        }
        this.libc = libc;
        this.why = why;
    }

    /** The libraries to try, in this order: both where the libc is not known. */
    List<String> candidates() {
        String glibc = system + "-" + machine;
        String musl = glibc + "-musl";
        return !linux || "glibc".equals(libc) ? Collections.singletonList(glibc)
                : "musl".equals(libc) ? Collections.singletonList(musl) : Arrays.asList(glibc, musl);
    }

    /** For messages: {@code linux-x86_64 (/proc/self/exe runs on /lib64/ld-linux-x86-64.so.2)}. */
    @Override
    public String toString() {
        return String.join(" or ", candidates()) + (why.isEmpty() ? "" : " (" + why + ")");
    }

    private static String clean(String name) {
        return name.replaceAll("[^a-z0-9_.-]", "_");
    }
}
