package io.keymill.support;

import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;

/** The smallest and the largest key that a table has. */
public final class TableKeys {
    final long least;
    final long most;

    private TableKeys(long least, long most) {
        this.least = least;
        this.most = most;
    }

    /**
     * Asks a table, in the transaction of this connection.
     *
     * @param connection stays open
     * @param table the table as it stands in SQL, with its schema and quotes
     * @param column the key's column, likewise
     * @return null: it has no row, or cannot be asked
     */
    public static TableKeys of(Connection connection, String table, String column) {
        try {
            // After a statement that failed, PostgreSQL refuses every other one of the transaction.
            Savepoint before = connection.getAutoCommit() ? null : connection.setSavepoint();
            try (Statement statement = connection.createStatement(); ResultSet row = statement.executeQuery("select min(" + column + "), max(" + column + ") from " + table)) {
                row.next();
                long least = row.getLong(1);
                long most = row.getLong(2);
                return row.wasNull() ? null : new TableKeys(least, most);
            } catch (SQLException e) {
                if (before != null) {
                    connection.rollback(before);
                }
                return null;
            }
        } catch (SQLException e) {
            return null;
        }
    }
}
