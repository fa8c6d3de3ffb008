package shop;

import io.keymill.hibernate.KeymillId;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;

@Entity
@Table(name = "orders")
public class Order {
    @Id @KeymillId Long id;
}
