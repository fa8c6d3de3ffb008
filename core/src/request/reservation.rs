//! What a planner asks of a store and what a store answers: requests, ranges.

use std::sync::Arc;

use crate::error::fault::Remedy;

use super::row_mark::RowMark;
use super::stride::Stride;

pub use super::position::{MAX_NUMBER, Mark};
pub use super::row_key::{Columns, Key, SerialKey};
pub use super::scheme::Scheme;
pub use crate::error::fault::{Fault, FaultKind};

/// A request to reserve, in numbers of the row. A planner asks in its source's own count, which is the same unless the key has a
/// [`Stride`].
#[derive(Clone, Debug)]
pub struct Request {
    /// The key.
    pub key: Arc<Key>,
    /// How many numbers, at least 1. Fewer are given where fewer are left under `last`.
    pub len: u64,
    /// The highest place this process has seen; a row below it went backwards. `Mark::default()`: nothing seen.
    pub high_water: Mark,
    /// The first number of a new row (and of a new period).
    pub start: u64,
    /// The largest number that may be reserved.
    pub last: u64,
    /// The period wanted, 0 where the key has none.
    pub period: u64,
    /// The latest period of a row at which this machine's clock does not count as behind.
    pub period_max: u64,
    /// The clock that `period` was taken from. A row that would move on to another period is compared with the store's clock first.
    /// `None`: it is not.
    pub clock: Option<PeriodClock>,
    /// `backwards=heal`: raise a row that went backwards to `high_water`, if that is at most `max_jump` away.
    pub heal: bool,
    /// How far a healed row may be raised.
    pub max_jump: u64,
    /// How many are given at a time of the last tenth of the numbers up to `last`, and of another period than `period`; 0: `len`
    /// everywhere.
    pub single: u64,
    /// The mill that asks, which the row names afterwards.
    pub writer: u64,
}

/// How far a wall clock may be ahead of the store's, or have jumped, before marks are no longer made of it.
pub(crate) const BELIEVED_MS: u64 = 600_000;

/// This machine's clock when it asked for a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodClock {
    /// What it said, milliseconds since 1970.
    pub wall_ms: i64,
    /// `skew` of the source.
    pub skew_ms: u64,
}

impl PeriodClock {
    /// How much later than the store's clock a period may begin: the source's `skew`, and ten minutes at least.
    pub(crate) fn ahead_ms(self) -> u64 {
        self.skew_ms.max(BELIEVED_MS)
    }
}

/// A reserved range `[lo, hi)` and the period it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// First number.
    pub lo: u64,
    /// One past the last number.
    pub hi: u64,
    /// The period it was reserved for: the request's, or the row's where that is ahead by at most the skew.
    pub period: u64,
    /// How long its numbers may be issued, where the row has a `time_to_live`.
    pub ttl_ms: Option<u64>,
}

impl Request {
    /// So many numbers of a key without periods, for a process that has seen none of them; any number will do.
    #[must_use]
    pub fn new(key: &Arc<Key>, len: u64) -> Request {
        Request {
            key: Arc::clone(key),
            len,
            high_water: Mark::default(),
            start: 1,
            last: MAX_NUMBER,
            period: 0,
            period_max: 0,
            clock: None,
            heal: false,
            max_jump: 0,
            single: 0,
            writer: 0,
        }
    }

    /// How many numbers a range has that begins here, if that many are left: `len`, and in the last tenth `single`. A range that
    /// begins before the last tenth does not reach into it by more. Of another period than the one asked for `single` too: how
    /// many the caller may keep ahead follows from its use of that period.
    pub(crate) fn most_from(&self, at: Mark) -> u64 {
        let len = self.len.max(1);
        if self.single == 0 {
            return len;
        }
        let before = last_tenth(self.last).saturating_sub(at.next) / self.single * self.single;
        let before = if at.period == self.period { before } else { 0 };
        len.min(before.max(self.single))
    }

    /// The largest number of a range of `len` that [`Request::most_from`] leaves whole, wherever it begins.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn last_of_whole(&self) -> u64 {
        if self.len <= self.single || self.single == 0 {
            return self.last;
        }
        // As if the last whole `single` before the tenth reached to the tenth: too low by less than one `single`.
        last_tenth(self.last).saturating_sub(self.single)
    }

    /// The next number that this process has seen of the period asked for; 0: it has seen none.
    pub(crate) fn seen_of_period(&self) -> u64 {
        if self.high_water.period == self.period { self.high_water.next } else { 0 }
    }

    /// The request in numbers of the row. (`start` and `last` come from the options, which are ids.)
    #[must_use]
    pub fn of_the_row(self) -> Request {
        let stride = self.key.stride;
        let Mark { period, next } = self.high_water;
        Request {
            // Of that many consecutive numbers `len` are the source's own, wherever they begin.
            len: self.len.saturating_mul(stride.delta()),
            high_water: Mark { period, next: stride.nth(next) },
            max_jump: self.max_jump.saturating_mul(stride.delta()),
            ..self
        }
    }
}

/// The first number of the last tenth of the numbers 1 to `last`.
pub(crate) fn last_tenth(last: u64) -> u64 {
    last.saturating_sub(last / 10).saturating_add(1)
}

