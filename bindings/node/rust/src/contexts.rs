//! Which JavaScript contexts (threads) hold a source, so that one may count by itself while it is alone.
//!
//! With `order=process` ids rise over all threads, so a block that one thread counts through by itself is sound only while
//! no other thread takes ids. Each source therefore has one set of contexts. Blocks are leased under its lock and only while
//! it has one member. A context that joins raises the set's word *before* its first id, and the word is compared before each id of
//! a block. A context that leaves raises it too, so that the last member asks for blocks again. A call's place in the order is
//! the moment of that comparison, so an id of a block whose word still stood is older than every id taken after the other context
//! joined.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static BY_IDENTITY: Mutex<Option<HashMap<u64, Arc<Contexts>>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The contexts that hold one source of this process.
pub struct Contexts {
    word: AtomicU32,
    count: Mutex<usize>,
}

impl Contexts {
    /// The word that rises when a context joins, which revokes blocks, or leaves.
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Runs `lease` with the word's value if the source has one context. The lock is held, so none joins meanwhile.
    pub fn while_alone<T>(&self, lease: impl FnOnce(u32) -> T) -> Option<T> {
        let count = lock(&self.count);
        // ordering: Relaxed — written under the lock only.
        (*count == 1).then(|| lease(self.word.load(Ordering::Relaxed)))
    }
}

/// A context's membership; the context leaves when this is dropped.
pub struct Membership {
    identity: u64,
    contexts: Arc<Contexts>,
}

impl Membership {
    /// Joins: a context that was alone loses the rest of its block.
    pub fn join(identity: u64) -> Membership {
        let mut all = lock(&BY_IDENTITY);
        let contexts = all
            .get_or_insert_default()
            .entry(identity)
            .or_insert_with(|| Arc::new(Contexts { word: AtomicU32::new(1), count: Mutex::new(0) }))
            .clone();
        let mut count = lock(&contexts.count);
        *count += 1;
        if *count > 1 {
            // ordering: SeqCst — before any id this context takes; read by plain loads of JavaScript before each id.
            contexts.word.fetch_add(1, Ordering::SeqCst);
        }
        drop(count);
        Membership { identity, contexts }
    }

    pub fn contexts(&self) -> &Arc<Contexts> {
        &self.contexts
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut all = lock(&BY_IDENTITY);
        let mut count = lock(&self.contexts.count);
        *count -= 1;
        // ordering: Relaxed — no context counts through a block now; the remaining ones may notice late.
        self.contexts.word.fetch_add(1, Ordering::Relaxed);
        if *count == 0
            && let Some(all) = all.as_mut()
        {
            all.remove(&self.identity);
        }
    }
}
