package shop;

import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;

@Entity
public class Customer {
    @Id
    @GeneratedValue
    Long id;
    String name;
    String town;

    protected Customer() {}

    Customer(String name, String town) {
        this.name = name;
        this.town = town;
    }
}
