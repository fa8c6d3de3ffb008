package shop;

import io.keymill.Source;
import org.springframework.beans.factory.annotation.Qualifier;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;

/** An application that prints its first id. */
@SpringBootApplication
public class Application {
    @Bean
    CommandLineRunner first(@Qualifier("orders") Source orders) {
        return arguments -> System.out.println("id " + orders.next());
    }

    public static void main(String[] arguments) {
        SpringApplication.run(Application.class, arguments);
    }
}
