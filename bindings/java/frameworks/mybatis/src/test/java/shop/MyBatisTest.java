package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Mill;
import io.keymill.Source;
import io.keymill.mybatis.KeymillId;
import io.keymill.mybatis.KeymillInterceptor;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.ibatis.annotations.Insert;
import org.apache.ibatis.annotations.Options;
import org.apache.ibatis.annotations.Param;
import org.apache.ibatis.annotations.Select;
import org.apache.ibatis.annotations.SelectKey;
import org.apache.ibatis.datasource.unpooled.UnpooledDataSource;
import org.apache.ibatis.mapping.Environment;
import org.apache.ibatis.session.Configuration;
import org.apache.ibatis.session.ExecutorType;
import org.apache.ibatis.session.SqlSession;
import org.apache.ibatis.session.SqlSessionFactory;
import org.apache.ibatis.session.SqlSessionFactoryBuilder;
import org.apache.ibatis.transaction.jdbc.JdbcTransactionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The interceptor in MyBatis without Spring. */
class MyBatisTest {
    private Mill mill;

    static Stores[] stores() {
        return Stores.there();
    }

    static class Base {
        @KeymillId Long id;
    }

    static class Order extends Base {
        @KeymillId("serial:orders/no?number=000000") String no;
    }

    static class Line {
        @KeymillId long id;
    }

    static class Small {
        @KeymillId("segment:shorts?start=32767&step=10") short id;
    }

    static class Labelled {
        @KeymillId("segment:labels?text=base62&prefix=label") String id;
    }

    static class Constant {
        @KeymillId public final long id = 0;
    }

    static class OfAnother {
        @io.keymill.hibernate.KeymillId public Long id;
    }

    static class Misspelt {
        @KeymillId("segment:{tabel}") public Long id;
    }

    record Frozen(@KeymillId Long id) {}

    interface Mapper {
        @Insert("insert into orders (id, no) values (#{id}, #{no})")
        int add(Order order);

        @Insert("<script>insert into orders (id, no) values <foreach collection='list' item='o' separator=','>(#{o.id}, #{o.no})</foreach></script>")
        int addList(List<Order> orders);

        @Insert("<script>insert into orders (id, no) values <foreach collection='orders' item='o' separator=','>(#{o.id}, #{o.no})</foreach></script>")
        int addNamed(@Param("orders") List<Order> orders, @Param("note") String note);

        @Insert("<script>insert into orders (id, no) values <foreach collection='array' item='o' separator=','>(#{o.id}, #{o.no})</foreach></script>")
        int addArray(Order[] orders);

        @Insert("INSERT INTO `order_line`(id) values (#{line.id})")
        int addLine(@Param("line") Line line, @Param("order") Order order);

        @Insert("insert into small_ones (id) values (#{id})")
        int addSmall(Small small);

        @Insert("<script>insert into orders (id, no) values <foreach collection='list' item='l' index='i' separator=','>(#{i}, #{l.id})</foreach></script>")
        int addLabelled(List<Labelled> labels);

        @Insert("insert into orders (id) values (#{id})")
        int addFrozen(Frozen frozen);

        @Insert("insert into orders (id) values (#{id})")
        int addConstant(Constant constant);

        @Insert("insert into orders (id) values (#{id})")
        int addOfAnother(OfAnother other);

        @Insert("insert into orders (id) values (#{id})")
        int addMisspelt(Misspelt misspelt);

        @Insert("insert into orders (id, no) values (#{id}, #{no})")
        @Options(useGeneratedKeys = true, keyProperty = "id")
        int addGenerated(Order order);

        @Insert("insert into orders (id, no) values (#{id}, #{no})")
        @SelectKey(statement = "select 7", keyProperty = "id", before = true, resultType = long.class)
        int addSelected(Order order);

        @Insert("insert into ${table} (id) values (#{line.id})")
        int addTo(@Param("table") String table, @Param("line") Line line);

        @Insert("/* insert into log */ insert into Shop_Lines (id) values (#{id}) -- ; insert into log")
        int addAfterAComment(Line line);

        @Insert("insert into SHOP_LINES/**/(id) values (#{id})")
        int addInCapitals(Line line);

        @Insert("insert into `shop_lines`(id) values (#{id})")
        int addQuoted(Line line);

        @Insert("insert into log (id) values (1); insert into shop_lines (id) values (#{id})")
        int addToTwo(Line line);
        @Insert("<script>insert into orders (id, no) values (#{order.id}, #{order.no})<if test='line != null'>; insert into order_line (id) values (#{line.id})</if></script>")
        int addBoth(@Param("order") Order order, @Param("line") Line line);

        @Insert("insert into orders (id, no) values (#{order.id}, #{order.no})")
        int addOf(Map<String, Object> map);

        @Select("select count(*) from orders")
        int count();
    }

