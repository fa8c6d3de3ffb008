package io.keymill;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongConsumer;

/** What objects of one class hold in native memory, each at an address: freed when the collector finds that the object cannot be reached. */
final class NativeMemory {
    private final ReferenceQueue<Object> unreachable = new ReferenceQueue<>();
    private final Set<Owned> owned = ConcurrentHashMap.newKeySet();
    private final LongConsumer free;

    NativeMemory(LongConsumer free) {
        this.free = free;
    }

    private static final class Owned extends PhantomReference<Object> {
        private final long address;

        Owned(Object owner, long address, ReferenceQueue<Object> unreachable) {
            super(owner, unreachable);
            this.address = address;
        }
    }

    void add(Object owner, long address) {
        owned.add(new Owned(owner, address, unreachable));
        freeUnreachable();
    }

    /** Called where objects are made: there is no thread for it. */
    void freeUnreachable() {
        for (Object found = unreachable.poll(); found != null; found = unreachable.poll()) {
            Owned reference = (Owned) found;
            if (owned.remove(reference)) {
                free.accept(reference.address);
            }
        }
    }

    /** How many are not freed yet. */
    int size() {
        return owned.size();
    }
}
