package io.keymill;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The cursors of a source that are still reachable: a close empties them. This set does not keep them reachable. */
final class OpenCursors {
    private final Set<Reference<Cursor>> cursors = ConcurrentHashMap.newKeySet();
    private final ReferenceQueue<Cursor> unreachable = new ReferenceQueue<>();

    /** Adds a cursor, before it is filled for the first time. */
    void add(Cursor cursor) {
        for (Object gone = unreachable.poll(); gone != null; gone = unreachable.poll()) {
            cursors.remove(gone);
        }
        cursors.add(new WeakReference<>(cursor, unreachable));
    }

    void empty() {
        for (Reference<Cursor> reference : cursors) {
            Cursor cursor = reference.get();
            if (cursor != null) {
                cursor.empty();
            }
        }
    }
}
