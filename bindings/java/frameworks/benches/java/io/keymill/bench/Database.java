package io.keymill.bench;

import io.keymill.Mill;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;

/** The application's database, which on MariaDB is the mill's store too; beside H2 stands SQLite. */
enum Database {
    H2("org.h2.Driver"),
    MARIADB("org.mariadb.jdbc.Driver");

    final String driver;

    Database(String driver) {
        this.driver = driver;
    }

    private static URI server() {
        return URI.create(System.getenv("KEYMILL_TEST_MYSQL"));
    }

    String url() {
        return this == H2 ? "jdbc:h2:mem:shop;DB_CLOSE_DELAY=-1" : "jdbc:mariadb://" + server().getHost() + ":" + server().getPort() + server().getPath();
    }

    String user() {
        return this == H2 ? "sa" : server().getUserInfo().split(":")[0];
    }

    String password() {
        return this == H2 ? "" : server().getUserInfo().split(":")[1];
    }

    Mill mill() {
        try {
            Mill mill = Mill.open(this == MARIADB ? System.getenv("KEYMILL_TEST_MYSQL") : "sqlite:" + Files.createTempDirectory("keymill").resolve("shop.keymill"));
            mill.init("segment:keymill");
            return mill;
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    void run(String... statements) {
        try (Connection connection = DriverManager.getConnection(url(), user(), password()); Statement statement = connection.createStatement()) {
            for (String sql : statements) {
                statement.execute(sql);
            }
        } catch (SQLException e) {
            throw new IllegalStateException(e);
        }
    }
}
