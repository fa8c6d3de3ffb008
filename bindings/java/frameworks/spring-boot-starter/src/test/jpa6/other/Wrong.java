package other;

import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;

/** With the annotation of the module for MyBatis. */
@Entity
@Table(name = "wrong")
public class Wrong {
    @Id @io.keymill.mybatis.KeymillId Long id;
}
