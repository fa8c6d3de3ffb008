package shop;

import io.keymill.Mill;
import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.concurrent.atomic.AtomicInteger;

/** The application's database and the mill's store of a test: H2 with SQLite beside it, or one MariaDB for both. */
public enum Stores {
    H2_AND_SQLITE,
    MARIADB;

    private static final AtomicInteger COUNT = new AtomicInteger();

    /** MariaDB where `KEYMILL_TEST_MYSQL` names one. */
    public static Stores[] there() {
        return System.getenv("KEYMILL_TEST_MYSQL") == null ? new Stores[] {H2_AND_SQLITE} : values();
    }

    /** The JDBC URL of a database for one test. */
    public String jdbcUrl() {
        if (this == H2_AND_SQLITE) {
            return "jdbc:h2:mem:shop" + COUNT.incrementAndGet() + ";DB_CLOSE_DELAY=-1";
        }
        URI url = url();
        return "jdbc:mariadb://" + url.getHost() + ":" + url.getPort() + url.getPath();
    }

    public String user() {
        return this == H2_AND_SQLITE ? "sa" : url().getUserInfo().split(":")[0];
    }

    public String password() {
        String[] login = this == H2_AND_SQLITE ? new String[0] : url().getUserInfo().split(":");
        return login.length < 2 ? "" : login[1];
    }

    /** Runs statements in the application's database. */
    public static void run(String url, String user, String password, String... statements) {
        try (Connection connection = DriverManager.getConnection(url, user, password); Statement statement = connection.createStatement()) {
            for (String sql : statements) {
                statement.execute(sql);
            }
        } catch (SQLException e) {
            throw new AssertionError(e);
        }
    }

    private static URI url() {
        return URI.create(System.getenv("KEYMILL_TEST_MYSQL"));
    }

    /** What a mill on it is opened by. */
    public String config() {
        if (this == MARIADB) {
            return System.getenv("KEYMILL_TEST_MYSQL");
        }
        try {
            Path folder = Files.createTempDirectory("keymill");
            folder.toFile().deleteOnExit();
            return "sqlite:" + folder.resolve("shop.keymill");
        } catch (IOException e) {
            throw new AssertionError(e);
        }
    }

    /** A mill with what these sources need. */
    public Mill mill(String... specs) {
        Mill mill = Mill.open(config());
        mill.init(specs);
        return mill;
    }
}
