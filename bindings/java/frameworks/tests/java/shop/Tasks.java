package shop;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;

/** This process's threads, native ones too. */
public final class Tasks {
    private Tasks() {}

    /** How many are keymill's, by their names. */
    public static long ofKeymill() {
        long count = 0;
        for (File task : new File("/proc/self/task").listFiles()) {
            try {
                count += Files.readString(task.toPath().resolve("comm")).startsWith("keymill") ? 1 : 0;
            } catch (IOException e) {
                // It has ended.
                continue;
            }
        }
        return count;
    }
}
