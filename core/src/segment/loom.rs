//! The cell and the buffer under the model checker: every interleaving of two or three threads, and the reorderings the
//! memory model allows. Run by `ci/steps/loom`.

use std::collections::BTreeSet;
use std::sync::Arc as StdArc;

use loom::sync::Arc;
use loom::thread;

use crate::callers::waker::{ReadyQueue, Waker};
use crate::serial::{Prefix, SerialPattern};

use super::Segment;
use super::block::Returned;
use super::buffer::{Buffer, TakenRange};
use super::cell::Miss;

fn buffer(with_text: bool) -> Arc<Buffer> {
    Arc::new(Buffer::new(with_text, StdArc::new(Waker::new(StdArc::new(ReadyQueue::default()), 0))))
}

fn segment(lo: u64, hi: u64, period: u64) -> Segment {
    Segment { lo, hi, period, born_ms: period, prefix: Prefix::EMPTY }
}

/// Takes one number without waiting for a keeper.
fn take_one(buffer: &Buffer) -> Option<u64> {
    match buffer.take_one() {
        Ok(number) => Some(number),
        Err(miss) => after(buffer, miss).map(|taken| taken.lo),
    }
}

/// One number with its day and date part, without waiting for a keeper. The fast path does not read the day, so the
/// date part identifies it.
fn take_one_dated(buffer: &Buffer) -> Option<(u64, Prefix)> {
    match buffer.take_one_dated() {
        Ok(serial) => Some(serial),
        Err(miss) => {
            let taken = after(buffer, miss)?;
            buffer.prefix(&taken).map(|(_, prefix)| (taken.lo, prefix))
        }
    }
}

fn after(buffer: &Buffer, miss: Miss) -> Option<TakenRange> {
    match buffer.after(miss) {
        Some(answer) => answer.ok(),
        None => buffer.take(1).ok(),
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
        let buffer = buffer(false);
        buffer.publish(segment(1, 3, 0));
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || [take_one(&buffer), take_one(&buffer)])
        };
        buffer.publish(segment(10, 12, 0));
        let mine = [take_one(&buffer), take_one(&buffer)];
        let theirs = taker.join().unwrap();
        for number in all_different(mine.into_iter().chain(theirs).flatten()) {
            assert!((1..3).contains(&number) || (10..12).contains(&number), "{number} was never reserved");
        }
    });
}

#[test]
fn batches_and_single_takes_never_share_a_number() {
    loom::model(|| {
        let buffer = buffer(false);
        buffer.publish(segment(1, 4, 0));
        buffer.publish(segment(20, 23, 0));
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || buffer.take(2).ok().map(|t| (t.lo, t.hi)))
        };
        let mine = take_one(&buffer);
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
fn the_rest_of_a_block_that_is_given_back_is_handed_out_once_whatever_is_taken_meanwhile() {
    loom::model(|| {
        let buffer = buffer(false);
        buffer.publish(segment(1, 6, 0));
        let leased_at = buffer.word().get();
        let block = buffer.take(3).expect("numbers");
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || [take_one(&buffer), take_one(&buffer)])
        };
        // Its first number is issued, the others come back.
        let returned = buffer.take_back(leased_at, block.lo + 1, block.hi);
        let mine = take_one(&buffer);
        let theirs = taker.join().unwrap();
        let kept = if returned == Returned::Anew { block.lo..block.lo + 1 } else { block.lo..block.hi };
        let rest = buffer.close().into_iter().flat_map(|(_, lo, hi)| lo..hi);
        all_different(theirs.into_iter().flatten().chain(mine).chain(kept).chain(rest));
        let [first, second] = theirs;
        assert!(first.is_none() || second.is_none() || first < second, "{theirs:?}");
    });
}

#[test]
fn a_block_that_is_given_back_while_its_segment_is_dropped_or_replaced_is_handed_out_once_at_most() {
    loom::model(|| {
        let buffer = buffer(false);
        buffer.publish(segment(1, 4, 0));
        let leased_at = buffer.word().get();
        let block = buffer.take(2).expect("numbers");
        let other = {
            let buffer = buffer.clone();
            thread::spawn(move || {
                buffer.drop_older(0);
                buffer.publish(segment(10, 12, 1));
                take_one(&buffer)
            })
        };
        let returned = buffer.take_back(leased_at, block.lo + 1, block.hi);
        let mine = take_one(&buffer);
        let theirs = other.join().unwrap();
        let kept = if returned == Returned::Anew { block.lo..block.lo + 1 } else { block.lo..block.hi };
        let rest = buffer.close().into_iter().flat_map(|(_, lo, hi)| lo..hi);
        all_different(theirs.into_iter().chain(mine).chain(kept).chain(rest));
    });
}

#[test]
fn a_block_that_is_given_back_while_the_buffer_closes_goes_to_the_store_or_is_lost() {
    loom::model(|| {
        let buffer = buffer(false);
        buffer.publish(segment(1, 4, 0));
        let leased_at = buffer.word().get();
        let block = buffer.take(2).expect("numbers");
        let closer = {
            let buffer = buffer.clone();
            thread::spawn(move || buffer.close())
        };
        let returned = buffer.take_back(leased_at, block.lo + 1, block.hi);
        let rest = closer.join().unwrap();
        let kept = if returned == Returned::Anew { block.lo..block.lo + 1 } else { block.lo..block.hi };
        all_different(rest.into_iter().flat_map(|(_, lo, hi)| lo..hi).chain(kept));
    });
}

