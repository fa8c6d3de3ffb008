//! Which numbers a value of a SQL sequence owns. Pure.
//!
//! The value *v* of a sequence with steps of *a* owns `[v, v + a)`. Of a JPA sequence with the optimizer `pooled` it owns `(v - a, v]`, and the
//! first value, at which the sequence starts, owns itself alone: Hibernate's `PooledOptimizer` takes it for the generator's
//! `initialValue`, or any first value below *a* where the generator has none. Of a value below *a* too the numbers before it are left alone.
//!
//! A program of Hibernate before the fix of HHH-15118 (5.6.6, 6.0) that draws the first value draws once more at once, and then counts from
//! the first value up to whatever it has drawn: what others draw in between lies inside its range. So the second value says that another
//! program may be between its two draws: keymill uses none of its numbers, and draws again later.

use crate::store::{Key, MAX_NUMBER, Mark, Row};

use super::counter::CounterRow;

/// The numbers `[lo, hi)` that a value owns.
#[cfg_attr(not(feature = "_sql"), allow(dead_code))]
pub(crate) fn owned(key: &Key, value: u64, start: u64) -> (u64, u64) {
    let end = value.saturating_add(1);
    match value {
        _ if !key.is_pooled => (value, value.saturating_add(key.step)),
        first if first == start || first < key.step => (first, end),
        _ => (end.saturating_sub(key.step), end),
    }
}

/// Whether a program of Hibernate may have drawn the first value of a pooled sequence, and draw again: this process has not drawn it.
#[cfg_attr(not(feature = "_sql"), allow(dead_code))]
pub(crate) fn is_just_begun(key: &Key, value: u64, start: u64, seen: u64) -> bool {
    key.is_pooled && value == start.saturating_add(key.step) && seen != start.saturating_add(1)
}

/// The least value whose numbers are all at `seen` or above.
pub(crate) fn least(key: &Key, seen: u64) -> u64 {
    if key.is_pooled && seen > 0 { seen.saturating_add(key.step - 1) } else { seen }
}

/// The value that comes next, as a row.
pub(crate) fn row_at(key: &Key, next: u64, start: u64) -> Row {
    let mark = Mark { period: 0, next: owned(key, next, start).0 };
    // The value itself: a row's mark does not tell which value owns it.
    let value = CounterRow { maximum: next, step: key.step, ttl_s: 0, version: 0, stride: (1, 0) };
    let counter = key.scheme.is_shared_sequence().then_some(value);
    Row { mark, counter, ..Row::at(0, format!("next value={next}")) }
}

/// The value that comes next after the sequence was raised: the first one whose numbers are all at `to` or above.
pub(crate) fn next_from(key: &Key, next: u64, to: u64) -> u64 {
    let steps = least(key, to).saturating_sub(next).div_ceil(key.step).max(1);
    steps.saturating_mul(key.step).saturating_add(next)
}

/// The value that came next when the row was read.
pub(crate) fn value_of(row: &Row) -> u64 {
    row.counter.map_or(row.mark.next, |row| row.maximum)
}

/// The row `before`, raised to `to`.
pub(crate) fn moved(key: &Key, before: &Row, to: Mark) -> Row {
    if before.mark >= to {
        before.clone()
    } else {
        row_at(key, next_from(key, value_of(before), to.next).min(MAX_NUMBER + 1), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;
    use std::sync::Arc;

    fn key(options: &str) -> Arc<Key> {
        let mill = MillConfig::parse("memory:").expect("a mill");
        mill.spec(&format!("segment:orders?scheme=jpa_sequence&{options}")).expect("a spec").key
    }

    #[test]
    fn a_value_owns_what_hibernate_issues_for_it() {
        let pooled = key("allocation=50");
        assert_eq!([1, 51, 101].map(|value| owned(&pooled, value, 1)), [(1, 2), (2, 52), (52, 102)]);
        assert_eq!(
            owned(&pooled, 1000, 1000),
            (1000, 1001),
            "numbers below its start are not the sequence's"
        );
        assert_eq!((owned(&pooled, 1000, 1), owned(&pooled, 20, 1)), ((951, 1001), (20, 21)));
        let lo = key("allocation=50&optimizer=pooled-lo");
        assert_eq!([1, 51].map(|value| owned(&lo, value, 1)), [(1, 51), (51, 101)]);
        for one in ["allocation=1", "allocation=1&optimizer=none", "allocation=1&optimizer=pooled-lo"] {
            assert_eq!([1, 2].map(|value| owned(&key(one), value, 1)), [(1, 2), (2, 3)], "{one}");
        }
    }

    #[test]
    fn numbers_of_different_values_never_meet_and_a_raised_sequence_has_none_below() {
        for options in ["allocation=1", "allocation=7", "allocation=7&optimizer=pooled-lo"] {
            let key = key(options);
            for start in 1..30 {
                let mut end = 0;
                for value in (0..9).map(|n| start + n * key.step) {
                    let (lo, hi) = owned(&key, value, start);
                    assert!(lo >= end && lo < hi, "{options} {start}: {value}");
                    for to in lo + 1..lo + 20 {
                        let next = next_from(&key, value, to);
                        assert!((next - value).is_multiple_of(key.step) && owned(&key, next, start).0 >= to);
                        let below = next - key.step;
                        assert!(
                            below == value || owned(&key, below, start).0 < to,
                            "{options} {start}: {to}"
                        );
                        let row = moved(&key, &row_at(&key, value, start), Mark { period: 0, next: to });
                        assert_eq!(
                            (row.mark.next, row.counter.map(|row| row.maximum)),
                            (owned(&key, next, start).0, Some(next))
                        );
                    }
                    end = hi;
                }
            }
        }
    }

    #[test]
    fn the_last_values_do_not_wrap() {
        for options in ["allocation=2147483647", "allocation=2147483647&optimizer=pooled-lo"] {
            let key = key(options);
            for value in [0, MAX_NUMBER, u64::MAX] {
                let (lo, hi) = owned(&key, value, 1);
                assert!(lo <= hi && least(&key, value) >= value && next_from(&key, 1, value) >= value);
            }
        }
    }
}
