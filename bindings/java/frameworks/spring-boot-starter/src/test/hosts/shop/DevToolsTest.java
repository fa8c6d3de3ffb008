package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** An application that DevTools restarts within its JVM, on one SQLite file. */
class DevToolsTest {
    private static final int RESTARTS = 5;
    private static final Pattern START = Pattern.compile("start by DevTools( with a library of its own)?, id ([0-9]+), threads ([0-9]+)");

    @TempDir
    Path folder;

    /** keymill's jars are loaded once, or anew with the application where spring-devtools.properties includes them. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void each_mill_is_closed_before_the_next_opens_and_ids_go_on(boolean included) throws Exception {
        if (included) {
            Files.write(Files.createDirectories(folder.resolve("META-INF")).resolve("spring-devtools.properties"), List.of("restart.include.keymill=/keymill[^/]*[.]jar"));
        }
        Process process = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx256m", "-Drestarts=" + RESTARTS,
                "-cp", folder + File.pathSeparator + System.getProperty("java.class.path"), Restarting.class.getName(),
                "--spring.main.banner-mode=off", "--keymill.config=sqlite:" + folder.resolve("shop.keymill"), "--keymill.sources.orders=segment:orders").redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        // Its exit code is the main thread's, which DevTools ends by an exception.
        process.waitFor();
        assertFalse(said.contains("the mill before is open"), said);
        List<Long> ids = new ArrayList<>();
        List<String> threads = new ArrayList<>();
        for (Matcher start = START.matcher(said); start.find(); ) {
            assertEquals(included, start.group(1) != null, said);
            ids.add(Long.valueOf(start.group(2)));
            threads.add(start.group(3));
        }
        assertEquals(RESTARTS + 1, ids.size(), said);
        for (int i = 1; i < ids.size(); i++) {
            assertTrue(ids.get(i) > ids.get(i - 1), said);
            assertEquals(threads.get(0), threads.get(i), said);
        }
    }
}
