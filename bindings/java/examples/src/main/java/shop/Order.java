package shop;

import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;
import org.hibernate.annotations.GenericGenerator;
import org.hibernate.annotations.Parameter;

/** An entity whose id comes from keymill. */
@Entity(name = "orders")
public class Order {
    @Id
    @GeneratedValue(generator = "keymill")
    @GenericGenerator(
            name = "keymill",
            type = KeymillGenerator.class,
            parameters = @Parameter(name = "source", value = "segment:orders"))
    Long id;
}
