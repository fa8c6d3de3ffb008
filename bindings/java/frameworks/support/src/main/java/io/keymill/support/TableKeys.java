package io.keymill.support;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
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
                if (before != null) {
                    connection.rollback(before);
                }
                return OptionalLong.empty();
            }
        } catch (SQLException e) {
            return OptionalLong.empty();
        }
    }
}
