//! A well: one source's numbers, its callers and the refusal they are told, shared between callers and keeper.
//!
//! Callers take; who finds nothing wakes the keeper and waits here, on this source's own condition, until its own deadline. The
//! keeper looks, publishes, and posts why it could not. No I/O is done under any lock of a well.

mod counters;
mod expiry;
mod flakes;
mod keep;
mod last_error;
mod wait;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::base::error::{Error, Result};
use crate::base::revocation::Word;
use crate::base::waker::{ReadyQueue, Waker};
use crate::planner::spec::{Body, Spec};
use crate::segment::{Buffer, Miss, TakeError, Taken};
use crate::serial::Prefix;
use crate::snowflake::Generator;
use crate::time::Clock;
pub(crate) use counters::Counters;
use expiry::Calendar;
pub(crate) use keep::Unused;
use last_error::LastError;

/// How long `try_next` suggests to wait when nothing better is known: a little more than a round trip.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// Where the numbers come from.
pub(crate) enum Spring {
    /// Segments that the keeper reserves.
    Numbers(Buffer),
    /// A clock and a worker id.
    Time { generator: Generator, word: Word },
}

/// One source, as its callers and its keeper share it.
pub struct Well {
    /// What it is, every option filled in.
    pub spec: Arc<Spec>,
    /// Never used twice in a process: blocks remember whose they are by it.
    pub(crate) id: u64,
    pub(crate) spring: Spring,
    /// The word of [`Well::word`], where the id path need not ask which spring it is.
    alive: &'static AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) waker: Arc<Waker>,
    clock: Clock,
    /// The snowflake's generator knows where the stored mark stood.
    started: AtomicBool,
    /// Where the mark stands is not asked again before this boot time: this machine's clock is behind it.
    start_again_ms: AtomicU64,
    /// When what is in memory ends; whoever publishes or drops segments holds it.
    calendar: Mutex<Calendar>,
    last_error: Mutex<LastError>,
    changed: Condvar,
    /// Numbers that sleeping callers want in all, and those of `try_next` since the store answered last: whoever looks in
    /// between, such a wish stands until then.
    wanted: AtomicU64,
    asked: AtomicU64,
}

impl std::fmt::Debug for Well {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Well").field("source", &self.spec.label).finish_non_exhaustive()
    }
}

static IDS: AtomicU64 = AtomicU64::new(1);

impl Well {
    /// A well without numbers yet.
    pub fn new(spec: Arc<Spec>, ready: Arc<ReadyQueue>, slot: usize, clock: Clock) -> Result<Self> {
        let waker = Arc::new(Waker::new(ready, slot));
        let spring = match &spec.body {
            Body::Segment => Spring::Numbers(Buffer::new(false, waker.clone())),
            Body::Serial { .. } => Spring::Numbers(Buffer::new(true, waker.clone())),
            Body::Snowflake { layout, worker, clock_back, max_lead_ms } => Spring::Time {
                generator: Generator::new(*layout, *worker, *clock_back, *max_lead_ms, clock.clone())?,
                word: Word::new(),
            },
        };
        Ok(Well {
            spec,
            // ordering: Relaxed — only uniqueness matters.
            id: IDS.fetch_add(1, Ordering::Relaxed),
            alive: match &spring {
                Spring::Numbers(buffer) => buffer.word().shared(),
                Spring::Time { word, .. } => word.shared(),
            },
            spring,
            counters: Counters::default(),
            waker,
            clock,
            started: AtomicBool::new(false),
            start_again_ms: AtomicU64::new(0),
            calendar: Mutex::default(),
            last_error: Mutex::default(),
            changed: Condvar::new(),
            wanted: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        })
    }

    /// The word that is zero in a forked child and rises when blocks must be dropped.
    #[inline]
    pub(crate) fn word(&self) -> &Word {
        match &self.spring {
            Spring::Numbers(buffer) => buffer.word(),
            Spring::Time { word, .. } => word,
        }
    }