    private SqlSessionFactory factory(Stores stores) {
        mill = stores.mill("segment:orders", "serial:orders/no?number=000000");
        String url = stores.jdbcUrl() + (stores == Stores.H2_AND_SQLITE ? ";MODE=MySQL" : "");
        Stores.run(url, stores.user(), stores.password(), "drop table if exists orders", "drop table if exists order_line", "drop table if exists small_ones", "drop table if exists shop_lines", "drop table if exists line_archive",
                "create table shop_lines (id bigint primary key)", "create table line_archive (id bigint primary key)",
                "create table orders (id bigint primary key, no varchar(40))", "create table order_line (id bigint primary key)", "create table small_ones (id smallint primary key)");
        String driver = stores == Stores.H2_AND_SQLITE ? "org.h2.Driver" : "org.mariadb.jdbc.Driver";
        Configuration configuration = new Configuration(new Environment("test", new JdbcTransactionFactory(), new UnpooledDataSource(driver, url, stores.user(), stores.password())));
        configuration.addInterceptor(new KeymillInterceptor(() -> mill));
        configuration.addMapper(Mapper.class);
        return new SqlSessionFactoryBuilder().build(configuration);
    }

    @AfterEach
    void close() {
        if (mill != null) {
            mill.close();
        }
    }

    /** A guest who is not stored yet would become the row of another one. */
    @ParameterizedTest
    @MethodSource("stores")
    void an_object_that_is_only_referred_to_takes_no_id_of_the_inserts_table(Stores stores) {
        try (SqlSession session = factory(stores).openSession(true)) {
            Mapper mapper = session.getMapper(Mapper.class);
            Line line = new Line();
            Order guest = new Order();
            String said = Causes.root(assertThrows(RuntimeException.class, () -> mapper.addLine(line, guest))).getMessage();
            assertTrue(said.startsWith("shop.MyBatisTest$Mapper.addLine inserts into one table, and shop.MyBatisTest$"), said);
            assertNull(guest.id);
            assertEquals(0, line.id);
            guest.id = 7L;
            mapper.addLine(line, guest);
            assertEquals(1, line.id);
        }
    }

    private static List<Order> orders(int count) {
        return Stream.generate(Order::new).limit(count).collect(Collectors.toList());
    }

