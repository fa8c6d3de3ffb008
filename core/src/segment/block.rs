//! Blocks: how large a cursor's next block is, and what becomes of the rest that a cursor does not use.
//!
//! A block grows with use, from a few numbers to what `block=` says. A block that was used up soon is followed by a block of twice its
//! size, a block that lasted long by half its size: what a cursor holds is what it takes in a fraction of a second.
//!
//! What a cursor gives back was never issued: the cursor hands over its whole rest and keeps nothing of it. If no number was taken
//! after the block, the buffer counts through the rest again, so numbers still rise. Else the rest is kept until the source is
//! closed: the numbers at the end of the row go back to the store together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::Result;

use super::{SegmentSource, TakenRange};

/// A cursor's first block, and the smallest one.
const FIRST: u64 = 16;

/// A block that was used up within this time is followed by a larger one …
const SOON_MS: u64 = 10;
/// … and a block that lasted longer than this by a smaller one.
const LATE_MS: u64 = 100;

/// How many ranges a source keeps until it is closed.
const MOST_RETURNED: usize = 64;

/// What a cursor leased last, by which its next block is sized. Zeros: nothing yet.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct LastBlock {
    /// How many numbers it had.
    pub len: u64,
    /// When it was leased, by a clock of the core's own.
    pub leased_ms: u64,
}

impl LastBlock {
    pub(crate) const NONE: LastBlock = LastBlock { len: 0, leased_ms: 0 };

    /// How many numbers the next block has, at most `most`.
    fn next_len(self, now_ms: u64, most: u64) -> u64 {
        let lasted_ms = now_ms.saturating_sub(self.leased_ms);
        let len = if lasted_ms < SOON_MS {
            self.len.saturating_mul(2)
        } else if lasted_ms > LATE_MS {
            self.len / 2
        } else {
            self.len
        };
        len.max(FIRST).min(most)
    }

    /// How many of its numbers the planner does not count as used while the cursor holds them. A small block counts at once, so that
    /// cursors that are dropped without a word are seen to use numbers.
    fn held(self) -> u64 {
        held(self.len)
    }
}

fn held(len: u64) -> u64 {
    if len > FIRST { len } else { 0 }
}

/// The blocks of a source that cursors hold, and what they have given back.
#[derive(Default)]
pub(super) struct Blocks {
    /// How many numbers of blocks above [`FIRST`] were leased, and how many of them are used up or given back.
    leased: AtomicU64,
    settled: AtomicU64,
    /// Ranges `(period, lo, hi)` that no cursor will issue, in rising order.
    returned: Mutex<Vec<(u64, u64, u64)>>,
}

impl Blocks {
    /// How many numbers cursors hold at most.
    pub(super) fn held(&self) -> u64 {
        // ordering: Relaxed on both — statistics.
        self.leased.load(Ordering::Relaxed).saturating_sub(self.settled.load(Ordering::Relaxed))
    }

    fn settle(&self, numbers: u64) {
        if numbers > 0 {
            // ordering: Relaxed — a statistic.
            self.settled.fetch_add(numbers, Ordering::Relaxed);
        }
    }

    /// Keeps a range until the source is closed. Where there are too many, the lowest goes: the others are nearer to the row's end.
    fn keep(&self, range: (u64, u64, u64)) {
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        let at = returned.partition_point(|other| *other < range);
        returned.insert(at, range);
        if returned.len() > MOST_RETURNED {
            returned.remove(0);
        }
    }

    /// The ranges that were given back.
    pub(super) fn take_returned(&self) -> Vec<(u64, u64, u64)> {
        std::mem::take(&mut *self.returned.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SegmentSource {
    /// Leases the next block of a cursor, which has used up or given back its last one: at most `most` numbers, and where the cursor
    /// lacks `enough` not fewer than these, if they are in memory. `take` takes as many as it is given, or fewer.
    pub(crate) fn lease_block(
        &self,
        last: &mut LastBlock,
        most: u64,
        enough: u64,
        take: impl FnOnce(u64) -> Result<TakenRange>,
    ) -> Result<TakenRange> {
        let now_ms = self.callers.clock.coarse_ms();
        let want = last.next_len(now_ms, most).max(enough);
        // Before the numbers are taken: a planner that looks in between must not see a rate.
        // ordering: Relaxed — a statistic.
        self.blocks.leased.fetch_add(held(want), Ordering::Relaxed);
        let taken = take(want).inspect_err(|_| self.blocks.settle(held(want)))?;
        self.blocks.settle(held(want).saturating_sub(held(taken.len())));
        self.blocks.settle(last.held());
        *last = LastBlock { len: taken.len(), leased_ms: now_ms };
        Ok(taken)
    }

    /// Takes back the rest `[lo, hi)` of a block that was leased while the word read `leased_at`. The caller has issued none of these
    /// numbers, and nobody else holds them. Numbers of a block that was revoked are lost.
    pub(crate) fn give_back(&self, leased_at: u64, lo: u64, hi: u64, last: LastBlock) {
        // First of all: in a forked child a lock may be held by a thread that is not there.
        if !self.word().is_ours() {
            return;
        }
        self.blocks.settle(last.held());
        if lo >= hi {
            return;
        }
        match self.buffer.take_back(leased_at, lo, hi) {
            Returned::Anew => {}
            Returned::AtClose { period } => {
                self.blocks.keep((period, lo, hi));
                self.callers.counters.lose(hi - lo);
            }
            Returned::Never => self.callers.counters.lose(hi - lo),
        }
    }
}

/// What becomes of numbers that were given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    /// They are handed out again.
    Anew,
    /// They go back to the store with the others of this period.
    AtClose { period: u64 },
    /// They are lost.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_grows_while_it_is_used_up_soon_and_shrinks_while_it_lasts() {
        let mut last = LastBlock::NONE;
        let mut sizes = Vec::new();
        for _ in 0..9 {
            let len = last.next_len(5, 1_000);
            sizes.push(len);
            last = LastBlock { len, leased_ms: 5 };
        }
        assert_eq!(sizes, [16, 32, 64, 128, 256, 512, 1_000, 1_000, 1_000]);
        assert_eq!(last.next_len(5 + SOON_MS, 1_000), 1_000);
        assert_eq!(last.next_len(6 + LATE_MS, 1_000), 500);
        assert_eq!(LastBlock { len: 20, leased_ms: 0 }.next_len(5_000, 1_000), 16);
        assert_eq!(LastBlock::NONE.next_len(u64::MAX, 10), 10, "never more than `block=` says");
    }

    #[test]
    fn only_the_lowest_of_too_many_returned_ranges_is_dropped() {
        let blocks = Blocks::default();
        for n in (0..=MOST_RETURNED as u64).rev() {
            blocks.keep((0, 10 * n, 10 * n + 5));
        }
        let returned = blocks.take_returned();
        assert_eq!((returned.len(), returned[0]), (MOST_RETURNED, (0, 10, 15)));
        assert!(returned.is_sorted() && blocks.take_returned().is_empty());
    }
}
