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

/// How many numbers had been issued at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sample {
    at_ms: u64,
    issued: u64,
}

impl Sample {
    fn is_younger(self, ms: u64, now_ms: u64) -> bool {
        self.at_ms.saturating_add(ms) > now_ms
    }
}

/// The rate of a source, from samples.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter {
    samples: std::collections::VecDeque<Sample>,
}

impl Meter {
    /// Records how many numbers had been issued by `now`.
    pub(super) fn sample(&mut self, now_ms: u64, issued: u64) {
        if self.samples.back().is_some_and(|last| last.is_younger(SAMPLE_MS, now_ms)) {
            return;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample { at_ms: now_ms, issued });
    }

    /// Numbers per 1000 s: the highest rate since the last sample older than a second, within the last second, and over all
    /// samples. So a lull does not empty the buffer, and a rise is followed at once, however old the sample before it is.
    pub(super) fn per_1000s(&self, now_ms: u64, issued: u64) -> u64 {
        // One id is no rate: a check right after a cold source's first id must not reserve for thirty more.
        if issued < 2 {
            return 0;
        }
        let since = |sample: &Sample| {
            per_1000s(issued.saturating_sub(sample.issued), now_ms.saturating_sub(sample.at_ms))
        };
        let lately = self.samples.iter().rev().find(|sample| !sample.is_younger(SHORTEST_MS, now_ms));
        let lately = lately.or(self.samples.front()).map_or(0, since);
        let young =
            self.samples.iter().find(|sample| sample.is_younger(SHORTEST_MS, now_ms)).map_or(0, since);
        let at_all = self.samples.front().map_or(0, since);
        lately.max(young).max(at_all)
    }

    /// Whether numbers were issued since the last check.
    pub(super) fn rises(&self, now_ms: u64, issued: u64) -> bool {
        self.samples.iter().rev().find(|last| last.at_ms < now_ms).is_some_and(|last| last.issued < issued)
    }

    /// Whether the numbers were issued over about a second, and not in a burst: between several samples in a row that lie close together.
    pub(super) fn lasts(&self, now_ms: u64, issued: u64) -> bool {
        let mut later = Sample { at_ms: now_ms, issued };
        let mut rises = 0;
        for &sample in self.samples.iter().rev().filter(|sample| sample.at_ms < now_ms) {
            if later.issued <= sample.issued || later.at_ms - sample.at_ms > SHORTEST_MS {
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

/// How many numbers of the present period were used lately, from samples. Between two samples the use counts as even.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentUse {
    /// At most one is older than the window.
    samples: std::collections::VecDeque<Sample>,
}

impl RecentUse {
    /// Another period began: its numbers are counted from the next sample on.
    pub(super) fn begin_anew(&mut self) {
        self.samples.clear();
    }

    /// Records how many numbers had been issued by `now`.
    pub(super) fn sample(&mut self, now_ms: u64, issued: u64, window_ms: u64) {
        while self.samples.get(1).is_some_and(|second| !second.is_younger(window_ms, now_ms)) {
            self.samples.pop_front();
        }
        if self.samples.back().is_none_or(|last| !last.is_younger((window_ms / PARTS).max(1), now_ms)) {
            self.samples.push_back(Sample { at_ms: now_ms, issued });
        }
    }

    /// Numbers used within the window before `now`.
    pub(super) fn within(&self, now_ms: u64, issued: u64, window_ms: u64) -> u64 {
        let Some(&first) = self.samples.front() else { return 0 };
        let since = now_ms.saturating_sub(window_ms);
        let mut by_then = first.issued;
        if first.at_ms < since {
            let next = self.samples.get(1).copied().unwrap_or(Sample { at_ms: now_ms, issued });
            let part = u128::from(next.issued.saturating_sub(first.issued)) * u128::from(since - first.at_ms);
            let whole = u128::from((next.at_ms - first.at_ms).max(1));
            by_then += u64::try_from(part.div_ceil(whole)).unwrap_or(u64::MAX);
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
        assert_eq!(meter.samples.front(), Some(&Sample { at_ms: 24 * 250, issued: 8 }));
    }

    #[test]
    fn the_rate_is_the_highest_of_lately_of_the_last_second_and_of_all_samples() {
        let meter = |samples: &[(u64, u64)]| Meter {
            samples: samples.iter().map(|&(at_ms, issued)| Sample { at_ms, issued }).collect(),
        };
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
