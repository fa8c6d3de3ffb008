package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Mill;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Two applications at once, each with a database of its own and one store for both. */
class ProcessesTest {
    private static final int ROWS = 3000;

    static Stores[] stores() {
        return Stores.there();
    }

    /** An application: prints the ids of its rows. */
    public static final class Application {
        public static void main(String[] arguments) {
            Configuration configuration = new Configuration().addAnnotatedClass(Entities.Order.class)
                    .setProperty("hibernate.connection.url", "jdbc:h2:mem:shop").setProperty("hibernate.hbm2ddl.auto", "create").setProperty("hibernate.jdbc.batch_size", "100");
            StringBuilder ids = new StringBuilder();
            try (Mill mill = Mill.open(arguments[0])) {
                Mill.share(mill);
                try (SessionFactory sessions = configuration.buildSessionFactory(); Session session = sessions.openSession()) {
                    for (int row = 0; row < ROWS; row++) {
                        session.beginTransaction();
                        Entities.Order order = new Entities.Order();
                        session.persist(order);
                        session.getTransaction().commit();
                        session.clear();
                        ids.append("id ").append(order.id).append(" no ").append(order.no).append('\n');
                    }
                }
            }
            System.out.print(ids);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void two_applications_at_once_have_no_id_in_common(Stores stores) throws IOException, InterruptedException {
        String config = stores.config();
        try (Mill mill = Mill.open(config)) {
            mill.init("segment:orders", "serial:orders/no?number=000000");
        }
        List<Process> processes = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            processes.add(new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-Djava.util.logging.config.file=/dev/null", "-cp", System.getProperty("java.class.path"), Application.class.getName(), config)
                    .redirectError(ProcessBuilder.Redirect.INHERIT).start());
        }
        Set<String> ids = new HashSet<>();
        Set<String> numbers = new HashSet<>();
        for (Process process : processes) {
            String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            assertEquals(0, process.waitFor());
            for (String line : said.split("\n")) {
                if (line.startsWith("id ")) {
                    String[] words = line.split(" ");
                    assertTrue(ids.add(words[1]), line);
                    assertTrue(numbers.add(words[3]), line);
                }
            }
        }
        assertEquals(2 * ROWS, ids.size());
    }
}
