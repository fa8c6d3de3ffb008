//! The planner: decides what the keeper does, and does none of it. (floor 1)
//!
//! It is fed the time, what the supplies hold and what the store answered; it answers with actions. No clock, no
//! socket, no thread: one seed can drive thousands of planners in virtual time (`tests/simulation`), and what is
//! simulated is what ships. The idea is FoundationDB's and TigerBeetle's.
//!
//! One flight at a time leaves a planner, because one thread carries it out; but it takes several sources along where the
//! store can serve them in one go. Among the sources that want something, those with waiting callers go first, then in the
//! order they asked; and who is waited for flies with its like only, so that no caller waits for numbers nobody lacks.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::error::{Code, Error};
use crate::reservation::{Fault, FaultKind, Key, Mark, Request, Reserved, Scheme};
use crate::segment::{Meter, Rules, Segment, Sight};
use crate::serial::{Prefix, SerialPattern};
use crate::spec::{Body, Spec};

/// The shortest and the longest wait between two tries of a store that fails.
const BACKOFF_MS: (u64, u64) = (50, 5_000);
/// A new period is reserved this long before it begins.
const AHEAD_MS: i64 = 2_000;
/// While serial numbers are in memory, the wall clock is compared with their period at least this often, so that a
/// clock that was set is noticed.
const PERIOD_CHECK_MS: u64 = 1_000;
/// Under `backwards=heal`, a row is raised by at most this many largest steps: a poisoned mark must not burn the space.
const MAX_JUMP_STEPS: u64 = 1_000;

/// A source's place in its planner.
pub type Slot = usize;

/// The time, as the planner is told it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Boot time: rates, ages, backoff.
    pub boot_ms: u64,
    /// Wall time: periods, snowflakes.
    pub wall_ms: i64,
}

/// What a flight asks of the store.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Reserve a range.
    Reserve(Request),
    /// Raise a snowflake's time mark.
    Raise {
        /// The mark's key.
        key: Arc<Key>,
        /// Where it must stand; `None` the first time.
        expect: Option<u64>,
        /// Where it shall stand.
        to: u64,
    },
}

mod flight;

pub use flight::Flight;

/// What the store answered.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// A range.
    Reserved(Reserved),
    /// Where the mark stood before.
    Raised(u64),
}

/// What the executor shall do to a source.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// Put this segment into the supply.
    Publish(Segment),
    /// Drop what belongs to another period than this one.
    DropOtherPeriods(u64),
    /// Drop what was reserved at or before this boot time.
    DropOlder(u64),
    /// Ring when fewer than this many numbers are left.
    RingAt(u64),
    /// Tell callers who find nothing why; `retry_ms` is when the next try is due.
    Fail(Error),
    /// The snowflake's mark stands here: start above it.
    Start(u64),
    /// The mark was raised to here.
    Mark(u64),
}

/// What the executor sees of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View {
    /// A supply of segments.
    Supply(Sight),
    /// A snowflake: the mark it wants in the store now, and whether a caller waits for it.
    Time { wanted_mark: Option<u64>, waiting: bool },
}

