//! Refills of segments: how many numbers to reserve, and when, by the rule of [`crate::refill`].
//!
//! Where the numbers end (`Rules::ends`), a process keeps no more of them ahead than it used in the last `buffer`, and two least
//! steps: what many processes reserve in bursts and never use is at most half of a period and two steps each. The last tenth of
//! a period goes in single steps, which the store's own decision sees to (`Request::single`).

use crate::refill::low;
use crate::request::reservation::last_tenth;
use crate::segment::Snapshot;
use crate::spec::Rules;
use crate::time::Now;

use super::rate::SAMPLE_MS;
use super::{Plan, Refilled};

/// After a refill the next one pauses for this share of the target, a second at most, unless less than this share of it is left.
/// Less than a sixth of the buffer, so that a steady rate never meets the pause: it is there for a rate that rises, which is
/// known only a second later and makes the target grow as fast as it is filled.
const PAUSE: u64 = 8;

/// The longest pause.
const LONGEST_PAUSE_MS: u64 = 1000;

/// While the use may be a burst, no more than this many times what was used is kept ahead, and the next refill pauses until less
/// than a [`PAUSE`]th of what was used, or of the least step, is left. So a process that ends after a burst loses a few times what
/// it used, not 36 times.
const AHEAD_OF_BURST: u64 = 5;

/// A store that takes this long for a refill is slow.
const SLOW_MS: u64 = 10;

/// What a source needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    /// How fast its numbers are taken: so many in 1000 s.
    pub(super) per_1000s: u64,
    /// The most that may lie in memory after a refill.
    pub(super) most: u64,
    /// How many numbers were used, where they may all belong to a burst.
    pub(super) burst: Option<u64>,
}

/// How long a refill pauses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RefillPause {
    /// Until this boot time at the latest; `None`: until little is left.
    pub(super) until_ms: Option<u64>,
    /// Until no more than this many are left: an eighth of the target, or twice what the last request cost.
    pub(super) pressing: u64,
}

/// The last refill, by which the next one is timed. A refill that brought less than was asked for times nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LastRefill {
    /// When its numbers came.
    pub(super) at_ms: u64,
    /// How many were taken while its request was in flight; [`u64::MAX`]: it came too late, nothing was left.
    pub(super) taken: u64,
    /// How long its request was in flight.
    pub(super) took_ms: u64,
}

impl Rules {
    /// The most numbers that may lie in memory after a refill, where the numbers end and so many were used in the last `buffer`.
    fn most_ahead(&self, used: u64, in_last_tenth: bool) -> u64 {
        if in_last_tenth {
            // The next step is reserved when a quarter of one is left.
            self.min_step.saturating_add(self.min_step / 4)
        } else {
            used.max(self.min_step.saturating_mul(2))
        }
    }

    /// The same, where the numbers do not end and all that were used may belong to a burst.
    fn most_ahead_of_burst(&self, used: u64) -> u64 {
        used.saturating_mul(AHEAD_OF_BURST).max(self.min_step)
    }

    /// Whether half of the first step or more is left, where so many were used.
    fn is_cold(&self, used: u64) -> bool {
        used <= self.min_step / 2
    }

    /// How many numbers lie in memory after a refill.
    fn target(&self, demand: Demand) -> u64 {
        self.full(demand.per_1000s).min(self.most()).min(demand.most)
    }

    /// Whether less is kept ahead than the rate asks for, because the use may be a burst.
    pub(super) fn holds_back(&self, demand: Demand) -> bool {
        demand.burst.is_some() && demand.most < self.full(demand.per_1000s).min(self.most())
    }

    /// How many may be left before the keeper reserves again.
    pub(super) fn low_water(&self, demand: Demand) -> u64 {
        low(self.target(demand)).min(demand.most.saturating_sub(self.min_step))
    }

    /// When so many are left the source is checked again.
    pub(super) fn checked_below(&self, demand: Demand, pause: Option<RefillPause>, left: u64) -> u64 {
        let mark = pause.map_or_else(|| self.low_water(demand), |pause| pause.pressing);
        // When half of it is gone, so that a rate that rises is seen before the end; and when a source is no longer cold.
        let half = self.min_step / 2;
        let warm = if left > half && demand.burst.is_some_and(|used| self.is_cold(used)) { half } else { 0 };
        mark.max(left / 2).max(warm).min(left.saturating_sub(1))
    }

