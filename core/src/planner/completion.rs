//! Answers of the store: what is published, and the backoff after a failure.

use std::time::Duration;

use crate::error::fault::{CommandLine, Fault, FaultKind};
use crate::error::{Code, Error};
use crate::request::reservation::Reserved;
use crate::segment::{Segment, SegmentAction};
use crate::serial::Prefix;
use crate::snowflake::SnowflakeAction;
use crate::spec::Kind;

use super::period::until_check;
use super::{Action, Answer, Now, Planner, SourceIndex, Want};

/// The shortest wait between two tries of a store that fails, and the longest in the first minute.
pub(super) const BACKOFF_MS: (u64, u64) = (50, 5_000);

/// How long a source waits at most until it asks again for a worker where none was free.
const NONE_FREE_MS: u64 = 1_000;

/// How long a source waits that was given a number too large for its layout: the next one is larger, and another row.
const SPENT_MS: u64 = 3_600_000;

/// During an outage the store is tried again after a twelfth of the outage's length, and after this long at the latest: the first
/// where callers wait, the second where every source is served from memory. So the processes do not all meet a database within
/// seconds after minutes of outage, and no caller waits more than ten seconds longer than the outage.
const LONGEST_MS: (u64, u64) = (10_000, 30_000);
const PART_OF_OUTAGE: u64 = 12;

/// Callers hear of refused connections at once only after this time: a server that restarts refuses them for a moment.
const RESTART_MS: u64 = 300;

/// The store failed, and has carried out nothing since.
pub(super) struct Outage {
    since_ms: u64,
    /// The last failure, as it concerns every source.
    fault: Fault,
}

