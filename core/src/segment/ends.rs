//! When a source's numbers in memory end by themselves: with their period, or with their time to live.
//!
//! The end is known when the numbers are reserved, so a source can drop them without its keeper, whose thread may be waiting for
//! a store. Two threads do so: the keeper at each check, and the mill's expiry thread (`keeper::expiry`) while the keeper is busy.
//! Only one of them at a time publishes or drops, under the lock of [`Ends`]; callers never take it.

use std::sync::{MutexGuard, PoisonError};

use crate::time::Now;

use super::{Segment, SegmentSource};

/// When the numbers in memory end, and what follows them.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// The wall time at which the present period is over.
    end_ms: Option<i64>,
    /// How long a segment lives.
    ttl_ms: Option<u64>,
    /// The next period's first segment, until that period begins.
    ahead: Option<Segment>,
}

impl SegmentSource {
    fn lock_ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the numbers that have ended by now and begins with those that were reserved ahead. Returns how many milliseconds
    /// the rest lasts; `None`: it has no end.
    pub(crate) fn expire(&self, now: Now) -> Option<u64> {
        let mut ends = self.lock_ends();
        if ends.end_ms.is_some_and(|end| now.wall_ms >= end)
            && let Some(pattern) = self.spec().pattern()
        {
            let today = pattern.period_at(now.wall_ms);
            let goes_on = self.begin(&mut ends, today, now);
            ends.end_ms = if goes_on { pattern.period_end_ms(today) } else { None };
        }
        let until_end = ends.end_ms.map(|end| end.saturating_sub(now.wall_ms).max(1).unsigned_abs());
        let mut until_age = None;
        if let (Some(ttl), Some(born)) = (ends.ttl_ms, self.buffer.snapshot().born_ms) {
            if now.boot_ms >= born.saturating_add(ttl) {
                self.callers.counters.lose(self.buffer.drop_older(now.boot_ms - ttl));
            }
            let born = self.buffer.snapshot().born_ms;
            until_age = born.map(|born| born.saturating_add(ttl).saturating_sub(now.boot_ms).max(1));
        }
        until_end.into_iter().chain(until_age).min()
    }

    /// Drops every other period and publishes what was kept for this one. Returns whether anything was.
    fn begin(&self, ends: &mut Ends, period: u64, now: Now) -> bool {
        self.callers.counters.lose(self.buffer.drop_other_periods(period));
        let Some(segment) = ends.ahead.take_if(|ahead| ahead.period <= period) else { return false };
        if segment.period < period {
            self.callers.counters.lose(segment.len());
            return false;
        }
        self.publish_locked(segment, now);
        true
    }

    /// Publishes a segment; its caller holds the lock.
    fn publish_locked(&self, segment: Segment, now: Now) {
        self.callers.counters.refilled(segment.len(), now);
        if !self.buffer.publish(segment) {
            self.callers.counters.lose(segment.len());
        }
        self.answered();
        self.callers.supplied();
    }

    /// Publishes a reserved segment, unless it ended while the request was in flight: no caller may take a number of it
    /// before the keeper's next check drops it.
    pub(super) fn publish(&self, segment: Segment, now: Now) {
        let ends = self.lock_ends();
        if ends.end_ms.is_some_and(|end| now.wall_ms >= end) {
            self.callers.counters.refilled(segment.len(), now);
            self.callers.counters.lose(segment.len());
            return;
        }
        self.publish_locked(segment, now);
    }

    pub(super) fn keep_ahead(&self, segment: Segment) {
        if let Some(before) = self.lock_ends().ahead.replace(segment) {
            self.callers.counters.lose(before.len());
        }
    }

    pub(super) fn drop_other_periods(&self, period: u64, now: Now) {
        let mut ends = self.lock_ends();
        self.begin(&mut ends, period, now);
    }

    pub(super) fn drop_older(&self, born_ms: u64) {
        let _one_at_a_time = self.lock_ends();
        self.callers.counters.lose(self.buffer.drop_older(born_ms));
    }

    pub(super) fn set_ends(&self, wall_ms: Option<i64>, ttl_ms: Option<u64>) {
        let mut ends = self.lock_ends();
        (ends.end_ms, ends.ttl_ms) = (wall_ms, ttl_ms);
    }

    /// Closes the buffer. What was kept for the next period follows the rest of this one; all of it counts as lost.
    pub(super) fn close_buffer(&self) -> Vec<(u64, u64, u64)> {
        let mut ends = self.lock_ends();
        let mut rest = self.buffer.close();
        rest.extend(ends.ahead.take().map(|ahead| (ahead.period, ahead.lo, ahead.hi)));
        self.callers.counters.lose(rest.iter().map(|(_, lo, hi)| hi - lo).sum());
        // Those were counted as lost when they came back.
        rest.extend(self.blocks.take_returned());
        rest.sort_unstable();
        rest
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::callers::counters::Counters;
    use crate::callers::waker::ReadyQueue;
    use crate::config::MillConfig;
    use crate::segment::SegmentAction;
    use crate::serial::Prefix;
    use crate::time::{Clock, ManualClock};

    /// A source of serial numbers, the present period and its end.
    fn dated(wall_ms: i64) -> (Arc<SegmentSource>, u64, i64) {
        let spec = MillConfig::parse("memory:").and_then(|c| c.spec("serial:a/b?zone=UTC")).expect("a spec");
        let clock = Clock::Manual(Arc::new(ManualClock::new(wall_ms)));
        let source = SegmentSource::new(Arc::new(spec), Arc::new(ReadyQueue::default()), 0, clock);
        let pattern = source.spec().pattern().expect("a pattern");
        let period = pattern.period_at(wall_ms);
        let end = pattern.period_end_ms(period).expect("an end");
        (source, period, end)
    }

    #[test]
    fn a_range_whose_period_ended_while_it_was_reserved_reaches_no_caller() {
        for (late_ms, issued) in [(-1, true), (0, false), (1_500, false)] {
            let (source, period, end) = dated(1_795_218_600_000);
            let now = Now { boot_ms: 1_000_000, wall_ms: end + late_ms };
            let segment = Segment { lo: 1, hi: 101, period, born_ms: now.boot_ms, prefix: Prefix::EMPTY };
            source.act(SegmentAction::Ends { wall_ms: Some(end), ttl_ms: None }, now);
            source.act(SegmentAction::Publish(segment), now);
            // Before the keeper's next check, as a waiting caller takes it.
            assert_eq!(source.try_next().is_ok(), issued, "{late_ms} ms after the end");
            let counters = &source.callers.counters;
            let (reserved, lost) = (Counters::get(&counters.reserved), Counters::get(&counters.lost));
            assert_eq!((reserved, lost), (100, if issued { 0 } else { 100 }));
        }
    }
}
