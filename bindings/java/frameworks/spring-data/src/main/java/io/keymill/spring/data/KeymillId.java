package io.keymill.spring.data;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * The property's value comes from keymill before the row is written: an entity's id, beside {@code @Id}, or any other column, of an
 * aggregate's root and of all entities in it. A value that is set is kept. Spring Data does not say whether it inserts or updates: a
 * column that is null gets a value at an update too. Kotlin: {@code @field:KeymillId}.
 *
 * <p>The property is a {@code long}, an {@code int} or {@code short} (a number that it does not hold is an error), a
 * {@code BigInteger}, a {@code BigDecimal} or a {@code String}.
 */
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.FIELD, ElementType.METHOD})
public @interface KeymillId {
    /**
     * The source: {@code segment:NAME}, {@code snowflake:NAME} or {@code serial:TABLE/COLUMN}, with options. {@code {table}} stands for
     * the entity's table, in an embedded value for its owner's.
     *
     * @return the spec
     */
    String value() default "segment:{table}";
}
