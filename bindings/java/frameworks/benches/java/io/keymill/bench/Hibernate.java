package io.keymill.bench;

import io.hypersistence.utils.hibernate.id.Tsid;
import io.keymill.Mill;
import io.keymill.hibernate.KeymillId;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.GenerationType;
import jakarta.persistence.Id;
import jakarta.persistence.MappedSuperclass;
import jakarta.persistence.SequenceGenerator;
import jakarta.persistence.TableGenerator;
import java.util.Map;
import java.util.function.LongFunction;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;

/** 1000 entities in one transaction, with every way to an id. */
final class Hibernate {
    @MappedSuperclass
    abstract static class Row {
        String what = "a book and a pen";
        int amount = 3;
    }

    @Entity(name = "keymill")
    static class Keymill extends Row {
        @Id @KeymillId Long id;
    }

    @Entity(name = "identity_column")
    static class Identity extends Row {
        @Id @GeneratedValue(strategy = GenerationType.IDENTITY) Long id;
    }

    @Entity(name = "with_sequence")
    static class Sequence extends Row {
        @Id @GeneratedValue(strategy = GenerationType.SEQUENCE, generator = "of_sequence")
        @SequenceGenerator(name = "of_sequence", sequenceName = "of_sequence", allocationSize = 50)
        Long id;
    }

    @Entity(name = "with_table")
    static class Table extends Row {
        @Id @GeneratedValue(strategy = GenerationType.TABLE, generator = "of_table")
        @TableGenerator(name = "of_table", table = "of_table", allocationSize = 50)
        Long id;
    }

    @Entity(name = "with_tsid")
    static class Tsids extends Row {
        @Id @Tsid Long id;
    }

    @Entity(name = "by_hand")
    static class ByHand extends Row {
        @Id Long id;

        ByHand() {}

        ByHand(long id) {
            this.id = id;
        }
    }

    private static final Class<?>[] ENTITIES = {Keymill.class, Identity.class, Sequence.class, Table.class, Tsids.class, ByHand.class};

    private Hibernate() {}

    static SessionFactory sessions(Database database, Mill mill) {
        Configuration configuration = new Configuration()
                .setProperty("hibernate.connection.url", database.url())
                .setProperty("hibernate.connection.username", database.user())
                .setProperty("hibernate.connection.password", database.password())
                .setProperty("hibernate.hbm2ddl.auto", "create-drop")
                .setProperty("hibernate.jdbc.batch_size", "100")
                .setProperty("hibernate.order_inserts", "true");
        for (Class<?> entity : ENTITIES) {
            configuration.addAnnotatedClass(entity);
        }
        configuration.getProperties().put("keymill.mill", mill);
        return configuration.buildSessionFactory();
    }

    private static Runnable transaction(SessionFactory sessions, LongFunction<Object> entity) {
        long[] made = {0};
        return () -> {
            try (Session session = sessions.openSession()) {
                session.beginTransaction();
                for (int i = 0; i < Rounds.ROWS; i++) {
                    session.persist(entity.apply(++made[0]));
                }
                session.getTransaction().commit();
            }
        };
    }

    static Map<String, double[]> measure(Database database, double warmUp, double seconds) {
        try (Mill mill = database.mill(); SessionFactory sessions = sessions(database, mill)) {
            Rounds rounds = new Rounds(() -> database.run("truncate table keymill", "truncate table identity_column", "truncate table with_sequence", "truncate table with_table", "truncate table with_tsid", "truncate table by_hand"));
            rounds.add("**`@KeymillId`**", transaction(sessions, i -> new Keymill()));
            rounds.add("`@Tsid`, hypersistence-utils 3.11.0", transaction(sessions, i -> new Tsids()));
            rounds.add("`SEQUENCE`, pooled, 50", transaction(sessions, i -> new Sequence()));
            rounds.add("`TABLE`, pooled, 50", transaction(sessions, i -> new Table()));
            rounds.add("`IDENTITY`", transaction(sessions, i -> new Identity()));
            rounds.add("ids set by hand (bound)", transaction(sessions, ByHand::new));
            return rounds.measure(warmUp, seconds);
        }
    }
}
