package io.keymill;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.util.List;

/**
 * One native library for all class loaders of a JVM, on Linux. A library belongs to the class loader that loaded it, and stays in memory;
 * so the first one says where the library is, and each later one loads a few bytes of its own, which jump to the function that binds its
 * natives. They are unmapped with their class loader.
 */
final class OneLibrary {
    /** A property for each library that is loaded: a class loader sees nothing else of the others. */
    private static final String PROPERTY = "io.keymill.library.";
    private static final String SYMBOL = "Java_io_keymill_Library_bind";
    /** No platform has larger pages. */
    private static final int PAGE = 1 << 16;
    /** Where the file has the section that the dynamic loader may write to. */
    private static final int DYNAMIC = 0x1000;
    private static final int HASH = 0x120;
    private static final int SYMBOLS = 0x138;
    private static final int STRINGS = 0x168;
    private static final int CODE = 0x1c0;

    private OneLibrary() {}

    /** Whether any class loader has loaded a library. */
    static boolean isAny() {
        return System.getProperties().stringPropertyNames().stream().anyMatch(name -> name.startsWith(PROPERTY));
    }

    /** Says where the function is that binds natives of the library with this content. */
    static void publish(String content, long function) throws IOException {
        String mapping = mapping(function);
        if (mapping != null) {
            System.setProperty(PROPERTY + content, Long.toHexString(function) + " " + mapping);
        }
    }

    /**
     * Where that function is; 0: no class loader of this JVM has loaded the content. A child may inherit its parent's properties, so
     * the same file has to be mapped at the same place.
     */
    static long find(String content) throws IOException {
        String published = System.getProperty(PROPERTY + content);
        if (published == null || !published.matches("[0-9a-f]{1,16} .*")) {
            return 0;
        }
        int end = published.indexOf(' ');
        long function = Long.parseUnsignedLong(published.substring(0, end), 16);
        return published.substring(end + 1).equals(mapping(function)) ? function : 0;
    }

    /** The range of executable memory that this address lies in, with its file; null: none. */
    private static String mapping(long address) throws IOException {
        List<String> lines = Files.readAllLines(Paths.get("/proc/self/maps"), StandardCharsets.ISO_8859_1);
        for (String line : lines) {
            // `start-end rights offset device inode path`
            String[] parts = line.split(" +", 6);
            String[] range = parts[0].split("-");
            boolean within = Long.compareUnsigned(address, Long.parseUnsignedLong(range[0], 16)) >= 0 && Long.compareUnsigned(address, Long.parseUnsignedLong(range[1], 16)) < 0;
            if (within) {
                return parts[1].contains("x") ? parts[0] + " " + parts[2] + " " + parts[3] + " " + parts[4] : null;
            }
        }
        return null;
    }

    /**
     * A library with the one native {@code bind(long address)} of {@link Library}, which jumps to the address with its arguments as they are; null where
     * the machine is another one.
     */
    static byte[] jump(String machine) {
        int elfMachine;
        int code;
        if (machine.equals("x86_64")) {
            elfMachine = 62;
            code = 0x0000E2FF; // jmp *%rdx
        } else if (machine.equals("aarch64")) {
            elfMachine = 183;
            code = 0xD61F0040; // br x2
        } else {
            return null;
        }
        ByteBuffer file = ByteBuffer.allocate(DYNAMIC + 6 * 16).order(ByteOrder.LITTLE_ENDIAN);
        // The header: a 64-bit shared object with four program headers and no sections.
        file.putInt(0x464C457F).put((byte) 2).put((byte) 1).put((byte) 1).position(16);
        file.putShort((short) 3).putShort((short) elfMachine).putInt(1).putLong(0).putLong(64).putLong(0).putInt(0);
        file.putShort((short) 64).putShort((short) 56).putShort((short) 4).putShort((short) 0).putShort((short) 0).putShort((short) 0);
        segment(file, 1, 5, 0, CODE + 4, PAGE);
        segment(file, 1, 6, DYNAMIC, 6 * 16, PAGE);
        segment(file, 2, 6, DYNAMIC, 6 * 16, 8);
        // The stack is not executable.
        file.putInt(0x6474E551).putInt(6).putLong(0).putLong(0).putLong(0).putLong(0).putLong(0).putLong(16);
        // A hash table with one bucket, whose only symbol is the second one.
        file.position(HASH);
        file.putInt(1).putInt(2).putInt(1).putInt(0).putInt(0);
        // A function that all may call, in a section that is not 0.
        file.position(SYMBOLS + 24);
        file.putInt(1).put((byte) 0x12).put((byte) 0).putShort((short) 1).putLong(CODE).putLong(4);
        byte[] name = SYMBOL.getBytes(StandardCharsets.US_ASCII);
        file.position(STRINGS + 1);
        file.put(name);
        file.position(CODE);
        file.putInt(code);
        file.position(DYNAMIC);
        file.putLong(4).putLong(HASH).putLong(5).putLong(STRINGS).putLong(6).putLong(SYMBOLS).putLong(10).putLong(name.length + 2).putLong(11).putLong(24).putLong(0).putLong(0);
        return file.array();
    }

    /** A program header; what is not at the beginning lies in a page of its own. */
    private static void segment(ByteBuffer file, int type, int rights, long offset, long length, long align) {
        long address = offset == 0 ? 0 : PAGE + offset;
        file.putInt(type).putInt(rights).putLong(offset).putLong(address).putLong(address).putLong(length).putLong(length).putLong(align);
    }
}
