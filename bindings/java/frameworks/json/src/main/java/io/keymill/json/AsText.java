package io.keymill.json;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * The number, or each number of a collection, an array or a map, is written as text and read from text or a number. Fields with keymill's
 * {@code @KeymillId} are as if they had it; other numbers stay numbers, in an {@code Optional} and in a list of lists too.
 */
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.FIELD, ElementType.METHOD, ElementType.PARAMETER})
public @interface AsText {}
