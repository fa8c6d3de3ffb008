package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.baomidou.mybatisplus.annotation.IdType;
import com.baomidou.mybatisplus.annotation.TableId;
import com.baomidou.mybatisplus.annotation.TableName;
import com.baomidou.mybatisplus.core.MybatisConfiguration;
import com.baomidou.mybatisplus.core.MybatisSqlSessionFactoryBuilder;
import com.baomidou.mybatisplus.core.config.GlobalConfig;
import com.baomidou.mybatisplus.core.mapper.BaseMapper;
import com.baomidou.mybatisplus.core.toolkit.GlobalConfigUtils;
import com.baomidou.mybatisplus.core.toolkit.IdWorker;
import io.keymill.Mill;
import io.keymill.mybatis.KeymillId;
import io.keymill.mybatis.plus.KeymillIdentifierGenerator;
import io.keymill.support.FieldIds;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.ibatis.datasource.unpooled.UnpooledDataSource;
import org.apache.ibatis.mapping.Environment;
import org.apache.ibatis.session.ExecutorType;
import org.apache.ibatis.session.SqlSession;
import org.apache.ibatis.session.SqlSessionFactory;
import org.apache.ibatis.transaction.jdbc.JdbcTransactionFactory;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The generator in MyBatis-Plus without Spring: the entities are MyBatis-Plus' own way of writing them. */
class PlusTest {
    private Mill mill;
    private KeymillIdentifierGenerator generator;

    static Stores[] stores() {
        return Stores.there();
    }

    @TableName("orders")
    public static class Order {
        private Long id;
        private String what;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }

        public String getWhat() {
            return what;
        }

