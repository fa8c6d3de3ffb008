package io.keymill.bench;

import com.mybatisflex.annotation.KeyType;
import com.mybatisflex.annotation.Table;
import io.keymill.Mill;
import io.keymill.Source;
import io.keymill.mybatis.KeymillInterceptor;
import io.keymill.mybatis.flex.KeymillKeyGenerator;
import io.keymill.mybatis.plus.KeymillIdentifierGenerator;
import io.keymill.shardingsphere.KeymillKeys;
import io.keymill.spring.data.KeymillJdbcCallback;
import io.keymill.spring.data.KeymillR2dbcCallback;
import io.keymill.support.FieldIds;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.ibatis.annotations.Insert;
import org.apache.ibatis.executor.Executor;
import org.apache.ibatis.mapping.MappedStatement;
import org.apache.ibatis.plugin.Invocation;
import org.apache.ibatis.reflection.ParamNameResolver;
import org.apache.ibatis.session.Configuration;
import org.apache.shardingsphere.infra.algorithm.core.context.AlgorithmSQLContext;
import org.hibernate.SessionFactory;
import org.hibernate.engine.spi.SessionFactoryImplementor;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.generator.BeforeExecutionGenerator;
import org.hibernate.generator.EventType;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.springframework.data.annotation.Id;
import org.springframework.data.mapping.PersistentPropertyAccessor;
import org.springframework.data.mapping.model.EntityInstantiators;
import org.springframework.data.mapping.model.InstantiationAwarePropertyAccessor;
import org.springframework.data.relational.core.mapping.RelationalMappingContext;
import org.springframework.data.relational.core.mapping.RelationalPersistentEntity;
import org.springframework.data.relational.core.mapping.RelationalPersistentProperty;

/** What an id costs where a framework asks for one, beside the core's source. Frameworks themselves do as little as they can. */
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
public class Hooks {
    static final int ROWS = 1000;
    private static final int CHILDREN = 10;
    private static final EntityInstantiators CONSTRUCTORS = new EntityInstantiators();

    /** As an application has it: opened once, shared. */
    static Mill shared() {
        Mill mill = Mill.open("memory:");
        Mill.share(mill);
        return mill;
    }

    @State(Scope.Benchmark)
    public static class Core {
        final Source source = shared().segment("core");
    }

    @Benchmark
    public long source_next(Core core) {
        return core.source.next();
    }

    @Benchmark
    public Object source_boxed(Core core) {
        return core.source.next();
    }

    @Benchmark
    @OperationsPerInvocation(ROWS)
    public long[] source_take(Core core) {
        return core.source.take(ROWS);
    }

    /** The generator that Hibernate made of an entity's annotation. */
    @State(Scope.Benchmark)
    public static class OfHibernate {
        final SessionFactory sessions = Hibernate.sessions(Database.H2, shared());
        final SharedSessionContractImplementor session = (SharedSessionContractImplementor) sessions.openSession();
        final BeforeExecutionGenerator generator = (BeforeExecutionGenerator) ((SessionFactoryImplementor) sessions).getMappingMetamodel().getEntityDescriptor(Hibernate.Keymill.class).getGenerator();
        final Hibernate.Keymill entity = new Hibernate.Keymill();

        @TearDown
        public void close() {
            sessions.close();
        }
    }

    @Benchmark
    public Object hibernate(OfHibernate state) {
        return state.generator.generate(state.session, state.entity, null, EventType.INSERT);
    }

    @State(Scope.Benchmark)
    public static class OfPlus {
        final KeymillIdentifierGenerator generator = new KeymillIdentifierGenerator();
        final Plus.Keymill entity = new Plus.Keymill();

        public OfPlus() {
            shared();
            Plus.factory(Database.H2, generator, Plus.Keymills.class);
        }
    }

    @Benchmark
    public Object mybatisPlus(OfPlus state) {
        return state.generator.nextId(state.entity);
    }

