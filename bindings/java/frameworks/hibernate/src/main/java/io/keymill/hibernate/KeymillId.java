package io.keymill.hibernate;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import org.hibernate.annotations.IdGeneratorType;
import org.hibernate.annotations.ValueGenerationType;

/**
 * The field's value comes from keymill before the row is inserted: an entity's id, beside {@code @Id}, or any other column.
 * A value that is set is kept.
 *
 * <pre>{@code
 * @Entity class Order {
 *     @Id @KeymillId Long id;
 *     @KeymillId("serial:orders/no?number=000000") String no;
 * }
 * }</pre>
 *
 * <p>The field is a {@code long}, an {@code int} or {@code short} (a number that it does not hold is an error), a {@code BigInteger},
 * a {@code BigDecimal} or a {@code String}. For Hibernate 6.2 and later; before it, {@link KeymillStrategy}.
 */
@IdGeneratorType(KeymillIdGenerator.class)
@ValueGenerationType(generatedBy = KeymillIdGenerator.class)
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.FIELD, ElementType.METHOD})
public @interface KeymillId {
    /**
     * The source: {@code segment:NAME}, {@code snowflake:NAME} or {@code serial:TABLE/COLUMN}, with options. {@code {table}} stands for
     * the entity's table.
     *
     * @return the spec
     */
    String value() default "segment:{table}";
}
