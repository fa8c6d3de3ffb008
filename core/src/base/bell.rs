//! How callers call the keeper: a queue of sources that rang, and a thread to wake.
//!
//! A bell is rung at most once until it is answered, so a dry source under a thousand callers is one entry. Ringing
//! takes no lock; crossbeam's `SegQueue` allocates one block per 31 entries, off the id path.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::thread::Thread;

use crossbeam::queue::SegQueue;

/// Where the bells of one mill hang.
#[derive(Debug, Default)]
pub struct Belfry {
    rung: SegQueue<usize>,
    keeper: OnceLock<Thread>,
}

impl Belfry {
    /// The thread that answers; a belfry without one is polled.
    pub(crate) fn answered_by(&self, keeper: Thread) {
        // A belfry has one keeper for life; a second one would be a defect, and the first goes on answering.
        let _ = self.keeper.set(keeper);
    }

    /// The next source that rang.
    pub(crate) fn next(&self) -> Option<usize> {
        self.rung.pop()
    }

    /// Whether somebody rang and nobody has looked yet. For the simulation, which polls.
    #[must_use]
    pub fn is_rung(&self) -> bool {
        !self.rung.is_empty()
    }

    /// Wakes the keeper without ringing: a command waits for it.
    pub(crate) fn wake(&self) {
        if let Some(keeper) = self.keeper.get() {
            keeper.unpark();
        }
    }
}

/// One source's bell.
#[derive(Debug)]
pub(crate) struct Bell {
    belfry: Arc<Belfry>,
    slot: usize,
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new(belfry: Arc<Belfry>, slot: usize) -> Self {
        Bell { belfry, slot, rung: AtomicBool::new(false) }
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// Asks for the keeper's look.
    pub(crate) fn ring(&self) {
        // ordering: SeqCst fence — what we want was written before the load below; pairs with the fence in `answer`, so
        // either we see the bell answered and ring again, or the keeper sees what we want.
        fence(Ordering::SeqCst);
        // ordering: Relaxed — whoever rang and was not answered yet speaks for us too: the keeper looks after answering.
        if self.rung.load(Ordering::Relaxed) {
            return;
        }
        // ordering: AcqRel — release: the keeper that answers sees what made us ring; acquire pairs with `answer`.
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.belfry.rung.push(self.slot);
            self.belfry.wake();
        }
    }

    /// The keeper is about to look: from now on a ring counts again. `true` if somebody had rung.
    pub(crate) fn answer(&self) -> bool {
        // ordering: AcqRel — pairs with `ring`.
        let had_rung = self.rung.swap(false, Ordering::AcqRel);
        // ordering: SeqCst fence — pairs with the one in `ring`.
        fence(Ordering::SeqCst);
        had_rung
    }
}