    /** An entity of MyBatis-Flex. */
    @Table("orders")
    public static class FlexRow {
        @com.mybatisflex.annotation.Id(keyType = KeyType.Generator, value = KeymillKeyGenerator.NAME)
        private Long id;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }
    }

    @State(Scope.Benchmark)
    public static class OfFlex {
        final KeymillKeyGenerator generator = new KeymillKeyGenerator(null, FieldIds.DEFAULT);
        final FlexRow row = new FlexRow();

        public OfFlex() {
            shared();
        }
    }

    @Benchmark
    public Object mybatisFlex(OfFlex state) {
        return state.generator.generate(state.row, "id");
    }

    /** An entity of MyBatis. */
    public static class Row {
        @io.keymill.mybatis.KeymillId Long id;
    }

    /** A mapper of MyBatis. */
    public interface Rows {
        @Insert("insert into orders (id) values (#{id})")
        void insert(Row row);

        @Insert("<script>insert into orders (id) values (<if test='id != null'>#{id}</if>)</script>")
        void insertDynamic(Row row);

        @Insert("<script>insert into orders (id) values <foreach collection='list' item='row' separator=','>(#{row.id})</foreach></script>")
        void insertEach(List<Row> rows);
    }

    @State(Scope.Benchmark)
    public static class OfMyBatis {
        final KeymillInterceptor interceptor = new KeymillInterceptor();
        final Row row = new Row();
        final List<Row> rows = new ArrayList<>();
        final Invocation one;
        final Invocation dynamic;
        final Invocation list;
        final Invocation each;

        public OfMyBatis() {
            shared();
            for (int i = 0; i < ROWS; i++) {
                rows.add(new Row());
            }
            Configuration configuration = new Configuration();
            configuration.addMapper(Rows.class);
            MappedStatement statement = configuration.getMappedStatement(Rows.class.getName() + ".insert");
            one = invocation(statement, row);
            dynamic = invocation(configuration.getMappedStatement(Rows.class.getName() + ".insertDynamic"), row);
            each = invocation(configuration.getMappedStatement(Rows.class.getName() + ".insertEach"), ParamNameResolver.wrapToMapIfCollection(rows, "list"));
            list = invocation(statement, ParamNameResolver.wrapToMapIfCollection(rows, "list"));
        }

        /** What MyBatis does after the interceptor is left out. */
        private static Invocation invocation(MappedStatement statement, Object parameter) {
            try {
                Executor executor = (Executor) Proxy.newProxyInstance(Executor.class.getClassLoader(), new Class<?>[] {Executor.class}, (proxy, method, arguments) -> null);
                return new Invocation(executor, Executor.class.getMethod("update", MappedStatement.class, Object.class), new Object[] {statement, parameter}) {
                    @Override
                    public Object proceed() {
                        return null;
                    }
                };
            } catch (NoSuchMethodException e) {
                throw new IllegalStateException(e);
            }
        }
    }

    @Benchmark
    public Object mybatis(OfMyBatis state) throws Throwable {
        state.row.id = null;
        state.interceptor.intercept(state.one);
        return state.row.id;
    }

    /** Its table may differ with each object, so the SQL is made to read it. */
    @Benchmark
    public Object mybatis_dynamic(OfMyBatis state) throws Throwable {
        state.row.id = null;
        state.interceptor.intercept(state.dynamic);
        return state.row.id;
    }

    @Benchmark
    @OperationsPerInvocation(ROWS)
    public Object mybatis_list(OfMyBatis state) throws Throwable {
        for (Row row : state.rows) {
            row.id = null;
        }
        return state.interceptor.intercept(state.list);
    }

    @Benchmark
    @OperationsPerInvocation(ROWS)
    public Object mybatis_each(OfMyBatis state) throws Throwable {
        for (Row row : state.rows) {
            row.id = null;
        }
        return state.interceptor.intercept(state.each);
    }

    /** An entity of Spring Data. */
    public static class Purchase {
        @Id @io.keymill.spring.data.KeymillId Long id;
        String what = "a book";
    }

    /** A record, which is copied with its id. */
    public record Fixed(@Id @io.keymill.spring.data.KeymillId Long id, String what) {}

    /** An aggregate with children. */
    public static class Basket {
        @Id @io.keymill.spring.data.KeymillId Long id;
        List<Purchase> purchases = new ArrayList<>();
    }

    @State(Scope.Benchmark)
    public static class OfSpringData {
        final RelationalMappingContext context = new RelationalMappingContext();
        final KeymillJdbcCallback jdbc = new KeymillJdbcCallback(null, () -> context);
        final KeymillR2dbcCallback r2dbc = new KeymillR2dbcCallback(null, () -> context);
        final Purchase purchase = new Purchase();
        final Fixed fixed = new Fixed(null, "a book");
        final RelationalPersistentEntity<?> entity = context.getRequiredPersistentEntity(Fixed.class);
        final RelationalPersistentProperty id = entity.getRequiredIdProperty();
        final Basket basket = new Basket();
        final Source source = shared().segment("core");

        public OfSpringData() {
            for (int i = 1; i < CHILDREN; i++) {
                basket.purchases.add(new Purchase());
            }
        }
    }

    @Benchmark
    public Object springData(OfSpringData state) {
        state.purchase.id = null;
        return state.jdbc.onBeforeConvert(state.purchase);
    }

    @Benchmark
    public Object springData_r2dbc(OfSpringData state) {
        state.purchase.id = null;
        return state.r2dbc.onBeforeConvert(state.purchase, null);
    }

    /** A root and nine more; for each of the ten. */
    @Benchmark
    @OperationsPerInvocation(CHILDREN)
    public Object springData_children(OfSpringData state) {
        state.basket.id = null;
        for (Purchase purchase : state.basket.purchases) {
            purchase.id = null;
        }
        return state.jdbc.onBeforeConvert(state.basket);
    }

    /** Spring Data's own way to a record with another id: no id can get into one for less. */
    @Benchmark
    public Object record_bound(OfSpringData state) {
        PersistentPropertyAccessor<Fixed> accessor = new InstantiationAwarePropertyAccessor<>(state.fixed, state.entity::getPropertyAccessor, CONSTRUCTORS);
        accessor.setProperty(state.id, state.source.next());
        return accessor.getBean();
    }

    @Benchmark
    public Object springData_record(OfSpringData state) {
        return state.jdbc.onBeforeConvert(state.fixed);
    }

    @State(Scope.Benchmark)
    public static class OfShardingSphere {
        final KeymillKeys keys = new KeymillKeys();
        final AlgorithmSQLContext context = new AlgorithmSQLContext("shop", "shop", "orders", "id");

        public OfShardingSphere() {
            shared();
            keys.init(new Properties());
        }
    }

    @Benchmark
    public Object shardingSphere(OfShardingSphere state) {
        return state.keys.generateKeys(state.context, 1);
    }

    @Benchmark
    @OperationsPerInvocation(ROWS)
    public Object shardingSphere_list(OfShardingSphere state) {
        return state.keys.generateKeys(state.context, ROWS);
    }

    /** What all of them stand on, where no mill is shared: the default one. */
    @State(Scope.Benchmark)
    public static class OfDefault {
        final FieldIds ids;

        public OfDefault() {
            System.setProperty("keymill.config", "memory:");
            ids = FieldIds.of(null, "segment:core", null, Long.class, "Row.id");
        }
    }

    @Benchmark
    public Object defaultMill(OfDefault state) {
        return state.ids.next();
    }
}
