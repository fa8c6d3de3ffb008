package shop;

import io.keymill.Mill;
import io.keymill.Source;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.context.event.ApplicationReadyEvent;
import org.springframework.boot.devtools.restart.Restarter;
import org.springframework.context.ApplicationListener;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** An application that DevTools restarts a number of times; each start prints what it finds. What outlives a restart is among the JVM's properties. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
public class Restarting {
    private static final String BEFORE = "restarting.before";

    /** By reflection: the class may be of the class loader before. */
    private static boolean isOpen(Object mill) {
        try {
            return mill != null && !(boolean) mill.getClass().getMethod("isClosed").invoke(mill);
        } catch (ReflectiveOperationException e) {
            throw new AssertionError(e);
        }
    }

    @Bean
    ApplicationListener<ApplicationReadyEvent> ready(Mill mill, @Qualifier("orders") Source orders) {
        return event -> {
            boolean restarted = Restarting.class.getClassLoader().getClass().getSimpleName().equals("RestartClassLoader");
            boolean own = Mill.class.getClassLoader() == Restarting.class.getClassLoader();
            System.getProperties().put(BEFORE, mill);
            int left = Integer.getInteger("restarts");
            System.out.println("start" + (restarted ? " by DevTools" : "") + (own ? " with a library of its own" : "") + ", id " + orders.next() + ", threads " + Tasks.ofKeymill());
            if (left > 0) {
                System.setProperty("restarts", String.valueOf(left - 1));
                new Thread(() -> Restarter.getInstance().restart()).start();
            }
        };
    }

    public static void main(String[] arguments) {
        if (isOpen(System.getProperties().get(BEFORE))) {
            System.out.println("the mill before is open");
        }
        SpringApplication.run(Restarting.class, arguments);
    }
}
