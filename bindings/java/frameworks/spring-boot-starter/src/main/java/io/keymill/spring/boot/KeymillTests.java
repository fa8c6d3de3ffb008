package io.keymill.spring.boot;

import org.springframework.core.Ordered;
import org.springframework.test.context.TestContext;
import org.springframework.test.context.TestExecutionListener;

/**
 * Lazy sources and {@link io.keymill.KeyFactory} take from the mill of the application context that a test has. Spring keeps the
 * contexts of its tests and uses them again; without this listener the shared mill would be the newest context's.
 */
public final class KeymillTests implements TestExecutionListener, Ordered {
    /** Made by Spring. */
    public KeymillTests() {}

    @Override
    public int getOrder() {
        // After the context was made and its beans were injected.
        return 2100;
    }

    @Override
    public void beforeTestClass(TestContext test) {
        enter(test, true);
    }

    @Override
    public void prepareTestInstance(TestContext test) {
        enter(test, false);
    }

    @Override
    public void beforeTestMethod(TestContext test) {
        enter(test, false);
    }

    private static void enter(TestContext test, boolean begins) {
        SharedMill.enter(test.hasApplicationContext() ? test.getApplicationContext() : null, begins);
    }
}
