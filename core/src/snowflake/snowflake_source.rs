//! A source of snowflakes: what its callers and its keeper share.
//!
//! Callers wait for the clock, and for the keeper where the stored mark runs low.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::callers::counters::Counters;
use crate::callers::waker::ReadyQueue;
use crate::callers::{CLOCK_NAP, Callers, GiveUpAt, ROUND_TRIP};
use crate::error::{Code, Error, Result};
use crate::process::revocation::RevocationWord;
use crate::spec::{SnowflakeSpec, Spec, Worker};
use crate::time::{Clock, Now};

use super::{Generator, Refusal, SnowflakeAction, SnowflakeView, Why, WorkerView};

/// How long a source rests whose stored mark is ahead of this machine's clock. The first caller after that has the store asked
/// again: the clock may have been set right, or the mark repaired.
const START_REST: Duration = Duration::from_millis(200);

/// How long a caller sleeps at most while the keeper stores a mark: the keeper may have finished between its try and its sleep.
const KEEPER_NAP: Duration = Duration::from_millis(20);

/// One source of snowflakes.
pub struct SnowflakeSource {
    pub(crate) callers: Callers,
    pub(crate) generator: Generator,
    word: RevocationWord,
    /// The generator was started above the stored mark.
    started: AtomicBool,
    /// Before this boot time the mark is not asked for again.
    start_again_ms: AtomicU64,
    /// The store finds the worker.
    finds_worker: bool,
    /// The mark of a worker that is given is kept in the store.
    is_marked: bool,
    /// A caller found no worker.
    wants_worker: AtomicBool,
    /// The boot time at which the lease ends; 0 where there is none.
    lease_until_ms: AtomicU64,
    /// The boot time of the last renewal.
    renewed_ms: AtomicU64,
}

impl std::fmt::Debug for SnowflakeSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnowflakeSource").field("source", &self.callers.spec.label).finish_non_exhaustive()
    }
}

/// Whether only the keeper can help.
fn needs_keeper(refusal: Refusal) -> bool {
    matches!(refusal, Refusal::Lapsed | Refusal::NotReady { why: Why::Start | Why::Mark, .. })
}

impl SnowflakeSource {
    /// A source without ids yet.
    pub(crate) fn new(
        spec: Arc<Spec>,
        snowflake: SnowflakeSpec,
        ready: Arc<ReadyQueue>,
        index: usize,
        clock: Clock,
    ) -> Result<Self> {
        let SnowflakeSpec { layout, clock_back, max_lead_ms, .. } = snowflake;
        let generator = match snowflake.worker {
            Worker::Fixed(worker) => Generator::new(layout, worker, clock_back, max_lead_ms, clock.clone()),
            Worker::Leased { .. } | Worker::Disposable => {
                Generator::leased(layout, clock_back, max_lead_ms, clock.clone())
            }
        };
        Ok(SnowflakeSource {
            generator: generator?,
            finds_worker: snowflake.worker.kind().is_some(),
            is_marked: snowflake.is_marked,
            wants_worker: AtomicBool::new(false),
            lease_until_ms: AtomicU64::new(0),
            renewed_ms: AtomicU64::new(0),
            callers: Callers::new(spec, ready, index, clock),
            word: RevocationWord::new(),
            started: AtomicBool::new(false),
            start_again_ms: AtomicU64::new(0),
        })
    }

    /// The word that is zero in a forked child.
    #[inline]
    pub(crate) fn word(&self) -> &RevocationWord {
        &self.word
    }

    /// Whether [`SnowflakeSource::quick`] may be used.
    pub(crate) fn is_plain(&self) -> bool {
        self.generator.is_plain()
    }

