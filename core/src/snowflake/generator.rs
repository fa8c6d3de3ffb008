//! The snowflake generator of one worker: lock-free, no system call and no allocation per id. (floor 1)
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
//!   under it, so whoever starts from the stored mark after a crash starts above every id that led.

use std::fmt;
// Counts and estimates that may have any value without harm: kept out of the model checker, whose work they would
// multiply by every stale value they can show.
use std::sync::atomic::AtomicU64 as Figure;
use std::time::Duration;

use super::layout::{Layout, rfc3339};
use crate::error::{Code, Error, Result};
use crate::sync::{AtomicBool, AtomicU64, CachePadded, Ordering};
use crate::time::{Clock, Stamp};

/// At and above this, `next` counts nothing: the generator is closed. Positions are below it, because a layout has at
/// most 63 bits; the calls that may still add to the word are far fewer than the room above.
const CLOSED: u64 = 1 << 63;

/// As `CLOSED`, and the reason is that the worker id went to somebody else.
const REVOKED: u64 = CLOSED | 1 << 62;

/// Ids between two readings of the precise clock, at most. More would save nothing: 25 ns over 4096 ids is unmeasurable.
const MAX_BUDGET: u64 = 4096;

/// A budget is this part of what a tick is expected to need, so an id lags by about as much of a tick.
const BUDGETS_PER_TICK: u64 = 16;

/// Gaps are below 256: wider ones would not make residues modulo 128 more even.
const GAP_MASK: u64 = 255;

/// How soon to ask again when the answer is with the keeper, not with the clock.
const KEEPER_MS: u64 = 1;

/// What to do when the wall clock steps back.
///
/// Using up the sequence of a tick borrows from the next ticks in all three, up to `max_lead`: that is the same clock,
/// not a step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockBack {
    /// Count on from the last tick until the clock catches up; beyond `max_lead`, `CLOCK_BEHIND`. The default.
    Borrow,
    /// `NOT_READY` until the clock catches up: `next` waits up to its deadline.
    Wait,
    /// `CLOCK_BEHIND` until the clock catches up.
    Error,
}

impl ClockBack {
    /// Reads `borrow`, `wait` or `error`; `INVALID_CONFIG` otherwise.
    pub fn parse(text: &str) -> Result<ClockBack> {
        match text {
            "borrow" => Ok(ClockBack::Borrow),
            "wait" => Ok(ClockBack::Wait),
            "error" => Ok(ClockBack::Error),
            _ => {
                let shown: String = text.chars().take(40).collect();
                Err(Error::config(format!(
                    "clock_back={shown:?} is not known; valid are borrow, wait, error"
                )))
            }
        }
    }
}

/// Why there is no id. Small and without allocation, since a starved caller asks often; [`Generator::explain`] makes
/// an [`Error`] of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The generator was closed.
    Closed,
    /// The worker id is no longer this process's own.
    LeaseLost,
    /// The time field is over.
    LayoutEnded,
    /// Not now, but after this many milliseconds, for this reason.
    NotReady {
        /// What is waited for.
        why: Why,
        /// When to ask again.
        retry_after_ms: u64,
    },
    /// The wall clock is behind what was issued.
    ClockBehind {
        /// What the clock shows.
        wall_ms: i64,
        /// What it must show.
        needed_ms: i64,
    },
}

/// What a refused call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The keeper: the store's mark has not been read and raised yet.
    Start,
    /// The clock: counting already leads it by `max_lead`.
    Lead,
    /// The keeper: the next id leads the clock and the stored mark does not cover it.
    Mark,
    /// The clock: it stepped back and `clock_back=wait`.
    Clock,
}

impl Refusal {
    /// The code every language sees.
    #[must_use]
    pub fn code(self) -> Code {
        match self {
            Refusal::Closed => Code::Closed,
            Refusal::LeaseLost => Code::LeaseLost,
            Refusal::LayoutEnded => Code::LayoutEnded,
            Refusal::NotReady { .. } => Code::NotReady,
            Refusal::ClockBehind { .. } => Code::ClockBehind,
        }
    }

    /// When the call may succeed, where waiting helps.
    #[must_use]
    pub fn retry_after_ms(self) -> Option<u64> {
        match self {
            Refusal::NotReady { retry_after_ms, .. } => Some(retry_after_ms),
            Refusal::ClockBehind { wall_ms, needed_ms } => Some(until(wall_ms, needed_ms)),
            Refusal::Closed | Refusal::LeaseLost | Refusal::LayoutEnded => None,
        }
    }
}

/// Where the time comes from. The model checker brings its own.
pub(super) trait Time {
    /// Cheap, a few milliseconds old at most, never ahead of `wall_ms`.
    fn coarse_stamp(&self) -> Stamp;
    /// Precise.
    fn wall_ms(&self) -> i64;
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
/// use keymill::snowflake::{ClockBack, Generator, Layout};
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
        Ok(Generator { core: Core::new(layout, worker, clock_back, max_lead_ms)?, clock })
    }

    /// The next id, or why there is none now. Never blocks.
    #[inline]
    pub fn try_next(&self) -> std::result::Result<u64, Refusal> {
        self.core.next(&self.clock)
    }

    /// The next id, answering in registers: a [`Result`] of `try_next` goes through memory, and the locked instruction of
    /// the next id waits for that store. `None`: [`Generator::try_next`] says why, or has one after all.
    #[inline]
    pub(crate) fn quick(&self) -> Option<u64> {
        match self.core.quick(&self.clock) {
            Ok(id) => Some(id),
            Err(taken) => self.slow(taken),
        }
    }

    #[cold]
    #[inline(never)]
    fn slow(&self, taken: Option<u64>) -> Option<u64> {
        self.core.slow_next(taken, &self.clock).ok()
    }

    /// Fills the front of `out` with rising ids and says how many: as many as may be issued now, at least one.
    /// An empty `out` is filled with 0 ids.
    pub fn try_take(&self, out: &mut [u64]) -> std::result::Result<usize, Refusal> {
        self.core.take(out, &self.clock)
    }

    /// Begins above `previous_mark`, the tick that the store holds for this worker (0 when it holds none).
    ///
    /// Ids follow after the first [`Generator::raise_mark`]. `CLOCK_BEHIND` names both times when the stored mark is
    /// ahead of this machine's clock by more than `max_lead` and the third that overload adds, or the clock is before the epoch; `LAYOUT_ENDED` after the
    /// last tick. May be called again, and then only moves up.
    pub fn start(&self, previous_mark: u64) -> Result<()> {
        self.core.start(previous_mark, &self.clock)
    }

    /// The tick that the keeper should store now and then pass to [`Generator::raise_mark`]; `None` while the stored one
    /// is good enough. It is asked for when less than two thirds of `max_lead` is left under the mark and ids were issued
    /// since the last one, so an idle generator writes nothing; while the lead is in use, it reaches a third of `max_lead`
    /// beyond it, so overload writes about every sixth of `max_lead`. Ask some times in each third of `max_lead`.
    ///
    /// The keeper may refuse a wall clock it does not trust (see [`Generator::jump_ms`]): as long as the mark is not
    /// raised, time in the ids goes on by the boot clock.
    #[must_use]
    pub fn wanted_mark(&self) -> Option<u64> {
        self.core.wanted_mark(&self.clock)
    }

    /// True when [`Generator::wanted_mark`] has probably an answer: a plain load, cheap enough after each id, so that a
    /// caller can wake the keeper instead of the keeper polling.
    #[inline]
    #[must_use]
    pub fn wants_keeper(&self) -> bool {
        // ordering: Relaxed — a hint; the keeper decides by `wanted_mark`.
        self.core.gate.hungry.load(Ordering::Relaxed)
    }

    /// The store now holds `tick`: every id below it may be issued. Lower values than before change nothing.
    /// `u64::MAX` means that nothing is stored and a restart is guarded by the clock alone.
    pub fn raise_mark(&self, tick: u64) {
        self.core.raise_mark(tick, &self.clock);
    }

    /// The mark that was raised last; 0 before the first.
    #[must_use]
    pub fn mark(&self) -> u64 {
        // ordering: Relaxed — a figure for status pages.
        self.core.slow.mark.load(Ordering::Relaxed)
    }

    /// How far the wall clock is ahead (positive) or behind of where the boot clock says it should be since the last
    /// mark, 0 before the start: a jump by more than some minutes is worth a question to the store's clock before it is adopted.
    #[must_use]
    pub fn jump_ms(&self) -> i64 {
        if self.core.position() == 0 {
            return 0;
        }
        self.clock.wall_ms().saturating_sub(self.core.floor_ms(&self.clock))
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
        self.core.worker
    }

    /// How many ids were issued; calls in flight may be missing or counted early.
    #[must_use]
    pub fn issued(&self) -> u64 {
        // ordering: Relaxed — a figure for metrics.
        self.core.position().saturating_sub(self.core.slow.skipped.load(Ordering::Relaxed))
    }

    /// Ends the generator: every later call answers `CLOSED`. Returns the tick above every id that was or will be
    /// issued, for the keeper to store as the last mark so that a restart need not skip the rest; `None` when it was
    /// over already or never began. Calls that are under way either have their id below it or are refused.
    pub fn close(&self) -> Option<u64> {
        self.core.end(CLOSED)
    }

    /// As [`Generator::close`], but later calls answer `LEASE_LOST`: the worker id is no longer ours.
    pub fn revoke(&self) -> Option<u64> {
        self.core.end(REVOKED)
    }

    /// The error to a refusal, with what to do.
    #[must_use]
    pub fn explain(&self, refusal: Refusal) -> Error {
        let worker = self.core.worker;
        let layout = &self.core.layout;
        let lead = self.core.max_lead_ms;
        let error = match refusal {
            Refusal::Closed => Error::new(Code::Closed, "the generator is closed"),
            Refusal::LeaseLost => Error::new(
                Code::LeaseLost,
                format!(
                    "worker {worker} is no longer this process's own; a new worker id is being leased or must be given"
                ),
            ),
            Refusal::LayoutEnded => layout.ended(),
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
                    "worker {worker}: this machine's clock shows {} but ids were issued that need at least {} \
                     (max_lead {lead} ms); set the clock right or wait for it",
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code().name())
    }
}

