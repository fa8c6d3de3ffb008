package io.keymill;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.fail;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Plays tests/vectors, which every language plays. */
class VectorsTest {
    private static final Path FOLDER = Paths.get(System.getProperty("keymill.root", "../../.."), "tests", "vectors");

    @TestFactory
    List<DynamicTest> every_case_is_as_it_says() throws IOException {
        List<DynamicTest> cases = new ArrayList<>();
        List<Path> files;
        try (Stream<Path> all = Files.list(FOLDER)) {
            files = all.filter(file -> file.toString().endsWith(".json")).sorted().collect(Collectors.toList());
        }
        assertFalse(files.isEmpty(), "no vectors in " + FOLDER);
        for (Path file : files) {
            String stem = file.getFileName().toString().replace(".json", "");
            try (Reader text = Files.newBufferedReader(file)) {
                for (JsonElement one : JsonParser.parseReader(text).getAsJsonObject().getAsJsonArray("cases")) {
                    JsonObject vector = one.getAsJsonObject();
                    String name = stem + "/" + vector.get("name").getAsString();
                    cases.add(DynamicTest.dynamicTest(name, () -> play(name, vector)));
                }
            }
        }
        return cases;
    }

    private static void play(String name, JsonObject vector) throws IOException {
        try (Stage stage = new Stage()) {
            if (vector.has("mill")) {
                stage.mill = Mill.open(vector.get("mill").getAsString());
            }
            for (JsonElement step : vector.getAsJsonArray("steps")) {
                expect(stage, step.getAsJsonObject());
            }
        }
        String ran = System.getenv("KEYMILL_VECTORS_RAN");
        if (ran != null) {
            Files.write(
                    Paths.get(ran),
                    (name + "\n").getBytes(StandardCharsets.UTF_8),
                    StandardOpenOption.CREATE,
                    StandardOpenOption.APPEND);
        }
    }

    private static void expect(Stage stage, JsonObject step) {
        JsonElement answer;
        try {
            answer = stage.step(step);
        } catch (KeymillException e) {
            if (!step.has("error") || !step.get("error").getAsString().equals(e.code().name())) {
                throw new AssertionError(step + " answered " + e.getMessage(), e);
            }
            if (e.getMessage().chars().anyMatch(Character::isISOControl)) {
                throw new AssertionError(step + " says more than one line: " + e.getMessage(), e);
            }
            // What is not ready has no message in Java: tryNext answers with nothing.
            if (step.has("says") && e.code() != Code.NOT_READY && !e.getMessage().contains(step.get("says").getAsString())) {
                throw new AssertionError(step + " says: " + e.getMessage(), e);
            }
            return;
        }
        if (step.has("error")) {
            fail(step + " answered " + answer);
        }
        if (step.has("is") && !step.get("is").equals(answer)) {
            fail(step + " answered " + answer);
        }
    }

    /** What the steps act on. */
    private static final class Stage implements AutoCloseable {
        private Mill mill;
        private final Map<String, Source> sources = new HashMap<>();
        private final Map<String, Router> routers = new HashMap<>();
        private final Map<String, OrderNumbers> numbers = new HashMap<>();

