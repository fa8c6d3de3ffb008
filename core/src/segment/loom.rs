//! The cell and the ring under the model checker: every interleaving of two or three threads, and the reorderings the
//! memory model allows. Run by `ci/loom`.

use std::collections::BTreeSet;
use std::sync::Arc as StdArc;

use loom::sync::Arc;
use loom::thread;

use crate::bell::{Belfry, Bell};
use crate::serial::SerialPattern;

use super::range::Segment;
use super::ring::Supply;

fn supply(with_text: bool) -> Arc<Supply> {
    Arc::new(Supply::new(with_text, StdArc::new(Bell::new(StdArc::new(Belfry::default()), 0))))
}

fn segment(lo: u64, hi: u64, period: u64) -> Segment {
    Segment { lo, hi, period, born_ms: period, prefix: crate::serial::Prefix::EMPTY }
}

/// Takes one number without waiting for a keeper.
fn take_one(supply: &Supply) -> Option<u64> {
    match supply.take_one() {
        Ok(number) => Some(number),
        Err(_) => supply.take(1).ok().map(|taken| taken.lo),
    }
}

fn all_different(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    for number in numbers {
        assert!(seen.insert(number), "{number} was handed out twice");
    }
    seen
}

#[test]
fn two_takers_and_a_publisher_never_share_a_number() {
    loom::model(|| {
        let supply = supply(false);
        supply.publish(segment(1, 3, 0));
        let taker = {
            let supply = supply.clone();
            thread::spawn(move || [take_one(&supply), take_one(&supply)])
        };
        supply.publish(segment(10, 12, 0));
        let mine = [take_one(&supply), take_one(&supply)];
        let theirs = taker.join().unwrap();
        for number in all_different(mine.into_iter().chain(theirs).flatten()) {
            assert!((1..3).contains(&number) || (10..12).contains(&number), "{number} was never reserved");
        }
    });
}

#[test]
fn batches_and_single_takes_never_share_a_number() {
    loom::model(|| {
        let supply = supply(false);
        supply.publish(segment(1, 4, 0));
        supply.publish(segment(20, 23, 0));
        let taker = {
            let supply = supply.clone();
            thread::spawn(move || supply.take(2).ok().map(|t| (t.lo, t.hi)))
        };
        let mine = take_one(&supply);
        let mut numbers: Vec<u64> = mine.into_iter().collect();
        if let Some((lo, hi)) = taker.join().unwrap() {
            numbers.extend(lo..hi);
        }
        for number in all_different(numbers) {
            assert!((1..4).contains(&number) || (20..23).contains(&number), "{number} was never reserved");
        }
    });
}

#[test]
fn what_close_gives_back_was_given_to_nobody() {
    loom::model(|| {
        let supply = supply(false);
        supply.publish(segment(1, 4, 0));
        let taker = {
            let supply = supply.clone();
            thread::spawn(move || [take_one(&supply), take_one(&supply)])
        };
        let rest = supply.close();
        let taken = taker.join().unwrap();
        let back = rest.into_iter().flat_map(|(_, lo, hi)| lo..hi);
        all_different(taken.into_iter().flatten().chain(back));
    });
}

#[test]
fn a_period_change_never_joins_a_number_with_another_periods_text() {
    let pattern = SerialPattern::new("yyyyMMdd", "000", "UTC").unwrap();
    let days = [20_260_101_000_000_000, 20_260_102_000_000_000];
    let prefixes = days.map(|day| pattern.prefix(day));
    loom::model(move || {
        let supply = supply(true);
        // Both days begin at 1: a torn read would make one text twice.
        supply.publish(Segment { prefix: prefixes[0], ..segment(1, 3, days[0]) });
        let taker = {
            let supply = supply.clone();
            thread::spawn(move || {
                let taken = supply.take(1).ok()?;
                supply.prefix(&taken).map(|(day, prefix)| (day, prefix, taken.lo))
            })
        };
        supply.drop_other_periods(days[1]);
        supply.publish(Segment { prefix: prefixes[1], ..segment(1, 3, days[1]) });
        let mine =
            supply.take(1).ok().and_then(|t| supply.prefix(&t).map(|(day, prefix)| (day, prefix, t.lo)));
        let theirs = taker.join().unwrap();
        let serials: Vec<_> = [mine, theirs].into_iter().flatten().collect();
        for (day, prefix, _) in &serials {
            let which = days.iter().position(|d| d == day).unwrap();
            assert_eq!(prefix.as_str(), prefixes[which].as_str());
        }
        if let [(d1, _, n1), (d2, _, n2)] = serials[..] {
            assert!((d1, n1) != (d2, n2), "serial {n1} of {d1} was handed out twice");
        }
    });
}

#[test]
fn a_bell_that_is_hung_while_takers_count_loses_no_number() {
    loom::model(|| {
        let supply = supply(false);
        supply.publish(segment(1, 5, 0));
        let taker = {
            let supply = supply.clone();
            thread::spawn(move || [take_one(&supply), take_one(&supply)])
        };
        supply.ring_at(2);
        let mine = take_one(&supply);
        let theirs = taker.join().unwrap();
        let all = all_different(mine.into_iter().chain(theirs.into_iter().flatten()));
        assert_eq!(all, BTreeSet::from([1, 2, 3]));
    });
}

#[test]
fn a_taker_that_slept_over_a_replacement_does_not_believe_the_old_end() {
    loom::model(|| {
        let supply = supply(false);
        supply.publish(segment(5, 9, 1));
        let taker = {
            let supply = supply.clone();
            thread::spawn(move || [take_one(&supply), take_one(&supply)])
        };
        supply.drop_other_periods(2);
        supply.publish(segment(1, 2, 2));
        let mine = take_one(&supply);
        let theirs = taker.join().unwrap();
        for number in all_different(mine.into_iter().chain(theirs.into_iter().flatten())) {
            assert!((5..9).contains(&number) || number == 1, "{number} was never reserved");
        }
    });
}
