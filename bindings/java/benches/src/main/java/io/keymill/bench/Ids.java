package io.keymill.bench;

import com.github.f4b6a3.uuid.UuidCreator;
import com.github.yitter.contract.IdGeneratorOptions;
import com.github.yitter.idgen.DefaultIdGenerator;
import com.xfvape.uid.exception.UidGenerateException;
import com.xfvape.uid.impl.CachedUidGenerator;
import io.hypersistence.tsid.TSID;
import io.keymill.Business;
import io.keymill.Handle;
import io.keymill.LazySource;
import io.keymill.Mill;
import io.keymill.Source;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import me.ahoo.cosid.segment.IdSegmentDistributor;
import me.ahoo.cosid.segment.SegmentChainId;
import me.ahoo.cosid.snowflake.MillisecondSnowflakeId;
import org.apache.shardingsphere.sharding.algorithm.keygen.SnowflakeKeyGenerateAlgorithm;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.CompilerControl;
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
        final Business business = mill.business("order");
        final Source snowflake = mill.snowflake("tx?worker=1&layout=time:41@1ms,worker:1,seq:21");
    }

    /** Sources that were declared before the mill was open. */
    @State(Scope.Benchmark)
    public static class Declared {
        final LazySource process = Mill.lazy("segment:process");
        final LazySource thread = Mill.lazy("segment:thread?order=thread");

        public Declared() {
            Mill.share(Mill.open("memory:"));
        }
    }

    /** A handle for each thread. */
    @State(Scope.Thread)
    public static class Owned {
        Handle handle;
        long[] batch = new long[1000];
        long counter;

        @org.openjdk.jmh.annotations.Setup
        public void open(Keymill keymill) {
            handle = keymill.thread.handle();
        }
    }

    @State(Scope.Benchmark)
    public static class Counter {
        final AtomicLong counter = new AtomicLong();
        final ThreadLocal<long[]> local = ThreadLocal.withInitial(() -> new long[128]);
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

    /** 1 bit of machine and 21 of sequence, so that no tick runs out. */
    @State(Scope.Benchmark)
    public static class CosIdSnowflake {
        final MillisecondSnowflakeId ids = new MillisecondSnowflakeId(1_735_689_600_000L, 41, 1, 21, 1);
    }

    /** Ids from a ring that its own thread fills, with seconds that have not come yet. */
    @State(Scope.Benchmark)
    public static class UidCached {
        final CachedUidGenerator ids = new CachedUidGenerator();

        public UidCached() {
            ids.setTimeBits(31);
            ids.setWorkerBits(16);
            ids.setSeqBits(16);
            ids.setEpochStr("2026-01-01");
            ids.setWorkerIdAssigner(() -> 1);
            try {
                ids.afterPropertiesSet();
            } catch (Exception broken) {
                throw new IllegalStateException(broken);
            }
        }
    }

    /** 12 bits of sequence: 4096 ids a millisecond at most. */
    @State(Scope.Benchmark)
    public static class ShardingSphere {
        final SnowflakeKeyGenerateAlgorithm ids = new SnowflakeKeyGenerateAlgorithm();

        public ShardingSphere() {
            ids.init(new Properties());
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
    public long keymill_lazyThread(Declared declared) {
        return declared.thread.next();
    }

    @Benchmark
    public long keymill_lazyProcess(Declared declared) {
        return declared.process.next();
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
    public long keymill_nextFor(Keymill keymill, Owned owned) {
        return keymill.business.next(owned.counter++);
    }

    @Benchmark
    public long keymill_nextForText(Keymill keymill) {
        return keymill.business.next("buyer-0123456789");
    }

    /** What no design can beat: a field of one's own, found through a ThreadLocal, a fresh array. */
    @Benchmark
    public long bound_ownField(Owned owned) {
        return owned.counter++;
    }

    @Benchmark
    public long bound_threadLocal(Counter counter) {
        return counter.local.get()[64]++;
    }

    @Benchmark
    public long[] bound_array1000(Owned owned) {
        long[] ids = new long[1000];
        long from = owned.counter;
        for (int i = 0; i < ids.length; i++) {
            ids[i] = from + i;
        }
        owned.counter = from + ids.length;
        return ids;
    }

    @Benchmark
    public long atomicLong(Counter counter) {
        return counter.counter.getAndIncrement();
    }

    /**
     * What no design with leases can beat: one call in 1024 ids. The compiler keeps what the loop counts on the stack for it, and the next
     * locked add waits until that is written.
     */
    @Benchmark
    public long bound_atomicAndCall(Counter counter) {
        long id = counter.counter.getAndIncrement();
        return (id & 1023) == 0 ? anotherLease(id) : id;
    }

    @CompilerControl(CompilerControl.Mode.DONT_INLINE)
    private static long anotherLease(long id) {
        return id;
    }

    @Benchmark
    public long cosid_chain(CosId cosid) {
        return cosid.chain.generate();
    }

    @Benchmark
    public long yitter_1_21(Yitter yitter) {
        return yitter.generator.newLong();
    }

    /** What a run of ticks in Java would have to read for each id. */
    @Benchmark
    public long clock_millis() {
        return System.currentTimeMillis();
    }

    @Benchmark
    public long cosid_snowflake(CosIdSnowflake cosid) {
        return cosid.ids.generate();
    }

    @Benchmark
    public long uid_cached(UidCached cached) {
        while (true) {
            try {
                return cached.ids.getUID();
            } catch (UidGenerateException empty) {
                // Its ring is empty: an error to its callers, and here a wait.
                Thread.onSpinWait();
            }
        }
    }

    @Benchmark
    public long shardingsphere_key(ShardingSphere sphere) {
        return sphere.ids.generateKey();
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
