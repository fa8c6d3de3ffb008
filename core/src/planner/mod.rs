//! The planner: decides what the keeper does, and does none of it.
//!
//! Its input is the time, what the sources hold and what the store answered; its output are actions. It has no clock, socket or
//! thread: one seed can drive thousands of planners in virtual time (`tests/simulation`), and what is simulated is what ships.
//! The idea is FoundationDB's and TigerBeetle's.
//!
//! A planner has one batch in flight, because one thread carries it out; a batch serves several sources where the store can do
//! that in one statement. Sources with waiting callers go first, then the others, each in the order they asked. Urgent and
//! background requests are never batched together, so no caller waits for numbers that no caller lacks.

mod batch;
mod completion;
mod period;
mod rate;
#[cfg(test)]
mod refill_tests;
mod segment_refill;
mod worker_lease;

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::bank::BankView;
use crate::error::Error;
use crate::request::reservation::{Key, Mark, PeriodClock, Request, Reserved, unused_end};
use crate::request::worker::{BeginMark, Take, Taken};
use crate::segment::{SegmentAction, Snapshot};
use crate::snowflake::{SnowflakeAction, SnowflakeView};
use crate::spec::{Rules, Spec};
pub use crate::time::Now;
pub use batch::Batch;
use completion::Outage;
use period::next_period;
use rate::{Meter, RecentUse};
use segment_refill::LastRefill;
use worker_lease::{Clocks, WorkerLease};

/// How often a source is checked whose store may be asked for waiting callers only.
const CHECK_MS: u64 = 1_000;

/// A source's place in its planner.
pub type SourceIndex = usize;

/// What a source asks of the store.
#[derive(Clone, Debug)]
pub enum Ask {
    /// Reserve a range.
    Reserve(Request),
    /// Raise a snowflake's time mark.
    Raise {
        /// The mark's key.
        key: Arc<Key>,
        /// Where it must stand; `None` where that is not known.
        expect: Option<u64>,
        /// Where it is raised to.
        to: u64,
        /// The store's clock is read too.
        clock: bool,
        /// The process begins with this worker: nothing is raised.
        begin: Option<Arc<BeginMark>>,
    },
    /// Lease a worker.
    Take(Take),
    /// Make a row whose number is a worker that is used once.
    Node {
        /// The table, and the source's name.
        key: Arc<Key>,
        /// The process, for people.
        owner: Arc<str>,
    },
}

/// What the store answered.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// A range.
    Reserved(Reserved),
    /// Where the mark stood before.
    Raised(u64),
    /// The same, with the store's clock.
    RaisedAt {
        /// Where the mark stood before.
        before: u64,
        /// Milliseconds since 1970; 0: the store has no clock.
        store_ms: u64,
    },
    /// A leased worker.
    Taken(Taken),
    /// The counters of a bank were served, or refused one by one.
    Counters,
    /// A worker that is used once.
    Node(u64),
}

/// What a source has to do.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A source of segments.
    Segment(SegmentAction),
    /// A source of snowflakes.
    Snowflake(SnowflakeAction),
    /// The store answered: callers of a source who find nothing get this error; its retry hint is when the next try is due.
    Fail(Error),
    /// The store may not be asked now: the same, and what callers asked for stays wanted.
    Tell(Error),
}

/// What the planner sees of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) enum View {
    /// What its buffer holds.
    Segments(Snapshot),
    /// A snowflake.
    Snowflake(SnowflakeView),
    /// A bank.
    Bank(BankView),
}

/// What a close does to a snowflake's mark in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastMark {
    /// It is lower than an id that was issued: raise it, if it stands where this process expects it.
    Raise { expect: Option<u64> },
    /// It is higher than needed: lower it, if it stands here.
    Lower { from: u64 },
}

