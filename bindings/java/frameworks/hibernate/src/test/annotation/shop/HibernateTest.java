package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static shop.Sessions.does;
import static shop.Sessions.in;

import io.keymill.Mill;
import io.keymill.hibernate.KeymillId;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.MappedSuperclass;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import java.util.UUID;
import org.hibernate.SessionFactory;
import org.hibernate.StatelessSession;
import org.hibernate.Version;
import org.hibernate.cfg.Configuration;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** `@KeymillId` on the Hibernate of the class path, 6.2 or later. */
class HibernateTest {
    private Mill mill;

    static Stores[] stores() {
        return Stores.there();
    }

    /** `6.2.49.Final` is 602. */
    private static int version() {
        String[] parts = Version.getVersionString().split("\\.");
        return Integer.parseInt(parts[0]) * 100 + Integer.parseInt(parts[1]);
    }

    private Configuration configuration(Stores stores, Class<?>... entities) {
        mill = stores.mill("segment:orders", "serial:orders/no?number=000000");
        return Sessions.configuration(stores, mill, entities)
                .setProperty("hibernate.connection.pool_size", "1")
                .setProperty("hibernate.globally_quoted_identifiers", "true");
    }

    private SessionFactory sessions(Stores stores) {
        return configuration(stores, Entities.ALL).buildSessionFactory();
    }

