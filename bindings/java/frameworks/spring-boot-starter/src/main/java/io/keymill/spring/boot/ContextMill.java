package io.keymill.spring.boot;

import io.keymill.Gene;
import io.keymill.KeymillException;
import io.keymill.Mill;
import java.util.function.Supplier;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.beans.factory.DisposableBean;

/** Opens the mill of an application context, and closes it with the context, after what takes from it. */
final class ContextMill implements DisposableBean {
    private static final Log LOG = LogFactory.getLog(ContextMill.class);

    private final Mill mill;

    ContextMill(KeymillProperties properties, Supplier<String> dataSource) {
        loadLibrary();
        boolean named = properties.getConfig() != null && !properties.getConfig().isEmpty();
        String config = named ? properties.getConfig() : dataSource.get();
        try {
            mill = Mill.open(config);
        } catch (KeymillException e) {
            throw new KeymillPropertyException("keymill.config", e.getMessage(), "Correct it", e);
        }
        try {
            if (properties.getInit() == KeymillProperties.Init.MISSING) {
                mill.init(properties.getSources().values().toArray(new String[0]));
            }
        } catch (KeymillException e) {
            mill.close();
            throw new KeymillPropertyException("keymill.init", e.getMessage(), "Let the store be reached at start, with the right to create tables, or set keymill.init=never", e);
        }
        LOG.info("ids will come from " + mill.store() + (properties.getInit() == KeymillProperties.Init.MISSING ? ", which was asked" : ", which was not asked yet"));
    }

    /** Before anything that a property could be blamed for. */
    private static void loadLibrary() {
        try {
            Gene.of(0);
        } catch (KeymillException e) {
            throw new KeymillPropertyException(e.getMessage(), "Follow the advice at the end of the message; it lists the places in the order in which keymill looked at them", e);
        }
    }

    Mill mill() {
        return mill;
    }

    @Override
    public void destroy() {
        mill.close();
    }
}
