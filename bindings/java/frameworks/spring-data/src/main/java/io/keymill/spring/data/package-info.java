/** Ids of what Spring Data JDBC and R2DBC insert: {@link io.keymill.spring.data.KeymillId}. */
package io.keymill.spring.data;
