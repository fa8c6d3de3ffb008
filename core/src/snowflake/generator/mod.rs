//! The snowflake generator of one worker: lock-free, no system call and no allocation per id.
//!
//! One word, `next`, counts *positions*: upper bits the tick, lower bits the sequence. It never falls to a position that
//! was issued, and each is taken by one read-modify-write, so two calls can never get the same one; everything else
//! here is about *when* a position may be taken. The word is Twitter's (<https://github.com/twitter-archive/snowflake>)
//! `lastTimestamp` and `sequence` packed into one, counting ahead of the clock is uid-generator's
//! (<https://github.com/baidu/uid-generator>); the limits, the budget and the mark are our own.
//!
//! * **Fast path.** Below `limit`, and before the wall time `fresh_until`, one `fetch_add` is an id. The time is the
//!   kernel's coarse clock, an ordinary load from a page that the kernel keeps.
//! * **Slow path.** The precise clock is read, the word is moved up to the present tick, and `limit` is set to where the
//!   clock must be read again: at a low rate that is the very next id, at a high rate a sixteenth of a tick away.
//! * **Lead.** When the sequence of a tick is used up, or the wall clock steps back, counting goes on ahead of the clock
//!   by at most `max_lead`. After that `limit` is 0 and callers *load* it instead of adding to the word.
//! * **Mark.** The store holds a tick under which everything may have been issued. An id that leads the clock must lie
//!   under it, so a successor that starts from the stored mark after a crash starts above every id that led.
//!
//! `word` takes positions, `mark` is the keeper's side of it, `spread` makes low digits even, `refusal` says why not.

mod mark;
mod refusal;
mod spread;
mod word;

#[cfg(all(test, not(loom)))]
mod tests;

use std::sync::atomic::AtomicI64;
use std::time::Duration;

use crate::error::{Code, Error, Result};
use crate::layout::scatter::Scatter;
use crate::layout::{Layout, rfc3339};
use crate::process::random;
use crate::process::sync::Ordering;
use crate::time::{Clock, Now, Stamp};

pub use refusal::{ClockBack, Refusal, Why};
pub(super) use word::Core;
#[cfg(all(test, loom))]
pub(super) use word::LAPSED;
#[cfg(not(all(test, loom)))]
use word::LAPSED;
use word::{CLOSED, REVOKED};

/// Where the time comes from. The model checker brings its own.
pub(super) trait Time {
    /// Cheap, a few milliseconds old at most, never ahead of `wall_ms`.
    fn coarse_stamp(&self) -> Stamp;
    /// Precise.
    fn wall_ms(&self) -> i64;
    /// What this machine's clock shows, where `wall_ms` does not follow it.
    fn shown_ms(&self) -> i64 {
        self.wall_ms()
    }
    /// Never falls.
    fn boot_ms(&self) -> u64;
}

impl Time for Clock {
    #[inline]
    fn coarse_stamp(&self) -> Stamp {
        Clock::coarse_stamp(self)
    }
    fn wall_ms(&self) -> i64 {
        Clock::wall_ms(self)
    }
    fn boot_ms(&self) -> u64 {
        Clock::boot_ms(self)
    }
}

/// A snowflake generator with a fixed worker. Shared by reference; every call is lock-free.
///
/// It begins empty. The keeper reads the stored mark and calls [`Generator::start`] with it, stores what
/// [`Generator::wanted_mark`] asks for, and reports that with [`Generator::raise_mark`]; from then on there are ids.
///
/// ```
/// use keymill::Layout;
/// use keymill::simulation::{ClockBack, Generator};
/// use keymill::time::Clock;
///
/// let layout = Layout::parse("twitter", "2025-01-01")?;
/// let generator = Generator::new(layout, 5, ClockBack::Borrow, 3000, Clock::System)?;
/// generator.start(0)?;
/// generator.raise_mark(generator.wanted_mark().unwrap_or(0));
/// let id = generator.try_next().map_err(|refusal| generator.explain(refusal))?;
/// assert_eq!(layout.unpack(id).worker, 5);
/// # Ok::<(), keymill::Error>(())
/// ```
#[derive(Debug)]
pub struct Generator {
    core: Core,
    clock: Clock,
    /// The latest wall time that marks are made of, minus boot time. Written and read by the keeper alone.
    latest: AtomicI64,
}

/// What the sequences of a generator begin with, beside its worker: another number in each process and with each lease. Where the
/// clock is set by hand, ids are the same in each run.
fn salt(clock: &Clock) -> u64 {
    match clock {
        Clock::System => random::u64(),
        Clock::Manual(_) => 0,
    }
}

/// The clock as marks are made of it.
struct Limited<'g> {
    clock: &'g Clock,
    latest: i64,
}

