//! The buffer of one source: the cell that callers count in, and a queue of segments behind it.
//!
//! The keeper publishes; a caller that uses a segment up moves the next one into the cell itself, so callers wait for a store
//! only when the queue is empty. The queue is crossbeam's bounded `ArrayQueue` (Vyukov's algorithm). It is used once a segment,
//! by the thread that may replace the cell's segment, so it is never on the id path.

use std::sync::Arc;

use crate::callers::waker::Waker;
use crate::process::revocation::RevocationWord;
use crate::process::sync::{ArrayQueue, AtomicBool, AtomicU64, Backoff, Ordering};
use crate::serial::Prefix;

use super::Segment;
use super::block::Returned;
use super::cell::{Cell, Count, Miss, Replacing};

/// How many segments the queue holds.
pub(crate) const QUEUE_LEN: usize = 8;

/// Numbers `[lo, hi)` that belong to the caller alone.
#[derive(Clone, Copy, Debug)]
pub struct TakenRange {
    /// First number.
    pub lo: u64,
    /// One past the last number.
    pub hi: u64,
    /// The version of the cell they came from, for `Buffer::prefix`.
    version: u64,
}

impl TakenRange {
    pub(crate) fn len(&self) -> u64 {
        self.hi - self.lo
    }
}

/// Why there is nothing to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeError {
    /// No number in memory.
    Empty,
    /// Closed for good.
    Closed,
}

/// The state of a buffer at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    /// Numbers handed out since the source was opened.
    pub(crate) issued: u64,
    /// Numbers in memory that are not handed out yet.
    pub(crate) left: u64,
    /// Free places in the queue.
    pub(crate) room: usize,
    /// Numbers that waiting callers lack.
    pub(crate) wanted: u64,
    /// When the segment in the cell was reserved; `None` without one.
    pub(crate) born_ms: Option<u64>,
}

/// The cell that callers count in, and the segments behind it.
pub(crate) struct Buffer {
    cell: Cell,
    queue: ArrayQueue<Segment>,
    /// Numbers in the queue.
    ahead: AtomicU64,
    /// Numbers handed out of segments that have left the cell.
    issued_before: AtomicU64,
    /// A segment was published since the last revocation.
    published: AtomicBool,
    /// Wakes the keeper when the low-water mark is crossed or the buffer is empty.
    waker: Arc<Waker>,
    /// Raised when numbers that were taken must no longer be issued; zero in a forked child.
    word: RevocationWord,
}

impl Buffer {
    pub(crate) fn new(with_text: bool, waker: Arc<Waker>) -> Self {
        Buffer {
            cell: Cell::new(with_text),
            queue: ArrayQueue::new(QUEUE_LEN),
            ahead: AtomicU64::new(0),
            issued_before: AtomicU64::new(0),
            published: AtomicBool::new(false),
            waker,
            word: RevocationWord::new(),
        }
    }

    /// The word that owners of blocks compare.
    #[inline]
    pub(crate) fn word(&self) -> &RevocationWord {
        &self.word
    }

    /// One number: the id path. [`Buffer::after`] settles a miss.
    #[inline]
    pub(crate) fn take_one(&self) -> Result<u64, Miss> {
        self.cell.take_one()
    }

    /// One number with the date part that belongs to it: the path of serial numbers.
    #[inline]
    pub(crate) fn take_one_dated(&self) -> Result<(u64, Prefix), Miss> {
        self.cell.take_one_dated()
    }

    /// Settles a miss, which may hold a number after all; `None` means: take again.
    #[cold]
    pub(crate) fn after(&self, miss: Miss) -> Option<Result<TakenRange, TakeError>> {
        self.follow(self.cell.explain(miss))
    }

    /// Up to `want` numbers, as many as the segment in the cell still holds; `Empty` only when nothing is in memory.
    pub(crate) fn take(&self, want: u64) -> Result<TakenRange, TakeError> {
        let backoff = Backoff::new();
        loop {
            let count = self.cell.count(want);
            if let Some(answer) = self.follow(count) {
                return answer;
            }
            backoff.snooze();
        }
    }

