//! A clock that moves only when told to: `clock=manual`. Tests and vectors run scenarios on it. (floor 0)

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

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
        ManualClock { wall: AtomicI64::new(wall_ms), boot: AtomicU64::new(1_000_000) }
    }

    /// Moves both clocks forward.
    pub fn advance(&self, ms: u64) {
        // ordering: Relaxed — a clock is a value of its own, nothing is published through it.
        self.boot.fetch_add(ms, Ordering::Relaxed);
        // ordering: Relaxed — as above.
        self.wall.fetch_add(ms as i64, Ordering::Relaxed);
    }

    /// Sets the wall clock, in either direction; boot time stands.
    pub fn set_wall(&self, wall_ms: i64) {
        // ordering: Relaxed — as above.
        self.wall.store(wall_ms, Ordering::Relaxed);
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
