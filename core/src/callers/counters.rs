//! The counters of one source. Ids are not counted one by one: the counter they come from is the count.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Now;

/// What a source counts about itself.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reserved: AtomicU64,
    pub(crate) refills: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) waits: AtomicU64,
    /// The rate as the keeper measured it last.
    pub(crate) rate_per_1000s: AtomicU64,
    /// How many numbers the last reservation brought, and when: milliseconds since 1970.
    pub(crate) last_step: AtomicU64,
    pub(crate) last_refill_ms: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        // ordering: Relaxed — a statistic.
        counter.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        // ordering: Relaxed — a statistic.
        counter.load(Ordering::Relaxed)
    }

    /// Counts numbers that were reserved and that no caller gets.
    pub(crate) fn lose(&self, numbers: u64) {
        Self::add(&self.lost, numbers);
    }

    /// Counts a reservation of so many numbers.
    pub(crate) fn refilled(&self, numbers: u64, now: Now) {
        Self::add(&self.refills, 1);
        Self::add(&self.reserved, numbers);
        // ordering: Relaxed — a statistic.
        self.last_step.store(numbers, Ordering::Relaxed);
        // ordering: Relaxed — a statistic.
        self.last_refill_ms.store(u64::try_from(now.wall_ms).unwrap_or(0), Ordering::Relaxed);
    }

    pub(crate) fn set_rate(&self, per_1000s: u64) {
        // ordering: Relaxed — a statistic.
        self.rate_per_1000s.store(per_1000s, Ordering::Relaxed);
    }
}
