package io.keymill.spring.boot;

/** A property of keymill, or a native library, that the application cannot start with. */
public class KeymillPropertyException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final String property;
    private final String reason;
    private final String action;

    KeymillPropertyException(String property, String reason, String action, Throwable cause) {
        super(property + ": " + reason, cause);
        this.property = property;
        this.reason = reason;
        this.action = action;
    }

    /** No property is at fault. */
    KeymillPropertyException(String reason, String action, Throwable cause) {
        super(reason, cause);
        this.property = null;
        this.reason = reason;
        this.action = action;
    }

    /**
     * The property.
     *
     * @return its name; null where none is at fault
     */
    public String property() {
        return property;
    }

    String reason() {
        return reason;
    }

    String action() {
        return action;
    }
}
