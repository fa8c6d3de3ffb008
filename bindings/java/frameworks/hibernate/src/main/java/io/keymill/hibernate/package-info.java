/** Ids and other columns of Hibernate's entities from keymill: {@link io.keymill.hibernate.KeymillId}. */
package io.keymill.hibernate;
