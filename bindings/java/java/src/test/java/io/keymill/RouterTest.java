package io.keymill;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.Scanner;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.api.io.TempDir;

/** Genes and routers. */
class RouterTest {
    private static String table(int version) {
        return "version = " + version + "\n[[range]]\nupper = 65535\nshard = \"s" + version + "\"\n";
    }

    private static void refused(Code code, Executable verb) {
        assertEquals(code, assertThrows(KeymillException.class, verb).code());
    }

    @Test
    void what_is_no_key_is_refused() {
        Router router = Router.fromText(table(1));
        char[] many = new char[65537];
        Arrays.fill(many, 'k');
        for (String key : Arrays.asList(null, new String(many), "\ud800")) {
            refused(Code.INVALID_ARGUMENT, () -> Gene.of(key));
            refused(Code.INVALID_ARGUMENT, () -> router.routeKey(key));
        }
    }

    @Test
    void what_is_no_id_is_refused() {
        Router router = Router.fromText(table(1));
        refused(Code.INVALID_ARGUMENT, () -> router.route(-1));
        refused(Code.INVALID_ARGUMENT, () -> router.route((byte[]) null));
        for (int length : new int[] {0, 7, 9, 15, 17}) {
            refused(Code.INVALID_ARGUMENT, () -> router.route(new byte[length]));
        }
        for (int bit : new int[] {63, 110, 127, 128, 200}) {
            refused(Code.INVALID_ARGUMENT, () -> router.routeWide(BigInteger.ONE.shiftLeft(bit)));
        }
        refused(Code.INVALID_ARGUMENT, () -> router.routeWide(BigInteger.ONE.negate()));
        refused(Code.INVALID_ARGUMENT, () -> router.routeWide(null));
    }

    @Test
    void ids_of_either_length_find_the_shard_of_their_key() {
        Router router = Router.fromText(table(3));
        Route key = router.routeKey("buyer-42");
        assertEquals("Route(gene=56443, shard=s3, read=s3, write=s3, version=3)", key.toString());
        assertFalse(key.also().isPresent());
        assertFalse(key.mirror().isPresent());
        long narrow = 56443L << 47 | 9;
        BigInteger wide = BigInteger.valueOf(56443).shiftLeft(111).or(BigInteger.valueOf(9));
        byte[] bytes = ByteBuffer.allocate(8).putLong(narrow).array();
        for (Route route : Arrays.asList(router.route(narrow), router.route(bytes), router.routeWide(wide), router.route(wide.toByteArray()))) {
            assertEquals(key.toString(), route.toString());
        }
    }

    @Test
    void a_bad_table_is_refused_and_the_old_one_stays() {
        Router router = Router.fromText(table(3));
        for (String text : Arrays.asList("", "version = 4", table(2), table(3).replace("s3", "x"))) {
            refused(Code.INVALID_CONFIG, () -> router.load(text));
            assertEquals("s3", router.route(1).shard());
        }
        refused(Code.INVALID_ARGUMENT, () -> router.load(null));
        assertFalse(router.load(table(3)));
        assertTrue(router.load(table(4)));
        assertEquals(4, router.version());
        assertFalse(router.age().isPresent());
    }

    @Test
    void a_file_is_read_and_a_store_without_the_table_says_so(@TempDir Path folder) throws IOException {
        Path file = folder.resolve("routes.toml");
        refused(Code.INVALID_ARGUMENT, () -> Router.open(file.toString()));
        Files.write(file, table(5).getBytes(StandardCharsets.UTF_8));
        assertEquals(5, Router.open(file.toString()).version());
        try (Mill mill = Mill.open("memory:")) {
            refused(Code.STORE_REFUSED, () -> mill.router("orders"));
            refused(Code.INVALID_ARGUMENT, () -> mill.router(null));
            mill.close();
            refused(Code.CLOSED, () -> mill.router("orders"));
        }
    }

    @Test
    void a_mill_follows_the_table_in_its_store(@TempDir Path folder) throws Exception {
        String store = "sqlite:" + folder.resolve("ids.db") + "?durability=warn";
        put(store, folder, table(1));
        Router router;
        try (Mill mill = Mill.open(store)) {
            router = mill.router("orders");
            assertEquals("s1", router.routeKey(42).shard());
            assertTrue(router.age().isPresent());
            assertEquals(router.version(), mill.router("orders").version());
            put(store, folder, table(2));
            Checks.until("the newer table", 180, () -> router(mill).version() == 2);
            assertEquals("s2", router.route(1).shard());
        }
        assertEquals("s2", router.route(1).read());
    }

    @Test
    void a_process_that_ends_with_an_open_mill_leaves_no_reader(@TempDir Path folder) throws Exception {
        String store = "sqlite:" + folder.resolve("ids.db") + "?durability=warn";
        put(store, folder, table(1));
        String java = Paths.get(System.getProperty("java.home"), "bin", "java").toString();
        for (String end : Arrays.asList("returns", "exits", "throws", "is terminated")) {
            Process process = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), "io.keymill.Following", store, end)
                    // On standard error a newer JVM warns of native code.
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start();
            if (end.equals("is terminated")) {
                assertTrue(process.getInputStream().read() == 'f', end);
                process.destroy();
            }
            process.waitFor();
            assertFalse(status(store).contains("reader:"), end);
        }
    }

    private static String status(String store) throws Exception {
        Process process = new ProcessBuilder("keymill", "--mill", store, "move", "status", "orders").start();
        try (Scanner answer = new Scanner(process.getInputStream(), "UTF-8").useDelimiter("\\A")) {
            return answer.next();
        }
    }

    private static Router router(Mill mill) {
        return mill.router("orders");
    }

    /** As an operator does; the command is in the path. */
    private static void put(String store, Path folder, String table) throws Exception {
        Path file = folder.resolve("routes.toml");
        Files.write(file, table.getBytes(StandardCharsets.UTF_8));
        String[] words = {"keymill", "--mill", store, "route", "put", "orders", file.toString(), "--yes"};
        assertEquals(0, new ProcessBuilder(words).inheritIO().start().waitFor());
    }
}