impl Time for Limited<'_> {
    fn coarse_stamp(&self) -> Stamp {
        self.clock.coarse_stamp()
    }
    fn wall_ms(&self) -> i64 {
        self.clock.wall_ms().min(self.latest.saturating_add_unsigned(self.clock.boot_ms()))
    }
    fn shown_ms(&self) -> i64 {
        self.clock.wall_ms()
    }
    fn boot_ms(&self) -> u64 {
        self.clock.boot_ms()
    }
}

impl Generator {
    /// A generator that waits for [`Generator::start`].
    ///
    /// `max_lead_ms` is cut to whole ticks. `INVALID_CONFIG` when the worker does not fit the layout.
    pub fn new(
        layout: Layout,
        worker: u64,
        clock_back: ClockBack,
        max_lead_ms: u64,
        clock: Clock,
    ) -> Result<Generator> {
        let salt = salt(&clock);
        Ok(Generator::over(Core::new(layout, Some(worker), clock_back, max_lead_ms, salt)?, clock))
    }

    /// A generator whose workers are leased: it waits for [`Generator::begin`].
    pub(crate) fn leased(
        layout: Layout,
        clock_back: ClockBack,
        max_lead_ms: u64,
        clock: Clock,
    ) -> Result<Generator> {
        // Each worker begins with a salt of its own.
        Ok(Generator::over(Core::new(layout, None, clock_back, max_lead_ms, 0)?, clock))
    }

    fn over(core: Core, clock: Clock) -> Generator {
        Generator { core, clock, latest: AtomicI64::new(i64::MAX) }
    }

    /// Marks are made of wall times up to this one, as it goes on by the boot clock; `None`: of any.
    pub(crate) fn limit_marks(&self, latest_ms: Option<i64>, now: Now) {
        let latest = latest_ms.map_or(i64::MAX, |ms| ms.saturating_sub_unsigned(now.boot_ms));
        // ordering: Relaxed — the keeper alone reads it.
        self.latest.store(latest, Ordering::Relaxed);
    }