/// One source's plan.
struct Plan {
    spec: Arc<Spec>,
    meter: Meter,
    used: RecentUse,
    /// Its numbers were taken for about a second, and not in a burst.
    has_lasted: bool,
    /// The highest place this process has seen.
    seen: Mark,
    /// The row was seen below that. What was lost may have been reserved anew by others, so nothing is returned.
    went_backwards: bool,
    /// The period callers are served from.
    period: u64,
    /// The wall time at which `period` is over.
    period_end_ms: Option<i64>,
    /// The next period, if its first segment is reserved: the source holds it until that period begins.
    ahead: Option<u64>,
    /// What the source asks for next.
    wanted: Option<Want>,
    /// What it asked for in the batch in flight; a source is never in two batches.
    in_flight: Option<Want>,
    /// The store would not serve it together with others: it is retried alone until it is answered. (Another session may hold a
    /// lock on its row, which would delay the others again.)
    alone: bool,
    /// When the source is checked again.
    timer_ms: Option<u64>,
    /// It is in the background queue, and in the urgent one.
    in_background: bool,
    in_urgent: bool,
    /// A caller waits for the request in flight.
    caller_waits: bool,
    /// Until when the store is not tried for waiting callers, as its callers were told last.
    told_ms: u64,
    /// Refusals of this source in a row; an outage of the store does not count.
    failures: u32,
    retry_at_ms: u64,
    /// Its place among the sources that rest.
    rests_until_ms: Option<u64>,
    /// Snowflake: where this process left the mark.
    mark: Option<u64>,
    /// Snowflake: where else the mark may stand, because answers to raising it were lost. The store may have carried out any of
    /// the lost requests, and may still do so.
    doubts: Vec<u64>,
    last_issued: u64,
    last: Option<LastRefill>,
    /// The refill that came since the last check.
    refilled: Option<Refilled>,
    /// When the request in flight was sent, or the last one.
    asked_ms: u64,
    /// How long the row lets its ranges live (`time_to_live`), as the last reservation found it.
    row_ttl_ms: Option<u64>,
    /// The leased worker.
    lease: Option<WorkerLease>,
    /// The worker that is used once.
    node: Option<u64>,
    /// The request for a worker in flight.
    taking: Option<Taking>,
    /// The highest mark that the generator was given: marks of later workers are not lower.
    worker_mark: u64,
}

/// What a refill brought.
#[derive(Clone, Copy, Debug)]
struct Refilled {
    len: u64,
    /// How many numbers had been issued when its request was sent.
    issued: u64,
}

/// A request for a worker.
#[derive(Clone, Copy, Debug)]
struct Taking {
    token: u64,
    /// When it was sent, by the boot clock.
    sent_ms: u64,
}

#[derive(Clone, Copy, Debug)]
enum Want {
    Numbers {
        len: u64,
        /// As in a request.
        single: u64,
        period: u64,
    },
    Mark {
        to: u64,
    },
    Worker,
    /// Numbers for counters of a bank, which knows for which.
    Counters,
}

