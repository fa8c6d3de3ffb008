//! The clocks a mill may run on. Time is passed in as a value everywhere above this module.
//!
//! * *wall*: milliseconds since 1970, the time of people and layouts. It may jump, in both directions.
//! * *coarse wall*: the same, up to one kernel tick (1 to 4 ms) old, an order of magnitude cheaper to read.
//! * *boot time*: milliseconds since some fixed moment, counting suspend; it never falls. Waiting, ages and rates use it.

mod manual;

use std::sync::Arc;

pub use manual::ManualClock;

use crate::system::clock;
pub(crate) use crate::system::clock::moment;

/// The present moment on both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Boot time: rates, ages, backoff.
    pub boot_ms: u64,
    /// Wall time: periods, snowflakes.
    pub wall_ms: i64,
}

/// A moment of wall time in the form that is cheapest to make of the kernel's answer: seconds above 30 bits of nanoseconds. Only
/// for comparisons. From 2242 on (and before 1698) all moments are equal, which compares as "not yet over".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(i64);

impl Stamp {
    /// Seconds since 1970, and nanoseconds below a second.
    #[inline]
    #[must_use]
    pub fn new(seconds: i64, nanos: i64) -> Stamp {
        Stamp((seconds << 30) | nanos)
    }

    /// Milliseconds since 1970.
    #[must_use]
    pub fn of_ms(ms: i64) -> Stamp {
        let seconds = ms.div_euclid(1000).clamp(i64::MIN >> 30, i64::MAX >> 30);
        Stamp::new(seconds, ms.rem_euclid(1000) * 1_000_000)
    }

    /// For a word that is shared.
    #[inline]
    #[must_use]
    pub fn to_bits(self) -> u64 {
        self.0 as u64
    }

    /// What [`Stamp::to_bits`] gave.
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u64) -> Stamp {
        Stamp(bits as i64)
    }
}

/// A clock: the machine's own, or a clock that a test moves by hand (`clock=manual`).
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
            Clock::System => clock::wall_ms(),
            Clock::Manual(clock) => clock.wall_ms(),
        }
    }

    /// The wall clock at the kernel's tick: cheap enough to read for each id, never ahead of `wall_ms`.
    #[inline]
    #[must_use]
    pub fn coarse_stamp(&self) -> Stamp {
        match self {
            Clock::System => {
                let (seconds, nanos) = clock::coarse_wall();
                Stamp::new(seconds, nanos)
            }
            Clock::Manual(clock) => Self::manual_stamp(clock),
        }
    }

    /// A call, so that the id path stays short.
    #[cold]
    fn manual_stamp(clock: &ManualClock) -> Stamp {
        Stamp::of_ms(clock.wall_ms())
    }

    /// Both times.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { boot_ms: self.boot_ms(), wall_ms: self.wall_ms() }
    }

    /// Milliseconds since some fixed moment of this boot, suspend included; never falls.
    #[must_use]
    pub fn boot_ms(&self) -> u64 {
        match self {
            Clock::System => clock::boot_ms(),
            Clock::Manual(clock) => clock.boot_ms(),
        }
    }

    /// Milliseconds since some fixed moment, up to one kernel tick old; never falls. Only for comparisons with itself.
    #[inline]
    pub(crate) fn coarse_ms(&self) -> u64 {
        match self {
            Clock::System => clock::coarse_ms(),
            Clock::Manual(clock) => clock.boot_ms(),
        }
    }
}

/// Milliseconds from `500ms`, `3s`, `5m`, `1h`, `2d`; `None` for anything else.
pub(crate) fn duration(text: &str) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// As [`duration`] reads it, with the largest unit that loses nothing.
pub(crate) fn in_units(ms: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let whole = units.into_iter().find(|(factor, _)| ms > 0 && ms.is_multiple_of(*factor));
    whole.map_or_else(|| format!("{ms}ms"), |(factor, unit)| format!("{}{unit}", ms / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_rise_as_the_moments_they_are_made_of() {
        let moments = [i64::MIN, -1_001, -1_000, -1, 0, 1, 999, 1_000, 1_763_683_200_123, 7_000_000_000_000];
        for pair in moments.windows(2) {
            assert!(Stamp::of_ms(pair[0]) < Stamp::of_ms(pair[1]), "{pair:?}");
        }
        assert!(Stamp::of_ms(7_000_000_000_000) < Stamp::of_ms(i64::MAX));
        assert_eq!(Stamp::of_ms(1_763_683_200_123), Stamp::new(1_763_683_200, 123_000_000));
        assert_eq!(Stamp::from_bits(Stamp::of_ms(-1).to_bits()), Stamp::of_ms(-1));
    }
}