/// One source's plan.
struct Plan {
    spec: Arc<Spec>,
    meter: Meter,
    /// The highest place this process has seen.
    seen: Mark,
    /// The period callers are served from.
    period: u64,
    /// The wall time at which `period` is over.
    period_end_ms: Option<i64>,
    /// The next period's first segment, held until that period begins.
    ahead: Option<Segment>,
    /// What the next flight asks for, if one is wanted.
    wanted: Option<Want>,
    /// What the flight under way asked for; `None` while there is none, so that no flight carries a source twice.
    in_flight: Option<Want>,
    /// The store would not serve it together with others: it flies by itself until it is answered. (Somebody may hold its row,
    /// and would hold up the others' again.)
    alone: bool,
    /// When the source wants to be looked at again.
    timer_ms: Option<u64>,
    /// It has a place in the line, and in the one before it for sources with waiting callers.
    in_line: bool,
    in_urgent: bool,
    /// A caller waits for the flight under way.
    called: bool,
    /// This source's own refusals in a row.
    refusals: u32,
    retry_at_ms: u64,
    /// Snowflake: the mark as we left it.
    mark: Option<u64>,
    /// Snowflake: where the mark may stand too, because answers to raising it were lost. Each of a row of lost ones
    /// counts: which of them the store carried out, and whether it still will, nobody knows.
    doubts: Vec<u64>,
    last_issued: u64,
    /// How long the row lets its ranges live (`time_to_live`), as the last reservation found it.
    row_ttl_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Want {
    Numbers { len: u64, period: u64 },
    Mark { to: u64 },
}

/// Decides for all sources of one mill.
pub struct Planner {
    plans: Vec<Option<Plan>>,
    /// Sources that want a flight; those with waiting callers in front.
    urgent: VecDeque<Slot>,
    line: VecDeque<Slot>,
    /// Wake-ups by boot time.
    timers: BTreeSet<(u64, Slot)>,
    /// Sources whose period has an end.
    dated: BTreeSet<Slot>,
    next_period_check_ms: u64,
    /// The store's failures in a row, and when it may be tried again.
    failures: u32,
    /// The flight under way is among them: however many sources it carries, it fails once.
    failed: bool,
    store_retry_at_ms: u64,
    rng: fastrand::Rng,
}

impl std::fmt::Debug for Planner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planner")
            .field("sources", &self.plans.len())
            .field("failures", &self.failures)
            .finish_non_exhaustive()
    }
}

impl Planner {
    /// A planner whose jitter follows `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Planner {
            plans: Vec::new(),
            urgent: VecDeque::new(),
            line: VecDeque::new(),
            timers: BTreeSet::new(),
            dated: BTreeSet::new(),
            next_period_check_ms: 0,
            failures: 0,
            failed: false,
            store_retry_at_ms: 0,
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    /// Takes a source in.
    pub(crate) fn add(&mut self, slot: Slot, spec: Arc<Spec>) {
        let plan = Plan {
            spec,
            meter: Meter::default(),
            seen: Mark::default(),
            period: 0,
            period_end_ms: None,
            ahead: None,
            wanted: None,
            in_flight: None,
            alone: false,
            timer_ms: None,
            in_line: false,
            in_urgent: false,
            called: false,
            refusals: 0,
            retry_at_ms: 0,
            mark: None,
            doubts: Vec::new(),
            last_issued: 0,
            row_ttl_ms: None,
        };
        if self.plans.len() <= slot {
            self.plans.resize_with(slot + 1, || None);
        }
        self.plans[slot] = Some(plan);
    }

    fn plan(&mut self, slot: Slot) -> Option<&mut Plan> {
        self.plans.get_mut(slot).and_then(Option::as_mut)
    }

    /// Looks at a source and decides what it needs.
    pub(crate) fn look(&mut self, slot: Slot, view: &View, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        match view {
            View::Supply(sight) => self.look_at_supply(slot, sight, now, &mut actions),
            View::Time { wanted_mark, waiting } => self.look_at_time(slot, *wanted_mark, *waiting, now),
        }
        actions
    }

