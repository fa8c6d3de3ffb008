package io.keymill.spring.boot;

import io.keymill.Mill;
import java.util.function.Supplier;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.beans.factory.config.BeanFactoryPostProcessor;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;

/**
 * Makes the mill of an application context the shared one, before the context makes its first bean: a lazy source that a constructor asks
 * finds it. It stays the shared one when the context is closed, until another is shared: what still runs then gets an error, and no
 * number of another mill, which may have been given out long ago.
 */
final class SharedMill implements BeanFactoryPostProcessor, DisposableBean, Supplier<Mill> {
    private volatile ConfigurableListableBeanFactory beans;

    @Override
    public void postProcessBeanFactory(ConfigurableListableBeanFactory factory) {
        // A context below that of the mill has none of its own, and may end before it.
        if (factory.getBeanNamesForType(Mill.class, true, false).length > 0) {
            beans = factory;
            Mill.shareLater(this);
        }
    }

    @Override
    public Mill get() {
        ConfigurableListableBeanFactory open = beans;
        if (open == null) {
            throw new IllegalStateException("the application context that shares its mill was closed, or did not start; share a mill with Mill.share(mill)");
        }
        return open.getBean(Mill.class);
    }

    @Override
    public void destroy() {
        beans = null;
    }
}