impl Reserved {
    /// A range of the row, in the source's count.
    #[must_use]
    pub fn of_the_source(self, stride: Stride) -> Reserved {
        Reserved { lo: stride.counted(self.lo), hi: stride.counted(self.hi), ..self }
    }

    /// The end of the range, where the next one may begin; refuses a range, in the source's count, that is not wholly above `seen`, the
    /// highest place that this process has seen: the store went back, and none of its numbers may be issued. `name` is what was
    /// reserved for, `row` the row that `repair` finds.
    pub(crate) fn above(
        self,
        seen: Mark,
        stride: Stride,
        name: impl FnOnce() -> String,
        row: &str,
    ) -> Result<Mark, Fault> {
        let [lo, hi] = [self.lo, self.hi].map(|next| Mark { period: self.period, next });
        if lo >= seen && hi > lo {
            return Ok(hi);
        }
        let [first, end, last] = [lo.next, hi.next, seen.next.saturating_sub(1)].map(|n| stride.nth(n));
        Err(Fault::new(
            FaultKind::WentBackwards,
            format!(
                "reserving for `{}`: the store answered with {first}..{end}, but numbers up to {last} were reserved before",
                name()
            ),
        )
        .with_remedy(Remedy::repair(row, last.saturating_add(1))))
    }
}

/// What may be given back of unused ranges `[lo, hi)` that rise: the topmost ones that meet, if they end where the last reservation
/// ends.
pub(crate) fn unused_end(ranges: &[(u64, u64)], end: u64) -> Option<(u64, u64)> {
    let (&(mut lo, hi), below) = ranges.split_last().filter(|((_, hi), _)| *hi == end)?;
    for &(first, last) in below.iter().rev() {
        if last != lo {
            break;
        }
        lo = first;
    }
    Some((lo, hi))
}

/// The unused end of a reservation, which a clean close returns: `[lo, hi)` of `period`, in numbers of the row.
#[derive(Clone, Debug)]
pub struct GiveBack {
    /// The key.
    pub key: Arc<Key>,
    /// The period it was reserved for.
    pub period: u64,
    /// First number.
    pub lo: u64,
    /// One past the last number; where the row ends if no other process has reserved since.
    pub hi: u64,
    /// The mill that reserved it. A row of `keymill_segment` that names another one was begun anew, or raised by `repair`, and is not
    /// lowered.
    pub writer: u64,
}

impl GiveBack {
    /// `[lo, hi)` of a period, for a mill that left its requests' [`writer`](Request::writer) at 0.
    #[must_use]
    pub fn new(key: &Arc<Key>, period: u64, lo: u64, hi: u64) -> GiveBack {
        GiveBack { key: Arc::clone(key), period, lo, hi, writer: 0 }
    }

    /// Whether there is a number to return. Numbers begin at 1.
    pub(crate) fn has_numbers(&self) -> bool {
        0 < self.lo && self.lo < self.hi
    }

    /// The row as the reservation left it.
    pub(crate) fn end(&self) -> RowMark {
        let next = self.key.stride.at_least(self.hi);
        self.key.row_at(Mark { period: self.period, next }).by(self.writer)
    }

    /// The row after the range was returned.
    pub(crate) fn begin(&self) -> RowMark {
        self.key.row_at(Mark { period: self.period, next: self.lo }).by(self.writer)
    }

    /// How many numbers of the source these are.
    #[must_use]
    pub fn count(&self) -> u64 {
        let stride = self.key.stride;
        stride.counted(self.hi).saturating_sub(stride.counted(self.lo))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_unused_ranges_the_topmost_that_meet_are_given_back_if_nothing_was_reserved_behind_them() {
        assert_eq!(unused_end(&[], 10), None);
        assert_eq!(unused_end(&[(5, 9)], 10), None, "another range was reserved behind it, and is used");
        assert_eq!(unused_end(&[(5, 10)], 10), Some((5, 10)));
        assert_eq!(unused_end(&[(1, 3), (3, 6), (6, 10)], 10), Some((1, 10)));
        assert_eq!(unused_end(&[(1, 3), (4, 6), (6, 10)], 10), Some((4, 10)), "number 3 is used");
    }

    #[test]
    fn a_range_is_taken_over_only_wholly_above_everything_that_was_seen() {
        let seen = Mark { period: 7, next: 100 };
        let answer = |period, lo, hi| {
            let range = Reserved { lo, hi, period, ttl_ms: None };
            range
                .above(seen, Stride::EVERY, || "orders".to_owned(), "segment:orders")
                .map_err(|f| f.to_string())
        };
        assert_eq!(answer(7, 100, 110), Ok(Mark { period: 7, next: 110 }));
        assert_eq!(answer(8, 1, 11), Ok(Mark { period: 8, next: 11 }), "a later period begins anew");
        for (period, lo, hi) in [(7, 99, 110), (7, 1, 100), (6, 500, 510), (7, 100, 100), (7, 110, 105)] {
            let refused = answer(period, lo, hi).expect_err("numbers that were seen, or none");
            let what = format!("for `orders`: the store answered with {lo}..{hi}, but numbers up to 99 were");
            assert!(refused.contains(&what) && refused.contains("repair 'segment:orders'"), "{refused}");
        }
    }
}
