package io.keymill;

import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.SeekableByteChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The headers of an ELF file: which machine it is for, which libc it runs on, and whether it is whole. */
final class Elf {
    private static final int PROGRAM_HEADER = 56;
    private static final int LOAD = 1;
    private static final int DYNAMIC = 2;
    private static final int INTERPRETER = 3;
    /** Tags of the dynamic section. */
    private static final int NEEDED = 1;
    private static final int STRINGS = 5;
    /** More of a header than any linker writes: a damaged file must not allocate gigabytes. */
    private static final int MOST_BYTES = 1 << 20;

    private final SeekableByteChannel in;
    private final ByteOrder order;
    private final ByteBuffer programs;

    /** As {@code os.arch} is named here: {@code x86_64}, {@code aarch64}, or {@code ELF machine N}. */
    final String machine;
    /** The program that the kernel starts instead of this one: the dynamic loader of its libc. Null in libraries and static programs. */
    final String interpreter;
    /** Names of the libraries that this file is linked to. */
    final List<String> needed;

    private Elf(SeekableByteChannel in) throws IOException {
        this.in = in;
        ByteBuffer head = read(0, 64, ByteOrder.LITTLE_ENDIAN);
        if (head.getInt(0) != 0x464C457F) {
            throw new Damaged("it is not an ELF file");
        }
        if (head.get(4) != 2) {
            throw new Damaged("it is not a 64-bit ELF file");
        }
        order = head.get(5) == 2 ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN;
        head.order(order);
        int number = Short.toUnsignedInt(head.getShort(18));
        machine = number == 62 ? "x86_64" : number == 183 ? "aarch64" : "ELF machine " + number;
        long sections = head.getLong(40);
        long sectionsLength = (long) Short.toUnsignedInt(head.getShort(58)) * Short.toUnsignedInt(head.getShort(60));
        within(sections, sectionsLength);
        int count = Short.toUnsignedInt(head.getShort(56));
        if (count > 0 && Short.toUnsignedInt(head.getShort(54)) != PROGRAM_HEADER) {
            throw new Damaged("its program headers are damaged");
        }
        programs = read(head.getLong(32), (long) count * PROGRAM_HEADER, order);
        String loader = null;
        List<String> libraries = Collections.emptyList();
        for (int at = 0; at < programs.capacity(); at += PROGRAM_HEADER) {
            long offset = programs.getLong(at + 8);
            long length = programs.getLong(at + 32);
            switch (programs.getInt(at)) {
                case LOAD:
                    within(offset, length);
                    break;
                case INTERPRETER:
                    loader = text(read(offset, length, order), 0);
                    break;
                case DYNAMIC:
                    libraries = needed(read(offset, length, order));
                    break;
                default:
            }
        }
        interpreter = loader;
        needed = libraries;
    }

    /**
     * Reads the headers.
     *
     * @throws Damaged if the file is not a whole 64-bit ELF file
     */
    static Elf read(Path file) throws IOException {
        try (SeekableByteChannel in = Files.newByteChannel(file)) {
            return new Elf(in);
        }
    }

    /** The libc of the process that runs this program or loads this library: {@code glibc}, {@code musl}, or null where the file does not say. */
    String libc() {
        if (interpreter != null) {
            String name = interpreter.substring(interpreter.lastIndexOf('/') + 1);
            return name.startsWith("ld-musl-") ? "musl" : name.startsWith("ld-linux") ? "glibc" : null;
        }
        for (String library : needed) {
            if (library.equals("libc.so.6")) {
                return "glibc";
            }
            if (library.equals("libc.so") || library.startsWith("libc.musl-")) {
                return "musl";
            }
        }
        return null;
    }

    private List<String> needed(ByteBuffer dynamic) throws IOException {
        List<Long> names = new ArrayList<>();
        long strings = -1;
        for (int at = 0; at + 16 <= dynamic.capacity(); at += 16) {
            long tag = dynamic.getLong(at);
            if (tag == 0) {
                break;
            }
            if (tag == NEEDED) {
                names.add(dynamic.getLong(at + 8));
            } else if (tag == STRINGS) {
                strings = offset(dynamic.getLong(at + 8));
            }
        }
        List<String> libraries = new ArrayList<>();
        for (long name : names) {
            long from = strings + name;
            if (strings >= 0 && name >= 0 && from >= 0 && from < in.size()) {
                libraries.add(text(read(from, Math.min(256, in.size() - from), order), 0));
            }
        }
        return libraries;
    }

    /** Where the file holds what will lie at this address; -1: nowhere. */
    private long offset(long address) {
        for (int at = 0; at < programs.capacity(); at += PROGRAM_HEADER) {
            long from = address - programs.getLong(at + 16);
            if (programs.getInt(at) == LOAD && from >= 0 && from < programs.getLong(at + 32)) {
                return programs.getLong(at + 8) + from;
            }
        }
        return -1;
    }

    private static String text(ByteBuffer bytes, int from) {
        int end = from;
        while (end < bytes.capacity() && bytes.get(end) != 0) {
            end++;
        }
        return new String(bytes.array(), from, end - from, StandardCharsets.ISO_8859_1);
    }

    private void within(long offset, long length) throws IOException {
        if (offset < 0 || length < 0 || offset > in.size() - length) {
            throw new Damaged("it is truncated: its headers describe more than its " + in.size() + " bytes");
        }
    }

    private ByteBuffer read(long offset, long length, ByteOrder order) throws IOException {
        if (offset == 0 && in.size() < length) {
            throw new Damaged("it is not an ELF file: it has " + in.size() + " bytes");
        }
        within(offset, length);
        if (length > MOST_BYTES) {
            throw new Damaged("its headers are damaged");
        }
        ByteBuffer bytes = ByteBuffer.allocate((int) length).order(order);
        in.position(offset);
        while (bytes.hasRemaining()) {
            if (in.read(bytes) < 0) {
                throw new EOFException();
            }
        }
        return bytes;
    }

    /** A file that cannot be loaded, and why. */
    static final class Damaged extends IOException {
        private static final long serialVersionUID = 1;

        Damaged(String what) {
            super(what);
        }
    }
}
