//! A clock that moves only by calls: `clock=manual`. Tests and vectors run scenarios on it.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The ends of the calendar: the years 1 and 9999.
const FIRST_MS: i64 = -62_135_596_800_000;
const LAST_MS: i64 = 253_402_300_799_999;

/// A settable clock. Its boot time counts forward moves only, as a real one would.
#[derive(Debug)]
pub struct ManualClock {
    wall: AtomicI64,
    boot: AtomicU64,
}

impl ManualClock {
    /// A clock that shows this many milliseconds since 1970.
    #[must_use]
    pub fn new(wall_ms: i64) -> Self {
        ManualClock {
            wall: AtomicI64::new(wall_ms.clamp(FIRST_MS, LAST_MS)),
            boot: AtomicU64::new(1_000_000),
        }
    }

    /// Moves both clocks forward. The wall clock stops at the end of the calendar.
    pub fn advance(&self, ms: u64) {
        let ms = ms.min(LAST_MS as u64);
        // ordering: Relaxed — a clock is a value of its own, nothing is published through it.
        self.boot.fetch_add(ms, Ordering::Relaxed);
        self.set_wall(self.wall_ms().saturating_add(ms as i64));
    }

    /// Sets the wall clock, in either direction, within the calendar; boot time does not change.
    pub fn set_wall(&self, wall_ms: i64) {
        // ordering: Relaxed — as above.
        self.wall.store(wall_ms.clamp(FIRST_MS, LAST_MS), Ordering::Relaxed);
    }

    /// What the wall clock shows.
    #[must_use]
    pub fn wall_ms(&self) -> i64 {
        // ordering: Relaxed — as above.
        self.wall.load(Ordering::Relaxed)
    }

    /// What the boot clock shows.
    #[must_use]
    pub fn boot_ms(&self) -> u64 {
        // ordering: Relaxed — as above.
        self.boot.load(Ordering::Relaxed)
    }
}
