package io.keymill;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Natives that belong to no mill, and how texts cross. */
final class Native {
    private Native() {}

    static native String version();

    static native String codes();

    /** The address of the function that binds the natives of another class loader. */
    static native long binder();

    static native String spec(byte[] kind, byte[] name, byte[] options);

    static native String storeOf(byte[] url, byte[] properties);

    static native long address(ByteBuffer direct);

    static native ByteBuffer word(long address);

    /** The address of a notifier of {@link Waiters}, which has no natives: a class loader that binds them would make it before they are bound. */
    static native long notifier();

    /** The tokens that have news; waits for news at most so long. */
    static native long[] awaitNews(long notifier, long nanos);

    static native void tell(long notifier, long token);

    /** Text for the native library; what UTF-8 cannot hold would silently become another name. */
    static byte[] utf8(String text, String what) {
        if (text == null) {
            throw KeymillException.argument(what + " is null");
        }
        try {
            ByteBuffer bytes = StandardCharsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text));
            byte[] out = new byte[bytes.remaining()];
            bytes.get(out);
            return out;
        } catch (CharacterCodingException e) {
            throw KeymillException.argument(what + " holds half of a surrogate pair");
        }
    }

    /** The bytes of a business key. Quick for keys without characters above U+FFFF. */
    static byte[] key(String key) {
        if (key == null) {
            throw KeymillException.argument("the key is null");
        }
        for (int i = 0; i < key.length(); i++) {
            if (Character.isSurrogate(key.charAt(i))) {
                return utf8(key, "the key");
            }
        }
        return key.getBytes(StandardCharsets.UTF_8);
    }

    /** The spec string of a kind, the parts of a name, and options; everything is encoded where it must be. */
    static String spec(String kind, List<String> name, Map<String, String> options) {
        ByteArrayOutputStream parts = new ByteArrayOutputStream();
        ByteArrayOutputStream pairs = new ByteArrayOutputStream();
        for (String part : name) {
            append(parts, part, "a part of the name");
        }
        for (Map.Entry<String, String> option : options.entrySet()) {
            append(pairs, option.getKey(), "the name of an option");
            append(pairs, option.getValue(), "option " + option.getKey());
        }
        return spec(utf8(kind, "kind"), parts.toByteArray(), pairs.toByteArray());
    }

    /** The mill in the application's database. No message repeats a property's value. */
    static String storeOf(String url, Map<String, String> properties) {
        ByteArrayOutputStream pairs = new ByteArrayOutputStream();
        for (Map.Entry<String, String> property : properties.entrySet()) {
            append(pairs, property.getKey(), "the name of a property");
            append(pairs, property.getValue(), "the property " + property.getKey());
        }
        return storeOf(utf8(url, "the URL"), pairs.toByteArray());
    }

    private static void append(ByteArrayOutputStream out, String text, String what) {
        byte[] bytes = utf8(text, what);
        out.write(bytes, 0, bytes.length);
        out.write(0xFF);
    }

    /** Rows of name and value, as the native library sends them. */
    static String[][] rows(String text) {
        if (text.isEmpty()) {
            return new String[0][];
        }
        String[] lines = text.split("\u001e");
        String[][] rows = new String[lines.length][];
        for (int i = 0; i < lines.length; i++) {
            rows[i] = lines[i].split("\u001f", 2);
        }
        return rows;
    }

    static Map<String, String> map(String text) {
        Map<String, String> map = new LinkedHashMap<>();
        for (String[] row : rows(text)) {
            map.put(row[0], row[1]);
        }
        return map;
    }
}