    /// Whether a refill of `len`, for which no caller waits, pauses; `None`: it is due now.
    ///
    /// One of `max_step` never pauses: no later one would bring more.
    fn pause(
        &self,
        demand: Demand,
        left: u64,
        len: u64,
        last: LastRefill,
        now_ms: u64,
    ) -> Option<RefillPause> {
        let burst = demand.burst.filter(|_| self.holds_back(demand));
        let until_ms = match burst {
            Some(_) => None,
            None => Some(last.at_ms.saturating_add((self.ahead_ms() / PAUSE).min(LONGEST_PAUSE_MS))),
        };
        let little = burst.map_or_else(|| self.target(demand), |used| used.max(self.min_step)) / PAUSE;
        // The refill that a cold source waited for came too late for its first callers, which says nothing of the next one.
        let is_cold = burst.is_some_and(|used| self.is_cold(used));
        let in_flight = if is_cold { 0 } else { last.taken.saturating_mul(2) };
        let pressing = little.max(in_flight).min(self.low_water(demand));
        let pauses = until_ms.is_none_or(|until| now_ms < until) && len < self.max_step && left > pressing;
        pauses.then_some(RefillPause { until_ms, pressing })
    }

    /// How many numbers to reserve now; 0: none.
    ///
    /// `left` are in memory, waiting callers lack `lacking` beyond that.
    pub(super) fn step(&self, demand: Demand, left: u64, lacking: u64) -> u64 {
        let target = self.target(demand);
        if lacking == 0 && (left > self.low_water(demand) || target == 0) {
            return 0;
        }
        let most = demand.most.saturating_sub(left) / self.unit * self.unit;
        self.whole(self.refill(target, left).min(most).max(lacking))
    }

    /// The least step, or what waiting callers lack beyond it: how much of the last tenth of a period is reserved at a time.
    pub(super) fn single(&self, lacking: u64) -> u64 {
        if self.ends { self.whole(self.min_step.max(lacking)) } else { 0 }
    }
}

impl Plan {
    /// What the source needs now, at this many issued.
    pub(super) fn demand(&self, issued: u64, lacking: u64, now: Now) -> Demand {
        let rules = self.rules();
        let used = self.used.within(now.boot_ms, issued, rules.buffer_ms);
        // Other processes may have moved the row further: then the store gives a single step, and this one knows.
        let in_last_tenth = self.seen.period == self.period && self.seen.next >= last_tenth(self.spec.last);
        let may_be_burst = !rules.ends && !self.has_lasted && !self.outruns_store(issued);
        // What callers wait for is as good as used.
        let burst = may_be_burst.then_some(issued.saturating_add(lacking));
        let most = match burst {
            Some(used) => rules.most_ahead_of_burst(used),
            None if rules.ends => rules.most_ahead(used, in_last_tenth),
            None => u64::MAX,
        };
        Demand { per_1000s: self.meter.per_1000s(now.boot_ms, issued), most, burst }
    }

    /// A refill of `len` numbers came where `asked` were wanted.
    pub(super) fn note_refill(&mut self, len: u64, asked: u64, now: Now) {
        // The source was not checked since the request left: the keeper's thread was busy with it.
        self.refilled = Some(Refilled { len, issued: self.last_issued });
        // A source that got less than it asked for, by a row's own step or at the end of a chunk, asks again at once.
        let took_ms = now.boot_ms.saturating_sub(self.asked_ms);
        self.last = (len >= asked).then_some(LastRefill { at_ms: now.boot_ms, taken: 0, took_ms });
    }

    /// Whether a source that is no longer cold has a slow store: to wait for it several times more would take long.
    fn outruns_store(&self, issued: u64) -> bool {
        !self.rules().is_cold(issued) && self.last.is_some_and(|last| last.took_ms >= SLOW_MS)
    }

    /// How many numbers to reserve now; 0: none.
    pub(super) fn step(&self, demand: Demand, issued: u64, left: u64, lacking: u64) -> u64 {
        let rules = self.rules();
        let len = rules.step(demand, left, lacking);
        let was_late = self.last.is_some_and(|last| last.taken == u64::MAX);
        if len == 0 || rules.ends || !was_late || !self.outruns_store(issued) {
            return len;
        }
        // Callers waited for the last refill of a slow store, so how fast they are is not known: more steps at a time.
        len.max(rules.whole(rules.min_step.saturating_mul(2)).min(rules.max_step))
    }

    /// At the first check after a refill: how many numbers were taken while its request was in flight.
    pub(super) fn measure_refill(&mut self, snapshot: &Snapshot) {
        if let (Some(Refilled { len, issued }), Some(last)) = (self.refilled.take(), &mut self.last) {
            let was_dry = snapshot.left <= len;
            last.taken = if was_dry { u64::MAX } else { snapshot.issued.saturating_sub(issued) };
        }
    }

    /// When a source that uses numbers in a burst is checked again: whether the burst lasts is seen while it rises.
    pub(super) fn looks_again(&self, demand: Demand, issued: u64, now: Now) -> Option<u64> {
        let is_held = self.last.is_some() && self.rules().holds_back(demand);
        (is_held && self.meter.rises(now.boot_ms, issued)).then_some(now.boot_ms + SAMPLE_MS)
    }

