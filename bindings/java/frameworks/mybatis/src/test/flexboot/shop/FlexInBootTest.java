package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mybatisflex.annotation.Id;
import com.mybatisflex.annotation.KeyType;
import com.mybatisflex.annotation.Table;
import com.mybatisflex.core.BaseMapper;
import io.keymill.Mill;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.mybatis.spring.annotation.MapperScan;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** MyBatis-Flex' own starter and keymill's in one Boot application. */
class FlexInBootTest {
    static Stores[] stores() {
        return Stores.there();
    }

    @Table("orders")
    public static class Order {
        @Id(keyType = KeyType.Generator, value = "keymill")
        private Long id;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }
    }

    public interface Orders extends BaseMapper<Order> {}

    /** A bean that Spring may make before any of keymill's. */
    static class Desk {
        private final Orders orders;

        Desk(Orders orders) {
            this.orders = orders;
        }

        long order() {
            Order order = new Order();
            orders.insert(order);
            return order.id;
        }
    }

    @Configuration
    @EnableAutoConfiguration
    @MapperScan(basePackageClasses = FlexInBootTest.class, markerInterface = BaseMapper.class)
    static class Application {
        @Bean
        Desk desk(Orders orders) {
            return new Desk(orders);
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_bean_that_is_made_first_has_its_generator(Stores stores) {
        String url = stores.jdbcUrl();
        Stores.run(url, stores.user(), stores.password(), "drop table if exists orders", "create table orders (id bigint primary key)");
        try (ConfigurableApplicationContext context = new SpringApplicationBuilder(Application.class).web(WebApplicationType.NONE)
                .run("--spring.main.banner-mode=off", "--mybatis-flex.global-config.print-banner=false", "--spring.datasource.url=" + url,
                        "--spring.datasource.username=" + stores.user(), "--spring.datasource.password=" + stores.password(), "--keymill.config=" + stores.config(), "--keymill.init=missing", "--keymill.sources.orders=segment:orders")) {
            Desk desk = context.getBean(Desk.class);
            long first = desk.order();
            assertEquals(first + 1, desk.order());
            assertTrue(context.getBean(Mill.class).metrics().contains("segment:orders"));
        }
    }
}
