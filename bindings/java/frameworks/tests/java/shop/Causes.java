package shop;

/** What a framework wrapped. */
public final class Causes {
    private Causes() {}

    /** The innermost cause. */
    public static Throwable root(Throwable e) {
        while (e.getCause() != null) {
            e = e.getCause();
        }
        return e;
    }
}
