//! The callers of one source: how they wake the keeper, wait for it, and learn from its last error why there is nothing.

pub(crate) mod counters;
pub(crate) mod notifier;
pub(crate) mod waker;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Code, Error, Result};
use crate::spec::Spec;
use crate::time::{Clock, Now};

use counters::Counters;
use notifier::RegisteredCallers;
use waker::{ReadyQueue, Waker};

/// The pause that a caller is told when nothing better is known: a little more than a round trip.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(1);

/// What a source shares with its callers beside its numbers.
pub(crate) struct Callers {
    /// What the source is.
    pub(crate) spec: Arc<Spec>,
    /// Never used twice in a process: a block remembers its source by it.
    pub(crate) id: u64,
    pub(crate) counters: Counters,
    pub(crate) waker: Arc<Waker>,
    pub(crate) clock: Clock,
    /// Those that wait without a thread of their own.
    pub(crate) registered: RegisteredCallers,
    last_error: Mutex<LastError>,
    changed: Condvar,
}

/// Why there is nothing right now, as the keeper posted it last.
#[derive(Default)]
pub(crate) struct LastError {
    posted: Option<Posted>,
    /// Errors of single counters of a bank.
    of_counters: BTreeMap<u32, Posted>,
    /// How many of them there were after the last clearing.
    kept: usize,
    /// Counts posts, so that a caller recognises a post that came after its call.
    count: u64,
}

struct Posted {
    error: Error,
    /// When it was posted, on the wall clock.
    wall_ms: i64,
    /// When the keeper tries again, on the boot clock of the mill, which may be a manual one.
    retry_at_ms: u64,
    count: u64,
}

/// When a call gives up: its deadline begins with its first wait. A call that finds its ids in memory reads no clock.
#[derive(Default)]
pub(crate) struct GiveUpAt(Option<Instant>);

/// A caller that waits: for how many numbers, and until when.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    /// How many numbers the caller needs.
    pub(crate) enough: u64,
    pub(crate) give_up_at: Instant,
    /// How many errors had been posted before the call.
    errors_before: u64,
    /// The counter of a bank that it waits for.
    counter: Option<u32>,
}

/// A caller that waits for numbers tries again after this long at the latest, even if a wake-up was lost.
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// How long a caller sleeps at most while it waits for the clock, which may be set right meanwhile.
pub(crate) const CLOCK_NAP: Duration = Duration::from_millis(100);

/// From so many counters with an error on, those whose rest is over are cleared now and then. A counter that rests keeps its error: without it
/// the counter would be asked for without a rest.
const CLEARED_FROM: usize = 1_024;

impl LastError {
    fn new_post(&mut self, error: Error, now: Now) -> Posted {
        self.count += 1;
        let wait = error.retry_after.unwrap_or(ROUND_TRIP);
        Posted {
            error,
            wall_ms: now.wall_ms,
            retry_at_ms: now.boot_ms.saturating_add(wait.as_millis() as u64),
            count: self.count,
        }
    }

    /// The error that holds for callers of this counter.
    fn for_counter(&self, counter: Option<u32>) -> Option<&Posted> {
        let own = counter.and_then(|counter| self.of_counters.get(&counter));
        own.into_iter().chain(&self.posted).max_by_key(|posted| posted.count)
    }
}

static IDS: AtomicU64 = AtomicU64::new(1);

