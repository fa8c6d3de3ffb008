package io.keymill;

/** A process that follows a route table and ends without a close: CONFIG, and how it ends. */
public final class Following {
    private Following() {}

    public static void main(String[] arguments) throws Exception {
        Mill mill = Mill.open(arguments[0]);
        mill.router("orders").route(1);
        switch (arguments[1]) {
            case "exits":
                System.exit(0);
                break;
            case "throws":
                throw new IllegalStateException("it is thrown on purpose");
            case "is terminated":
                System.out.println("follows");
                Thread.sleep(60_000);
                break;
            default:
                break;
        }
    }
}
