package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.baomidou.mybatisplus.annotation.IdType;
import com.baomidou.mybatisplus.annotation.TableId;
import com.baomidou.mybatisplus.annotation.TableName;
import com.baomidou.mybatisplus.core.mapper.BaseMapper;
import com.baomidou.mybatisplus.core.toolkit.IdWorker;
import com.baomidou.mybatisplus.extension.service.impl.ServiceImpl;
import io.keymill.Mill;
import io.keymill.mybatis.KeymillId;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.ibatis.annotations.Insert;
import org.apache.ibatis.annotations.Mapper;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.mybatis.spring.annotation.MapperScan;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** MyBatis-Plus' own starter and keymill's in one Boot application: the entities and services are as they were. */
class PlusInBootTest {
    static Stores[] stores() {
        return Stores.there();
    }

    @TableName("orders")
    public static class Order {
        private Long id;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
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

    /** For the interceptor. */
    public static class Line {
        @KeymillId Long id;
    }

    @Mapper
    public interface Orders extends BaseMapper<Order> {
        @Insert("insert into order_line (id) values (#{id})")
        int addLine(Line line);
    }

    public interface Primitives extends BaseMapper<Primitive> {}

    public static class OrderService extends ServiceImpl<Orders, Order> {}

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @MapperScan(basePackageClasses = PlusInBootTest.class, annotationClass = Mapper.class)
    static class Shop {
        @Bean
        OrderService orderService() {
            return new OrderService();
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @MapperScan(basePackageClasses = PlusInBootTest.class, markerInterface = BaseMapper.class)
    static class WithPrimitive {}

    private static ConfigurableApplicationContext run(Stores stores, Class<?> configuration, String... arguments) {
        String url = stores.jdbcUrl();
        Stores.run(url, stores.user(), stores.password(), "drop table if exists orders", "drop table if exists order_line", "create table orders (id bigint primary key)", "create table order_line (id bigint primary key)");
        return new SpringApplicationBuilder(configuration).web(WebApplicationType.NONE).properties(
                "spring.main.banner-mode=off", "mybatis-plus.global-config.banner=false", "spring.datasource.url=" + url, "spring.datasource.username=" + stores.user(), "spring.datasource.password=" + stores.password(),
                "keymill.config=" + stores.config(), "keymill.init=missing", "keymill.sources.orders=segment:orders").run(arguments);
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_service_saves_a_thousand_in_a_batch(Stores stores) {
        try (ConfigurableApplicationContext context = run(stores, Shop.class)) {
            OrderService service = context.getBean(OrderService.class);
            List<Order> orders = Stream.generate(Order::new).limit(1000).collect(Collectors.toList());
            assertTrue(service.saveBatch(orders));
            assertEquals(1000, orders.stream().map(Order::getId).distinct().count());
            assertEquals(1000, service.count());
            long worker = IdWorker.getId();
            assertTrue(context.getBean(Mill.class).metrics().contains("segment:id_worker"), "IdWorker's " + worker);
            Line line = new Line();
            context.getBean(Orders.class).addLine(line);
            assertTrue(line.id > 0);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_primitive_key_does_not_start(Stores stores) {
        Throwable e = assertThrows(RuntimeException.class, () -> run(stores, WithPrimitive.class).close());
        while (e.getCause() != null && !e.getMessage().startsWith("keymill.mybatis-plus.source: ")) {
            e = e.getCause();
        }
        assertTrue(e.getMessage().startsWith("keymill.mybatis-plus.source: shop.PlusInBootTest$Primitive.id is a primitive long"), e.toString());
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_wrong_option_does_not_start_and_is_named(Stores stores) {
        for (String property : new String[] {"keymill.mybatis-plus.source", "keymill.mybatis-plus.id-worker"}) {
            Throwable e = assertThrows(RuntimeException.class, () -> run(stores, Shop.class, "--" + property + "=segment:orders?stpe=5").close());
            while (e.getCause() != null && !e.getMessage().startsWith(property)) {
                e = e.getCause();
            }
            assertTrue(e.getMessage().startsWith(property + ": ") && e.getMessage().contains("unknown option `stpe`"), e.toString());
        }
    }
}
