package io.keymill;

import java.time.Duration;
import java.util.Optional;

/**
 * What every verb of keymill throws: a code, one line that says what was seen and what to do, and a hint when to ask
 * again. The message never holds a password.
 */
public final class KeymillException extends RuntimeException {
    private static final long serialVersionUID = 1;

    /** The code. */
    private final Code code;
    /** Nanoseconds to wait, or less than 0. */
    private final long retryNanos;

    /** Called by the native library. */
    KeymillException(int code, String message, long retryNanos) {
        this(Code.of(code), message, retryNanos, null);
    }

    KeymillException(Code code, String message) {
        this(code, message, -1, null);
    }

    KeymillException(Code code, String message, Throwable cause) {
        this(code, message, -1, cause);
    }

    KeymillException(Code code, String message, long retryNanos, Throwable cause) {
        super(code + ": " + message, cause);
        this.code = code;
        this.retryNanos = retryNanos;
    }

    /**
     * What went wrong, the same in every language.
     *
     * @return the code
     */
    public Code code() {
        return code;
    }

    /**
     * How long to wait before the call may succeed, where that is known.
     *
     * @return the time to wait, or nothing
     */
    public Optional<Duration> retryAfter() {
        return retryNanos < 0 ? Optional.empty() : Optional.of(Duration.ofNanos(retryNanos));
    }

    /** The message without the code. */
    String reason() {
        return getMessage().substring(code.name().length() + 2);
    }

    /** The same with what it is about before it. */
    KeymillException of(String what) {
        return new KeymillException(code, what + ": " + reason(), retryNanos, this);
    }

    static KeymillException argument(String message) {
        return new KeymillException(Code.INVALID_ARGUMENT, message);
    }
}
