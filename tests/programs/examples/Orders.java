import io.keymill.KeyFactory;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.Source;
import java.util.Map;
import java.util.TreeMap;

/**
 * Orders with ids of a segment and invoices with serial numbers of the day, on the database of your choice.
 *
 * <pre>java -cp keymill.jar Orders.java MILL [COUNT] [PAUSE_MS]       java -cp keymill.jar Orders.java sqlite:shop.db 5</pre>
 *
 * Run it twice at once: no order comes twice. Stop the database under it: it goes on from memory.
 */
public class Orders {
    public static void main(String[] args) throws Exception {
        int count = args.length > 1 ? Integer.parseInt(args[1]) : 5;
        long pauseMs = args.length > 2 ? Long.parseLong(args[2]) : 0;
        Map<Object, Integer> errors = new TreeMap<>();

        try (Mill mill = Mill.open(args[0])) {
            Source orders = mill.segment("orders");
            KeyFactory.use(mill);
            for (int i = 0; i < count; i++) {
                try {
                    long order = orders.next();
                    String invoice = KeyFactory.getSerialNoByDS("invoice", "number", "yyyyMMdd", "00000000", 500);
                    System.out.println("order " + order + ", invoice " + invoice);
                } catch (KeymillException error) {
                    errors.merge(error.code(), 1, Integer::sum);
                }
                Thread.sleep(pauseMs);
            }
        }
        System.err.println("errors: " + (errors.isEmpty() ? "none" : errors));
    }
}
