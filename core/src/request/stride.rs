//! Every delta-th number: which numbers of a row are a source's own.
//!
//! tinyid's rows have a `delta` and a `remainder`: of a range `(max_id, max_id + step]` only the ids with
//! `id % delta == remainder` are issued; another database's row issues the others. So there are two counts:
//! * The *row* counts every number. Stores, marks, `status` and `repair` use this count: people see ids.
//! * The *source* counts its own ids, 1 for the first: the n-th is [`Stride::nth`]. Buffers, steps, blocks and metrics use this
//!   count.
//!
//! The counts are converted where the keeper asks a store ([`Request::of_the_row`], [`Reserved::of_the_source`], give-backs) and
//! where a number is handed to its caller (`api`), nowhere else. For a source without a stride both counts are equal.

/// The numbers with `number % delta == remainder`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stride {
    delta: u64,
    remainder: u64,
}

impl Stride {
    /// Every number.
    pub const EVERY: Stride = Stride { delta: 1, remainder: 0 };

    /// The largest delta: tinyid's column is an INT.
    pub const MOST: u64 = i32::MAX as u64;

    /// `None` where no number has that remainder, or the delta is no INT.
    #[must_use]
    pub const fn new(delta: u64, remainder: u64) -> Option<Stride> {
        if remainder < delta && delta <= Stride::MOST { Some(Stride { delta, remainder }) } else { None }
    }

    /// Whether the stride has every number.
    #[must_use]
    pub const fn is_every(self) -> bool {
        self.delta == 1
    }

    /// The distance between two of the numbers.
    #[must_use]
    pub const fn delta(self) -> u64 {
        self.delta
    }

    /// The remainder of each of the numbers.
    #[must_use]
    pub const fn remainder(self) -> u64 {
        self.remainder
    }

    /// Whether the stride has this number.
    #[must_use]
    pub const fn owns(self, number: u64) -> bool {
        number % self.delta == self.remainder
    }

    /// The distance of the first number to `delta`: numbers begin at 1, so with the remainder 0 the first is `delta`.
    const fn short(self) -> u64 {
        (self.delta - self.remainder) % self.delta
    }

    /// The n-th number; 0 for n = 0.
    #[must_use]
    pub const fn nth(self, n: u64) -> u64 {
        if n == 0 { 0 } else { n.saturating_mul(self.delta) - self.short() }
    }

    /// How many of the numbers are at most `number`.
    #[must_use]
    pub const fn up_to(self, number: u64) -> u64 {
        number.saturating_add(self.short()) / self.delta
    }

    /// The lowest of the numbers that is at least `number`.
    #[must_use]
    pub const fn at_least(self, number: u64) -> u64 {
        self.nth(self.up_to(number.saturating_sub(1)) + 1)
    }

    /// The highest of the numbers below `number`; 0 where there is none.
    #[must_use]
    pub const fn below(self, number: u64) -> u64 {
        self.nth(self.up_to(number.saturating_sub(1)))
    }

    /// A row's next number in the source's count; 0 stays 0.
    #[must_use]
    pub const fn counted(self, next: u64) -> u64 {
        if next == 0 { 0 } else { self.up_to(next - 1) + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::reservation::MAX_NUMBER;

    #[test]
    fn the_nth_of_every_stride_is_what_counting_by_hand_finds() {
        for delta in 1..12 {
            for remainder in 0..delta {
                let stride = Stride::new(delta, remainder).expect("a stride");
                let own: Vec<u64> = (1..200).filter(|number| number % delta == remainder).collect();
                for (n, id) in (1..).zip(&own) {
                    assert_eq!(stride.nth(n), *id, "{stride:?}");
                }
                for number in 1..150 {
                    assert_eq!(stride.owns(number), own.contains(&number));
                    assert_eq!(stride.up_to(number), own.iter().filter(|id| **id <= number).count() as u64);
                    assert_eq!(Some(&stride.at_least(number)), own.iter().find(|id| **id >= number));
                    let below = own.iter().rfind(|id| **id < number).copied();
                    assert_eq!(stride.below(number), below.unwrap_or(0), "{stride:?} {number}");
                }
            }
        }
    }

    #[test]
    fn the_last_numbers_do_not_wrap() {
        for (delta, remainder) in [(1, 0), (2, 0), (2, 1), (Stride::MOST, 0), (Stride::MOST, 7)] {
            let stride = Stride::new(delta, remainder).expect("a stride");
            let last = stride.below(MAX_NUMBER + 1);
            assert!(stride.owns(last) && last > MAX_NUMBER - delta, "{stride:?}: {last}");
            assert_eq!(stride.nth(stride.up_to(MAX_NUMBER)), last);
            assert_eq!(stride.at_least(last), last);
            assert_eq!(stride.at_least(MAX_NUMBER + 1), last + delta);
        }
        assert_eq!(Stride::EVERY.nth(u64::MAX), u64::MAX);
    }

    #[test]
    fn an_invalid_stride_is_none() {
        for (delta, remainder) in [(0, 0), (1, 1), (2, 2), (2, 3), (Stride::MOST + 1, 0)] {
            assert_eq!(Stride::new(delta, remainder), None);
        }
    }
}
