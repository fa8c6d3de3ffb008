//! What the buffer of one source does with one caller, number by number.

use std::sync::Arc;

use crate::callers::waker::{ReadyQueue, Waker};
use crate::serial::{Prefix, SerialPattern};

use super::Segment;
use super::buffer::{Buffer, QUEUE_LEN, TakeError};
use super::cell::{Cell, Count, EMPTY};

/// A buffer and the waker of its keeper.
struct Stage {
    buffer: Buffer,
    waker: Arc<Waker>,
}

impl Stage {
    fn new(with_text: bool) -> Stage {
        let waker = Arc::new(Waker::new(Arc::new(ReadyQueue::default()), 0));
        Stage { buffer: Buffer::new(with_text, waker.clone()), waker }
    }

    /// A buffer of these ranges, reserved at 1, 2, 3 … for the periods 1, 2, 3 …; its wake-ups are acknowledged.
    fn of(ranges: &[(u64, u64)]) -> Stage {
        let stage = Stage::new(false);
        for (at, range) in (1..).zip(ranges) {
            assert!(stage.buffer.publish(segment(*range, at)));
        }
        stage.waker.acknowledge();
        stage
    }

    /// One number, as the id path takes it.
    fn one(&self) -> Result<u64, TakeError> {
        match self.buffer.take_one() {
            Ok(number) => Ok(number),
            Err(miss) => match self.buffer.after(miss) {
                Some(answer) => answer.map(|taken| taken.lo),
                None => self.one(),
            },
        }
    }

    fn take(&self, want: u64) -> Result<(u64, u64), TakeError> {
        self.buffer.take(want).map(|taken| (taken.lo, taken.hi))
    }

    /// Issued, left, room, and when the segment in the cell was reserved.
    fn sees(&self) -> (u64, u64, usize, Option<u64>) {
        let snapshot = self.buffer.snapshot();
        (snapshot.issued, snapshot.left, snapshot.room, snapshot.born_ms)
    }
}

fn segment((lo, hi): (u64, u64), at: u64) -> Segment {
    Segment { lo, hi, period: at, born_ms: at, prefix: Prefix::EMPTY }
}

#[test]
fn numbers_come_in_order_from_one_segment_after_the_other() {
    let stage = Stage::of(&[(1, 4), (10, 12)]);
    assert_eq!([(); 5].map(|()| stage.one()), [1, 2, 3, 10, 11].map(Ok));
    assert_eq!(stage.one(), Err(TakeError::Empty));
    assert!(stage.buffer.publish(segment((20, 21), 3)));
    assert_eq!([stage.one(), stage.one()], [Ok(20), Err(TakeError::Empty)]);
}

#[test]
fn a_batch_ends_with_its_segment_and_has_at_least_one_number() {
    let stage = Stage::of(&[(1, 4), (10, 1_000_010)]);
    assert_eq!(stage.take(2), Ok((1, 3)));
    assert_eq!(stage.take(2), Ok((3, 4)));
    assert_eq!(stage.take(0), Ok((10, 11)));
    let taken = stage.buffer.take(500_000).expect("numbers");
    assert_eq!((taken.lo, taken.hi, taken.len()), (11, 500_011, 500_000));
    assert_eq!(stage.take(u64::MAX), Ok((500_011, 1_000_010)));
    assert_eq!(stage.take(1), Err(TakeError::Empty));
}

#[test]
fn batches_that_ask_for_everything_do_not_carry_the_counter_past_its_end() {
    let stage = Stage::of(&[(1, 2)]);
    for _ in 0..3 {
        assert!(stage.buffer.take_one().is_ok() || stage.take(u64::MAX).is_err());
    }
    let cell = Cell::new(false);
    let right = cell.replacing_now().expect("the right");
    cell.install(right, &segment((1, 2), 1));
    for _ in 0..1000 {
        cell.count(u64::MAX);
    }
    // The counter still stands above the segment's end.
    assert!(matches!(cell.count(1), Count::UsedUp { .. }));
}

#[test]
fn a_snapshot_adds_up() {
    let stage = Stage::of(&[]);
    assert_eq!(stage.sees(), (0, 0, QUEUE_LEN, None));
    let stage = Stage::of(&[(1, 101), (201, 251), (301, 311)]);
    assert_eq!(stage.sees(), (0, 160, QUEUE_LEN - 2, Some(1)));
    stage.take(40).expect("numbers");
    assert_eq!(stage.sees(), (40, 120, QUEUE_LEN - 2, Some(1)));
    stage.take(100).expect("numbers");
    assert_eq!(stage.sees(), (100, 60, QUEUE_LEN - 2, Some(1)));
    stage.take(20).expect("numbers");
    assert_eq!(stage.sees(), (120, 40, QUEUE_LEN - 1, Some(2)));
    while stage.one().is_ok() {}
    assert_eq!(stage.sees(), (160, 0, QUEUE_LEN, None));
    assert_eq!(stage.buffer.snapshot().wanted, 0);
}

