//! The word that counts positions, and when one of them may be taken.

// Counts and estimates that may have any value without harm. They are hidden from the model checker, which would explore every
// stale value of them.
use std::sync::atomic::AtomicU64 as Figure;

use super::refusal::{ClockBack, KEEPER_MS, Refusal, Why, until};
use super::{Layout, Scatter, Time};
use crate::error::{Error, Result};
use crate::process::sync::{AtomicBool, AtomicU64, CachePadded, Ordering, fence};
use crate::time::Stamp;

/// At and above this, `next` counts nothing. Positions are below it, because a layout has at most 63 bits; the calls that
/// may still add to the word are far fewer than the room above. A layout of 63 bits without a worker ends exactly here.
pub(super) const END: u64 = 1 << 63;

/// The generator is closed.
pub(super) const CLOSED: u64 = END | 1 << 61;

/// As `CLOSED`, and the reason is that another process has the worker id.
pub(super) const REVOKED: u64 = END | 1 << 62;

/// A leased worker's time is over, and another worker may follow. No count of calls that add to the word reaches from one of these
/// values to the next.
pub(in crate::snowflake) const LAPSED: u64 = END | 1 << 60;

/// No wall time is earlier: sends every call to the slow path without adding to `next`.
const OVER: u64 = i64::MIN as u64;

/// No first position: another worker is about to begin.
const CHANGING: u64 = u64::MAX;

/// Ids between two readings of the precise clock, at most, and no more than a tick has. More would save nothing: 25 ns over 4096 ids is
/// unmeasurable.
const MAX_BUDGET: u64 = 4096;

/// A budget is this part of what a tick is expected to need, so an id lags by about as much of a tick.
const BUDGETS_PER_TICK: u64 = 16;

/// A mark is stored at least this far ahead of the clock, however short `max_lead` is: so a store is written to a few
/// times a second at most, and the ids of a tick are covered before they are issued. The price is paid after a kill only:
/// the next process starts at the mark, and its callers wait for the clock this long.
const LEAST_REACH_MS: u64 = 1000;

/// What the fast path reads beside `next`, on a cache line of its own: written by the slow path only.
#[derive(Debug)]
pub(super) struct Gate {
    /// Positions below this need no precise clock.
    pub(super) limit: AtomicU64,
    /// Wall time, a [`Stamp`], from which the tick that `limit` was set in is over; [`OVER`]: no call adds to `next`.
    pub(super) fresh_until: AtomicU64,
    /// The mark should be raised soon.
    pub(super) hungry: AtomicBool,
    /// The worker, shifted to its place in an id. Written only while the word is 0 or [`LAPSED`].
    pub(super) worker_field: AtomicU64,
    pub(super) factors: FieldFactors,
}

/// Where tick and sequence have their places in an id: the position times `seq_factor`, which puts the sequence where it belongs,
/// and the tick's part of the position times `rest`, which moves that on to the tick's place. Products, because without BMI2 a shift
/// by a variable costs three instructions; modulo 2^64, because `rest` may be negative.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldFactors {
    tick_mask: u64,
    rest: u64,
    seq_factor: u64,
}

impl FieldFactors {
    fn of(layout: &Layout) -> FieldFactors {
        let tick_factor: u64 = 1 << (layout.time_shift() - layout.seq_bits());
        let seq_factor = 1 << layout.seq_shift();
        FieldFactors { tick_mask: !layout.max_seq(), rest: tick_factor.wrapping_sub(seq_factor), seq_factor }
    }

    #[inline]
    fn id(self, position: u64, worker_field: u64) -> u64 {
        let tick = (position & self.tick_mask).wrapping_mul(self.rest);
        position.wrapping_mul(self.seq_factor).wrapping_add(tick).wrapping_add(worker_field)
    }
}

