//! What a source counts of itself.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::planner::Now;

/// What a source's counters say.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) reserved: AtomicU64,
    pub(crate) refills: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) waits: AtomicU64,
    /// The rate as the keeper measured it last.
    pub(crate) rate_per_1000s: AtomicU64,
    /// How many numbers the last reservation was, and when it came: milliseconds since 1970.
    pub(crate) last_step: AtomicU64,
    pub(crate) last_refill_ms: AtomicU64,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        // ordering: Relaxed — a statistic.
        counter.fetch_add(n, Ordering::Relaxed);
    }

    pub(super) fn refilled(&self, numbers: u64, now: Now) {
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

    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        // ordering: Relaxed — a statistic.
        counter.load(Ordering::Relaxed)
    }
}
