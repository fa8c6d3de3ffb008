package other;

import javax.persistence.Entity;
import javax.persistence.Id;
import javax.persistence.Table;

/** With the annotation of the module for MyBatis. */
@Entity
@Table(name = "wrong")
public class Wrong {
    @Id @io.keymill.mybatis.KeymillId Long id;
}
