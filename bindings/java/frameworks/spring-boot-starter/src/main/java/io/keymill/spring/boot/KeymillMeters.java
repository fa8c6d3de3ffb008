package io.keymill.spring.boot;

import io.keymill.KeymillException;
import io.keymill.Mill;
import io.micrometer.core.instrument.FunctionCounter;
import io.micrometer.core.instrument.FunctionTimer;
import io.micrometer.core.instrument.Gauge;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Tag;
import io.micrometer.core.instrument.TimeGauge;
import io.micrometer.core.instrument.binder.MeterBinder;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import org.springframework.beans.factory.SmartInitializingSingleton;

/**
 * The mill's metrics as meters, named so that a Prometheus registry shows the core's names. The text is read at most once a
 * second; a source that is asked for later gets its meters with the next reading.
 */
final class KeymillMeters implements MeterBinder, SmartInitializingSingleton {
    private static final long NANOS = TimeUnit.SECONDS.toNanos(1);
    private static final String HISTOGRAM = "_seconds_count";

    private final Mill mill;
    private final List<Registered> registries = new CopyOnWriteArrayList<>();
    private Map<String, Double> values = new HashMap<>();
    private List<MetricsText.Sample> samples = new ArrayList<>();
    private long readAt;
    private boolean wasRead;

    private static final class Registered {
        final MeterRegistry registry;
        final Set<String> keys = new HashSet<>();

        Registered(MeterRegistry registry) {
            this.registry = registry;
        }
    }

    KeymillMeters(Mill mill) {
        this.mill = mill;
    }

    @Override
    public void bindTo(MeterRegistry registry) {
        registries.add(new Registered(registry));
        synchronized (this) {
            read();
            register();
        }
    }

    /** The sources of {@code keymill.sources} are there by now. */
    @Override
    public synchronized void afterSingletonsInstantiated() {
        read();
        register();
    }

    private synchronized double value(String key) {
        if (System.nanoTime() - readAt > NANOS) {
            read();
            register();
        }
        return values.getOrDefault(key, Double.NaN);
    }

    /** The last figures stay where the mill was closed. */
    private void read() {
        readAt = System.nanoTime();
        try {
            samples = MetricsText.read(mill.metrics());
        } catch (KeymillException e) {
            if (wasRead) {
                return;
            }
            throw e;
        }
        wasRead = true;
        Map<String, Double> fresh = new HashMap<>();
        for (MetricsText.Sample sample : samples) {
            fresh.put(sample.key(), sample.value);
        }
        values = fresh;
    }

    private void register() {
        for (Registered registered : registries) {
            for (MetricsText.Sample sample : samples) {
                if (registered.keys.add(sample.key())) {
                    register(registered.registry, sample);
                }
            }
        }
    }

    private void register(MeterRegistry registry, MetricsText.Sample sample) {
        String key = sample.key();
        List<Tag> tags = new ArrayList<>();
        sample.labels.forEach((name, value) -> tags.add(Tag.of(name, value)));
        switch (sample.kind) {
            case "counter":
                FunctionCounter.builder(dotted(sample.name, "_total"), this, meters -> meters.value(key)).tags(tags).description(sample.help).register(registry);
                break;
            case "gauge":
                if (sample.name.endsWith("_seconds")) {
                    TimeGauge.builder(dotted(sample.name, "_seconds"), this, TimeUnit.SECONDS, meters -> meters.value(key)).tags(tags).description(sample.help).register(registry);
                } else {
                    Gauge.builder(dotted(sample.name, ""), this, meters -> meters.value(key)).tags(tags).description(sample.help).register(registry);
                }
                break;
            default:
                if (sample.name.endsWith(HISTOGRAM)) {
                    String sum = sample.name.replace("_count", "_sum") + sample.labels;
                    FunctionTimer.builder(dotted(sample.name, HISTOGRAM), this, meters -> (long) meters.value(key), meters -> meters.value(sum), TimeUnit.SECONDS).tags(tags).description(sample.help).register(registry);
                }
        }
    }

    private static String dotted(String name, String end) {
        return (name.endsWith(end) ? name.substring(0, name.length() - end.length()) : name).replace('_', '.');
    }
}
