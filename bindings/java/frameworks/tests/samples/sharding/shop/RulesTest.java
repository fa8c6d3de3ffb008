package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import javax.sql.DataSource;
import org.apache.shardingsphere.driver.api.yaml.YamlShardingSphereDataSourceFactory;
import org.junit.jupiter.api.Test;

/** A first program with ShardingSphere: rows of a table over two databases, with keys that it makes. */
class RulesTest {
    private static final String RULES = """
            dataSources:
              ds_0: {dataSourceClassName: com.zaxxer.hikari.HikariDataSource, driverClassName: org.h2.Driver, jdbcUrl: "jdbc:h2:mem:rules0;MODE=MySQL", username: sa, password: ''}
              ds_1: {dataSourceClassName: com.zaxxer.hikari.HikariDataSource, driverClassName: org.h2.Driver, jdbcUrl: "jdbc:h2:mem:rules1;MODE=MySQL", username: sa, password: ''}
            rules:
            - !SHARDING
              tables:
                purchase:
                  actualDataNodes: ds_$->{0..1}.purchase
                  databaseStrategy:
                    standard: {shardingColumn: buyer, shardingAlgorithmName: by_buyer}
                  keyGenerateStrategy: {column: id, keyGeneratorName: ids}
              shardingAlgorithms:
                by_buyer:
                  type: INLINE
                  props:
                    algorithm-expression: ds_$->{buyer % 2}
              keyGenerators:
                ids:
                  type: SNOWFLAKE
            """;

    @Test
    void rows_have_keys_and_are_found() throws Exception {
        DataSource databases = YamlShardingSphereDataSourceFactory.createDataSource(RULES.getBytes(StandardCharsets.UTF_8));
        try (Connection connection = databases.getConnection(); Statement statement = connection.createStatement()) {
            statement.execute("create table purchase (id bigint primary key, buyer bigint)");
            long first = add(statement, 1);
            long second = add(statement, 2);
            assertTrue(first < second);
            assertEquals(2, read(statement, "select count(*) from purchase"));
            assertEquals(second, read(statement, "select id from purchase where buyer = 2"));
            assertEquals(1, read(statement, "select buyer from purchase where id = " + first));
        }
    }

    private static long add(Statement statement, int buyer) throws SQLException {
        statement.executeUpdate("insert into purchase (buyer) values (" + buyer + ")", Statement.RETURN_GENERATED_KEYS);
        try (ResultSet keys = statement.getGeneratedKeys()) {
            keys.next();
            return keys.getLong(1);
        }
    }

    private static long read(Statement statement, String query) throws SQLException {
        try (ResultSet row = statement.executeQuery(query)) {
            row.next();
            return row.getLong(1);
        }
    }
}