        JsonElement step(JsonObject step) {
            switch (text(step, "do")) {
                case "open":
                    close();
                    mill = Mill.open(text(step, "config"));
                    return null;
                case "close":
                    mill.close();
                    return null;
                case "source":
                    sources.put(text(step, "as"), mill.source(text(step, "spec")));
                    return null;
                case "store_of":
                    Map<String, String> properties = new LinkedHashMap<>();
                    if (step.has("properties")) {
                        for (JsonElement pair : step.getAsJsonArray("properties")) {
                            JsonArray property = pair.getAsJsonArray();
                            properties.put(property.get(0).getAsString(), property.get(1).getAsString());
                        }
                    }
                    return new JsonPrimitive(Mill.storeOf(text(step, "url"), properties));
                case "next":
                    return new JsonPrimitive(source(step).nextText());
                case "try_next":
                    return tryNext(source(step));
                case "take":
                    return take(source(step), Integer.parseInt(text(step, "count")));
                case "next_for":
                    Business ids = new Business(source(step).box());
                    return new JsonPrimitive(
                            Long.toString(step.has("key") ? ids.next(key(step)) : ids.next(keyText(step))));
                case "try_next_for":
                    return tryNextFor(new Business(source(step).box()), step);
                case "take_for":
                    return takeFor(new Business(source(step).box()), step, Integer.parseInt(text(step, "count")));
                case "next_text":
                    return new JsonPrimitive(source(step).nextText());
                case "take_text":
                    return array(source(step).takeText(Integer.parseInt(text(step, "count"))));
                case "next_text_for":
                    Business written = new Business(source(step).box());
                    return new JsonPrimitive(
                            step.has("key") ? written.nextText(key(step)) : written.nextText(keyText(step)));
                case "take_text_for":
                    Business many = new Business(source(step).box());
                    int wanted = Integer.parseInt(text(step, "count"));
                    return array(
                            step.has("key") ? many.takeText(key(step), wanted) : many.takeText(keyText(step), wanted));
                case "parse_number":
                    JsonObject made = new JsonObject();
                    source(step).parse(Long.parseLong(text(step, "id"))).fields().forEach(made::addProperty);
                    return made;
                case "text_of":
                    return new JsonPrimitive(source(step).textOf(Long.parseUnsignedLong(text(step, "id"))));
                case "next_wide_for":
                    Business wide = new Business(source(step).box());
                    return new JsonPrimitive((step.has("key")
                                    ? wide.nextWideInteger(key(step))
                                    : wide.nextWideInteger(keyText(step)))
                            .toString());
                case "take_wide_for":
                    return takeWideFor(new Business(source(step).box()), step, Integer.parseInt(text(step, "count")));
                case "parse":
                    JsonObject parts = new JsonObject();
                    source(step).parse(text(step, "id")).fields().forEach(parts::addProperty);
                    return parts;
                case "clock_set":
                    mill.setClock(Long.parseLong(text(step, "ms")));
                    return null;
                case "clock_advance":
                    mill.advanceClock(Long.parseLong(text(step, "ms")));
                    return null;
                case "gene":
                    return new JsonPrimitive(
                            Integer.toString(step.has("key_text") ? Gene.of(keyText(step)) : Gene.of(key(step))));
                case "router":
                    routers.put(text(step, "as"), Router.fromText(text(step, "table")));
                    return null;
                case "load":
                    router(step).load(text(step, "table"));
                    return null;
                case "route":
                    return shown(router(step).route(Long.parseUnsignedLong(text(step, "id"))));
                case "is_current": {
                    Route route = router(step).route(Long.parseUnsignedLong(text(step, "id")));
                    router(step).load(text(step, "table"));
                    return new JsonPrimitive(router(step).isCurrent(route) ? "yes" : "no");
                }
                case "route_wide":
                    return shown(router(step).routeWide(new BigInteger(text(step, "id"))));
                case "route_key":
                    return shown(step.has("key_text") ? router(step).routeKey(keyText(step)) : router(step).routeKey(key(step)));
                case "document":
                    document(step);
                    return null;
                case "spec":
                    return spec(step);
                case "route_order_no":
                    return shown(routeOrderNo(router(step), step));
                case "numbers":
                    numbers.put(text(step, "as"), opened(step));
                    return null;
                default:
                    return sealing(text(step, "do"), step);
            }
        }

        /** Reads the text that the step's pieces make, each so many times. */
        private static void document(JsonObject step) {
            StringBuilder pieces = new StringBuilder();
            for (JsonElement piece : step.getAsJsonArray("text")) {
                JsonArray both = piece.getAsJsonArray();
                for (int left = both.get(1).getAsInt(); left > 0; left--) {
                    pieces.append(both.get(0).getAsString());
                }
            }
            String text = pieces.toString();
            switch (text(step, "kind")) {
                case "routes":
                    onASmallStack(() -> Router.fromText(text));
                    return;
                case "load":
                    onASmallStack(() -> Router.fromText(text(step, "table")).load(text));
                    return;
                case "keys":
                    inAFile(text, path -> OrderNumbers.open(path, "", ""));
                    return;
                case "config":
                    inAFile(text, path -> Mill.open("file:" + path).close());
                    return;
                default:
                    throw new AssertionError(step + " is no document");
            }
        }