#[test]
fn numbers_that_close_gives_back_were_not_handed_out() {
    loom::model(|| {
        let buffer = buffer(false);
        buffer.publish(segment(1, 4, 0));
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || [take_one(&buffer), take_one(&buffer)])
        };
        let rest = buffer.close();
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
        let buffer = buffer(true);
        // Both days begin at 1: a torn read would make one text twice.
        buffer.publish(Segment { prefix: prefixes[0], ..segment(1, 3, days[0]) });
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || {
                let taken = buffer.take(1).ok()?;
                buffer.prefix(&taken).map(|(day, prefix)| (day, prefix, taken.lo))
            })
        };
        buffer.drop_other_periods(days[1]);
        buffer.publish(Segment { prefix: prefixes[1], ..segment(1, 3, days[1]) });
        let mine =
            buffer.take(1).ok().and_then(|t| buffer.prefix(&t).map(|(day, prefix)| (day, prefix, t.lo)));
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
fn a_number_keeps_its_text_while_another_segment_of_its_period_replaces_its_own() {
    let pattern = SerialPattern::new("yyyyMMdd", "000", "UTC").unwrap();
    let day = 20_260_101_000_000_000;
    let prefix = pattern.prefix(day);
    loom::model(move || {
        let buffer = buffer(true);
        buffer.publish(Segment { prefix, ..segment(1, 2, day) });
        buffer.publish(Segment { prefix, ..segment(2, 3, day) });
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || {
                let taken = buffer.take(1).ok()?;
                Some((taken.lo, buffer.prefix(&taken)))
            })
        };
        let mine = buffer.take(1).ok().map(|taken| (taken.lo, buffer.prefix(&taken)));
        let theirs = taker.join().unwrap();
        let taken: Vec<_> = [mine, theirs].into_iter().flatten().collect();
        assert!(taken.iter().all(|(_, dated)| {
            dated.is_some_and(|(period, text)| period == day && text.as_str() == prefix.as_str())
        }));
        all_different(taken.into_iter().map(|(number, _)| number));
    });
}

#[test]
fn the_fast_path_of_serials_never_joins_a_number_with_another_periods_text() {
    let pattern = SerialPattern::new("yyyyMMdd'and more than a word of text'", "000", "UTC").unwrap();
    let days = [20_260_101_000_000_000, 20_260_102_000_000_000];
    let prefixes = days.map(|day| pattern.prefix(day));
    loom::model(move || {
        let buffer = buffer(true);
        // The days share no number, so a number tells whose text it must have.
        buffer.publish(Segment { prefix: prefixes[0], ..segment(1, 4, days[0]) });
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || [take_one_dated(&buffer), take_one_dated(&buffer)])
        };
        buffer.drop_other_periods(days[1]);
        buffer.publish(Segment { prefix: prefixes[1], ..segment(11, 14, days[1]) });
        let mine = take_one_dated(&buffer);
        let theirs = taker.join().unwrap();
        let serials: Vec<_> = theirs.into_iter().chain([mine]).flatten().collect();
        for (number, prefix) in &serials {
            assert_eq!(prefix.as_str(), prefixes[usize::from(*number > 10)].as_str());
        }
        all_different(serials.into_iter().map(|(number, _)| number));
    });
}

#[test]
fn two_days_that_both_begin_at_one_never_make_one_serial_twice() {
    let pattern = SerialPattern::new("yyyyMMdd", "000", "UTC").unwrap();
    let days = [20_260_101_000_000_000, 20_260_102_000_000_000];
    let prefixes = days.map(|day| pattern.prefix(day));
    loom::model(move || {
        let buffer = buffer(true);
        buffer.publish(Segment { prefix: prefixes[0], ..segment(1, 3, days[0]) });
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || [take_one_dated(&buffer), take_one_dated(&buffer)])
        };
        let first = take_one_dated(&buffer);
        buffer.drop_other_periods(days[1]);
        buffer.publish(Segment { prefix: prefixes[1], ..segment(1, 3, days[1]) });
        let second = take_one_dated(&buffer);
        let theirs = taker.join().unwrap();
        let mut seen = BTreeSet::new();
        for (number, prefix) in theirs.into_iter().chain([first, second]).flatten() {
            let text = format!("{}{number}", prefix.as_str());
            assert!(seen.insert(text.clone()), "{text} was handed out twice");
        }
    });
}

#[test]
fn a_low_water_mark_that_is_set_while_takers_count_loses_no_number() {
    loom::model(|| {
        let buffer = buffer(false);
        buffer.publish(segment(1, 5, 0));
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || [take_one(&buffer), take_one(&buffer)])
        };
        buffer.wake_below(2);
        let mine = take_one(&buffer);
        let theirs = taker.join().unwrap();
        let all = all_different(mine.into_iter().chain(theirs.into_iter().flatten()));
        assert_eq!(all, BTreeSet::from([1, 2, 3]));
    });
}

#[test]
fn a_taker_that_slept_over_a_replacement_does_not_accept_the_old_end() {
    loom::model(|| {
        let buffer = buffer(false);
        buffer.publish(segment(5, 9, 1));
        let taker = {
            let buffer = buffer.clone();
            thread::spawn(move || [take_one(&buffer), take_one(&buffer)])
        };
        buffer.drop_other_periods(2);
        buffer.publish(segment(1, 2, 2));
        let mine = take_one(&buffer);
        let theirs = taker.join().unwrap();
        for number in all_different(mine.into_iter().chain(theirs.into_iter().flatten())) {
            assert!((5..9).contains(&number) || number == 1, "{number} was never reserved");
        }
    });
}
