//! A source that counts through segments: what its callers and its keeper share.
//!
//! Callers take. A caller that finds nothing wakes the keeper and waits on this source's own condition until its deadline. The
//! keeper publishes segments, or posts why it could not. No I/O is done under any lock of a source.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::callers::Callers;
use crate::callers::waker::ReadyQueue;
use crate::error::{Error, Result};
use crate::process::revocation::RevocationWord;
use crate::serial::Prefix;
use crate::spec::{Kind, Spec};
use crate::time::{Clock, Now};

use super::block::Blocks;
use super::ends::Ends;
use super::{Buffer, Miss, SegmentAction, Snapshot, TakeError, TakenRange};

/// One source of numbers.
pub struct SegmentSource {
    this: Weak<SegmentSource>,
    pub(crate) callers: Callers,
    pub(super) buffer: Buffer,
    /// What cursors hold and have given back.
    pub(super) blocks: Blocks,
    /// When the numbers in memory end; locked by the thread that publishes or drops segments.
    pub(super) ends: Mutex<Ends>,
    /// How many numbers all sleeping callers want together.
    pub(super) wanted: AtomicU64,
    /// The most numbers that a caller who does not wait wanted since the store answered last. The wish stays until then,
    /// however often the keeper checks the source.
    pub(super) asked: AtomicU64,
}

impl std::fmt::Debug for SegmentSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SegmentSource").field("source", &self.spec().label).finish_non_exhaustive()
    }
}

impl SegmentSource {
    /// A source without numbers yet.
    pub(crate) fn new(spec: Arc<Spec>, ready: Arc<ReadyQueue>, index: usize, clock: Clock) -> Arc<Self> {
        let with_text = spec.kind() == Kind::Serial;
        let callers = Callers::new(spec, ready, index, clock);
        Arc::new_cyclic(|this| SegmentSource {
            this: this.clone(),
            buffer: Buffer::new(with_text, callers.waker.clone()),
            blocks: Blocks::default(),
            callers,
            ends: Mutex::default(),
            wanted: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        })
    }

    /// For the cursors of threads, which outlive it.
    pub(super) fn weak(&self) -> Weak<SegmentSource> {
        self.this.clone()
    }