    fn look_at_supply(&mut self, slot: Slot, sight: &Sight, now: Now, actions: &mut Vec<Action>) {
        let mut left = sight.left;
        left = self.turn_period(slot, left, now, actions);
        if let Some(action) = self.drop_aged(slot, sight, now) {
            // What stays is seen at the next look, which is due at once.
            actions.push(action);
            return;
        }
        let Some(plan) = self.plan(slot) else { return };
        plan.meter.sample(now.boot_ms, sight.issued);
        plan.last_issued = sight.issued;
        let rate = plan.meter.per_1000s(now.boot_ms, sight.issued);
        let rules = plan.rules();
        let lacking = sight.wanted.saturating_sub(left);
        // Once the next period is reserved the row stands there, and a refill would bring its date early: what lies in
        // memory serves the last moments of this one, unless somebody truly lacks a number.
        let held_back = plan.ahead.is_some() && lacking == 0;
        let len = if sight.room == 0 || held_back { 0 } else { rules.step(rate, left, lacking) };
        let pattern = plan.spec.pattern();
        if len > 0 {
            let period = pattern.map_or(0, |p| p.period_at(now.wall_ms));
            plan.wanted = Some(Want::Numbers { len, period });
        } else if let Some(next) = next_period(plan, rate, now) {
            plan.wanted = Some(Want::Numbers { len: rules.step(rate, 0, 1), period: next });
        } else {
            plan.wanted = None;
        }
        let wants = plan.wanted.is_some();
        // Look again when half of it is gone, so that a rate that rises is seen before the end.
        if left > 1 {
            actions.push(Action::RingAt(rules.low_water(rate).max(left / 2).min(left - 1)));
        }
        if wants {
            self.line_up(slot, lacking > 0);
        }
    }

    /// Ends a period that is over; answers with what is then left in memory.
    fn turn_period(&mut self, slot: Slot, left: u64, now: Now, actions: &mut Vec<Action>) -> u64 {
        let Some(plan) = self.plan(slot) else { return left };
        let over = plan.period_end_ms.is_some_and(|end| now.wall_ms >= end);
        if !over {
            return left;
        }
        let Some(pattern) = plan.spec.pattern() else { return left };
        let today = pattern.period_at(now.wall_ms);
        actions.push(Action::DropOtherPeriods(today));
        match plan.ahead.take().filter(|segment| segment.period == today) {
            Some(segment) => {
                let len = segment.len();
                plan.period = today;
                plan.period_end_ms = pattern.period_end_ms(today);
                actions.push(Action::Publish(segment));
                len
            }
            None => {
                plan.period = today;
                plan.period_end_ms = None;
                self.dated.remove(&slot);
                0
            }
        }
    }

    /// Drops segments that outlived `ttl`; else sets the timer to when the oldest will have.
    fn drop_aged(&mut self, slot: Slot, sight: &Sight, now: Now) -> Option<Action> {
        let ttl = self.plan(slot)?.rules().ttl_ms?;
        let born = sight.born_ms?;
        let aged = now.boot_ms >= born + ttl;
        self.set_timer(slot, if aged { now.boot_ms } else { born + ttl });
        aged.then(|| Action::DropOlder(now.boot_ms - ttl))
    }

    fn set_timer(&mut self, slot: Slot, at_ms: u64) {
        let Some(plan) = self.plan(slot) else { return };
        let before = plan.timer_ms.replace(at_ms);
        if let Some(before) = before {
            self.timers.remove(&(before, slot));
        }
        self.timers.insert((at_ms, slot));
    }

    fn look_at_time(&mut self, slot: Slot, wanted_mark: Option<u64>, waiting: bool, now: Now) {
        let Some(plan) = self.plan(slot) else { return };
        plan.wanted = wanted_mark.map(|to| Want::Mark { to });
        let again = now.boot_ms + (plan.spec.rules.buffer_ms / 3).max(1);
        if plan.wanted.is_some() {
            self.line_up(slot, waiting);
            // While ids are taken the mark is kept ahead of them; an idle snowflake sets no timer and costs nothing.
            self.set_timer(slot, again);
        }
    }

    /// The store answered a flight. `view` is the source as it is now.
    pub(crate) fn answer(&mut self, slot: Slot, answer: Result<Answer, Fault>, now: Now) -> Vec<Action> {
        let outage = answer.as_ref().is_err_and(|fault| fault.kind.is_outage());
        let actions = match answer {
            Ok(answer) => {
                // Of one flight some may have been answered before the connection died.
                self.failures = u32::from(self.failed);
                if !self.failed {
                    self.store_retry_at_ms = 0;
                }
                self.granted(slot, answer, now)
            }
            Err(fault) => {
                if let (FaultKind::Unknown, Some(plan)) = (fault.kind, self.plan(slot))
                    && let Some(Want::Mark { to }) = plan.in_flight
                    && plan.mark.is_some()
                {
                    plan.doubts.push(to);
                    plan.doubts.dedup();
                }
                vec![self.refused(slot, fault, now)]
            }
        };
        if let Some(plan) = self.plan(slot) {
            plan.in_flight = None;
            plan.alone &= outage;
        }
        actions
    }

