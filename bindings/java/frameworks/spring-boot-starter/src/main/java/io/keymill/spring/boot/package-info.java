/** keymill in Spring Boot: {@link io.keymill.spring.boot.KeymillProperties} says what can be configured. */
package io.keymill.spring.boot;