#[test]
fn a_full_queue_takes_no_more() {
    let stage = Stage::of(&[]);
    for at in 0..=QUEUE_LEN as u64 {
        assert!(stage.buffer.publish(segment((at * 10 + 1, at * 10 + 11), at)), "segment {at}");
    }
    assert_eq!(stage.sees(), (0, 90, 0, Some(0)));
    assert!(!stage.buffer.publish(segment((1001, 1011), 99)));
    assert_eq!(stage.sees(), (0, 90, 0, Some(0)), "the segment that found no place is not counted");
    assert!(stage.buffer.has_at_least(u64::MAX), "no more can come");
    assert_eq!((0..90).filter(|n| stage.one() == Ok(n + 1)).count(), 90);
    assert_eq!(stage.one(), Err(TakeError::Empty));
}

#[test]
fn a_batch_waits_until_all_of_it_is_there_or_no_more_can_come() {
    let stage = Stage::of(&[(1, 11), (21, 31)]);
    assert!(stage.buffer.has_at_least(20));
    assert!(!stage.buffer.has_at_least(21));
    stage.one().expect("a number");
    assert!(!stage.buffer.has_at_least(20));
    stage.buffer.close();
    assert!(stage.buffer.has_at_least(20));
}

#[test]
fn the_keeper_is_woken_once_when_fewer_numbers_are_left_than_asked() {
    let stage = Stage::of(&[(1, 101)]);
    stage.buffer.wake_below(10);
    for number in 1..=90 {
        assert_eq!(stage.one(), Ok(number));
        assert!(!stage.waker.acknowledge(), "woken at {number}");
    }
    assert_eq!(stage.one(), Ok(91));
    assert!(stage.waker.acknowledge(), "nine are left");
    for number in 92..=100 {
        assert_eq!(stage.one(), Ok(number));
        assert!(!stage.waker.acknowledge(), "woken again at {number}");
    }
    assert_eq!(stage.one(), Err(TakeError::Empty));
    assert!(stage.waker.acknowledge(), "the buffer is empty");
}

#[test]
fn a_batch_that_crosses_the_low_water_mark_wakes_the_keeper() {
    let stage = Stage::of(&[(1, 101)]);
    stage.buffer.wake_below(10);
    assert_eq!(stage.take(90), Ok((1, 91)));
    assert!(!stage.waker.acknowledge());
    assert_eq!(stage.take(1), Ok((91, 92)));
    assert!(stage.waker.acknowledge());
    // No low-water mark: the keeper is woken by the segment's end only.
    stage.buffer.wake_below(0);
    assert_eq!(stage.take(100), Ok((92, 101)));
    assert!(!stage.waker.acknowledge());
}

#[test]
fn the_low_water_mark_counts_the_segments_in_the_queue() {
    // Fifty are in the queue, so the mark for sixty is ten below the segment's end.
    let stage = Stage::of(&[(1, 101), (201, 251)]);
    stage.buffer.wake_below(60);
    assert_eq!(stage.take(90), Ok((1, 91)));
    assert!(!stage.waker.acknowledge());
    stage.one().expect("a number");
    assert!(stage.waker.acknowledge());
    // A mark for no more than the queue holds is not in this segment.
    for left in [49, 50] {
        let stage = Stage::of(&[(1, 101), (201, 251)]);
        stage.buffer.wake_below(left);
        assert_eq!(stage.take(100), Ok((1, 101)));
        assert!(!stage.waker.acknowledge(), "a mark for {left}");
        stage.one().expect("a number");
        assert!(stage.waker.acknowledge(), "the end of a segment wakes the keeper");
    }
    // A mark for more numbers than there are is crossed by the next one.
    let stage = Stage::of(&[(1, 101)]);
    stage.buffer.wake_below(5000);
    assert_eq!(stage.one(), Ok(1));
    assert!(stage.waker.acknowledge());
}

#[test]
fn a_low_water_mark_for_an_empty_buffer_changes_nothing() {
    let stage = Stage::of(&[]);
    stage.buffer.wake_below(10);
    assert_eq!(stage.one(), Err(TakeError::Empty));
    stage.buffer.close();
    stage.buffer.wake_below(10);
    assert_eq!(stage.one(), Err(TakeError::Closed));
}