    fn limited(&self) -> Limited<'_> {
        // ordering: Relaxed — written by the keeper itself.
        Limited { clock: &self.clock, latest: self.latest.load(Ordering::Relaxed) }
    }

    /// Begins with a leased worker at the tick `start`, or later, but not above `latest_ms` where the wall clock is ahead of that. There
    /// are ids below the mark that is raised next. Only where the generator never began or has lapsed.
    pub(crate) fn begin(&self, worker: u64, start: u64, latest_ms: i64) -> Result<()> {
        self.core.begin((worker, salt(&self.clock)), start, latest_ms, &self.clock)
    }

    /// The lease is over: later calls answer `LEASE_LOST` until the next worker begins.
    pub(crate) fn lapse(&self) {
        self.core.end(LAPSED);
    }

    /// Whether the lease is over and no next worker has begun.
    pub(crate) fn has_lapsed(&self) -> bool {
        self.core.has_lapsed()
    }

    /// The next id, or why there is none now. Never blocks.
    #[inline]
    pub fn try_next(&self) -> std::result::Result<u64, Refusal> {
        self.core.next(&self.clock)
    }

    /// Whether [`Generator::quick`] may be used: ids are not scattered, and the clock is the machine's.
    pub(crate) fn is_plain(&self) -> bool {
        self.core.layout.scatter() == Scatter::None && matches!(self.clock, Clock::System)
    }

    /// The next id of a plain generator, returned in registers: a [`Result`] of `try_next` goes through memory, and the locked
    /// instruction of the next id waits for that store. `Err`: [`Generator::slow`] has one, or [`Generator::try_next`] says why not.
    #[expect(
        clippy::inline_always,
        reason = "registers that a call saves are stores, and the locked instruction waits for them"
    )]
    #[inline(always)]
    pub(crate) fn quick(&self) -> std::result::Result<u64, Option<u64>> {
        self.core.quick(&Clock::System)
    }

    /// The next id after a miss of [`Generator::quick`], with the position that it took.
    pub(crate) fn slow(&self, taken: Option<u64>) -> Option<u64> {
        self.core.slow_next(taken, &self.clock).ok()
    }

    /// Fills the front of `out` with rising ids and returns how many: as many as may be issued now, at least one. For an empty
    /// `out` that is 0.
    pub fn try_take(&self, out: &mut [u64]) -> std::result::Result<usize, Refusal> {
        self.core.take(out, &self.clock)
    }

    /// Begins above `previous_mark`, the tick that the store holds for this worker (0 when it holds none).
    ///
    /// There are ids after the first [`Generator::raise_mark`]. `CLOCK_BEHIND`, with both times, when the stored mark is ahead of
    /// this machine's clock by more than `max_lead` and the third that overload adds, or the clock is before the epoch;
    /// `LAYOUT_ENDED` after the last tick. A second call only moves up.
    pub fn start(&self, previous_mark: u64) -> Result<()> {
        self.core.start(previous_mark, &self.limited())
    }

    /// The tick that the keeper should store now and then pass to [`Generator::raise_mark`]; `None` while the stored one
    /// is good enough. It is asked for when less than two thirds of `max_lead` is left under the mark and ids were issued
    /// since the last one, so an idle generator writes nothing; while the lead is in use, it reaches a third of `max_lead`
    /// beyond it, so overload writes about every sixth of `max_lead`. Ask some times in each third of `max_lead`.
    ///
    /// As long as the keeper does not raise the mark, time in the ids goes on by the boot clock.
    #[must_use]
    pub fn wanted_mark(&self) -> Option<u64> {
        self.core.wanted_mark(&self.limited())
    }

    /// Whether [`Generator::wanted_mark`] probably returns a mark, so that a caller can wake the keeper and the keeper need not poll:
    /// after each id of [`Generator::slow`], which every tick in use has.
    #[inline]
    #[must_use]
    pub fn wants_keeper(&self) -> bool {
        // ordering: Relaxed — a hint; the keeper decides by `wanted_mark`.
        self.core.gate.hungry.load(Ordering::Relaxed)
    }

    /// The store now holds `tick`: every id below it may be issued. Lower values than before change nothing.
    /// `u64::MAX` means that nothing is stored and a restart is guarded by the clock alone.
    pub fn raise_mark(&self, tick: u64) {
        self.core.raise_mark(tick, &self.limited());
    }

    /// The mark that was raised last; 0 before the first.
    #[must_use]
    pub fn mark(&self) -> u64 {
        // ordering: Relaxed — a figure for status pages.
        self.core.slow.mark.load(Ordering::Relaxed)
    }

    /// How far the next id's time is ahead of the wall clock; negative when the generator is idle.
    #[must_use]
    pub fn lead_ms(&self) -> i64 {
        let position = self.core.position();
        self.core
            .layout
            .wall_ms_of(position >> self.core.layout.seq_bits())
            .saturating_sub(self.clock.wall_ms())
    }

    /// The layout.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.core.layout
    }

    /// The worker.
    #[must_use]
    pub fn worker(&self) -> u64 {
        self.core.worker()
    }

    /// How many ids were issued; calls in flight may be missing or counted early.
    #[must_use]
    pub fn issued(&self) -> u64 {
        // ordering: Relaxed — a figure for metrics.
        self.core.position().saturating_sub(self.core.slow.skipped.load(Ordering::Relaxed))
    }

    /// Ends the generator: every later call answers `CLOSED`. Returns the tick above every id that was or will be
    /// issued, for the keeper to store as the last mark so that a restart need not skip the rest; `None` when it was
    /// over already or never began. A call in flight either has an id below it or is refused.
    pub fn close(&self) -> Option<u64> {
        self.core.end(CLOSED)
    }

    /// As [`Generator::close`], but later calls answer `LEASE_LOST`: another process has the worker id.
    pub fn revoke(&self) -> Option<u64> {
        self.core.end(REVOKED)
    }

    /// The error of a refusal, with its remedy.
    #[must_use]
    pub fn explain(&self, refusal: Refusal) -> Error {
        let worker = self.core.worker();
        let layout = &self.core.layout;
        let lead = self.core.max_lead_ms;
        let error = match refusal {
            Refusal::Closed => Error::new(Code::Closed, "the generator is closed"),
            Refusal::LeaseLost => Error::new(
                Code::LeaseLost,
                format!(
                    "worker {worker} is no longer this process's own; give each process a worker of its own"
                ),
            ),
            Refusal::Lapsed => Error::new(
                Code::LeaseLost,
                format!("the lease of worker {worker} is over; another worker is being leased"),
            ),
            Refusal::LayoutEnded => layout.ended(),
            Refusal::NotReady { why: Why::Start, .. } if self.core.leased => {
                Error::new(Code::NotReady, format!("no worker is leased yet (layout {layout})"))
            }
            Refusal::NotReady { why, .. } => {
                let why = match why {
                    Why::Start => "the stored high-water mark has not been read yet",
                    Why::Lead => "all ids of this moment are issued",
                    Why::Mark => "the stored high-water mark is being raised",
                    Why::Clock => "the wall clock stepped back and clock_back=wait waits for it",
                };
                Error::new(
                    Code::NotReady,
                    format!("worker {worker}: {why} (layout {layout}, max_lead {lead} ms)"),
                )
            }
            Refusal::ClockBehind { wall_ms, needed_ms } => Error::new(
                Code::ClockBehind,
                format!(
                    "worker {worker}: this machine's clock shows {} but ids were issued that need at least {} (max_lead {lead} ms); set the clock right or wait for it",
                    rfc3339(wall_ms),
                    rfc3339(needed_ms)
                ),
            ),
        };
        match refusal.retry_after_ms() {
            Some(ms) => error.after(Duration::from_millis(ms)),
            None => error,
        }
    }
}
