/** MyBatis-Flex: {@link io.keymill.mybatis.flex.KeymillKeyGenerator}. */
package io.keymill.mybatis.flex;