    @AfterEach
    void close() {
        if (mill != null) {
            mill.close();
        }
        Mill.share(null);
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_thousand_entities_are_one_prepared_statement(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            sessions.getStatistics().clear();
            Set<Long> ids = new HashSet<>();
            does(sessions, session -> {
                for (int i = 0; i < 1000; i++) {
                    Entities.Order order = new Entities.Order();
                    session.persist(order);
                    assertNotNull(order.id, "the id is there before the row");
                    ids.add(order.id);
                }
            });
            assertEquals(1000, ids.size());
            assertEquals(1, sessions.getStatistics().getPrepareStatementCount());
            assertEquals(1000L, (Object) in(sessions, session ->
                    session.createQuery("select count(*) from Order", Long.class).getSingleResult()));
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void another_column_gets_a_serial(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Entities.Order order = new Entities.Order();
            does(sessions, session -> session.persist(order));
            assertTrue(order.no.matches("\\d{8}\\d{6}"), order.no);
            Entities.Order set = new Entities.Order();
            set.no = "A1";
            does(sessions, session -> session.persist(set));
            assertEquals("A1", in(sessions, session -> session.find(Entities.Order.class, set.id)).no, "what is set is kept");
            does(sessions, session -> session.find(Entities.Order.class, order.id).what = "changed");
            assertEquals(order.no, in(sessions, session -> session.find(Entities.Order.class, order.id)).no, "an update makes none");
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void every_type_gets_its_value(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            does(sessions, session -> {
                Entities.Tiny tiny = new Entities.Tiny();
                Entities.Texts text = new Entities.Texts();
                Entities.Huge huge = new Entities.Huge();
                Entities.Getter getter = new Entities.Getter();
                Entities.Snow snow = new Entities.Snow();
                Entities.OfSuperclass below = new Entities.OfSuperclass();
                for (Object entity : new Object[] {tiny, text, huge, getter, snow, below}) {
                    session.persist(entity);
                }
                assertTrue(tiny.id > 0 && getter.getId() > 0 && below.id > 0);
                assertTrue(Long.parseLong(text.id) > 0);
                assertEquals(1, huge.id.signum());
                assertTrue(snow.id > Integer.MAX_VALUE);
            });
            String sources = mill.metrics();
            for (String source : new String[] {"segment:tiny", "segment:of_superclass", "snowflake:snow"}) {
                assertTrue(sources.contains(source), source + " in " + sources);
            }
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_number_that_an_int_does_not_hold_is_an_error(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Throwable e = Causes.root(assertThrows(RuntimeException.class, () -> {
                for (int i = 0; i < 3; i++) {
                    Entities.Small small = new Entities.Small();
                    does(sessions, session -> session.persist(small));
                    assertTrue(small.id > 0);
                }
            }));
            assertTrue(e.getMessage().matches("shop.Entities\\$Small.id is an int, which holds numbers up to 2147483647, and its next id is 21474\\d+; .*"), e.getMessage());
        }
    }

    @Entity(name = "SerialInLong")
    static class SerialInLong {
        @Id @KeymillId("serial:{table}/no?number=000000") Long id;
    }

    @Entity(name = "SnowflakeInInt")
    static class SnowflakeInInt {
        @Id @KeymillId("snowflake:{table}") Integer id;
    }

    @Entity(name = "Uuid")
    static class Uuid {
        @Id @KeymillId UUID id;
    }

    @Entity(name = "NoKind")
    static class NoKind {
        @Id @KeymillId("orders") Long id;
    }

    @Entity(name = "Keyed")
    static class Keyed {
        @Id @KeymillId("business:orders") Long id;
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_spec_of_another_kind_than_the_field_does_not_start(Stores stores) {
        refusedField(stores, SerialInLong.class, "id is a long, and `serial:serialinlong/no?number=000000` gives text");
        refusedField(stores, SnowflakeInInt.class, "id is an int, and `snowflake:snowflakeinint` gives numbers of up to 63 bits");
        refusedField(stores, Uuid.class, "id is a java.util.UUID, which holds no id");
        refusedField(stores, NoKind.class, "id names `orders`, which is no source");
        refusedField(stores, Keyed.class, "id names `business:orders`, whose ids need a key");
    }

    private void refusedField(Stores stores, Class<?> entity, String message) {
        refused(stores, entity, entity.getName() + "." + message);
    }

    private void refused(Stores stores, Class<?> entity, String message) {
        Throwable e = Causes.root(assertThrows(RuntimeException.class, () -> {
            try (SessionFactory sessions = configuration(stores, entity).buildSessionFactory()) {
                assertFalse(sessions.isClosed());
            } finally {
                mill.close();
            }
        }));
        assertTrue(e.getMessage().startsWith(message), e.getMessage());
    }

    @ParameterizedTest
    @MethodSource("stores")
    void each_hierarchy_has_one_source(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Set<Long> ids = new HashSet<>();
            does(sessions, session -> {
                for (int i = 0; i < 10; i++) {
                    Entities.Joined[] joined = {new Entities.Joined(), new Entities.JoinedChild()};
                    Entities.Single[] single = {new Entities.Single(), new Entities.SingleChild()};
                    Entities.PerClass[] perClass = {new Entities.PerClass(), new Entities.PerClassChild()};
                    for (int kind = 0; kind < 2; kind++) {
                        session.persist(joined[kind]);
                        session.persist(single[kind]);
                        session.persist(perClass[kind]);
                        assertTrue(ids.add(joined[kind].id << 2));
                        assertTrue(ids.add(single[kind].id << 2 | 1));
                        assertTrue(ids.add(perClass[kind].id << 2 | 2));
                    }
                }
            });
            String sources = mill.metrics();
            assertFalse(sources.contains("segment:per_class_child"), sources);
            assertTrue(sources.contains("segment:joined_child"), "a column of a joined class has its own table's name: " + sources);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void an_embedded_id_gets_its_part(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Entities.Line line = new Entities.Line();
            line.id.orderId = 7;
            if (version() < 606) {
                // 6.2 looks for no generator inside of an embedded id; the database refuses the row.
                assertThrows(RuntimeException.class, () -> does(sessions, session -> session.persist(line)));
                return;
            }
            does(sessions, session -> session.persist(line));
            assertNotNull(line.id.line);
            assertEquals(7, line.id.orderId);
            assertNotNull(in(sessions, session -> session.find(Entities.Line.class, line.id)));
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_part_of_an_id_class_gets_its_number(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Entities.Part part = new Entities.Part();
            part.part = 7L;
            if (version() < 606) {
                // As above.
                assertThrows(RuntimeException.class, () -> does(sessions, session -> session.persist(part)));
                return;
            }
            does(sessions, session -> session.persist(part));
            assertEquals(1L, (Object) in(sessions, session -> session.createQuery("select count(*) from Part where id is not null and part = 7", Long.class).getSingleResult()));
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_field_of_a_generic_superclass_has_the_type_of_its_entity(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Entities.GenericLong number = new Entities.GenericLong();
            Entities.GenericText text = new Entities.GenericText();
            does(sessions, session -> {
                session.persist(number);
                session.persist(text);
            });
            assertTrue(number.id > 0);
            assertTrue(Long.parseLong(text.id) > 0);
        }
    }

    @MappedSuperclass
    static class Generic<T> {
        @Id @KeymillId("serial:{table}/no?number=000000") T id;
    }

    @Entity(name = "SerialInGenericLong")
    static class SerialInGenericLong extends Generic<Long> {}

    @ParameterizedTest
    @MethodSource("stores")
    void a_spec_of_another_kind_than_a_generic_superclass_s_field_does_not_start(Stores stores) {
        refused(stores, SerialInGenericLong.class, Generic.class.getName() + ".id is a long, and `serial:serialingenericlong/no?number=000000` gives text");
    }

    /** Before 7.0 Hibernate writes the null of an object that is not the session's. */
    @ParameterizedTest
    @MethodSource("stores")
    void merge_of_a_column_that_is_null_keeps_the_row_s_where_the_version_can(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Entities.Order order = new Entities.Order();
            does(sessions, session -> session.persist(order));
            Entities.Order detached = new Entities.Order();
            detached.id = order.id;
            does(sessions, session -> session.merge(detached));
            String kept = in(sessions, session -> session.find(Entities.Order.class, order.id)).no;
            assertEquals(version() < 700 ? null : order.no, kept);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_stateless_session_inserts_with_an_id(Stores stores) {
        try (SessionFactory sessions = sessions(stores); StatelessSession session = sessions.openStatelessSession()) {
            session.beginTransaction();
            Entities.Order order = new Entities.Order();
            session.insert(order);
            session.getTransaction().commit();
            assertNotNull(order.id);
            assertNotNull(order.no);
        }
    }

    /** 6.6 and later persist it; 6.2 refuses, as it does with every generator. */
    @ParameterizedTest
    @MethodSource("stores")
    void persist_keeps_an_assigned_id_where_the_version_can(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Entities.Order order = new Entities.Order();
            order.id = 4_000_000_000L;
            if (version() < 606) {
                RuntimeException e = assertThrows(RuntimeException.class, () -> does(sessions, session -> session.persist(order)));
                assertTrue(Causes.root(e).getMessage().contains("detached entity passed to persist"), e.toString());
                return;
            }
            does(sessions, session -> session.persist(order));
            assertEquals(4_000_000_000L, order.id);
            assertNotNull(in(sessions, session -> session.find(Entities.Order.class, 4_000_000_000L)));
            // A primitive's 0 is no id.
            Entities.Getter unset = new Entities.Getter();
            does(sessions, session -> session.persist(unset));
            assertNotEquals(0, unset.getId());
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void merge_keeps_an_assigned_id(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Entities.Order order = new Entities.Order();
            order.id = 4_000_000_000L;
            Entities.Order merged = in(sessions, session -> session.merge(order));
            assertEquals(4_000_000_000L, merged.id);
            assertNotNull(in(sessions, session -> session.find(Entities.Order.class, 4_000_000_000L)));
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_rollback_gives_nothing_back(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            Entities.Order lost = new Entities.Order();
            assertThrows(IllegalStateException.class, () -> does(sessions, session -> {
                session.persist(lost);
                throw new IllegalStateException("rolled back");
            }));
            Entities.Order next = new Entities.Order();
            does(sessions, session -> session.persist(next));
            assertTrue(next.id > lost.id);
        }
    }

    /** The application's one connection is in a transaction that holds its tables; the first id of a source reserves meanwhile. */
    @ParameterizedTest
    @MethodSource("stores")
    void an_id_needs_no_connection_of_the_session(Stores stores) {
        try (SessionFactory sessions = sessions(stores)) {
            does(sessions, session -> {
                session.createMutationQuery("delete from Order").executeUpdate();
                sessions.getStatistics().clear();
                session.persist(new Entities.Order());
                assertEquals(0, sessions.getStatistics().getPrepareStatementCount());
            });
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void the_shared_mill_serves_where_none_is_set(Stores stores) {
        Configuration configuration = configuration(stores, Entities.ALL);
        configuration.getProperties().remove("keymill.mill");
        try (SessionFactory sessions = configuration.buildSessionFactory()) {
            Mill.share(mill);
            Entities.Order first = new Entities.Order();
            does(sessions, session -> session.persist(first));
            Mill old = mill;
            mill = stores.mill("segment:orders", "serial:orders/no?number=000000");
            Mill.share(mill);
            old.close();
            // The other store numbers from 1 again.
            does(sessions, session -> session.createMutationQuery("delete from Order").executeUpdate());
            Entities.Order second = new Entities.Order();
            does(sessions, session -> session.persist(second));
            assertNotNull(second.id, "of the mill that is shared now");
        }
    }

    @Test
    void a_setting_that_names_a_store_is_refused_and_none_is_made() {
        Configuration configuration = configuration(Stores.H2_AND_SQLITE, Entities.ALL).setProperty("keymill.config", "sqlite:shop.keymill");
        configuration.getProperties().remove("keymill.mill");
        Throwable said = Causes.root(assertThrows(RuntimeException.class, () -> configuration.buildSessionFactory().close()));
        assertTrue(said.getMessage().startsWith("Hibernate has no setting keymill.config; open the mill yourself"), said.toString());
        assertFalse(Files.exists(Path.of("keymill.db")));
    }

    /** Its database is of its own class loader. */
    static class Application implements Runnable {
        @Override
        public void run() {
            org.h2.jdbcx.JdbcDataSource database = new org.h2.jdbcx.JdbcDataSource();
            database.setUrl("jdbc:h2:mem:versions");
            Configuration configuration = new Configuration().addAnnotatedClass(Entities.Order.class);
            configuration.getProperties().put("hibernate.connection.datasource", database);
            configuration.buildSessionFactory().close();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-support", "keymill-hibernate"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
