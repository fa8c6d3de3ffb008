import io.keymill.Business;
import io.keymill.Mill;
import io.keymill.Serial;
import io.keymill.Source;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.LockSupport;

/** A process that takes for ever: CONFIG SPEC LOG. One line an id, each written before the next is taken. */
public class Worker {
    public static void main(String[] args) throws Exception {
        try (Mill mill = Mill.open(args[0]); OutputStream log = new FileOutputStream(args[2], true)) {
            String spec = args[1];
            Serial serial = spec.startsWith("serial:") ? mill.serial(spec.substring(7)) : null;
            Business business = spec.startsWith("business:") ? mill.business(spec.substring(9)) : null;
            Source source = serial == null ? mill.source(spec) : null;
            for (int turn = 0; ; turn++) {
                StringBuilder lines = new StringBuilder();
                if (serial != null) {
                    lines.append(serial.next()).append('\n');
                } else if (business != null && turn % 3 == 0) {
                    for (long id : business.take(turn % 30, 20)) lines.append(id).append('\n');
                } else if (business != null) {
                    lines.append(business.next("buyer-" + turn % 9)).append('\n');
                } else if (turn % 3 == 0) {
                    for (long id : source.take(20)) lines.append(id).append('\n');
                } else {
                    lines.append(source.next()).append('\n');
                }
                log.write(lines.toString().getBytes(StandardCharsets.US_ASCII));
                // Thousands of turns a second; more would only be counted.
                LockSupport.parkNanos(100_000);
            }
        }
    }
}
