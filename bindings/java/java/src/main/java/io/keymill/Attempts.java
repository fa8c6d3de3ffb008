package io.keymill;

import java.io.IOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.FileSystemException;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Where the library was looked for and why it was not loaded from there, for the error that names them all. */
final class Attempts {
    private final List<String> failed = new ArrayList<>();
    private Throwable first;

    void add(String where, String reason) {
        failed.add("(" + (failed.size() + 1) + ") " + where + ": " + reason);
    }

    void add(String where, Throwable reason) {
        add(where, reason(reason));
        if (first == null) {
            first = reason;
        }
    }

    /** As {@link #add(String, Throwable)}, without the file's name in the reason. */
    void add(String where, Path file, Throwable reason) {
        add(where, reason(reason).replace(file + ": ", ""));
        if (first == null) {
            first = reason;
        }
    }

    KeymillException failure(String what, String todo) {
        return new KeymillException(
                Code.INVALID_CONFIG, what + "; tried " + String.join(", ", failed) + "; " + todo, -1, first);
    }

    /** What went wrong, without the path that most exceptions of files have instead of a reason. */
    static String reason(Throwable error) {
        if (error instanceof AccessDeniedException) {
            return "access denied";
        }
        if (error instanceof NoSuchFileException) {
            return "no such file or folder";
        }
        if (error instanceof FileSystemException && ((FileSystemException) error).getReason() != null) {
            return ((FileSystemException) error).getReason();
        }
        boolean plain = error instanceof IOException || error instanceof UnsatisfiedLinkError;
        return plain && error.getMessage() != null ? error.getMessage() : error.toString();
    }
}
