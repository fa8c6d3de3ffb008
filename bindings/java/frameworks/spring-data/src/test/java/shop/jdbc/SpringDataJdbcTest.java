package shop.jdbc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.keymill.Mill;
import io.keymill.Stats;
import io.keymill.spring.data.KeymillId;
import io.keymill.spring.data.KeymillJdbcCallback;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.SortedMap;
import java.util.SortedSet;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.annotation.AccessType;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Transient;
import org.springframework.data.jdbc.repository.config.EnableJdbcRepositories;
import org.springframework.data.relational.core.mapping.Embedded;
import org.springframework.data.relational.core.mapping.MappedCollection;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.mapping.Table;
import org.springframework.data.repository.CrudRepository;
import org.springframework.jdbc.core.JdbcTemplate;
import shop.Causes;
import shop.OtherVersion;
import shop.Stores;

/** Spring Data JDBC in the Boot of the class path. */
class SpringDataJdbcTest {
    static Stores[] stores() {
        return Stores.there();
    }

    /** Nothing of it can be changed. */
    @Table("sd_orders")
    record Order(@Id @KeymillId Long id, @KeymillId("serial:{table}/no?number=000000") String no, String what, @MappedCollection(idColumn = "parent") Set<Line> lines) {}

    @Table("sd_line")
    record Line(@Id @KeymillId Long id, String what) {}

    @Table("sd_basket")
    static class Basket {
        @Id @KeymillId long id;
        @MappedCollection(idColumn = "parent", keyColumn = "place") Map<String, Item> items = new LinkedHashMap<>();
    }

    @Table("sd_item")
    static class Item {
        @Id @KeymillId Long id;
        String what;
    }

    @Table("sd_small")
    record Small(@Id @KeymillId("segment:sd_small?start=2147483647&step=10") Integer id) {}

    @Table("sd_wrong")
    static class Wrong {
        @Id @KeymillId Long id;
        @KeymillId("serial:{table}/no?number=000000") Long no;
    }