    /** Rising without a gap: they were taken at once. */
    private static void assertRun(List<Order> orders) {
        for (int i = 1; i < orders.size(); i++) {
            assertEquals(orders.get(0).id + i, orders.get(i).id);
            assertNotNull(orders.get(i).no);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void one_object_a_list_an_array_and_named_ones_get_their_ids(Stores stores) {
        try (SqlSession session = factory(stores).openSession()) {
            Mapper mapper = session.getMapper(Mapper.class);
            Order one = new Order();
            mapper.add(one);
            assertTrue(one.id > 0 && one.no.matches("\\d{14}"), one.no);
            List<Order> list = orders(100);
            mapper.addList(list);
            assertRun(list);
            List<Order> named = orders(100);
            mapper.addNamed(named, "a note");
            assertRun(named);
            Order[] array = orders(10).toArray(new Order[0]);
            mapper.addArray(array);
            assertRun(Arrays.asList(array));
            Line line = new Line();
            mapper.addLine(line, one);
            assertTrue(line.id > 0);
            assertEquals(211, mapper.count());
            assertTrue(mill.metrics().contains("segment:order_line"), "the table of the statement");
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_table_has_one_source_however_it_is_written_and_another_table_another(Stores stores) {
        if (stores == Stores.MARIADB) { // on Linux these are further tables there
            for (String table : new String[] {"Shop_Lines", "SHOP_LINES"}) {
                Stores.run(stores.jdbcUrl(), stores.user(), stores.password(), "drop table if exists " + table, "create table " + table + " (id bigint primary key)");
            }
        }
        try (SqlSession session = factory(stores).openSession()) {
            Mapper mapper = session.getMapper(Mapper.class);
            mapper.addTo("shop_lines", new Line());
            mapper.addTo("line_archive", new Line());
            mapper.addAfterAComment(new Line());
            mapper.addInCapitals(new Line());
            mapper.addQuoted(new Line());
            Matcher source = Pattern.compile("source=\"(.*?)\"").matcher(mill.metrics());
            assertEquals(Set.of("segment:shop_lines", "segment:line_archive"), source.results().map(found -> found.group(1)).collect(Collectors.toSet()));
            String said = Causes.root(assertThrows(RuntimeException.class, () -> mapper.addToTwo(new Line()))).getMessage();
            assertEquals("the table of shop.MyBatisTest$Mapper.addToTwo cannot be read from its SQL; name the source of shop.MyBatisTest$Line.id without {table}", said);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void what_is_set_is_kept_and_an_object_that_stands_twice_gets_one_id(Stores stores) {
        try (SqlSession session = factory(stores).openSession()) {
            Mapper mapper = session.getMapper(Mapper.class);
            List<Order> some = new ArrayList<>(orders(3));
            some.get(1).id = 4_000_000_000L;
            some.get(1).no = "A1";
            mapper.addList(some);
            assertEquals(4_000_000_000L, some.get(1).id);
            assertEquals("A1", some.get(1).no);
            assertEquals(some.get(0).id + 1, some.get(2).id);
            Order twice = new Order();
            assertThrows(RuntimeException.class, () -> mapper.addList(Arrays.asList(twice, twice)), "one key in two rows");
            Long id = twice.id;
            assertThrows(RuntimeException.class, () -> mapper.addList(Arrays.asList(twice, twice)));
            assertSame(id, twice.id);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_second_statement_in_a_part_that_is_not_always_there_is_refused_when_it_is(Stores stores) {
        try (SqlSession session = factory(stores).openSession()) {
            Mapper mapper = session.getMapper(Mapper.class);
            Order order = new Order();
            mapper.addBoth(order, null);
            assertNotNull(order.id);
            Line line = new Line();
            assertThrows(RuntimeException.class, () -> mapper.addBoth(new Order(), line));
            assertEquals(0, line.id, "an id of another table's source");
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_map_is_looked_into_after_another_one_stood_in_it(Stores stores) {
        try (SqlSession session = factory(stores).openSession()) {
            for (int i = 0; i < 2; i++) {
                Map<String, Object> map = new HashMap<>();
                Order order = new Order();
                map.put("order", order);
                map.put("notes", new HashMap<>());
                session.getMapper(Mapper.class).addOf(map);
                assertNotNull(order.id);
            }
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_batch_of_a_thousand(Stores stores) {
        try (SqlSession session = factory(stores).openSession(ExecutorType.BATCH)) {
            Mapper mapper = session.getMapper(Mapper.class);
            List<Order> orders = orders(1000);
            orders.forEach(mapper::add);
            session.flushStatements();
            assertEquals(1000, orders.stream().map(order -> order.id).distinct().count());
            assertEquals(1000, mapper.count());
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void keys_of_the_database_beside_it_are_refused_by_the_mappers_name(Stores stores) {
        try (SqlSession session = factory(stores).openSession()) {
            Mapper mapper = session.getMapper(Mapper.class);
            String field = "shop.MyBatisTest$Base.id has @KeymillId; remove one of them";
            String said = Causes.root(assertThrows(RuntimeException.class, () -> mapper.addGenerated(new Order()))).getMessage();
            assertEquals("shop.MyBatisTest$Mapper.addGenerated sets `id` by useGeneratedKeys, and " + field, said);
            said = Causes.root(assertThrows(RuntimeException.class, () -> mapper.addSelected(new Order()))).getMessage();
            assertEquals("shop.MyBatisTest$Mapper.addSelected sets `id` by <selectKey>, and " + field, said);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void what_a_field_cannot_hold_is_an_error(Stores stores) {
        try (SqlSession session = factory(stores).openSession()) {
            Mapper mapper = session.getMapper(Mapper.class);
            String said = Causes.root(assertThrows(RuntimeException.class, () -> {
                for (int i = 0; i < 2; i++) {
                    mapper.addSmall(new Small());
                }
            })).getMessage();
            assertTrue(said.startsWith("shop.MyBatisTest$Small.id is a short, which holds numbers up to 32767, and its next id is 32"), said);
            said = Causes.root(assertThrows(RuntimeException.class, () -> mapper.addFrozen(new Frozen(null)))).getMessage();
            assertTrue(said.startsWith("shop.MyBatisTest$Frozen.id has @KeymillId and cannot be set, being a record's; take the id before the object is made: Mill.lazy(\"segment:TABLE\").next()"), said);
            said = Causes.root(assertThrows(RuntimeException.class, () -> mapper.addConstant(new Constant()))).getMessage();
            assertTrue(said.startsWith("shop.MyBatisTest$Constant.id has @KeymillId and cannot be set, being final"), said);
            said = Causes.root(assertThrows(RuntimeException.class, () -> mapper.addOfAnother(new OfAnother()))).getMessage();
            assertTrue(said.startsWith("shop.MyBatisTest$OfAnother.id has @io.keymill.hibernate.KeymillId, which is not read here; import io.keymill.mybatis.KeymillId"), said);
            said = Causes.root(assertThrows(RuntimeException.class, () -> mapper.addMisspelt(new Misspelt()))).getMessage();
            assertEquals("shop.MyBatisTest$Misspelt.id names `segment:{tabel}`; the one word in braces is {table}", said);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_text_field_has_the_text_form_of_its_source(Stores stores) {
        try (SqlSession session = factory(stores).openSession()) {
            Mapper mapper = session.getMapper(Mapper.class);
            List<Labelled> labels = Arrays.asList(new Labelled(), new Labelled());
            mapper.addLabelled(labels);
            Source source = mill.source("segment:labels?text=base62&prefix=label");
            long first = source.parse(labels.get(0).id).number().getAsLong();
            assertEquals(source.textOf(first), labels.get(0).id);
            assertEquals(source.textOf(first + 1), labels.get(1).id);
            assertTrue(labels.get(0).id.startsWith("label0"), labels.get(0).id);
        }
    }

    static class Application implements Runnable {
        @Override
        public void run() {
            new Configuration().addInterceptor(new KeymillInterceptor());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-mybatis"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