        /** Reads a file of this text, which only this user can read. */
        private static void inAFile(String text, Consumer<String> read) {
            try {
                // Of mode 600.
                Path file = Files.createTempFile("keymill-vectors", ".toml");
                try {
                    Files.write(file, text.getBytes(StandardCharsets.UTF_8));
                    onASmallStack(() -> read.accept(file.toString()));
                } finally {
                    Files.delete(file);
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }

        /** Runs it in a thread with a stack of 256 KiB, and throws what it throws. */
        private static void onASmallStack(Runnable work) {
            AtomicReference<KeymillException> thrown = new AtomicReference<>();
            Runnable caught = () -> {
                try {
                    work.run();
                } catch (KeymillException e) {
                    thrown.set(e);
                }
            };
            Thread thread = new Thread(null, caught, "small stack", 256 * 1024);
            thread.start();
            try {
                thread.join();
            } catch (InterruptedException e) {
                throw new AssertionError(e);
            }
            if (thrown.get() != null) {
                throw thrown.get();
            }
        }

        private static JsonArray array(String[] texts) {
            JsonArray array = new JsonArray();
            for (String text : texts) {
                array.add(text);
            }
            return array;
        }

        private static Route routeOrderNo(Router router, JsonObject step) {
            if (step.has("number")) {
                return router.routeOrderNo(Long.parseUnsignedLong(text(step, "number")));
            }
            return step.has("text") ? router.routeOrderNo(text(step, "text")) : router.routeOrderNo(bytes(text(step, "no")));
        }

        private static OrderNumbers opened(JsonObject step) {
            Map<Integer, byte[]> keys = new LinkedHashMap<>();
            for (JsonElement pair : step.getAsJsonArray("keys")) {
                JsonArray both = pair.getAsJsonArray();
                keys.put(Integer.valueOf(both.get(0).getAsString()), bytes(both.get(1).getAsString()));
            }
            int sealWith = Integer.parseInt(text(step, "seal_with"));
            OrderNumbers numbers = OrderNumbers.fromKeys(keys, sealWith, text(step, "tenant"), text(step, "table"));
            return step.has("version") ? numbers.withVersion(Integer.parseInt(text(step, "version"))) : numbers;
        }

        /** The verbs of order numbers: 16 bytes are hexadecimal digits in the vectors. */
        private JsonElement sealing(String verb, JsonObject step) {
            OrderNumbers numbered = numbers.get(step.has("of") ? text(step, "of") : "");
            if (numbered == null) {
                throw new AssertionError("`" + verb + "` is no step");
            }
            switch (verb) {
                case "seal":
                    return new JsonPrimitive(hex(numbered.seal(id(step))));
                case "unseal":
                    return decimal(numbered.unseal(bytes(text(step, "no"))));
                case "seal_wide":
                    return new JsonPrimitive(hex(numbered.sealWide(new BigInteger(text(step, "id")))));
                case "unseal_wide":
                    return new JsonPrimitive(new BigInteger(numbered.unsealWide(bytes(text(step, "no")))).toString());
                case "seal8":
                    return decimal(numbered.seal8(id(step)));
                case "unseal8":
                    return decimal(numbered.unseal8(Long.parseUnsignedLong(text(step, "no"))));
                case "seal_text":
                    return new JsonPrimitive(numbered.sealText(id(step)));
                case "unseal_text":
                    return decimal(numbered.unsealText(text(step, "no")));
                case "seal_wide_text":
                    return new JsonPrimitive(numbered.sealWideText(Router.wide(new BigInteger(text(step, "id")))));
                case "unseal_wide_text":
                    return new JsonPrimitive(new BigInteger(numbered.unsealWideText(text(step, "no"))).toString());
                case "seal8_text":
                    return new JsonPrimitive(numbered.seal8Text(id(step)));
                case "unseal8_text":
                    return decimal(numbered.unseal8Text(text(step, "no")));
                case "seal_all":
                    return list(Stream.of(numbered.sealAll(longs(step, "ids"))).map(Stage::hex));
                case "unseal_all":
                    byte[][] orderNos = texts(step, "nos").map(Stage::bytes).toArray(byte[][]::new);
                    return list(LongStream.of(numbered.unsealAll(orderNos)).mapToObj(Long::toString));
                case "seal8_all":
                    return list(LongStream.of(numbered.seal8All(longs(step, "ids"))).mapToObj(Long::toString));
                case "unseal8_all":
                    return list(LongStream.of(numbered.unseal8All(longs(step, "nos"))).mapToObj(Long::toString));
                case "numbers_version":
                    return new JsonPrimitive(Integer.toString(numbered.version()));
                default:
                    throw new AssertionError("`" + verb + "` is no step");
            }
        }

        private static long id(JsonObject step) {
            return Long.parseUnsignedLong(text(step, "id"));
        }

        private static JsonElement decimal(long number) {
            return new JsonPrimitive(Long.toString(number));
        }

        private static Stream<String> texts(JsonObject step, String field) {
            List<String> all = new ArrayList<>();
            step.getAsJsonArray(field).forEach(one -> all.add(one.getAsString()));
            return all.stream();
        }

        private static long[] longs(JsonObject step, String field) {
            return texts(step, field).mapToLong(Long::parseUnsignedLong).toArray();
        }

        private static JsonElement list(Stream<String> texts) {
            JsonArray list = new JsonArray();
            texts.forEach(list::add);
            return list;
        }

        private static byte[] bytes(String digits) {
            byte[] bytes = new byte[digits.length() / 2];
            for (int i = 0; i < bytes.length; i++) {
                bytes[i] = (byte) Integer.parseInt(digits.substring(2 * i, 2 * i + 2), 16);
            }
            return bytes;
        }

        private static String hex(byte[] bytes) {
            StringBuilder digits = new StringBuilder();
            for (byte one : bytes) {
                digits.append(String.format("%02x", one));
            }
            return digits.toString();
        }

        private Router router(JsonObject step) {
            Router router = routers.get(text(step, "of"));
            if (router == null) {
                throw new AssertionError("no router is called " + text(step, "of"));
            }
            return router;
        }

        /** A key of 64 bits, with or without a sign. */
        private static long key(JsonObject step) {
            return new BigInteger(text(step, "key")).longValue();
        }

        private static String keyText(JsonObject step) {
            int times = step.has("times") ? Integer.parseInt(text(step, "times")) : 1;
            StringBuilder all = new StringBuilder();
            for (int i = 0; i < times; i++) {
                all.append(text(step, "key_text"));
            }
            return all.toString();
        }

        private static JsonElement shown(Route route) {
            JsonObject parts = new JsonObject();
            parts.addProperty("gene", Integer.toString(route.gene()));
            parts.addProperty("shard", route.shard());
            parts.addProperty("read", route.read());
            route.write().ifPresent(write -> parts.addProperty("write", write));
            if (route.paused()) {
                parts.addProperty("paused", "yes");
            }
            route.mirror().ifPresent(mirror -> parts.addProperty("mirror", mirror));
            route.also().ifPresent(also -> parts.addProperty("also", also));
            parts.addProperty("version", Long.toString(route.version()));
            return parts;
        }

        private static JsonElement tryNextFor(Business source, JsonObject step) {
            OptionalLong id = step.has("key") ? source.tryNext(key(step)) : source.tryNext(keyText(step));
            if (!id.isPresent()) {
                throw new KeymillException(Code.NOT_READY, "");
            }
            return new JsonPrimitive(Long.toString(id.getAsLong()));
        }

        private static JsonElement takeFor(Business source, JsonObject step, int count) {
            JsonArray list = new JsonArray();
            long[] ids = step.has("key") ? source.take(key(step), count) : source.take(keyText(step), count);
            for (long id : ids) {
                list.add(Long.toString(id));
            }
            return list;
        }

        private static JsonElement takeWideFor(Business source, JsonObject step, int count) {
            JsonArray list = new JsonArray();
            byte[][] ids =
                    step.has("key") ? source.takeWide(key(step), count) : source.takeWide(keyText(step), count);
            for (byte[] id : ids) {
                list.add(new BigInteger(id).toString());
            }
            return list;
        }

        private static JsonElement tryNext(Source source) {
            String text = source.box().text(Wait.NEVER);
            if (text == null) {
                throw new KeymillException(Code.NOT_READY, "");
            }
            return new JsonPrimitive(text);
        }

        private static JsonElement take(Source source, int count) {
            JsonArray list = new JsonArray();
            if (source.settings().get("kind").equals("serial")) {
                for (String text : source.takeText(count)) {
                    list.add(text);
                }
            } else {
                for (long id : source.take(count)) {
                    list.add(Long.toString(id));
                }
            }
            return list;
        }

        private static JsonElement spec(JsonObject step) {
            List<String> name = new ArrayList<>();
            step.getAsJsonArray("name").forEach(part -> name.add(part.getAsString()));
            Map<String, String> options = new LinkedHashMap<>();
            for (JsonElement pair : step.getAsJsonArray("options")) {
                options.put(pair.getAsJsonArray().get(0).getAsString(), pair.getAsJsonArray().get(1).getAsString());
            }
            return new JsonPrimitive(Native.spec(text(step, "kind"), name, options));
        }

        private Source source(JsonObject step) {
            return sources.get(text(step, "of"));
        }

        private static String text(JsonObject step, String field) {
            return step.get(field).getAsString();
        }

        @Override
        public void close() {
            sources.clear();
            if (mill != null) {
                mill.close();
            }
        }
    }
}
