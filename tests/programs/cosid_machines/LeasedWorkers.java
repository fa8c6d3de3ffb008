import io.keymill.Code;
import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.Parts;
import io.keymill.Source;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import me.ahoo.cosid.machine.InstanceId;
import me.ahoo.cosid.machine.MachineIdDistributor;
import me.ahoo.cosid.machine.MachineIdLostException;
import me.ahoo.cosid.machine.MachineIdOverflowException;
import me.ahoo.cosid.machine.MachineState;
import me.ahoo.cosid.machine.NamespacedInstanceId;
import me.ahoo.cosid.machine.NotFoundMachineStateException;

/**
 * CosId's distributor of machine ids over keymill's leased workers. An instance is a mill, as a process has one; its machine id is
 * the worker of the ids that it makes. This class only translates: keymill chooses, keeps and frees the workers.
 */
final class LeasedWorkers implements MachineIdDistributor, AutoCloseable {
    /** Until a busy machine has opened a mill; this long a call also waits for a worker where all are leased. */
    private static final Duration DEADLINE = Duration.ofSeconds(20);

    /** Much longer than the third of a lease after which it is renewed. */
    private static final Duration PATIENCE = Duration.ofMinutes(2);

    private final String store;
    private final Map<NamespacedInstanceId, Instance> open = new ConcurrentHashMap<>();

    LeasedWorkers(String store) {
        this.store = store;
    }

    /** Creates the table of the workers, which a server needs first. */
    static void init(String store) {
        try (Mill mill = Mill.open(store)) {
            mill.init("snowflake:any");
        }
    }

    @Override
    public MachineState distribute(String namespace, int machineBit, InstanceId instanceId, Duration safeGuardDuration) {
        NamespacedInstanceId key = new NamespacedInstanceId(namespace, instanceId);
        Instance instance = open.computeIfAbsent(key, absent -> new Instance(store, namespace, machineBit, safeGuardDuration));
        try {
            return instance.state();
        } catch (KeymillException e) {
            // A process that gets no worker ends.
            open.remove(key);
            instance.mill.close();
            if (e.code() == Code.NO_WORKER_FREE) {
                throw new MachineIdOverflowException(MachineIdDistributor.totalMachineIds(machineBit), instanceId);
            }
            throw e;
        }
    }

    @Override
    public void revert(String namespace, InstanceId instanceId) {
        Instance instance = open.remove(new NamespacedInstanceId(namespace, instanceId));
        if (instance == null) {
            throw new NotFoundMachineStateException(namespace, instanceId);
        }
        instance.mill.close();
    }

    /** A mill renews its lease by itself: this waits for the next renewal, and looks whether the worker is still the same. */
    @Override
    public void guard(String namespace, InstanceId instanceId, Duration safeGuardDuration) {
        Instance instance = open.get(new NamespacedInstanceId(namespace, instanceId));
        if (instance == null) {
            throw new NotFoundMachineStateException(namespace, instanceId);
        }
        try {
            MachineState before = instance.state();
            instance.awaitRenewal();
            if (!instance.state().equals(before)) {
                throw new MachineIdLostException(namespace, instanceId, before);
            }
        } catch (KeymillException e) {
            if (e.code() == Code.LEASE_LOST) {
                throw new MachineIdLostException(namespace, instanceId, null);
            }
            throw e;
        }
    }

    /** Frees all workers. */
    @Override
    public void close() {
        open.values().forEach(instance -> instance.mill.close());
        open.clear();
    }

    private static final class Instance {
        final Mill mill;
        final Source source;

        Instance(String store, String namespace, int machineBit, Duration safeGuardDuration) {
            String spec = "snowflake:" + namespace + "?layout=time:41@1ms,worker:" + machineBit + ",seq:" + (22 - machineBit)
                    + "&deadline=" + DEADLINE.getSeconds() + "s";
            // No lease is for ever: the default one is renewed as long as the mill is open.
            if (!safeGuardDuration.equals(FOREVER_SAFE_GUARD_DURATION)) {
                spec += "&lease=" + safeGuardDuration.toMillis() + "ms";
            }
            mill = Mill.open(store);
            source = mill.source(spec);
        }

        MachineState state() {
            Parts parts = source.parse(source.next());
            return MachineState.of((int) parts.worker().getAsLong(), parts.time().get().toEpochMilli());
        }

        void awaitRenewal() {
            long began = System.nanoTime();
            Duration age = source.stats().leaseAge().get();
            for (Duration next = age; next.compareTo(age) >= 0; next = source.stats().leaseAge().get()) {
                age = next;
                if (System.nanoTime() - began > PATIENCE.toNanos()) {
                    throw new AssertionError("the lease was not renewed within " + PATIENCE);
                }
                try {
                    Thread.sleep(10);
                } catch (InterruptedException e) {
                    throw new AssertionError(e);
                }
            }
        }
    }
}
