package io.keymill.spring.boot;

import io.keymill.Gene;
import io.keymill.KeymillException;
import io.keymill.Mill;
import java.util.function.Supplier;
import org.springframework.beans.factory.DisposableBean;

/**
 * Opens the mill of an application context, makes it the shared one, and closes it with the context, after whatever takes from it. It
 * stays shared then until another mill is: a thread that outlives its context is refused, where another mill would give it the ids of
 * another store.
 */
final class ContextMill implements DisposableBean {
    private final Mill mill;
    private final boolean own;

    /** Of the application's own mill, which Spring closes. */
    ContextMill(Mill mill) {
        this.mill = mill;
        own = false;
        Mill.share(mill);
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
        Mill.share(mill);
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

    @Override
    public void destroy() {
        if (own) {
            mill.close();
        }
    }
}
