//! A well: one source's numbers, its callers and the refusal they are told, shared between callers and keeper. (floor 1)
//!
//! Callers take; who finds nothing rings and waits here, on this source's own condition, until its own deadline. The
//! keeper looks, publishes, and posts why it could not. No I/O is done under any lock of a well.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::bell::{Belfry, Bell};
use crate::error::{Code, Error, Result};
use crate::keeper::plan::{Action, Now, View};
use crate::revocation::Word;
use crate::segment::{Miss, Refused, Supply, Taken};
use crate::serial::Prefix;
use crate::snowflake::{Generator, Refusal as TimeRefusal, Why};
use crate::spec::{Body, Spec};
use crate::time::Clock;

/// A waiting caller looks again after this long at the latest, whoever should have woken it.
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// How long `try_next` suggests to wait when nothing better is known: a little more than a round trip.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// How long a snowflake rests whose stored mark is ahead of this machine's clock. The next caller after that asks the
/// store again: the clock may have been set right, or the mark repaired.
const START_REST: Duration = Duration::from_millis(200);

/// Where the numbers come from.
pub(crate) enum Spring {
    /// Segments that the keeper reserves.
    Numbers(Supply),
    /// A clock and a worker id.
    Time { generator: Generator, word: Word },
}

/// Why there is nothing right now, as the keeper posted it.
#[derive(Clone, Debug)]
struct Refusal {
    error: Error,
    /// When it was posted, on the wall clock.
    wall_ms: i64,
    /// When the keeper tries again, on the mill's boot clock: the one the keeper goes by, which may be a manual one.
    until_ms: u64,
    /// Counts refusals, so that a caller knows one that came after it asked.
    count: u64,
}

#[derive(Default)]
struct Standing {
    refusal: Option<Refusal>,
    refusals: u64,
}

/// What a source's counters say.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) reserved: AtomicU64,
    pub(crate) refills: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) waits: AtomicU64,
    /// The rate as the keeper measured it last.
    pub(crate) rate_per_1000s: AtomicU64,
    /// How many numbers the last reservation was, and when it came: milliseconds since 1970.
    pub(crate) last_step: AtomicU64,
    pub(crate) last_refill_ms: AtomicU64,
}

