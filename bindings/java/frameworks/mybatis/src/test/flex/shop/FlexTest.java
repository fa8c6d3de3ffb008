package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mybatisflex.annotation.Id;
import com.mybatisflex.annotation.KeyType;
import com.mybatisflex.annotation.Table;
import com.mybatisflex.core.BaseMapper;
import com.mybatisflex.core.MybatisFlexBootstrap;
import com.mybatisflex.core.keygen.KeyGeneratorFactory;
import io.keymill.Mill;
import io.keymill.mybatis.flex.KeymillKeyGenerator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.ibatis.datasource.unpooled.UnpooledDataSource;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** The key generator in MyBatis-Flex without Spring. */
class FlexTest {
    private Mill mill;

    static Stores[] stores() {
        return Stores.there();
    }

    @Table("orders")
    public static class Order {
        @Id(keyType = KeyType.Generator, value = KeymillKeyGenerator.NAME)
        private Long id;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }
    }

    @Table("flex_tiny")
    public static class Tiny {
        @Id(keyType = KeyType.Generator, value = KeymillKeyGenerator.NAME)
        private Short id;

        public Short getId() {
            return id;
        }

        public void setId(Short id) {
            this.id = id;
        }
    }

    @Table("flex_primitives")
    public static class Primitive {
        @Id(keyType = KeyType.Generator, value = KeymillKeyGenerator.NAME)
        private long id;

        public long getId() {
            return id;
        }

        public void setId(long id) {
            this.id = id;
        }
    }

    /** A table that has rows. */
    @Table("flex_old")
    public static class Old {
        @Id(keyType = KeyType.Generator, value = "above")
        private Long id;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }
    }

    @Table("flex_primitives")
    public static class OldPrimitive {
        @Id(keyType = KeyType.Generator, value = "above")
        private long id;

        public long getId() {
            return id;
        }

        public void setId(long id) {
            this.id = id;
        }
    }

    public interface Olds extends BaseMapper<Old> {}

    public interface OldPrimitives extends BaseMapper<OldPrimitive> {}

    public interface Orders extends BaseMapper<Order> {}

    public interface Primitives extends BaseMapper<Primitive> {}

    public interface Tinies extends BaseMapper<Tiny> {}

    private MybatisFlexBootstrap flex(Stores stores) {
        mill = stores.mill("segment:orders", "segment:flex_old", "segment:flex_tiny?start=32767&step=10");
        mill.segment("flex_tiny?start=32767&step=10").next();
        Mill.share(mill);
        KeymillKeyGenerator.register();
        KeyGeneratorFactory.register("above", new KeymillKeyGenerator(null, "segment:{table}?start=1000000"));
        String url = stores.jdbcUrl();
        Stores.run(url, stores.user(), stores.password(), "drop table if exists orders", "drop table if exists flex_tiny", "drop table if exists flex_old",
                "create table flex_old (id bigint primary key)", "insert into flex_old values (1), (999999)", "create table orders (id bigint primary key)", "create table flex_tiny (id smallint primary key)");
        String driver = stores == Stores.H2_AND_SQLITE ? "org.h2.Driver" : "org.mariadb.jdbc.Driver";
        return new MybatisFlexBootstrap().setEnvironmentId(url).setDataSource(url, new UnpooledDataSource(driver, url, stores.user(), stores.password()))
                .addMapper(Orders.class).addMapper(Tinies.class).addMapper(Primitives.class)
                .addMapper(Olds.class).addMapper(OldPrimitives.class).start();
    }

    @AfterEach
    void close() {
        Mill.share(null);
        if (mill != null) {
            mill.close();
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_key_comes_from_the_source_of_its_table(Stores stores) {
        Orders mapper = flex(stores).getMapper(Orders.class);
        Order order = new Order();
        mapper.insert(order);
        assertTrue(order.id > 0);
        Order set = new Order();
        set.id = 4_000_000_000L;
        mapper.insertWithPk(set);
        assertEquals(4_000_000_000L, set.id, "what is set is kept");
        List<Order> orders = Stream.generate(Order::new).limit(1000).collect(Collectors.toList());
        mapper.insertBatch(orders);
        assertEquals(1000, orders.stream().map(each -> each.id).distinct().count());
        assertTrue(mill.metrics().contains("segment:orders"));
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_number_that_a_short_does_not_hold_is_an_error(Stores stores) {
        Tinies mapper = flex(stores).getMapper(Tinies.class);
        Throwable e = Causes.root(assertThrows(RuntimeException.class, () -> mapper.insert(new Tiny())));
        assertTrue(e.getMessage().startsWith("shop.FlexTest$Tiny.id is a short, which holds numbers up to 32767, and its next id is 3"), e.getMessage());
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_primitive_key_is_refused_before_a_row_is_written(Stores stores) {
        Primitives mapper = flex(stores).getMapper(Primitives.class);
        Throwable e = Causes.root(assertThrows(RuntimeException.class, () -> mapper.insert(new Primitive())));
        assertEquals("shop.FlexTest$Primitive.id is a primitive long, for which MyBatis-Flex asks no generator; make it a Long", e.getMessage());
        e = Causes.root(assertThrows(RuntimeException.class, () -> mapper.insertBatch(List.of(new Primitive(), new Primitive()))));
        assertEquals("shop.FlexTest$Primitive.id is a primitive long, for which MyBatis-Flex asks no generator; make it a Long", e.getMessage());
    }

    @ParameterizedTest
    @MethodSource("stores")
    void another_name_is_another_source_as_that_of_a_table_with_rows(Stores stores) {
        MybatisFlexBootstrap flex = flex(stores);
        Old old = new Old();
        flex.getMapper(Olds.class).insert(old);
        assertTrue(old.id >= 1_000_000, "an id above the rows: " + old.id);
        OldPrimitives primitives = flex.getMapper(OldPrimitives.class);
        Throwable e = Causes.root(assertThrows(RuntimeException.class, () -> primitives.insert(new OldPrimitive())));
        assertTrue(e.getMessage().contains("for which MyBatis-Flex asks no generator"), e.getMessage());
    }

    static class Application implements Runnable {
        @Override
        public void run() {
            KeymillKeyGenerator.register();
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-mybatis"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
