//! Refills: what segments and the counters of a bank have in common. Pure.
//!
//! `len = max(min_step, min(max_step, qps × buffer))`, from the seed's segment design. Here `qps × buffer` is a floor of what
//! lies in memory, so that an outage as long as `buffer` is served from there whenever it begins.

use crate::spec::Rules;

/// A refill fills up to this share of `qps × buffer`.
const FULL: (u64, u64) = (6, 5);

/// Below this share of a full memory, which is 31/30 of `qps × buffer`, the keeper reserves again: what is left stays above
/// `qps × buffer` while a request is in flight for no longer than a thirtieth of the buffer. A refill brings a sixth of
/// `qps × buffer`: smaller ones would cost more round trips than two per million ids at 100 000 a second and 30 s.
const REFILL_BELOW: (u64, u64) = (31, 36);

/// No rate is measured over less than this, so that one quick burst is not taken for a rate.
pub(crate) const SHORTEST_MS: u64 = 1_000;

/// The rate at which so many numbers are taken in so many milliseconds: numbers in 1000 s.
pub(crate) fn per_1000s(numbers: u64, ms: u64) -> u64 {
    let rate = u128::from(numbers) * 1_000_000 / u128::from(ms.max(SHORTEST_MS));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// How many numbers are taken in so many milliseconds at this rate.
pub(crate) fn taken_in(ms: u64, per_1000s: u64) -> u64 {
    let taken = u128::from(per_1000s) * u128::from(ms) / 1_000_000;
    u64::try_from(taken).unwrap_or(u64::MAX)
}

/// How many may be left before a memory that is full with `full` numbers is filled again.
pub(crate) fn low(full: u64) -> u64 {
    let low = u128::from(full) * u128::from(REFILL_BELOW.0);
    // Rounded up: a memory of a few numbers is a floor too.
    u64::try_from(low.div_ceil(u128::from(REFILL_BELOW.1))).unwrap_or(u64::MAX)
}

impl Rules {
    /// How many milliseconds the numbers last that a refill fills up to. Numbers that outlive `ttl` would be dropped, so no more
    /// are reserved.
    pub(crate) fn ahead_ms(&self) -> u64 {
        let full = self.buffer_ms.saturating_mul(FULL.0) / FULL.1;
        self.ttl_ms.map_or(full, |ttl| ttl.min(full))
    }

    /// How many numbers a refill fills up to at this rate.
    pub(crate) fn full(&self, per_1000s: u64) -> u64 {
        taken_in(self.ahead_ms(), per_1000s)
    }

    /// The most numbers that a refill fills up to at any rate.
    pub(crate) fn most(&self) -> u64 {
        self.max_step.saturating_mul(4)
    }

    /// How many numbers a refill brings that fills up to `target` where `left` are in memory.
    pub(crate) fn refill(&self, target: u64, left: u64) -> u64 {
        let lacking = target.saturating_sub(left);
        self.whole(lacking.clamp(self.min_step, self.max_step.max(self.min_step)))
    }

    /// The next whole multiple of `unit`.
    pub(crate) fn whole(&self, len: u64) -> u64 {
        len.div_ceil(self.unit).saturating_mul(self.unit)
    }
}
