import jakarta.persistence.Entity;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.Persistence;
import jakarta.persistence.SequenceGenerator;
import jakarta.persistence.Table;
import jakarta.persistence.TableGenerator;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Supplier;
import org.hibernate.engine.spi.SessionFactoryImplementor;

/**
 * Nodes of an application with a JPA table or sequence generator: UNIT URL USER PASSWORD NODES COUNT [PROPERTY=VALUE...]. The provider
 * makes its tables; each node takes an id, one after the other; after a line on standard input it takes COUNT more from what it shares
 * with the others and with keymill, and every id is printed. Nothing is inserted.
 */
public class JpaNodes {
    @Entity(name = "jpa_orders") @Table(name = "jpa_orders")
    public static class Order {
        @Id
        @GeneratedValue(strategy = GenerationType.TABLE, generator = "orders")
        @TableGenerator(name = "orders", pkColumnValue = "orders")
        private Long id;
    }

    @Entity(name = "jpa_sequenced") @Table(name = "jpa_sequenced")
    public static class Sequenced {
        @Id
        @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "sequenced")
        @SequenceGenerator(name = "sequenced", sequenceName = "jpa_orders_seq")
        private Long id;
    }

    /** Numbered by a table or by a sequence. */
    private static boolean sequenced;

    private static Object entity() {
        return sequenced ? new Sequenced() : new Order();
    }

    private static Long id(Object entity) {
        return entity instanceof Sequenced ? ((Sequenced) entity).id : ((Order) entity).id;
    }

    public static void main(String[] args) throws Exception {
        Map<String, String> settings = new HashMap<>();
        settings.put("jakarta.persistence.jdbc.url", args[1]);
        settings.put("jakarta.persistence.jdbc.user", args[2]);
        settings.put("jakarta.persistence.jdbc.password", args[3]);
        settings.put("eclipselink.logging.level", "OFF");
        settings.put("eclipselink.weaving", "false");
        for (int at = 6; at < args.length; at++) {
            String[] setting = args[at].split("=", 2);
            if (setting[0].equals("sequenced")) sequenced = true;
            else settings.put(setting[0], setting[1]);
        }
        int nodes = Integer.parseInt(args[4]), count = Integer.parseInt(args[5]);
        Map<String, String> making = new HashMap<>(settings);
        making.put("jakarta.persistence.schema-generation.database.action", "create");
        List<EntityManagerFactory> factories = new ArrayList<>();
        StringBuilder ids = new StringBuilder();
        for (int node = 0; node < nodes; node++) {
            EntityManagerFactory factory = Persistence.createEntityManagerFactory(args[0], node == 0 ? making : settings);
            factory.createEntityManager().close();
            factories.add(factory);
            // Two nodes of Hibernate that take the first id of a new sequence at one moment may take numbers twice.
            if (sequenced) ids.append(taker(factory, 1).call().get(0)).append('\n');
        }
        System.out.println("counts " + how(factories.get(0)));
        System.in.read();
        ExecutorService threads = Executors.newFixedThreadPool(nodes);
        List<Future<List<Long>>> taken = new ArrayList<>();
        for (EntityManagerFactory factory : factories) taken.add(threads.submit(taker(factory, count)));
        for (Future<List<Long>> node : taken) for (Long id : node.get()) ids.append(id).append('\n');
        System.out.print(ids);
        System.out.flush();
        System.exit(0);
    }

    private static Callable<List<Long>> taker(EntityManagerFactory factory, int count) {
        return () -> {
            List<Long> ids = new ArrayList<>();
            EntityManager manager = factory.createEntityManager();
            while (ids.size() < count) {
                manager.getTransaction().begin();
                for (int n = 0; n < 10 && ids.size() < count; n++) {
                    Object order = entity();
                    manager.persist(order);
                    ids.add(id(order));
                }
                manager.clear();
                manager.getTransaction().commit();
            }
            return ids;
        };
    }

    /** The class that makes numbers of the row's or the sequence's values. */
    private static String how(EntityManagerFactory factory) {
        if (!(factory instanceof SessionFactoryImplementor)) return factory.getClass().getSimpleName();
        Object generator = ((SessionFactoryImplementor) factory).getMappingMetamodel()
                .getEntityDescriptor(entity().getClass()).getGenerator();
        if (generator instanceof org.hibernate.id.enhanced.SequenceStyleGenerator) {
            return ((org.hibernate.id.enhanced.SequenceStyleGenerator) generator).getOptimizer().getClass().getSimpleName();
        }
        return ((org.hibernate.id.enhanced.TableGenerator) generator).getOptimizer().getClass().getSimpleName();
    }
}
