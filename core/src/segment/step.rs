//! How many numbers to reserve, and when: the adaptive step and the rate it follows.
//!
//! `len = max(min_step, min(max_step, qps × buffer))`, from the seed's segment design. Here `qps × buffer` is a floor of what
//! lies in memory, so that an outage as long as `buffer` is served from there whenever it begins. The seed counts each id in a
//! striped time bucket; here the counter's own position is the count, sampled when the keeper looks, so that the rate
//! costs the id path nothing.

use crate::base::spec::Rules;

/// A refill fills up to this share of `qps × buffer`.
const FULL: (u64, u64) = (6, 5);

/// Below this share of the target, which is 31/30 of `qps × buffer`, the keeper reserves again: what is left stays above
/// `qps × buffer` while a refill is under way for no longer than a thirtieth of the buffer. A refill brings a sixth of
/// `qps × buffer`: smaller ones would cost more round trips than two per million ids at 100 000 a second and 30 s.
const REFILL_BELOW: (u64, u64) = (31, 36);

/// A refill rests after the one before it for this share of the target, a second at most, unless less than this share of
/// it is left. Less than a sixth of the buffer, so that a steady rate never meets the rest: it is there for a rate that rises,
/// which is known only a second later and makes the target grow as fast as it is filled.
const REST: u64 = 8;

/// How long a refill rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Until this boot time at the latest.
    pub(crate) until_ms: u64,
    /// Until no more than this many are left: an eighth of the target, or twice what the last batch cost.
    pub(crate) pressing: u64,
}

/// The last refill, by which the next one is timed. One that brought less than was asked for times nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    /// When its numbers came.
    pub(crate) at_ms: u64,
    /// How many were taken while it was under way; [`u64::MAX`]: it came too late, nothing was left.
    pub(crate) taken: u64,
}

impl Rules {
    /// Milliseconds of buffer that a refill fills up to. What outlives `ttl` is dropped: more would be reserved in vain.
    fn ahead_ms(&self) -> u64 {
        let full = self.buffer_ms.saturating_mul(FULL.0) / FULL.1;
        self.ttl_ms.map_or(full, |ttl| ttl.min(full))
    }

    /// How many numbers lie in memory after a refill at this rate (numbers per 1000 s).
    pub(crate) fn target(&self, per_1000s: u64) -> u64 {
        let wanted = u128::from(per_1000s) * u128::from(self.ahead_ms()) / 1_000_000;
        u64::try_from(wanted).unwrap_or(u64::MAX).min(self.max_step.saturating_mul(4))
    }

    /// How many may be left before the keeper reserves again.
    pub(crate) fn low_water(&self, per_1000s: u64) -> u64 {
        let target = u128::from(self.target(per_1000s)) * u128::from(REFILL_BELOW.0);
        // Rounded up: a target of a few numbers is a floor too.
        u64::try_from(target.div_ceil(u128::from(REFILL_BELOW.1))).unwrap_or(u64::MAX)
    }

    /// Whether a refill of `len`, for which nobody waits, rests; `None`: it is due now.
    ///
    /// One of `max_step` never rests: no later one would bring more.
    pub(crate) fn rest(&self, per_1000s: u64, left: u64, len: u64, last: Last, now_ms: u64) -> Option<Rest> {
        let until_ms = last.at_ms.saturating_add((self.ahead_ms() / REST).min(SHORTEST_MS));
        let in_flight = last.taken.saturating_mul(2);
        let pressing = (self.target(per_1000s) / REST).max(in_flight).min(self.low_water(per_1000s));
        let rests = now_ms < until_ms && len < self.max_step && left > pressing;
        rests.then_some(Rest { until_ms, pressing })
    }