    @Table("sd_basket")
    @AccessType(AccessType.Type.PROPERTY)
    static class ByMethods {
        @Id @KeymillId private Long id;
        @Transient int sets;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
            sets++;
        }
    }

    @Table("sd_basket")
    static class Copied {
        @Id @KeymillId final Long id;

        Copied(Long id) {
            this.id = id;
        }

        Copied withId(Long id) {
            return new Copied(id);
        }
    }

    interface WithMethods extends CrudRepository<ByMethods, Long> {}

    interface Copies extends CrudRepository<Copied, Long> {}

    /** Records that are made anew, in order. */
    @Table("sd_shelf")
    record Shelf(@Id @KeymillId Long id, @MappedCollection(idColumn = "parent") SortedSet<Book> books, @MappedCollection(idColumn = "parent", keyColumn = "place") SortedMap<String, Book> best) {}

    @Table("sd_book")
    record Book(@Id @KeymillId Long id, String what) implements Comparable<Book> {
        @Override
        public int compareTo(Book other) {
            return what.compareTo(other.what);
        }
    }

    /** A value in its owner's row. */
    record Label(@KeymillId Long no, String what) {}

    @Table("sd_box")
    record Box(@Id @KeymillId("segment:sd_box_id") Long id, @Embedded.Nullable(prefix = "label_") Label label) {}

    interface Boxes extends CrudRepository<Box, Long> {}

    interface Orders extends CrudRepository<Order, Long> {}

    interface Wrongs extends CrudRepository<Wrong, Long> {}

    interface Baskets extends CrudRepository<Basket, Long> {}

    interface Smalls extends CrudRepository<Small, Integer> {}

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    @EnableJdbcRepositories(considerNestedRepositories = true)
    static class Shop {}

    private static ConfigurableApplicationContext run(Stores stores) {
        String url = stores.jdbcUrl() + (stores == Stores.H2_AND_SQLITE ? ";CASE_INSENSITIVE_IDENTIFIERS=TRUE" : "");
        Stores.run(url, stores.user(), stores.password(),
                "drop table if exists sd_line", "drop table if exists sd_orders", "drop table if exists sd_item", "drop table if exists sd_basket", "drop table if exists sd_small",
                "create table sd_orders (id bigint primary key, no varchar(40) not null, what varchar(40))", "create table sd_line (id bigint primary key, parent bigint not null, what varchar(40))",
                "create table sd_basket (id bigint primary key)", "create table sd_item (id bigint primary key, parent bigint not null, place varchar(40), what varchar(40))",
                "drop table if exists sd_box", "create table sd_box (id bigint primary key, label_no bigint, label_what varchar(40))", "create table sd_small (id int primary key)", "drop table if exists sd_wrong", "create table sd_wrong (id bigint primary key, no bigint)");
        return new SpringApplicationBuilder(Shop.class).web(WebApplicationType.NONE).properties(
                "spring.main.banner-mode=off", "logging.level.root=warn", "spring.datasource.url=" + url, "spring.datasource.username=" + stores.user(), "spring.datasource.password=" + stores.password(),
                "spring.autoconfigure.exclude=org.springframework.boot.autoconfigure.r2dbc.R2dbcAutoConfiguration,org.springframework.boot.r2dbc.autoconfigure.R2dbcAutoConfiguration",
                "keymill.config=" + stores.config(), "keymill.init=missing", "keymill.sources.orders=segment:sd_orders", "keymill.sources.numbers=serial:sd_orders/no?number=000000").run();
    }

    private static Order order(int lines) {
        Set<Line> some = new LinkedHashSet<>();
        for (int i = 0; i < lines; i++) {
            some.add(new Line(null, "line " + i));
        }
        return new Order(null, null, "first", some);
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_record_and_its_children_are_inserted_with_ids(Stores stores) {
        try (ConfigurableApplicationContext context = run(stores)) {
            Orders orders = context.getBean(Orders.class);
            Order saved = orders.save(order(3));
            assertNotNull(saved.id);
            assertTrue(saved.no.matches("\\d{14}"), saved.no);
            Order found = orders.findById(saved.id).get();
            Set<Long> lines = new HashSet<>();
            found.lines.forEach(line -> lines.add(line.id));
            assertEquals(3, lines.size());
            assertEquals(saved.lines, found.lines, "the ids that were stored are the ids of the saved object");
            Order changed = orders.save(new Order(saved.id, saved.no, "second", found.lines));
            assertEquals(saved.id, changed.id, "an id that is set makes it an update");
            assertEquals(found.lines, changed.lines, "and children keep theirs");
            assertEquals(1, orders.count());
        }
    }

    /** On a store of its own, since the source has to be new. */
    @Test
    void a_source_whose_table_has_other_rows_is_refused_with_what_to_run() {
        try (ConfigurableApplicationContext context = run(Stores.H2_AND_SQLITE)) {
            Baskets baskets = context.getBean(Baskets.class);
            context.getBean(JdbcTemplate.class).execute("insert into sd_basket (id) values (7)");
            for (int i = 0; i < 2; i++) {
                String said = Causes.root(assertThrows(RuntimeException.class, () -> baskets.save(new Basket()))).getMessage();
                assertTrue(said.matches("shop[.]jdbc[.]SpringDataJdbcTest[$]Basket[.]id: segment:sd_basket goes on at 1, and the table sd_basket has keys up to 7, which this source did not give; "
                        + "stop every program that takes from it, run `keymill --mill 'sqlite:[^']+' repair 'segment:sd_basket' --to 8 --yes`, and start them again"), said);
            }
            assertEquals(1, baskets.count());
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_thousand_aggregates(Stores stores) {
        try (ConfigurableApplicationContext context = run(stores)) {
            Orders orders = context.getBean(Orders.class);
            List<Order> some = new ArrayList<>();
            for (int i = 0; i < 1000; i++) {
                some.add(order(1));
            }
            Set<Long> ids = new HashSet<>();
            orders.saveAll(some).forEach(order -> ids.add(order.id));
            assertEquals(1000, ids.size());
            assertEquals(1000, orders.count());
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_class_is_filled_where_it_is(Stores stores) {
        try (ConfigurableApplicationContext context = run(stores)) {
            Basket basket = new Basket();
            basket.items.put("a", new Item());
            basket.items.put("b", new Item());
            Basket saved = context.getBean(Baskets.class).save(basket);
            assertTrue(saved.id > 0, "a primitive's 0 is no id");
            assertEquals(2, saved.items.values().stream().map(item -> item.id).distinct().count());
            assertTrue(context.getBean(Mill.class).metrics().contains("segment:sd_item"));
        }
    }

    /** Spring takes some exceptions of a callback for one of another entity's, and would write the row. */
    @ParameterizedTest
    @MethodSource("stores")
    void a_spec_of_another_kind_than_the_field_is_an_error_and_no_row(Stores stores) {
        try (ConfigurableApplicationContext context = run(stores)) {
            Wrongs wrongs = context.getBean(Wrongs.class);
            Throwable e = Causes.root(assertThrows(RuntimeException.class, () -> wrongs.save(new Wrong())));
            assertTrue(e.getMessage().startsWith("shop.jdbc.SpringDataJdbcTest$Wrong.no is a long, and `serial:sd_wrong/no?number=000000` gives text"), e.toString());
            assertEquals(0, wrongs.count());
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_setter_is_called_and_a_copy_taken_where_spring_data_does_so(Stores stores) {
        try (ConfigurableApplicationContext context = run(stores)) {
            ByMethods one = context.getBean(WithMethods.class).save(new ByMethods());
            assertTrue(one.id > 0);
            assertTrue(one.sets > 0, "the field was set without its setter");
            Copied empty = new Copied(null);
            Copied saved = context.getBean(Copies.class).save(empty);
            assertTrue(saved.id > one.id);
            assertNull(empty.id);
        }
    }

    @Test
    void sorted_collections_of_records_stay_sorted() {
        RelationalMappingContext entities = new RelationalMappingContext();
        try (Mill mill = Mill.open("memory:")) {
            SortedSet<Book> books = new TreeSet<>(Comparator.reverseOrder());
            books.addAll(List.of(new Book(null, "a"), new Book(null, "c"), new Book(null, "b")));
            SortedMap<String, Book> best = new TreeMap<>(Comparator.reverseOrder());
            best.putAll(Map.of("1", new Book(null, "d"), "2", new Book(null, "e")));
            Shelf shelf = (Shelf) new KeymillJdbcCallback(() -> mill, () -> entities).onBeforeConvert(new Shelf(null, books, best));
            assertEquals(List.of("c1", "b2", "a3"), shelf.books.stream().map(book -> book.what + book.id).collect(Collectors.toList()));
            assertEquals(List.of("2e4", "1d5"), shelf.best.entrySet().stream().map(book -> book.getKey() + book.getValue().what + book.getValue().id).collect(Collectors.toList()));
        }
    }

    @Test
    void the_table_of_an_embedded_value_is_its_owners() {
        try (ConfigurableApplicationContext context = run(Stores.H2_AND_SQLITE)) {
            Boxes boxes = context.getBean(Boxes.class);
            Box box = boxes.save(new Box(null, new Label(null, "first")));
            assertEquals(1, box.label.no);
            assertEquals(box, boxes.findById(box.id).get());
            Set<String> sources = context.getBean(Mill.class).stats().stream().map(Stats::source).collect(Collectors.toSet());
            assertTrue(sources.contains("segment:sd_box") && !sources.contains("segment:label"), sources.toString());
        }
    }

    @ParameterizedTest
    @MethodSource("stores")
    void a_number_that_an_integer_does_not_hold_is_an_error(Stores stores) {
        try (ConfigurableApplicationContext context = run(stores)) {
            Smalls smalls = context.getBean(Smalls.class);
            Throwable e = Causes.root(assertThrows(RuntimeException.class, () -> {
                for (int i = 0; i < 2; i++) {
                    smalls.save(new Small(null));
                }
            }));
            assertTrue(e.getMessage().startsWith("shop.jdbc.SpringDataJdbcTest$Small.id is an int, which holds numbers up to 2147483647, and its next id is 21474"), e.toString());
        }
    }

    static class Application implements Runnable {
        @Override
        public void run() {
            new io.keymill.spring.data.KeymillJdbcCallback(null, null);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"keymill", "keymill-spring-data"})
    void jars_of_two_versions_stop_the_start(String artifact) {
        OtherVersion.isRefused(artifact, Application.class);
    }
}
