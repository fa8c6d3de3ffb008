package shop;

import javax.persistence.Entity;
import javax.persistence.GeneratedValue;
import javax.persistence.Id;
import javax.persistence.Table;
import org.hibernate.annotations.GenericGenerator;

@Entity
@Table(name = "orders")
public class Order {
    @Id
    @GeneratedValue(generator = "orders")
    @GenericGenerator(name = "orders", strategy = "io.keymill.hibernate.KeymillStrategy")
    Long id;
}
