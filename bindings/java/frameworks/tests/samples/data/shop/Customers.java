package shop;

import java.util.List;
import org.springframework.data.repository.ListCrudRepository;

public interface Customers extends ListCrudRepository<Customer, Long> {
    List<Customer> findByTownOrderById(String town);
}
