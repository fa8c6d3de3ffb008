package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import org.junit.jupiter.api.Test;

/** A first program with Hibernate: two events are stored, and read in another session. */
class EventTest {
    @Test
    void what_is_stored_is_found_by_its_id() {
        Configuration configuration = new Configuration().addAnnotatedClass(Event.class)
                .setProperty("hibernate.connection.url", "jdbc:h2:mem:events").setProperty("hibernate.hbm2ddl.auto", "create");
        try (SessionFactory sessions = configuration.buildSessionFactory()) {
            Event first = new Event("the first");
            Event second = new Event("the second");
            sessions.inTransaction(session -> {
                session.persist(first);
                session.persist(second);
            });
            assertTrue(first.id < second.id);
            sessions.inTransaction(session -> {
                List<String> titles = session.createQuery("select title from Event order by id", String.class).getResultList();
                assertEquals(List.of("the first", "the second"), titles);
                assertEquals("the second", session.find(Event.class, second.id).title);
            });
        }
    }
}
