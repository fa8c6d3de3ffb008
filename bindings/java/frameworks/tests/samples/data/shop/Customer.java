package shop;

import org.springframework.data.annotation.Id;
import org.springframework.data.relational.core.mapping.Table;

@Table("CUSTOMER")
public class Customer {
    @Id
    Long id;
    String name;
    String town;

    Customer(String name, String town) {
        this.name = name;
        this.town = town;
    }
}
