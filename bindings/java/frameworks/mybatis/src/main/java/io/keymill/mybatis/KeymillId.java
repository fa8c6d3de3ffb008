package io.keymill.mybatis;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * {@link KeymillInterceptor} sets the field before its object is inserted; a value that is set is kept. The field is a {@code long}, an
 * {@code int} or {@code short} (a number that it does not hold is an error), a {@code BigInteger}, a {@code BigDecimal} or a {@code String}.
 */
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.FIELD)
public @interface KeymillId {
    /**
     * The source: {@code segment:NAME}, {@code snowflake:NAME} or {@code serial:TABLE/COLUMN}, with options. {@code {table}} stands for
     * the table that the statement inserts into.
     *
     * @return the spec
     */
    String value() default "segment:{table}";
}
