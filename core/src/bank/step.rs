//! How many numbers a counter reserves, and when. Pure.
//!
//! The shares of a refill are those of segments ([`crate::refill`]). A cold counter reserves `min_step`. One whose numbers are used up quickly reserves what its rate needs for `buffer`, but no
//! more than eight times what it reserved last, and from then on it has a second segment ahead.

use crate::refill::{low, per_1000s, taken_in};
use crate::spec::Rules;

use super::counter_cell::MOST;

/// By how much a step may grow at a time.
const GROWTH: u64 = 8;

/// The unit of the time in a note, and its bits.
const TICK_MS: u64 = 16;
const TIME_BITS: u32 = 26;
const TIME: u64 = (1 << TIME_BITS) - 1;

/// What the keeper remembers of a counter's last refill, in 32 bits: about how many numbers it brought, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// A power of two, at most as many as came.
    pub(super) len: u64,
    ticks: u64,
}

impl Note {
    pub(super) fn new(len: u64, boot_ms: u64) -> Note {
        Note { len: 1 << len.max(1).ilog2(), ticks: (boot_ms / TICK_MS) & TIME }
    }

    pub(super) fn to_bits(self) -> u32 {
        (self.len.trailing_zeros() + 1) << TIME_BITS | self.ticks as u32
    }

    /// `None`: there was no refill yet.
    pub(super) fn from_bits(bits: u32) -> Option<Note> {
        let exponent = (bits >> TIME_BITS).checked_sub(1)?;
        Some(Note { len: 1 << exponent, ticks: u64::from(bits) & TIME })
    }

    /// How long ago it was; after twelve days it begins at 0 again.
    pub(super) fn age_ms(self, boot_ms: u64) -> u64 {
        ((boot_ms / TICK_MS).wrapping_sub(self.ticks) & TIME) * TICK_MS
    }
}

/// How many numbers a counter had used, and over which time: its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) numbers: u64,
    pub(super) ms: u64,
}

/// How many numbers to reserve for a counter; 0: none.
///
/// `left` are in memory and callers lack `lacking` beyond them. `last` is how many the last refill brought, and `used` how many
/// were used since; `None` before the first.
pub(super) fn step(rules: &Rules, last: Option<(u64, Used)>, left: u64, lacking: u64) -> u64 {
    let rate = last.map_or(0, |(_, used)| per_1000s(used.numbers, used.ms));
    // To a segment's shares is added what may be used up before the keeper looks at the counter again: a segment of its cell.
    let unseen = taken_in(rules.buffer_ms, rate).min(MOST);
    let full = rules.full(rate);
    let grown = last.map_or(0, |(len, _)| len.max(left).saturating_mul(GROWTH));
    let target = full.saturating_add(unseen).min(rules.most()).min(grown);
    if lacking == 0 && (target < 2 * rules.min_step || left > low(full).saturating_add(unseen)) {
        return 0;
    }
    rules.whole(rules.refill(target, left).max(lacking))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules =
        Rules { min_step: 16, max_step: 10_000_000, unit: 1, buffer_ms: 30_000, ttl_ms: None, ends: false };

    fn used(numbers: u64, ms: u64) -> Used {
        Used { numbers, ms }
    }

    #[test]
    fn a_cold_counter_reserves_the_least_step_whenever_it_runs_dry() {
        assert_eq!(step(&RULES, None, 0, 1), 16);
        assert_eq!(step(&RULES, Some((16, used(16, 3_600_000))), 0, 1), 16);
        assert_eq!(step(&RULES, Some((16, used(16, 120_000))), 0, 1), 16);
        assert_eq!(step(&RULES, None, 0, 0), 0, "no caller lacks one");
        assert_eq!(step(&RULES, Some((16, used(8, 36_000))), 8, 0), 0);
    }

    #[test]
    fn a_counter_that_runs_dry_quickly_reserves_up_to_eight_times_as_many() {
        assert_eq!(step(&RULES, Some((16, used(16, 10_000))), 0, 1), 105);
        assert_eq!(step(&RULES, Some((16, used(16, 16))), 0, 1), 128);
        assert_eq!(step(&RULES, Some((128, used(128, 16))), 0, 1), 1_024);
        assert_eq!(step(&RULES, Some((1 << 23, used(1 << 23, 16))), 0, 1), RULES.max_step);
    }

    #[test]
    fn a_hot_counter_is_refilled_before_it_runs_dry_and_to_its_target_only() {
        // 1000 a second: 30 000 are the buffer, and as many may be used up before the keeper looks again.
        let last = Some((36_000, used(1_000, 1_000)));
        assert_eq!(step(&RULES, last, 61_001, 0), 0);
        assert_eq!(step(&RULES, last, 61_000, 0), 5_000);
        // 100 000 a second: no more than a segment of the cell may be used up before.
        let last = Some((3_600_000, used(100_000, 1_000)));
        assert_eq!(step(&RULES, last, 3_100_001 + MOST, 0), 0);
        assert_eq!(step(&RULES, last, 3_100_000 + MOST, 0), 500_000);
    }

    #[test]
    fn a_batch_reserves_what_it_lacks_and_a_fixed_step_whole_multiples() {
        assert_eq!(step(&RULES, None, 0, 1_000_000), 1_000_000);
        assert_eq!(step(&RULES, None, 0, 20_000_000), 20_000_000);
        let fixed = Rules { min_step: 500, unit: 500, ..RULES };
        assert_eq!(step(&fixed, None, 0, 1), 500);
        assert_eq!(step(&fixed, None, 0, 501), 1_000);
    }

    #[test]
    fn a_note_keeps_a_power_of_two_and_a_time_that_wraps() {
        assert_eq!(Note::from_bits(0), None);
        for (len, boot_ms) in [(1, 0), (16, 1_000), (131_071, 1 << 30), (1 << 40, (1 << 40) + 77)] {
            let note = Note::from_bits(Note::new(len, boot_ms).to_bits()).expect("a note");
            assert!(note.len <= len && len < 2 * note.len);
            assert!(note.age_ms(boot_ms) == 0 && note.age_ms(boot_ms + 5_000).abs_diff(5_000) <= TICK_MS);
        }
    }
}
