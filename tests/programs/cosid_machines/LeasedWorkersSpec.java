import java.nio.file.Path;
import java.time.Duration;
import me.ahoo.cosid.machine.MachineIdDistributor;
import me.ahoo.cosid.test.machine.distributor.MachineIdDistributorSpec;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** CosId's specification of machine ids, from its own jar. What cannot hold for leased workers is named here, with the reason. */
abstract class LeasedWorkersSpec extends MachineIdDistributorSpec {
    private LeasedWorkers workers;

    abstract String store();

    @Override
    protected MachineIdDistributor getDistributor() {
        LeasedWorkers.init(store());
        workers = new LeasedWorkers(store());
        return workers;
    }

    /** Long enough for a busy machine, whose mills renew late. */
    @Override
    protected Duration getSafeGuardDuration() {
        return Duration.ofSeconds(30);
    }

    @AfterEach
    void freeTheWorkers() {
        if (workers != null) {
            workers.close();
        }
    }

    @Override
    @Test
    @Disabled("an instance that runs but does not guard loses its machine id; a mill renews its lease by itself while it is open")
    public void distributeSafeGuard() {}

    @Override
    @Test
    @Disabled("a stable instance has its machine id reserved after it gave it back; a closed mill's worker is free for every process")
    public void distributeStable() {}

    @Override
    @Test
    @Disabled("guards a machine id that was written into CosId's memory and never distributed; a mill renews only a worker that it leased")
    public void guardLost() {}

    static final class OnMariaDb extends LeasedWorkersSpec {
        @Override
        String store() {
            // A worker whose answer comes too late stays leased, and the specification leases all of them.
            return System.getenv("KEYMILL_TEST_MYSQL") + "?timeout=60s";
        }
    }

    static final class OnSqlite extends LeasedWorkersSpec {
        @TempDir
        Path folder;

        @Override
        String store() {
            return "sqlite:" + folder.resolve("ids.db");
        }
    }
}
