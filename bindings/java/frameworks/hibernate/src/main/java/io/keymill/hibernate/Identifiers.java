package io.keymill.hibernate;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.hibernate.engine.spi.SharedSessionContractImplementor;
import org.hibernate.generator.Generator;
import org.hibernate.persister.entity.EntityPersister;

/** The identifier that an entity has. */
final class Identifiers {
    private Identifiers() {}

    /** Made where it is needed: since Hibernate 6.6 an annotated field needs none, and it takes a part of the application's start. */
    private static final class Getter {
        private static final MethodHandle GET = get();

        /** Hibernate 5 declares it to return a {@code Serializable}, 6 and later an {@code Object}: no compiled call fits both. */
        private static MethodHandle get() {
            try {
                MethodHandle found = MethodHandles.publicLookup()
                        .unreflect(EntityPersister.class.getMethod("getIdentifier", Object.class, SharedSessionContractImplementor.class));
                return found.asType(MethodType.methodType(Object.class, EntityPersister.class, Object.class, SharedSessionContractImplementor.class));
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException("this version of Hibernate has no EntityPersister.getIdentifier(Object, SharedSessionContractImplementor); keymill-hibernate knows 5.6 to 7.4", e);
            }
        }
    }

    static Object of(Object entity, String name, SharedSessionContractImplementor session) {
        EntityPersister persister = session.getEntityPersister(name, entity);
        try {
            return (Object) Getter.GET.invokeExact(persister, entity, session);
        } catch (RuntimeException | Error e) {
            throw e;
        } catch (Throwable e) {
            throw new IllegalStateException("the identifier of " + persister.getEntityName() + " cannot be read", e);
        }
    }

    /** Since 6.6 Hibernate passes the identifier that an entity has. */
    static boolean arePassed() {
        for (java.lang.reflect.Method method : Generator.class.getMethods()) {
            if (method.getName().equals("allowAssignedIdentifiers")) {
                return true;
            }
        }
        return false;
    }
}