    /// How many numbers to reserve now; 0: none.
    ///
    /// `left` are in memory, `lacking` is what waiting callers miss beyond that.
    pub(crate) fn step(&self, per_1000s: u64, left: u64, lacking: u64) -> u64 {
        let target = self.target(per_1000s);
        if lacking == 0 && (left > self.low_water(per_1000s) || target == 0) {
            return 0;
        }
        let ahead = target.saturating_sub(left);
        let len = ahead.clamp(self.min_step, self.max_step.max(self.min_step)).max(lacking);
        len.div_ceil(self.unit).saturating_mul(self.unit)
    }
}

/// Time between two samples at least: shorter ones would say more of the scheduler than of the callers.
const SAMPLE_MS: u64 = 250;
const SAMPLES: usize = 16;
/// No rate is measured over less than this, so one quick burst is not taken for a rate.
const SHORTEST_MS: u64 = 1000;

/// The rate of a source, from samples `(when, how many had been issued by then)`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    samples: std::collections::VecDeque<(u64, u64)>,
}

impl Meter {
    /// The keeper looked at `now` and saw this many issued in all.
    pub(crate) fn sample(&mut self, now_ms: u64, issued: u64) {
        if self.samples.back().is_some_and(|(at, _)| now_ms < at.saturating_add(SAMPLE_MS)) {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now_ms, issued));
    }

    /// Numbers per 1000 s: the highest of what was issued since the last sample older than a second, of what was issued
    /// within the last second, and of the rate over all samples; so that a lull does not empty the buffer, and a rise is
    /// followed at once, be the sample before it as old as may be.
    pub(crate) fn per_1000s(&self, now_ms: u64, issued: u64) -> u64 {
        // One id is no rate: whoever looks right after a cold source's first must not reserve for thirty more.
        if issued < 2 {
            return 0;
        }
        let over = |since: u64, before: u64| {
            let elapsed = now_ms.saturating_sub(since).max(SHORTEST_MS);
            let rate = u128::from(issued.saturating_sub(before)) * 1_000_000 / u128::from(elapsed);
            u64::try_from(rate).unwrap_or(u64::MAX)
        };
        let lately = self.samples.iter().rev().find(|(at, _)| at.saturating_add(SHORTEST_MS) <= now_ms);
        let lately = lately.or(self.samples.front()).map_or(0, |&(at, n)| over(at, n));
        let young = self.samples.iter().find(|(at, _)| at.saturating_add(SHORTEST_MS) > now_ms);
        let [young, at_all] = [young, self.samples.front()].map(|s| s.map_or(0, |&(at, n)| over(at, n)));
        lately.max(young).max(at_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules =
        Rules { min_step: 1000, max_step: 10_000_000, unit: 1, buffer_ms: 30_000, ttl_ms: None };

    #[test]
    fn one_cold_id_reserves_the_least_step() {
        assert_eq!(RULES.step(0, 0, 1), 1000);
    }

    #[test]
    fn a_second_look_after_a_cold_id_reserves_nothing() {
        let mut meter = Meter::default();
        meter.sample(0, 0);
        let rules = Rules { min_step: 10, ..RULES };
        assert_eq!(rules.step(meter.per_1000s(1, 1), 9, 0), 0);
        assert!(rules.step(meter.per_1000s(1000, 9), 1, 0) > 0);
    }

    #[test]
    fn no_more_is_reserved_than_can_be_used_before_its_time_to_live_ends() {
        let rules = Rules { ttl_ms: Some(2_000), ..RULES };
        assert_eq!(rules.target(1_000_000), 2_000);
        assert_eq!(Rules { ttl_ms: Some(3_600_000), ..RULES }.target(1_000_000), 36_000);
    }

    #[test]
    fn an_idle_source_reserves_nothing_ahead() {
        assert_eq!(RULES.step(0, 0, 0), 0);
    }

    #[test]
    fn a_batch_reserves_just_what_it_lacks() {
        assert_eq!(RULES.step(0, 0, 25_000_000), 25_000_000);
        assert_eq!(RULES.step(0, 0, 1500), 1500);
    }

    #[test]
    fn unused_reserve_stays_under_six_fifths_of_the_buffer_and_two_least_steps() {
        for rate in [1, 100, 2_000, 100_000, 5_000_000u64] {
            let target = (rate * 36).min(4 * RULES.max_step);
            for left in [0, 10, target / 2, target] {
                let step = RULES.step(rate * 1000, left, 0);
                assert!(left + step <= target + 2 * RULES.min_step, "rate {rate} left {left} step {step}");
            }
        }
    }

    #[test]
    fn a_refill_is_due_before_less_than_the_buffer_is_left() {
        for buffer_ms in [1_000, 30_000, 300_000] {
            for rate in [1, 100, 2_000, 33_333u64] {
                let rules = Rules { buffer_ms, ..RULES };
                let floor = rate * buffer_ms / 1000;
                assert!(rules.step(rate * 1000, floor, 0) > 0, "{rate} a second, {floor} left");
                let refill = rules.target(rate * 1000) - rules.low_water(rate * 1000);
                assert!(refill * 6 + 12 >= floor && refill * 6 <= floor + 12, "{refill} of {floor}");
            }
        }
    }

    #[test]
    fn a_fixed_step_is_reserved_in_whole_multiples() {
        let rules = Rules { min_step: 500, unit: 500, ..RULES };
        assert_eq!(rules.step(0, 0, 1), 500);
        assert_eq!(rules.step(0, 0, 501), 1000);
        assert_eq!(rules.step(100_000_000, 0, 0) % 500, 0);
    }

    #[test]
    fn a_burst_shorter_than_a_second_is_not_taken_for_a_rate() {
        let mut meter = Meter::default();
        meter.sample(5_000, 0);
        assert_eq!(meter.per_1000s(5_001, 1000), 1_000_000);
    }

    #[test]
    fn a_steady_rate_is_measured_and_a_lull_is_followed() {
        let mut meter = Meter::default();
        for second in 0..40u64 {
            meter.sample(second * 250, second * 25_000);
        }
        assert_eq!(meter.per_1000s(10_000, 1_000_000), 100_000_000);
        for second in 40..80u64 {
            meter.sample(second * 250, 1_000_000);
        }
        assert_eq!(meter.per_1000s(20_000, 1_000_000), 0);
    }

    #[test]
    fn the_target_is_six_fifths_of_the_buffer_and_a_refill_is_due_at_31_thirtieths_of_it() {
        assert_eq!((RULES.target(1_000_000), RULES.low_water(1_000_000)), (36_000, 31_000));
        assert_eq!((RULES.target(1), RULES.low_water(1)), (0, 0));
        // Seven numbers: 6.03 rounded up.
        assert_eq!((RULES.target(200), RULES.low_water(200)), (7, 7));
        assert_eq!(RULES.target(u64::MAX), 40_000_000, "four largest steps");
        let endless = Rules { max_step: u64::MAX, buffer_ms: u64::MAX, ..RULES };
        assert_eq!(endless.target(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_refill_is_due_at_the_low_water_mark_and_brings_what_lacks_to_the_target() {
        assert_eq!(RULES.step(1_000_000, 31_001, 0), 0);
        assert_eq!(RULES.step(1_000_000, 31_000, 0), 5_000);
        assert_eq!(RULES.step(1_000_000, 35_900, 1), 1_000, "never less than the least step");
        assert_eq!(RULES.step(1_000_000, 0, 50_000), 50_000);
        let small = Rules { max_step: 4_000, ..RULES };
        assert_eq!(small.step(1_000_000, 0, 0), 4_000);
        let odd = Rules { min_step: 5_000, max_step: 4_000, ..RULES };
        assert_eq!(odd.step(1_000_000, 0, 0), 5_000, "a least step above the largest");
    }

    #[test]
    fn a_refill_rests_until_its_time_has_come_or_little_is_left_and_one_of_the_largest_step_never() {
        let last = Last { at_ms: 10_000, taken: 0 };
        let rest = |left, len, last, now_ms| RULES.rest(1_000_000, left, len, last, now_ms);
        let rests = Some(Rest { until_ms: 11_000, pressing: 4_500 });
        assert_eq!(rest(4_501, 10, last, 10_999), rests);
        assert_eq!(rest(4_501, 10, last, 11_000), None, "its time has come");
        assert_eq!(rest(4_500, 10, last, 10_999), None, "an eighth of the target is left");
        assert_eq!(rest(4_501, RULES.max_step, last, 10_999), None);
        assert_eq!(rest(4_501, RULES.max_step - 1, last, 10_999), rests);
        // What was taken while the last one was under way, twice; but no more than the low-water mark.
        let slow = Last { taken: 5_000, ..last };
        assert_eq!(rest(10_001, 10, slow, 10_999), Some(Rest { until_ms: 11_000, pressing: 10_000 }));
        assert_eq!(rest(10_000, 10, slow, 10_999), None);
        let dry = Last { taken: u64::MAX, ..last };
        assert_eq!(rest(31_001, 10, dry, 10_999), Some(Rest { until_ms: 11_000, pressing: 31_000 }));
        // An eighth of what is kept ahead, where that is less than a second.
        let short = Rules { buffer_ms: 4_000, ..RULES };
        assert_eq!(short.rest(1_000_000, 601, 10, last, 10_599).map(|rest| rest.until_ms), Some(10_600));
    }

    #[test]
    fn one_id_is_no_rate_and_two_are() {
        let mut meter = Meter::default();
        meter.sample(0, 0);
        assert_eq!((meter.per_1000s(1_000, 1), meter.per_1000s(1_000, 2)), (0, 2_000));
        assert_eq!(Meter::default().per_1000s(1_000, 1_000), 0, "no sample yet");
    }

    #[test]
    fn samples_lie_a_quarter_of_a_second_apart_and_the_oldest_make_room() {
        let mut meter = Meter::default();
        for (now_ms, issued, samples) in [(0, 0, 1), (249, 5, 1), (250, 6, 2), (499, 7, 2), (500, 8, 3)] {
            meter.sample(now_ms, issued);
            assert_eq!(meter.samples.len(), samples, "at {now_ms}");
        }
        for n in 3..40 {
            meter.sample(n * 250, 8);
        }
        assert_eq!(meter.samples.len(), SAMPLES);
        assert_eq!(meter.samples.front(), Some(&(24 * 250, 8)));
    }

    #[test]
    fn the_rate_is_the_highest_of_lately_of_the_last_second_and_of_all_samples() {
        let meter = |samples: &[(u64, u64)]| Meter { samples: samples.iter().copied().collect() };
        // Lately: since the last sample that is a second old.
        assert_eq!(meter(&[(0, 0), (9_000, 0)]).per_1000s(10_000, 5_000), 5_000_000);
        assert_eq!(meter(&[(0, 0), (8_000, 0), (9_001, 4_000)]).per_1000s(10_000, 5_000), 2_500_000);
        // Within the last second: a sample that is a second old does not count, one that is younger does.
        assert_eq!(meter(&[(0, 0), (9_000, 1_000), (9_001, 1_000)]).per_1000s(10_000, 5_000), 4_000_000);
        assert_eq!(meter(&[(0, 0), (5_000, 4_990), (9_001, 4_991)]).per_1000s(10_000, 5_000), 500_000);
        assert_eq!(meter(&[(0, 0), (100, 4_000), (9_500, 4_000)]).per_1000s(10_000, 5_000), 1_000_000);
        // All samples: a lull does not empty the buffer.
        assert_eq!(meter(&[(0, 0), (5_000, 5_000), (9_000, 5_000)]).per_1000s(10_000, 5_000), 500_000);
    }
}