    /// One id without waiting, of a plain source; `None` sends the caller to [`SnowflakeSource::next`], which says why or waits.
    #[expect(
        clippy::inline_always,
        reason = "registers that a call saves are stores, and the locked instruction waits for them"
    )]
    #[inline(always)]
    pub(crate) fn quick(&self) -> Option<u64> {
        match self.generator.quick() {
            Ok(id) => Some(id),
            Err(taken) => self.slow(taken),
        }
    }

    #[cold]
    #[inline(never)]
    fn slow(&self, taken: Option<u64>) -> Option<u64> {
        let id = self.generator.slow(taken)?;
        self.wake_if_low();
        Some(id)
    }

    /// Wakes the keeper where the mark runs low.
    #[inline]
    fn wake_if_low(&self) {
        if self.generator.wants_keeper() {
            self.callers.waker.wake();
        }
    }

    /// One id; waits until the deadline at most.
    pub(crate) fn next(&self) -> Result<u64> {
        match self.generator.try_next() {
            Ok(id) => {
                self.wake_if_low();
                Ok(id)
            }
            Err(_) => {
                let mut id = [0];
                self.wait_for(&mut id, &mut GiveUpAt::default())?;
                Ok(id[0])
            }
        }
    }

    /// One id, or why not, at once.
    pub fn try_next(&self) -> Result<u64> {
        match self.generator.try_next() {
            Ok(id) => {
                self.wake_if_low();
                Ok(id)
            }
            Err(refusal) => Err(self.error_of(refusal)),
        }
    }

    /// Fills the front of `out` with as many ids as there are right now and returns how many: at least one, or why not.
    pub(crate) fn try_fill(&self, out: &mut [u64]) -> Result<usize> {
        match self.generator.try_take(out) {
            Ok(count) => {
                self.wake_if_low();
                Ok(count)
            }
            Err(refusal) => Err(self.error_of(refusal)),
        }
    }

    /// Fills `out`, all of it or none; waits until the deadline.
    pub(crate) fn fill(&self, out: &mut [u64]) -> Result<()> {
        let mut give_up_at = GiveUpAt::default();
        let mut done = 0;
        while done < out.len() {
            match self.generator.try_take(&mut out[done..]) {
                Ok(count) => {
                    self.wake_if_low();
                    done += count;
                }
                Err(_) => done += self.wait_for(&mut out[done..], &mut give_up_at)?,
            }
        }
        Ok(())
    }

    /// A caller lacks a worker or a mark.
    fn wake_keeper(&self) {
        // ordering: Relaxed — the waker publishes it.
        self.wants_worker.store(true, Ordering::Relaxed);
        self.callers.waker.wake();
    }

    #[cold]
    fn error_of(&self, refusal: Refusal) -> Error {
        if needs_keeper(refusal) {
            let posted = self.callers.not_ready(1, || 0);
            self.wake_keeper();
            if posted.code != Code::NotReady {
                return posted;
            }
        }
        self.explain(refusal)
    }

    fn explain(&self, refusal: Refusal) -> Error {
        if refusal == Refusal::Closed {
            return self.callers.closed();
        }
        // Why a worker id was lost only the keeper knows.
        let posted = self.callers.posted_error().filter(|error| error.code == refusal.code());
        let mut error = posted.unwrap_or_else(|| self.generator.explain(refusal));
        error.retry_after = refusal.retry_after_ms().map(|ms| Duration::from_millis(ms).max(ROUND_TRIP));
        error
    }

    /// Waits until the generator gives at least one id; returns how many.
    #[cold]
    fn wait_for(&self, out: &mut [u64], give_up_at: &mut GiveUpAt) -> Result<usize> {
        let waiting = self.callers.begin_wait(1, give_up_at);
        let mut has_waited = false;
        loop {
            let refusal = match self.generator.try_take(out) {
                Ok(count) => {
                    self.wake_if_low();
                    return Ok(count);
                }
                Err(refusal) => refusal,
            };
            if !std::mem::replace(&mut has_waited, true) {
                Counters::add(&self.callers.counters.waits, 1);
            }
            let left = waiting.give_up_at.saturating_duration_since(Instant::now());
            let last_error = self.callers.lock();
            let pause = if needs_keeper(refusal) {
                if let Some(error) = self.callers.give_up(&last_error, waiting, || 0) {
                    return Err(error);
                }
                self.wake_keeper();
                left.min(KEEPER_NAP)
            } else {
                match refusal.retry_after_ms().map(Duration::from_millis) {
                    Some(pause) if pause < left => pause.clamp(Duration::from_micros(50), CLOCK_NAP),
                    _ => {
                        drop(last_error);
                        let mut error = self.explain(refusal);
                        if error.code == Code::NotReady {
                            // The caller was ready to wait, and did.
                            error.code = Code::Deadline;
                        }
                        return Err(error);
                    }
                }
            };
            drop(self.callers.sleep(last_error, pause));
        }
    }

    // ---- the keeper's side

    /// Whether the store has a mark of this source to keep.
    pub(crate) fn keeps_mark(&self) -> bool {
        !self.finds_worker && self.is_marked
    }

    /// Begins where nothing is stored: a restart is guarded by the clock alone.
    fn start_unmarked(&self) {
        let now = self.callers.clock.now();
        self.act(SnowflakeAction::Start(0), now);
        // ordering: Relaxed — written by the keeper itself.
        if self.started.load(Ordering::Relaxed) {
            self.act(SnowflakeAction::Mark(u64::MAX), now);
        }
    }

    /// What the planner decides by.
    pub(crate) fn view(&self) -> SnowflakeView {
        self.callers.waker.acknowledge();
        if self.finds_worker {
            let idle = self.has_no_worker();
            return SnowflakeView::Worker(WorkerView {
                wanted: self.take_wish() && idle,
                idle,
                mark: self.generator.mark(),
            });
        }
        // ordering: Relaxed — written by the keeper itself.
        let started = self.started.load(Ordering::Relaxed);
        // ordering: Relaxed — as above.
        let rests = self.callers.clock.boot_ms() < self.start_again_ms.load(Ordering::Relaxed);
        if !(self.is_marked || started || rests) {
            self.start_unmarked();
        }
        let wanted_mark = if !self.is_marked {
            None
        } else if started {
            self.generator.wanted_mark()
        } else if rests {
            // The mark was of no use; asked for again at once, it would be asked for without end.
            None
        } else {
            // Raising to 0 changes nothing and returns where the mark stands.
            Some(0)
        };
        SnowflakeView::Mark { wanted: wanted_mark, waiting: self.is_waited_for() }
    }

    /// Whether callers lack the first mark, or a worker.
    pub(crate) fn is_waited_for(&self) -> bool {
        if self.finds_worker {
            // ordering: Relaxed — the waker publishes it.
            let is_wanted = self.wants_worker.load(Ordering::Relaxed) || !self.callers.registered.is_empty();
            return is_wanted && self.has_no_worker();
        }
        self.generator.mark() == 0
    }

    /// Whether a caller wants a worker. Callers that sleep say so again and again, those that are registered once: so a call that gave up
    /// leases no worker.
    fn take_wish(&self) -> bool {
        // ordering: Relaxed — the waker publishes it.
        self.wants_worker.swap(false, Ordering::Relaxed) || !self.callers.registered.is_empty()
    }

    pub(crate) fn has_no_worker(&self) -> bool {
        self.generator.mark() == 0 || self.generator.has_lapsed()
    }

    /// Stops issuing ids if the lease is over by the boot clock; answers with the milliseconds until then, where there is a lease.
    pub(crate) fn expire(&self, now: Now) -> Option<u64> {
        // ordering: Acquire — pairs with the Release in `set_lease`.
        let until_ms = self.lease_until_ms.load(Ordering::Acquire);
        if until_ms == 0 || self.generator.has_lapsed() {
            return None;
        }
        if now.boot_ms >= until_ms {
            self.generator.lapse();
            self.callers.notify();
            return None;
        }
        Some(until_ms - now.boot_ms)
    }

    /// How long ago the lease was renewed, in milliseconds; `None` without a lease.
    pub(crate) fn lease_age_ms(&self) -> Option<u64> {
        // ordering: Relaxed — figures.
        let leased = self.lease_until_ms.load(Ordering::Relaxed) > 0 && !self.generator.has_lapsed();
        // ordering: Relaxed — as above.
        leased.then(|| self.callers.clock.boot_ms().saturating_sub(self.renewed_ms.load(Ordering::Relaxed)))
    }

    fn set_lease(&self, until_ms: u64, now: Now) {
        // ordering: Relaxed — a figure.
        self.renewed_ms.store(now.boot_ms, Ordering::Relaxed);
        // ordering: Release — pairs with the Acquire in `expire`.
        self.lease_until_ms.store(until_ms, Ordering::Release);
    }

    /// Carries out what the planner decided.
    pub(crate) fn act(&self, action: SnowflakeAction, now: Now) {
        match action {
            SnowflakeAction::Start(before) => match self.generator.start(before) {
                // ordering: Relaxed — read by the keeper itself.
                Ok(()) => self.started.store(true, Ordering::Relaxed),
                Err(error) => {
                    let again_ms = now.boot_ms + START_REST.as_millis() as u64;
                    // ordering: Relaxed — read by the keeper itself.
                    self.start_again_ms.store(again_ms, Ordering::Relaxed);
                    self.callers.post(error.after(START_REST), now);
                }
            },
            SnowflakeAction::Mark(mark) => {
                self.generator.raise_mark(mark);
                self.callers.supplied();
            }
            SnowflakeAction::Begin { worker, start, mark, until_ms, wall_ms } => {
                self.set_lease(until_ms, now);
                if let Err(error) = self.generator.begin(worker, start, wall_ms) {
                    self.callers.post(error.after(START_REST), now);
                    return;
                }
                self.generator.raise_mark(mark);
                // ordering: Relaxed — a caller that lacks a worker again sets it again.
                self.wants_worker.store(false, Ordering::Relaxed);
                self.callers.supplied();
            }
            SnowflakeAction::Renewed { mark, until_ms } => {
                self.set_lease(until_ms, now);
                self.generator.raise_mark(mark);
                self.callers.supplied();
            }
            SnowflakeAction::Lapse => {
                self.generator.lapse();
                self.callers.notify();
            }
        }
    }

    /// Callers who find nothing get this error; its retry hint is when the next try is due.
    pub(crate) fn fail(&self, error: Error, now: Now) {
        if error.code == Code::LeaseLost && !self.finds_worker {
            self.generator.revoke();
        }
        self.callers.post(error, now);
    }

    /// Closes for good. Returns the tick above every id, the lowest mark that covers them; `None` where no mark was stored.
    pub(crate) fn close(&self) -> Option<u64> {
        self.word.revoke();
        let above = self.generator.close().filter(|_| self.generator.mark() > 0);
        self.callers.notify();
        above
    }
}