/// What the fast path reads beside `next`, on a line of its own: written by the slow path only.
#[derive(Debug)]
struct Gate {
    /// Positions below this need no precise clock. 0: go to the slow path without adding to `next`.
    limit: AtomicU64,
    /// Wall time, a [`Stamp`], from which the tick that `limit` was set in is over.
    fresh_until: AtomicU64,
    /// The mark should be raised soon.
    hungry: AtomicBool,
}

/// What only the slow path and the keeper touch.
#[derive(Debug)]
struct Slow {
    /// Ticks below this are covered by the store. 0: nothing is.
    mark: AtomicU64,
    /// Wall time minus boot time, an `i64`, when the mark covered the wall time last. With the boot clock it gives the
    /// *floor*: time that has certainly passed, whatever was done to the wall clock since.
    offset: AtomicU64,
    /// The highest tick that was adopted from the wall clock; below it the clock has stepped back.
    seen: AtomicU64,
    /// Positions that were passed over: `next - skipped` is the number of ids.
    skipped: Figure,
    /// Where `next` stood when the generator ended.
    last: Figure,
    /// `next` when the current mark, and the mark being stored, were asked for: has anything been issued since?
    marked_at: Figure,
    asked_at: Figure,
    /// The running estimate of the rate: ids counted and wall time at the start of its window, and what came out.
    window_ids: Figure,
    window_ms: Figure,
    budget: Figure,
}

/// The generator without its clock.
#[derive(Debug)]
pub(super) struct Core {
    /// The next position: `tick << seq_bits | seq`. 0 before the start, [`CLOSED`] and more after the end.
    next: CachePadded<AtomicU64>,
    gate: CachePadded<Gate>,
    slow: CachePadded<Slow>,
    layout: Layout,
    worker: u64,
    clock_back: ClockBack,
    max_lead_ms: u64,
    lead_ticks: u64,
    /// How far a mark is stored above the lead while the lead is in use, so that overload does not write to the store
    /// at every tick.
    margin_ticks: u64,
    /// The worker in its place.
    worker_field: u64,
    /// Sequence starts are spread over this many low bits.
    spread_mask: u64,
    seq_mask: u64,
    seq_bits: u32,
    /// What moves the tick from its place in a position to its place in an id, and the sequence likewise: powers of 2.
    tick_factor: u64,
    seq_factor: u64,
}

/// One reading of the clock, and what follows from it.
struct Moment {
    wall_ms: i64,
    /// The tick of the wall clock; may be negative or beyond the layout.
    now: i64,
    /// The tick up to which the word is moved: the wall clock's where the mark or the floor confirms it.
    adopted: i64,
    /// First tick above `max_lead`.
    lead_end: u64,
    /// First position that may not be taken.
    cap: u64,
    /// How many ticks the clock is behind one it showed before; 0 normally.
    behind: u64,
    /// The rate was below a quarter of the layout's, so positions may be passed over for evenness.
    quiet: bool,
}

impl Core {
    pub(super) fn new(layout: Layout, worker: u64, clock_back: ClockBack, max_lead_ms: u64) -> Result<Core> {
        if worker > layout.max_worker() {
            return Err(Error::config(format!(
                "worker {worker} does not fit layout {layout}: valid are 0 to {}",
                layout.max_worker()
            )));
        }
        // No lead beyond what a signed millisecond count can say; then no sum below overflows.
        let max_lead_ms = max_lead_ms.min(i64::MAX as u64 / 4);
        let lead_ticks = max_lead_ms / layout.unit_ms().unsigned_abs();
        let seq_bits = layout.seq_bits();
        // Half of each tick always remains behind the start, so that at half the layout's rate no id needs the lead.
        // Below 9 bits all are needed for evenness modulo 128; the second half of a tick then borrows.
        let spread_bits = if seq_bits > 8 || lead_ticks == 0 { seq_bits - 1 } else { seq_bits };
        Ok(Core {
            next: CachePadded::new(AtomicU64::new(0)),
            gate: CachePadded::new(Gate {
                limit: AtomicU64::new(0),
                fresh_until: AtomicU64::new(i64::MIN as u64),
                hungry: AtomicBool::new(true),
            }),
            slow: CachePadded::new(Slow {
                mark: AtomicU64::new(0),
                offset: AtomicU64::new(0),
                seen: AtomicU64::new(0),
                skipped: Figure::new(0),
                last: Figure::new(0),
                marked_at: Figure::new(0),
                asked_at: Figure::new(0),
                window_ids: Figure::new(0),
                window_ms: Figure::new(0),
                budget: Figure::new(0),
            }),
            layout,
            worker,
            clock_back,
            max_lead_ms,
            lead_ticks,
            margin_ticks: lead_ticks.div_ceil(3),
            worker_field: layout.pack(0, worker, 0),
            spread_mask: (1 << spread_bits) - 1,
            seq_mask: layout.max_seq(),
            seq_bits,
            tick_factor: 1 << (layout.time_shift() - seq_bits),
            seq_factor: 1 << layout.seq_shift(),
        })
    }

    #[inline]
    pub(super) fn next(&self, time: &impl Time) -> std::result::Result<u64, Refusal> {
        self.quick(time).or_else(|taken| self.slow_next(taken, time))
    }

