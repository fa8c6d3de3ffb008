//! Blocks: part of a segment leased to one thread or one handle, which then counts without sharing. (floor 1)
//!
//! Each number costs one add and one compare with the revocation word. A block dies with the word: when a period
//! ends, a segment grows too old, the mill closes, or the process turns out to be a forked child.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::segment::Taken;
use crate::serial::Prefix;
use crate::well::{Tally, Well};

/// Numbers that one owner counts through.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    next: u64,
    end: u64,
    /// The word of the well it came from, and what it read when the block was leased.
    word: &'static AtomicU64,
    leased_at: u64,
    pub(crate) prefix: Prefix,
}

/// What a block without a well compares; it never holds.
static NO_WORD: AtomicU64 = AtomicU64::new(0);

impl Block {
    pub(crate) const EMPTY: Block =
        Block { next: 0, end: 0, word: &NO_WORD, leased_at: 1, prefix: Prefix::EMPTY };

    /// The next number; `None` when a new block is needed.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<u64> {
        let number = self.next;
        // ordering: Relaxed — revocation may be seen a moment late, a duplicate it cannot cause: the numbers are ours.
        // In a forked child the page was wiped before the child's first instruction.
        if number < self.end && self.word.load(Ordering::Relaxed) == self.leased_at {
            self.next = number + 1;
            return Some(number);
        }
        None
    }

    /// Leases a new block from `well`; what was left of the old one is lost.
    #[cold]
    pub(crate) fn refill(&mut self, well: &Well, size: u64) -> Result<()> {
        self.forget(well);
        let word = well.word();
        loop {
            // Read before the lease: a revocation that comes between kills the block.
            let leased_at = word.get();
            let taken: Taken = well.lease(size)?;
            let prefix = if well.spec.pattern().is_some() {
                match well.prefix(&taken) {
                    Some(prefix) => prefix,
                    None => {
                        Tally::add(&well.tally.lost, taken.len());
                        continue;
                    }
                }
            } else {
                Prefix::EMPTY
            };
            *self = Block { next: taken.lo, end: taken.hi, word: word.shared(), leased_at, prefix };
            return Ok(());
        }
    }

    /// Counts what is left as lost.
    pub(crate) fn forget(&mut self, well: &Well) {
        if std::ptr::eq(self.word, well.word().shared()) {
            Tally::add(&well.tally.lost, self.end - self.next);
        }
        *self = Block::EMPTY;
    }
}

/// How many sources' blocks a thread keeps; the one used longest ago makes room.
const KEPT: usize = 64;

thread_local! {
    static BLOCKS: RefCell<Vec<(u64, Block)>> = const { RefCell::new(Vec::new()) };
}

/// The next number of this thread's own block of `well`, with the block's date part.
#[inline]
pub(crate) fn next_of_thread(well: &Well) -> Result<(u64, Prefix)> {
    BLOCKS.with_borrow_mut(|blocks| {
        if let Some((id, block)) = blocks.first_mut()
            && *id == well.id
            && let Some(number) = block.next()
        {
            return Ok((number, block.prefix));
        }
        next_of_other(blocks, well)
    })
}

#[cold]
fn next_of_other(blocks: &mut Vec<(u64, Block)>, well: &Well) -> Result<(u64, Prefix)> {
    match blocks.iter().position(|(id, _)| *id == well.id) {
        Some(at) => blocks[..=at].rotate_right(1),
        None => {
            blocks.truncate(KEPT - 1);
            blocks.insert(0, (well.id, Block::EMPTY));
        }
    }
    let block = &mut blocks[0].1;
    loop {
        if let Some(number) = block.next() {
            return Ok((number, block.prefix));
        }
        block.refill(well, well.spec.block)?;
    }
}