    fn granted(&mut self, slot: Slot, answer: Answer, now: Now) -> Vec<Action> {
        let Some(plan) = self.plan(slot) else { return Vec::new() };
        plan.refusals = 0;
        plan.retry_at_ms = 0;
        match answer {
            Answer::Reserved(range) => {
                let (lo, hi) = (
                    Mark { period: range.period, next: range.lo },
                    Mark { period: range.period, next: range.hi },
                );
                if lo < plan.seen || hi <= lo {
                    // A store that answers below what it was told we have seen: nothing of this may be issued.
                    let fault = Fault::new(
                        FaultKind::WentBackwards,
                        format!(
                            "reserving for `{}`: the store answered with {}..{}, but numbers up to {} were reserved before; run `keymill repair`, N above every number issued",
                            plan.spec.label,
                            range.lo,
                            range.hi,
                            plan.seen.next.saturating_sub(1)
                        ),
                    );
                    return vec![self.refused(slot, fault, now)];
                }
                plan.seen = hi;
                plan.row_ttl_ms = range.ttl_ms;
                self.publish(slot, range, now)
            }
            Answer::Raised(before) => {
                let Some(Want::Mark { to }) = plan.in_flight.take() else { return Vec::new() };
                plan.wanted = None;
                if let Some(mark) = plan.mark
                    && before != mark
                    && !plan.doubts.contains(&before)
                {
                    let fault = Fault::new(
                        FaultKind::Taken,
                        format!(
                            "`{}`: the time mark of this worker stands at {before}, not at {mark} where this process left it: another process uses the same worker id; give each its own",
                            plan.spec.label
                        ),
                    );
                    return vec![self.refused(slot, fault, now)];
                }
                let stands = to.max(before);
                plan.mark = Some(stands);
                // A statement that the store held back while we gave up on it can still raise the mark above ours.
                plan.doubts.retain(|&doubt| doubt > stands);
                vec![if to == 0 { Action::Start(before) } else { Action::Mark(stands) }]
            }
        }
    }

    fn publish(&mut self, slot: Slot, range: Reserved, now: Now) -> Vec<Action> {
        let Some(plan) = self.plan(slot) else { return Vec::new() };
        plan.wanted = None;
        let pattern = plan.spec.pattern();
        let segment = Segment {
            lo: range.lo,
            hi: range.hi,
            period: range.period,
            born_ms: now.boot_ms,
            prefix: pattern.map_or(Prefix::EMPTY, |p| p.prefix(range.period)),
        };
        let mut actions = Vec::new();
        let asked = match plan.in_flight.take() {
            Some(Want::Numbers { period, .. }) => period,
            _ => 0,
        };
        let reserved_ahead = plan.period != 0
            && asked > plan.period
            && asked == range.period
            && plan.period_end_ms.is_some_and(|end| now.wall_ms < end);
        if reserved_ahead {
            plan.ahead = Some(segment);
            return actions;
        }
        if range.period != plan.period {
            // The row's period is ahead of our clock, or this is the first segment: from here on it is ours too.
            actions.push(Action::DropOtherPeriods(range.period));
            plan.period = range.period;
            // What was reserved ahead for that period comes first; it lies below the new range, which `seen` has shown.
            if let Some(ahead) = plan.ahead.take().filter(|ahead| ahead.period == range.period) {
                actions.push(Action::Publish(ahead));
            }
        }
        plan.period_end_ms = pattern.and_then(|p| p.period_end_ms(range.period));
        if plan.period_end_ms.is_some() {
            self.dated.insert(slot);
            self.next_period_check_ms = now.boot_ms;
        }
        actions.push(Action::Publish(segment));
        actions
    }