    /// Acts on the outcome of a count; `None` means: count again.
    #[cold]
    fn follow(&self, count: Count) -> Option<Result<TakenRange, TakeError>> {
        match count {
            Count::Got { lo, hi, version, crossed } => {
                if crossed {
                    self.silence(version);
                    self.wake_keeper();
                }
                Some(Ok(TakenRange { lo, hi, version }))
            }
            Count::UsedUp { version } => {
                if let Some(right) = self.cell.replacing(version) {
                    self.advance(right);
                    self.wake_keeper();
                }
                None
            }
            Count::Empty { version } => {
                if self.queue.is_empty() {
                    self.wake_keeper();
                    return Some(Err(TakeError::Empty));
                }
                if let Some(right) = self.cell.replacing(version) {
                    self.advance(right);
                }
                None
            }
            Count::Closed => Some(Err(TakeError::Closed)),
            Count::Again => None,
        }
    }

    /// The keeper is woken once a segment: its later takers go on undisturbed to its end.
    fn silence(&self, version: u64) {
        if let Some(right) = self.cell.replacing(version) {
            self.cell.set_low_water(&right, u64::MAX);
            self.cell.keep(right);
        }
    }

    /// Moves the next segment of the queue into the cell, which is used up or empty.
    fn advance(&self, right: Replacing) {
        if let Some(old) = self.cell.current(&right) {
            self.count_issued(old.hi - old.lo);
        }
        match self.queue.pop() {
            Some(segment) => {
                self.leave_queue(&segment);
                self.cell.install(right, &segment);
            }
            None => {
                self.cell.empty(right);
            }
        }
    }

    fn count_issued(&self, numbers: u64) {
        // ordering: Relaxed — a statistic.
        self.issued_before.fetch_add(numbers, Ordering::Relaxed);
    }

    fn leave_queue(&self, segment: &Segment) {
        // ordering: Relaxed — a statistic; the queue itself decides.
        self.ahead.fetch_sub(segment.len(), Ordering::Relaxed);
    }

    fn wake_keeper(&self) {
        self.waker.wake();
    }

    /// Adds a segment. Returns `false` if the queue is full or the buffer closed: then the segment is lost.
    pub(crate) fn publish(&self, segment: Segment) -> bool {
        if self.cell.is_closed() {
            return false;
        }
        // ordering: Relaxed — the keeper alone publishes and drops.
        self.published.store(true, Ordering::Relaxed);
        // ordering: Relaxed — a statistic; added first so that `leave_queue` cannot go below zero.
        self.ahead.fetch_add(segment.len(), Ordering::Relaxed);
        if self.queue.push(segment).is_err() {
            self.leave_queue(&segment);
            return false;
        }
        if !self.cell.is_live()
            && let Some(right) = self.cell.replacing_now()
        {
            if self.cell.current(&right).is_none() {
                self.advance(right);
            } else {
                self.cell.keep(right);
            }
        }
        true
    }

    /// Drops every segment reserved at or before `born_ms`, and ends all blocks. Returns how many numbers are lost.
    pub(crate) fn drop_older(&self, born_ms: u64) -> u64 {
        self.drop_where(|born, _| born <= born_ms)
    }

    /// Drops every segment of another period, and ends all blocks. Returns how many numbers are lost.
    pub(crate) fn drop_other_periods(&self, keep: u64) -> u64 {
        self.drop_where(|_, period| period != keep)
    }

    fn drop_where(&self, goes: impl Fn(u64, u64) -> bool) -> u64 {
        let mut lost = 0;
        let Some(right) = self.cell.replacing_now() else { return lost };
        let old = self.cell.current(&right);
        if let Some(old) = old {
            if !goes(old.born_ms, old.period) {
                self.cell.keep(right);
                return lost;
            }
            let reached = old.next.clamp(old.lo, old.hi);
            lost += old.hi - reached;
            self.count_issued(reached - old.lo);
        }
        self.cell.forget_dates(&right);
        // Also where the cell is empty: cursors may still count through blocks of the segment that it held.
        // ordering: Relaxed — the keeper alone publishes and drops.
        if self.published.swap(false, Ordering::Relaxed) || old.is_some() {
            self.word.revoke();
        }
        while let Some(segment) = self.queue.pop() {
            self.leave_queue(&segment);
            if !goes(segment.born_ms, segment.period) {
                // ordering: Relaxed — as above.
                self.published.store(true, Ordering::Relaxed);
                self.cell.install(right, &segment);
                return lost;
            }
            lost += segment.len();
        }
        self.cell.empty(right);
        lost
    }

