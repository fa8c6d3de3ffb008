package shop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.annotation.JsonFormat;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import io.keymill.json.AsText;
import java.math.BigInteger;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** Ids in JSON with the Jackson of the class path. */
class JsonTest {
    private final ObjectMapper mapper = JsonMapper.builder().findAndAddModules().build();

    static class Order {
        @io.keymill.hibernate.KeymillId private Long id;
        private long amount;

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

    static class Basket {
        @io.keymill.mybatis.KeymillId public long id;
        @io.keymill.spring.data.KeymillId public BigInteger wide;
        @AsText public List<Long> items;
        public List<Long> prices;
        @AsText public String name;
    }

    static class Base<T> {
        @io.keymill.hibernate.KeymillId public T id;
    }

    static class Numbered extends Base<Long> {}

    static class Anything {
        @io.keymill.hibernate.KeymillId @JsonFormat(shape = JsonFormat.Shape.NUMBER) public long number = 5;
        @AsText public Object one = 9_007_199_254_740_993L;
        @AsText public Object other = "a text";
        @AsText public Object list = Arrays.asList(1);
    }

    record Line(@AsText Long id, Long count) {}

    @Test
    void an_id_is_text_and_another_number_stays_one() throws Exception {
        Order order = new Order();
        order.id = 7_943_646_055_239_778_305L;
        order.amount = 9_007_199_254_740_993L;
        String json = mapper.writeValueAsString(order);
        assertEquals(mapper.readTree("{\"id\":\"7943646055239778305\",\"amount\":9007199254740993}"), mapper.readTree(json));
        order.id = null;
        assertEquals(mapper.readTree("{\"id\":null,\"amount\":9007199254740993}"), mapper.readTree(mapper.writeValueAsString(order)));
    }

    @Test
    void fields_lists_and_records() throws Exception {
        Basket basket = new Basket();
        basket.id = 1;
        basket.wide = BigInteger.ONE.shiftLeft(100);
        basket.items = Arrays.asList(2L, 3L);
        basket.prices = Arrays.asList(4L);
        basket.name = "a name";
        assertEquals(mapper.readTree("{\"id\":\"1\",\"wide\":\"1267650600228229401496703205376\",\"items\":[\"2\",\"3\"],\"prices\":[4],\"name\":\"a name\"}"), mapper.readTree(mapper.writeValueAsString(basket)));
        assertEquals(mapper.readTree("{\"id\":\"7\",\"count\":8}"), mapper.readTree(mapper.writeValueAsString(new Line(7L, 8L))));
    }

    static class Shelf {
        @AsText public Map<String, Long> places = Collections.singletonMap("a", 5L);
        @AsText public Long[] parents = {6L};
        @AsText public Set<Integer> small = Collections.singleton(7);
        @AsText public long[] wide = {7_943_646_055_239_778_305L, 11};
        public Map<String, Long> counts = Collections.singletonMap("b", 8L);
        public long[] prices = {9};
        public byte[] image = {10};
        public String[] names = {"a name"};
    }

    @Test
    void maps_and_arrays_with_and_without_ids() throws Exception {
        assertEquals(mapper.readTree("{\"places\":{\"a\":\"5\"},\"parents\":[\"6\"],\"small\":[\"7\"],\"wide\":[\"7943646055239778305\",\"11\"],\"counts\":{\"b\":8},\"prices\":[9],\"image\":\"Cg==\",\"names\":[\"a name\"]}"), mapper.readTree(mapper.writeValueAsString(new Shelf())));
        assertEquals("[1]", mapper.writeValueAsString(new long[] {1}));
        assertEquals("{\"c\":2}", mapper.writeValueAsString(Collections.singletonMap("c", 2L)));
    }

    @Test
    void an_id_of_a_generic_class_is_text() throws Exception {
        Numbered numbered = new Numbered();
        numbered.id = 7L;
        assertEquals(mapper.readTree("{\"id\":\"7\"}"), mapper.readTree(mapper.writeValueAsString(numbered)));
        assertEquals(mapper.readTree("{\"number\":5,\"one\":\"9007199254740993\",\"other\":\"a text\",\"list\":[1]}"), mapper.readTree(mapper.writeValueAsString(new Anything())));
    }

    @Test
    void both_forms_are_read() throws Exception {
        assertEquals(7, mapper.readValue("{\"id\":\"7\"}", Order.class).id);
        assertEquals(7, mapper.readValue("{\"id\":7}", Order.class).id);
        assertEquals(new Line(7L, 8L), mapper.readValue("{\"id\":\"7\",\"count\":8}", Line.class));
        assertEquals(Arrays.asList(2L, 3L), mapper.readValue("{\"items\":[\"2\",3]}", Basket.class).items);
        assertEquals(7, mapper.readValue("{\"wide\":[\"7\"]}", Shelf.class).wide[0]);
    }
}
