package io.keymill.support;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLNonTransientConnectionException;
import java.sql.SQLRecoverableException;
import java.sql.SQLTransientException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.util.OptionalLong;

/** The keys that a table has. */
@FunctionalInterface
public interface TableKeys {
    /**
     * The highest key below a number.
     *
     * @param end the number; {@link Long#MAX_VALUE} for the highest of all
     * @return the key, or nothing: there is none, or the table cannot be asked
     * @throws IllegalStateException if the connection or its transaction is over, so that another one has to ask
     */
    OptionalLong highest(long end);

    /**
     * Asks a table, in the transaction of this connection.
     *
     * @param connection stays open
     * @param table the table as it stands in SQL, with its schema and quotes
     * @param column the key's column, likewise
     * @param end as in {@link #highest}
     * @return as {@link #highest}
     */
    static OptionalLong highest(Connection connection, String table, String column, long end) {
        String below = end == Long.MAX_VALUE ? "" : " where " + column + " < " + end;
        try {
            // After a statement that failed, PostgreSQL refuses every other one of the transaction.
            Savepoint before = connection.getAutoCommit() ? null : connection.setSavepoint();
            try (Statement statement = connection.createStatement(); ResultSet row = statement.executeQuery("select max(" + column + ") from " + table + below)) {
                row.next();
                long highest = row.getLong(1);
                return row.wasNull() ? OptionalLong.empty() : OptionalLong.of(highest);
            } catch (SQLException e) {
                if (isOver(e)) {
                    throw e;
                }
                if (before != null) {
                    connection.rollback(before);
                }
                return OptionalLong.empty();
            }
        } catch (SQLException e) {
            if (isOver(e)) {
                throw new IllegalStateException("the table " + table + " cannot be asked for its highest key, so no id was taken; repeat the transaction", e);
            }
            return OptionalLong.empty();
        }
    }

    /** The connection, the transaction or the server ends, and nothing is known of the table. Not every driver has the classes for it. */
    static boolean isOver(SQLException e) {
        String state = e.getSQLState() == null ? "" : e.getSQLState();
        boolean said = e instanceof SQLNonTransientConnectionException || e instanceof SQLTransientException || e instanceof SQLRecoverableException;
        return said || state.startsWith("08") || state.startsWith("40") || state.startsWith("57") || state.startsWith("70") || state.equals("25P02");
    }
}
