/**
 * Keys ({@code type: KEYMILL}) and sharding by genes ({@code type: KEYMILL_GENE}) for ShardingSphere, which finds them by their service
 * files.
 */
package io.keymill.shardingsphere;
