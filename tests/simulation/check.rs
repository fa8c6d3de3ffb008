//! The ledger: which process reserved and issued which numbers, and the violations of promises.
//!
//! It uses nothing that passed between keeper and store: it records grants where the database applies them, and ids where
//! callers get them. Promises: `docs/guarantees.md`.

use std::collections::{BTreeMap, HashMap, VecDeque};

use keymill::Code;
use keymill::planner::{Answer, Ask};
use keymill::simulation::Rules;
use keymill::store::{FaultKind, Mark};

use super::store::{Applied, MS, Micros};

/// A row, by the order in which the scenario names it.
pub type KeyId = usize;
/// One life of a process: the number is never used twice.
pub type Life = usize;

/// A range that the database has reserved for one source of one life.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    period: u64,
    lo: u64,
    hi: u64,
    at: Micros,
}

/// Numbers `[lo, hi)` that were issued, and to which source; the key of the map is `(period, lo)`.
#[derive(Clone, Copy, Debug)]
struct Issue {
    hi: u64,
    holder: usize,
    reserved_at: Micros,
}

/// A row was set back: the numbers from `from` up to `to` were reserved and forgotten.
#[derive(Clone, Copy, Debug)]
struct Loss {
    from: Mark,
    to: Mark,
    at: Micros,
}

/// The history of one row.
#[derive(Default)]
struct Row {
    issues: BTreeMap<(u64, u64), Issue>,
    flakes: HashMap<u64, (usize, Micros)>,
    losses: Vec<Loss>,
    /// The highest position ever reserved: an operator repairs to it.
    highest: Mark,
    /// `Exhausted` was answered by a row that had no number left.
    exhausted: bool,
    /// This mark was moved by a dead predecessor's statement, or by an operator.
    moved_by_others: bool,
}

/// A mark is raised about six times in `max_lead`, which is a second at least in these worlds.
const MOST_RAISES: u64 = 40;
/// Half of the planner's shortest wait, as the planner's clock counts in whole milliseconds.
const LEAST_REST: Micros = 24 * MS;

/// One source of one life.
#[allow(clippy::struct_excessive_bools, reason = "facts of its spec and of its life, not a state")]
struct Holder {
    key: KeyId,
    life: Life,
    rules: Rules,
    in_blocks: bool,
    /// A snowflake.
    by_clock: bool,
    last: u64,
    heal: bool,
    /// The highest position that its keeper has received.
    mark: Mark,
    grants: Vec<Grant>,
    /// The last one issued, for sources that rise.
    issued: Mark,
    /// Reserved and not yet taken from the source; `None` where segments are dropped by time.
    unused: Option<u64>,
    /// Taken from the source since the row's period was the last grant's.
    used: u64,
    rate: Rate,
    largest_want: u64,
    /// Statements, by second.
    in_flight: (u64, u64),
    /// When its last statement was refused, if it was.
    refused_at: Option<Micros>,
    /// Snowflakes: the mark that the store acknowledged.
    raised_to: u64,
    /// Snowflakes: the highest tick of an id, and since when an id is not covered.
    highest_tick: Option<u64>,
    uncovered_since: Option<Micros>,
    /// Snowflakes: no id at or above this tick was covered by the store when the process died.
    covered_to: Option<u64>,
    clock_set_back_since: bool,
}

/// The highest rate over a second or more: the keeper may have measured it. From buckets of 250 ms.
#[derive(Default)]
struct Rate {
    buckets: VecDeque<(u64, u64)>,
    per_1000s: u64,
}

impl Rate {
    fn add(&mut self, now: Micros, count: u64) {
        let bucket = now / (250 * MS);
        match self.buckets.back_mut() {
            Some((last, sum)) if *last == bucket => *sum += count,
            _ => self.buckets.push_back((bucket, count)),
        }
        while self.buckets.front().is_some_and(|(first, _)| first + 10 <= bucket) {
            self.buckets.pop_front();
        }
        // `e` quarters touch at most `e + 1` buckets; more than nine quarters are composed of shorter times.
        let mut sum = 0;
        for &(at, n) in self.buckets.iter().rev() {
            sum += n;
            let quarters = (bucket - at).saturating_sub(1).max(4);
            self.per_1000s = self.per_1000s.max((sum * 4_000).div_ceil(quarters));
        }
    }
}