    /// Closes for good. Returns the numbers that are not handed out, in rising order, each range with its period.
    pub(crate) fn close(&self) -> Vec<(u64, u64, u64)> {
        let mut rest = Vec::new();
        let Some(right) = self.cell.replacing_now() else { return rest };
        self.word.revoke();
        let current = self.cell.current(&right);
        let reached = self.cell.close(right);
        if let Some(old) = current {
            let from = reached.clamp(old.lo, old.hi);
            self.count_issued(from - old.lo);
            if from < old.hi {
                rest.push((old.period, from, old.hi));
            }
        }
        while let Some(segment) = self.queue.pop() {
            self.leave_queue(&segment);
            rest.push((segment.period, segment.lo, segment.hi));
        }
        rest
    }

    /// Takes back `[lo, hi)`, the unissued rest of a block that was leased while the word read `leased_at`. They are
    /// counted through again if no number was taken after them.
    ///
    /// While this thread has the right to replace, no segment begins or ends and the word is not raised, so what is seen of them is
    /// true until the end.
    pub(super) fn take_back(&self, leased_at: u64, lo: u64, hi: u64) -> Returned {
        let Some(right) = self.cell.replacing_now() else { return Returned::Never };
        let returned = if self.word.get() != leased_at {
            Returned::Never
        } else if self.cell.current(&right).is_some_and(|now| now.lo <= lo && hi <= now.hi)
            && self.cell.move_back(&right, hi, lo)
        {
            Returned::Anew
        } else {
            Returned::AtClose { period: self.cell.period(&right) }
        };
        self.cell.keep(right);
        returned
    }

    /// Sets the low-water mark: the keeper is woken when fewer than `left` numbers remain in memory.
    pub(crate) fn wake_below(&self, left: u64) {
        // ordering: Relaxed — a statistic.
        let ahead = self.ahead.load(Ordering::Relaxed);
        let Some(right) = self.cell.replacing_now() else { return };
        match self.cell.current(&right) {
            // The end of a segment wakes the keeper anyway.
            Some(now) if left > ahead => {
                let at = now.hi.saturating_sub(left - ahead).max(now.lo);
                self.cell.set_low_water(&right, at);
            }
            _ => {}
        }
        self.cell.keep(right);
    }

    /// What the planner decides by.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let current = self.cell.load();
        let (now, rest) = current.map_or((0, 0), |l| {
            let reached = l.next.clamp(l.lo, l.hi);
            (reached - l.lo, l.hi - reached)
        });
        // ordering: Relaxed — statistics.
        let ahead = self.ahead.load(Ordering::Relaxed);
        Snapshot {
            // ordering: Relaxed — a statistic.
            issued: self.issued_before.load(Ordering::Relaxed) + now,
            left: rest + ahead,
            room: QUEUE_LEN - self.queue.len().min(QUEUE_LEN),
            wanted: 0,
            born_ms: current.map(|l| l.born_ms),
        }
    }

    /// Whether a batch of this size may begin to take: all of it is in memory, or memory holds no more.
    pub(crate) fn has_at_least(&self, numbers: u64) -> bool {
        let snapshot = self.snapshot();
        snapshot.left >= numbers || snapshot.room == 0 || self.cell.is_closed()
    }

    /// The period and date part of what was taken; `None` if its segment was dropped since, or replaced by one of another period.
    pub(crate) fn prefix(&self, taken: &TakenRange) -> Option<(u64, Prefix)> {
        self.cell.prefix(taken.version)
    }
}
