package io.keymill.bench;

import io.keymill.KeyFactory;
import io.keymill.Mill;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import me.ahoo.cosid.StringIdGeneratorDecorator;
import me.ahoo.cosid.converter.DatePrefixIdConverter;
import me.ahoo.cosid.converter.ToStringIdConverter;
import me.ahoo.cosid.segment.IdSegmentDistributor;
import me.ahoo.cosid.segment.SegmentChainId;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;

/** Serial numbers: date part and eight digits. Ranges come from memory, so that only the way to the text is measured. */
@BenchmarkMode(Mode.Throughput)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
public class Texts {
    /** Eight digits do not last for seconds at these rates: every rival grows a ninth, so keymill may too. */
    private static void use(String order) throws IOException {
        Path file = Files.createTempFile("keymill-bench", ".toml");
        Files.writeString(file, "store = \"memory:\"\n[serial]\norder = \"" + order + "\"\noverflow = \"widen\"\n");
        KeyFactory.use(Mill.open("file:" + file));
        Files.delete(file);
    }

    @State(Scope.Benchmark)
    public static class ByThread {
        @Setup
        public void open() throws IOException {
            use("thread");
        }
    }

    @State(Scope.Benchmark)
    public static class ByProcess {
        @Setup
        public void open() throws IOException {
            use("process");
        }
    }

    @State(Scope.Benchmark)
    public static class CosId {
        final StringIdGeneratorDecorator serials = new StringIdGeneratorDecorator(
                new SegmentChainId(new IdSegmentDistributor.Atomic(100_000)),
                new DatePrefixIdConverter("yyyyMMdd", "", new ToStringIdConverter(true, 8)));
    }

    @State(Scope.Thread)
    public static class Scratch {
        final byte[] bytes = "20261120000000000000".getBytes();
    }

    /** What no design can beat: a String of sixteen characters. */
    @Benchmark
    @SuppressWarnings("deprecation")
    public String bound_string16(Scratch scratch) {
        scratch.bytes[15]++;
        return new String(scratch.bytes, 0, 0, 16);
    }

    @Benchmark
    public String keymill_factory_thread(ByThread state) throws Exception {
        return KeyFactory.getSerialNoByDS("cust_info", "custid", "yyyyMMdd", "00000000", 500);
    }

    @Benchmark
    public String keymill_factory_process(ByProcess state) throws Exception {
        return KeyFactory.getSerialNoByDS("cust_info", "custid", "yyyyMMdd", "00000000", 500);
    }

    @Benchmark
    public String seed_factory() throws Exception {
        return seed.KeyFactory.getSerialNoByDS("cust_info", "custid", "yyyyMMdd", "00000000", 500);
    }

    @Benchmark
    public String cosid_chain_date(CosId cosid) {
        return cosid.serials.generateAsString();
    }
}