    fn refused(&mut self, slot: Slot, fault: Fault, now: Now) -> Action {
        let code = match fault.kind {
            FaultKind::Unavailable | FaultKind::Unknown => Code::StoreUnavailable,
            FaultKind::Refused => Code::StoreRefused,
            FaultKind::WentBackwards => Code::StoreWentBackwards,
            FaultKind::Unsafe => Code::StoreUnsafe,
            FaultKind::Exhausted => self.exhausted_code(slot),
            FaultKind::ClockBehind => Code::ClockBehind,
            FaultKind::Taken => Code::LeaseLost,
        };
        let store_failed = fault.kind.is_outage();
        let mut wait = if store_failed {
            self.rest_store(now)
        } else {
            let failures = self.plan(slot).map_or(1, |plan| {
                plan.refusals = plan.refusals.saturating_add(1);
                plan.refusals
            });
            self.backoff(failures)
        };
        if fault.kind == FaultKind::Exhausted
            && let Some(pattern) = self.plan(slot).and_then(|plan| plan.spec.pattern())
            && let Some(end) = pattern.period_end_ms(pattern.period_at(now.wall_ms))
        {
            // The next period has numbers: its callers are not told of this one's end, but for the shortest rest.
            wait = wait.min((end.saturating_sub(now.wall_ms).max(0) as u64).max(BACKOFF_MS.0 / 2));
        }
        if store_failed {
            self.line_up(slot, true);
        } else if let Some(plan) = self.plan(slot) {
            plan.retry_at_ms = now.boot_ms + wait;
            // The next caller asks again; nobody else is held up by this source.
            plan.wanted = None;
        }
        let error = Error::new(code, fault.message).after(std::time::Duration::from_millis(wait));
        Action::Fail(error)
    }

    fn exhausted_code(&self, slot: Slot) -> Code {
        match self.plans.get(slot).and_then(Option::as_ref).map(|p| &p.spec.body) {
            Some(Body::Serial { .. }) => Code::NumberOverflow,
            _ => Code::Exhausted,
        }
    }

    /// Lets the store rest after a failure; answers for how long.
    fn rest_store(&mut self, now: Now) -> u64 {
        if !std::mem::replace(&mut self.failed, true) {
            self.failures = self.failures.saturating_add(1);
            self.store_retry_at_ms = now.boot_ms + self.backoff(self.failures);
        }
        self.store_retry_at_ms.saturating_sub(now.boot_ms)
    }

    /// Exponential, with half of it left to chance, so that a thousand mills do not come back as one.
    fn backoff(&mut self, failures: u32) -> u64 {
        let whole = BACKOFF_MS.0.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(BACKOFF_MS.1);
        whole / 2 + self.rng.u64(0..=whole / 2)
    }

    /// Sources whose time has come: each wants a look.
    pub fn due(&mut self, now: Now) -> Vec<Slot> {
        let mut due = Vec::new();
        while let Some(&(at, slot)) = self.timers.first() {
            if at > now.boot_ms {
                break;
            }
            self.timers.pop_first();
            if let Some(plan) = self.plan(slot) {
                plan.timer_ms = None;
            }
            due.push(slot);
        }
        if !self.dated.is_empty() && now.boot_ms >= self.next_period_check_ms {
            self.check_periods(now, &mut due);
        }
        due
    }

    /// Finds the sources whose period is over or about to be, and sets the time of the next check.
    fn check_periods(&mut self, now: Now, due: &mut Vec<Slot>) {
        let mut next = PERIOD_CHECK_MS as i64;
        for &slot in &self.dated {
            let Some(end) = self.plans[slot].as_ref().and_then(|plan| plan.period_end_ms) else { continue };
            // First the moment to reserve ahead, then the end itself.
            let ahead = (end - AHEAD_MS).saturating_sub(now.wall_ms);
            if ahead <= 0 {
                due.push(slot);
            }
            next = next.min(if ahead > 0 { ahead } else { end.saturating_sub(now.wall_ms) });
        }
        self.next_period_check_ms = now.boot_ms + next.max(1) as u64;
    }

