package io.keymill.hibernate;

import io.keymill.support.Annotations;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.hibernate.boot.Metadata;
import org.hibernate.boot.spi.BootstrapContext;
import org.hibernate.engine.spi.SessionFactoryImplementor;
import org.hibernate.integrator.spi.Integrator;
import org.hibernate.mapping.PersistentClass;
import org.hibernate.service.spi.SessionFactoryServiceRegistry;

/**
 * Stops the start where an entity has the annotation of another module of keymill. Hibernate finds it by its service file. Its two
 * {@code integrate}s are for Hibernate 5.6 and for 6 and later.
 */
@SuppressWarnings("deprecation") // 6 has both
public class KeymillIntegrator implements Integrator {
    /** Made by Hibernate. */
    public KeymillIntegrator() {}

    /**
     * Of Hibernate 5.6.
     *
     * @param metadata the entities
     * @param factory not used
     * @param registry not used
     */
    public void integrate(Metadata metadata, SessionFactoryImplementor factory, SessionFactoryServiceRegistry registry) {
        check(metadata);
    }

    /**
     * Of Hibernate 6 and later.
     *
     * @param metadata the entities
     * @param bootstrap not used
     * @param factory not used
     */
    public void integrate(Metadata metadata, BootstrapContext bootstrap, SessionFactoryImplementor factory) {
        check(metadata);
    }

    /**
     * Nothing to undo.
     *
     * @param factory not used
     * @param registry not used
     */
    public void disintegrate(SessionFactoryImplementor factory, SessionFactoryServiceRegistry registry) {}

    private static void check(Metadata metadata) {
        for (PersistentClass entity : metadata.getEntityBindings()) {
            for (Class<?> at = entity.getMappedClass(); at != null && at != Object.class; at = at.getSuperclass()) {
                for (Field field : at.getDeclaredFields()) {
                    Annotations.refuseOthers(field, at.getName() + "." + field.getName(), KeymillId.class);
                }
                for (Method method : at.getDeclaredMethods()) {
                    Annotations.refuseOthers(method, at.getName() + "." + method.getName(), KeymillId.class);
                }
            }
        }
    }
}