/// The totals of all histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Ids handed to callers.
    pub ids: u64,
    /// Numbers that reservations took from rows.
    pub reserved: u64,
    /// Numbers that a clean close gave back.
    pub given_back: u64,
    /// Ids issued twice after a restored backup, a deleted row or a failover that lost writes: no promise excludes these.
    pub twice_after_loss: u64,
    /// Snowflakes issued twice because a process died with ids that the store did not cover and its clock was set back
    /// behind them: no promise excludes these either.
    pub twice_uncovered: u64,
}

/// The ledger.
#[derive(Default)]
pub struct Ledger {
    rows: Vec<Row>,
    holders: Vec<Holder>,
    /// The violations.
    pub violations: Vec<String>,
    /// Only violations that contain this text count: to check that one test of the ledger also notices other defects.
    pub only: Option<&'static str>,
    /// Totals.
    pub figures: Figures,
}

impl Ledger {
    /// A ledger for this many rows.
    #[must_use]
    pub fn new(rows: usize) -> Ledger {
        Ledger { rows: (0..rows).map(|_| Row::default()).collect(), ..Ledger::default() }
    }

    /// Opens a source; answers with its number.
    pub fn open(&mut self, key: KeyId, life: Life, spec: &keymill::simulation::Spec) -> usize {
        let in_blocks = spec.order == keymill::simulation::Order::Thread;
        self.holders.push(Holder {
            key,
            life,
            rules: spec.rules,
            in_blocks,
            by_clock: spec.snowflake.is_some(),
            last: spec.last,
            heal: spec.heal,
            mark: Mark::default(),
            grants: Vec::new(),
            issued: Mark::default(),
            unused: spec.rules.ttl_ms.is_none().then_some(0),
            used: 0,
            rate: Rate::default(),
            largest_want: 0,
            in_flight: (0, 0),
            refused_at: None,
            raised_to: 0,
            highest_tick: None,
            uncovered_since: None,
            covered_to: None,
            clock_set_back_since: false,
        });
        self.holders.len() - 1
    }

    fn violate(&mut self, at: Micros, holder: usize, what: &str) {
        if self.only.is_none_or(|only| what.contains(only)) && self.violations.len() < 20 {
            let Holder { key, life, .. } = self.holders[holder];
            self.violations.push(format!("{} process {life}, row {key}: {what}", clock(at)));
        }
    }

    /// The keeper sends a statement. A snowflake sends few: only the store would notice a keeper that repeats it for ever.
    pub fn asked(&mut self, holder: usize, at: Micros) {
        let h = &mut self.holders[holder];
        let refused_at = h.refused_at;
        let second = at / (1000 * MS);
        h.in_flight = if h.in_flight.0 == second { (second, h.in_flight.1 + 1) } else { (second, 1) };
        if h.by_clock && h.in_flight.1 > MOST_RAISES {
            self.violate(
                at,
                holder,
                &format!("more than {MOST_RAISES} statements of a snowflake in a second"),
            );
        }
        if refused_at.is_some_and(|then| at < then + LEAST_REST) {
            self.violate(at, holder, "a refused statement was sent again without a rest");
        }
    }

    /// A batch contains a source twice: the second request would reserve what the first is about to bring.
    pub fn twice_in_a_batch(&mut self, holder: usize, at: Micros) {
        self.violate(at, holder, "a source is twice in one batch");
    }

    /// The keeper received the end of a statement.
    pub fn answered(&mut self, holder: usize, fault: Option<FaultKind>, at: Micros) {
        // A store that fails pauses for all sources, and the success of any source ends the pause.
        let refused = fault.is_some_and(|kind| !matches!(kind, FaultKind::Unknown | FaultKind::Unavailable));
        self.holders[holder].refused_at = refused.then_some(at);
    }