    /// The wall clock was set: compare the periods at once.
    pub fn clock_moved(&mut self) {
        self.next_period_check_ms = 0;
    }

    /// When to wake at the latest, on the boot clock; `None`: when somebody rings.
    #[must_use]
    pub fn wake_at(&self, now: Now) -> Option<u64> {
        let mut at = self.timers.first().map(|&(at, _)| at);
        let mut earlier = |t: u64| at = Some(at.map_or(t, |a| a.min(t)));
        let in_line = self.urgent.iter().chain(&self.line).filter_map(|&s| self.plans[s].as_ref());
        if let Some(soonest) = in_line.map(|p| p.retry_at_ms).min() {
            earlier(soonest.max(self.store_retry_at_ms).max(now.boot_ms));
        }
        if !self.dated.is_empty() {
            earlier(self.next_period_check_ms);
        }
        at
    }

    /// What may be given back of what nobody was given: the top run that ends where this source's last range ends.
    #[must_use]
    pub(crate) fn give_back(&self, slot: Slot, rest: &[(u64, u64, u64)]) -> Option<(u64, u64, u64)> {
        let plan = self.plans.get(slot)?.as_ref()?;
        if let Some(mark) = plan.mark {
            return rest.last().copied().filter(|(_, _, hi)| *hi == mark);
        }
        let mut rest: Vec<_> = rest.to_vec();
        rest.extend(plan.ahead.map(|s| (s.period, s.lo, s.hi)));
        let (period, mut lo, hi) = rest.pop()?;
        if (Mark { period, next: hi }) != plan.seen {
            return None;
        }
        while let Some((p, l, h)) = rest.pop() {
            if p != period || h != lo {
                break;
            }
            lo = l;
        }
        Some((period, lo, hi))
    }

    /// The highest place this process has seen of a source.
    #[must_use]
    pub fn seen(&self, slot: Slot) -> Mark {
        self.plans.get(slot).and_then(Option::as_ref).map_or(Mark::default(), |p| p.seen)
    }

    /// The store's failures in a row: 0 while it answers.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The rate of a source, in numbers per 1000 s, as the last look saw it.
    #[must_use]
    pub fn rate_per_1000s(&self, slot: Slot, now: Now) -> u64 {
        self.plans
            .get(slot)
            .and_then(Option::as_ref)
            .map_or(0, |p| p.meter.per_1000s(now.boot_ms, p.last_issued))
    }
}

/// The next period, if it is about to begin, is not reserved yet and somebody takes numbers.
///
/// Not on `key_producer`: an old KeyFactory node that reads tomorrow's row today would set it back to today's zero. And
/// never earlier than other nodes, whose clocks may be behind ours, accept a row of the next period.
fn next_period(plan: &Plan, rate: u64, now: Now) -> Option<u64> {
    let pattern: &SerialPattern = plan.spec.pattern()?;
    let end = plan.period_end_ms?;
    let Body::Serial { skew_ms } = plan.spec.body else { return None };
    let scheme_allows = plan.spec.key.scheme == Scheme::Keymill;
    let near = now.wall_ms >= end - AHEAD_MS.min(skew_ms as i64 / 2) && now.wall_ms < end;
    let long_enough = pattern.period_start_ms(plan.period).is_some_and(|start| end - start > 4 * AHEAD_MS);
    if scheme_allows && near && long_enough && rate > 0 && plan.ahead.is_none() {
        return Some(pattern.period_at(end));
    }
    None
}

impl Plan {
    /// The source's rules, under the shorter of its own time to live and the row's.
    fn rules(&self) -> Rules {
        let rules = self.spec.rules;
        Rules { ttl_ms: rules.ttl_ms.into_iter().chain(self.row_ttl_ms).min(), ..rules }
    }