impl Planner {
    /// The store answered the request of a source.
    pub(crate) fn complete(
        &mut self,
        index: SourceIndex,
        answer: Result<Answer, Fault>,
        now: Now,
    ) -> Vec<Action> {
        let outage = answer.as_ref().is_err_and(Fault::is_outage);
        let held = answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Locked);
        let actions = match answer {
            Ok(answer) => {
                // A connection may die after it answered some requests of a batch.
                self.failures = u32::from(self.failed);
                self.outage.take_if(|_| !self.failed);
                if !self.failed {
                    (self.store_retry_at_ms, self.store_urgent_at_ms) = (0, 0);
                }
                self.succeeded(index, answer, now)
            }
            Err(fault) => {
                if let (FaultKind::Unknown, Some(plan)) = (fault.kind, self.plan(index))
                    && let Some(Want::Mark { to }) = plan.in_flight
                    && plan.mark.is_some()
                {
                    plan.doubts.push(to);
                    plan.doubts.dedup();
                }
                vec![self.failed_with(index, &fault, now)]
            }
        };
        if let Some(plan) = self.plan(index) {
            plan.in_flight = None;
            plan.alone = held || plan.alone && outage;
        }
        actions
    }

    fn succeeded(&mut self, index: SourceIndex, answer: Answer, now: Now) -> Vec<Action> {
        let Some(plan) = self.plan(index) else { return Vec::new() };
        plan.failures = 0;
        plan.retry_at_ms = 0;
        match answer {
            Answer::Reserved(range) => {
                // In the source's own count from here on.
                let range = range.of_the_source(plan.spec.key.stride);
                let key = &plan.spec.key;
                match range.above(plan.seen, key.stride, || plan.spec.label.clone(), &key.name) {
                    Ok(end) => plan.seen = end,
                    Err(fault) => return vec![self.failed_with(index, &fault, now)],
                }
                plan.row_ttl_ms = range.ttl_ms;
                self.publish(index, range, now)
            }
            Answer::Taken(taken) => self.taken(index, taken, now),
            Answer::Counters => {
                plan.wanted = None;
                Vec::new()
            }
            Answer::Node(number) => self.node_made(index, number, now),
            Answer::Raised(before) => self.raised(index, before, now),
            Answer::RaisedAt { before, store_ms } => {
                self.store_showed(store_ms, now);
                self.raised(index, before, now)
            }
        }
    }

    /// The mark of a fixed worker stood at `before`, and was raised.
    fn raised(&mut self, index: SourceIndex, before: u64, now: Now) -> Vec<Action> {
        let Some(plan) = self.plan(index) else { return Vec::new() };
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
            return vec![self.failed_with(index, &fault, now)];
        }
        let stands = to.max(before);
        plan.mark = Some(stands);
        // A statement whose answer was given up can still be carried out and raise the mark above ours.
        plan.doubts.retain(|&doubt| doubt > stands);
        vec![if to == 0 {
            Action::Snowflake(SnowflakeAction::Start(before))
        } else {
            Action::Snowflake(SnowflakeAction::Mark(stands))
        }]
    }

    fn publish(&mut self, index: SourceIndex, range: Reserved, now: Now) -> Vec<Action> {
        let Some(plan) = self.plan(index) else { return Vec::new() };
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
        let (asked_len, asked) = match plan.in_flight.take() {
            Some(Want::Numbers { len, period, .. }) => (len, period),
            _ => (0, 0),
        };
        let reserved_ahead = plan.period != 0
            && asked > plan.period
            && asked == range.period
            && plan.period_end_ms.is_some_and(|end| now.wall_ms < end);
        if reserved_ahead {
            plan.ahead = Some(segment.period);
            actions.push(Action::Segment(SegmentAction::KeepAhead(segment)));
            return actions;
        }
        if range.period != plan.period {
            // The row's period is ahead of our clock, or this is the first segment: the source moves to that period. Numbers that
            // were reserved ahead for it come first; they lie below the new range, as `seen` has shown.
            actions.push(Action::Segment(SegmentAction::DropOtherPeriods(range.period)));
            if plan.period != 0 {
                plan.used.begin_anew();
            }
            plan.period = range.period;
            plan.ahead = None;
        }
        let period_end_ms = pattern.and_then(|p| p.period_end_ms(range.period));
        if plan.spec.has_ends() {
            actions.push(Action::Segment(SegmentAction::Ends {
                wall_ms: period_end_ms,
                ttl_ms: plan.rules().ttl_ms,
            }));
        }
        plan.note_refill(segment.len(), asked_len, now);
        self.set_period_end(index, period_end_ms);
        if let Some(end) = period_end_ms {
            // For this source alone: to check every source after each answer would take n² steps for n sources.
            self.next_period_check_ms = self.next_period_check_ms.min(now.boot_ms + until_check(end, now));
        }
        actions.push(Action::Segment(SegmentAction::Publish(segment)));
        actions
    }

    pub(super) fn failed_with(&mut self, index: SourceIndex, fault: &Fault, now: Now) -> Action {
        if let Some(plan) = self.plan(index).filter(|_| fault.kind == FaultKind::WentBackwards) {
            plan.went_backwards = true;
        }
        let spec = self.plan(index).map(|plan| plan.spec.clone());
        let has_issued = self.plan(index).is_some_and(|plan| plan.mark.is_some() || plan.worker_mark > 0);
        let lost = has_issued.then(|| fault.clone().after_ids());
        let fault = lost.as_ref().unwrap_or(fault);
        let mut error = fault.error(spec.as_ref().map_or(CommandLine::BARE, |spec| spec.command_line()));
        if fault.kind == FaultKind::Exhausted && spec.as_ref().is_some_and(|spec| spec.kind() == Kind::Serial)
        {
            error.code = Code::NumberOverflow;
        }
        let is_spent = fault.kind == FaultKind::Exhausted && spec.is_some_and(|spec| spec.finds_worker());
        if is_spent {
            error.code = Code::NoWorkerFree;
        }
        let store_failed = fault.is_outage();
        let mut wait = if store_failed {
            let wait = self.back_off(fault, now);
            error.is_told_at_once = self.is_told_at_once(index, fault, now);
            let until_ms = self.store_urgent_at_ms;
            if let Some(plan) = self.plan(index) {
                plan.told_ms = until_ms;
            }
            wait
        } else {
            let failures = self.plan(index).map_or(1, |plan| {
                plan.failures = plan.failures.saturating_add(1);
                plan.failures
            });
            // Another process may free a worker within the deadline of those who wait.
            let longest = if fault.kind == FaultKind::NoneFree { NONE_FREE_MS } else { BACKOFF_MS.1 };
            if is_spent { SPENT_MS } else { self.backoff(failures, longest) }
        };
        if fault.kind == FaultKind::Exhausted
            && let Some(pattern) = self.plan(index).and_then(|plan| plan.spec.pattern())
            && let Some(end) = pattern.period_end_ms(pattern.period_at(now.wall_ms))
        {
            // The next period has numbers: the error of this one holds into it for the shortest backoff only.
            wait = wait.min((end.saturating_sub(now.wall_ms).max(0) as u64).max(BACKOFF_MS.0 / 2));
        }
        if store_failed {
            let caller_waits = self.plan(index).is_some_and(|plan| plan.caller_waits);
            self.enqueue(index, caller_waits, now);
        } else if let Some(plan) = self.plan(index) {
            plan.retry_at_ms = now.boot_ms + wait;
            // The next caller asks again; this source does not delay the others.
            plan.wanted = None;
        }
        Action::Fail(error.after(Duration::from_millis(wait)))
    }

    /// Starts or extends the backoff after a failure of the store. Returns how long a caller has to wait.
    pub(super) fn back_off(&mut self, fault: &Fault, now: Now) -> u64 {
        if !std::mem::replace(&mut self.failed, true) {
            self.failures = self.failures.saturating_add(1);
            let since_ms = self.outage.as_ref().map_or(now.boot_ms, |outage| outage.since_ms);
            self.outage = Some(Outage { since_ms, fault: fault.clone().without_doing() });
            let part = now.boot_ms.saturating_sub(since_ms) / PART_OF_OUTAGE;
            let most = |longest| part.clamp(BACKOFF_MS.1, longest);
            let urgent = self.backoff(self.failures, most(LONGEST_MS.0));
            let calm = self.backoff(self.failures, most(LONGEST_MS.1));
            self.store_urgent_at_ms = now.boot_ms + urgent;
            self.store_retry_at_ms = now.boot_ms + calm.max(urgent);
            // Callers of these wait for the same store, and are told why when their sources are checked.
            for at in 0..self.urgent.len() {
                self.set_timer_by(self.urgent[at], now.boot_ms);
            }
        }
        self.store_urgent_at_ms.saturating_sub(now.boot_ms)
    }

    /// The error for the callers of a source whose store failed for others and may not be asked now; `None`: it may be asked, or they
    /// were told.
    pub(super) fn tell_outage(&mut self, index: SourceIndex, now: Now) -> Option<Error> {
        let until_ms = self.store_urgent_at_ms;
        let plan = self.plan(index)?;
        let is_lacking = plan.in_urgent && plan.wanted.is_some() && plan.in_flight.is_none();
        if !is_lacking || !plan.is_untold(until_ms, now) {
            return None;
        }
        plan.told_ms = until_ms;
        let at = plan.spec.clone();
        let fault = self.outage.as_ref()?.fault.clone();
        let mut error = fault.error(at.command_line());
        error.is_told_at_once = self.is_told_at_once(index, &fault, now);
        Some(error.after(Duration::from_millis(until_ms.saturating_sub(now.boot_ms))))
    }

    /// Whether callers of this source hear of the outage at once: there is no server, and they have never had a number from it.
    fn is_told_at_once(&mut self, index: SourceIndex, fault: &Fault, now: Now) -> bool {
        let since_ms = self.outage.as_ref().map_or(now.boot_ms, |outage| outage.since_ms);
        fault.is_unreached()
            && self.failures > 1
            && now.boot_ms.saturating_sub(since_ms) >= RESTART_MS
            && !self.plan(index).is_some_and(|plan| plan.has_had_numbers())
    }

    /// Exponential, half of it random, so that a thousand mills do not come back at once.
    pub(super) fn backoff(&mut self, failures: u32, longest: u64) -> u64 {
        let whole = BACKOFF_MS.0.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(longest);
        whole / 2 + self.rng.u64(0..=whole / 2)
    }
}
