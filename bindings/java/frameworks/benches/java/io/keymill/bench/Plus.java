package io.keymill.bench;

import com.baomidou.mybatisplus.annotation.IdType;
import com.baomidou.mybatisplus.annotation.TableId;
import com.baomidou.mybatisplus.annotation.TableName;
import com.baomidou.mybatisplus.core.MybatisConfiguration;
import com.baomidou.mybatisplus.core.MybatisSqlSessionFactoryBuilder;
import com.baomidou.mybatisplus.core.config.GlobalConfig;
import com.baomidou.mybatisplus.core.incrementer.IdentifierGenerator;
import com.baomidou.mybatisplus.core.mapper.BaseMapper;
import com.baomidou.mybatisplus.core.toolkit.GlobalConfigUtils;
import io.keymill.Mill;
import io.keymill.mybatis.plus.KeymillIdentifierGenerator;
import io.keymill.support.FieldIds;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.LongFunction;
import org.apache.ibatis.datasource.pooled.PooledDataSource;
import org.apache.ibatis.mapping.Environment;
import org.apache.ibatis.session.SqlSession;
import org.apache.ibatis.session.SqlSessionFactory;
import org.apache.ibatis.transaction.jdbc.JdbcTransactionFactory;

/** {@code insert} of a collection of 1000, one transaction, with every kind of key. */
final class Plus {
    public abstract static class Row {
        private String what = "a book and a pen";
        private int amount = 3;

        public String getWhat() {
            return what;
        }

        public void setWhat(String what) {
            this.what = what;
        }

        public int getAmount() {
            return amount;
        }

        public void setAmount(int amount) {
            this.amount = amount;
        }
    }

    @TableName("keymill")
    public static class Keymill extends Row {
        private Long id;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }
    }

    @TableName("assigned")
    public static class Assigned extends Row {
        private Long id;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }
    }

    @TableName("numbered")
    public static class Auto extends Row {
        @TableId(type = IdType.AUTO)
        private Long id;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }
    }

    @TableName("by_hand")
    public static class ByHand extends Row {
        @TableId(type = IdType.INPUT)
        private Long id;

        public Long getId() {
            return id;
        }

        public void setId(Long id) {
            this.id = id;
        }
    }

    public interface Keymills extends BaseMapper<Keymill> {}

    public interface Assigneds extends BaseMapper<Assigned> {}

    public interface Autos extends BaseMapper<Auto> {}

    public interface ByHands extends BaseMapper<ByHand> {}

    private Plus() {}

    /** Null: the generator that MyBatis-Plus has. */
    static SqlSessionFactory factory(Database database, IdentifierGenerator generator, Class<?>... mappers) {
        MybatisConfiguration configuration = new MybatisConfiguration(new Environment("bench", new JdbcTransactionFactory(),
                new PooledDataSource(database.driver, database.url(), database.user(), database.password())));
        GlobalConfig global = GlobalConfigUtils.defaults();
        global.setBanner(false);
        if (generator != null) {
            global.setIdentifierGenerator(generator);
        }
        GlobalConfigUtils.setGlobalConfig(configuration, global);
        for (Class<?> mapper : mappers) {
            configuration.addMapper(mapper);
        }
        return new MybatisSqlSessionFactoryBuilder().build(configuration);
    }

    private static <T> Runnable transaction(SqlSessionFactory factory, Class<? extends BaseMapper<T>> mapper, LongFunction<T> entity) {
        long[] made = {0};
        return () -> {
            List<T> entities = new ArrayList<>(Rounds.ROWS);
            for (int i = 0; i < Rounds.ROWS; i++) {
                entities.add(entity.apply(++made[0]));
            }
            try (SqlSession session = factory.openSession()) {
                session.getMapper(mapper).insert(entities);
            }
        };
    }

    private static ByHand byHand(long id) {
        ByHand entity = new ByHand();
        entity.id = id;
        return entity;
    }

    static Map<String, double[]> measure(Database database, double warmUp, double seconds) {
        String[] tables = {"keymill", "assigned", "numbered", "by_hand"};
        for (String table : tables) {
            database.run("drop table if exists " + table, "create table " + table + " (id bigint " + (table.equals("numbered") ? "auto_increment " : "") + "primary key, what varchar(255), amount int)");
        }
        try (Mill mill = database.mill()) {
            SqlSessionFactory keymill = factory(database, new KeymillIdentifierGenerator(() -> mill, FieldIds.DEFAULT, KeymillIdentifierGenerator.ID_WORKER), Keymills.class);
            SqlSessionFactory own = factory(database, null, Assigneds.class, Autos.class, ByHands.class);
            Rounds rounds = new Rounds(() -> {
                for (String table : tables) {
                    database.run("truncate table " + table);
                }
            });
            rounds.add("**`KeymillIdentifierGenerator`**", transaction(keymill, Keymills.class, i -> new Keymill()));
            rounds.add("its own `ASSIGN_ID`, a snowflake", transaction(own, Assigneds.class, i -> new Assigned()));
            rounds.add("`AUTO`", transaction(own, Autos.class, i -> new Auto()));
            rounds.add("ids set by hand, `INPUT` (bound)", transaction(own, ByHands.class, Plus::byHand));
            return rounds.measure(warmUp, seconds);
        }
    }
}