    /// The database carried out a statement of this source; `late`: its keeper had given up waiting, and may have seen more
    /// since.
    pub fn applied(
        &mut self,
        holder: usize,
        ask: &Ask,
        done: &Applied,
        late: bool,
        at: Micros,
    ) -> Option<Grant> {
        let Holder { key, mark, heal, .. } = self.holders[holder];
        if let Some(after) = done.after {
            self.rows[key].highest = self.rows[key].highest.max(after);
        }
        let Ask::Reserve(_) = ask else { return None };
        let below = !late && mark != Mark::default() && done.before.is_none_or(|before| before < mark);
        match &done.answer {
            Ok(Answer::Reserved(range)) => {
                if below && !heal {
                    self.violate(
                        at,
                        holder,
                        &format!(
                            "a row at {:?} gave numbers to a process that has seen {mark:?}",
                            done.before
                        ),
                    );
                }
                self.figures.reserved += range.hi - range.lo;
                Some(Grant { period: range.period, lo: range.lo, hi: range.hi, at })
            }
            Ok(_) => None,
            Err(fault) => {
                if done.before != done.after {
                    self.violate(
                        at,
                        holder,
                        &format!(
                            "a refusal ({:?}) moved the row from {:?} to {:?}",
                            fault.kind, done.before, done.after
                        ),
                    );
                }
                if fault.kind == FaultKind::WentBackwards && !below && !late {
                    self.violate(
                        at,
                        holder,
                        &format!(
                            "a row at {:?} was said to have gone backwards behind {mark:?}",
                            done.before
                        ),
                    );
                }
                if fault.kind == FaultKind::Exhausted {
                    let last = self.holders[holder].last;
                    // A healed row is where its process has seen it.
                    let stands = if heal { done.before.max(Some(mark)) } else { done.before };
                    let used_up = stands.is_some_and(|stands| stands.next > last);
                    if !used_up {
                        self.violate(
                            at,
                            holder,
                            &format!("a row at {:?} was said to be used up; last is {last}", done.before),
                        );
                    }
                    self.rows[key].exhausted = true;
                }
                None
            }
        }
    }

    /// The keeper received a grant.
    pub fn landed(&mut self, holder: usize, grant: Grant, at: Micros) {
        let h = &mut self.holders[holder];
        let place = Mark { period: grant.period, next: grant.lo };
        if grant.period != h.mark.period {
            h.unused = h.unused.map(|_| 0); // what was left of the old period is dropped
            h.used = 0;
        }
        if let Some(unused) = &mut h.unused {
            *unused += grant.hi - grant.lo;
        }
        if place >= h.mark {
            h.mark = Mark { period: grant.period, next: grant.hi };
        }
        h.grants.push(grant);
        self.check_waste(holder, at);
    }

    /// Reserved and unused stays under what the rate asks for, and under four largest steps; of numbers that end, under what was
    /// used and two steps.
    fn check_waste(&mut self, holder: usize, at: Micros) {
        let h = &self.holders[holder];
        let Some(unused) = h.unused else { return };
        let rules = h.rules;
        // A refill fills up to this: `buffer` is the floor.
        let buffer = h.rate.per_1000s * rules.buffer_ms / 1_000_000 * 6 / 5 + 1;
        let spare = 2 * rules.min_step + rules.unit + h.largest_want;
        if unused > buffer + spare || unused > 4 * rules.max_step + spare {
            let rate = h.rate.per_1000s;
            self.violate(
                at,
                holder,
                &format!("{unused} numbers lie reserved and unused at {rate} in 1000 s, {rules:?}"),
            );
        }
        let Holder { used, largest_want, .. } = self.holders[holder];
        // Callers who gave up leave what they lacked.
        if rules.ends && unused > used.max(2 * rules.min_step) + rules.unit + 5 * largest_want {
            self.violate(
                at,
                holder,
                &format!("{unused} numbers lie reserved, and {used} were used, {rules:?}"),
            );
        }
    }

    /// A caller asks for this many.
    pub fn wanted(&mut self, holder: usize, want: u64) {
        let h = &mut self.holders[holder];
        h.largest_want = h.largest_want.max(want);
    }

    /// Numbers left the source, for a caller or for a block.
    pub fn taken(&mut self, holder: usize, count: u64, at: Micros) {
        let h = &mut self.holders[holder];
        h.rate.add(at, count);
        h.used += count;
        if let Some(unused) = &mut h.unused {
            // Numbers beyond the reservation are reported where they are issued.
            *unused = unused.saturating_sub(count);
        }
    }

