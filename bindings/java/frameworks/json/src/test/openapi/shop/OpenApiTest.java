package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.keymill.json.AsText;
import java.net.URI;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RestController;

/** What springdoc says of ids, beside what the application answers. */
class OpenApiTest {
    public static class Order {
        @io.keymill.hibernate.KeymillId private Long id;
        private long amount;
        @AsText public List<Long> items;
        public List<Long> prices;
        @AsText public long[] parents;
        @AsText public Map<String, Long> places;
        @AsText public String name;
        public Line line;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }

        public long getAmount() {
            return amount;
        }

        public void setAmount(long amount) {
            this.amount = amount;
        }
    }

    public record Line(@AsText long id, int count) {}

    @RestController
    public static class Orders {
        @GetMapping("/order")
        public Order order() {
            Order order = new Order();
            order.id = 7_943_646_055_239_778_305L;
            order.items = List.of(2L);
            order.prices = List.of(3L);
            order.parents = new long[] {4};
            order.places = Map.of("a", 5L);
            order.line = new Line(6, 7);
            return order;
        }

        @PostMapping("/order")
        public void add(@RequestBody Order order) {}
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @Import(Orders.class)
    static class Shop {}

    private static JsonNode read(ConfigurableApplicationContext context, String path) throws Exception {
        return new ObjectMapper().readTree(URI.create("http://127.0.0.1:" + context.getEnvironment().getProperty("local.server.port") + path).toURL());
    }

    @Test
    void the_description_has_the_types_that_the_answer_has() throws Exception {
        try (ConfigurableApplicationContext context = new SpringApplicationBuilder(Shop.class)
                .properties("server.port=0", "spring.main.banner-mode=off", "logging.level.root=warn", "keymill.config=memory:").run()) {
            JsonNode answer = read(context, "/order");
            JsonNode schemas = read(context, "/v3/api-docs").at("/components/schemas");
            JsonNode order = schemas.at("/Order/properties");
            assertEquals("string string integer array string array integer array string object string string", String.join(" ",
                    type(order, "id"), type(schemas.at("/Line/properties"), "id"), type(order, "amount"), type(order, "items"), type(order.at("/items"), "items"), type(order, "prices"), type(order.at("/prices"), "items"),
                    type(order, "parents"), type(order.at("/parents"), "items"), type(order, "places"), type(order.at("/places"), "additionalProperties"), type(order, "name")), schemas.toString());
            assertEquals("integer", type(schemas.at("/Line/properties"), "count"));
            assertEquals("", order.at("/id/format").asText(), "no int64");
            assertEquals("string integer string integer string integer", String.join(" ",
                    type(answer.at("/id")), type(answer.at("/amount")), type(answer.at("/items/0")), type(answer.at("/prices/0")), type(answer.at("/line/id")), type(answer.at("/line/count"))), answer.toString());
            assertEquals("string string", type(answer.at("/places/a")) + " " + type(answer.at("/parents/0")), answer.toString());
        }
    }

    private static String type(JsonNode properties, String name) {
        return properties.at("/" + name + "/type").asText();
    }

    private static String type(JsonNode value) {
        return value.isTextual() ? "string" : value.isIntegralNumber() ? "integer" : value.getNodeType().toString();
    }
}
