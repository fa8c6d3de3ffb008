import io.keymill.Business;
import io.keymill.Mill;
import io.keymill.Route;
import io.keymill.Router;
import java.util.HashMap;
import java.util.Map;

/**
 * Buyer → id → shard → found again: orders on two databases, found by their id alone.
 *
 * <pre>java -cp keymill.jar Sales.java MILL [COUNT]       java -cp keymill.jar Sales.java sqlite:shop.db 5</pre>
 */
public class Sales {
    private static final String TABLE = "version = 1\n"
            + "[[range]]\nupper = 32767\nshard = \"north\"\n"
            + "[[range]]\nupper = 65535\nshard = \"south\"\n";

    public static void main(String[] args) {
        int count = args.length > 1 ? Integer.parseInt(args[1]) : 5;
        Map<String, Map<Long, String>> shards = new HashMap<>();
        shards.put("north", new HashMap<>());
        shards.put("south", new HashMap<>());
        Router router = Router.fromText(TABLE); // mill.router("orders") follows a table in the store

        try (Mill mill = Mill.open(args[0])) {
            Business sales = mill.business("sale");
            for (int number = 1; number <= count; number++) {
                String buyer = "buyer-" + number;
                long id = sales.next(buyer);
                shards.get(router.route(id).shard()).put(id, buyer);
                // The id alone leads to the row, and the buyer alone to its shard.
                Route found = router.route(id);
                if (!buyer.equals(shards.get(found.shard()).get(id)) || !router.routeKey(buyer).shard().equals(found.shard())) {
                    throw new AssertionError(buyer + " is not found by " + id);
                }
                System.out.println(buyer + ": sale " + id + ", gene " + found.gene() + ", on " + found.shard());
            }
        }
    }
}
