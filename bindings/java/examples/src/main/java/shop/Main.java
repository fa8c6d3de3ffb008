package shop;

import io.keymill.Mill;
import io.keymill.Serial;
import io.keymill.Source;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.cfg.Configuration;
import org.springframework.boot.SpringApplication;
import org.springframework.context.ConfigurableApplicationContext;

/** Runs the documents' integrations: three orders through Hibernate, then the beans of a Spring Boot application and of MyBatis-Plus. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        Configuration configuration = new Configuration().addAnnotatedClass(Order.class)
                .setProperty("hibernate.connection.url", "jdbc:h2:mem:shop")
                .setProperty("hibernate.hbm2ddl.auto", "create");
        try (SessionFactory sessions = configuration.buildSessionFactory(); Session session = sessions.openSession()) {
            session.beginTransaction();
            for (long expected = 1; expected <= 3; expected++) {
                Order order = new Order();
                session.persist(order);
                check(order.id == expected, "Hibernate gave " + order.id);
            }
            session.getTransaction().commit();
        }
        Mill mill;
        try (ConfigurableApplicationContext context = SpringApplication.run(KeymillBeans.class, "--keymill.config=memory:")) {
            mill = context.getBean(Mill.class);
            check(context.getBean(Source.class).next() == 1, "Spring's source");
            check(new KeymillIds(context.getBean(Source.class)).nextId(null).longValue() == 2, "MyBatis-Plus");
            check(context.getBean(Serial.class).next().endsWith("000001"), "Spring's serial");
        }
        check(mill.isClosed(), "the mill closes with the context");
        System.out.println("hibernate and spring: ok");
    }

    private static void check(boolean is, String what) {
        if (!is) {
            throw new AssertionError(what);
        }
    }
}
