package io.keymill.spring.boot;

import io.keymill.Gene;
import io.keymill.KeymillException;
import org.springframework.core.env.Environment;

/** Unpacks and loads the native library beside the start of the context, which takes longer and needs it late. */
final class EarlyLibrary {
    /** Each names a store, so that the context has a mill. Without one of them it may have none, and the library stays in the jar. */
    private static final String[] NAMES = {KeymillProperties.PREFIX + ".config", "spring.datasource.url"};

    private EarlyLibrary() {}

    static void begin(Environment environment) {
        if (!isWanted(environment)) {
            return;
        }
        Thread thread = new Thread(EarlyLibrary::load, "keymill-library");
        // A start that fails does not wait for it.
        thread.setDaemon(true);
        thread.start();
    }

    static boolean isWanted(Environment environment) {
        if ("false".equals(environment.getProperty(KeymillProperties.PREFIX + ".enabled"))) {
            return false;
        }
        for (String name : NAMES) {
            if (environment.containsProperty(name)) {
                return true;
            }
        }
        return false;
    }

    private static void load() {
        try {
            Gene.of(0);
        } catch (KeymillException | LinkageError e) {
            // The library keeps the reason, and the bean that needs it throws it. Jars of different versions are named there too.
        }
    }
}
