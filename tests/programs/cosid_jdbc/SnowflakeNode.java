import com.github.yitter.contract.IdGeneratorOptions;
import com.github.yitter.idgen.DefaultIdGenerator;
import com.xfvape.uid.impl.CachedUidGenerator;
import java.io.PrintStream;
import java.util.function.LongSupplier;
import me.ahoo.cosid.snowflake.MillisecondSnowflakeId;

/** A node of another snowflake generator, from its own jar: GENERATOR WORKER COUNT, an id a line. The time zone is UTC. */
public class SnowflakeNode {
    public static void main(String[] args) throws Exception {
        LongSupplier ids = generator(args[0], Integer.parseInt(args[1]));
        try (PrintStream out = new PrintStream(System.out, false)) {
            for (long left = Long.parseLong(args[2]); left > 0; left--) out.println(ids.getAsLong());
        }
        // uid-generator's threads are no daemons.
        System.exit(0);
    }

    private static LongSupplier generator(String name, int worker) throws Exception {
        switch (name) {
            case "uid-generator": {
                CachedUidGenerator ids = new CachedUidGenerator();
                ids.setTimeBits(28);
                ids.setWorkerBits(22);
                ids.setSeqBits(13);
                ids.setEpochStr("2026-01-01");
                ids.setWorkerIdAssigner(() -> worker);
                ids.afterPropertiesSet();
                return ids::getUID;
            }
            case "cosid":
                // Its own epoch and fields: 41, 10, 12.
                return new MillisecondSnowflakeId(worker)::generate;
            case "yitter": {
                // Its own epoch and fields: 6 bits of worker, 6 of sequence.
                DefaultIdGenerator ids = new DefaultIdGenerator(new IdGeneratorOptions((short) worker));
                return ids::newLong;
            }
            default:
                throw new IllegalArgumentException(name);
        }
    }
}