    /// Callers received `[lo, hi)` of this period.
    pub fn issued(&mut self, holder: usize, period: u64, lo: u64, hi: u64, at: Micros) {
        self.figures.ids += hi - lo;
        let h = &mut self.holders[holder];
        let from = Mark { period, next: lo };
        let fell = !h.in_blocks && from <= h.issued;
        let before = std::mem::replace(&mut h.issued, Mark { period, next: hi - 1 });
        let last = h.last;
        let grant = h.grants.iter().rev().find(|g| g.period == period && g.lo <= lo && hi <= g.hi).copied();
        if fell {
            self.violate(at, holder, &format!("{from:?} was issued after {before:?}"));
        }
        if hi - 1 > last {
            self.violate(at, holder, &format!("{} was issued, the last is {last}", hi - 1));
        }
        if grant.is_none() {
            self.violate(
                at,
                holder,
                &format!("[{lo}, {hi}) of period {period} was issued and never reserved for it"),
            );
        }
        self.enter(holder, period, lo, hi, grant.map_or(at, |grant| grant.at), at);
    }

    /// Records an issue of numbers that no other source may have.
    fn enter(&mut self, holder: usize, period: u64, lo: u64, hi: u64, reserved_at: Micros, at: Micros) {
        let key = self.holders[holder].key;
        let new = Issue { hi, holder, reserved_at };
        let issues = &mut self.rows[key].issues;
        // The usual case: it continues this source's last issue, or touches no other.
        let next = issues
            .range((period, lo)..)
            .next()
            .filter(|((p, l), _)| *p == period && *l < hi)
            .map(|(k, _)| *k);
        let before = issues.range_mut(..(period, lo)).next_back().filter(|((p, _), _)| *p == period);
        if next.is_none() {
            match before {
                Some((_, old)) if old.hi == lo && old.holder == holder && old.reserved_at == reserved_at => {
                    old.hi = hi;
                    return;
                }
                Some((_, old)) if old.hi > lo => {}
                _ => {
                    issues.insert((period, lo), new);
                    return;
                }
            }
        }
        self.enter_over(holder, period, lo, new, at);
    }

    /// Some of these were issued before: reports a violation unless the repetition is excused, and records the new issue.
    fn enter_over(&mut self, holder: usize, period: u64, lo: u64, new: Issue, at: Micros) {
        let key = self.holders[holder].key;
        let issues = &self.rows[key].issues;
        let mut old: Vec<((u64, u64), Issue)> =
            issues.range((period, lo)..(period, new.hi)).map(|(k, issue)| (*k, *issue)).collect();
        old.extend(
            issues
                .range(..(period, lo))
                .next_back()
                .filter(|((p, _), issue)| *p == period && issue.hi > lo)
                .map(|(k, issue)| (*k, *issue)),
        );
        for ((_, old_lo), issue) in old {
            let (from, to) = (lo.max(old_lo), new.hi.min(issue.hi));
            if self.was_forgotten(key, period, from, to, new.reserved_at.max(issue.reserved_at))
                && issue.holder != holder
            {
                self.figures.twice_after_loss += to - from;
            } else {
                let other = self.holders[issue.holder].life;
                self.violate(
                    at,
                    holder,
                    &format!("[{from}, {to}) of period {period} was issued twice, before by process {other}"),
                );
            }
            let issues = &mut self.rows[key].issues;
            issues.remove(&(period, old_lo));
            if old_lo < from {
                issues.insert((period, old_lo), Issue { hi: from, ..issue });
            }
            if to < issue.hi {
                issues.insert((period, to), issue);
            }
        }
        self.rows[key].issues.insert((period, lo), new);
    }

    /// Whether each of these numbers was forgotten by a row, and reserved once more after that. Two losses in a row forget
    /// adjoining numbers, so one reservation may span both.
    fn was_forgotten(&self, key: KeyId, period: u64, from: u64, to: u64, last_reserved: Micros) -> bool {
        let mut next = from;
        while next < to {
            let here = Mark { period, next };
            let forgotten_to = self.rows[key]
                .losses
                .iter()
                .filter(|loss| last_reserved >= loss.at && loss.from <= here && here < loss.to)
                .map(|loss| if loss.to.period > period { to } else { loss.to.next })
                .max();
            match forgotten_to {
                Some(end) => next = end,
                None => return false,
            }
        }
        true
    }