#[test]
fn segments_reserved_until_a_time_are_dropped_and_what_was_leased_of_them_revoked() {
    let stage = Stage::of(&[(1, 11), (21, 31), (41, 51)]);
    stage.take(3).expect("numbers");
    let word = stage.buffer.word().get();
    assert_eq!(stage.buffer.drop_older(0), 0);
    assert_eq!(stage.buffer.word().get(), word, "nothing was dropped");
    assert_eq!(stage.buffer.drop_older(2), 7 + 10);
    assert_eq!(stage.buffer.word().get(), word + 1);
    assert_eq!(
        stage.sees(),
        (3, 10, QUEUE_LEN, Some(3)),
        "three were issued, and the third segment is in place"
    );
    assert_eq!(stage.one(), Ok(41));
    assert_eq!(stage.buffer.drop_older(3), 9);
    assert_eq!(stage.sees(), (4, 0, QUEUE_LEN, None));
    assert_eq!(stage.one(), Err(TakeError::Empty));
}

#[test]
fn segments_of_other_periods_are_dropped() {
    let stage = Stage::of(&[(1, 11), (21, 31), (41, 51)]);
    assert_eq!(stage.buffer.drop_other_periods(1), 0);
    assert_eq!(stage.buffer.drop_other_periods(3), 20);
    assert_eq!(stage.take(20), Ok((41, 51)));
    assert_eq!(stage.buffer.drop_other_periods(4), 0, "all of it was issued");
    assert_eq!(stage.sees(), (10, 0, QUEUE_LEN, None));
}

#[test]
fn blocks_of_a_used_up_segment_are_revoked_once() {
    let stage = Stage::of(&[(1, 11)]);
    stage.take(10).expect("numbers");
    assert_eq!(stage.one(), Err(TakeError::Empty));
    let word = stage.buffer.word().get();
    // The cell is empty, and a thread may still hold a block of that segment.
    stage.buffer.drop_older(1);
    assert_eq!(stage.buffer.word().get(), word + 1);
    stage.buffer.drop_older(1);
    assert_eq!(stage.buffer.word().get(), word + 1, "nothing was leased since");
    assert!(stage.buffer.publish(segment((21, 31), 2)));
    stage.buffer.drop_other_periods(9);
    assert_eq!(stage.buffer.word().get(), word + 2);
}

#[test]
fn a_segment_that_stays_after_a_drop_is_revoked_by_the_next_one() {
    let stage = Stage::of(&[(1, 11), (21, 31)]);
    stage.buffer.drop_older(1);
    stage.take(10).expect("numbers");
    assert_eq!(stage.one(), Err(TakeError::Empty));
    let word = stage.buffer.word().get();
    stage.buffer.drop_older(2);
    assert_eq!(stage.buffer.word().get(), word + 1);
}

#[test]
fn a_close_gives_back_the_rest_in_order_and_ends_every_verb() {
    let stage = Stage::of(&[(1, 11), (21, 31), (41, 51)]);
    stage.take(3).expect("numbers");
    let word = stage.buffer.word().get();
    assert_eq!(stage.buffer.close(), [(1, 4, 11), (2, 21, 31), (3, 41, 51)]);
    assert_eq!(stage.buffer.word().get(), word + 1);
    assert_eq!(stage.one(), Err(TakeError::Closed));
    assert_eq!(stage.take(1), Err(TakeError::Closed));
    assert_eq!(stage.sees(), (3, 0, QUEUE_LEN, None));
    assert!(!stage.buffer.publish(segment((61, 71), 4)));
    assert_eq!(stage.sees(), (3, 0, QUEUE_LEN, None));
    assert!(stage.buffer.close().is_empty());
    assert_eq!(stage.buffer.drop_older(9), 0);
}

#[test]
fn a_close_gives_back_nothing_of_a_segment_that_is_used_up() {
    let stage = Stage::of(&[(1, 11)]);
    stage.take(10).expect("numbers");
    assert!(stage.buffer.close().is_empty());
    assert!(Stage::of(&[]).buffer.close().is_empty());
}

#[test]
fn a_date_part_is_that_of_the_segment_a_number_came_from() {
    let pattern = SerialPattern::new("yyyyMMdd", "000", "UTC").expect("a pattern");
    let days = [20_261_121_000_000_000, 20_261_122_000_000_000];
    let [today, tomorrow] = days.map(|day| pattern.prefix(day));
    let stage = Stage::new(true);
    assert!(stage.buffer.publish(Segment { prefix: today, period: days[0], ..segment((1, 3), 1) }));
    assert!(stage.buffer.publish(Segment { prefix: tomorrow, period: days[1], ..segment((7, 9), 2) }));
    let (number, prefix) = stage.buffer.take_one_dated().expect("a serial");
    assert_eq!((number, prefix.as_str()), (1, "20261121"));
    let taken = stage.buffer.take(1).expect("a number");
    let (day, prefix) = stage.buffer.prefix(&taken).expect("its segment is in place");
    assert_eq!((taken.lo, day, prefix.as_str()), (2, days[0], "20261121"));
    let miss = stage.buffer.take_one_dated().expect_err("the first day is used up");
    assert!(stage.buffer.after(miss).is_none(), "take again");
    assert!(stage.buffer.prefix(&taken).is_none(), "its segment has been replaced");
    let (number, prefix) = stage.buffer.take_one_dated().expect("a serial");
    assert_eq!((number, prefix.as_str()), (7, "20261122"));
}

