package io.keymill;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** What Java repeats of the core is the core's. */
class CodesTest {
    @BeforeAll
    static void load() {
        Library.ensure();
    }

    @Test
    void the_codes_are_the_cores_with_their_numbers() {
        StringBuilder mine = new StringBuilder();
        for (Code code : Code.values()) {
            mine.append(code.number()).append(' ').append(code).append('\n');
        }
        StringBuilder cores = new StringBuilder();
        for (String[] row : Native.rows(Native.codes())) {
            cores.append(row[0]).append(' ').append(row[1]).append('\n');
        }
        assertEquals(cores.toString(), mine.toString());
    }

    @Test
    void the_version_is_the_workspaces() throws Exception {
        Path manifest = Paths.get(System.getProperty("keymill.root", "../../.."), "Cargo.toml");
        Matcher version = Pattern.compile("(?m)^version = \"(.*)\"$").matcher(new String(Files.readAllBytes(manifest)));
        version.find();
        assertEquals(version.group(1), Native.version());
    }
}