    fn ask(&self, now: Now) -> Option<Ask> {
        match self.wanted? {
            Want::Mark { to } => {
                // After a lost answer the mark may stand in either place; which one is checked when it is known.
                let expect = if self.doubts.is_empty() { self.mark } else { None };
                Some(Ask::Raise { key: self.spec.key.clone(), expect, to })
            }
            Want::Numbers { len, period } => {
                let period_max = match (&self.spec.body, self.spec.pattern()) {
                    (Body::Serial { skew_ms }, Some(pattern)) => {
                        pattern.period_at(now.wall_ms.saturating_add(*skew_ms as i64)).max(period)
                    }
                    _ => period,
                };
                Some(Ask::Reserve(Request {
                    key: self.spec.key.clone(),
                    len,
                    high_water: self.seen,
                    start: self.spec.start,
                    last: self.spec.last,
                    period,
                    period_max,
                    heal: self.spec.heal,
                    max_jump: self.spec.rules.max_step.saturating_mul(MAX_JUMP_STEPS),
                }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;

    fn planner_of(spec: &str) -> Planner {
        let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec");
        let mut planner = Planner::new(1);
        planner.add(0, Arc::new(spec));
        planner
    }

    fn at(boot_ms: u64) -> Now {
        Now { boot_ms, wall_ms: 1_795_218_600_000 }
    }

    fn next(planner: &mut Planner, now: Now) -> Option<(Slot, Ask)> {
        planner.next_flight(now, 1).map(|flight| match flight {
            Flight::Alone(slot, ask) => (slot, ask),
            Flight::Together(slots, _) => panic!("{slots:?} fly together"),
        })
    }

    fn lost() -> Result<Answer, Fault> {
        Err(Fault::new(FaultKind::Unknown, "lost"))
    }

    /// Found by `tests/simulation`, seed 1: a server that froze for two timeouts cost the process its worker id.
    #[test]
    fn two_lost_answers_in_a_row_leave_a_mark_that_may_stand_in_either_place() {
        let mut planner = planner_of("snowflake:f?worker=1");
        let mut boot = 0;
        let mut raise = |planner: &mut Planner, to: u64, answer: Result<Answer, Fault>| {
            boot += 60_000;
            planner.look(0, &View::Time { wanted_mark: Some(to), waiting: false }, at(boot));
            let (slot, ask) = next(planner, at(boot)).expect("a flight");
            (ask, planner.answer(slot, answer, at(boot)))
        };
        raise(&mut planner, 0, Ok(Answer::Raised(0)));
        raise(&mut planner, 100, Ok(Answer::Raised(0)));
        raise(&mut planner, 200, lost()); // carried out
        let (ask, _) = raise(&mut planner, 300, lost()); // held back
        assert!(matches!(ask, Ask::Raise { expect: None, to: 300, .. }));
        let (_, actions) = raise(&mut planner, 250, Ok(Answer::Raised(200)));
        assert!(matches!(actions[..], [Action::Mark(250)]), "{actions:?}");
        // Now the one that was held back comes through.
        let (_, actions) = raise(&mut planner, 400, Ok(Answer::Raised(300)));
        assert!(matches!(actions[..], [Action::Mark(400)]), "{actions:?}");
        let (ask, _) = raise(&mut planner, 500, Ok(Answer::Raised(400)));
        assert!(matches!(ask, Ask::Raise { expect: Some(400), .. }), "nothing is in doubt any more: {ask:?}");
    }

    #[test]
    fn callers_who_ring_while_the_store_rests_take_one_place_in_line() {
        let mut planner = planner_of("segment:orders");
        let dry = View::Supply(Sight { wanted: 1, room: 8, ..Sight::default() });
        planner.look(0, &dry, at(0));
        let (slot, _) = next(&mut planner, at(0)).expect("a flight");
        planner.answer(slot, lost(), at(0));
        for _ in 0..1000 {
            planner.look(0, &dry, at(1));
            assert!(next(&mut planner, at(1)).is_none());
        }
        assert!(planner.urgent.len() + planner.line.len() <= 2, "{} places", planner.urgent.len());
    }
}