#[test]
fn a_number_keeps_its_date_part_while_segments_of_its_period_follow_and_after_the_last_one() {
    let pattern = SerialPattern::new("yyyyMMdd", "000", "UTC").expect("a pattern");
    let days = [20_261_121_000_000_000, 20_261_122_000_000_000];
    let dated = |day: usize, range| Segment {
        prefix: pattern.prefix(days[day]),
        period: days[day],
        ..segment(range, 1)
    };
    let stage = Stage::new(true);
    let date = |taken: &super::TakenRange| {
        stage.buffer.prefix(taken).map(|(day, prefix)| (day, prefix.as_str().to_owned()))
    };
    assert!(stage.buffer.publish(dated(0, (1, 2))) && stage.buffer.publish(dated(0, (2, 3))));
    let first = stage.buffer.take(1).expect("a number");
    let second = stage.buffer.take(1).expect("a number of the next segment");
    let today = Some((days[0], "20261121".to_owned()));
    assert_eq!((date(&first), date(&second)), (today.clone(), today.clone()));
    assert!(stage.buffer.take(1).is_err(), "the cell is empty");
    assert_eq!((date(&first), date(&second)), (today.clone(), today));
    assert!(stage.buffer.publish(dated(1, (7, 8))));
    stage.buffer.take(1).expect("a number of the next day");
    assert_eq!((date(&first), date(&second)), (None, None));
    assert!(stage.buffer.publish(dated(1, (8, 9))));
    let third = stage.buffer.take(1).expect("a number");
    assert!(date(&third).is_some());
    stage.buffer.drop_other_periods(days[0]);
    assert_eq!(date(&third), None, "its period is over");
}

#[test]
fn a_buffer_without_text_has_no_date_part() {
    let stage = Stage::of(&[(1, 11)]);
    let taken = stage.buffer.take(1).expect("a number");
    assert!(stage.buffer.prefix(&taken).is_none());
}

#[test]
fn a_cell_says_whether_it_holds_a_segment_and_whether_it_is_closed() {
    let cell = Cell::new(false);
    assert_eq!((cell.is_live(), cell.is_closed()), (false, false));
    assert!(matches!(cell.count(1), Count::Empty { version: EMPTY }));
    let right = cell.replacing_now().expect("the right");
    assert!(cell.current(&right).is_none());
    assert!(cell.replacing(EMPTY).is_none(), "the right is held");
    assert!(matches!(cell.count(1), Count::Again));
    cell.install(right, &segment((5, 9), 1));
    assert_eq!((cell.is_live(), cell.is_closed()), (true, false));
    assert!(cell.replacing(EMPTY).is_none(), "another version");
    let right = cell.replacing_now().expect("the right");
    let now = cell.current(&right).expect("a segment");
    assert_eq!((now.lo, now.next, now.hi, now.period, now.born_ms), (5, 5, 9, 1, 1));
    assert!(!cell.is_live());
    assert_eq!(cell.empty(right), 5);
    assert_eq!((cell.is_live(), cell.is_closed()), (false, false));
    assert!(cell.load().is_none());
    let right = cell.replacing_now().expect("the right");
    cell.close(right);
    assert_eq!((cell.is_live(), cell.is_closed()), (false, true));
    assert!(cell.replacing_now().is_none());
    assert!(matches!(cell.count(1), Count::Closed));
    assert!(cell.load().is_none());
    let miss = cell.take_one().expect_err("closed");
    assert!(matches!(cell.explain(miss), Count::Closed));
}

#[test]
fn a_number_counted_before_a_replacement_is_lost() {
    let cell = Cell::new(false);
    let right = cell.replacing_now().expect("the right");
    cell.install(right, &segment((5, 9), 1));
    let right = cell.replacing_now().expect("the right");
    cell.set_low_water(&right, 5);
    cell.keep(right);
    // At the low-water mark: counted, and to be settled.
    let miss = cell.take_one().expect_err("the mark is crossed");
    let right = cell.replacing_now().expect("the right");
    assert_eq!(cell.empty(right), 6);
    let right = cell.replacing_now().expect("the right");
    cell.install(right, &segment((5, 9), 1));
    assert!(matches!(cell.explain(miss), Count::Again));
}
