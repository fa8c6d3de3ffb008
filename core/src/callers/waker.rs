//! Wakers: how a caller that finds no number left reaches the keeper. A queue of sources that want service, and a thread to unpark.
//!
//! A source is queued at most once until the keeper acknowledges it, so a dry source under a thousand callers is one entry.
//! Waking takes no lock; crossbeam's `SegQueue` allocates one block per 31 entries, off the id path.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;

use crossbeam::queue::SegQueue;

/// The sources of one mill that want service, in the order they asked.
#[derive(Debug, Default)]
pub struct ReadyQueue {
    ready: SegQueue<usize>,
    keeper: OnceLock<Thread>,
}

impl ReadyQueue {
    /// Sets the thread to unpark; a queue without one is polled.
    pub(crate) fn set_keeper(&self, keeper: Thread) {
        // A queue has one keeper for life; a second one would be a defect, and the first stays.
        let _ = self.keeper.set(keeper);
    }

    /// Takes the next source.
    pub(crate) fn pop(&self) -> Option<usize> {
        self.ready.pop()
    }

    /// Whether no source wants service. For the simulation, which polls.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Unparks the keeper without queueing a source: a command waits for it.
    pub(crate) fn unpark(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }
}

/// Wakes the keeper for one source.
#[derive(Debug)]
pub(crate) struct Waker {
    queue: Arc<ReadyQueue>,
    index: usize,
    queued: AtomicBool,
}

impl Waker {
    pub(crate) fn new(queue: Arc<ReadyQueue>, index: usize) -> Self {
        Waker { queue, index, queued: AtomicBool::new(false) }
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Queues the source and unparks the keeper, unless the source is queued already.
    pub(crate) fn wake(&self) {
        // ordering: SeqCst fence — the caller wrote what it wants before the load below; pairs with the fence in `acknowledge`,
        // so either the caller sees the flag cleared and queues again, or the keeper sees what the caller wants.
        fence(Ordering::SeqCst);
        // ordering: Relaxed — a queued source covers this caller too: the keeper reads the source after it acknowledges.
        if self.queued.load(Ordering::Relaxed) {
            return;
        }
        // ordering: AcqRel — release: the keeper that acknowledges sees why the source was queued; acquire pairs with
        // `acknowledge`.
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.queue.ready.push(self.index);
            self.queue.unpark();
        }
    }

    /// Called by the keeper before it reads the source: from now on a wake queues the source again. Returns whether the source
    /// was queued.
    pub(crate) fn acknowledge(&self) -> bool {
        // ordering: AcqRel — pairs with `wake`.
        let was_queued = self.queued.swap(false, Ordering::AcqRel);
        // ordering: SeqCst fence — pairs with the one in `wake`.
        fence(Ordering::SeqCst);
        was_queued
    }
}
