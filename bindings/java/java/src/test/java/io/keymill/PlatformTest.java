package io.keymill;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Which library is chosen, by the headers of the program that runs; and what the jar says to GraalVM. */
class PlatformTest {
    private static final int X86_64 = 62;
    private static final int AARCH64 = 183;

    @TempDir
    Path folder;

    /** A program as small as its headers, with this interpreter (or none) and these libraries. */
    private static byte[] elf(int machine, String interpreter, String... needed) {
        ByteBuffer file = ByteBuffer.allocate(1024).order(ByteOrder.LITTLE_ENDIAN);
        file.putInt(0, 0x464C457F).put(4, (byte) 2).put(5, (byte) 1).putShort(18, (short) machine);
        file.putLong(32, 64).putShort(54, (short) 56);
        int headers = 0;
        // One segment holds the file, at address 0x10000.
        header(file, headers++, 1, 0, 0x10000, 1024);
        int at = 512;
        if (interpreter != null) {
            header(file, headers++, 3, at, 0, interpreter.length() + 1);
            put(file, at, interpreter);
            at += 64;
        }
        if (needed.length > 0) {
            int strings = at;
            header(file, headers++, 2, at + 256, 0, (needed.length + 2) * 16L);
            ByteBuffer tags = file.duplicate().order(ByteOrder.LITTLE_ENDIAN);
            tags.position(at + 256);
            int name = 1;
            for (String library : needed) {
                tags.putLong(1).putLong(name);
                put(file, strings + name, library);
                name += library.length() + 1;
            }
            tags.putLong(5).putLong(0x10000 + strings).putLong(0).putLong(0);
        }
        file.putShort(56, (short) headers);
        return file.array();
    }

    private static void header(ByteBuffer file, int number, int type, long offset, long address, long length) {
        int at = 64 + number * 56;
        file.putInt(at, type).putLong(at + 8, offset).putLong(at + 16, address).putLong(at + 32, length);
    }

    private static void put(ByteBuffer file, int at, String text) {
        byte[] bytes = text.getBytes(StandardCharsets.US_ASCII);
        for (int i = 0; i < bytes.length; i++) {
            file.put(at + i, bytes[i]);
        }
    }

    private Platform on(byte[] program) throws IOException {
        return new Platform("Linux", "amd64", Files.write(folder.resolve("program"), program));
    }

    @Test
    void the_interpreter_of_the_program_says_which_libc() throws IOException {
        assertEquals(List.of("linux-x86_64"), on(elf(X86_64, "/lib64/ld-linux-x86-64.so.2")).candidates());
        assertEquals(List.of("linux-x86_64"), on(elf(X86_64, "/nix/store/abc-glibc/lib/ld-linux-x86-64.so.2", "libc.so.6")).candidates());
        assertEquals(List.of("linux-x86_64-musl"), on(elf(X86_64, "/lib/ld-musl-x86_64.so.1")).candidates());
        // What the program is linked to does not matter: Alpine's compatibility layer has a library of that name.
        assertEquals(List.of("linux-x86_64-musl"), on(elf(X86_64, "/lib/ld-musl-x86_64.so.1", "libc.so.6")).candidates());
        Path arm = Files.write(folder.resolve("arm"), elf(AARCH64, "/lib/ld-musl-aarch64.so.1"));
        assertEquals(List.of("linux-aarch64-musl"), new Platform("Linux", "aarch64", arm).candidates());
        assertEquals(List.of("macos-aarch64"), new Platform("Mac OS X", "aarch64", arm).candidates());
    }

    @Test
    void where_the_program_does_not_say_both_are_tried() throws IOException {
        List<String> both = List.of("linux-x86_64", "linux-x86_64-musl");
        assertEquals(both, on(elf(X86_64, null)).candidates());
        assertEquals(both, on(elf(X86_64, "/system/bin/linker64")).candidates());
        assertEquals(both, on(new byte[0]).candidates());
        assertEquals(both, on("#!/bin/sh\n".getBytes(StandardCharsets.US_ASCII)).candidates());
        assertEquals(both, on(Arrays.copyOf(elf(X86_64, "/lib/ld-musl-x86_64.so.1"), 600)).candidates());
        Platform none = new Platform("Linux", "amd64", folder.resolve("missing"));
        assertEquals(both, none.candidates());
        assertTrue(none.toString().contains("missing cannot be read: no such file"), none.toString());
    }

    @Test
    void this_process_is_known() throws IOException {
        Platform here = Library.platform();
        assumeTrue(here.linux, "not run: no Linux");
        Elf program = Elf.read(Paths.get("/proc/self/exe"));
        assertEquals(here.machine, program.machine);
        assertNotNull(program.interpreter);
        assertEquals(1, here.candidates().size(), here.toString());
    }