impl Callers {
    pub(crate) fn new(spec: Arc<Spec>, ready: Arc<ReadyQueue>, index: usize, clock: Clock) -> Self {
        Callers {
            spec,
            // ordering: Relaxed — only uniqueness matters.
            id: IDS.fetch_add(1, Ordering::Relaxed),
            counters: Counters::default(),
            waker: Arc::new(Waker::new(ready, index)),
            clock,
            registered: RegisteredCallers::default(),
            last_error: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, LastError> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A caller begins to wait.
    pub(crate) fn begin_wait(&self, enough: u64, give_up_at: &mut GiveUpAt) -> Waiting {
        self.begin_wait_of(None, enough, give_up_at)
    }

    /// A caller begins to wait for a counter of a bank.
    pub(crate) fn begin_wait_of(
        &self,
        counter: Option<u32>,
        enough: u64,
        give_up_at: &mut GiveUpAt,
    ) -> Waiting {
        let give_up_at = *give_up_at.0.get_or_insert_with(|| Instant::now() + self.spec.deadline);
        Waiting { enough, give_up_at, errors_before: self.lock().count, counter }
    }

    /// Sleeps until the keeper has news, or for `pause`.
    pub(crate) fn sleep<'a>(
        &'a self,
        last_error: MutexGuard<'a, LastError>,
        pause: Duration,
    ) -> MutexGuard<'a, LastError> {
        self.changed.wait_timeout(last_error, pause).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until `take` finds numbers, with what it takes, or until the caller gives up. Before each sleep `ask` tells the keeper
    /// that the caller lacks numbers, and `awake` takes that back afterwards. `left` says how many numbers are in memory.
    ///
    /// All run under the lock of the last error, so no news of the keeper is missed between a try and the sleep. The keeper takes this
    /// lock while it holds others; so `take`, `ask`, `awake` and `left` must take none of those.
    #[cold]
    pub(crate) fn wait<T>(
        &self,
        waiting: Waiting,
        take: impl Fn() -> Result<Option<T>>,
        left: impl Fn() -> u64,
        ask: impl Fn(),
        awake: impl Fn(),
    ) -> Result<T> {
        let mut last_error = self.lock();
        loop {
            if let Some(taken) = take()? {
                return Ok(taken);
            }
            if let Some(error) = self.give_up(&last_error, waiting, &left) {
                return Err(error);
            }
            ask();
            let until_deadline = waiting.give_up_at.saturating_duration_since(Instant::now());
            last_error = self.sleep(last_error, until_deadline.min(LONGEST_NAP));
            awake();
        }
    }

    /// The error with which a waiting caller gives up now; `None`: it goes on waiting. `left` says how many
    /// numbers are in memory.
    pub(crate) fn give_up(
        &self,
        last_error: &LastError,
        waiting: Waiting,
        left: impl FnOnce() -> u64,
    ) -> Option<Error> {
        let now = Instant::now();
        let is_late = now >= waiting.give_up_at;
        let Some(posted) = last_error.for_counter(waiting.counter) else {
            return is_late.then(|| self.deadline_passed());
        };
        let retry_in = self.retry_in(posted);
        let may_end = matches!(posted.error.code, Code::StoreUnavailable | Code::NoWorkerFree);
        let is_hopeless = if may_end && !posted.error.is_told_at_once {
            // An outage may end within the deadline, and so may another process's lease.
            now + retry_in >= waiting.give_up_at
        } else {
            // Any other error holds until the keeper tries again.
            posted.count > waiting.errors_before || !retry_in.is_zero()
        };
        (is_hopeless || is_late).then(|| self.error_of(posted, retry_in, waiting.enough, left))
    }

    /// The posted error for a caller who needs `enough` numbers.
    fn error_of(
        &self,
        posted: &Posted,
        retry_in: Duration,
        enough: u64,
        left: impl FnOnce() -> u64,
    ) -> Error {
        let mut error = posted.error.clone();
        error.retry_after = match error.code {
            Code::Exhausted | Code::NumberOverflow => {
                let left = left();
                if (1..enough).contains(&left) {
                    error.message = format!(
                        "`{}` has {left} numbers left, and {enough} more were asked for; ask for fewer at a time: {}",
                        self.spec.label, error.message
                    );
                }
                self.until_next_period(posted, retry_in)
            }
            _ => Some(retry_in.max(ROUND_TRIP)),
        };
        error
    }

    /// How long until the exhausted period ends and the next one begins; `None` for a source without periods.
    fn until_next_period(&self, posted: &Posted, retry_in: Duration) -> Option<Duration> {
        let pattern = self.spec.pattern()?;
        let end = pattern.period_end_ms(pattern.period_at(posted.wall_ms))?;
        let left = Duration::from_millis(end.saturating_sub(self.clock.wall_ms()).max(0) as u64);
        Some(left.max(retry_in).max(ROUND_TRIP))
    }

    fn retry_in(&self, posted: &Posted) -> Duration {
        Duration::from_millis(posted.retry_at_ms.saturating_sub(self.clock.boot_ms()))
    }

    /// Why a caller who does not wait gets nothing.
    pub(crate) fn not_ready(&self, enough: u64, left: impl FnOnce() -> u64) -> Error {
        self.not_ready_of(None, enough, left)
    }

    /// As [`Callers::not_ready`], for a counter of a bank.
    pub(crate) fn not_ready_of(
        &self,
        counter: Option<u32>,
        enough: u64,
        left: impl FnOnce() -> u64,
    ) -> Error {
        let last_error = self.lock();
        match last_error.for_counter(counter).map(|posted| (posted, self.retry_in(posted))) {
            Some((posted, retry_in)) if !retry_in.is_zero() => self.error_of(posted, retry_in, enough, left),
            _ => Error::new(Code::NotReady, format!("no number of `{}` is in memory yet", self.spec.label))
                .after(ROUND_TRIP),
        }
    }

    fn deadline_passed(&self) -> Error {
        Error::new(
            Code::Deadline,
            format!(
                "no number for `{}` within {} ms: the store has not answered yet; try again, or give the source a longer deadline=",
                self.spec.label,
                self.spec.deadline.as_millis()
            ),
        )
        .after(Duration::from_millis(50))
    }

    pub(crate) fn closed(&self) -> Error {
        Error::new(Code::Closed, format!("the mill of `{}` was closed", self.spec.label))
    }

    /// The error that callers get now, if the keeper posted one.
    pub(crate) fn posted_error(&self) -> Option<Error> {
        let last_error = self.lock();
        let posted = last_error.posted.as_ref().or_else(|| last_error.of_counters.values().next());
        posted.map(|posted| posted.error.clone())
    }

    /// The keeper failed: callers get this error until it tries again.
    pub(crate) fn post(&self, error: Error, now: Now) {
        let mut last_error = self.lock();
        last_error.posted = Some(last_error.new_post(error, now));
        drop(last_error);
        self.wake_all();
    }

    /// The keeper failed for these counters of a bank: their callers get the errors until it tries again.
    pub(crate) fn post_each(&self, errors: Vec<(u32, Error)>, now: Now) {
        if errors.is_empty() {
            return;
        }
        let counters: Vec<u32> = errors.iter().map(|(counter, _)| *counter).collect();
        let mut last_error = self.lock();
        for (counter, error) in errors {
            let posted = last_error.new_post(error, now);
            last_error.of_counters.insert(counter, posted);
        }
        // Not each time: a bank has up to 65536 counters.
        if last_error.of_counters.len() >= CLEARED_FROM.max(2 * last_error.kept) {
            last_error.of_counters.retain(|_, posted| posted.retry_at_ms > now.boot_ms);
            last_error.kept = last_error.of_counters.len();
        }
        drop(last_error);
        self.wake(&counters);
    }

    /// The boot time until which a counter of a bank that was refused is not tried again; `None`: it may be tried now.
    pub(crate) fn rests_until(&self, counter: u32, now: Now) -> Option<u64> {
        let last_error = self.lock();
        let retry_at_ms = last_error.of_counters.get(&counter).map(|posted| posted.retry_at_ms);
        retry_at_ms.filter(|retry_at_ms| *retry_at_ms > now.boot_ms)
    }

    /// The keeper brought numbers of these counters of a bank: wakes their callers.
    pub(crate) fn supplied_of(&self, counters: &[u32]) {
        let mut last_error = self.lock();
        last_error.posted = None;
        if !last_error.of_counters.is_empty() {
            for counter in counters {
                last_error.of_counters.remove(counter);
            }
        }
        drop(last_error);
        self.wake(counters);
    }

    /// There are news for the callers of these counters of a bank. Threads that sleep share one condition.
    fn wake(&self, counters: &[u32]) {
        self.changed.notify_all();
        self.registered.notify(counters);
    }

    fn wake_all(&self) {
        self.changed.notify_all();
        self.registered.notify_all();
    }

    /// The keeper brought numbers: wakes every waiting caller.
    pub(crate) fn supplied(&self) {
        self.lock().posted = None;
        self.wake_all();
    }

    /// Wakes every waiting caller: the clock was moved, or the source closed.
    pub(crate) fn notify(&self) {
        // A caller that holds the lock has not begun to sleep, and would miss this.
        drop(self.lock());
        self.wake_all();
    }

    /// Wakes the callers of these counters of a bank, which have numbers in memory.
    pub(crate) fn notify_of(&self, counters: &[u32]) {
        // As in `notify`.
        drop(self.lock());
        self.wake(counters);
    }

    /// What a caller with a wait of its own does that was refused after `waited`: the pause before its next try, or the error
    /// to give up with. It decides as a caller who sleeps here. A wait is counted at its beginning: with a `waited` of zero.
    ///
    /// A caller that `is_registered` learns of numbers, or of a worker, without looking: where it lacks nothing else, its pause ends with
    /// the deadline.
    pub(crate) fn patience(&self, refused: Error, waited: Duration, is_registered: bool) -> Result<Duration> {
        let pause = self.pause_after(refused, waited, is_registered)?;
        if waited.is_zero() {
            Counters::add(&self.counters.waits, 1);
        }
        Ok(pause)
    }

    fn pause_after(&self, refused: Error, waited: Duration, is_registered: bool) -> Result<Duration> {
        let by_clock = self.spec.snowflake.is_some();
        let left = self.spec.deadline.saturating_sub(waited);
        let waits = match refused.code {
            _ if refused.is_told_at_once => false,
            Code::NotReady | Code::StoreUnavailable | Code::NoWorkerFree => true,
            // A snowflake waits for its clock, and for another lease; a period that is over does not come back.
            Code::ClockBehind | Code::LeaseLost => by_clock,
            _ => false,
        };
        let Some(retry_after) = refused.retry_after.filter(|_| waits) else { return Err(refused) };
        let pause = retry_after.max(ROUND_TRIP);
        if pause < left {
            let comes_with_news = is_registered && matches!(refused.code, Code::NotReady | Code::LeaseLost);
            return Ok(if comes_with_news {
                left
            } else if by_clock {
                pause.min(CLOCK_NAP)
            } else {
                pause
            });
        }
        match refused.code {
            // A refill may arrive at any moment, so the rest of the deadline is worth waiting for.
            Code::NotReady if !left.is_zero() => Ok(left),
            // The message says what the clock lacks; this caller was ready to wait, and did.
            Code::NotReady if by_clock => Err(Error { code: Code::Deadline, ..refused }),
            Code::NotReady => Err(self.deadline_passed()),
            _ => Err(refused),
        }
    }
}
