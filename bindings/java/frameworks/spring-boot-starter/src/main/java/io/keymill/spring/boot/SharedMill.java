package io.keymill.spring.boot;

import io.keymill.Mill;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;
import org.springframework.beans.factory.BeanFactory;
import org.springframework.beans.factory.DisposableBean;
import org.springframework.beans.factory.HierarchicalBeanFactory;
import org.springframework.beans.factory.SmartInitializingSingleton;
import org.springframework.beans.factory.config.BeanFactoryPostProcessor;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;

/**
 * Makes the mill of an application context the shared one, before the context makes its first bean: a lazy source that a constructor asks
 * finds it. It stays the shared one when the context is closed, until another is shared: what still runs then gets an error, and no
 * number of another mill, which may have been given out long ago.
 */
final class SharedMill implements BeanFactoryPostProcessor, SmartInitializingSingleton, DisposableBean, Supplier<Mill> {
    /** The starting thread may wait for the thread that asks: once it has stood still so long, that one makes the mill. */
    private static final long STILL = TimeUnit.MILLISECONDS.toNanos(200);
    /** It may wait by looking again and again. */
    private static final long LONGEST = TimeUnit.SECONDS.toNanos(5);
    private static final long PAUSE = TimeUnit.MILLISECONDS.toNanos(1);

    static final String BEAN = "keymillSharedMill";

    private static final Supplier<Mill> NONE = () -> {
        throw new IllegalStateException("the application context of this test has no mill, and the shared one is another context's: set keymill.config, remove keymill.enabled=false, or share a mill with Mill.share(mill)");
    };

    /** Which context's mill, or refusal, was shared last. */
    private static volatile Supplier<Mill> last;

    private volatile ConfigurableListableBeanFactory beans;
    /** Makes the beans; null once they are there. */
    private volatile Thread starting;

    @Override
    public void postProcessBeanFactory(ConfigurableListableBeanFactory factory) {
        // A context below the mill's has none of its own, and may end before it.
        if (factory.getBeanNamesForType(Mill.class, true, false).length > 0) {
            beans = factory;
            starting = Thread.currentThread();
            share(this);
        }
    }

    /** Makes what a context gives the shared mill. */
    static void share(Supplier<Mill> mill) {
        last = mill;
        Mill.shareLater(mill);
    }

    /**
     * Another context is the present one: makes its mill the shared one again, or refuses ids where it has none. Where no other context
     * has shared its mill, nothing changes.
     *
     * @param context null: it is not known yet
     * @param anew a test class begins: what the class before has shared itself, or has taken back, does not count
     */
    static void enter(BeanFactory context, boolean anew) {
        Supplier<Mill> its = NONE;
        for (BeanFactory at = context; at != null && its == NONE; at = parent(at)) {
            SharedMill shares = at.containsBean(BEAN) ? at.getBean(BEAN, SharedMill.class) : null;
            its = shares == null || shares.beans == null ? NONE : shares;
        }
        if (last != null && (last != its || anew && its != NONE)) {
            share(its);
        }
    }

    private static BeanFactory parent(BeanFactory context) {
        return context instanceof HierarchicalBeanFactory ? ((HierarchicalBeanFactory) context).getParentBeanFactory() : null;
    }

    @Override
    public Mill get() {
        ConfigurableListableBeanFactory open = open();
        if (starting != null && starting != Thread.currentThread()) {
            awaitMill(open);
            open = open();
        }
        return open.getBean(Mill.class);
    }

    private ConfigurableListableBeanFactory open() {
        ConfigurableListableBeanFactory open = beans;
        if (open == null) {
            throw new IllegalStateException("the application context that shares its mill was closed, or did not start; share a mill with Mill.share(mill)");
        }
        return open;
    }

    /** While one thread makes a bean, Spring since 6.2 refuses it to another, which may be the starting one: that would end the start. */
    private void awaitMill(ConfigurableListableBeanFactory open) {
        long since = System.nanoTime();
        long ran = since;
        for (Thread by = starting; beans != null && by != null && !isMade(open); by = starting) {
            long now = System.nanoTime();
            if (by.getState() == Thread.State.RUNNABLE) {
                ran = now;
            }
            if (now - ran > STILL || now - since > LONGEST) {
                return;
            }
            LockSupport.parkNanos(PAUSE);
        }
    }

    private static boolean isMade(ConfigurableListableBeanFactory open) {
        for (String name : open.getBeanNamesForType(Mill.class, true, false)) {
            if (open.containsSingleton(name)) {
                return true;
            }
        }
        return false;
    }

    @Override
    public void afterSingletonsInstantiated() {
        starting = null;
    }

    @Override
    public void destroy() {
        beans = null;
        starting = null;
    }
}