    /// The fast path alone. `Err` holds the position that was taken, if one was, for [`Core::slow_next`].
    #[inline]
    fn quick(&self, time: &impl Time) -> std::result::Result<u64, Option<u64>> {
        // ordering: Acquire — pairs with the Release in `open`: whoever set this limit moved `next` before, so the
        // position below is at or above the one that the limit was set for. Without it a call could take position 0.
        let limit = self.gate.limit.load(Ordering::Acquire);
        // ordering: Relaxed — ordered after the Acquire above; an older value only sends us to the slow path.
        let fresh_until = Stamp::from_bits(self.gate.fresh_until.load(Ordering::Relaxed));
        if limit == 0 || time.coarse_stamp() >= fresh_until {
            return Err(None);
        }
        // ordering: Relaxed — uniqueness needs only that read-modify-writes of one word are in one order.
        let position = self.next.fetch_add(1, Ordering::Relaxed);
        if position < limit { Ok(self.compose(position)) } else { Err(Some(position)) }
    }

    /// Fields in place, without the checks that `Layout::pack` makes: positions are below the end of the layout.
    #[inline]
    fn compose(&self, position: u64) -> u64 {
        let seq = position & self.seq_mask;
        // Products instead of shifts: without BMI2 a shift by a variable costs three instructions.
        (position ^ seq) * self.tick_factor + self.worker_field + seq * self.seq_factor
    }

    #[cold]
    #[inline(never)]
    fn slow_next(&self, taken: Option<u64>, time: &impl Time) -> std::result::Result<u64, Refusal> {
        if let Some(position) = taken {
            return self.keep_or_retake(position, time);
        }
        let (first, moment) = self.claim(1, time)?;
        self.open(first.start, &moment);
        Ok(self.compose(first.start))
    }

    /// A position was taken past the limit or in a tick that is over. It is ours alone, so it is used when it is
    /// still good; otherwise it is passed over.
    fn keep_or_retake(&self, position: u64, time: &impl Time) -> std::result::Result<u64, Refusal> {
        let moment = self.moment(time);
        if position < CLOSED {
            if let Ok(moment) = &moment
                && position < moment.cap
                && (position >> self.seq_bits) as i64 >= moment.adopted
            {
                self.open(position, moment);
                return Ok(self.compose(position));
            }
            self.give_back(position);
        }
        let (first, moment) = self.claim(1, time)?;
        self.open(first.start, &moment);
        Ok(self.compose(first.start))
    }

