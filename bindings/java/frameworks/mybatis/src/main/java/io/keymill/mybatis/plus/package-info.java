/** MyBatis-Plus: {@link io.keymill.mybatis.plus.KeymillIdentifierGenerator}. */
package io.keymill.mybatis.plus;