    /// Whether this process made the well, and not one it was forked from: one load.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        // ordering: Relaxed — a process is a fork from its first instruction on; nothing is published by the wipe.
        self.alive.load(Ordering::Relaxed) != 0
    }

    /// What an owner of a block compares, for the simulation's blocks.
    #[must_use]
    pub fn revocations(&self) -> u64 {
        self.word().get()
    }

    /// One number of the shared counter, quietly. It is worth something only if the well [`Well::is_ours`].
    #[inline]
    pub(crate) fn quick(&self) -> std::result::Result<u64, Option<Miss>> {
        match &self.spring {
            Spring::Numbers(buffer) => buffer.take_one().map_err(Some),
            Spring::Time { .. } => Err(None),
        }
    }

    /// As [`Well::quick`], with the date part that belongs to the number.
    #[inline]
    pub(crate) fn quick_dated(&self) -> std::result::Result<(u64, Prefix), Option<Miss>> {
        match &self.spring {
            Spring::Numbers(buffer) => buffer.take_one_dated().map_err(Some),
            Spring::Time { .. } => Err(None),
        }
    }

    /// A snowflake, quietly; `None` sends the caller to [`Well::next`], which says why or waits.
    #[inline]
    pub(crate) fn quick_time(&self) -> Option<u64> {
        let Spring::Time { generator, .. } = &self.spring else { return None };
        let id = generator.quick()?;
        self.feed(generator);
        Some(id)
    }

    /// What comes of a miss, if anything does: it may hold a number after all.
    fn after(&self, miss: Option<Miss>) -> Option<Taken> {
        match (&self.spring, miss) {
            (Spring::Numbers(buffer), Some(miss)) => buffer.after(miss)?.ok(),
            _ => None,
        }
    }

    /// One number after a miss of [`Well::quick`]; waits until the deadline at most.
    #[cold]
    pub(crate) fn lease_after(&self, miss: Option<Miss>) -> Result<Taken> {
        self.after(miss).map_or_else(|| self.lease(1), Ok)
    }

    /// One number after a miss of [`Well::quick`], or why not, at once.
    #[cold]
    pub(crate) fn try_take_after(&self, miss: Option<Miss>) -> Result<Taken> {
        self.after(miss).map_or_else(|| self.try_take(1), Ok)
    }

    /// One number; waits until `deadline` at most.
    #[inline]
    pub(crate) fn next(&self) -> Result<u64> {
        match &self.spring {
            Spring::Numbers(buffer) => match buffer.take_one() {
                Ok(number) => Ok(number),
                Err(miss) => self.lease_after(Some(miss)).map(|taken| taken.lo),
            },
            Spring::Time { generator, .. } => match generator.try_next() {
                Ok(id) => {
                    self.feed(generator);
                    Ok(id)
                }
                Err(_) => self.wait_for_time(generator, &mut [0], self.give_up_at()).map(|(_, id)| id),
            },
        }
    }

    /// One number, or why not, at once.
    #[inline]
    pub fn try_next(&self) -> Result<u64> {
        match &self.spring {
            Spring::Numbers(buffer) => match buffer.take_one() {
                Ok(number) => Ok(number),
                Err(miss) => self.try_take_after(Some(miss)).map(|taken| taken.lo),
            },
            Spring::Time { generator, .. } => match generator.try_next() {
                Ok(id) => {
                    self.feed(generator);
                    Ok(id)
                }
                Err(refusal) => Err(self.time_error(generator, refusal)),
            },
        }
    }

    /// Up to `want` numbers, or why not, at once.
    pub fn try_take(&self, want: u64) -> Result<Taken> {
        self.try_take_of(want, 1, want)
    }

    /// Up to `want` numbers once `enough` are in memory, or as many as memory can hold; else why not, at once, and the
    /// keeper reserves what lacks.
    pub(crate) fn try_take_enough(&self, want: u64, enough: u64) -> Result<Taken> {
        self.try_take_of(want, enough, enough)
    }

    fn try_take_of(&self, want: u64, enough: u64, ask: u64) -> Result<Taken> {
        let buffer = self.buffer()?;
        if enough <= 1 || buffer.has_at_least(enough) {
            match buffer.take(want) {
                Ok(taken) => return Ok(taken),
                Err(TakeError::Closed) => return Err(self.closed()),
                Err(TakeError::Empty) => {}
            }
        }
        // ordering: Relaxed — `Waker::wake` publishes it.
        self.asked.fetch_max(ask.max(1), Ordering::Relaxed);
        // What stands before the keeper hears of it: the same call in the same state has the same answer.
        let refusal = self.not_ready(enough);
        self.waker.wake();
        Err(refusal)
    }

    /// The date part that belongs to what was taken; `None` if its segment is gone and the number with it.
    pub fn prefix(&self, taken: &Taken) -> Option<Prefix> {
        match &self.spring {
            Spring::Numbers(buffer) => buffer.prefix(taken).map(|(_, prefix)| prefix),
            Spring::Time { .. } => None,
        }
    }

    pub(crate) fn buffer(&self) -> Result<&Buffer> {
        match &self.spring {
            Spring::Numbers(buffer) => Ok(buffer),
            Spring::Time { .. } => Err(Error::argument(format!(
                "`{}` has no ranges to lease; take ids one by one or in batches",
                self.spec.label
            ))),
        }
    }
}
