//! The rate at which a source's ids are taken.
//!
//! The seed counts each id in a striped time bucket. Here the counter's own position is the count, sampled when the keeper checks
//! the source, so the rate costs the id path nothing.

use crate::refill::{SHORTEST_MS, per_1000s};

/// Time between two samples at least: shorter ones would measure the scheduler, not the callers.
pub(super) const SAMPLE_MS: u64 = 250;
const SAMPLES: usize = 16;

/// Use that rises from one sample to the next this many times in a row is no burst.
const LASTING: usize = 4;

/// The rate of a source, from samples `(when, how many had been issued by then)`.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    samples: std::collections::VecDeque<(u64, u64)>,
}

impl Meter {
    /// Records how many numbers had been issued by `now`.
    pub(super) fn sample(&mut self, now_ms: u64, issued: u64) {
        if self.samples.back().is_some_and(|(at, _)| now_ms < at.saturating_add(SAMPLE_MS)) {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back((now_ms, issued));
    }

    /// Numbers per 1000 s: the highest rate since the last sample older than a second, within the last second, and over all
    /// samples. So a lull does not empty the buffer, and a rise is followed at once, however old the sample before it is.
    pub(super) fn per_1000s(&self, now_ms: u64, issued: u64) -> u64 {
        // One id is no rate: a check right after a cold source's first id must not reserve for thirty more.
        if issued < 2 {
            return 0;
        }
        let over =
            |since: u64, before: u64| per_1000s(issued.saturating_sub(before), now_ms.saturating_sub(since));
        let lately = self.samples.iter().rev().find(|(at, _)| at.saturating_add(SHORTEST_MS) <= now_ms);
        let lately = lately.or(self.samples.front()).map_or(0, |&(at, n)| over(at, n));
        let young = self.samples.iter().find(|(at, _)| at.saturating_add(SHORTEST_MS) > now_ms);
        let [young, at_all] = [young, self.samples.front()].map(|s| s.map_or(0, |&(at, n)| over(at, n)));
        lately.max(young).max(at_all)
    }

    /// Whether numbers were issued since the last check.
    pub(super) fn rises(&self, now_ms: u64, issued: u64) -> bool {
        self.samples.iter().rev().find(|(at, _)| *at < now_ms).is_some_and(|(_, before)| *before < issued)
    }

    /// Whether the numbers were issued over about a second, and not in a burst: between several samples in a row that lie close together.
    pub(super) fn lasts(&self, now_ms: u64, issued: u64) -> bool {
        let mut later = (now_ms, issued);
        let mut rises = 0;
        for &sample in self.samples.iter().rev().filter(|(at, _)| *at < now_ms) {
            if later.1 <= sample.1 || later.0 - sample.0 > SHORTEST_MS {
                break;
            }
            rises += 1;
            later = sample;
        }
        rises >= LASTING
    }
}

/// Parts of a window that are sampled.
const PARTS: u64 = 16;

/// How many numbers of the present period were used lately, from samples `(when, how many had been issued by then)`. Between two
/// samples the use counts as even.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentUse {
    /// At most one is older than the window.
    samples: std::collections::VecDeque<(u64, u64)>,
}

impl RecentUse {
    /// Another period began: its numbers are counted from the next sample on.
    pub(super) fn begin_anew(&mut self) {
        self.samples.clear();
    }

    /// Records how many numbers had been issued by `now`.
    pub(super) fn sample(&mut self, now_ms: u64, issued: u64, window_ms: u64) {
        while self.samples.get(1).is_some_and(|(at, _)| at.saturating_add(window_ms) <= now_ms) {
            self.samples.pop_front();
        }
        let next = |at: u64| at.saturating_add((window_ms / PARTS).max(1));
        if self.samples.back().is_none_or(|&(at, _)| next(at) <= now_ms) {
            self.samples.push_back((now_ms, issued));
        }
    }

    /// Numbers used within the window before `now`.
    pub(super) fn within(&self, now_ms: u64, issued: u64, window_ms: u64) -> u64 {
        let Some(&(at, before)) = self.samples.front() else { return 0 };
        let since = now_ms.saturating_sub(window_ms);
        let mut by_then = before;
        if at < since {
            let &(next_at, next) = self.samples.get(1).unwrap_or(&(now_ms, issued));
            let part = u128::from(next.saturating_sub(before)) * u128::from(since - at);
            by_then += u64::try_from(part.div_ceil(u128::from((next_at - at).max(1)))).unwrap_or(u64::MAX);
        }
        issued.saturating_sub(by_then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Within the last second: a sample that is a second old does not count, a younger sample does.
        assert_eq!(meter(&[(0, 0), (9_000, 1_000), (9_001, 1_000)]).per_1000s(10_000, 5_000), 4_000_000);
        assert_eq!(meter(&[(0, 0), (5_000, 4_990), (9_001, 4_991)]).per_1000s(10_000, 5_000), 500_000);
        assert_eq!(meter(&[(0, 0), (100, 4_000), (9_500, 4_000)]).per_1000s(10_000, 5_000), 1_000_000);
        // All samples: a lull does not empty the buffer.
        assert_eq!(meter(&[(0, 0), (5_000, 5_000), (9_000, 5_000)]).per_1000s(10_000, 5_000), 500_000);
    }

    #[test]
    fn what_was_used_in_the_window_is_counted_and_what_is_older_is_not() {
        let mut used = RecentUse::default();
        used.sample(0, 0, 16_000);
        assert_eq!(used.within(0, 500, 16_000), 500);
        for second in 1..=60u64 {
            used.sample(second * 1000, second * 100, 16_000);
            assert_eq!(used.within(second * 1000, second * 100, 16_000), 100 * second.min(16));
        }
        assert!(used.samples.len() <= PARTS as usize + 2, "{:?}", used.samples);
        // A lull, in which nothing was sampled.
        assert_eq!(used.within(70_000, 6_000, 16_000), 600);
        assert_eq!(used.within(77_000, 6_000, 16_000), 0);
    }

    #[test]
    fn a_burst_after_a_long_lull_counts_from_the_next_sample_on() {
        let mut used = RecentUse::default();
        used.sample(0, 0, 30_000);
        used.sample(3_600_000, 1_000, 30_000);
        assert_eq!(used.within(3_600_000, 1_000, 30_000), 8, "an even use of an hour");
        assert_eq!(used.within(3_600_001, 3_000, 30_000), 2_008);
    }

    #[test]
    fn samples_lie_a_sixteenth_of_the_window_apart() {
        let mut used = RecentUse::default();
        for now_ms in 0..10_000 {
            used.sample(now_ms, now_ms, 1_600);
            assert!(used.samples.len() <= PARTS as usize + 2);
            assert_eq!(used.within(now_ms, now_ms, 1_600), now_ms.min(1_600), "at {now_ms}");
        }
        used.begin_anew();
        assert_eq!(used.within(10_000, 10_000, 1_600), 0);
    }
}
