//! Who counts from a source: JavaScript contexts (threads) that hold it, each in a seat.
//!
//! With `order=process` ids rise over all threads, so a block that one thread counts through by itself is sound only while
//! no other thread takes ids. Each source therefore has one bench. Blocks are leased under its lock and only while one
//! seat is taken; whoever sits down next raises the bench's word *before* its first id, and the word is compared before
//! each id of a block. Getting up raises it too, so that who stays asks for blocks again. A call's place in the order is the moment of that comparison, so an id of a block whose word
//! still stood is older than every id taken after the newcomer sat down.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

static BENCHES: Mutex<Option<HashMap<u64, Arc<Bench>>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The seats of one source of this process.
pub struct Bench {
    word: AtomicU32,
    taken: Mutex<usize>,
}

impl Bench {
    /// The word that rises when somebody sits down, which revokes blocks, or gets up.
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Runs `lease` if whoever asks is alone, with what the word reads. The lock is held, so nobody sits down meanwhile.
    pub fn alone<T>(&self, lease: impl FnOnce(u32) -> T) -> Option<T> {
        let taken = lock(&self.taken);
        // ordering: Relaxed — written under the lock only.
        (*taken == 1).then(|| lease(self.word.load(Ordering::Relaxed)))
    }
}

/// A seat on a source's bench; it is free again when dropped.
pub struct Seat {
    identity: u64,
    bench: Arc<Bench>,
}

impl Seat {
    /// Sits down: whoever sat there alone loses the rest of a block.
    pub fn take(identity: u64) -> Seat {
        let mut benches = lock(&BENCHES);
        let bench = benches
            .get_or_insert_default()
            .entry(identity)
            .or_insert_with(|| Arc::new(Bench { word: AtomicU32::new(1), taken: Mutex::new(0) }))
            .clone();
        let mut taken = lock(&bench.taken);
        *taken += 1;
        if *taken > 1 {
            // ordering: SeqCst — before any id this seat takes; read by plain loads of JavaScript before each id.
            bench.word.fetch_add(1, Ordering::SeqCst);
        }
        drop(taken);
        Seat { identity, bench }
    }

    pub fn bench(&self) -> &Arc<Bench> {
        &self.bench
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut benches = lock(&BENCHES);
        let mut taken = lock(&self.bench.taken);
        *taken -= 1;
        // ordering: Relaxed — nobody counts through a block; whoever stays may notice late.
        self.bench.word.fetch_add(1, Ordering::Relaxed);
        if *taken == 0
            && let Some(benches) = benches.as_mut()
        {
            benches.remove(&self.identity);
        }
    }
}
