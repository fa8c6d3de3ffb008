package io.keymill;

import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.LockSupport;

/**
 * A process that takes until it is killed: HOW CONFIG WHAT LOG. One line an id, each written before the next is taken, so
 * that a killed worker leaves whole lines but for the last.
 */
public final class Worker {
    private Worker() {}

    public static void main(String[] arguments) throws Exception {
        String config = arguments[1];
        String what = arguments[2];
        try (OutputStream log = new FileOutputStream(arguments[3], true)) {
            if (arguments[0].equals("seed")) {
                seed.KeyFactory.url = config;
                for (;;) {
                    write(log, seed.KeyFactory.getSerialNoByDS(what, "custid", "yyyyMMdd", "0000000000", 50) + "\n");
                }
            }
            try (Mill mill = Mill.open(config)) {
                if (arguments[0].equals("factory")) {
                    KeyFactory.use(mill);
                    for (;;) {
                        write(log, KeyFactory.getSerialNoByDS(what, "custid", "yyyyMMdd", "0000000000", 50) + "\n");
                    }
                }
                // A disk that others keep busy is slow, and no worker ends by that.
                Source source = mill.source(what + "&deadline=60s");
                for (int turn = 0; ; turn++) {
                    StringBuilder lines = new StringBuilder();
                    if (turn % 3 == 0) {
                        for (String id : source.takeText(20)) {
                            lines.append(id).append('\n');
                        }
                    } else {
                        lines.append(source.nextText()).append('\n');
                    }
                    write(log, lines.toString());
                }
            }
        }
    }

    private static void write(OutputStream log, String lines) throws Exception {
        // Slow enough that the union fits into memory, quick enough that a kill falls into a refill.
        LockSupport.parkNanos(100_000);
        log.write(lines.getBytes(StandardCharsets.US_ASCII));
    }
}