    /// Whether a refill of `len`, for which no caller waits, pauses.
    pub(super) fn pause(&self, demand: Demand, left: u64, len: u64, now: Now) -> Option<RefillPause> {
        let last = self.last.filter(|_| len > 0)?;
        self.rules().pause(demand, left, len, last, now.boot_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::rate::Meter;

    const RULES: Rules =
        Rules { min_step: 1000, max_step: 10_000_000, unit: 1, buffer_ms: 30_000, ttl_ms: None, ends: false };

    /// So fast, and as much ahead as is wanted.
    fn rate(per_1000s: u64) -> Demand {
        Demand { per_1000s, most: u64::MAX, burst: None }
    }

    #[test]
    fn one_cold_id_reserves_the_least_step() {
        assert_eq!(RULES.step(rate(0), 0, 1), 1000);
    }

    #[test]
    fn a_second_check_after_a_cold_id_reserves_nothing() {
        let mut meter = Meter::default();
        meter.sample(0, 0);
        let rules = Rules { min_step: 10, ..RULES };
        assert_eq!(rules.step(rate(meter.per_1000s(1, 1)), 9, 0), 0);
        assert!(rules.step(rate(meter.per_1000s(1000, 9)), 1, 0) > 0);
    }

    #[test]
    fn no_more_is_reserved_than_can_be_used_before_its_time_to_live_ends() {
        let rules = Rules { ttl_ms: Some(2_000), ..RULES };
        assert_eq!(rules.target(rate(1_000_000)), 2_000);
        assert_eq!(Rules { ttl_ms: Some(3_600_000), ..RULES }.target(rate(1_000_000)), 36_000);
    }

    #[test]
    fn an_idle_source_reserves_nothing_ahead() {
        assert_eq!(RULES.step(rate(0), 0, 0), 0);
    }

    #[test]
    fn a_batch_reserves_just_what_it_lacks() {
        assert_eq!(RULES.step(rate(0), 0, 25_000_000), 25_000_000);
        assert_eq!(RULES.step(rate(0), 0, 1500), 1500);
    }

    #[test]
    fn unused_reserve_stays_under_six_fifths_of_the_buffer_and_two_least_steps() {
        for each in [1, 100, 2_000, 100_000, 5_000_000u64] {
            let target = (each * 36).min(4 * RULES.max_step);
            for left in [0, 10, target / 2, target] {
                let step = RULES.step(rate(each * 1000), left, 0);
                assert!(left + step <= target + 2 * RULES.min_step, "rate {each} left {left} step {step}");
            }
        }
    }

    #[test]
    fn a_refill_is_due_before_less_than_the_buffer_is_left() {
        for buffer_ms in [1_000, 30_000, 300_000] {
            for each in [1, 100, 2_000, 33_333u64] {
                let rules = Rules { buffer_ms, ..RULES };
                let floor = each * buffer_ms / 1000;
                assert!(rules.step(rate(each * 1000), floor, 0) > 0, "{each} a second, {floor} left");
                let refill = rules.target(rate(each * 1000)) - rules.low_water(rate(each * 1000));
                assert!(refill * 6 + 12 >= floor && refill * 6 <= floor + 12, "{refill} of {floor}");
            }
        }
    }

    #[test]
    fn a_fixed_step_is_reserved_in_whole_multiples() {
        let rules = Rules { min_step: 500, unit: 500, ..RULES };
        assert_eq!(rules.step(rate(0), 0, 1), 500);
        assert_eq!(rules.step(rate(0), 0, 501), 1000);
        assert_eq!(rules.step(rate(100_000_000), 0, 0) % 500, 0);
    }

    #[test]
    fn the_target_is_six_fifths_of_the_buffer_and_a_refill_is_due_at_31_thirtieths_of_it() {
        assert_eq!((RULES.target(rate(1_000_000)), RULES.low_water(rate(1_000_000))), (36_000, 31_000));
        assert_eq!((RULES.target(rate(1)), RULES.low_water(rate(1))), (0, 0));
        // Seven numbers: 6.03 rounded up.
        assert_eq!((RULES.target(rate(200)), RULES.low_water(rate(200))), (7, 7));
        assert_eq!(RULES.target(rate(u64::MAX)), 40_000_000, "four largest steps");
        let endless = Rules { max_step: u64::MAX, buffer_ms: u64::MAX, ..RULES };
        assert_eq!(endless.target(rate(u64::MAX)), u64::MAX);
    }

    #[test]
    fn a_refill_is_due_at_the_low_water_mark_and_brings_what_lacks_to_the_target() {
        assert_eq!(RULES.step(rate(1_000_000), 31_001, 0), 0);
        assert_eq!(RULES.step(rate(1_000_000), 31_000, 0), 5_000);
        assert_eq!(RULES.step(rate(1_000_000), 35_900, 1), 1_000, "never less than the least step");
        assert_eq!(RULES.step(rate(1_000_000), 0, 50_000), 50_000);
        let small = Rules { max_step: 4_000, ..RULES };
        assert_eq!(small.step(rate(1_000_000), 0, 0), 4_000);
        let odd = Rules { min_step: 5_000, max_step: 4_000, ..RULES };
        assert_eq!(odd.step(rate(1_000_000), 0, 0), 5_000, "a least step above the largest");
    }

    #[test]
    fn a_refill_pauses_until_its_time_has_come_or_little_is_left_and_one_of_the_largest_step_never() {
        let last = LastRefill { at_ms: 10_000, taken: 0, took_ms: 0 };
        let pause = |left, len, last, now_ms| RULES.pause(rate(1_000_000), left, len, last, now_ms);
        let pauses = Some(RefillPause { until_ms: Some(11_000), pressing: 4_500 });
        assert_eq!(pause(4_501, 10, last, 10_999), pauses);
        assert_eq!(pause(4_501, 10, last, 11_000), None, "its time has come");
        assert_eq!(pause(4_500, 10, last, 10_999), None, "an eighth of the target is left");
        assert_eq!(pause(4_501, RULES.max_step, last, 10_999), None);
        assert_eq!(pause(4_501, RULES.max_step - 1, last, 10_999), pauses);
        // What was taken while the last request was in flight, twice; but no more than the low-water mark.
        let slow = LastRefill { taken: 5_000, ..last };
        assert_eq!(
            pause(10_001, 10, slow, 10_999),
            Some(RefillPause { until_ms: Some(11_000), pressing: 10_000 })
        );
        assert_eq!(pause(10_000, 10, slow, 10_999), None);
        let dry = LastRefill { taken: u64::MAX, ..last };
        assert_eq!(
            pause(31_001, 10, dry, 10_999),
            Some(RefillPause { until_ms: Some(11_000), pressing: 31_000 })
        );
        // An eighth of what is kept ahead, where that is less than a second.
        let short = Rules { buffer_ms: 4_000, ..RULES };
        assert_eq!(
            short.pause(rate(1_000_000), 601, 10, last, 10_599).and_then(|pause| pause.until_ms),
            Some(10_600)
        );
    }

    const SERIALS: Rules =
        Rules { min_step: 500, max_step: 1_000_000, unit: 500, buffer_ms: 30_000, ttl_ms: None, ends: true };

    /// As fast as memory, and so many used lately.
    fn after(rules: &Rules, used: u64, in_last_tenth: bool) -> Demand {
        Demand { per_1000s: 46_000_000_000, most: rules.most_ahead(used, in_last_tenth), burst: None }
    }

    #[test]
    fn where_numbers_end_no_more_lie_ahead_than_were_used_and_two_steps() {
        for (min_step, unit) in [(500, 500), (1, 1), (7, 7), (100, 1)] {
            let rules = Rules { min_step, unit, ..SERIALS };
            for used in [0, 1, min_step, 3 * min_step + 1, 160_000, 3_000_000, 900_000_000] {
                let demand = after(&rules, used, false);
                let most = used.max(2 * min_step);
                for left in (0..40).map(|part| most * part / 36).chain([most]) {
                    let len = rules.step(demand, left, 0);
                    assert!(len == 0 || left + len <= most, "{used} used, {left} left, {len} more");
                    assert!(len.is_multiple_of(unit), "{used} used, {left} left, {len} more");
                    assert_eq!(
                        len > 0,
                        left <= rules.low_water(demand),
                        "{used} used, {left} left, {len} more"
                    );
                    // A caller who lacks a number gets it.
                    assert!(rules.step(demand, left, 1) >= unit);
                }
                assert!(rules.step(demand, 0, 0) >= min_step, "{used} used");
            }
        }
    }

    #[test]
    fn the_last_tenth_goes_in_single_steps_and_a_batch_gets_what_it_lacks() {
        let demand = after(&SERIALS, 3_000_000, true);
        assert_eq!(SERIALS.low_water(demand), 125);
        assert_eq!((SERIALS.step(demand, 126, 0), SERIALS.step(demand, 125, 0)), (0, 500));
        assert_eq!((SERIALS.step(demand, 0, 1), SERIALS.step(demand, 0, 1_300)), (500, 1_500));
        assert_eq!((SERIALS.single(0), SERIALS.single(1_300), RULES.single(1_300)), (500, 1_500, 0));
    }
}
