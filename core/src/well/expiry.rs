//! When a source's numbers in memory end by themselves: with their period, or with their time to live.
//!
//! The end is known when they are reserved, so a source can drop them without its keeper, whose thread may be waiting for a
//! store. Two threads do so: the keeper at each look, and the mill's expiry thread (`keeper::expiry`) while the keeper is busy.
//! The calendar's lock makes one of them at a time publish or drop; callers never take it.

use std::sync::{MutexGuard, PoisonError};

use crate::planner::Now;
use crate::segment::{Buffer, Segment};

use super::{Counters, Spring, Well};

/// When what is in memory ends, and what follows it.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    /// The wall time at which the present period is over.
    end_ms: Option<i64>,
    /// How long a segment lives.
    ttl_ms: Option<u64>,
    /// The next period's first segment, until that period begins.
    ahead: Option<Segment>,
}

impl Well {
    fn calendar(&self) -> MutexGuard<'_, Calendar> {
        self.calendar.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what has ended by now and begins with what was reserved ahead. Answers with how long what is left lasts, in
    /// milliseconds; `None`: it has no end.
    pub(crate) fn expire(&self, now: Now) -> Option<u64> {
        let Spring::Numbers(buffer) = &self.spring else { return None };
        let mut calendar = self.calendar();
        if calendar.end_ms.is_some_and(|end| now.wall_ms >= end)
            && let Some(pattern) = self.spec.pattern()
        {
            let today = pattern.period_at(now.wall_ms);
            let goes_on = self.begin(buffer, &mut calendar, today, now);
            calendar.end_ms = if goes_on { pattern.period_end_ms(today) } else { None };
        }
        let until_end = calendar.end_ms.map(|end| end.saturating_sub(now.wall_ms).max(1).unsigned_abs());
        let mut until_age = None;
        if let (Some(ttl), Some(born)) = (calendar.ttl_ms, buffer.snapshot().born_ms) {
            if now.boot_ms >= born.saturating_add(ttl) {
                Counters::add(&self.counters.lost, buffer.drop_older(now.boot_ms - ttl).lost);
            }
            let born = buffer.snapshot().born_ms;
            until_age = born.map(|born| born.saturating_add(ttl).saturating_sub(now.boot_ms).max(1));
        }
        until_end.into_iter().chain(until_age).min()
    }

    /// Drops every other period and publishes what was kept for this one; `true` if anything was.
    fn begin(&self, buffer: &Buffer, calendar: &mut Calendar, period: u64, now: Now) -> bool {
        Counters::add(&self.counters.lost, buffer.drop_other_periods(period).lost);
        let Some(segment) = calendar.ahead.take_if(|ahead| ahead.period <= period) else { return false };
        if segment.period < period {
            Counters::add(&self.counters.lost, segment.len());
            return false;
        }
        self.publish_under(buffer, segment, now);
        true
    }

    fn publish_under(&self, buffer: &Buffer, segment: Segment, now: Now) {
        self.counters.refilled(segment.len(), now);
        if !buffer.publish(segment) {
            Counters::add(&self.counters.lost, segment.len());
        }
        self.supplied();
    }

    /// Publishes what was reserved, unless its end came while the request was under way: no caller may take a number of it in
    /// the moment before the keeper's next look drops it.
    pub(super) fn publish(&self, buffer: &Buffer, segment: Segment, now: Now) {
        let calendar = self.calendar();
        if calendar.end_ms.is_some_and(|end| now.wall_ms >= end) {
            self.counters.refilled(segment.len(), now);
            Counters::add(&self.counters.lost, segment.len());
            return;
        }
        self.publish_under(buffer, segment, now);
    }

    pub(super) fn keep_ahead(&self, segment: Segment) {
        if let Some(before) = self.calendar().ahead.replace(segment) {
            Counters::add(&self.counters.lost, before.len());
        }
    }

    pub(super) fn drop_other_periods(&self, buffer: &Buffer, period: u64, now: Now) {
        let mut calendar = self.calendar();
        self.begin(buffer, &mut calendar, period, now);
    }

    pub(super) fn drop_older(&self, buffer: &Buffer, born_ms: u64) {
        let _one_at_a_time = self.calendar();
        Counters::add(&self.counters.lost, buffer.drop_older(born_ms).lost);
    }

    pub(super) fn set_ends(&self, wall_ms: Option<i64>, ttl_ms: Option<u64>) {
        let mut calendar = self.calendar();
        (calendar.end_ms, calendar.ttl_ms) = (wall_ms, ttl_ms);
    }

    /// Closes the buffer; what was kept for the next period follows what was left of this one.
    pub(super) fn close_buffer(&self, buffer: &Buffer) -> Vec<(u64, u64, u64)> {
        let mut calendar = self.calendar();
        let mut rest = buffer.close();
        rest.extend(calendar.ahead.take().map(|ahead| (ahead.period, ahead.lo, ahead.hi)));
        rest
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::base::waker::ReadyQueue;
    use crate::config::MillConfig;
    use crate::planner::Action;
    use crate::serial::Prefix;
    use crate::time::{Clock, ManualClock};

    /// A source of serial numbers, the present period and its end.
    fn dated(wall_ms: i64) -> (Well, u64, i64) {
        let spec = MillConfig::parse("memory:").and_then(|c| c.spec("serial:a/b?zone=UTC")).expect("a spec");
        let clock = Clock::Manual(Arc::new(ManualClock::new(wall_ms)));
        let well = Well::new(Arc::new(spec), Arc::new(ReadyQueue::default()), 0, clock).expect("a well");
        let pattern = well.spec.pattern().expect("a pattern");
        let period = pattern.period_at(wall_ms);
        let end = pattern.period_end_ms(period).expect("an end");
        (well, period, end)
    }

    #[test]
    fn a_range_whose_period_ended_while_it_was_reserved_is_given_to_nobody() {
        for (late_ms, issued) in [(-1, true), (0, false), (1_500, false)] {
            let (well, period, end) = dated(1_795_218_600_000);
            let now = Now { boot_ms: 1_000_000, wall_ms: end + late_ms };
            let segment = Segment { lo: 1, hi: 101, period, born_ms: now.boot_ms, prefix: Prefix::EMPTY };
            well.act(Action::Ends { wall_ms: Some(end), ttl_ms: None }, now);
            well.act(Action::Publish(segment), now);
            // Before the keeper's next look, as a caller who waits takes it.
            assert_eq!(well.try_next().is_ok(), issued, "{late_ms} ms after the end");
            let (reserved, lost) =
                (Counters::get(&well.counters.reserved), Counters::get(&well.counters.lost));
            assert_eq!((reserved, lost), (100, if issued { 0 } else { 100 }));
        }
    }
}
