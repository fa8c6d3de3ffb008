//! Periods of serial numbers: when one is over, and when the next is reserved.

use crate::request::reservation::Scheme;
use crate::segment::SegmentAction;
use crate::serial::SerialPattern;

use super::{Action, Now, Plan, Planner, SourceIndex};

/// A new period is reserved this long before it begins.
const AHEAD_MS: i64 = 2_000;

/// While serial numbers are in memory, the wall clock is compared with their period at least this often, so that a
/// clock that was set is noticed.
const PERIOD_CHECK_MS: u64 = 1_000;

/// The next period, if it is about to begin, is not reserved yet and numbers are being taken.
///
/// Not on `key_producer`: an old KeyFactory node that reads tomorrow's row today would set it back to today's zero. And
/// never earlier than other nodes accept a row of the next period, as their clocks may be behind ours.
pub(super) fn next_period(plan: &Plan, rate: u64, now: Now) -> Option<u64> {
    let pattern: &SerialPattern = plan.spec.pattern()?;
    let end = plan.period_end_ms?;
    let scheme_allows = plan.spec.key.scheme == Scheme::Keymill;
    let near = now.wall_ms >= end - AHEAD_MS.min(plan.spec.skew_ms as i64 / 2) && now.wall_ms < end;
    let long_enough = pattern.period_start_ms(plan.period).is_some_and(|start| end - start > 4 * AHEAD_MS);
    if scheme_allows && near && long_enough && rate > 0 && plan.ahead.is_none() {
        return Some(pattern.period_at(end));
    }
    None
}

/// How long until a source whose period ends at `end` is checked: first at the moment to reserve ahead, then at the end itself.
pub(super) fn until_check(end: i64, now: Now) -> u64 {
    let ahead = (end - AHEAD_MS).saturating_sub(now.wall_ms);
    let next = if ahead > 0 { ahead } else { end.saturating_sub(now.wall_ms) };
    next.clamp(1, PERIOD_CHECK_MS as i64).unsigned_abs()
}

impl Planner {
    /// Ends a period that is over. Returns how many numbers are in memory afterwards: the source has already dropped the numbers of the old
    /// period, and begun with the numbers reserved ahead (`SegmentSource::expire`).
    pub(super) fn turn_period(
        &mut self,
        index: SourceIndex,
        left: u64,
        now: Now,
        actions: &mut Vec<Action>,
    ) -> u64 {
        let Some(plan) = self.plan(index) else { return left };
        let over = plan.period_end_ms.is_some_and(|end| now.wall_ms >= end);
        if !over {
            return left;
        }
        let Some(pattern) = plan.spec.pattern() else { return left };
        let today = pattern.period_at(now.wall_ms);
        actions.push(Action::Segment(SegmentAction::DropOtherPeriods(today)));
        plan.period = today;
        plan.used.begin_anew();
        if plan.ahead.take() == Some(today) {
            let wall_ms = pattern.period_end_ms(today);
            // Repeated for a source that ended the period just before these numbers came.
            actions.push(Action::Segment(SegmentAction::Ends { wall_ms, ttl_ms: plan.rules().ttl_ms }));
            self.set_period_end(index, wall_ms);
            return left;
        }
        self.set_period_end(index, None);
        0
    }

    /// Sets the wall time at which a source's period is over; `None`: it has no numbers of one.
    pub(super) fn set_period_end(&mut self, index: SourceIndex, end: Option<i64>) {
        let Some(plan) = self.plan(index) else { return };
        if let Some(before) = std::mem::replace(&mut plan.period_end_ms, end) {
            self.dated.remove(&(before, index));
        }
        self.dated.extend(end.map(|end| (end, index)));
    }

    /// Adds the sources whose period is over or about to end to `due`, and sets the time of the next check.
    pub(super) fn check_periods(&mut self, now: Now, due: &mut Vec<SourceIndex>) {
        // Up to this end each source is due; the moment of the others is still to come.
        let near = now.wall_ms.saturating_add(AHEAD_MS);
        due.extend(self.dated.range(..=(near, SourceIndex::MAX)).map(|&(_, index)| index));
        let first = self.dated.first().into_iter();
        let next_ends = first.chain(self.dated.range((near.saturating_add(1), 0)..).next());
        let next = next_ends.map(|&(end, _)| until_check(end, now)).min().unwrap_or(PERIOD_CHECK_MS);
        self.next_period_check_ms = now.boot_ms + next;
    }

    /// The wall clock was set: compare the periods at once.
    pub fn clock_moved(&mut self) {
        self.next_period_check_ms = 0;
    }
}
