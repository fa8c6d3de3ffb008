package io.keymill;

/** What went wrong, as a number that is the same in every language. The list is the core's; a test compares them. */
public enum Code {
    /** No error. */
    OK(0),
    /** An argument of the call itself is wrong: null, too long, not of the right kind. */
    INVALID_ARGUMENT(1),
    /** A configuration string, a source's spec or a TOML file is wrong; or there is no native library for this machine. */
    INVALID_CONFIG(2),
    /** The mill was closed. */
    CLOSED(3),
    /** The source's deadline passed before the store answered, or the waiting thread was interrupted. */
    DEADLINE(4),
    /** Nothing is in memory right now. */
    NOT_READY(5),
    /** The numbers of this source are used up; nothing wraps. */
    EXHAUSTED(6),
    /** The store cannot be reached or does not answer. */
    STORE_UNAVAILABLE(7),
    /** The store answered with a refusal: a missing table, a missing right, a row that makes no sense. */
    STORE_REFUSED(8),
    /** The store holds less than this process has already seen: a restored backup, a deleted row, a lost failover. */
    STORE_WENT_BACKWARDS(9),
    /** The store's settings lose commits, so a reservation could be handed out twice. */
    STORE_UNSAFE(10),
    /** The next number is wider than the number pattern. */
    NUMBER_OVERFLOW(11),
    /** This machine's clock is behind what has already been issued or reserved. */
    CLOCK_BEHIND(12),
    /** The worker id is no longer this process's own. */
    LEASE_LOST(13),
    /** Every worker id is taken. */
    NO_WORKER_FREE(14),
    /** The layout's time field is over. */
    LAYOUT_ENDED(15),
    /** The process was forked and the mill is configured not to start anew in the child. */
    FORKED(16),
    /** An order number that this key did not make. */
    FORGED(17),
    /** The caller's buffer is too small. */
    BUFFER_TOO_SMALL(18),
    /** A defect in keymill itself, or the system starts no thread: the message says which. */
    INTERNAL(19);

    private static final Code[] ALL = values();

    private final int number;

    Code(int number) {
        this.number = number;
    }

    /**
     * The number every language uses for this code.
     *
     * @return the number
     */
    public int number() {
        return number;
    }

    static Code of(int number) {
        return number >= 0 && number < ALL.length ? ALL[number] : INTERNAL;
    }
}
