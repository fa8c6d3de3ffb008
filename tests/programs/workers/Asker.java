import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.Source;
import java.io.FileOutputStream;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.locks.LockSupport;

/** A process that asks for ever and writes down each answer, an id or the code of an error: CONFIG SPEC LOG. */
public class Asker {
    public static void main(String[] args) throws Exception {
        try (Mill mill = Mill.open(args[0]); OutputStream log = new FileOutputStream(args[2], true)) {
            Source source = mill.source(args[1]);
            for (;;) {
                String answer;
                try {
                    answer = Long.toString(source.next());
                } catch (KeymillException error) {
                    answer = error.code().name();
                }
                log.write((answer + "\n").getBytes(StandardCharsets.US_ASCII));
                LockSupport.parkNanos(2_000_000);
            }
        }
    }
}
