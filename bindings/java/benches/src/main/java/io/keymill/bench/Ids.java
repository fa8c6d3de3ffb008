package io.keymill.bench;

import com.github.f4b6a3.uuid.UuidCreator;
import com.github.yitter.contract.IdGeneratorOptions;
import com.github.yitter.idgen.DefaultIdGenerator;
import io.hypersistence.tsid.TSID;
import io.keymill.Handle;
import io.keymill.Mill;
import io.keymill.Source;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import me.ahoo.cosid.segment.IdSegmentDistributor;
import me.ahoo.cosid.segment.SegmentChainId;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.State;

/** Numbers, and what people take instead. */
@BenchmarkMode(Mode.Throughput)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
public class Ids {
    /** One of each, so that a row opens only what it measures. */
    @State(Scope.Benchmark)
    public static class Keymill {
        final Mill mill = Mill.open("memory:");
        final Source process = mill.segment("process");
        final Source thread = mill.segment("thread?order=thread");
        final Source snowflake = mill.snowflake("tx?worker=1&layout=time:41@1ms,worker:1,seq:21");
    }

    /** A handle for each thread. */
    @State(Scope.Thread)
    public static class Owned {
        Handle handle;
        long[] batch = new long[1000];

        @org.openjdk.jmh.annotations.Setup
        public void open(Keymill keymill) {
            handle = keymill.thread.handle();
        }
    }

    @State(Scope.Benchmark)
    public static class Counter {
        final AtomicLong counter = new AtomicLong();
    }

    @State(Scope.Benchmark)
    public static class CosId {
        final SegmentChainId chain = new SegmentChainId(new IdSegmentDistributor.Atomic(100_000));
    }

    @State(Scope.Benchmark)
    public static class Yitter {
        final DefaultIdGenerator generator;

        public Yitter() {
            IdGeneratorOptions options = new IdGeneratorOptions((short) 1);
            options.WorkerIdBitLength = 1;
            options.SeqBitLength = 21;
            generator = new DefaultIdGenerator(options);
        }
    }

    @State(Scope.Benchmark)
    public static class Hutool {
        final cn.hutool.core.lang.Snowflake snowflake = new cn.hutool.core.lang.Snowflake(1, 1);
    }

    @Benchmark
    public long keymill_handle(Owned owned) {
        return owned.handle.next();
    }

    @Benchmark
    public long keymill_thread(Keymill keymill) {
        return keymill.thread.next();
    }

    @Benchmark
    public long keymill_process(Keymill keymill) {
        return keymill.process.next();
    }

    @Benchmark
    public long[] keymill_fill1000(Keymill keymill, Owned owned) {
        keymill.process.fill(owned.batch);
        return owned.batch;
    }

    @Benchmark
    public long[] keymill_take1000(Keymill keymill) {
        return keymill.process.take(1000);
    }

    @Benchmark
    public long keymill_snowflake(Keymill keymill) {
        return keymill.snowflake.next();
    }

    @Benchmark
    public long atomicLong(Counter counter) {
        return counter.counter.getAndIncrement();
    }

    @Benchmark
    public long cosid_chain(CosId cosid) {
        return cosid.chain.generate();
    }

    @Benchmark
    public long yitter_1_21(Yitter yitter) {
        return yitter.generator.newLong();
    }

    @Benchmark
    public long hutool_snowflake(Hutool hutool) {
        return hutool.snowflake.nextId();
    }

    @Benchmark
    public UUID uuid7() {
        return UuidCreator.getTimeOrderedEpoch();
    }

    @Benchmark
    public long tsid() {
        return TSID.Factory.getTsid().toLong();
    }
}
