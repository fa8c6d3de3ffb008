package shop;

import org.springframework.data.repository.reactive.ReactiveCrudRepository;
import reactor.core.publisher.Flux;

public interface ReactiveCustomers extends ReactiveCrudRepository<Customer, Long> {
    Flux<Customer> findByTownOrderById(String town);
}