/// Decides for all sources of one mill.
#[derive(Default)]
pub struct Planner {
    plans: Vec<Option<Plan>>,
    /// Sources that want something of the store: those with waiting callers, and the others.
    urgent: VecDeque<SourceIndex>,
    background: VecDeque<SourceIndex>,
    /// Sources that want something and were refused, by the boot time at which they are tried again.
    resting: BTreeSet<(u64, SourceIndex)>,
    /// The last batch was a bank's whose callers waited.
    after_bank: bool,
    /// Wake-ups by boot time.
    timers: BTreeSet<(u64, SourceIndex)>,
    /// Sources whose period has an end, by that wall time.
    dated: BTreeSet<(i64, SourceIndex)>,
    next_period_check_ms: u64,
    /// The store's failures in a row, and when it may be tried again.
    failures: u32,
    /// The batch in flight is counted in `failures`: it fails once, however many sources it serves.
    failed: bool,
    store_retry_at_ms: u64,
    /// When the store may be tried for waiting callers: no later than for the others.
    store_urgent_at_ms: u64,
    /// `None` while the store answers.
    outage: Option<Outage>,
    /// The sources with a leased worker, when they are renewed, and whether that is in flight.
    leases: BTreeSet<SourceIndex>,
    renew_at_ms: u64,
    renewing: bool,
    /// Renewals that failed in a row.
    renew_failures: u32,
    clocks: Clocks,
    owner: Option<Arc<str>>,
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
        Planner { rng: fastrand::Rng::with_seed(seed), ..Planner::default() }
    }

    /// Takes a source in.
    pub(crate) fn add(&mut self, index: SourceIndex, spec: Arc<Spec>) {
        let plan = Plan {
            spec,
            meter: Meter::default(),
            used: RecentUse::default(),
            has_lasted: false,
            seen: Mark::default(),
            went_backwards: false,
            period: 0,
            period_end_ms: None,
            ahead: None,
            wanted: None,
            in_flight: None,
            alone: false,
            timer_ms: None,
            in_background: false,
            in_urgent: false,
            caller_waits: false,
            told_ms: 0,
            failures: 0,
            retry_at_ms: 0,
            rests_until_ms: None,
            mark: None,
            doubts: Vec::new(),
            last_issued: 0,
            last: None,
            refilled: None,
            asked_ms: 0,
            row_ttl_ms: None,
            lease: None,
            node: None,
            taking: None,
            worker_mark: 0,
        };
        if self.plans.len() <= index {
            self.plans.resize_with(index + 1, || None);
        }
        self.plans[index] = Some(plan);
    }

    /// Takes a source in, unless the planner knows it.
    pub(crate) fn add_if_missing(&mut self, index: SourceIndex, spec: &Arc<Spec>) {
        if self.plan(index).is_none() {
            self.add(index, spec.clone());
        }
    }

    /// A planner that knows what this one knows of each source's row, without requests in flight, timers or backoff: for a keeper
    /// that goes on after a defect.
    pub(crate) fn successor(&mut self, seed: u64) -> Planner {
        let mut planner = Planner::new(seed);
        for (index, old) in self.plans.iter_mut().enumerate() {
            let Some(old) = old else { continue };
            planner.add(index, old.spec.clone());
            let Some(plan) = planner.plan(index) else { continue };
            // The high-water mark first of all: without it a store that went backwards would be believed.
            plan.seen = old.seen;
            plan.went_backwards = old.went_backwards;
            plan.mark = old.mark;
            plan.doubts = std::mem::take(&mut old.doubts);
            if let (Some(Want::Mark { to }), Some(_)) = (old.in_flight, old.mark) {
                // The mark may have been raised.
                plan.doubts.push(to);
            }
            plan.row_ttl_ms = old.row_ttl_ms;
            plan.period = old.period;
            plan.ahead = old.ahead.take();
            planner.set_period_end(index, old.period_end_ms);
        }
        planner.inherit_leases(self);
        planner
    }

    fn plan(&mut self, index: SourceIndex) -> Option<&mut Plan> {
        self.plans.get_mut(index).and_then(Option::as_mut)
    }

    /// Checks a source and decides what it needs.
    pub(crate) fn check(&mut self, index: SourceIndex, view: &View, now: Now) -> Vec<Action> {
        let mut actions = Vec::new();
        match view {
            View::Segments(snapshot) => self.check_buffer(index, snapshot, now, &mut actions),
            View::Snowflake(SnowflakeView::Mark { wanted, waiting }) => {
                self.check_mark(index, *wanted, *waiting, now);
            }
            View::Snowflake(SnowflakeView::Worker(view)) => {
                self.check_worker(index, *view, now, &mut actions);
            }
            View::Bank(view) => self.check_bank(index, *view, now),
        }
        actions.extend(self.tell_outage(index, now).map(Action::Tell));
        actions
    }

    fn check_buffer(&mut self, index: SourceIndex, snapshot: &Snapshot, now: Now, actions: &mut Vec<Action>) {
        let mut left = snapshot.left;
        left = self.turn_period(index, left, now, actions);
        if let Some(action) = self.drop_aged(index, snapshot, now) {
            // The rest is seen at the next check, which is due at once.
            actions.push(action);
            return;
        }
        let Some(plan) = self.plan(index) else { return };
        plan.meter.sample(now.boot_ms, snapshot.issued);
        plan.last_issued = snapshot.issued;
        plan.has_lasted |= plan.meter.lasts(now.boot_ms, snapshot.issued);
        let rules = plan.rules();
        if rules.ends {
            plan.used.sample(now.boot_ms, snapshot.issued, rules.buffer_ms);
        }
        let lacking = snapshot.wanted.saturating_sub(left);
        let demand = plan.demand(snapshot.issued, lacking, now);
        // Once the next period is reserved the row stands in it, and a refill would bring its date early: the numbers in memory
        // serve the last moments of this period, unless a caller lacks one.
        let held_back = plan.ahead.is_some() && lacking == 0;
        let len = if snapshot.room == 0 || held_back {
            0
        } else {
            plan.step(demand, snapshot.issued, left, lacking)
        };
        plan.measure_refill(snapshot);
        let pause = if lacking == 0 { plan.pause(demand, left, len, now) } else { None };
        let len = if pause.is_some() { 0 } else { len };
        let again_ms =
            pause.and_then(|pause| pause.until_ms).or_else(|| plan.looks_again(demand, snapshot.issued, now));
        let pattern = plan.spec.pattern();
        if len > 0 {
            let period = pattern.map_or(0, |p| p.period_at(now.wall_ms));
            plan.wanted = Some(Want::Numbers { len, single: rules.single(lacking), period });
        } else if let Some(next) = next_period(plan, demand.per_1000s, now) {
            // One step: none of that period was used yet.
            let single = rules.single(1);
            plan.wanted = Some(Want::Numbers { len: single, single, period: next });
        } else {
            plan.wanted = None;
        }
        let wants = plan.wanted.is_some();
        if left > 1 {
            let mark = rules.checked_below(demand, pause, left);
            actions.push(Action::Segment(SegmentAction::WakeBelow(mark)));
        }
        if wants {
            self.enqueue(index, lacking > 0, now);
        }
        if let Some(again_ms) = again_ms {
            self.set_timer_by(index, again_ms);
        }
    }

    /// Drops segments that outlived `ttl`; else sets the timer to when the oldest will have.
    fn drop_aged(&mut self, index: SourceIndex, snapshot: &Snapshot, now: Now) -> Option<Action> {
        let ttl = self.plan(index)?.rules().ttl_ms?;
        let born = snapshot.born_ms?;
        let aged = now.boot_ms >= born + ttl;
        self.set_timer(index, if aged { now.boot_ms } else { born + ttl });
        aged.then(|| Action::Segment(SegmentAction::DropOlder(now.boot_ms - ttl)))
    }

    fn set_timer(&mut self, index: SourceIndex, at_ms: u64) {
        let Some(plan) = self.plan(index) else { return };
        let before = plan.timer_ms.replace(at_ms);
        if let Some(before) = before {
            self.timers.remove(&(before, index));
        }
        self.timers.insert((at_ms, index));
    }

    /// As [`Planner::set_timer`], but an earlier timer stays.
    fn set_timer_by(&mut self, index: SourceIndex, at_ms: u64) {
        if self.plan(index).is_some_and(|plan| plan.timer_ms.is_none_or(|before| at_ms < before)) {
            self.set_timer(index, at_ms);
        }
    }

    fn check_mark(&mut self, index: SourceIndex, wanted_mark: Option<u64>, waiting: bool, now: Now) {
        let Some(plan) = self.plan(index) else { return };
        plan.wanted = wanted_mark.map(|to| Want::Mark { to });
        let max_lead_ms = plan.spec.snowflake.map_or(0, |snowflake| snowflake.max_lead_ms);
        let again = now.boot_ms + (max_lead_ms / 3).max(1);
        if plan.wanted.is_some() {
            self.enqueue(index, waiting, now);
            // The mark is kept ahead while ids are taken; an idle snowflake sets no timer and costs nothing.
            self.set_timer(index, again);
        }
    }

    fn check_bank(&mut self, index: SourceIndex, view: BankView, now: Now) {
        let BankView { wants, waiting, reserved, due_ms } = view;
        if let Some(due_ms) = due_ms {
            self.set_timer_by(index, due_ms);
        }
        let Some(plan) = self.plan(index) else { return };
        // A bank's rate is the rate of its refills: to count what is left in every cell would cost more than the refills.
        plan.meter.sample(now.boot_ms, reserved);
        plan.last_issued = reserved;
        plan.wanted = wants.then_some(Want::Counters);
        if wants {
            self.enqueue(index, waiting, now);
        }
    }

    /// Whether the check of this source is postponed until its store may be asked again, where no earlier check would change
    /// anything. A timer makes the check due then.
    ///
    /// While the store may be asked for waiting callers only, a source without any is checked once a second: it may run dry.
    pub(crate) fn postpone(&mut self, index: SourceIndex, is_waited_for: bool, now: Now) -> bool {
        let (urgent, calm) = (self.store_urgent_at_ms, self.store_retry_at_ms);
        let Some(plan) = self.plan(index) else { return false };
        if is_waited_for && plan.is_untold(urgent, now) {
            return false;
        }
        let mut until = urgent.max(plan.retry_at_ms);
        if now.boot_ms >= until && !is_waited_for {
            until = calm.min(now.boot_ms + CHECK_MS);
        }
        if now.boot_ms >= until || plan.wanted.is_none() {
            return false;
        }
        self.set_timer_by(index, until);
        true
    }

    /// The sources whose timers are due.
    pub fn due(&mut self, now: Now) -> Vec<SourceIndex> {
        let mut due = Vec::new();
        while let Some(&(at, index)) = self.timers.first() {
            if at > now.boot_ms {
                break;
            }
            self.timers.pop_first();
            if let Some(plan) = self.plan(index) {
                plan.timer_ms = None;
            }
            due.push(index);
        }
        if !self.dated.is_empty() && now.boot_ms >= self.next_period_check_ms {
            self.check_periods(now, &mut due);
        }
        due
    }

    /// When to wake at the latest, on the boot clock; `None`: when a source is queued.
    #[must_use]
    pub fn wake_at(&self, now: Now) -> Option<u64> {
        let mut at = self.timers.first().map(|&(at, _)| at);
        let mut earlier = |t: u64| at = Some(at.map_or(t, |a| a.min(t)));
        let store_at = self.store_tried_at_ms().max(now.boot_ms);
        if !(self.urgent.is_empty() && self.background.is_empty()) {
            earlier(store_at);
        }
        if let Some(&(retry_at, _)) = self.resting.first() {
            earlier(retry_at.max(store_at));
        }
        if !self.dated.is_empty() {
            earlier(self.next_period_check_ms);
        }
        if let Some(due) = self.renewal_due_ms() {
            earlier(due);
        }
        at
    }

    /// What may be given back of the unused numbers: the topmost range, if it ends where this source's last reservation ends.
    #[must_use]
    pub(crate) fn give_back(&self, index: SourceIndex, rest: &[(u64, u64, u64)]) -> Option<(u64, u64, u64)> {
        let plan = self.plans.get(index)?.as_ref().filter(|plan| !plan.went_backwards)?;
        let Mark { period, next } = plan.seen;
        // Ranges of an earlier period stand below the last period's ranges.
        let of_last: Vec<_> = rest
            .iter()
            .filter(|(in_period, ..)| *in_period == period)
            .map(|(_, lo, hi)| (*lo, *hi))
            .collect();
        let (lo, hi) = unused_end(&of_last, next)?;
        Some((period, lo, hi))
    }

    /// What a close does to a snowflake's mark, where `above` is the lowest mark that covers every id it issued.
    #[must_use]
    pub(crate) fn last_mark(&self, index: SourceIndex, above: u64) -> Option<LastMark> {
        let plan = self.plans.get(index)?.as_ref()?;
        let mark = plan.mark?;
        match above.cmp(&mark) {
            Ordering::Greater => Some(LastMark::Raise { expect: plan.expected_mark() }),
            Ordering::Less => Some(LastMark::Lower { from: mark }),
            Ordering::Equal => None,
        }
    }

    /// The highest place this process has seen of a source.
    #[must_use]
    pub fn seen(&self, index: SourceIndex) -> Mark {
        self.plans.get(index).and_then(Option::as_ref).map_or(Mark::default(), |p| p.seen)
    }

    /// The store's failures in a row: 0 while it answers.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The rate of a source, in numbers per 1000 s, as of the last check.
    #[must_use]
    pub fn rate_per_1000s(&self, index: SourceIndex, now: Now) -> u64 {
        self.plans
            .get(index)
            .and_then(Option::as_ref)
            .map_or(0, |p| p.meter.per_1000s(now.boot_ms, p.last_issued))
    }
}

