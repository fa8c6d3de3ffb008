package io.keymill;

import java.lang.ref.Reference;
import java.lang.ref.ReferenceQueue;
import java.lang.ref.WeakReference;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The blocks of a source that somebody still has: a close empties them. It keeps none of them in memory. */
final class Owned {
    private final Set<Reference<Block>> blocks = ConcurrentHashMap.newKeySet();
    private final ReferenceQueue<Block> unreachable = new ReferenceQueue<>();

    /** Before the block is filled for the first time. */
    void add(Block block) {
        for (Object gone = unreachable.poll(); gone != null; gone = unreachable.poll()) {
            blocks.remove(gone);
        }
        blocks.add(new WeakReference<>(block, unreachable));
    }

    void empty() {
        for (Reference<Block> reference : blocks) {
            Block block = reference.get();
            if (block != null) {
                block.empty();
            }
        }
    }
}