    /// A caller received a snowflake.
    pub fn flake(&mut self, holder: usize, id: u64, tick: u64, at: Micros) {
        self.figures.ids += 1;
        let h = &mut self.holders[holder];
        let before = std::mem::replace(&mut h.issued.next, id);
        h.highest_tick = h.highest_tick.max(Some(tick));
        if tick >= h.raised_to {
            h.uncovered_since.get_or_insert(at);
        }
        let key = h.key;
        if id <= before {
            self.violate(at, holder, &format!("snowflake {id} was issued after {before}"));
        }
        let row = &mut self.rows[key];
        if let Some((other, then)) = row.flakes.insert(id, (holder, at)) {
            let (other_life, old) = (self.holders[other].life, &self.holders[other]);
            if !row.losses.is_empty() && other != holder {
                self.figures.twice_after_loss += 1;
            } else if other != holder
                && old.covered_to.is_some_and(|to| tick >= to)
                && old.clock_set_back_since
            {
                self.figures.twice_uncovered += 1;
            } else {
                self.violate(
                    at,
                    holder,
                    &format!(
                        "snowflake {id} was issued twice, before by process {other_life} at {}",
                        clock(then)
                    ),
                );
            }
        }
    }

    /// The keeper received the confirmation that its mark is at or above this.
    pub fn raised(&mut self, holder: usize, to: u64) {
        let h = &mut self.holders[holder];
        h.raised_to = h.raised_to.max(to);
        if h.highest_tick.is_none_or(|tick| tick < h.raised_to) {
            h.uncovered_since = None;
        }
    }

    /// A process died without a close.
    pub fn died(&mut self, holder: usize) {
        let h = &mut self.holders[holder];
        h.covered_to = Some(h.raised_to);
    }

    /// The last mark of a closed process is stored: it covers all its ids.
    pub fn covered(&mut self, holder: usize) {
        self.holders[holder].covered_to = None;
        self.moved_by_others(self.holders[holder].key);
    }

    /// A snowflake is closed, and may store this last mark: no id may be at or above both marks.
    pub fn closes(&mut self, holder: usize, asks: Option<u64>, at: Micros) {
        let h = &self.holders[holder];
        let (tick, mark) = (h.highest_tick, h.raised_to.max(asks.unwrap_or(0)));
        // A generator whose mark was moved by another process has lost its worker, and does not move the mark again.
        let row = &self.rows[h.key];
        let lost = !row.losses.is_empty() || row.moved_by_others;
        if !lost && tick.is_some_and(|tick| tick >= mark) {
            self.violate(at, holder, &format!("closed with an id of tick {tick:?} under a mark of {mark}"));
        }
    }

    /// Whether this source is a snowflake.
    #[must_use]
    pub fn is_by_clock(&self, holder: usize) -> bool {
        self.holders[holder].by_clock
    }

    /// Whether this snowflake has issued an id in this life.
    #[must_use]
    pub fn has_begun(&self, holder: usize) -> bool {
        self.holders[holder].highest_tick.is_some()
    }

    /// Since when a snowflake has issued ids that its store's mark does not cover.
    #[must_use]
    pub fn uncovered_since(&self, holder: usize) -> Option<Micros> {
        self.holders[holder].uncovered_since
    }

    /// Too long, and nothing excuses it except a lost or stolen row: then no mark is raised any more.
    pub fn left_uncovered(&mut self, holder: usize, since: Micros, at: Micros) {
        self.holders[holder].uncovered_since = None;
        let row = &self.rows[self.holders[holder].key];
        if !row.losses.is_empty() || row.moved_by_others {
            return;
        }
        self.violate(at, holder, &format!("ids have been above the stored mark since {}", clock(since)));
    }