impl Plan {
    /// The source's rules, under the shorter of its own time to live and the row's.
    fn rules(&self) -> Rules {
        let rules = self.spec.rules;
        Rules { ttl_ms: rules.ttl_ms.into_iter().chain(self.row_ttl_ms).min(), ..rules }
    }

    /// Whether the store is not tried before `urgent_ms`, also for waiting callers, and this source's were not told why.
    fn is_untold(&self, urgent_ms: u64, now: Now) -> bool {
        now.boot_ms < urgent_ms && self.told_ms != urgent_ms && now.boot_ms >= self.retry_at_ms
    }

    /// Whether the store has ever given this mill numbers of the source, or a worker.
    fn has_had_numbers(&self) -> bool {
        self.seen != Mark::default()
            || self.mark.is_some()
            || self.worker_mark > 0
            || self.node.is_some()
            // A bank's: how many it has reserved.
            || self.last_issued > 0
    }

    /// Where the store's mark must stand. After a lost answer it may stand in several places; the next answer is compared with
    /// them.
    fn expected_mark(&self) -> Option<u64> {
        if self.doubts.is_empty() { self.mark } else { None }
    }

    /// The request for numbers, in numbers of the row.
    fn request(&self, len: u64, single: u64, period: u64, now: Now) -> Request {
        let latest_ms = now.wall_ms.saturating_add(self.spec.skew_ms as i64);
        let period_max =
            self.spec.pattern().map_or(period, |pattern| pattern.period_at(latest_ms).max(period));
        let clock =
            self.spec.pattern().map(|_| PeriodClock { wall_ms: now.wall_ms, skew_ms: self.spec.skew_ms });
        let counted = self.spec.request(self.spec.key.clone(), len, self.seen);
        Request { period, period_max, clock, single, ..counted }.of_the_row()
    }

    /// The request to raise the mark of a fixed worker.
    fn raise(&self, to: u64, doubts_clock: bool) -> Ask {
        let begin = (to == 0 && self.mark.is_none()).then(|| self.spec.begin_mark()).flatten();
        Ask::Raise {
            key: self.spec.key.clone(),
            expect: self.expected_mark(),
            to,
            clock: to == 0 || doubts_clock,
            begin: begin.map(Arc::new),
        }
    }
}

#[cfg(test)]
mod exact_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod worker_tests;