    /// Returns a position that was taken and not issued. While nothing above it is taken the word steps down by one, so
    /// that narrow sequences lose nothing at each limit; otherwise it is passed over.
    fn give_back(&self, position: u64) {
        // The word is `position + 1` only when every position above is free, whatever happened in between; and only
        // its one holder can step below a position, so none that was issued is ever passed downwards.
        // ordering: Relaxed — as for the fast path's `fetch_add`.
        if self.next.compare_exchange(position + 1, position, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // ordering: Relaxed — a count.
            self.slow.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn take(&self, out: &mut [u64], time: &impl Time) -> std::result::Result<usize, Refusal> {
        if out.is_empty() {
            return Ok(0);
        }
        let (range, _) = self.claim(out.len() as u64, time)?;
        let count = (range.end - range.start) as usize;
        let mut rest = &mut out[..count];
        let mut position = range.start;
        // Tick by tick: within one, ids differ by a constant step, which the compiler turns into vector stores.
        while !rest.is_empty() {
            let left = self.seq_mask - (position & self.seq_mask) + 1;
            let (run, tail) = rest.split_at_mut(left.min(rest.len() as u64) as usize);
            let mut id = self.compose(position);
            position += run.len() as u64;
            for slot in run {
                *slot = id;
                id = id.wrapping_add(self.seq_factor);
            }
            rest = tail;
        }
        Ok(count)
    }

    /// Takes 1 to `count` positions, never one that may not be issued.
    fn claim(
        &self,
        count: u64,
        time: &impl Time,
    ) -> std::result::Result<(std::ops::Range<u64>, Moment), Refusal> {
        let moment = self.moment(time).inspect_err(|_| self.shut())?;
        // ordering: Relaxed — only a first guess for the exchange below.
        let mut current = self.next.load(Ordering::Relaxed);
        loop {
            if current >= CLOSED {
                self.shut();
                return Err(ended(current));
            }
            let mut first = current;
            let tick = (current >> self.seq_bits) as i64;
            // A tick that counting ran into without issuing anything gets a start too, or sequence 0 would be frequent.
            let untouched = moment.quiet && current & self.seq_mask == 0;
            if moment.adopted > tick || moment.adopted == tick && untouched {
                first = self.spread_start(moment.adopted as u64);
            }
            if first >= moment.cap {
                self.shut();
                return Err(self.refuse(first, &moment));
            }
            let end = moment.cap.min(first.saturating_add(count));
            // ordering: Relaxed — as for the fast path's `fetch_add`; the limit that follows is published by `open`.
            match self.next.compare_exchange_weak(current, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // ordering: Relaxed — a count.
                    self.slow.skipped.fetch_add(first - current, Ordering::Relaxed);
                    return Ok((first..end, moment));
                }
                Err(seen) => current = seen,
            }
        }
    }

    /// Reads the clock and says what may be issued now.
    fn moment(&self, time: &impl Time) -> std::result::Result<Moment, Refusal> {
        // ordering: Relaxed — the word itself is the truth about start and end.
        let current = self.next.load(Ordering::Relaxed);
        if current >= CLOSED {
            return Err(ended(current));
        }
        // ordering: Acquire — pairs with the Release in `raise_mark`: the offset read below is at least this mark's.
        let mark = self.slow.mark.load(Ordering::Acquire);
        if current == 0 || mark == 0 {
            return Err(Refusal::NotReady { why: Why::Start, retry_after_ms: KEEPER_MS });
        }
        // `seen` before the clock: then a lower reading is a step back, and not another thread's later reading.
        // ordering: Acquire — keeps the reading of the clock below; pairs with the Release of `fetch_max` below.
        let seen = self.slow.seen.load(Ordering::Acquire);
        let wall_ms = time.wall_ms();
        let now = self.layout.tick_at(wall_ms);
        if now > self.layout.max_tick() as i64 {
            return Err(Refusal::LayoutEnded);
        }
        // A wall time that the mark does not cover counts only as far as the boot clock confirms it: after a jump
        // forward, ids go on with the old time until the keeper has stored the new one.
        let covered = now < 0 || (now as u64) < mark;
        let adopted = if covered { now } else { now.min(self.layout.tick_at(self.floor_ms(time))) };
        let behind = if now < 0 { seen } else { seen.saturating_sub(now as u64) };
        if behind > 0 && self.clock_back != ClockBack::Borrow {
            let needed_ms = self.layout.wall_ms_of(seen);
            return Err(match self.clock_back {
                ClockBack::Wait => {
                    Refusal::NotReady { why: Why::Clock, retry_after_ms: until(wall_ms, needed_ms) }
                }
                _ => Refusal::ClockBehind { wall_ms, needed_ms },
            });
        }
        if adopted > 0 && adopted as u64 > seen {
            // ordering: Release — pairs with the Acquire above.
            self.slow.seen.fetch_max(adopted as u64, Ordering::Release);
        }
        let field_end = self.layout.max_tick() + 1;
        let lead_end = ticks_after(now, self.lead_ticks.saturating_add(1));
        let proven_end = mark.max(ticks_after(adopted, 1));
        let cap = lead_end.min(proven_end).min(field_end) << self.seq_bits;
        if self.lead_ticks > 0 && mark <= self.renewal_level(now, current >> self.seq_bits) {
            self.call_keeper();
        }
        // ordering: Relaxed — an estimate.
        let budget = self.slow.budget.load(Ordering::Relaxed);
        // A budget is a sixteenth of a tick's ids; narrow sequences are never quiet, they need all they have.
        let quiet = budget < (self.seq_mask + 1) / (4 * BUDGETS_PER_TICK);
        Ok(Moment { wall_ms, now, adopted, lead_end, cap, behind, quiet })
    }

    /// Why `first` may not be taken.
    fn refuse(&self, first: u64, moment: &Moment) -> Refusal {
        let tick = first >> self.seq_bits;
        if tick > self.layout.max_tick() {
            return Refusal::LayoutEnded;
        }
        if tick < moment.lead_end {
            self.call_keeper();
            return Refusal::NotReady { why: Why::Mark, retry_after_ms: KEEPER_MS };
        }
        // The tick is at or above `lead_end`, so it is above `lead_ticks` unless the clock is before the epoch.
        let needed_ms = self.layout.wall_ms_of(tick.saturating_sub(self.lead_ticks));
        if moment.behind > self.lead_ticks || moment.now < 0 {
            return Refusal::ClockBehind { wall_ms: moment.wall_ms, needed_ms };
        }
        Refusal::NotReady { why: Why::Lead, retry_after_ms: until(moment.wall_ms, needed_ms) }
    }

    /// Lets the fast path go on behind `position`, which the caller has just taken.
    fn open(&self, position: u64, moment: &Moment) {
        let budget = self.budget(position, moment);
        let gap = self.gap(position, moment);
        if gap > 0 {
            // ordering: Relaxed — moves the word up, as any call does; whoever comes in between has its position.
            self.next.fetch_add(gap, Ordering::Relaxed);
            // ordering: Relaxed — a count.
            self.slow.skipped.fetch_add(gap, Ordering::Relaxed);
        }
        let limit = if budget == 0 { 0 } else { moment.cap.min(position + 1 + gap + budget) };
        let tick = position >> self.seq_bits;
        // ordering: Relaxed — published by the limit below; if two threads mix theirs, the slow path is entered early
        // or an id lags by one budget.
        self.gate
            .fresh_until
            .store(Stamp::of_ms(self.layout.wall_ms_of(tick + 1)).to_bits(), Ordering::Relaxed);
        // ordering: Release — pairs with the Acquire in `next`: a call that sees this limit sees `next` above `position`.
        self.gate.limit.store(limit, Ordering::Release);
    }

    /// Sends every call to the slow path, where it loads instead of adding to the word.
    fn shut(&self) {
        // Many starved callers come here: do not take the line from each other to write what it holds.
        // ordering: Relaxed — a call that still sees the old limit takes one position too many, which is passed over.
        if self.gate.limit.load(Ordering::Relaxed) != 0 {
            // ordering: Relaxed — as above.
            self.gate.limit.store(0, Ordering::Relaxed);
        }
    }

    fn call_keeper(&self) {
        // ordering: Relaxed — a hint, here and in the next line; read before it is written, as in `shut`.
        if !self.gate.hungry.load(Ordering::Relaxed) {
            // ordering: Relaxed — as above.
            self.gate.hungry.store(true, Ordering::Relaxed);
        }
    }

    /// A mark at or below this is due: a third of the lead is gone, or counting ahead has come near the mark.
    fn renewal_level(&self, now: i64, tick: u64) -> u64 {
        let leading = tick.min(ticks_after(now, self.lead_ticks)) + self.margin_ticks / 2;
        ticks_after(now, self.lead_ticks * 2 / 3).max(leading)
    }

    /// How many ids may follow without a precise clock: a sixteenth of what a tick is expected to need.
    /// Races only blur the estimate.
    fn budget(&self, position: u64, moment: &Moment) -> u64 {
        let slow = &self.slow;
        // ordering: Relaxed — an estimate, here and below.
        let ids = position.wrapping_sub(slow.skipped.load(Ordering::Relaxed));
        // ordering: Relaxed — as above.
        let counted = ids.saturating_sub(slow.window_ids.load(Ordering::Relaxed));
        // ordering: Relaxed — as above.
        let elapsed = moment.wall_ms.saturating_sub(slow.window_ms.load(Ordering::Relaxed) as i64);
        // ordering: Relaxed — as above.
        let mut budget = slow.budget.load(Ordering::Relaxed);
        let unit = self.layout.unit_ms();
        if elapsed < 0 || elapsed >= unit {
            let per_tick = u128::from(counted) * u128::from(unit.unsigned_abs())
                / u128::from(elapsed.unsigned_abs().max(1));
            budget = u64::try_from(per_tick).unwrap_or(u64::MAX) / BUDGETS_PER_TICK;
            // ordering: Relaxed — as above.
            slow.window_ids.store(ids, Ordering::Relaxed);
            // ordering: Relaxed — as above.
            slow.window_ms.store(moment.wall_ms as u64, Ordering::Relaxed);
        } else if counted > 2 * BUDGETS_PER_TICK * (budget + 1) {
            budget = 2 * budget + 1;
        } else {
            return budget;
        }
        budget = budget.min(MAX_BUDGET);
        // ordering: Relaxed — as above.
        slow.budget.store(budget, Ordering::Relaxed);
        budget
    }

    /// Where a tick begins. A sequence that began at 0 would give low digits that are 0 at low rates, and one that goes
    /// on from tick to tick would not be even modulo 5, which divides 2^22 + 1; a hash of tick and worker is even
    /// modulo anything, and the same again after a restart. A sequence of 8 bits or less has no room for a few ids *and*
    /// a free start in one tick: there it is even at up to one id a tick and at full rate, and a little less between.
    fn spread_start(&self, tick: u64) -> u64 {
        let hash = scramble(tick ^ self.worker.rotate_right(20));
        let position = tick << self.seq_bits | (hash & self.spread_mask);
        // Position 0 with worker 0 would be id 0, which nobody may get; 0 also means "not started".
        position.max(1)
    }

    /// How many positions to pass over behind `position`. At middling rates the ids of a tick would be one run, and runs
    /// of neighbours even out more slowly than single ids do; so where the tick has room for it, the run is broken at each
    /// reading of the clock: at most about 32 times a tick, each by less than a 64th of it.
    fn gap(&self, position: u64, moment: &Moment) -> u64 {
        let leads = (position >> self.seq_bits) as i64 > moment.adopted;
        // Not in the last quarter: a gap must not push the next id out of the present tick. Not without a lead, which
        // has to make good for a tick that began quiet and then needs all of its ids.
        let late = position & self.seq_mask > self.seq_mask / 4 * 3;
        if !moment.quiet || leads || late || self.lead_ticks == 0 {
            return 0;
        }
        scramble(position ^ self.worker.rotate_right(20)) & (self.seq_mask >> 6) & GAP_MASK
    }

    pub(super) fn start(&self, previous_mark: u64, time: &impl Time) -> Result<()> {
        let wall_ms = time.wall_ms();
        let now = self.layout.tick_at(wall_ms);
        if now > self.layout.max_tick() as i64 {
            return Err(self.layout.ended());
        }
        // As far ahead as a predecessor stores its mark: a start right after a crash is not refused.
        let ahead = self.lead_ticks + self.margin_ticks + 1;
        if now < 0 || previous_mark > ticks_after(now, ahead) {
            let needed_ms = self.layout.wall_ms_of(previous_mark.saturating_sub(ahead));
            return Err(Error::new(
                Code::ClockBehind,
                format!(
                    "worker {} cannot start: this machine's clock shows {} but its stored mark is {} \
                     (layout {}, max_lead {} ms); set the clock right or take another worker id",
                    self.worker,
                    rfc3339(wall_ms),
                    rfc3339(self.layout.wall_ms_of(previous_mark)),
                    self.layout,
                    self.max_lead_ms
                ),
            )
            .after(Duration::from_millis(until(wall_ms, needed_ms))));
        }
        // Not the present tick: a predecessor may have issued ids of it that no mark covers, as they did not lead.
        let begin = previous_mark.max(now as u64 + 1);
        let first = if begin > self.layout.max_tick() {
            (self.layout.max_tick() + 1) << self.seq_bits
        } else {
            self.spread_start(begin)
        };
        self.anchor(wall_ms, time);
        // ordering: Relaxed — written by the keeper itself.
        self.slow.marked_at.store(first, Ordering::Relaxed);
        // ordering: Relaxed — the limit that lets the fast path see it is published by `open`. A maximum never moves
        // the word back, and leaves an ended generator ended.
        let before = self.next.fetch_max(first, Ordering::Relaxed);
        if before < first {
            // ordering: Relaxed — a count.
            self.slow.skipped.fetch_add(first - before, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn wanted_mark(&self, time: &impl Time) -> Option<u64> {
        // ordering: Relaxed — a little behind is a mark asked for at the next turn.
        let current = self.next.load(Ordering::Relaxed);
        // ordering: Relaxed — written by the keeper itself.
        let mark = self.slow.mark.load(Ordering::Relaxed);
        let now = self.layout.tick_at(time.wall_ms());
        if current == 0 || current >= CLOSED || now > self.layout.max_tick() as i64 {
            return None;
        }
        let tick = current >> self.seq_bits;
        // ordering: Relaxed — written by the keeper itself.
        let used = self.slow.marked_at.load(Ordering::Relaxed) != current;
        let due = mark <= self.renewal_level(now, tick);
        // Ids that did not lead need no mark to be issued; afterwards they get one, in case the clock is set back later.
        let uncovered = tick >= mark;
        let starved = uncovered && tick < ticks_after(now, self.lead_ticks + 1);
        let lead_end = ticks_after(now, self.lead_ticks + 1);
        let leading = (tick + 1 + self.margin_ticks).min(lead_end + self.margin_ticks);
        // Never below what was issued, nor below a predecessor's mark, which is where the word began.
        let wanted = lead_end.max(leading).max(tick + u64::from(used)).min(self.layout.max_tick() + 1);
        if mark != 0 && (wanted <= mark || !(starved || used && (due || uncovered))) {
            // ordering: Relaxed — a hint; set again by the next slow call that finds little left.
            self.gate.hungry.store(false, Ordering::Relaxed);
            return None;
        }
        // Not `marked_at` yet: storing the mark may fail, and then it must be asked for again.
        // ordering: Relaxed — read by the keeper itself.
        self.slow.asked_at.store(current, Ordering::Relaxed);
        Some(wanted)
    }

    pub(super) fn raise_mark(&self, tick: u64, time: &impl Time) {
        // ordering: Relaxed — written by the keeper itself, here and in the next line.
        let asked_at = self.slow.asked_at.load(Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.slow.marked_at.store(asked_at, Ordering::Relaxed);
        // The floor moves only to a wall time that the store has confirmed.
        let wall_ms = time.wall_ms();
        let now = self.layout.tick_at(wall_ms);
        if now < 0 || (now as u64) < tick {
            self.anchor(wall_ms, time);
        }
        // ordering: Release — pairs with the Acquire in `moment`: whoever sees the mark sees its offset.
        self.slow.mark.fetch_max(tick, Ordering::Release);
        // ordering: Relaxed — a hint.
        self.gate.hungry.store(false, Ordering::Relaxed);
    }

    fn anchor(&self, wall_ms: i64, time: &impl Time) {
        let offset = wall_ms.saturating_sub(time.boot_ms() as i64);
        // ordering: Relaxed — published by the mark, or by the start that precedes the first mark.
        self.slow.offset.store(offset as u64, Ordering::Relaxed);
    }

    /// Wall time that has certainly come, by the boot clock.
    fn floor_ms(&self, time: &impl Time) -> i64 {
        // ordering: Relaxed — read after the mark's Acquire where it matters.
        (time.boot_ms() as i64).saturating_add(self.slow.offset.load(Ordering::Relaxed) as i64)
    }

    /// Where the word stands, or stood at the end.
    fn position(&self) -> u64 {
        // ordering: Relaxed — a figure.
        let current = self.next.load(Ordering::Relaxed);
        if current < CLOSED {
            return current;
        }
        // ordering: Relaxed — a figure; 0 for the moment in which the generator is ending.
        self.slow.last.load(Ordering::Relaxed)
    }

    pub(super) fn end(&self, how: u64) -> Option<u64> {
        // ordering: Relaxed — a first guess.
        let mut current = self.next.load(Ordering::Relaxed);
        while current < CLOSED {
            // One exchange is the fence: positions below `current` are issued, and whoever adds to the word later gets
            // one above every limit.
            // ordering: Relaxed — as for the fast path's `fetch_add`.
            match self.next.compare_exchange_weak(current, how, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    // ordering: Relaxed — a figure.
                    self.slow.last.store(current, Ordering::Relaxed);
                    self.shut();
                    return (current > 0).then_some((current >> self.seq_bits) + 1);
                }
                Err(seen) => current = seen,
            }
        }
        None
    }
}

/// The finalizer of splitmix64 (<https://prng.di.unimi.it/splitmix64.c>).
fn scramble(value: u64) -> u64 {
    let mut hash = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

/// Which refusal an ended word means.
fn ended(word: u64) -> Refusal {
    if word >= REVOKED { Refusal::LeaseLost } else { Refusal::Closed }
}

/// The tick `count` after `tick`, 0 where that is before the epoch.
fn ticks_after(tick: i64, count: u64) -> u64 {
    u64::try_from(i128::from(tick) + i128::from(count)).unwrap_or(0)
}

/// Milliseconds from one wall time to another, at least 1.
fn until(wall_ms: i64, needed_ms: i64) -> u64 {
    needed_ms.saturating_sub(wall_ms).max(1).unsigned_abs()
}

#[cfg(loom)]
impl Core {
    /// Opens the fast path for `budget` ids at a time, as a high rate would.
    pub(super) fn prime(&self, budget: u64, wall_ms: i64) {
        // ordering: Relaxed — before any thread of the model.
        self.slow.budget.store(budget, Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.slow.window_ms.store(wall_ms as u64, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Arc, Barrier};

    use proptest::prelude::*;

    use super::*;
    use crate::time::ManualClock;

    /// 2026-11-21T08:30:00.123Z.
    const NOW: i64 = 1_795_249_800_123;
    const DAY: i64 = 86_400_000;

    /// A generator on a clock that stands, with a keeper and a store that work when called.
    struct Rig {
        clock: Arc<ManualClock>,
        layout: Layout,
        back: ClockBack,
        lead: u64,
        stored: u64,
        generator: Generator,
    }

    impl Rig {
        fn unstarted(layout: &str, back: ClockBack, lead: u64) -> Rig {
            let clock = Arc::new(ManualClock::new(NOW));
            let layout = Layout::parse(layout, "2025-01-01").unwrap();
            let generator = Generator::new(layout, 1, back, lead, Clock::Manual(clock.clone())).unwrap();
            Rig { clock, layout, back, lead, stored: 0, generator }
        }

        fn new(layout: &str, back: ClockBack, lead: u64) -> Rig {
            let mut rig = Rig::unstarted(layout, back, lead);
            rig.generator.start(0).unwrap();
            rig.keeper();
            rig.clock.advance(rig.layout.unit_ms() as u64);
            rig
        }

        fn twitter() -> Rig {
            Rig::new("twitter", ClockBack::Borrow, 3000)
        }

        fn keeper(&mut self) -> bool {
            let wanted = self.generator.wanted_mark();
            if let Some(mark) = wanted {
                self.stored = mark;
                self.generator.raise_mark(mark);
            }
            wanted.is_some()
        }

        /// Forgets the generator and starts another from what is stored.
        fn restart(&mut self) -> Result<()> {
            self.generator =
                Generator::new(self.layout, 1, self.back, self.lead, Clock::Manual(self.clock.clone()))?;
            self.generator.start(self.stored)?;
            self.keeper();
            Ok(())
        }

        fn id(&self) -> u64 {
            self.generator.try_next().unwrap()
        }

        fn tick(&self) -> u64 {
            self.layout.unpack(self.id()).tick
        }

        fn now(&self) -> u64 {
            self.layout.tick_at(self.clock.wall_ms()) as u64
        }

        /// Takes until refused.
        fn drain(&self) -> (Vec<u64>, Refusal) {
            let mut ids = Vec::new();
            loop {
                match self.generator.try_next() {
                    Ok(id) => ids.push(id),
                    Err(refusal) => return (ids, refusal),
                }
            }
        }
    }

    fn rises(ids: &[u64]) -> bool {
        ids.windows(2).all(|pair| pair[0] < pair[1])
    }

    #[test]
    fn ids_carry_the_clock_and_the_worker_and_rise() {
        let rig = Rig::twitter();
        let mut last = 0;
        for _ in 0..10_000 {
            let id = rig.id();
            let parts = rig.layout.read(id).unwrap();
            assert!(id > last);
            assert_eq!((parts.tick, parts.worker), (rig.now(), 1));
            last = id;
            rig.clock.advance(1);
        }
        assert_eq!(rig.generator.issued(), 10_000);
    }

    #[test]
    fn a_worker_beyond_the_layout_is_refused_with_the_range() {
        let layout = Layout::parse("twitter", "").unwrap();
        let error = Generator::new(layout, 1024, ClockBack::Borrow, 0, Clock::System).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(error.message.contains("0 to 1023"), "{}", error.message);
        assert_eq!(ClockBack::parse("stop").unwrap_err().code, Code::InvalidConfig);
        assert_eq!(ClockBack::parse("wait").unwrap(), ClockBack::Wait);
    }

    #[test]
    fn nothing_is_issued_before_the_start_and_before_the_first_mark() {
        let rig = Rig::unstarted("twitter", ClockBack::Borrow, 3000);
        let waiting = Refusal::NotReady { why: Why::Start, retry_after_ms: KEEPER_MS };
        assert_eq!(rig.generator.try_next(), Err(waiting));
        assert_eq!(rig.generator.wanted_mark(), None);
        rig.generator.start(0).unwrap();
        assert_eq!(rig.generator.try_next(), Err(waiting));
        assert!(rig.generator.wants_keeper());
        rig.generator.raise_mark(rig.generator.wanted_mark().unwrap());
        assert!(!rig.generator.wants_keeper());
        rig.id();
    }

    #[test]
    fn a_full_tick_borrows_up_to_max_lead_and_then_says_when_to_ask_again() {
        let mut rig = Rig::new("twitter", ClockBack::Error, 3000);
        rig.id();
        rig.keeper();
        let (ids, refusal) = rig.drain();
        assert!(rises(&ids));
        let ticks = ids.len() / 4096;
        assert!((1999..=3001).contains(&ticks), "{ticks} ticks");
        let last = rig.layout.unpack(*ids.last().unwrap()).tick;
        assert!(last <= rig.now() + 3000);
        // The mark was the limit; with it raised the lead is.
        assert!(matches!(refusal, Refusal::NotReady { .. }), "{refusal:?}");
        rig.keeper();
        let (more, refusal) = rig.drain();
        let last = more.last().or(ids.last()).map(|id| rig.layout.unpack(*id).tick).unwrap();
        assert_eq!(last, rig.now() + 3000);
        assert_eq!(refusal, Refusal::NotReady { why: Why::Lead, retry_after_ms: 1 });
        assert_eq!(rig.generator.lead_ms(), 3001);
        // Refused calls do not spend the word.
        let before = rig.generator.core.position();
        for _ in 0..1000 {
            assert!(rig.generator.try_next().is_err());
        }
        assert_eq!(rig.generator.core.position(), before);
        assert_eq!(rig.generator.issued(), (ids.len() + more.len() + 1) as u64);
        rig.clock.advance(1);
        assert_eq!(rig.drain().0.len(), 4096);
    }

    #[test]
    fn overload_is_limited_by_the_layout_and_not_by_the_mark() {
        let mut rig = Rig::twitter();
        rig.drain();
        let (mut count, mut writes) = (0, 0);
        rig.keeper();
        rig.drain();
        for _ in 0..3000 {
            rig.clock.advance(1);
            count += rig.drain().0.len();
            writes += u32::from(rig.generator.wants_keeper() && rig.keeper());
        }
        assert!(count as f64 / (3000.0 * 4096.0) > 0.999, "{count}");
        assert!(writes <= 8, "{writes} writes in 3 s");
    }

    #[test]
    fn without_lead_a_tick_still_gives_half_its_ids_and_no_more_than_all() {
        let rig = Rig::new("twitter", ClockBack::Borrow, 0);
        let (ids, refusal) = rig.drain();
        assert!((2048..=4096).contains(&ids.len()), "{}", ids.len());
        assert_eq!(refusal, Refusal::NotReady { why: Why::Lead, retry_after_ms: 1 });
        rig.clock.advance(1);
        assert_eq!(rig.drain().0.len(), 4096);
    }

    #[test]
    fn a_clock_step_back_within_the_lead_is_borrowed_through() {
        let mut rig = Rig::twitter();
        let before = rig.id();
        rig.keeper();
        let highest = rig.now();
        rig.clock.set_wall(rig.clock.wall_ms() - 1000);
        let mut ids = vec![before];
        for _ in 0..1000 {
            ids.push(rig.id());
            rig.clock.advance(1);
        }
        assert!(rises(&ids));
        assert!(rig.layout.unpack(*ids.last().unwrap()).tick <= highest + 1);
        rig.clock.advance(10);
        assert_eq!(rig.tick(), rig.now());
    }

    #[test]
    fn a_clock_step_back_beyond_the_lead_is_refused_until_it_catches_up() {
        for step in [600_000, 2 * DAY] {
            let mut rig = Rig::twitter();
            let before = rig.id();
            rig.keeper();
            rig.clock.set_wall(rig.clock.wall_ms() - step);
            let refusal = rig.generator.try_next().unwrap_err();
            assert_eq!(refusal.code(), Code::ClockBehind);
            let wait = refusal.retry_after_ms().unwrap();
            assert_eq!(wait as i64, step - 3000);
            let error = rig.generator.explain(refusal);
            assert_eq!(error.retry_after, Some(Duration::from_millis(wait)));
            assert!(error.message.contains("2026-11-"), "{}", error.message);
            rig.clock.advance(wait - 1);
            assert!(rig.generator.try_next().is_err());
            rig.clock.advance(1);
            assert!(rig.id() > before);
        }
    }

    #[test]
    fn a_clock_step_back_is_waited_for_or_refused_when_configured() {
        for step in [1000, 600_000, 2 * DAY] {
            for (back, code) in [(ClockBack::Wait, Code::NotReady), (ClockBack::Error, Code::ClockBehind)] {
                let rig = Rig::new("twitter", back, 3000);
                let before = rig.id();
                rig.clock.set_wall(rig.clock.wall_ms() - step);
                let refusal = rig.generator.try_next().unwrap_err();
                assert_eq!(refusal.code(), code);
                assert_eq!(refusal.retry_after_ms(), Some(step as u64));
                assert_eq!(rig.generator.explain(refusal).code, code);
                rig.clock.advance(step as u64 - 1);
                assert!(rig.generator.try_next().is_err());
                rig.clock.advance(1);
                assert!(rig.id() > before);
            }
        }
    }

    #[test]
    fn a_restart_after_a_lead_of_almost_three_seconds_repeats_nothing() {
        let mut rig = Rig::twitter();
        let mut ids = Vec::new();
        while rig.generator.lead_ms() < 2900 {
            match rig.generator.try_next() {
                Ok(id) => ids.push(id),
                Err(_) => assert!(rig.keeper()),
            }
        }
        rig.restart().unwrap();
        let mut waited = 0;
        let first = loop {
            match rig.generator.try_next() {
                Ok(id) => break id,
                Err(refusal) => {
                    assert_eq!(refusal.code(), Code::NotReady);
                    let wait = refusal.retry_after_ms().unwrap();
                    waited += wait;
                    rig.clock.advance(wait);
                    rig.keeper();
                }
            }
        };
        assert!(first > *ids.last().unwrap());
        assert!(waited <= 1001, "{waited} ms");
    }

    #[test]
    fn a_restart_within_the_same_tick_repeats_nothing_even_when_the_mark_had_lapsed() {
        let mut rig = Rig::new("uid", ClockBack::Borrow, 3000);
        rig.id();
        rig.clock.advance(60_000);
        let last = rig.id();
        assert!(rig.layout.unpack(last).tick >= rig.stored);
        rig.restart().unwrap();
        assert!(rig.id() > last);
    }

    #[test]
    fn a_stored_mark_far_ahead_of_the_clock_is_refused_with_both_times() {
        let rig = Rig::unstarted("twitter", ClockBack::Borrow, 3000);
        let mark = rig.now() + 3_600_000;
        let error = rig.generator.start(mark).unwrap_err();
        assert_eq!(error.code, Code::ClockBehind);
        assert!(error.message.contains("2026-11-21T08:30:00.123Z"), "{}", error.message);
        assert!(error.message.contains("2026-11-21T09:30:00.123Z"), "{}", error.message);
        let wait = error.retry_after.unwrap();
        rig.clock.advance(wait.as_millis() as u64);
        rig.generator.start(mark).unwrap();
        rig.clock.set_wall(0);
        assert_eq!(rig.generator.start(0).unwrap_err().code, Code::ClockBehind);
        assert_eq!(rig.generator.start(u64::MAX).unwrap_err().code, Code::ClockBehind);
    }

    #[test]
    fn an_outage_of_the_store_stops_the_lead_but_not_the_ids() {
        let rig = Rig::twitter();
        for _ in 0..20_000 {
            assert_eq!(rig.tick(), rig.now());
            rig.clock.advance(1);
        }
        assert!(rig.generator.wants_keeper());
        let (ids, refusal) = rig.drain();
        assert!(ids.len() <= 4096);
        assert_eq!(refusal, Refusal::NotReady { why: Why::Mark, retry_after_ms: KEEPER_MS });
    }

    #[test]
    fn a_clock_jump_forward_is_adopted_only_with_the_mark() {
        let mut rig = Rig::twitter();
        rig.id();
        rig.clock.advance(10_000);
        let old = rig.now();
        rig.clock.set_wall(rig.clock.wall_ms() + 365 * DAY);
        assert_eq!(rig.generator.jump_ms(), 365 * DAY);
        assert_eq!(rig.tick(), old);
        rig.clock.set_wall(rig.clock.wall_ms() - 365 * DAY);
        assert_eq!(rig.tick(), old);
        rig.clock.set_wall(rig.clock.wall_ms() + DAY);
        assert!(rig.keeper());
        assert_eq!(rig.tick(), rig.now());
        assert_eq!(rig.generator.jump_ms(), 0);
    }

    #[test]
    fn an_idle_generator_asks_for_no_mark_and_a_failed_store_is_asked_again() {
        let mut rig = Rig::twitter();
        rig.clock.advance(DAY as u64);
        assert!(!rig.keeper());
        rig.id();
        let asked = rig.generator.wanted_mark();
        assert_eq!(asked, Some(rig.now() + 3001));
        assert_eq!(rig.generator.wanted_mark(), asked);
        assert!(rig.keeper());
        assert!(!rig.keeper());
        rig.clock.advance(999);
        rig.id();
        assert!(!rig.keeper());
        rig.clock.advance(2);
        assert!(rig.keeper());
    }

    #[test]
    fn the_end_of_the_time_field_is_an_error_and_nothing_wraps() {
        let mut rig = Rig::twitter();
        let end = rig.layout.ends_at_ms();
        rig.clock.set_wall(end - 10);
        rig.restart().unwrap();
        let (ids, refusal) = rig.drain();
        assert_eq!(refusal, Refusal::LayoutEnded);
        assert!(rises(&ids));
        assert_eq!(ids.last().copied().map(|id| rig.layout.unpack(id).tick), Some(rig.layout.max_tick()));
        assert_eq!(ids.last().map(|id| id & 0xfff), Some(4095));
        rig.clock.set_wall(end);
        assert_eq!(rig.generator.try_next(), Err(Refusal::LayoutEnded));
        let error = rig.generator.explain(Refusal::LayoutEnded);
        assert!(error.message.contains("2094-09-07"), "{}", error.message);
        assert_eq!(rig.restart().unwrap_err().code, Code::LayoutEnded);
    }

    #[test]
    fn id_zero_is_never_issued() {
        for seq_bits in 1..14 {
            let layout =
                Layout::parse(&format!("time:41@1ms,worker:0,seq:{seq_bits}"), "2025-01-01").unwrap();
            let clock = Arc::new(ManualClock::new(layout.epoch_ms()));
            let generator = Generator::new(layout, 0, ClockBack::Borrow, 3000, Clock::Manual(clock)).unwrap();
            generator.start(0).unwrap();
            generator.raise_mark(u64::MAX);
            assert!(generator.try_next().unwrap() > 0);
            assert!(generator.core.spread_start(0) > 0);
        }
    }

    #[test]
    fn a_batch_is_a_run_of_positions_that_begins_where_a_single_call_would() {
        for layout in ["twitter", "sonyflake", "uid", "js53"] {
            let (one, many) =
                (Rig::new(layout, ClockBack::Borrow, 3000), Rig::new(layout, ClockBack::Borrow, 3000));
            let mut batch = vec![0; 10_000];
            let count = many.generator.try_take(&mut batch).unwrap();
            assert!(count > 500, "{count}");
            assert_eq!(batch[0], one.id());
            // One after the other, sequences and ticks carrying, each with the worker in its place.
            let position = |id: u64| {
                let parts = many.layout.read(id).unwrap();
                assert_eq!(parts.worker, 1);
                parts.tick << many.layout.seq_bits() | parts.seq
            };
            assert!(batch[..count].windows(2).all(|pair| position(pair[0]) + 1 == position(pair[1])));
            assert!(rises(&one.drain().0));
            assert!(batch[count..].iter().all(|id| *id == 0));
            assert_eq!(many.generator.try_take(&mut []), Ok(0));
            assert_eq!(many.generator.issued(), count as u64);
        }
    }

    #[test]
    fn a_batch_takes_what_the_lead_allows_and_then_is_refused() {
        let mut rig = Rig::new("twitter", ClockBack::Borrow, 2);
        rig.keeper();
        let mut batch = vec![0; 100_000];
        let count = rig.generator.try_take(&mut batch).unwrap();
        assert!((2048..=3 * 4096).contains(&count), "{count}");
        while rig.keeper() {
            let _ = rig.generator.try_take(&mut batch);
        }
        assert!(matches!(rig.generator.try_take(&mut batch), Err(Refusal::NotReady { why: Why::Lead, .. })));
    }

    #[test]
    fn a_closed_generator_says_so_for_ever_and_returns_the_tick_above_all() {
        let mut rig = Rig::twitter();
        assert_eq!(Rig::unstarted("twitter", ClockBack::Borrow, 0).generator.close(), None);
        let last = rig.id();
        let mark = rig.generator.close().unwrap();
        assert_eq!(mark, rig.layout.unpack(last).tick + 1);
        assert_eq!(rig.generator.close(), None);
        for _ in 0..10 {
            assert_eq!(rig.generator.try_next(), Err(Refusal::Closed));
        }
        assert_eq!(rig.generator.try_take(&mut [0]), Err(Refusal::Closed));
        assert_eq!(rig.generator.wanted_mark(), None);
        assert_eq!(rig.generator.issued(), 1);
        rig.generator.start(0).unwrap();
        assert_eq!(rig.generator.try_next(), Err(Refusal::Closed));
        rig.stored = mark;
        rig.restart().unwrap();
        assert!(rig.id() > last);
        rig.generator.revoke();
        assert_eq!(rig.generator.try_next(), Err(Refusal::LeaseLost));
        assert_eq!(rig.generator.explain(Refusal::LeaseLost).code, Code::LeaseLost);
    }

    #[test]
    fn a_fallen_rate_leaves_no_stale_time_behind() {
        let rig = Rig::new("time:41@1ms,worker:1,seq:21", ClockBack::Borrow, 3000);
        for _ in 0..50 {
            for _ in 0..20_000 {
                assert_eq!(rig.tick(), rig.now());
            }
            rig.clock.advance(1);
        }
        for _ in 0..1000 {
            rig.clock.advance(7);
            assert_eq!(rig.tick(), rig.now());
        }
    }

    #[test]
    fn eight_threads_never_get_the_same_id() {
        // The last two run into the end of the tick all the time.
        let cases = [
            ("time:41@1ms,worker:1,seq:21", 3000, 50_000),
            ("twitter", 3000, 50_000),
            ("twitter", 0, 20_000),
            ("js53", 1, 1000),
        ];
        for (layout, lead, count) in cases {
            let generator =
                Generator::new(Layout::parse(layout, "").unwrap(), 1, ClockBack::Borrow, lead, Clock::System)
                    .unwrap();
            generator.start(0).unwrap();
            generator.raise_mark(u64::MAX);
            let barrier = Barrier::new(8);
            let ids: Vec<Vec<u64>> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            let mut mine = Vec::with_capacity(60_000);
                            let mut batch = [0; 100];
                            while mine.len() < count {
                                if let Ok(id) = generator.try_next() {
                                    mine.push(id);
                                }
                                if mine.len() % 1000 == 0
                                    && let Ok(count) = generator.try_take(&mut batch)
                                {
                                    mine.extend_from_slice(&batch[..count]);
                                }
                            }
                            mine
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(ids.iter().all(|mine| rises(mine)));
            let all: HashSet<u64> = ids.iter().flatten().copied().collect();
            assert_eq!(all.len(), ids.iter().map(Vec::len).sum::<usize>());
            assert_eq!(generator.issued(), all.len() as u64);
        }
    }

    #[test]
    fn closing_under_load_leaves_every_id_below_the_last_mark() {
        for _ in 0..50 {
            let generator = Generator::new(
                Layout::parse("twitter", "").unwrap(),
                1,
                ClockBack::Borrow,
                3000,
                Clock::System,
            )
            .unwrap();
            generator.start(0).unwrap();
            generator.raise_mark(u64::MAX);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            let mut last = 0;
                            loop {
                                match generator.try_next() {
                                    Ok(id) => last = id,
                                    Err(Refusal::Closed) => return last,
                                    Err(_) => std::thread::yield_now(),
                                }
                            }
                        })
                    })
                    .collect();
                while generator.issued() < 1000 {
                    std::thread::yield_now();
                }
                let mark = generator.close().unwrap();
                for thread in threads {
                    assert!(generator.layout().unpack(thread.join().unwrap()).tick < mark);
                }
            });
        }
    }

    /// Pearson's statistic, and where it is improbable: six standard deviations.
    fn chi_square(ids: &[u64], modulus: u64) -> (f64, f64) {
        let mut counts = vec![0u64; modulus as usize];
        for id in ids {
            counts[(id % modulus) as usize] += 1;
        }
        let expected = ids.len() as f64 / modulus as f64;
        let sum = counts.iter().map(|n| (*n as f64 - expected).powi(2) / expected).sum();
        let freedom = modulus as f64 - 1.0;
        (sum, freedom + 6.0 * (2.0 * freedom).sqrt())
    }

    #[test]
    fn low_bits_and_last_digits_are_even_at_any_rate() {
        for layout in ["twitter", "uid", "js53", "time:41@1ms,worker:2,seq:20"] {
            // Ids in a row, then ticks until the next: one a tick, one in a hundred, some, half and all of a tick.
            let full = Layout::parse(layout, "").unwrap().max_seq() + 1;
            for (ids_at_once, ticks) in
                [(1, 1), (1, 5), (1, 100), (3, 1), (37.min(full), 2), (full / 2, 1), (full, 1)]
            {
                // 128 sequences have no room for a few ids and a free start, and are not a multiple of 5, which the
                // rotation by the tick would make good if the ticks were not all multiples of 5 here.
                if full < 1024 && (ticks % 5 == 0 || (2..full).contains(&ids_at_once)) {
                    continue;
                }
                let mut rig = Rig::new(layout, ClockBack::Borrow, 10_000);
                let mut ids = Vec::new();
                while ids.len() < 60_000 {
                    for _ in 0..ids_at_once.min(60_000) {
                        ids.push(rig.id());
                    }
                    rig.clock.advance(ticks * rig.layout.unit_ms() as u64);
                    rig.keeper();
                }
                for modulus in 2..=128 {
                    let (sum, bound) = chi_square(&ids, modulus);
                    assert!(
                        sum < bound,
                        "{layout}, {ids_at_once} in {ticks}: mod {modulus} gives {sum:.0} > {bound:.0}"
                    );
                }
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Next(u16),
        Take(u16),
        Advance(u32),
        Jump(i64),
        Keeper,
        Restart,
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1u16..400).prop_map(Step::Next),
            (1u16..2000).prop_map(Step::Take),
            (0u32..5000).prop_map(Step::Advance),
            (-20_000i64..20_000).prop_map(Step::Jump),
            Just(Step::Keeper),
            Just(Step::Restart),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn whatever_happens_ids_rise_and_lead_no_more_than_allowed(
            layout in prop::sample::select(vec!["twitter", "uid", "sonyflake", "js53", "time:41@1ms,worker:1,seq:1"]),
            back in prop::sample::select(vec![ClockBack::Borrow, ClockBack::Wait, ClockBack::Error]),
            lead in prop::sample::select(vec![0u64, 1, 10, 500, 3000, 20_000]),
            steps in prop::collection::vec(any_step(), 1..60),
        ) {
            let mut rig = Rig::new(layout, back, lead);
            let mut last = 0;
            let mut batch = vec![0; 2000];
            let mut running = true;
            let mut highest = rig.clock.wall_ms();
            for step in steps {
                let mut ids = Vec::new();
                match step {
                    Step::Next(n) if running => {
                        for _ in 0..n {
                            ids.extend(rig.generator.try_next());
                        }
                    }
                    Step::Take(n) if running => {
                        if let Ok(count) = rig.generator.try_take(&mut batch[..usize::from(n)]) {
                            prop_assert!(count >= 1);
                            ids.extend_from_slice(&batch[..count]);
                        }
                    }
                    Step::Advance(ms) => rig.clock.advance(u64::from(ms)),
                    Step::Jump(ms) => {
                        // What a clock that is wrong can do to ids no mark has covered yet is not promised.
                        if running {
                            rig.keeper();
                        }
                        rig.clock.set_wall(rig.clock.wall_ms() + ms);
                    }
                    Step::Keeper if running => {
                        rig.keeper();
                    }
                    Step::Restart => {
                        if running {
                            rig.keeper();
                        }
                        running = rig.restart().is_ok();
                    }
                    _ => {}
                }
                for id in ids {
                    prop_assert!(id > last, "{} after {}", id, last);
                    last = id;
                    let tick = rig.layout.unpack(id).tick;
                    // A step back is seen by the next reading of the precise clock, so the highest time counts.
                    prop_assert!(rig.layout.wall_ms_of(tick) <= highest + lead as i64, "{}", id);
                }
                highest = highest.max(rig.clock.wall_ms());
            }
        }
    }
}
