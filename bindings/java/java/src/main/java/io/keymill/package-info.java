/**
 * keymill hands out identifiers at memory speed: database-backed segments, snowflakes, and dated serial numbers.
 *
 * <p>{@link io.keymill.Mill} is the way in; {@link io.keymill.KeyFactory} replaces the hand-written one.
 */
package io.keymill;
