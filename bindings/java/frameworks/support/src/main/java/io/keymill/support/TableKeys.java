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
     * The lowest or the highest key from a number on.
     *
     * @param lowest whether the lowest one is asked for
     * @param from the number; {@link Long#MIN_VALUE}: of all keys
     * @return the key, that there is none, or that nothing is known
     * @throws IllegalStateException if the connection or its transaction is over, so that another one has to ask
     */
    Found key(boolean lowest, long from);

    /** What a table answers. */
    final class Found {
        /** The table has no such key, or there is no table to ask. */
        public static final Found NONE = new Found(true, OptionalLong.empty());
        /** The query failed: nothing is known, and the table is to be asked again. */
        public static final Found UNKNOWN = new Found(false, OptionalLong.empty());

        private final boolean known;
        private final OptionalLong key;

        private Found(boolean known, OptionalLong key) {
            this.known = known;
            this.key = key;
        }

        /**
         * A key of the table.
         *
         * @param key the key
         * @return the answer
         */
        public static Found of(long key) {
            return new Found(true, OptionalLong.of(key));
        }

        boolean isKnown() {
            return known;
        }

        OptionalLong key() {
            return key;
        }
    }

    /**
     * Asks a table, in the transaction of this connection.
     *
     * @param connection stays open
     * @param table the table as it stands in SQL, with its schema and quotes
     * @param column the key's column as it stands in SQL
     * @param lowest as in {@link #key}
     * @param from as in {@link #key}
     * @return as {@link #key}
     */
    static Found ask(Connection connection, String table, String column, boolean lowest, long from) {
        String above = from == Long.MIN_VALUE ? "" : " where " + column + " >= " + from;
        String query = "select " + (lowest ? "min(" : "max(") + column + ") from " + table + above;
        try {
            // After a statement that failed, PostgreSQL refuses every other one of the transaction.
            Savepoint before = connection.getAutoCommit() ? null : connection.setSavepoint();
            try (Statement statement = connection.createStatement(); ResultSet row = statement.executeQuery(query)) {
                row.next();
                long key = row.getLong(1);
                return row.wasNull() ? Found.NONE : Found.of(key);
            } catch (SQLException e) {
                if (isOver(e)) {
                    throw e;
                }
                if (before != null) {
                    connection.rollback(before);
                }
                return Found.UNKNOWN;
            }
        } catch (SQLException e) {
            if (isOver(e)) {
                throw new IllegalStateException("the table " + table + " cannot be asked for its keys, so no id goes out; repeat the transaction", e);
            }
            return Found.UNKNOWN;
        }
    }

    /**
     * Whether the connection, the transaction or the server ends, and nothing is known of the table. Not every driver has the classes for it.
     *
     * @param e what a query failed with
     * @return true: no further query can say more
     */
    static boolean isOver(SQLException e) {
        String state = e.getSQLState() == null ? "" : e.getSQLState();
        boolean said = e instanceof SQLNonTransientConnectionException || e instanceof SQLTransientException || e instanceof SQLRecoverableException;
        return said || state.startsWith("08") || state.startsWith("40") || state.startsWith("57") || state.startsWith("70") || state.equals("25P02");
    }
}
