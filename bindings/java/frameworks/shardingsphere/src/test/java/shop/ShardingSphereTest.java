package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Business;
import io.keymill.Mill;
import io.keymill.Router;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.HashSet;
import java.util.Set;
import javax.sql.DataSource;
import org.apache.shardingsphere.driver.api.yaml.YamlShardingSphereDataSourceFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** ShardingSphere-JDBC over two H2 databases. */
class ShardingSphereTest {
    private Mill mill;
    private String[] urls;

    @BeforeEach
    void share() {
        mill = Mill.open(Stores.H2_AND_SQLITE.config());
        Mill.share(mill);
        urls = new String[] {Stores.H2_AND_SQLITE.jdbcUrl() + ";MODE=MySQL;DATABASE_TO_UPPER=false", Stores.H2_AND_SQLITE.jdbcUrl() + ";MODE=MySQL;DATABASE_TO_UPPER=false"};
        for (String url : urls) {
            Stores.run(url, "sa", "", "create table orders (id bigint primary key, buyer bigint, what varchar(40))");
        }
    }

    @AfterEach
    void close() {
        Mill.share(null);
        mill.close();
    }

    private DataSource sharding(String strategy, String generator) throws Exception {
        String yaml = "dataSources:\n";
        for (int i = 0; i < 2; i++) {
            yaml += "  ds_s" + (i + 1) + ":\n    dataSourceClassName: com.zaxxer.hikari.HikariDataSource\n    driverClassName: org.h2.Driver\n    jdbcUrl: " + urls[i] + "\n    username: sa\n    password: ''\n";
        }
        yaml += "rules:\n- !SHARDING\n  tables:\n    orders:\n      actualDataNodes: ds_s1.orders,ds_s2.orders\n      keyGenerateStrategy:\n        column: id\n        keyGeneratorName: ids\n"
                + "      databaseStrategy:\n        complex:\n          shardingColumns: id,buyer\n          shardingAlgorithmName: gene\n"
                + "  keyGenerators:\n    ids:\n      type: KEYMILL\n" + generator
                + "  shardingAlgorithms:\n    gene:\n      type: KEYMILL_GENE\n      props:\n" + strategy;
        return YamlShardingSphereDataSourceFactory.createDataSource(yaml.getBytes(StandardCharsets.UTF_8));
    }

    private static final String SOURCE = "      props:\n        source: segment:orders\n";

    private static Path table(int split) throws IOException {
        Path file = Files.createTempFile("router", ".json");
        return Files.writeString(file, "{\"version\": 1, \"range\": [{\"upper\": " + split + ", \"shard\": \"s1\"}, {\"upper\": 65535, \"shard\": \"s2\"}]}");
    }

    private static int count(String url) {
        try (Connection connection = java.sql.DriverManager.getConnection(url, "sa", ""); Statement statement = connection.createStatement(); ResultSet row = statement.executeQuery("select count(*) from orders")) {
            row.next();
            return row.getInt(1);
        } catch (SQLException e) {
            throw new AssertionError(e);
        }
    }

    @Test
    void rows_without_an_id_get_one_and_the_statement_returns_it() throws Exception {
        String strategy = "        file: " + table(65534) + "\n        id-columns: id\n        key-columns: buyer\n";
        Set<Long> ids = new HashSet<>();
        DataSource source = sharding(strategy, SOURCE);
        try (Connection connection = source.getConnection(); PreparedStatement insert = connection.prepareStatement("insert into orders (buyer, what) values (?, ?), (?, ?), (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
            for (int i = 0; i < 100; i++) {
                for (int row = 0; row < 3; row++) {
                    insert.setLong(2 * row + 1, 42);
                    insert.setString(2 * row + 2, "row");
                }
                insert.executeUpdate();
                ResultSet keys = insert.getGeneratedKeys();
                while (keys.next()) {
                    ids.add(keys.getLong(1));
                }
            }
        }
        assertEquals(300, ids.size());
        assertEquals(300, count(urls[0]) + count(urls[1]));
        assertTrue(mill.metrics().contains("keymill_issued_total{source=\"segment:orders\"}"));
    }

    @Test
    void a_business_id_and_its_key_find_the_same_shard() throws Exception {
        Path file = table(32767);
        Router router = Router.open(file.toString());
        Business sales = mill.business("order?counters=16");
        DataSource source = sharding("        file: " + file + "\n        id-columns: id\n        key-columns: buyer\n", SOURCE);
        int first = 0;
        try (Connection connection = source.getConnection(); PreparedStatement insert = connection.prepareStatement("insert into orders (id, buyer) values (?, ?)");
                PreparedStatement byId = connection.prepareStatement("select count(*) from orders where id = ?"); PreparedStatement byKey = connection.prepareStatement("select count(*) from orders where buyer = ?");
                PreparedStatement range = connection.prepareStatement("select count(*) from orders where id between ? and ?")) {
            for (long buyer = 1; buyer <= 50; buyer++) {
                long id = sales.next(buyer);
                first += router.route(id).read().equals("s1") ? 1 : 0;
                insert.setLong(1, id);
                insert.setLong(2, buyer);
                insert.executeUpdate();
                byId.setLong(1, id);
                assertEquals(1, one(byId));
                byKey.setLong(1, buyer);
                assertEquals(1, one(byKey));
            }
            range.setLong(1, 0);
            range.setLong(2, Long.MAX_VALUE);
            assertEquals(50, one(range), "a range asks every shard");
        }
        assertTrue(first > 0 && first < 50);
        assertEquals(first, count(urls[0]), "rows are where the router says");
        assertEquals(50 - first, count(urls[1]));
    }

    private static int one(PreparedStatement statement) throws SQLException {
        try (ResultSet row = statement.executeQuery()) {
            row.next();
            return row.getInt(1);
        }
    }

    @Test
    void what_is_wrong_in_a_rule_is_said_at_start() throws Exception {
        String file = "        file: " + table(32767) + "\n";
        said("has neither `id-columns` nor `key-columns`", () -> sharding(file, SOURCE));
        said("takes `router`", () -> sharding("        id-columns: id\n", SOURCE));
        said("has no property `colums`", () -> sharding(file + "        colums: id\n", SOURCE));
        said("has no property `sorce`", () -> sharding(file + "        id-columns: id\n", "      props:\n        sorce: segment:orders\n"));
    }

    private interface Attempt {
        Object run() throws Exception;
    }

    private static void said(String what, Attempt attempt) {
        Throwable e = assertThrows(Throwable.class, attempt::run);
        StringBuilder messages = new StringBuilder();
        for (Throwable at = e; at != null; at = at.getCause()) {
            messages.append(at.getMessage()).append('\n');
        }
        assertTrue(messages.toString().contains(what), messages.toString());
    }

    static class Application implements Runnable {
        @Override
        public void run() {
            new io.keymill.shardingsphere.KeymillGene().init(new java.util.Properties());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-shardingsphere"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