    /// What the source is.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.callers.spec
    }

    /// The word that is zero in a forked child and rises when blocks must be dropped.
    #[inline]
    pub(crate) fn word(&self) -> &RevocationWord {
        self.buffer.word()
    }

    /// What an owner of a block compares, for the simulation's blocks.
    #[must_use]
    pub fn revocations(&self) -> u64 {
        self.word().get()
    }

    /// One number of the shared counter, without waiting. It may be used only if the source [`RevocationWord::is_ours`].
    #[inline]
    pub(crate) fn take_one(&self) -> std::result::Result<u64, Miss> {
        self.buffer.take_one()
    }

    /// As [`SegmentSource::take_one`], with the date part that belongs to the number.
    #[inline]
    pub(crate) fn take_one_dated(&self) -> std::result::Result<(u64, Prefix), Miss> {
        self.buffer.take_one_dated()
    }

    /// One number after a miss; waits until the deadline at most. A miss may hold a number after all.
    #[cold]
    pub(crate) fn lease_after(&self, miss: Option<Miss>) -> Result<TakenRange> {
        self.settle(miss).map_or_else(|| self.lease(1), Ok)
    }

    /// One number after a miss, or why not, at once.
    #[cold]
    pub(crate) fn try_take_after(&self, miss: Option<Miss>) -> Result<TakenRange> {
        self.settle(miss).map_or_else(|| self.try_take(1), Ok)
    }

    fn settle(&self, miss: Option<Miss>) -> Option<TakenRange> {
        self.buffer.after(miss?)?.ok()
    }

    /// One number; waits until the deadline at most.
    #[inline]
    pub(crate) fn next(&self) -> Result<u64> {
        self.take_one().or_else(|miss| self.lease_after(Some(miss)).map(|taken| taken.lo))
    }

    /// One number, or why not, at once.
    #[inline]
    pub fn try_next(&self) -> Result<u64> {
        self.take_one().or_else(|miss| self.try_take_after(Some(miss)).map(|taken| taken.lo))
    }

    /// Up to `want` numbers, or why not, at once.
    pub fn try_take(&self, want: u64) -> Result<TakenRange> {
        self.try_take_of(want, 1, want)
    }

    /// Up to `want` numbers once `enough` are in memory, or as many as memory can hold; else why not, at once, and the
    /// keeper reserves what is missing.
    pub(crate) fn try_take_enough(&self, want: u64, enough: u64) -> Result<TakenRange> {
        self.try_take_of(want, enough, enough)
    }

    fn try_take_of(&self, want: u64, enough: u64, ask: u64) -> Result<TakenRange> {
        if let Some(taken) = self.take_if(want, enough)? {
            return Ok(taken);
        }
        // ordering: Relaxed — `Waker::wake` publishes it.
        self.asked.fetch_max(ask.max(1), Ordering::Relaxed);
        // Read before the keeper is woken: the same call in the same state gets the same answer.
        let error = self.callers.not_ready(enough, || self.buffer.snapshot().left);
        self.callers.waker.wake();
        Err(error)
    }

    /// Takes up to `want` numbers if `enough` are in memory; `None`: too few are.
    pub(crate) fn take_if(&self, want: u64, enough: u64) -> Result<Option<TakenRange>> {
        if enough <= 1 || self.buffer.has_at_least(enough) {
            match self.buffer.take(want) {
                Ok(taken) => return Ok(Some(taken)),
                Err(TakeError::Closed) => return Err(self.callers.closed()),
                Err(TakeError::Empty) => {}
            }
        }
        Ok(None)
    }

    /// The date part that belongs to what was taken; `None` if its period is over, and the number is lost with it.
    pub fn prefix(&self, taken: &TakenRange) -> Option<Prefix> {
        self.buffer.prefix(taken).map(|(_, prefix)| prefix)
    }

    /// Numbers handed out, and numbers in memory.
    pub(crate) fn issued_and_left(&self) -> (u64, u64) {
        let snapshot = self.buffer.snapshot();
        (snapshot.issued, snapshot.left)
    }

    // ---- the keeper's side

    /// What the planner decides by.
    pub(crate) fn view(&self) -> Snapshot {
        self.callers.waker.acknowledge();
        let mut snapshot = self.buffer.snapshot();
        // Loaded after the snapshot: a block that it counts is counted here too, unless it is used up by now.
        snapshot.issued = snapshot.issued.saturating_sub(self.blocks.held());
        // ordering: Relaxed — acquired by the acknowledgement.
        let asked = self.asked.load(Ordering::Relaxed);
        if asked > 0 && asked <= snapshot.left {
            // Numbers for another caller arrived; a wish that is kept would be reserved for again when they are used up.
            // ordering: Relaxed — as in `answered`; a caller that asks in the meantime changes the value.
            let _ = self.asked.compare_exchange(asked, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        // Loaded after the snapshot: a caller that took numbers the snapshot does not count no longer wants them.
        // ordering: Relaxed — acquired by the acknowledgement.
        snapshot.wanted = self.wanted.load(Ordering::Relaxed).max(asked);
        snapshot
    }

    /// Whether a caller lacks numbers.
    pub(crate) fn is_waited_for(&self) -> bool {
        // ordering: Relaxed on both — acquired with the wake that made the keeper check the source.
        self.wanted.load(Ordering::Relaxed) > 0 || self.asked.load(Ordering::Relaxed) > 0
    }

    /// Carries out what the planner decided.
    pub(crate) fn act(&self, action: SegmentAction, now: Now) {
        match action {
            SegmentAction::Publish(segment) => self.publish(segment, now),
            SegmentAction::KeepAhead(segment) => self.keep_ahead(segment),
            SegmentAction::DropOtherPeriods(keep) => self.drop_other_periods(keep, now),
            SegmentAction::Ends { wall_ms, ttl_ms } => self.set_ends(wall_ms, ttl_ms),
            SegmentAction::DropOlder(born_ms) => self.drop_older(born_ms),
            SegmentAction::WakeBelow(left) => self.buffer.wake_below(left),
        }
    }

    /// Callers who find nothing get this error; its retry hint is when the next try is due.
    pub(crate) fn fail(&self, error: Error, now: Now) {
        self.answered();
        self.callers.post(error, now);
    }

    /// The store has answered the callers who do not wait; those that still lack numbers ask again.
    pub(super) fn answered(&self) {
        // ordering: Relaxed — read by the keeper itself; a wish of the same moment is made again.
        self.asked.store(0, Ordering::Relaxed);
    }

    /// Closes for good. Returns the numbers that no caller got, which count as lost, each range with its period, in rising order.
    pub(crate) fn close(&self) -> Vec<(u64, u64, u64)> {
        let rest = self.close_buffer();
        self.callers.notify();
        rest
    }
}
