//! Scattered ids: forms that spread the ids of one moment over several regions of a table.
//!
//! A snowflake begins with its time, so the ids of one moment are neighbours. A database that keeps a table in regions of
//! its primary key, as TiDB does, writes all of them to one region. Both forms move digits that are even at any rate, the
//! lowest of the sequence, to the front of the id. Both are reversible and need no table:
//!
//! * [`Scatter::Digits`]: the last decimal digits move behind the first one, so `561632371724517376` becomes
//!   `566163237172451737`. The method is PingCAP's, which moves the characters of the id's text
//!   (<https://cn.pingcap.com/blog/how-to-run-the-serial-number-generation-service-efficiently-on-tidb/>); here it is
//!   arithmetic. The number of digits stays, and the first digit, so a column holds the ids of one first digit in one
//!   window after the other.
//! * [`Scatter::High`]: the lowest bits of the sequence move above the time. The regions stay for the life of the layout.
//!
//! Scattered ids are unique as the plain ones are, but they do not rise with time.

use std::fmt;

use crate::error::{Error, Result};

/// How the digits of an id are moved; `scatter=`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scatter {
    /// Not at all.
    #[default]
    None,
    /// This many of the last decimal digits, 1 to 3, stand behind the first digit: 10, 100 or 1000 regions.
    Digits(u32),
    /// This many of the lowest bits of the sequence stand above the time: `2^bits` regions.
    High(u32),
}

/// The most decimal digits that move. A thousand regions are as many as one `SPLIT` statement of TiDB makes.
pub const MOST_DIGITS: u32 = 3;

const TENS: [u64; 20] = {
    let mut tens = [1; 20];
    let mut i = 1;
    while i < 20 {
        tens[i] = tens[i - 1] * 10;
        i += 1;
    }
    tens
};

impl Scatter {
    /// Reads `0`, `1`, `2`, `3` or `high:BITS`.
    ///
    /// # Errors
    /// `INVALID_CONFIG`.
    pub fn parse(text: &str) -> Result<Scatter> {
        let bits = |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        let form = match text.strip_prefix("high:") {
            Some(text) => bits(text).filter(|bits| *bits > 0).map(Scatter::High),
            None => match bits(text) {
                Some(0) => Some(Scatter::None),
                Some(digits @ 1..=MOST_DIGITS) => Some(Scatter::Digits(digits)),
                _ => None,
            },
        };
        form.ok_or_else(|| {
            Error::config(format!(
                "scatter={} is not valid; valid are 0, 1, 2 or 3 decimal digits, or high:BITS",
                crate::error::shown(text)
            ))
        })
    }

    /// How many regions the ids of one moment are spread over.
    #[must_use]
    pub fn regions(self) -> u64 {
        match self {
            Scatter::None => 1,
            Scatter::Digits(digits) => TENS[digits as usize],
            Scatter::High(bits) => 1 << bits,
        }
    }

    /// Ids from here on have no scattered form; `largest` is the largest id of the layout. A first digit 9 is left out where
    /// the moved digits could lead beyond 2^63, or beyond 2^53 in a layout that stays exact in a JavaScript number.
    pub(super) fn limit(self, largest: u64) -> u64 {
        if !matches!(self, Scatter::Digits(_)) {
            return largest + 1;
        }
        for (bits, limit) in [(53, 9 * TENS[15]), (63, 9 * TENS[18])] {
            if largest < 1 << bits && largest >= limit {
                return limit;
            }
        }
        largest + 1
    }
}

impl fmt::Display for Scatter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scatter::None => f.write_str("0"),
            Scatter::Digits(digits) => write!(f, "{digits}"),
            Scatter::High(bits) => write!(f, "high:{bits}"),
        }
    }
}

/// Moves the last `digits` decimal digits of `id` behind its first one. An id of fewer than `digits + 2` digits stays as it
/// is. `id` is below `9 * 10^18`, `digits` at most [`MOST_DIGITS`].
///
/// ```
/// use keymill::scatter::{move_digits, restore_digits};
/// assert_eq!(move_digits(561632371724517376, 1), 566163237172451737);
/// assert_eq!(restore_digits(move_digits(561632371724517376, 2), 2), 561632371724517376);
/// ```
#[inline]
#[must_use]
pub fn move_digits(id: u64, digits: u32) -> u64 {
    // Divisors that the compiler knows become products.
    match digits {
        1 => moved::<1>(id),
        2 => moved::<2>(id),
        _ => moved::<3>(id),
    }
}

/// The id that [`move_digits`] made this one of.
#[must_use]
pub fn restore_digits(id: u64, digits: u32) -> u64 {
    let Some(unit) = unit_of(id, digits) else { return id };
    let (first, rest) = (id / unit * unit, id % unit);
    let below = unit / TENS[digits as usize];
    first + rest % below * TENS[digits as usize] + rest / below
}

