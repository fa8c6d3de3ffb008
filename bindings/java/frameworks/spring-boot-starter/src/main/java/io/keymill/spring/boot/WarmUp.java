package io.keymill.spring.boot;

import io.keymill.KeymillException;
import io.keymill.Mill;
import io.keymill.Serial;
import io.keymill.Source;
import io.keymill.Stats;
import java.util.Map;
import java.util.function.Supplier;
import org.springframework.context.SmartLifecycle;

/** Reserves the first numbers of the sources before the application takes requests, also where beans are made lazily. */
final class WarmUp implements SmartLifecycle {
    private final Mill mill;
    private final Map<String, String> specs;
    private volatile boolean running;

    WarmUp(Mill mill, Map<String, String> specs) {
        this.mill = mill;
        this.specs = specs;
    }

    @Override
    public int getPhase() {
        // Before whatever takes messages or requests.
        return Integer.MIN_VALUE + 1000;
    }

    @Override
    public void start() {
        specs.forEach((name, spec) -> {
            // Counters of business ids are per key; there is nothing to reserve for all.
            if (!spec.startsWith("business:")) {
                warm(name, spec);
            }
        });
        running = true;
    }

    private void warm(String name, String spec) {
        try {
            if (spec.startsWith("snowflake:")) {
                mill.source(spec).next();
            } else if (spec.startsWith("serial:")) {
                Serial serial = mill.serial(spec.substring(spec.indexOf(':') + 1));
                reserve(name, serial::stats, serial::tryNext);
            } else {
                Source source = mill.source(spec);
                reserve(name, source::stats, source::tryNext);
            }
        } catch (KeymillException e) {
            throw failed(name, e.getMessage(), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /** The first try finds nothing in memory and sets the reservation off: no number is spent. */
    private static void reserve(String name, Supplier<Stats> stats, Runnable tryNext) throws InterruptedException {
        for (boolean tried = false; ; tried = true) {
            Stats now = stats.get();
            if (now.left() > 0) {
                return;
            }
            if (now.refusal().isPresent()) {
                throw failed(name, now.refusal().get(), null);
            }
            if (!tried) {
                tryNext.run();
            }
            Thread.sleep(1);
        }
    }

    private static KeymillPropertyException failed(String name, String reason, Throwable cause) {
        return new KeymillPropertyException(KeymillSources.property(name), "no first numbers: " + reason, "Let the store be reached at start, with its tables: keymill.init=missing creates them. keymill.warm-up=false starts without it", cause);
    }

    @Override
    public void stop() {
        running = false;
    }

    @Override
    public boolean isRunning() {
        return running;
    }
}