impl Tally {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        // ordering: Relaxed — a statistic.
        counter.fetch_add(n, Ordering::Relaxed);
    }

    fn refilled(&self, numbers: u64, now: Now) {
        Self::add(&self.refills, 1);
        Self::add(&self.reserved, numbers);
        // ordering: Relaxed — a statistic.
        self.last_step.store(numbers, Ordering::Relaxed);
        // ordering: Relaxed — a statistic.
        self.last_refill_ms.store(u64::try_from(now.wall_ms).unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn set_rate(&self, per_1000s: u64) {
        // ordering: Relaxed — a statistic.
        self.rate_per_1000s.store(per_1000s, Ordering::Relaxed);
    }

    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        // ordering: Relaxed — a statistic.
        counter.load(Ordering::Relaxed)
    }
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
    pub(crate) tally: Tally,
    pub(crate) bell: Arc<Bell>,
    clock: Clock,
    /// The snowflake's generator knows where the stored mark stood.
    started: AtomicBool,
    /// Where the mark stands is not asked again before this boot time: this machine's clock is behind it.
    start_again_ms: AtomicU64,
    standing: Mutex<Standing>,
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

/// Counts through what was taken.
fn write_numbers(out: &mut [u64], taken: &Taken) {
    for (slot, number) in out.iter_mut().zip(taken.lo..taken.hi) {
        *slot = number;
    }
}

/// Whether only the keeper can help.
fn needs_keeper(refusal: TimeRefusal) -> bool {
    matches!(refusal, TimeRefusal::NotReady { why: Why::Start | Why::Mark, .. })
}

static IDS: AtomicU64 = AtomicU64::new(1);

impl Well {
    /// A well without numbers yet.
    pub fn new(spec: Arc<Spec>, belfry: Arc<Belfry>, slot: usize, clock: Clock) -> Result<Self> {
        let bell = Arc::new(Bell::new(belfry, slot));
        let spring = match &spec.body {
            Body::Segment => Spring::Numbers(Supply::new(false, bell.clone())),
            Body::Serial { .. } => Spring::Numbers(Supply::new(true, bell.clone())),
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
                Spring::Numbers(supply) => supply.word().shared(),
                Spring::Time { word, .. } => word.shared(),
            },
            spring,
            tally: Tally::default(),
            bell,
            clock,
            started: AtomicBool::new(false),
            start_again_ms: AtomicU64::new(0),
            standing: Mutex::default(),
            changed: Condvar::new(),
            wanted: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        })
    }

    /// The word that is zero in a forked child and rises when blocks must be dropped.
    #[inline]
    pub(crate) fn word(&self) -> &Word {
        match &self.spring {
            Spring::Numbers(supply) => supply.word(),
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

    fn stand(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- callers ----

    /// One number of the shared counter, quietly. It is worth something only if the well [`Well::is_ours`].
    #[inline]
    pub(crate) fn quick(&self) -> std::result::Result<u64, Option<Miss>> {
        match &self.spring {
            Spring::Numbers(supply) => supply.take_one().map_err(Some),
            Spring::Time { .. } => Err(None),
        }
    }

    /// As [`Well::quick`], with the date part that belongs to the number.
    #[inline]
    pub(crate) fn quick_dated(&self) -> std::result::Result<(u64, Prefix), Option<Miss>> {
        match &self.spring {
            Spring::Numbers(supply) => supply.take_one_dated().map_err(Some),
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
            (Spring::Numbers(supply), Some(miss)) => supply.after(miss)?.ok(),
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
            Spring::Numbers(supply) => match supply.take_one() {
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
            Spring::Numbers(supply) => match supply.take_one() {
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
        let supply = self.supply()?;
        if enough <= 1 || supply.has_at_least(enough) {
            match supply.take(want) {
                Ok(taken) => return Ok(taken),
                Err(Refused::Closed) => return Err(self.closed()),
                Err(Refused::Dry) => {}
            }
        }
        // ordering: Relaxed — `Bell::ring` publishes it.
        self.asked.fetch_max(ask.max(1), Ordering::Relaxed);
        // What stands before the keeper hears of it: the same call in the same state has the same answer.
        let refusal = self.not_ready(enough);
        self.bell.ring();
        Err(refusal)
    }

    /// As many ids of the clock as there are right now, at least one, or why not.
    pub(crate) fn try_fill_time(&self, generator: &Generator, out: &mut [u64]) -> Result<usize> {
        match generator.try_take(out) {
            Ok(n) => {
                self.feed(generator);
                Ok(n)
            }
            Err(refusal) => Err(self.time_error(generator, refusal)),
        }
    }

    /// What a caller that waits in its own way does about `refusal` after `waited`: waits this long and tries again, or
    /// gives up with the error. The same judgement as that of a caller who waits here.
    pub(crate) fn patience(&self, refusal: Error, waited: Duration) -> Result<Duration> {
        let left = self.spec.deadline.saturating_sub(waited);
        let waits = match refusal.code {
            Code::NotReady | Code::StoreUnavailable => true,
            // A generator waits for its clock; a period that is over comes no nearer.
            Code::ClockBehind => matches!(self.spring, Spring::Time { .. }),
            _ => false,
        };
        let Some(again) = refusal.retry_after.filter(|_| waits) else { return Err(refusal) };
        let again = again.max(ROUND_TRIP);
        if again < left {
            return Ok(again);
        }
        match refusal.code {
            // A refill may land at any moment: until the deadline it is worth waiting for.
            Code::NotReady if !left.is_zero() => Ok(left),
            Code::NotReady => Err(match self.spring {
                Spring::Numbers(_) => self.deadline_passed(),
                // What was refused says what the clock lacks; this caller was ready to wait, and did.
                Spring::Time { .. } => Error { code: Code::Deadline, ..refusal },
            }),
            _ => Err(refusal),
        }
    }

    /// At least one and at most `want` numbers; waits for the first.
    pub(crate) fn lease(&self, want: u64) -> Result<Taken> {
        let supply = self.supply()?;
        match supply.take(want) {
            Ok(taken) => Ok(taken),
            Err(_) => self.wait_for(supply, want, 1, self.give_up_at()),
        }
    }

    /// Fills `out`, all of it or none; waits until the deadline.
    pub(crate) fn fill(&self, out: &mut [u64]) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let give_up_at = self.give_up_at();
        let supply = match &self.spring {
            Spring::Numbers(supply) => supply,
            Spring::Time { generator, .. } => return self.fill_with_time(generator, out, give_up_at),
        };
        // `out` is written when all of it is there: who is refused finds it as it was. Nearly always one part is all.
        let mut parts = Vec::new();
        let mut lacking = out.len() as u64;
        while lacking > 0 {
            // Taking begins when all of it is there, so that a store that is down costs numbers only where callers race.
            match self.wait_for(supply, lacking, lacking, give_up_at) {
                Ok(taken) if parts.is_empty() && taken.len() == lacking => {
                    write_numbers(out, &taken);
                    return Ok(());
                }
                Ok(taken) => {
                    lacking -= taken.len();
                    parts.push(taken);
                }
                Err(error) => {
                    Tally::add(&self.tally.lost, out.len() as u64 - lacking);
                    return Err(error);
                }
            }
        }
        let mut rest = out;
        for taken in &parts {
            let (now, later) = rest.split_at_mut(taken.len() as usize);
            write_numbers(now, taken);
            rest = later;
        }
        Ok(())
    }

    /// `count` numbers in runs, each with its date part: all of them, or an error; waits until the deadline.
    pub(crate) fn take_dated(
        &self,
        count: u64,
        mut with: impl FnMut(std::ops::Range<u64>, &Prefix),
    ) -> Result<()> {
        let give_up_at = self.give_up_at();
        let supply = self.supply()?;
        let mut done = 0;
        while done < count {
            let lacking = count - done;
            // As in `fill`: a store that is down costs no numbers.
            let taken = self.wait_for(supply, lacking, lacking, give_up_at).inspect_err(|_| {
                Tally::add(&self.tally.lost, done);
            })?;
            if let Some(prefix) = self.prefix(&taken) {
                with(taken.lo..taken.hi, &prefix);
                done += taken.len();
            } else {
                // The period ended between the count and the look: nobody gets these numbers.
                Tally::add(&self.tally.lost, taken.len());
            }
        }
        Ok(())
    }

    fn fill_with_time(&self, generator: &Generator, out: &mut [u64], give_up_at: Instant) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            match generator.try_take(&mut out[done..]) {
                Ok(n) => {
                    self.feed(generator);
                    done += n;
                }
                Err(_) => done += self.wait_for_time(generator, &mut out[done..], give_up_at)?.0,
            }
        }
        Ok(())
    }

    /// The date part that belongs to what was taken; `None` if its segment is gone and the number with it.
    pub fn prefix(&self, taken: &Taken) -> Option<Prefix> {
        match &self.spring {
            Spring::Numbers(supply) => supply.prefix(taken).map(|(_, prefix)| prefix),
            Spring::Time { .. } => None,
        }
    }

    pub(crate) fn supply(&self) -> Result<&Supply> {
        match &self.spring {
            Spring::Numbers(supply) => Ok(supply),
            Spring::Time { .. } => Err(Error::argument(format!(
                "`{}` has no ranges to lease; take ids one by one or in batches",
                self.spec.label
            ))),
        }
    }

    fn give_up_at(&self) -> Instant {
        Instant::now() + self.spec.deadline
    }

    /// Waits until `enough` numbers are in memory (or one, if the source is what it is), then takes up to `want`.
    #[cold]
    fn wait_for(&self, supply: &Supply, want: u64, enough: u64, give_up_at: Instant) -> Result<Taken> {
        if enough <= 1 || supply.has_at_least(enough) {
            match supply.take(want) {
                Ok(taken) => return Ok(taken),
                Err(Refused::Closed) => return Err(self.closed()),
                Err(Refused::Dry) => {}
            }
        }
        Tally::add(&self.tally.waits, 1);
        self.wait_in_line(supply, want, enough, give_up_at)
    }

    fn wait_in_line(&self, supply: &Supply, want: u64, enough: u64, give_up_at: Instant) -> Result<Taken> {
        let mut standing = self.stand();
        let before = standing.refusals;
        loop {
            if enough <= 1 || supply.has_at_least(enough) {
                match supply.take(want) {
                    Ok(taken) => return Ok(taken),
                    Err(Refused::Closed) => return Err(self.closed()),
                    Err(Refused::Dry) => {}
                }
            }
            let now = Instant::now();
            if let Some(error) = self.verdict(&standing, before, enough, now, give_up_at) {
                return Err(error);
            }
            // ordering: Relaxed — `Bell::ring` publishes it.
            self.wanted.fetch_add(enough, Ordering::Relaxed);
            self.bell.ring();
            let (guard, _) = self
                .changed
                .wait_timeout(standing, (give_up_at - now).min(LONGEST_NAP))
                .unwrap_or_else(PoisonError::into_inner);
            // Before it takes: a keeper that looks between the two would reserve for it a second time.
            // ordering: Relaxed — the count that takes is a read-modify-write behind it; where a machine shows them the
            // other way round, one step more is reserved and nothing else happens.
            self.wanted.fetch_sub(enough, Ordering::Relaxed);
            standing = guard;
        }
    }

    /// Whether a caller who waits for `enough` numbers gives up now, and with what.
    fn verdict(
        &self,
        standing: &Standing,
        before: u64,
        enough: u64,
        now: Instant,
        give_up_at: Instant,
    ) -> Option<Error> {
        if let Some(refusal) = &standing.refusal {
            let again = self.stands_for(refusal);
            let outage = refusal.error.code == Code::StoreUnavailable;
            let fresh = refusal.count > before || !again.is_zero();
            // An outage may end within the deadline; a refusal stands until the keeper's next try.
            let hopeless = if outage { now + again >= give_up_at } else { fresh };
            if hopeless || now >= give_up_at {
                return Some(self.told(refusal, again, enough));
            }
        } else if now >= give_up_at {
            return Some(self.deadline_passed());
        }
        None
    }

    /// A refusal as it is told to a caller who needs `enough` numbers.
    fn told(&self, refusal: &Refusal, again: Duration, enough: u64) -> Error {
        let mut error = refusal.error.clone();
        error.retry_after = match error.code {
            Code::Exhausted | Code::NumberOverflow => {
                if let Spring::Numbers(supply) = &self.spring {
                    let left = supply.sight().left;
                    if (1..enough).contains(&left) {
                        error.message = format!(
                            "`{}` has {left} more numbers, {enough} more were asked for; ask for fewer at a time: {}",
                            self.spec.label, error.message
                        );
                    }
                }
                self.until_next_period(refusal, again)
            }
            _ => Some(again.max(ROUND_TRIP)),
        };
        error
    }

    /// How long until the period is over whose numbers ended, and they begin anew; `None` where they never do.
    fn until_next_period(&self, refusal: &Refusal, again: Duration) -> Option<Duration> {
        let pattern = self.spec.pattern()?;
        let end = pattern.period_end_ms(pattern.period_at(refusal.wall_ms))?;
        let left = Duration::from_millis(end.saturating_sub(self.clock.wall_ms()).max(0) as u64);
        Some(left.max(again).max(ROUND_TRIP))
    }

    /// How long a refusal stands from now.
    fn stands_for(&self, refusal: &Refusal) -> Duration {
        Duration::from_millis(refusal.until_ms.saturating_sub(self.clock.boot_ms()))
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

    fn closed(&self) -> Error {
        Error::new(Code::Closed, format!("the mill of `{}` was closed", self.spec.label))
    }

    fn not_ready(&self, enough: u64) -> Error {
        let standing = self.stand();
        match standing.refusal.as_ref().map(|refusal| (refusal, self.stands_for(refusal))) {
            Some((refusal, again)) if !again.is_zero() => self.told(refusal, again, enough),
            _ => Error::new(Code::NotReady, format!("no number of `{}` is in memory yet", self.spec.label))
                .after(ROUND_TRIP),
        }
    }

    // ---- snowflakes ----

    /// A caller that finds the mark running low calls the keeper: one plain load per id.
    #[inline]
    fn feed(&self, generator: &Generator) {
        if generator.wants_keeper() {
            self.bell.ring();
        }
    }

    #[cold]
    fn time_error(&self, generator: &Generator, refusal: TimeRefusal) -> Error {
        if needs_keeper(refusal) {
            let posted = self.not_ready(1);
            self.bell.ring();
            if posted.code != Code::NotReady {
                return posted;
            }
        }
        self.explained(generator, refusal)
    }

    fn explained(&self, generator: &Generator, refusal: TimeRefusal) -> Error {
        // A worker id that was lost has a story, which the keeper posted.
        let posted = self.refusal().filter(|e| e.code == refusal.code());
        let mut error = posted.unwrap_or_else(|| generator.explain(refusal));
        if refusal == TimeRefusal::Closed {
            return self.closed();
        }
        error.retry_after = refusal.retry_after_ms().map(|ms| Duration::from_millis(ms).max(ROUND_TRIP));
        error
    }

    /// Waits until the generator gives at least one id; answers with how many, and the first.
    #[cold]
    fn wait_for_time(
        &self,
        generator: &Generator,
        out: &mut [u64],
        give_up_at: Instant,
    ) -> Result<(usize, u64)> {
        let before = self.stand().refusals;
        let mut waited = false;
        loop {
            let refusal = match generator.try_take(out) {
                Ok(n) => {
                    self.feed(generator);
                    return Ok((n, out.first().copied().unwrap_or(0)));
                }
                Err(refusal) => refusal,
            };
            if !std::mem::replace(&mut waited, true) {
                Tally::add(&self.tally.waits, 1);
            }
            let now = Instant::now();
            let left = give_up_at.saturating_duration_since(now);
            let standing = self.stand();
            let pause = if needs_keeper(refusal) {
                if let Some(error) = self.verdict(&standing, before, 1, now, give_up_at) {
                    return Err(error);
                }
                self.bell.ring();
                // The keeper may have answered between the try and the lock: look again soon.
                left.min(Duration::from_millis(20))
            } else {
                match refusal.retry_after_ms().map(Duration::from_millis) {
                    Some(pause) if pause < left => pause.max(Duration::from_micros(50)),
                    _ => {
                        drop(standing);
                        let mut error = self.explained(generator, refusal);
                        if error.code == Code::NotReady {
                            // The caller was ready to wait, and did.
                            error.code = Code::Deadline;
                        }
                        return Err(error);
                    }
                }
            };
            drop(self.changed.wait_timeout(standing, pause).unwrap_or_else(PoisonError::into_inner));
        }
    }

    // ---- the keeper ----

    /// What the planner decides by.
    pub(crate) fn view(&self) -> View {
        self.bell.answer();
        match &self.spring {
            Spring::Numbers(supply) => {
                let mut sight = supply.sight();
                // ordering: Relaxed — acquired with the bell.
                let asked = self.asked.load(Ordering::Relaxed);
                if asked > 0 && asked <= sight.left {
                    // It came by another's flight: kept, it would be reserved for once more when that is used up.
                    // ordering: Relaxed — as in `answered`; who asked in the meantime has changed the figure.
                    let _ = self.asked.compare_exchange(asked, 0, Ordering::Relaxed, Ordering::Relaxed);
                }
                // After `sight`: whoever took what that found missing wants nothing any more.
                // ordering: Relaxed — acquired with the bell.
                sight.wanted = self.wanted.load(Ordering::Relaxed).max(asked);
                View::Supply(sight)
            }
            Spring::Time { generator, .. } => {
                // ordering: Relaxed — written by the keeper itself.
                let started = self.started.load(Ordering::Relaxed);
                // ordering: Relaxed — as above.
                let rests = self.clock.boot_ms() < self.start_again_ms.load(Ordering::Relaxed);
                let wanted_mark = if started {
                    generator.wanted_mark()
                } else if rests {
                    // The store's answer was of no use yet: asked again at once, it would be asked without end.
                    None
                } else {
                    // Raising to 0 changes nothing and tells where the mark stands.
                    Some(0)
                };
                View::Time { wanted_mark, waiting: generator.mark() == 0 }
            }
        }
    }

    /// Carries out what the planner decided.
    pub(crate) fn act(&self, action: Action, now: Now) {
        match (action, &self.spring) {
            (Action::Publish(segment), Spring::Numbers(supply)) => {
                self.tally.refilled(segment.len(), now);
                if !supply.publish(segment) {
                    Tally::add(&self.tally.lost, segment.len());
                }
                self.supplied();
            }
            (Action::DropOtherPeriods(keep), Spring::Numbers(supply)) => {
                Tally::add(&self.tally.lost, supply.drop_other_periods(keep).lost);
            }
            (Action::DropOlder(born), Spring::Numbers(supply)) => {
                Tally::add(&self.tally.lost, supply.drop_older(born).lost);
            }
            (Action::RingAt(left), Spring::Numbers(supply)) => supply.ring_at(left),
            (Action::Start(before), Spring::Time { generator, .. }) => match generator.start(before) {
                // ordering: Relaxed — read by the keeper itself.
                Ok(()) => self.started.store(true, Ordering::Relaxed),
                Err(error) => {
                    let again_ms = now.boot_ms + START_REST.as_millis() as u64;
                    // ordering: Relaxed — read by the keeper itself.
                    self.start_again_ms.store(again_ms, Ordering::Relaxed);
                    self.post(error.after(START_REST), now);
                }
            },
            (Action::Mark(mark), Spring::Time { generator, .. }) => {
                generator.raise_mark(mark);
                self.supplied();
            }
            (Action::Fail(error), spring) => {
                if let (Code::LeaseLost, Spring::Time { generator, .. }) = (error.code, spring) {
                    generator.revoke();
                }
                self.post(error, now);
            }
            // The planner sends each kind of source its own actions.
            _ => debug_assert!(false, "an action for another kind of source at {now:?}"),
        }
    }

    /// Numbers are there: whoever waits may look.
    fn supplied(&self) {
        self.answered();
        self.stand().refusal = None;
        self.changed.notify_all();
    }

    /// The store has answered whoever did not wait; who still lacks numbers asks again.
    fn answered(&self) {
        // ordering: Relaxed — read by the keeper itself; a wish that comes at the same time is asked again.
        self.asked.store(0, Ordering::Relaxed);
    }

    fn post(&self, error: Error, now: Now) {
        self.answered();
        let mut standing = self.stand();
        standing.refusals += 1;
        let wait = error.retry_after.unwrap_or(ROUND_TRIP);
        let until_ms = now.boot_ms.saturating_add(wait.as_millis() as u64);
        let count = standing.refusals;
        standing.refusal = Some(Refusal { error, wall_ms: now.wall_ms, until_ms, count });
        drop(standing);
        self.changed.notify_all();
    }

    /// Wakes whoever waits, to look at a clock that was moved.
    pub(crate) fn nudge(&self) {
        drop(self.stand());
        self.changed.notify_all();
    }

    /// Closes for good; answers with what nobody was given.
    pub(crate) fn close(&self) -> Vec<(u64, u64, u64)> {
        let rest = match &self.spring {
            Spring::Numbers(supply) => supply.close(),
            Spring::Time { generator, word } => {
                word.revoke();
                let mark = generator.mark();
                generator
                    .close()
                    .filter(|unused| *unused < mark)
                    .map(|unused| (0, unused, mark))
                    .into_iter()
                    .collect()
            }
        };
        self.nudge();
        rest
    }

    /// The refusal callers are told now, if one stands.
    pub(crate) fn refusal(&self) -> Option<Error> {
        self.stand().refusal.as_ref().map(|r| r.error.clone())
    }
}