#[inline]
fn moved<const DIGITS: u32>(id: u64) -> u64 {
    if id >= TENS[18] {
        moved_below::<DIGITS>(id, TENS[18])
    } else if id >= TENS[17] {
        moved_below::<DIGITS>(id, TENS[17])
    } else {
        unit_of(id, DIGITS).map_or(id, |unit| moved_below::<DIGITS>(id, unit))
    }
}

/// `unit` is the value of the first digit's place.
#[inline]
fn moved_below<const DIGITS: u32>(id: u64, unit: u64) -> u64 {
    let regions = const { TENS[DIGITS as usize] };
    let (first, rest) = (id / unit * unit, id % unit);
    first + rest % regions * (unit / regions) + rest / regions
}

/// The value of the first digit's place; `None` for an id that is too short.
pub(super) fn unit_of(id: u64, digits: u32) -> Option<u64> {
    id.checked_ilog10().filter(|place| *place > digits).map(|place| TENS[place as usize])
}

/// Moves `bits` bits of `id` from the place `from` to the top of its `width` bits.
#[inline]
pub(super) fn raise_bits(id: u64, bits: u32, from: u32, width: u32) -> u64 {
    let moved = (id >> from) & ((1 << bits) - 1);
    let below = id & ((1 << from) - 1);
    moved << (width - bits) | id >> (from + bits) << from | below
}

/// The id that [`raise_bits`] made this one of.
pub(super) fn lower_bits(id: u64, bits: u32, to: u32, width: u32) -> u64 {
    let rest = id & ((1 << (width - bits)) - 1);
    let below = rest & ((1 << to) - 1);
    rest >> to << (to + bits) | id >> (width - bits) << to | below
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The seed's method: characters of the text change places.
    fn by_text(id: u64, digits: usize) -> u64 {
        let text = id.to_string();
        if text.len() < digits + 2 {
            return id;
        }
        let (first, rest) = text.split_at(1);
        let (rest, last) = rest.split_at(rest.len() - digits);
        format!("{first}{last}{rest}").parse().expect("the digits of an id below 9e18")
    }

    #[test]
    #[expect(clippy::unreadable_literal, reason = "as the article prints them")]
    fn the_ten_examples_of_the_article() {
        for (id, moved) in [
            (561632371724517376, 566163237172451737),
            (561632371728711680, 506163237172871168),
            (561632371728711681, 516163237172871168),
            (561632371728711682, 526163237172871168),
            (561632371732905984, 546163237173290598),
            (561632371732905985, 556163237173290598),
            (561632371732905986, 566163237173290598),
            (561632371732905987, 576163237173290598),
            (561632371732905988, 586163237173290598),
            (561632371737100288, 586163237173710028),
        ] {
            assert_eq!(move_digits(id, 1), moved);
            assert_eq!(restore_digits(moved, 1), id);
        }
    }

    #[test]
    fn every_length_keeps_its_digits_at_both_ends() {
        for digits in 1..=MOST_DIGITS {
            for unit in TENS.into_iter().take(19) {
                let last = (unit - 1 + 9 * unit).min(9 * TENS[18] - 1);
                for id in [unit, unit + 1, last - 1, last] {
                    let moved = move_digits(id, digits);
                    assert_eq!(moved, by_text(id, digits as usize), "{id} by {digits}");
                    assert_eq!(moved.ilog10(), id.ilog10(), "{id} by {digits}");
                    assert_eq!(restore_digits(moved, digits), id, "{id} by {digits}");
                }
            }
        }
        assert_eq!(move_digits(0, 1), 0);
    }

    #[test]
    fn a_form_is_read_as_it_is_written_and_others_are_refused() {
        for text in ["0", "1", "2", "3", "high:1", "high:12"] {
            assert_eq!(Scatter::parse(text).map(|form| form.to_string()).as_deref(), Ok(text));
        }
        for text in
            ["", "4", "-1", "+1", "1.5", "high", "high:", "high:0", "high:+1", "high:-1", "low:2", "10"]
        {
            let error = Scatter::parse(text).expect_err(text);
            assert_eq!(error.code, crate::Code::InvalidConfig, "{text}");
        }
    }

    proptest! {
        #[test]
        fn digits_move_as_in_the_text_and_back(id in 1..9_000_000_000_000_000_000_u64, short in 0..60_u32, digits in 1..=MOST_DIGITS) {
            let id = id >> short;
            let moved = move_digits(id, digits);
            prop_assert_eq!(moved, by_text(id, digits as usize));
            prop_assert_eq!(restore_digits(moved, digits), id);
        }

        #[test]
        fn raised_bits_come_back(id in 0..1_u64 << 63, width in 4..=63_u32, from in 0..20_u32, bits in 1..12_u32) {
            let (from, bits) = (from.min(width - 2), bits.min(width - 1));
            let bits = bits.min(width - from);
            let id = id & ((1 << width) - 1);
            let raised = raise_bits(id, bits, from, width);
            prop_assert!(raised < 1 << width);
            prop_assert_eq!(lower_bits(raised, bits, from, width), id);
        }
    }
}
