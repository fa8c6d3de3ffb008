/** Ids of rows that MyBatis inserts: {@link io.keymill.mybatis.KeymillId} and {@link io.keymill.mybatis.KeymillInterceptor}. */
package io.keymill.mybatis;
