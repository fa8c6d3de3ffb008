package shop;

import io.keymill.Mill;
import java.util.function.Consumer;
import java.util.function.Function;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

/** Session factories of the tests, and transactions in them. */
final class Sessions {
    private Sessions() {}

    /** Entities whose ids come from this mill. */
    static Configuration configuration(Stores stores, Mill mill, Class<?>... entities) {
        Configuration configuration = new Configuration()
                .setProperty("hibernate.connection.url", stores.jdbcUrl())
                .setProperty("hibernate.connection.username", stores.user())
                .setProperty("hibernate.connection.password", stores.password())
                .setProperty("hibernate.hbm2ddl.auto", "create-drop")
                .setProperty("hibernate.generate_statistics", "true")
                .setProperty("hibernate.jdbc.batch_size", "100")
                .setProperty("hibernate.order_inserts", "true");
        for (Class<?> entity : entities) {
            configuration.addAnnotatedClass(entity);
        }
        configuration.getProperties().put("keymill.mill", mill);
        return configuration;
    }

    /** Works in a transaction of its own. */
    static <T> T in(SessionFactory sessions, Function<Session, T> work) {
        try (Session session = sessions.openSession()) {
            session.beginTransaction();
            try {
                T result = work.apply(session);
                session.getTransaction().commit();
                return result;
            } catch (Throwable e) {
                session.getTransaction().rollback();
                throw e;
            }
        }
    }

    /** As {@link #in}, without a result. */
    static void does(SessionFactory sessions, Consumer<Session> work) {
        in(sessions, session -> {
            work.accept(session);
            return null;
        });
    }
}