    @Test
    void a_library_says_what_it_is_linked_to() throws IOException {
        Path file = folder.resolve("library.so");
        Elf glibc = Elf.read(Files.write(file, elf(X86_64, null, "libgcc_s.so.1", "libc.so.6")));
        assertEquals(List.of("libgcc_s.so.1", "libc.so.6"), glibc.needed);
        assertEquals("glibc", glibc.libc());
        assertEquals("musl", Elf.read(Files.write(file, elf(AARCH64, null, "libc.so"))).libc());
        assertEquals("musl", Elf.read(Files.write(file, elf(AARCH64, null, "libc.musl-aarch64.so.1"))).libc());
        assertEquals("aarch64", Elf.read(file).machine);
        assertEquals("ELF machine 243", Elf.read(Files.write(file, elf(243, null))).machine);
    }

    /** The libraries that were built for other platforms, where ci/package has built any. */
    @Test
    void the_libraries_of_all_platforms_are_what_their_folders_say() throws IOException {
        for (String platform : Platform.ALL) {
            try (InputStream library = Library.class.getResourceAsStream("native/" + platform + "/libkeymill_java.so")) {
                if (library != null) {
                    Elf elf = Elf.read(Files.write(folder.resolve(platform), library.readAllBytes()));
                    assertEquals(platform, "linux-" + elf.machine + ("musl".equals(elf.libc()) ? "-musl" : ""));
                    assertNotNull(elf.libc());
                }
            }
        }
    }

    @Test
    void damaged_files_are_refused_and_never_trusted() throws IOException {
        byte[] whole = elf(X86_64, "/lib64/ld-linux-x86-64.so.2", "libc.so.6");
        Path file = folder.resolve("damaged");
        for (int length = 0; length < whole.length; length += length < 70 ? 1 : 31) {
            Files.write(file, Arrays.copyOf(whole, length));
            IOException says = assertThrows(IOException.class, () -> Elf.read(file), "of " + length + " bytes");
            assertTrue(says.getMessage().contains(length < 64 ? "not an ELF file" : "truncated"), says.getMessage());
        }
        Random random = new Random(1);
        for (int turn = 0; turn < 500; turn++) {
            byte[] wrong = whole.clone();
            for (int i = 0; i < 4; i++) {
                wrong[4 + random.nextInt(turn % 2 == 0 ? 240 : wrong.length - 4)] = (byte) random.nextInt();
            }
            Files.write(file, wrong);
            try {
                Elf.read(file).libc();
            } catch (IOException e) {
                assertNotNull(e.getMessage());
            }
        }
    }

    @Test
    void a_relocated_package_is_named() {
        Library.refuseRelocation("io.keymill.Library");
        KeymillException says = assertThrows(KeymillException.class, () -> Library.refuseRelocation("shop.shaded.io.keymill.Library"));
        assertTrue(says.getMessage().contains("relocated") && says.getMessage().contains("shop.shaded"), says.getMessage());
    }

    /** The members that schema 1.2.0 of the metadata allows, and that what they name exists. */
    @Test
    void the_metadata_for_native_images_names_what_the_jar_has() throws Exception {
        String at = "/META-INF/native-image/io.keymill/keymill/";
        JsonObject metadata;
        try (InputStreamReader text = new InputStreamReader(Library.class.getResourceAsStream(at + "reachability-metadata.json"))) {
            metadata = JsonParser.parseReader(text).getAsJsonObject();
        }
        only(metadata, "comment", "reflection", "resources");
        for (JsonElement one : metadata.getAsJsonArray("reflection")) {
            JsonObject type = one.getAsJsonObject();
            only(type, "type", "reason", "jniAccessible", "methods");
            if (type.get("type").isJsonObject()) {
                only(type.getAsJsonObject("type"), "proxy");
                for (JsonElement proxied : type.getAsJsonObject("type").getAsJsonArray("proxy")) {
                    assertTrue(Class.forName(proxied.getAsString()).isInterface());
                }
                continue;
            }
            Class<?> named = Class.forName(type.get("type").getAsString());
            for (JsonElement method : type.getAsJsonArray("methods")) {
                only(method.getAsJsonObject(), "name", "parameterTypes");
                assertEquals("<init>", method.getAsJsonObject().get("name").getAsString());
                assertTrue(Arrays.stream(named.getDeclaredConstructors()).anyMatch(constructor -> {
                    JsonArray names = new JsonArray();
                    Arrays.stream(constructor.getParameterTypes()).forEach(parameter -> names.add(parameter.getName()));
                    return names.equals(method.getAsJsonObject().get("parameterTypes"));
                }), method.toString());
            }
        }
        Set<String> globs = new TreeSet<>();
        for (JsonElement one : metadata.getAsJsonArray("resources")) {
            only(one.getAsJsonObject(), "glob", "reason");
            globs.add(one.getAsJsonObject().get("glob").getAsString());
        }
        assertEquals(Set.of("io/keymill/native/**", "io/keymill/version"), globs);
        assertNotNull(Library.class.getResource("/io/keymill/version"));
        Properties properties = new Properties();
        try (InputStream text = Library.class.getResourceAsStream(at + "native-image.properties")) {
            properties.load(text);
        }
        assertEquals("--initialize-at-run-time=" + Library.class.getName(), properties.getProperty("Args"));
    }

    private static void only(JsonObject object, String... members) {
        assertTrue(Set.of(members).containsAll(object.keySet()), object.keySet().toString());
    }
}
