package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Router;
import io.keymill.Shards;
import java.sql.SQLException;
import java.util.Map;
import org.h2.jdbcx.JdbcConnectionPool;
import org.junit.jupiter.api.Test;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.datasource.DataSourceTransactionManager;
import org.springframework.jdbc.datasource.TransactionAwareDataSourceProxy;
import org.springframework.transaction.support.TransactionTemplate;

/** Writes to shards beside and within the transactions of Spring. No range moves, so H2 is a shard. */
class ShardsInSpringTest {
    private final JdbcConnectionPool pool = JdbcConnectionPool.create("jdbc:h2:mem:" + System.nanoTime() + ";DB_CLOSE_DELAY=-1", "sa", "");
    private final JdbcTemplate jdbc = new JdbcTemplate(pool);
    private final TransactionTemplate transaction = new TransactionTemplate(new DataSourceTransactionManager(pool));
    private final Router router = Router.fromText("version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\n");

    ShardsInSpringTest() {
        jdbc.execute("CREATE TABLE purchase (id BIGINT PRIMARY KEY)");
    }

    private static int add(java.sql.Connection connection, long id) throws SQLException {
        return connection.createStatement().executeUpdate("INSERT INTO purchase VALUES (" + id + ")");
    }

    private long rows() {
        return jdbc.queryForObject("SELECT COUNT(*) FROM purchase", Long.class);
    }

    @Test
    void a_connection_of_springs_own_transaction_is_refused_and_that_goes_on() {
        Shards shards = Shards.of(router, Map.of("s1", new TransactionAwareDataSourceProxy(pool))).table("purchase", "id");
        transaction.executeWithoutResult(status -> {
            jdbc.update("INSERT INTO purchase VALUES (1)");
            KeymillException error = assertThrows(KeymillException.class, () -> shards.write(2, connection -> add(connection, 2)));
            assertEquals(Code.INVALID_CONFIG, error.code());
            assertTrue(error.getMessage().contains("a transaction that Spring has begun"), error.getMessage());
        });
        assertEquals(1, rows());
        assertEquals(1, shards.<Integer, RuntimeException>write(2, connection -> {
            try {
                return add(connection, 2);
            } catch (SQLException e) {
                throw new IllegalStateException(e);
            }
        }));
        assertEquals(2, rows());
    }

    @Test
    void a_write_inside_a_transaction_of_spring_is_one_of_its_own() {
        Shards shards = Shards.of(router, Map.of("s1", pool)).table("purchase", "id");
        transaction.executeWithoutResult(status -> {
            jdbc.update("INSERT INTO purchase VALUES (1)");
            try {
                shards.write(2, connection -> add(connection, 2));
            } catch (SQLException e) {
                throw new IllegalStateException(e);
            }
            status.setRollbackOnly();
        });
        assertEquals(2, jdbc.queryForObject("SELECT id FROM purchase", Long.class), "the write stays");
    }
}
