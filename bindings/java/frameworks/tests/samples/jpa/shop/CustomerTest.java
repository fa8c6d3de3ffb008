package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;

/** A first program with Spring Data JPA: customers are saved, found by their id and by another field, changed and deleted. */
class CustomerTest {
    @SpringBootApplication
    static class Shop {}

    @Test
    void what_is_saved_is_found() {
        try (ConfigurableApplicationContext context = new SpringApplicationBuilder(Shop.class).web(WebApplicationType.NONE)
                .properties("spring.main.banner-mode=off", "logging.level.root=warn", "spring.jpa.hibernate.ddl-auto=create-drop").run()) {
            Customers customers = context.getBean(Customers.class);
            Customer ada = customers.save(new Customer("Ada", "London"));
            Customer bob = customers.save(new Customer("Bob", "Paris"));
            Customer cyd = customers.save(new Customer("Cyd", "London"));
            assertTrue(ada.id < bob.id && bob.id < cyd.id);
            assertEquals(3, customers.count());
            assertEquals("Bob", customers.findById(bob.id).get().name);
            assertEquals(List.of(ada.id, cyd.id), customers.findByTownOrderById("London").stream().map(each -> each.id).toList());
            bob.town = "London";
            assertEquals(bob.id, customers.save(bob).id);
            customers.deleteById(ada.id);
            assertEquals(List.of(bob.id, cyd.id), customers.findByTownOrderById("London").stream().map(each -> each.id).toList());
        }
    }
}
