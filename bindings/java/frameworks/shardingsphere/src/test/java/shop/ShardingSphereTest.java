package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Business;
import io.keymill.Gene;
import io.keymill.Mill;
import io.keymill.Router;
import io.keymill.shardingsphere.KeymillGene;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import javax.sql.DataSource;
import org.apache.shardingsphere.driver.api.yaml.YamlShardingSphereDataSourceFactory;
import org.apache.shardingsphere.sharding.api.sharding.complex.ComplexKeysShardingValue;
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

    private static final String BOTH = "id,buyer";

    private DataSource sharding(String columns, String strategy, String generator) throws Exception {
        String yaml = "dataSources:\n";
        for (int i = 0; i < 2; i++) {
            yaml += "  ds_s" + (i + 1) + ":\n    dataSourceClassName: com.zaxxer.hikari.HikariDataSource\n    driverClassName: org.h2.Driver\n    jdbcUrl: " + urls[i] + "\n    username: sa\n    password: ''\n";
        }
        yaml += "rules:\n- !SHARDING\n  tables:\n    orders:\n      actualDataNodes: ds_s1.orders,ds_s2.orders\n      keyGenerateStrategy:\n        column: id\n        keyGeneratorName: ids\n"
                + "      databaseStrategy:\n        complex:\n          shardingColumns: " + columns + "\n          shardingAlgorithmName: gene\n"
                + "  keyGenerators:\n    ids:\n      type: KEYMILL\n" + generator
                + "  shardingAlgorithms:\n    gene:\n      type: KEYMILL_GENE\n      props:\n" + strategy;
        return YamlShardingSphereDataSourceFactory.createDataSource(yaml.getBytes(StandardCharsets.UTF_8));
    }

    private static final String KEYS = "        key-columns: buyer\n";
    private static final String IDS_AND_KEYS = "        id-columns: id\n" + KEYS;
    private static final String SOURCE = "      props:\n        source: segment:orders\n";

    private static Path table(int split) throws IOException {
        Path file = Files.createTempFile("router", ".json");
        return Files.writeString(file, "{\"version\": 1, \"range\": [{\"upper\": " + split + ", \"shard\": \"s1\"}, {\"upper\": 65535, \"shard\": \"s2\"}]}");
    }

    private static String file() throws IOException {
        return "        file: " + table(32767) + "\n";
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
    void rows_without_an_id_get_one_and_are_found_by_it_and_by_their_key() throws Exception {
        Set<Long> ids = new HashSet<>();
        try (Connection connection = sharding("buyer", file() + KEYS, SOURCE).getConnection();
                PreparedStatement insert = connection.prepareStatement("insert into orders (buyer, what) values (?, ?), (?, ?), (?, ?)", Statement.RETURN_GENERATED_KEYS)) {
            for (int buyer = 0; buyer < 150; buyer += 3) {
                for (int row = 0; row < 3; row++) {
                    insert.setLong(2 * row + 1, buyer + row);
                    insert.setString(2 * row + 2, "row");
                }
                assertEquals(3, insert.executeUpdate());
                ids.addAll(keys(insert));
            }
            for (int row = 0; row < 150; row++) {
                assertEquals(1, count(connection, "buyer = ?", row));
            }
            for (long id : ids) {
                assertEquals(1, count(connection, "id = ?", id));
            }
        }
        assertEquals(150, ids.size());
        assertTrue(count(urls[0]) > 0 && count(urls[1]) > 0);
        assertEquals(150, count(urls[0]) + count(urls[1]));
        assertTrue(mill.metrics().contains("keymill_issued_total{source=\"segment:orders\"}"));
    }

    @Test
    void rows_of_a_batch_are_found_by_the_ids_that_it_returns_and_by_their_key() throws Exception {
        try (Connection connection = sharding("buyer", file() + KEYS, SOURCE).getConnection();
                PreparedStatement insert = connection.prepareStatement("insert into orders (buyer) values (?)", Statement.RETURN_GENERATED_KEYS)) {
            for (int buyer = 0; buyer < 50; buyer++) {
                insert.setLong(1, buyer);
                insert.addBatch();
            }
            assertEquals(50, insert.executeBatch().length);
            List<Long> ids = keys(insert);
            assertEquals(50, ids.size());
            for (int buyer = 0; buyer < 50; buyer++) {
                assertEquals(1, count(connection, "buyer = ? and id = ?", buyer, ids.get(buyer)));
            }
        }
    }

    private static List<Long> keys(Statement insert) throws SQLException {
        List<Long> found = new ArrayList<>();
        try (ResultSet keys = insert.getGeneratedKeys()) {
            while (keys.next()) {
                found.add(keys.getLong(1));
            }
        }
        return found;
    }

    private static int count(Connection connection, String condition, Object... values) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement("select count(*) from orders where " + condition)) {
            for (int i = 0; i < values.length; i++) {
                statement.setObject(i + 1, values[i]);
            }
            return one(statement);
        }
    }

    /** A segment's ids have gene 0. Ids of another key are refused on its shard, too: rows move by the gene of their id. */
    @Test
    void an_id_of_another_gene_than_its_row_s_key_is_refused() throws Exception {
        Business sales = mill.business("order?counters=16");
        Router router = Router.open(table(32767).toString());
        try (Connection connection = sharding(BOTH, file() + IDS_AND_KEYS, SOURCE).getConnection();
                PreparedStatement generated = connection.prepareStatement("insert into orders (buyer) values (?)");
                PreparedStatement insert = connection.prepareStatement("insert into orders (id, buyer) values (?, ?)");
                PreparedStatement rows = connection.prepareStatement("insert into orders (id, buyer) values (?, ?), (?, ?)")) {
            Set<String> shards = new HashSet<>();
            for (long buyer = 1; buyer <= 20; buyer++) {
                long key = buyer;
                generated.setLong(1, buyer);
                said("buyer " + buyer + " has gene " + Gene.of(buyer) + ", so they belong to different rows", generated::executeUpdate);
                long id = sales.next(1000);
                shards.add(router.route(id).read() + router.routeKey(buyer).read());
                insert.setLong(1, id);
                insert.setLong(2, buyer);
                said("id " + id + " has gene " + Gene.of(1000) + " and buyer " + key + " has gene " + Gene.of(key), insert::executeUpdate);
                rows.setLong(1, sales.next(buyer));
                rows.setLong(2, buyer);
                rows.setLong(3, id);
                rows.setLong(4, buyer);
                said("take a row's ids from Mill.business(…).next(key)", rows::executeUpdate);
            }
            assertEquals(2, shards.size(), "one of its own shard and one of the other");
        }
        assertEquals(0, count(urls[0]) + count(urls[1]));
    }

    @Test
    void conditions_on_ids_and_keys_find_their_rows() throws Exception {
        Business sales = mill.business("order?counters=16");
        long[] ids = new long[20];
        try (Connection connection = sharding(BOTH, file() + IDS_AND_KEYS, SOURCE).getConnection();
                PreparedStatement insert = connection.prepareStatement("insert into orders (id, buyer) values (?, ?), (?, ?)")) {
            for (int buyer = 0; buyer < ids.length; buyer++) {
                ids[buyer] = sales.next(buyer);
                insert.setLong(buyer % 2 * 2 + 1, ids[buyer]);
                insert.setLong(buyer % 2 * 2 + 2, buyer);
                if (buyer % 2 == 1) {
                    assertEquals(2, insert.executeUpdate());
                }
            }
            assertTrue(count(urls[0]) > 0 && count(urls[1]) > 0);
            for (int row = 0; row < ids.length; row++) {
                int other = (row + 1) % ids.length;
                assertEquals(1, count(connection, "id = ?", ids[row]));
                assertEquals(1, count(connection, "id = " + ids[row] + " and buyer = " + row));
                assertEquals(2, count(connection, "id in (?, ?)", ids[row], ids[other]));
                assertEquals(2, count(connection, "buyer in (?, ?)", row, (long) other));
                assertEquals(2, count(connection, "id = ? or buyer = ?", ids[row], other));
                assertEquals(1, count(connection, "id = ? and buyer in (?, ?)", ids[row], row, other));
                assertEquals(1, count(connection, "id in (?, ?) and buyer = ?", ids[row], ids[other], row));
                assertEquals(2, count(connection, "id in (?, ?) and buyer in (?, ?)", ids[row], ids[other], other, row));
            }
            // Of buyers 1 and 2 each is on another shard.
            said("Can not update sharding value", () -> connection.createStatement().executeUpdate("update orders set buyer = 1 where buyer = 2"));
        }
    }

    @Test
    void a_row_without_a_key_is_found_by_its_id() throws Exception {
        Business sales = mill.business("order?counters=16");
        try (Connection connection = sharding(BOTH, file() + IDS_AND_KEYS, SOURCE).getConnection(); PreparedStatement insert = connection.prepareStatement("insert into orders (id) values (?)")) {
            for (long buyer = 0; buyer < 20; buyer++) {
                long id = sales.next(buyer);
                insert.setLong(1, id);
                insert.executeUpdate();
                assertEquals(1, count(connection, "id = ?", id));
            }
            assertEquals(20, count(connection, "buyer is null"));
        }
        assertTrue(count(urls[0]) > 0 && count(urls[1]) > 0);
    }

    @Test
    void a_business_id_and_its_key_find_the_same_shard() throws Exception {
        Path file = table(32767);
        Router router = Router.open(file.toString());
        Business sales = mill.business("order?counters=16");
        DataSource source = sharding(BOTH, "        file: " + file + "\n        id-columns: id\n        key-columns: buyer\n", SOURCE);
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
    void a_range_that_moves_is_refused_and_with_both_only_its_inserts() throws Exception {
        Path file = Files.createTempFile("router", ".json");
        Files.writeString(file, "{\"version\": 1, \"range\": [{\"upper\": 65535, \"shard\": \"s1\", \"to\": \"s2\"}]}");
        for (String url : urls) {
            Stores.run(url, "sa", "", "insert into orders (id, buyer) values (1, 5)");
        }
        String strategy = "        file: " + file + "\n" + KEYS;
        try (Connection connection = sharding("buyer", strategy, SOURCE).getConnection(); Statement statement = connection.createStatement()) {
            said("is written to two shards, s1 and s2", () -> count(connection, "buyer = 5"));
            said("is written to two shards, s1 and s2", () -> statement.executeUpdate("insert into orders (buyer) values (5)"));
        }
        try (Connection connection = sharding("buyer", strategy + "        while-moving: both\n", SOURCE).getConnection(); Statement statement = connection.createStatement()) {
            assertEquals(2, count(connection, "buyer = 5"));
            assertEquals(2, statement.executeUpdate("update orders set what = 'changed' where buyer = 5"));
            said("routing to multiple data nodes", () -> statement.executeUpdate("insert into orders (buyer) values (5)"));
            assertEquals(2, statement.executeUpdate("delete from orders where buyer = 5"));
        }
        assertEquals(0, count(urls[0]) + count(urls[1]));
    }

    /** What an ORM writes for an auto increment. 5.2 gives the text of the literal, 5.5 null. */
    @Test
    void a_null_in_an_id_column_is_refused_by_the_column_s_name() throws Exception {
        try (Connection connection = sharding(BOTH, file() + IDS_AND_KEYS, SOURCE).getConnection(); Statement statement = connection.createStatement()) {
            said("the id column id ", () -> statement.executeUpdate("insert into orders (id, buyer) values (null, 5)"));
            assertThrows(SQLException.class, () -> statement.executeUpdate("insert into orders (buyer, id) values (null, null)"));
        }
        try (Connection connection = sharding("buyer", file() + KEYS, SOURCE).getConnection(); Statement statement = connection.createStatement()) {
            assertThrows(SQLException.class, () -> statement.executeUpdate("insert into orders (buyer) values (null)"));
            assertThrows(SQLException.class, () -> statement.executeUpdate("insert into orders (what) values ('x')"));
        }
        assertEquals(0, count(urls[0]) + count(urls[1]));
    }

    /** 42 and "42" have different genes, and a database takes both for a BIGINT. */
    @Test
    void a_key_of_another_type_than_the_rule_s_is_refused() throws Exception {
        try (Connection connection = sharding("buyer", file() + KEYS, SOURCE).getConnection(); PreparedStatement insert = connection.prepareStatement("insert into orders (buyer) values (?)")) {
            said("the key column buyer has `5`, a java.lang.String", () -> connection.createStatement().executeUpdate("insert into orders (buyer) values ('5')"));
            said("the key column buyer has `5`, a java.lang.String", () -> count(connection, "buyer = ?", "5"));
            insert.setString(1, "5");
            said("`key-type: text`", insert::executeUpdate);
        }
        try (Connection connection = sharding("what", file() + "        key-columns: what\n        key-type: text\n", SOURCE).getConnection(); PreparedStatement insert = connection.prepareStatement("insert into orders (what) values (?)")) {
            for (int buyer = 0; buyer < 20; buyer++) {
                insert.setString(1, "buyer-" + buyer);
                insert.executeUpdate();
                assertEquals(1, count(connection, "what = 'buyer-" + buyer + "'"));
            }
            said("the key column what has `5`, a java.lang.Integer", () -> count(connection, "what = 5"));
        }
        assertEquals(20, count(urls[0]) + count(urls[1]));
    }

    @Test
    void a_target_is_the_shard_s_whatever_the_order_of_targets() throws Exception {
        assertEquals("1", target("1", "eu_1", "1"));
        assertEquals("1", target("1", "1", "eu_1"));
        assertEquals("eu_1", target("eu_1", "1", "eu_1"));
        assertEquals("ds_eu_1", target("eu_1", "ds_1", "ds_eu_1"));
        assertEquals("ds_1", target("1", "ds_2", "ds_1"));
        for (String[] targets : new String[][] {{"ds_1", "ds_eu_1"}, {"ds_eu_1", "ds_1"}}) {
            said("the targets [ds_1, ds_eu_1] all end with `_1`", () -> target("1", targets));
        }
        said("no target is the shard `1`", () -> target("1", "ds1", "ds_2"));
    }

    /** The target of a table's only shard. */
    private static String target(String shard, String... targets) throws Exception {
        Path file = Files.createTempFile("router", ".json");
        Files.writeString(file, "{\"version\": 1, \"range\": [{\"upper\": 65535, \"shard\": \"" + shard + "\"}]}");
        Properties properties = new Properties();
        properties.setProperty("file", file.toString());
        properties.setProperty("key-columns", "buyer");
        KeymillGene gene = new KeymillGene();
        gene.init(properties);
        Collection<String> found = gene.doSharding(Arrays.asList(targets), new ComplexKeysShardingValue<>("orders", Collections.singletonMap("buyer", Collections.singletonList(5L)), Collections.emptyMap()));
        assertEquals(1, found.size());
        return found.iterator().next();
    }

    @Test
    void what_is_wrong_in_a_rule_is_said_at_start() throws Exception {
        String file = file();
        said("has neither `id-columns` nor `key-columns`", () -> sharding(BOTH, file, SOURCE));
        said("takes `router`", () -> sharding(BOTH, "        id-columns: id\n", SOURCE));
        said("`key-type` is `int`; it is number or text", () -> sharding(BOTH, file + KEYS + "        key-type: int\n", SOURCE));
        said("has no property `colums`", () -> sharding(BOTH, file + "        colums: id\n", SOURCE));
        said("has no property `sorce`", () -> sharding(BOTH, file + "        id-columns: id\n", "      props:\n        sorce: segment:orders\n"));
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
            new KeymillGene().init(new java.util.Properties());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-shardingsphere"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
