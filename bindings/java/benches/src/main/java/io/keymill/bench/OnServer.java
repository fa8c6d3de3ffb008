package io.keymill.bench;

import io.keymill.KeyFactory;
import io.keymill.Mill;
import java.net.URI;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/** Both KeyFactories on one MariaDB, step 500: {@code KEYMILL_TEST_MYSQL} names it. */
@BenchmarkMode(Mode.Throughput)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
public class OnServer {
    private static final String URL = System.getenv("KEYMILL_TEST_MYSQL");
    private static final String TABLE = "bench_" + System.nanoTime() % 1_000_000_000;
    private static final String DIGITS = "000000000000";

    @State(Scope.Benchmark)
    public static class Keymill {
        @Setup
        public void open() {
            Mill mill = Mill.open(URL);
            mill.init("serial:" + TABLE + "/custid?number=" + DIGITS);
            KeyFactory.use(mill);
        }
    }

    @State(Scope.Benchmark)
    public static class Seed {
        @Setup
        public void open() {
            try (Mill mill = Mill.open(URL)) {
                mill.init("serial:" + TABLE + "/custid?number=" + DIGITS);
            }
            URI server = URI.create(URL);
            String[] user = server.getUserInfo().split(":");
            seed.KeyFactory.url = "jdbc:mariadb://" + server.getHost() + ":" + server.getPort() + server.getPath() + "?user="
                    + user[0] + "&password=" + user[1];
        }
    }

    @Benchmark
    public String keymill_factory_mariadb(Keymill state) throws Exception {
        return KeyFactory.getSerialNoByDS(TABLE, "custid", "yyyyMMdd", DIGITS, 500);
    }

    @Benchmark
    public String seed_factory_mariadb(Seed state) throws Exception {
        return seed.KeyFactory.getSerialNoByDS(TABLE, "custid", "yyyyMMdd", DIGITS, 500);
    }
}