        public void setWhat(String what) {
            this.what = what;
        }
    }

    @TableName("texts")
    public static class Text {
        @TableId(type = IdType.ASSIGN_ID)
        private String id;

        public String getId() {
            return id;
        }

        public void setId(String id) {
            this.id = id;
        }
    }

    @TableName("numbers")
    public static class Numbered {
        @TableId(type = IdType.ASSIGN_UUID)
        @KeymillId("serial:numbers/no?number=000000")
        private String no;

        public String getNo() {
            return no;
        }

        public void setNo(String no) {
            this.no = no;
        }
    }

    @TableName("small_ones")
    public static class Small {
        @TableId(type = IdType.ASSIGN_ID)
        @KeymillId("segment:integers?start=2147483647&step=10")
        private Integer id;

        public Integer getId() {
            return id;
        }

        public void setId(Integer id) {
            this.id = id;
        }
    }

    @TableName("primitives")
    public static class Primitive {
        @TableId(type = IdType.ASSIGN_ID)
        private long id;

        public long getId() {
            return id;
        }

        public void setId(long id) {
            this.id = id;
        }
    }

    @TableName("late_ones")
    public static class Late {
        private Long id;
    }

    public interface Orders extends BaseMapper<Order> {}

    public interface Texts extends BaseMapper<Text> {}

    public interface Numbers extends BaseMapper<Numbered> {}

    public interface Smalls extends BaseMapper<Small> {}

    public interface Primitives extends BaseMapper<Primitive> {}

    public interface Lates extends BaseMapper<Late> {}

    private SqlSessionFactory factory(Stores stores, Class<?>... mappers) {
        mill = stores.mill("segment:orders", "serial:numbers/no?number=000000");
        String url = stores.jdbcUrl();
        Stores.run(url, stores.user(), stores.password(), "drop table if exists orders", "drop table if exists texts", "drop table if exists numbers", "drop table if exists small_ones",
                "create table orders (id bigint primary key, what varchar(40))", "create table texts (id varchar(40) primary key)", "create table numbers (no varchar(40) primary key)", "create table small_ones (id int primary key)");
        String driver = stores == Stores.H2_AND_SQLITE ? "org.h2.Driver" : "org.mariadb.jdbc.Driver";
        MybatisConfiguration configuration = new MybatisConfiguration(new Environment("test", new JdbcTransactionFactory(), new UnpooledDataSource(driver, url, stores.user(), stores.password())));
        generator = new KeymillIdentifierGenerator(() -> mill, FieldIds.DEFAULT, KeymillIdentifierGenerator.ID_WORKER);
        GlobalConfig global = GlobalConfigUtils.defaults();
        global.setBanner(false);
        global.setIdentifierGenerator(generator);
        GlobalConfigUtils.setGlobalConfig(configuration, global);
        for (Class<?> mapper : mappers) {
            configuration.addMapper(mapper);
        }
        return new MybatisSqlSessionFactoryBuilder().build(configuration);
    }

    @AfterEach
    void close() {
        if (mill != null) {
            mill.close();
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void entities_as_they_are_get_their_ids_from_the_source_of_their_table(Stores stores) {
        try (SqlSession session = factory(stores, Orders.class, Texts.class, Numbers.class).openSession()) {
            Order order = new Order();
            session.getMapper(Orders.class).insert(order);
            assertTrue(order.id > 0);
            Text text = new Text();
            session.getMapper(Texts.class).insert(text);
            assertTrue(Long.parseLong(text.id) > 0);
            Numbered number = new Numbered();
            session.getMapper(Numbers.class).insert(number);
            assertTrue(number.no.matches("\\d{14}"), number.no);
            for (String source : new String[] {"segment:orders", "segment:texts", "serial:numbers/no"}) {
                assertTrue(mill.metrics().contains(source), source);
            }
            generator.check(session.getConfiguration());
        }
    }

    /** On a store of its own, since the source has to be new. */
    @Test
    void a_source_whose_table_has_other_rows_is_refused_with_what_to_run() {
        SqlSessionFactory sessions = factory(Stores.H2_AND_SQLITE, Orders.class);
        try (SqlSession session = sessions.openSession()) {
            Order seeded = new Order();
            seeded.id = 12L;
            session.getMapper(Orders.class).insert(seeded);
            session.commit();
            for (int start = 0; start < 2; start++) {
                for (int i = 0; i < 2; i++) {
                    Throwable said = Causes.root(assertThrows(RuntimeException.class, () -> session.getMapper(Orders.class).insert(new Order())));
                    assertTrue(said.getMessage().matches("shop[.]PlusTest[$]Order[.]id: segment:orders goes on at 1, and the table orders has keys up to 12, which this source did not give; "
                            + "stop every program that takes from it, run `keymill --mill 'sqlite:[^']+' repair 'segment:orders' --to 13 --yes`, and start them again"), said.getMessage());
                }
                // As a start of the program does.
                GlobalConfigUtils.getGlobalConfig(sessions.getConfiguration()).setIdentifierGenerator(new KeymillIdentifierGenerator(() -> mill, FieldIds.DEFAULT, KeymillIdentifierGenerator.ID_WORKER));
            }
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void an_id_that_is_set_is_kept(Stores stores) {
        try (SqlSession session = factory(stores, Orders.class).openSession()) {
            Order order = new Order();
            order.id = 4_000_000_000L;
            session.getMapper(Orders.class).insert(order);
            assertEquals(4_000_000_000L, order.id);
            assertNotNull(session.getMapper(Orders.class).selectById(4_000_000_000L));
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_batch_of_a_thousand(Stores stores) {
        try (SqlSession session = factory(stores, Orders.class).openSession(ExecutorType.BATCH)) {
            Orders mapper = session.getMapper(Orders.class);
            List<Order> orders = Stream.generate(Order::new).limit(1000).collect(Collectors.toList());
            orders.forEach(mapper::insert);
            session.flushStatements();
            assertEquals(1000, orders.stream().map(order -> order.id).distinct().count());
            assertEquals(1000, mapper.selectCount(null).intValue());
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_number_that_an_integer_does_not_hold_is_an_error(Stores stores) {
        try (SqlSession session = factory(stores, Smalls.class).openSession()) {
            String said = Causes.root(assertThrows(RuntimeException.class, () -> {
                for (int i = 0; i < 2; i++) {
                    session.getMapper(Smalls.class).insert(new Small());
                }
            })).getMessage();
            assertTrue(said.startsWith("shop.PlusTest$Small.id is an int, which holds numbers up to 2147483647, and its next id is 21474"), said);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void id_worker_is_answered(Stores stores) {
        factory(stores, Orders.class);
        IdWorker.setIdentifierGenerator(generator);
        long first = IdWorker.getId();
        assertTrue(IdWorker.getId() > first);
        assertTrue(Long.parseLong(IdWorker.getIdStr()) > first);
        assertTrue(mill.metrics().contains("segment:id_worker"));
    }

    /** As where mappers are lazy beans, and IdWorker.getId(entity) is called before. */
    @ParameterizedTest
    @MethodSource("stores")
    void an_entity_that_was_asked_for_before_its_mapper_was_there_has_the_source_of_its_table_from_then_on(Stores stores) {
        SqlSessionFactory factory = factory(stores, Orders.class);
        generator.nextId(new Late());
        factory.getConfiguration().addMapper(Lates.class);
        generator.nextId(new Late());
        assertTrue(mill.metrics().contains("segment:late_ones"), mill.metrics());
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_primitive_key_is_refused_at_start(Stores stores) {
        SqlSessionFactory factory = factory(stores, Primitives.class);
        String said = assertThrows(IllegalStateException.class, () -> generator.check(factory.getConfiguration())).getMessage();
        assertTrue(said.equals("shop.PlusTest$Primitive.id is a primitive long, for which MyBatis-Plus asks no generator; make it a Long"), said);
    }

    static class Application implements Runnable {
        @Override
        public void run() {
            new GlobalConfig().setIdentifierGenerator(new KeymillIdentifierGenerator());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-mybatis"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
