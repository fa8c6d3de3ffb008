package io.keymill;

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;

/**
 * A process that takes ids and writes rows into the same file with sqlite-jdbc, which opens and closes the file in every
 * round: CONFIG PATH ROUNDS. It prints the ids.
 */
public final class Beside {
    private Beside() {}

    public static void main(String[] arguments) throws Exception {
        List<String> ids = new ArrayList<>();
        try (Mill mill = Mill.open(arguments[0])) {
            Source orders = mill.segment("orders?step=5&max_step=5&deadline=60s");
            for (int round = Integer.parseInt(arguments[2]); round > 0; round--) {
                try (Connection app = connect(arguments[1]); Statement statement = app.createStatement()) {
                    statement.executeUpdate("INSERT INTO app (text) VALUES ('row')");
                    for (long id : orders.take(5)) {
                        ids.add(Long.toString(id));
                    }
                    value(app, "SELECT count(*) FROM app");
                }
            }
        }
        System.out.println(String.join("\n", ids));
    }

    /** Opens a file with sqlite-jdbc. */
    static Connection connect(String path) throws SQLException {
        Connection connection = DriverManager.getConnection("jdbc:sqlite:" + path);
        try (Statement statement = connection.createStatement()) {
            statement.execute("PRAGMA busy_timeout=60000");
        }
        return connection;
    }

    /** The first column of a query's first row. */
    static String value(Connection connection, String query) throws SQLException {
        try (Statement statement = connection.createStatement(); var rows = statement.executeQuery(query)) {
            rows.next();
            return rows.getString(1);
        }
    }
}