    /// An old KeyFactory node reserved and issued `[lo, hi)`; `holder` is its own.
    pub fn old_node(&mut self, holder: usize, period: u64, lo: u64, hi: u64, at: Micros) {
        let key = self.holders[holder].key;
        self.rows[key].highest = self.rows[key].highest.max(Mark { period, next: hi });
        self.holders[holder].grants.push(Grant { period, lo, hi, at });
        self.issued(holder, period, lo, hi, at);
    }

    /// A machine's clock was set back: ids of its dead processes that the store does not cover may come again.
    pub fn clock_set_back(&mut self, holders: &[usize]) {
        for &holder in holders {
            self.holders[holder].clock_set_back_since |= self.holders[holder].covered_to.is_some();
        }
    }

    /// A clean close returned a range, and the row took it.
    pub fn given_back(&mut self, holder: usize, period: u64, lo: u64, hi: u64, at: Micros) {
        let key = self.holders[holder].key;
        if self.holders[holder].by_clock {
            // A mark, lowered to the issued ids: a successor that has read it already gets the fault that it was moved.
            self.moved_by_others(key);
            return;
        }
        self.figures.given_back += hi - lo;
        let issues = &self.rows[key].issues;
        let used = issues
            .range(..(period, hi))
            .next_back()
            .is_some_and(|((p, _), issue)| *p == period && issue.hi > lo && issue.holder == holder);
        if used {
            self.violate(at, holder, &format!("[{lo}, {hi}) was given back and had been issued"));
        }
    }

    /// The world set a row back on purpose.
    pub fn forgot(&mut self, key: KeyId, before: Option<Mark>, after: Option<Mark>, at: Micros) {
        let (to, from) = (before.unwrap_or_default(), after.unwrap_or_default());
        // A mark that an old backup raised does not fit its worker either.
        self.moved_by_others(key);
        if from < to {
            self.rows[key].losses.push(Loss { from, to, at });
        }
    }

    /// A mark was moved by a dead process, or by an operator.
    pub fn moved_by_others(&mut self, key: KeyId) {
        self.rows[key].moved_by_others = true;
    }

    /// Whether a row was ever set back.
    #[must_use]
    pub fn has_forgotten(&self, key: KeyId) -> bool {
        !self.rows[key].losses.is_empty()
    }

    /// The highest position that was ever reserved of a row.
    #[must_use]
    pub fn highest(&self, key: KeyId) -> Mark {
        self.rows[key].highest
    }

    /// A caller gave up with this code. `excuses` describe the state of the world.
    pub fn refused(&mut self, holder: usize, code: Code, message: &str, excuses: Excuses, at: Micros) {
        let row = &self.rows[self.holders[holder].key];
        let excused = match code {
            // A snowflake with `clock_back=wait` reports this while it waits.
            Code::NotReady => excuses.store || excuses.clock && self.holders[holder].by_clock || excuses.tick,
            Code::Deadline => excuses.store || excuses.tick,
            Code::StoreUnavailable => excuses.store,
            Code::StoreWentBackwards => !row.losses.is_empty(),
            Code::ClockBehind => excuses.clock,
            Code::StoreRefused => excuses.ahead,
            Code::LeaseLost => !row.losses.is_empty() || row.moved_by_others,
            Code::Exhausted | Code::NumberOverflow => row.exhausted,
            _ => false,
        };
        if !excused {
            self.violate(at, holder, &format!("a caller was refused for no reason: {code}: {message}"));
        }
    }

    /// A caller got its numbers, or gave up, later than its deadline.
    pub fn late(&mut self, holder: usize, by: Micros, at: Micros) {
        self.violate(at, holder, &format!("a caller waited {} ms beyond its deadline", by / MS));
    }
}

/// The state of the world while a caller waited.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excuses {
    /// The store, the wire or the process itself was in trouble.
    pub store: bool,
    /// A clock of this world was wrong enough.
    pub clock: bool,
    /// The source has dates, and the clock of this machine is so far ahead of the store's that it may begin none.
    pub ahead: bool,
    /// A snowflake begins with a tick that no other life has used. A tick may last longer than a caller waits, or longer
    /// than a generator may lead.
    pub tick: bool,
}

/// A virtual time as text.
#[must_use]
pub fn clock(at: Micros) -> String {
    format!("{:>9}.{:03}", at / 1_000_000, at / 1000 % 1000)
}
