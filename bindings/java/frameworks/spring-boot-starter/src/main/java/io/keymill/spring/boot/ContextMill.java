package io.keymill.spring.boot;

import io.keymill.Gene;
import io.keymill.KeymillException;
import io.keymill.Mill;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Supplier;
import org.springframework.beans.factory.DisposableBean;

/**
 * Opens the mill of an application context and closes it with the context, after whatever takes from it. While the context is open its
 * mill is the shared one; afterwards that of the context that was opened before it.
 */
final class ContextMill implements DisposableBean {
    private static final List<Mill> OPEN = new ArrayList<>();

    private final Mill mill;
    private final boolean own;

    /** Of the application's own mill, which Spring closes. */
    ContextMill(Mill mill) {
        this.mill = mill;
        own = false;
        share();
    }

    ContextMill(KeymillProperties properties, Supplier<String> dataSource) {
        loadLibrary();
        boolean named = properties.getConfig() != null && !properties.getConfig().isEmpty();
        String config = named ? properties.getConfig() : dataSource.get();
        try {
            mill = Mill.open(config);
        } catch (KeymillException e) {
            throw new KeymillPropertyException("keymill.config", e.getMessage(), "Correct it", e);
        }
        own = true;
        try {
            if (properties.getInit() == KeymillProperties.Init.MISSING) {
                mill.init(properties.getSources().values().toArray(new String[0]));
            }
        } catch (KeymillException e) {
            mill.close();
            throw new KeymillPropertyException("keymill.init", e.getMessage(), "Let the store be reached at start, with the right to create tables, or set keymill.init=never", e);
        }
        share();
    }

    /** Before anything that a property could be blamed for. */
    private static void loadLibrary() {
        try {
            Gene.of(0);
        } catch (KeymillException e) {
            throw new KeymillPropertyException(e.getMessage(), "Do as the last words say; keymill's docs/languages/java.md tells where the library is looked for", e);
        }
    }

    Mill mill() {
        return mill;
    }

    private void share() {
        synchronized (OPEN) {
            OPEN.add(mill);
            Mill.share(mill);
        }
    }

    @Override
    public void destroy() {
        synchronized (OPEN) {
            boolean shared = OPEN.get(OPEN.size() - 1) == mill;
            OPEN.remove(mill);
            if (shared) {
                Mill.share(OPEN.isEmpty() ? null : OPEN.get(OPEN.size() - 1));
            }
        }
        if (own) {
            mill.close();
        }
    }
}
