//! The clocks a mill may run on. Time is passed in as a value everywhere above this module. (floor 0)
//!
//! * *wall*: milliseconds since 1970, what people and layouts mean by time. It may jump, in both directions.
//! * *coarse wall*: the same, up to one kernel tick (1 to 4 ms) old, an order of magnitude cheaper to read.
//! * *boot time*: milliseconds since some fixed moment, counting suspend; it never falls. Waiting, ages and rates use it.

mod manual;
mod system;

use std::sync::Arc;

pub use manual::ManualClock;

/// A clock: the machine's own, or one that a test moves by hand (`clock=manual`).
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's clocks.
    System,
    /// A clock that stands still until it is moved.
    Manual(Arc<ManualClock>),
}

impl Clock {
    /// Milliseconds since 1970-01-01T00:00:00Z; negative before it.
    #[must_use]
    pub fn wall_ms(&self) -> i64 {
        match self {
            Clock::System => system::wall_ms(),
            Clock::Manual(clock) => clock.wall_ms(),
        }
    }

    /// The wall clock at the kernel's tick: cheap enough to read for each id, never ahead of `wall_ms`.
    #[inline]
    #[must_use]
    pub fn coarse_wall_ms(&self) -> i64 {
        match self {
            Clock::System => system::coarse_wall_ms(),
            Clock::Manual(clock) => clock.wall_ms(),
        }
    }

    /// Milliseconds since some fixed moment of this boot, suspend included; never falls.
    #[must_use]
    pub fn boot_ms(&self) -> u64 {
        match self {
            Clock::System => system::boot_ms(),
            Clock::Manual(clock) => clock.boot_ms(),
        }
    }
}