/// What only the slow path and the keeper touch.
#[derive(Debug)]
pub(super) struct Slow {
    /// Ticks below this are covered by the store. 0: nothing is.
    pub(super) mark: AtomicU64,
    /// Wall time minus boot time, an `i64`, when the mark covered the wall time last. With the boot clock it gives the
    /// *floor*: time that has certainly passed, whatever was done to the wall clock since.
    pub(super) offset: AtomicU64,
    /// The highest tick that was adopted from the wall clock; below it the clock has stepped back.
    pub(super) seen: AtomicU64,
    /// Positions that were skipped: `next - skipped` is the number of ids.
    pub(super) skipped: Figure,
    /// Where `next` stood when the generator ended.
    pub(super) last: Figure,
    /// `next` when the current mark, and the mark being stored, were asked for: has anything been issued since?
    pub(super) marked_at: Figure,
    pub(super) asked_at: Figure,
    /// Where the last start put `next`: while it stands there, this generator has issued nothing since.
    pub(super) begun_at: Figure,
    /// The first position of the present worker. It rises with each worker, so that a call on the slow path recognises a change;
    /// [`CHANGING`] while `worker_field` is being written.
    pub(super) first: AtomicU64,
    /// Where ticks begin: the worker and the process's salt, mixed by [`spread_seed`].
    pub(super) spread_seed: Figure,
    /// The running estimate of the rate: ids counted and wall time at the start of its window, and what came out.
    pub(super) window_ids: Figure,
    pub(super) window_ms: Figure,
    pub(super) budget: Figure,
}

/// The generator without its clock.
#[derive(Debug)]
pub(in crate::snowflake) struct Core {
    /// The next position: `tick << seq_bits | seq`. 0 before the start, [`END`] and more after the end.
    pub(super) next: CachePadded<AtomicU64>,
    pub(super) gate: CachePadded<Gate>,
    pub(super) slow: CachePadded<Slow>,
    pub(super) layout: Layout,
    /// Ids need a mark above their tick also where they do not lead: another process may take this worker at its mark.
    pub(super) leased: bool,
    pub(super) clock_back: ClockBack,
    pub(super) max_lead_ms: u64,
    pub(super) lead_ticks: u64,
    /// How far ahead of the clock a mark is stored: the lead, or [`LEAST_REACH_MS`]; 0 where a tick is longer than both,
    /// and then each tick in use is marked when its first id is issued.
    pub(super) reach_ticks: u64,
    /// How far a mark is stored above the lead while the lead is in use, so that overload does not write to the store
    /// at every tick.
    pub(super) margin_ticks: u64,
    /// Sequence starts are spread over this many low bits.
    pub(super) spread_mask: u64,
    pub(super) seq_mask: u64,
    pub(super) seq_bits: u32,
}

/// One reading of the clock, and what follows from it.
pub(super) struct Moment {
    pub(super) wall_ms: i64,
    /// The tick of the wall clock; may be negative or beyond the layout.
    pub(super) now: i64,
    /// The tick up to which the word is moved: the wall clock's where the mark or the floor confirms it.
    pub(super) adopted: i64,
    /// First tick above `max_lead`.
    pub(super) lead_end: u64,
    /// First position that may not be taken.
    pub(super) cap: u64,
    /// Ticks below this are covered by the store.
    pub(super) mark: u64,
    /// The worker's field, and its first position.
    pub(super) worker_field: u64,
    pub(super) first: u64,
    /// How many ticks the clock is behind one it showed before; 0 normally.
    pub(super) behind: u64,
    /// The rate was below a quarter of the layout's, so positions may be skipped for evenness.
    pub(super) quiet: bool,
}

