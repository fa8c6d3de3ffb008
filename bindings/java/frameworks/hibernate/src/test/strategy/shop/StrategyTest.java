package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static shop.Sessions.does;
import static shop.Sessions.in;

import io.keymill.Mill;
import java.io.Serializable;
import java.util.HashSet;
import java.util.Objects;
import java.util.Set;
import javax.persistence.Embeddable;
import javax.persistence.EmbeddedId;
import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.Id;
import javax.persistence.Inheritance;
import javax.persistence.InheritanceType;
import javax.persistence.Table;
import org.hibernate.SessionFactory;
import org.hibernate.StatelessSession;
import org.hibernate.annotations.GenericGenerator;
import org.hibernate.annotations.Parameter;
import org.hibernate.cfg.Configuration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** `KeymillStrategy` by its name, on the Hibernate of the class path: 5.6, and 6 with `jakarta.persistence` in place of `javax`. */
class StrategyTest {
    private static final String STRATEGY = "io.keymill.hibernate.KeymillStrategy";

    private Mill mill;

    static Stores[] stores() {
        return Stores.there();
    }

    @Entity(name = "Order")
    @Table(name = "orders")
    static class Order {
        @Id
        @GeneratedValue(generator = "orders")
        @GenericGenerator(name = "orders", strategy = STRATEGY)
        Long id;
    }

    @Entity(name = "Number")
    @Table(name = "numbers")
    static class Number {
        @Id
        @GeneratedValue(generator = "numbers")
        @GenericGenerator(name = "numbers", strategy = STRATEGY, parameters = @Parameter(name = "source", value = "serial:{table}/no?number=000000"))
        String no;
    }

    @Entity(name = "Small")
    @Table(name = "small_ones")
    static class Small {
        @Id
        @GeneratedValue(generator = "small")
        @GenericGenerator(name = "small", strategy = STRATEGY, parameters = @Parameter(name = "source", value = "segment:small?start=2147483647&step=10"))
        int id;
    }

    @Entity(name = "Wrong")
    static class Wrong {
        @Id
        @GeneratedValue(generator = "wrong")
        @GenericGenerator(name = "wrong", strategy = STRATEGY, parameters = @Parameter(name = "source", value = "serial:{table}/no?number=000000"))
        Long id;
    }

    @Entity(name = "Animal")
    @Table(name = "animals")
    @Inheritance(strategy = InheritanceType.TABLE_PER_CLASS)
    static class Animal {
        @Id
        @GeneratedValue(generator = "animals")
        @GenericGenerator(name = "animals", strategy = STRATEGY)
        Long id;
    }

    @Entity(name = "Cat")
    @Table(name = "cats")
    static class Cat extends Animal {}

    @Embeddable
    static class LineId implements Serializable {
        private static final long serialVersionUID = 1;

        @GeneratedValue(generator = "lines")
        @GenericGenerator(name = "lines", strategy = STRATEGY, parameters = @Parameter(name = "source", value = "segment:lines"))
        Long line;

        long orderId;

        @Override
        public boolean equals(Object other) {
            return other instanceof LineId && Objects.equals(((LineId) other).line, line) && ((LineId) other).orderId == orderId;
        }

        @Override
        public int hashCode() {
            return Objects.hash(line, orderId);
        }
    }

    @Entity(name = "Line")
    @Table(name = "line")
    static class Line {
        @EmbeddedId LineId id = new LineId();
    }

    private Configuration configuration(Stores stores, Class<?>... entities) {
        mill = stores.mill("segment:orders", "serial:numbers/no?number=000000");
        return Sessions.configuration(stores, mill, entities);
    }

    private SessionFactory sessions(Stores stores) {
        return configuration(stores, Order.class, Number.class, Small.class, Animal.class, Cat.class, Line.class).buildSessionFactory();
    }

    @AfterEach
    void close() {
        if (mill != null) {
            mill.close();
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_thousand_entities_are_one_prepared_statement(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            sessions.getStatistics().clear();
            Set<Long> ids = new HashSet<>();
            does(sessions, session -> {
                for (int i = 0; i < 1000; i++) {
                    Order order = new Order();
                    session.persist(order);
                    ids.add(order.id);
                }
            });
            assertEquals(1000, ids.size());
            assertEquals(1, sessions.getStatistics().getPrepareStatementCount());
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void an_id_that_is_a_serial(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Number number = new Number();
            does(sessions, session -> session.persist(number));
            assertTrue(number.no.matches("\\d{14}"), number.no);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_number_that_an_int_does_not_hold_is_an_error(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Throwable e = Causes.root(assertThrows(RuntimeException.class, () -> {
                for (int i = 0; i < 3; i++) {
                    does(sessions, session -> session.persist(new Small()));
                }
            }));
            assertTrue(e.getMessage().contains("Small's id is an int, which holds numbers up to 2147483647, and its next id is 21474"), e.getMessage());
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_spec_of_another_kind_than_the_field_does_not_start(Stores stores) {
        Throwable e = Causes.root(assertThrows(RuntimeException.class, () -> configuration(stores, Wrong.class).buildSessionFactory()));
        assertTrue(e.getMessage().contains("Wrong's id is a long, and `serial:wrong/no?number=000000` gives text"), e.getMessage());
    }

    @ParameterizedTest
    @MethodSource("stores")
    void persist_refuses_an_assigned_id_and_merge_keeps_it(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Order order = new Order();
            order.id = 4_000_000_000L;
            RuntimeException e = assertThrows(RuntimeException.class, () -> does(sessions, session -> session.persist(order)));
            assertTrue(Causes.root(e).getMessage().contains("detached entity passed to persist"), e.toString());
            Order merged = (Order) in(sessions, session -> session.merge(order));
            assertEquals(4_000_000_000L, merged.id);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_hierarchy_has_one_source(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Animal animal = new Animal();
            Cat cat = new Cat();
            does(sessions, session -> {
                session.persist(animal);
                session.persist(cat);
            });
            assertNotEquals(animal.id, cat.id);
        }
    }

    /** Hibernate looks for no generator there before 6.6; the database refuses the row. */
    @ParameterizedTest
    @MethodSource("stores")
    void an_embedded_id_gets_no_part(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Line line = new Line();
            assertThrows(RuntimeException.class, () -> does(sessions, session -> session.persist(line)));
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_stateless_session_inserts_with_an_id(Stores stores) {
        try (SessionFactory sessions = sessions(stores); StatelessSession session = sessions.openStatelessSession()) {
            session.beginTransaction();
            Order order = new Order();
            session.insert(order);
            session.getTransaction().commit();
            assertNotNull(order.id);
        }
    }

    /** Its database is of its own class loader. */
    static class Application implements Runnable {
        @Override
        public void run() {
            org.h2.jdbcx.JdbcDataSource database = new org.h2.jdbcx.JdbcDataSource();
            database.setUrl("jdbc:h2:mem:versions");
            Configuration configuration = new Configuration().addAnnotatedClass(Order.class);
            configuration.getProperties().put("hibernate.connection.datasource", database);
            configuration.buildSessionFactory().close();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-hibernate"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
