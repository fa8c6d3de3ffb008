package io.keymill;

import java.sql.Connection;
import java.sql.SQLException;

/**
 * What a program does on the shard where an id is: see {@link Shards#write(long, ShardWork)}.
 *
 * @param <T> what it answers with
 * @param <X> what it may throw; {@link SQLException} for most
 */
@FunctionalInterface
public interface ShardWork<T, X extends Exception> {
    /**
     * Does it. {@link Shards} begins the transaction and ends it: the work does not commit, roll back or close the connection, and the connection
     * cannot be used after the work. The work may be run again from its beginning, so it changes nothing but this transaction.
     *
     * @param connection a connection to the shard, in a transaction
     * @return the answer of the write; null where there is none
     * @throws X where it fails: then nothing is written, and the program gets this exception
     */
    T run(Connection connection) throws X;
}