impl Core {
    pub(in crate::snowflake) fn new(
        layout: Layout,
        worker: Option<u64>,
        clock_back: ClockBack,
        max_lead_ms: u64,
        salt: u64,
    ) -> Result<Core> {
        let leased = worker.is_none();
        let worker = worker.unwrap_or(0);
        if worker > layout.max_worker() {
            return Err(Error::config(format!(
                "worker {worker} does not fit layout {layout}: valid are 0 to {}",
                layout.max_worker()
            )));
        }
        // No lead beyond a signed millisecond count; then no sum below overflows.
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
                fresh_until: AtomicU64::new(OVER),
                hungry: AtomicBool::new(true),
                worker_field: AtomicU64::new(layout.pack(0, worker, 0)),
                factors: FieldFactors::of(&layout),
            }),
            slow: CachePadded::new(Slow {
                mark: AtomicU64::new(0),
                offset: AtomicU64::new(0),
                seen: AtomicU64::new(0),
                skipped: Figure::new(0),
                last: Figure::new(0),
                marked_at: Figure::new(0),
                asked_at: Figure::new(0),
                begun_at: Figure::new(0),
                first: AtomicU64::new(0),
                spread_seed: Figure::new(spread_seed(worker, salt)),
                window_ids: Figure::new(0),
                window_ms: Figure::new(0),
                budget: Figure::new(0),
            }),
            layout,
            leased,
            clock_back,
            max_lead_ms,
            lead_ticks,
            reach_ticks: lead_ticks.max(LEAST_REACH_MS / layout.unit_ms().unsigned_abs()),
            margin_ticks: lead_ticks.div_ceil(3),
            spread_mask: (1 << spread_bits) - 1,
            seq_mask: layout.max_seq(),
            seq_bits,
        })
    }

    #[inline]
    pub(in crate::snowflake) fn next(&self, time: &impl Time) -> std::result::Result<u64, Refusal> {
        match self.quick(time) {
            Ok(id) => Ok(self.layout.write(id)),
            Err(taken) => self.slow_next(taken, time),
        }
    }

    /// The fast path alone, for ids that are not scattered. `Err` holds the position that was taken, if one was, for
    /// [`Core::slow_next`].
    #[expect(
        clippy::inline_always,
        reason = "registers that a call saves are stores, and the locked instruction waits for them"
    )]
    #[inline(always)]
    pub(super) fn quick(&self, time: &impl Time) -> std::result::Result<u64, Option<u64>> {
        // ordering: Acquire — pairs with the Release in `open`: the thread that set this limit moved `next` before, so the position below
        // is at or above the position that the limit was set for. Without it a call could take position 0.
        let limit = self.gate.limit.load(Ordering::Acquire);
        // ordering: Acquire — as above: a call that adds to the word finds it begun, also where it saw a limit from before.
        let fresh_until = Stamp::from_bits(self.gate.fresh_until.load(Ordering::Acquire));
        if time.coarse_stamp() >= fresh_until {
            return Err(None);
        }
        // ordering: Acquire — pairs with the Release in `begin_worker`, so that the position below is taken after the worker was
        // read: a position of an earlier worker, which a load that moved behind it could bear, is never one of this worker. The other
        // way round, a position of a later worker is at or above every limit that was set for an earlier one.
        let worker_field = self.gate.worker_field.load(Ordering::Acquire);
        // ordering: Relaxed — uniqueness needs only that read-modify-writes of one word are in one order.
        let position = self.next.fetch_add(1, Ordering::Relaxed);
        if position < limit { Ok(self.plain(position, worker_field)) } else { Err(Some(position)) }
    }

    /// The id of a position, scattered where the layout says so.
    fn compose(&self, position: u64, worker_field: u64) -> u64 {
        self.layout.write(self.plain(position, worker_field))
    }

    /// Fields in place, without the checks that `Layout::pack` makes: positions are below the end of the layout.
    #[inline]
    fn plain(&self, position: u64, worker_field: u64) -> u64 {
        self.gate.factors.id(position, worker_field)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn slow_next(
        &self,
        taken: Option<u64>,
        time: &impl Time,
    ) -> std::result::Result<u64, Refusal> {
        if let Some(position) = taken {
            return self.keep_or_retake(position, time);
        }
        let (first, moment) = self.claim(1, time)?;
        self.open(first.start, &moment);
        Ok(self.compose(first.start, moment.worker_field))
    }

    /// A position was taken past the limit or in a tick that is over. It belongs to this call alone, so it is used if it is still
    /// valid; otherwise it is skipped.
    fn keep_or_retake(&self, position: u64, time: &impl Time) -> std::result::Result<u64, Refusal> {
        // ordering: Acquire fence — with the Release in `begin_worker` that this position followed: `moment` sees the worker whose
        // position it is, or a later one, and then the position is below that worker's first.
        fence(Ordering::Acquire);
        let moment = self.moment(time);
        if position < END {
            if let Ok(moment) = &moment
                && position >= moment.first
                && position < moment.cap
                && (position >> self.seq_bits) as i64 >= moment.adopted
            {
                self.check_mark(position, moment);
                self.open(position, moment);
                return Ok(self.compose(position, moment.worker_field));
            }
            self.give_back(position);
        }
        let (first, moment) = self.claim(1, time)?;
        self.open(first.start, &moment);
        Ok(self.compose(first.start, moment.worker_field))
    }

    /// Returns a position that was taken and not issued. While nothing above it is taken the word steps down by one, so
    /// that narrow sequences lose nothing at each limit; otherwise it is skipped.
    fn give_back(&self, position: u64) {
        // The word is `position + 1` only when every position above is free, whatever happened in between; and only
        // its one holder can step below a position, so the word never falls below an issued position.
        // ordering: Relaxed — as for the fast path's `fetch_add`.
        if self.next.compare_exchange(position + 1, position, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // ordering: Relaxed — a count.
            self.slow.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(in crate::snowflake) fn take(
        &self,
        out: &mut [u64],
        time: &impl Time,
    ) -> std::result::Result<usize, Refusal> {
        if out.is_empty() {
            return Ok(0);
        }
        let (range, moment) = self.claim(out.len() as u64, time)?;
        let count = (range.end - range.start) as usize;
        let out = &mut out[..count];
        let step = self.gate.factors.seq_factor;
        let mut rest = &mut *out;
        let mut position = range.start;
        // Tick by tick: within one, ids differ by a constant step, which the compiler turns into vector stores.
        while !rest.is_empty() {
            let left = self.seq_mask - (position & self.seq_mask) + 1;
            let (run, tail) = rest.split_at_mut(left.min(rest.len() as u64) as usize);
            let mut id = self.plain(position, moment.worker_field);
            position += run.len() as u64;
            for slot in run {
                *slot = id;
                id = id.wrapping_add(step);
            }
            rest = tail;
        }
        if self.layout.scatter() != Scatter::None {
            for id in out {
                *id = self.layout.write(*id);
            }
        }
        Ok(count)
    }

    /// Takes 1 to `count` positions, never a position that may not be issued.
    fn claim(
        &self,
        count: u64,
        time: &impl Time,
    ) -> std::result::Result<(std::ops::Range<u64>, Moment), Refusal> {
        let mut moment = self.moment(time).inspect_err(|_| self.shut())?;
        // ordering: Relaxed — only a first guess for the exchange below.
        let mut current = self.next.load(Ordering::Relaxed);
        loop {
            if current >= END {
                self.shut();
                return Err(ended(current));
            }
            let mut first = current;
            let tick = (current >> self.seq_bits) as i64;
            // A tick that counting entered without issuing an id gets a start too, or sequence 0 would be frequent.
            let untouched = moment.quiet && current & self.seq_mask == 0;
            if moment.adopted > tick || moment.adopted == tick && untouched {
                first = self.spread_start(moment.adopted as u64);
            }
            if first >= moment.cap {
                self.shut();
                return Err(self.refuse(first, &moment));
            }
            let end = moment.cap.min(first.saturating_add(count));
            // ordering: Acquire — pairs with the Release in `begin_worker`: an exchange on a later worker's word sees that worker's
            // first position below. The limit that follows is published by `open`.
            match self.next.compare_exchange_weak(current, end, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    // ordering: Relaxed — a count.
                    self.slow.skipped.fetch_add(first - current, Ordering::Relaxed);
                    // ordering: Relaxed — ordered by the exchange.
                    if self.slow.first.load(Ordering::Relaxed) != moment.first {
                        // The worker changed between the reading of the clock and the exchange: its positions are skipped.
                        // ordering: Relaxed — a count.
                        self.slow.skipped.fetch_add(end - first, Ordering::Relaxed);
                        moment = self.moment(time).inspect_err(|_| self.shut())?;
                        // ordering: Relaxed — only a guess.
                        current = self.next.load(Ordering::Relaxed);
                        continue;
                    }
                    self.check_mark(end - 1, &moment);
                    return Ok((first..end, moment));
                }
                Err(seen) => current = seen,
            }
        }
    }

    /// Reads the clock and decides what may be issued now.
    pub(super) fn moment(&self, time: &impl Time) -> std::result::Result<Moment, Refusal> {
        // ordering: Relaxed — the word itself shows start and end.
        let current = self.next.load(Ordering::Relaxed);
        if current >= END {
            return Err(ended(current));
        }
        let (first, mark, worker_field) = self.worker_and_mark().ok_or(Refusal::Lapsed)?;
        if current == 0 || mark == 0 {
            // The store is asked for no mark and no worker of a layout that has ended.
            if self.layout.tick_at(time.wall_ms()) > self.layout.max_tick() as i64 {
                return Err(Refusal::LayoutEnded);
            }
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
        let proven_end = if self.leased { mark } else { mark.max(ticks_after(adopted, 1)) };
        let cap = lead_end.min(proven_end).min(field_end) << self.seq_bits;
        // ordering: Relaxed — an estimate.
        let budget = self.slow.budget.load(Ordering::Relaxed);
        // A budget is a sixteenth of a tick's ids; narrow sequences are never quiet, because they need every position.
        let quiet = budget < (self.seq_mask + 1) / (4 * BUDGETS_PER_TICK);
        Ok(Moment { wall_ms, now, adopted, lead_end, cap, mark, worker_field, first, behind, quiet })
    }

    /// The first position, the mark and the field of one and the same worker; the mark may be a later one of it. `None`: another worker
    /// is about to begin.
    fn worker_and_mark(&self) -> Option<(u64, u64, u64)> {
        loop {
            // ordering: Acquire — pairs with the Release of the first position in `begin_worker`, which follows the worker's field.
            let first = self.slow.first.load(Ordering::Acquire);
            if first == CHANGING {
                return None;
            }
            // ordering: Acquire — pairs with the Release in `raise_mark`: the offset read later is at least this mark's, and a mark
            // of a later worker shows its `first` below.
            let mark = self.slow.mark.load(Ordering::Acquire);
            // ordering: Acquire — pairs with the Release in `begin_worker`: a later worker's shows `CHANGING` or its `first` below.
            let worker_field = self.gate.worker_field.load(Ordering::Acquire);
            // ordering: Relaxed — ordered by the Acquires.
            if self.slow.first.load(Ordering::Relaxed) == first {
                return Some((first, mark, worker_field));
            }
        }
    }

    /// The worker, 0 before the first one of a leased generator.
    pub(super) fn worker(&self) -> u64 {
        // ordering: Relaxed — a figure.
        self.layout.unpack(self.gate.worker_field.load(Ordering::Relaxed)).worker
    }

    /// Begins with another worker. Its ticks below `start` belong to earlier owners. Only the keeper's thread calls this.
    /// `false`: the generator was closed, or counts with a worker.
    ///
    /// `place` answers with the first position, at or above the one it gets, which is above every position of earlier workers and in
    /// a tick of its own. No position of an earlier worker is issued from here on, and none of this worker earlier:
    /// * The word was swapped for [`LAPSED`], above which every call is refused, and it leaves that value last of all.
    /// * `first` lies above every limit that was set before, so that a stale limit admits no position of this worker.
    pub(super) fn begin_worker(&self, worker: u64, seed: u64, place: impl FnOnce(u64) -> u64) -> bool {
        // ordering: Acquire — pairs with the Release in `end`, after which `last` stands.
        let mut current = self.next.load(Ordering::Acquire);
        if current != 0 && !(LAPSED..CLOSED).contains(&current) {
            return false;
        }
        // ordering: Relaxed — ordered by the Acquire.
        let last = self.slow.last.load(Ordering::Relaxed);
        let first = place(if last == 0 {
            0
        } else {
            (((last + self.farthest_limit()) >> self.seq_bits) + 1) << self.seq_bits
        });
        // ordering: Relaxed — the Release below shows it with the field.
        self.slow.first.store(CHANGING, Ordering::Relaxed);
        // ordering: Release — pairs with the Acquire in `quick`: a call that bears this worker finds the word lapsed or begun; and with
        // the one in `worker_and_mark`.
        self.gate.worker_field.store(self.layout.pack(0, worker, 0), Ordering::Release);
        // ordering: Release — pairs with the first load in `worker_and_mark`: a call that sees this position sees its worker.
        self.slow.first.store(first, Ordering::Release);
        // ordering: Relaxed — for the keeper, when it closes; the rest are figures.
        self.slow.marked_at.store(first, Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.slow.begun_at.store(first, Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.slow.spread_seed.store(seed, Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.slow.skipped.fetch_add(first.saturating_sub(last), Ordering::Relaxed);
        loop {
            // ordering: Release — pairs with the Acquire of a `claim` that finds this word, and with the fence in `keep_or_retake`.
            match self.next.compare_exchange_weak(current, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return true,
                // Calls in flight add to the word.
                Err(seen) if seen == 0 || (LAPSED..CLOSED).contains(&seen) => current = seen,
                Err(_) => return false,
            }
        }
    }

    /// Whether callers find no worker.
    pub(super) fn has_lapsed(&self) -> bool {
        // ordering: Relaxed — a hint.
        (LAPSED..CLOSED).contains(&self.next.load(Ordering::Relaxed))
    }

    /// Calls the keeper where the mark is due, now that `position` is taken. Runs at least once in every tick in use.
    fn check_mark(&self, position: u64, moment: &Moment) {
        // Leases are renewed by time, not by use.
        if !self.leased && moment.mark <= self.renewal_level(moment.now, position >> self.seq_bits) {
            self.call_keeper();
        }
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
            // ordering: Relaxed — moves the word up, as any call does; a call in between has its own position.
            self.next.fetch_add(gap, Ordering::Relaxed);
            // ordering: Relaxed — a count.
            self.slow.skipped.fetch_add(gap, Ordering::Relaxed);
        }
        if budget == 0 {
            self.shut();
            return;
        }
        let tick = position >> self.seq_bits;
        // ordering: Release — pairs with the Acquire in `quick`: a call that sees this time, or this limit, sees `next` above
        // `position`. If two threads mix theirs, the slow path is entered early or an id lags by one budget.
        self.gate
            .fresh_until
            .store(Stamp::of_ms(self.layout.wall_ms_of(tick + 1)).to_bits(), Ordering::Release);
        // ordering: Release — as above.
        self.gate.limit.store(moment.cap.min(position + 1 + gap + budget), Ordering::Release);
    }

    /// Sends every call to the slow path, where it loads instead of adding to the word.
    pub(super) fn shut(&self) {
        // Many starved callers come here: they must not invalidate the cache line to write the value that it holds.
        // ordering: Relaxed — a call that still sees the old time takes one position too many, which is skipped.
        if self.gate.fresh_until.load(Ordering::Relaxed) != OVER {
            // ordering: Relaxed — as above.
            self.gate.fresh_until.store(OVER, Ordering::Relaxed);
        }
    }

    pub(super) fn call_keeper(&self) {
        // ordering: SeqCst fence — the position was taken before the load below; pairs with the fence in `wanted_mark`, so
        // either this call sees that the keeper took the last one and calls again, or the keeper sees the position.
        fence(Ordering::SeqCst);
        // ordering: Relaxed — ordered by the fence; read before it is written, as in `shut`.
        if !self.gate.hungry.load(Ordering::Relaxed) {
            // ordering: Relaxed — as above.
            self.gate.hungry.store(true, Ordering::Relaxed);
        }
    }

    /// How many ids may follow without a precise clock: a sixteenth of what a tick is expected to need.
    /// Races only make the estimate less exact.
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
        budget = budget.min(self.max_budget());
        // ordering: Relaxed — as above.
        slow.budget.store(budget, Ordering::Relaxed);
        budget
    }

    /// Ids between two readings of the precise clock, at most.
    fn max_budget(&self) -> u64 {
        MAX_BUDGET.min(self.seq_mask + 1)
    }

    /// How far above the position after which it was set a limit can lie: a budget and a gap. In a layout with few ids a tick it is few
    /// ticks, which is how long callers wait for the next worker.
    fn farthest_limit(&self) -> u64 {
        self.max_budget() + self.max_gap() + 2
    }

    /// The word, or its last value before the end.
    pub(in crate::snowflake) fn position(&self) -> u64 {
        // ordering: Relaxed — a figure.
        let current = self.next.load(Ordering::Relaxed);
        if current < LAPSED {
            return current.min(END);
        }
        // ordering: Relaxed — a figure; 0 for the moment in which the generator is ending.
        self.slow.last.load(Ordering::Relaxed)
    }

    /// The tick above every id, where `current` was the word's last value; `None`: there was no id.
    fn above(&self, current: u64) -> Option<u64> {
        if current == 0 {
            return None;
        }
        let tick = current >> self.seq_bits;
        // Nothing was issued since the start: the tick at which it began covers the ids before it.
        // ordering: Relaxed — written by the keeper, which closes.
        if self.slow.begun_at.load(Ordering::Relaxed) == current {
            return Some(tick);
        }
        Some((tick + 1).min(self.layout.max_tick() + 1))
    }

    pub(in crate::snowflake) fn end(&self, how: u64) -> Option<u64> {
        // ordering: Relaxed — a first guess.
        let mut current = self.next.load(Ordering::Relaxed);
        while current < CLOSED && (current < LAPSED || how != LAPSED) {
            // The exchange separates: positions below `current` are issued, and a call that adds to the word later gets one above
            // every limit.
            if current < LAPSED {
                // Before the exchange, so that a next worker begins above it; the word hardly ever falls, and then by one.
                // ordering: Relaxed — published by the exchange.
                self.slow.last.fetch_max(current, Ordering::Relaxed);
            }
            // ordering: Release — pairs with the Acquire in `begin_worker`, which reads `last`.
            match self.next.compare_exchange_weak(current, how, Ordering::Release, Ordering::Relaxed) {
                Ok(_) if current >= LAPSED => return None,
                Ok(_) => {
                    self.shut();
                    return self.above(current);
                }
                Err(seen) => current = seen,
            }
        }
        None
    }
}

/// What the starts of a worker's ticks are made of. The salt is the process's: two processes that use one worker by accident begin each
/// tick in places of their own, so that few of their ids are equal at low rates, and not all.
pub(super) fn spread_seed(worker: u64, salt: u64) -> u64 {
    worker.rotate_right(20) ^ salt
}

/// The refusal of an ended word.
fn ended(word: u64) -> Refusal {
    match word {
        REVOKED.. => Refusal::LeaseLost,
        CLOSED.. => Refusal::Closed,
        LAPSED.. => Refusal::Lapsed,
        _ => Refusal::LayoutEnded,
    }
}

/// The tick `count` after `tick`, 0 where that is before the epoch.
pub(super) fn ticks_after(tick: i64, count: u64) -> u64 {
    u64::try_from(i128::from(tick) + i128::from(count)).unwrap_or(0)
}

#[cfg(loom)]
impl Core {
    pub(in crate::snowflake) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Opens the fast path for `budget` ids at a time, as a high rate would.
    pub(in crate::snowflake) fn prime(&self, budget: u64, wall_ms: i64) {
        // ordering: Relaxed — before any thread of the model.
        self.slow.budget.store(budget.min(self.max_budget()), Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.slow.window_ms.store(wall_ms as u64, Ordering::Relaxed);
    }
}
