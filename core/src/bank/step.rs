//! How many numbers a counter reserves, and when. Pure.
//!
//! A cold counter reserves `min_step`, in two halves, and again in the background when it has begun the last segment that it has.
//! One whose numbers are used up quickly reserves what its rate needs for `buffer`, but no more than eight times what it had
//! last. Its refills have the same shares as a segment's ([`crate::refill`]).

use crate::refill::{low, per_1000s, taken_in};
use crate::spec::Rules;

use super::counter_cell::MOST;

/// By how much a step may grow at a time.
const GROWTH: u64 = 8;

/// The unit of the time in a note, and its bits.
const TICK_MS: u64 = 128;
const TIME_BITS: u32 = 22;
const TIME: u64 = (1 << TIME_BITS) - 1;

/// The bits of a length in a note below its highest one, which are kept.
const PART_BITS: u32 = 4;
const PART: u64 = (1 << PART_BITS) - 1;

/// What the keeper remembers of a counter's last refill, in 32 bits: about how many numbers lay in memory then, and when that was.
/// From above: the length's highest bit and one (6 bits), the four bits below it, the time (22 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// At most as many as there were, and less than one in sixteen fewer.
    pub(super) len: u64,
    ticks: u64,
}

impl Note {
    pub(super) fn new(len: u64, boot_ms: u64) -> Note {
        let len = len.clamp(1, u64::MAX / 2);
        let below = len.ilog2().saturating_sub(PART_BITS);
        Note { len: len >> below << below, ticks: (boot_ms / TICK_MS) & TIME }
    }

    pub(super) fn to_bits(self) -> u32 {
        let exponent = self.len.ilog2();
        let part = (u128::from(self.len) << PART_BITS >> exponent) as u64 & PART;
        (exponent + 1) << (PART_BITS + TIME_BITS) | (part << TIME_BITS | self.ticks) as u32
    }

    /// `None`: there was no refill yet.
    pub(super) fn from_bits(bits: u32) -> Option<Note> {
        let exponent = (bits >> (PART_BITS + TIME_BITS)).checked_sub(1)?;
        let part = u64::from(bits >> TIME_BITS) & PART;
        let len = (u128::from(part | 1 << PART_BITS) << exponent >> PART_BITS) as u64;
        Some(Note { len, ticks: u64::from(bits) & TIME })
    }

    /// How long ago it was; after six days it begins at 0 again.
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
/// `left` are in memory and callers lack `lacking` beyond them. `last` is how many lay in memory after the last refill, and how many
/// were used since; `None` before the first. `is_last`: callers have begun the last segment. Then the keeper does not look again before it
/// is used up, and what is reserved now has to last for `buffer` from there on.
pub(super) fn step(
    rules: &Rules,
    last: Option<(u64, Used)>,
    (left, is_last): (u64, bool),
    lacking: u64,
) -> u64 {
    let rate = last.map_or(0, |(_, used)| per_1000s(used.numbers, used.ms));
    // To a segment's shares is added what may be used up before the keeper looks at the counter again: a segment of its cell.
    let unseen = taken_in(rules.buffer_ms, rate).min(MOST);
    let full = rules.full(rate);
    let grown = last.map_or(0, |(len, _)| len.max(left).saturating_mul(GROWTH));
    let target = full.saturating_add(unseen).min(rules.most()).min(grown);
    let refill_below = if target < 2 * rules.min_step { 0 } else { low(full).saturating_add(unseen) };
    // A counter that was used has a segment ahead, however slow it is: an outage begins without a warning.
    let is_due = last.is_some() && (is_last || left <= refill_below);
    if lacking == 0 && !is_due {
        return 0;
    }
    let ahead = if is_last { target.div_ceil(2) } else { 0 };
    rules.whole(rules.refill(target, left.min(target.saturating_sub(ahead))).max(lacking))
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
    fn a_cold_counter_reserves_the_least_step_when_it_runs_dry_and_when_a_step_is_left() {
        assert_eq!(step(&RULES, None, (0, false), 1), 16);
        assert_eq!(step(&RULES, Some((16, used(16, 3_600_000))), (0, false), 1), 16);
        assert_eq!(step(&RULES, Some((16, used(16, 120_000))), (0, false), 1), 16);
        assert_eq!(step(&RULES, None, (0, false), 0), 0, "no caller lacks one");
        assert_eq!(step(&RULES, Some((16, used(8, 36_000))), (8, true), 0), 16);
        assert_eq!(step(&RULES, Some((31, used(15, 36_000))), (16, true), 0), 16);
        assert_eq!(step(&RULES, Some((31, used(14, 36_000))), (17, false), 0), 0, "it has a segment ahead");
    }

    #[test]
    fn a_counter_that_runs_dry_quickly_reserves_up_to_eight_times_as_many() {
        assert_eq!(step(&RULES, Some((16, used(16, 10_000))), (0, false), 1), 105);
        assert_eq!(step(&RULES, Some((16, used(16, 16))), (0, false), 1), 128);
        assert_eq!(step(&RULES, Some((128, used(128, 16))), (0, false), 1), 1_024);
        assert_eq!(step(&RULES, Some((1 << 23, used(1 << 23, 16))), (0, false), 1), RULES.max_step);
    }

    #[test]
    fn a_hot_counter_is_refilled_before_it_runs_dry_and_to_its_target_only() {
        // 1000 a second: 30 000 are the buffer, and as many may be used up before the keeper looks again.
        let last = Some((36_000, used(1_000, 1_000)));
        assert_eq!(step(&RULES, last, (61_001, false), 0), 0);
        assert_eq!(step(&RULES, last, (61_000, false), 0), 5_000);
        // 100 000 a second: no more than a segment of the cell may be used up before.
        let last = Some((3_600_000, used(100_000, 1_000)));
        assert_eq!(step(&RULES, last, (3_100_001 + MOST, false), 0), 0);
        assert_eq!(step(&RULES, last, (3_100_000 + MOST, false), 0), 500_000);
        // The last segment has begun, and it is long: the next one is for the buffer all the same.
        assert_eq!(step(&RULES, Some((36_000, used(1_000, 1_000))), (61_001, true), 0), 33_000);
    }

    #[test]
    fn a_batch_reserves_what_it_lacks_and_a_fixed_step_whole_multiples() {
        assert_eq!(step(&RULES, None, (0, false), 1_000_000), 1_000_000);
        assert_eq!(step(&RULES, None, (0, false), 20_000_000), 20_000_000);
        let fixed = Rules { min_step: 500, unit: 500, ..RULES };
        assert_eq!(step(&fixed, None, (0, false), 1), 500);
        assert_eq!(step(&fixed, None, (0, false), 501), 1_000);
    }

    #[test]
    fn a_note_keeps_a_length_to_a_sixteenth_and_a_time_that_wraps() {
        assert_eq!(Note::from_bits(0), None);
        let lengths =
            [(1, 0), (16, 1_000), (31, 5), (131_071, 1 << 30), (1 << 40, (1 << 40) + 77), (u64::MAX / 2, 9)];
        for (len, boot_ms) in lengths {
            let note = Note::from_bits(Note::new(len, boot_ms).to_bits()).expect("a note");
            assert!(note.len <= len && len - note.len < len.div_ceil(16), "{len}: {}", note.len);
            assert!(note.age_ms(boot_ms) == 0 && note.age_ms(boot_ms + 5_000).abs_diff(5_000) <= TICK_MS);
        }
    }
}
