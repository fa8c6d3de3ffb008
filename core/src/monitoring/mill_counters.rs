//! The counters of a whole mill: counted where things happen, rendered by `engine/metrics.rs`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Code;

/// Upper bounds of the refill histogram, in microseconds.
const BUCKETS_US: [u64; 9] = [250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 250_000, 1_000_000];

/// The counters of a whole mill.
#[derive(Debug, Default)]
pub(crate) struct MillCounters {
    refill_us: [AtomicU64; BUCKETS_US.len() + 1],
    refill_sum_us: AtomicU64,
    refills_failed: AtomicU64,
    pub(crate) round_trips: AtomicU64,
    pub(crate) given_back: AtomicU64,
    pub(crate) driver_panics: AtomicU64,
    pub(crate) keeper_restarts: AtomicU64,
    /// One more than the warnings of the store's settings; 0: the store has not been asked yet.
    pub(crate) warnings: AtomicU64,
    /// Renewals of leased workers, and those that failed.
    pub(crate) renewals: AtomicU64,
    pub(crate) renewals_failed: AtomicU64,
    /// The skew of the wall clock as an `i64`, and whether it is known.
    skew_ms: AtomicU64,
    skew_is_known: AtomicBool,
    pub(crate) errors: [AtomicU64; Code::ALL.len()],
}

fn add(counter: &AtomicU64, n: u64) {
    // ordering: Relaxed — a statistic.
    counter.fetch_add(n, Ordering::Relaxed);
}

pub(crate) fn get(counter: &AtomicU64) -> u64 {
    // ordering: Relaxed — a statistic.
    counter.load(Ordering::Relaxed)
}

impl MillCounters {
    pub(crate) fn refilled(&self, took: Duration, went_well: bool) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_US.iter().position(|&b| us <= b).unwrap_or(BUCKETS_US.len());
        add(&self.refill_us[bucket], 1);
        add(&self.refill_sum_us, us);
        add(&self.refills_failed, u64::from(!went_well));
    }

    /// Counts a round trip to the store, however many reservations it was for.
    pub(crate) fn count_round_trip(&self) {
        add(&self.round_trips, 1);
    }

    /// Counts a reservation that failed at one of several stores, and was made at another.
    pub(crate) fn failed(&self) {
        add(&self.refills_failed, 1);
    }

    pub(crate) fn gave_back(&self, numbers: u64) {
        add(&self.given_back, numbers);
    }

    /// Counts a panic of the store's driver.
    pub(crate) fn driver_panicked(&self) {
        add(&self.driver_panics, 1);
    }

    /// Counts a restart of the keeper after a defect in keymill.
    pub(crate) fn keeper_restarted(&self) {
        add(&self.keeper_restarts, 1);
    }

    /// Sets how many warnings the store's settings give.
    pub(crate) fn set_warnings(&self, count: usize) {
        // ordering: Relaxed — a statistic.
        self.warnings.store(count as u64 + 1, Ordering::Relaxed);
    }

    /// Counts a renewal of the leased workers.
    pub(crate) fn renewed(&self, went_well: bool) {
        add(&self.renewals, 1);
        add(&self.renewals_failed, u64::from(!went_well));
    }

    /// Sets how far the wall clock is ahead of the store's.
    pub(crate) fn set_skew(&self, ms: Option<i64>) {
        let Some(ms) = ms else { return };
        // ordering: Relaxed — a statistic, here and below.
        self.skew_ms.store(ms as u64, Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.skew_is_known.store(true, Ordering::Relaxed);
    }

    pub(crate) fn skew_ms(&self) -> Option<i64> {
        // ordering: Relaxed — a statistic.
        self.skew_is_known.load(Ordering::Relaxed).then(|| get(&self.skew_ms) as i64)
    }

    /// Counts an error that a caller got.
    pub(crate) fn error(&self, code: Code) {
        if let Some(at) = Code::ALL.iter().position(|known| *known == code) {
            add(&self.errors[at], 1);
        }
    }
}

/// How long reservations took, for the whole mill.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Latency {
    /// Seconds, and how many reservations took at most that long; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// All of them together, in seconds.
    pub sum_seconds: f64,
    /// How many there were, and how many of them failed.
    pub count: u64,
    /// Those that failed.
    pub failed: u64,
    /// Round trips to the store, each for one reservation or for several that were due together.
    pub trips: u64,
}

impl MillCounters {
    pub(crate) fn latency(&self) -> Latency {
        let mut count = 0;
        let bounds = BUCKETS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets = bounds
            .zip(&self.refill_us)
            .map(|(bound, counter)| {
                count += get(counter);
                (bound, count)
            })
            .collect();
        Latency {
            buckets,
            sum_seconds: get(&self.refill_sum_us) as f64 / 1e6,
            count,
            failed: get(&self.refills_failed),
            trips: get(&self.round_trips),
        }
    }
}
