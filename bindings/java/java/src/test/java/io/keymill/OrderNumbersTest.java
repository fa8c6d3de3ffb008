package io.keymill;

import static io.keymill.Checks.refused;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class OrderNumbersTest {
    private static final long ID = 7943646055239778305L;
    private static final String SECRET = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

    private static byte[] secret() {
        byte[] secret = new byte[32];
        for (int i = 0; i < secret.length; i++) {
            secret[i] = (byte) i;
        }
        return secret;
    }

    private static OrderNumbers numbers() {
        return OrderNumbers.fromKeys(Collections.singletonMap(1, secret()), 1, "acme", "orders");
    }

    @Test
    void a_key_file_is_private_and_gives_the_numbers_of_its_keys(@TempDir Path folder) throws Exception {
        Path file = folder.resolve("keys.toml");
        refused(Code.INVALID_ARGUMENT, () -> OrderNumbers.open(file.toString(), "", ""));
        Files.write(file, ("seal_with = 1\n[key]\n1 = \"" + SECRET + "\"\n").getBytes(StandardCharsets.UTF_8));
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
        OrderNumbers opened = OrderNumbers.open(file.toString(), "acme", "orders");
        assertArrayEquals(numbers().seal(ID), opened.seal(ID));
        assertEquals("6WFC0Z3J6MZTAKV7NK3VWK76VB", opened.sealText(ID));
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-r--r--"));
        KeymillException exposed = refused(Code.INVALID_CONFIG, () -> OrderNumbers.open(file.toString(), "acme", "orders"));
        assertTrue(exposed.getMessage().contains("chmod 600"), exposed.getMessage());
        assertFalse(exposed.getMessage().contains(SECRET.substring(0, 8)), exposed.getMessage());
        refused(Code.INVALID_CONFIG, () -> OrderNumbers.fromEnv("", ""));
    }

    @Test
    void a_changed_number_is_forged() {
        byte[] sealed = numbers().seal(ID);
        assertEquals(ID, numbers().unseal(sealed));
        sealed[9] ^= 4;
        refused(Code.FORGED, () -> numbers().unseal(sealed));
        refused(Code.FORGED, () -> numbers().unsealAll(new byte[][] {numbers().seal(1), sealed}));
        refused(Code.FORGED, () -> numbers().unsealWide(numbers().seal(ID)));
        refused(Code.FORGED, () -> numbers().unsealText("6WFC0Z3J6MZTAKV7NK3VWK76VC"));
    }

    @Test
    void ids_of_128_bits_are_bytes_and_big_integers() {
        BigInteger id = BigInteger.valueOf(56443).shiftLeft(111).or(BigInteger.valueOf(42));
        byte[] sealed = numbers().sealWide(id);
        assertArrayEquals(sealed, numbers().sealWide(Router.wide(id)));
        assertEquals(id, new BigInteger(numbers().unsealWide(sealed)));
        assertEquals(id, new BigInteger(numbers().unsealWideText(numbers().sealWideText(Router.wide(id)))));
    }

    @Test
    void a_batch_is_what_one_by_one_gives() {
        long[] ids = new long[300];
        for (int i = 0; i < ids.length; i++) {
            ids[i] = ((long) i << 47) + i;
        }
        byte[][] sealed = numbers().sealAll(ids);
        for (int i = 0; i < ids.length; i++) {
            assertArrayEquals(numbers().seal(ids[i]), sealed[i]);
        }
        assertArrayEquals(ids, numbers().unsealAll(sealed));
        assertArrayEquals(ids, numbers().unseal8All(numbers().seal8All(ids)));
        assertEquals(numbers().seal8(ids[7]), numbers().seal8All(ids)[7]);
    }

    @Test
    void a_rotation_keeps_old_numbers_and_a_version_can_be_chosen() {
        Map<Integer, byte[]> keys = new HashMap<>();
        keys.put(1, secret());
        keys.put(2, new byte[32]);
        OrderNumbers both = OrderNumbers.fromKeys(keys, 2, "acme", "orders");
        assertEquals(2, both.version());
        assertEquals(ID, both.unseal(numbers().seal(ID)));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unseal(both.seal(ID)));
        refused(Code.INVALID_ARGUMENT, () -> both.unseal8(1));
        OrderNumbers first = both.withVersion(1);
        assertEquals(ID, first.unseal8(numbers().seal8(ID)));
        assertArrayEquals(numbers().seal(ID), first.seal(ID));
        assertEquals("OrderNumbers(version 1)", first.toString());
        for (int version : new int[] {-1, 0, 3, 256}) {
            refused(Code.INVALID_ARGUMENT, () -> both.withVersion(version));
        }
    }

    @Test
    void what_is_no_key_no_id_and_no_order_number_is_refused() {
        refused(Code.INVALID_ARGUMENT, () -> OrderNumbers.fromKeys(null, 1, "", ""));
        for (Map<Integer, byte[]> keys : Arrays.asList(
                Collections.<Integer, byte[]>emptyMap(),
                Collections.singletonMap(1, new byte[31]),
                Collections.singletonMap(2, secret()),
                Collections.singletonMap(257, secret()),
                Collections.singletonMap(1, (byte[]) null),
                Collections.singletonMap((Integer) null, secret()))) {
            refused(Code.INVALID_ARGUMENT, () -> OrderNumbers.fromKeys(keys, 1, "", ""));
        }
        refused(Code.INVALID_ARGUMENT, () -> OrderNumbers.fromKeys(Collections.singletonMap(1, secret()), 257, "", ""));
        refused(Code.INVALID_ARGUMENT, () -> OrderNumbers.fromKeys(Collections.singletonMap(1, secret()), 1, null, ""));
        refused(Code.INVALID_ARGUMENT, () -> OrderNumbers.fromKeys(Collections.singletonMap(1, secret()), 1, "", "\u001f"));
        refused(Code.INVALID_ARGUMENT, () -> OrderNumbers.open(null, "", ""));
        refused(Code.INVALID_ARGUMENT, () -> numbers().seal(-1));
        refused(Code.INVALID_ARGUMENT, () -> numbers().seal8(-1));
        refused(Code.INVALID_ARGUMENT, () -> numbers().sealWide((byte[]) null));
        refused(Code.INVALID_ARGUMENT, () -> numbers().sealWide(new byte[15]));
        refused(Code.INVALID_ARGUMENT, () -> numbers().sealWideText(new byte[17]));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unseal(null));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unseal(new byte[8]));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unsealAll(new byte[][] {numbers().seal(1), new byte[15]}));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unsealAll(new byte[][] {null}));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unsealAll(null));
        refused(Code.INVALID_ARGUMENT, () -> numbers().sealAll(null));
        refused(Code.INVALID_ARGUMENT, () -> numbers().seal8All(null));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unseal8All(null));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unsealText(null));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unsealText("\ud800"));
        refused(Code.INVALID_ARGUMENT, () -> numbers().unseal8Text("6WFE337S3ST0HT"));
    }

    @Test
    void a_router_reads_the_gene_without_a_key() {
        Router router = Router.fromText("version = 7\n[[range]]\nupper = 65535\nshard = \"s1\"\n");
        OrderNumbers numbers = numbers();
        for (Route route : Arrays.asList(
                router.routeOrderNo(numbers.seal(ID)),
                router.routeOrderNo(numbers.seal8(ID)),
                router.routeOrderNo(numbers.sealText(ID)),
                router.routeOrderNo(numbers.seal8Text(ID)))) {
            assertEquals(56443, route.gene());
            assertEquals("s1", route.shard());
        }
        refused(Code.INVALID_ARGUMENT, () -> router.routeOrderNo((byte[]) null));
        refused(Code.INVALID_ARGUMENT, () -> router.routeOrderNo(new byte[16]));
        refused(Code.INVALID_ARGUMENT, () -> router.routeOrderNo(-1));
        refused(Code.INVALID_ARGUMENT, () -> router.routeOrderNo((String) null));
    }
}
