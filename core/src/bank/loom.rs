//! The cell of a counter under the model checker: every interleaving of callers, the keeper and a close. Run by `ci/steps/loom`.

use std::collections::BTreeSet;

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::counter_cell::CounterCell;
use super::supply::Ahead;

fn take(cell: &CounterCell) -> Option<u64> {
    cell.take_one().or_else(|| cell.take(1).map(|got| got.lo))
}

fn all_different(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<u64> {
    let mut seen = BTreeSet::new();
    for number in numbers {
        assert!(seen.insert(number), "{number} was handed out twice");
    }
    seen
}

/// What is left of a cell that no thread uses any more.
fn rest(cell: &CounterCell) -> Vec<u64> {
    cell.close().into_iter().flatten().flat_map(|(lo, hi)| lo..hi).collect()
}

#[test]
fn two_callers_across_the_end_of_a_segment_get_different_numbers_that_rise() {
    loom::model(|| {
        let cell = Arc::new(CounterCell::new());
        assert!(cell.publish(0, 1) && cell.publish(1, 2));
        let other = {
            let cell = cell.clone();
            thread::spawn(move || [take(&cell), take(&cell)])
        };
        let mine = [take(&cell), take(&cell)];
        let theirs = other.join().expect("it ends");
        for pair in [mine, theirs] {
            assert!(pair[1].is_none() || pair[0] < pair[1], "{pair:?} does not rise");
        }
        let taken = all_different(mine.into_iter().chain(theirs).flatten().chain(rest(&cell)));
        assert_eq!(taken, (0..3).collect(), "no number is lost");
    });
}

#[test]
fn a_segment_that_is_published_while_callers_take_is_handed_out_once() {
    loom::model(|| {
        let cell = Arc::new(CounterCell::new());
        assert!(cell.publish(0, 1) && cell.publish(1, 1));
        let other = {
            let cell = cell.clone();
            thread::spawn(move || [take(&cell), take(&cell)])
        };
        // As the keeper: in rising order, where there is room.
        let published = cell.publish(2, 1);
        let mine = take(&cell);
        let theirs = other.join().expect("it ends");
        let all = theirs.into_iter().chain([mine]).flatten();
        let seen = all_different(all.chain(rest(&cell)));
        assert_eq!(seen, (0..if published { 3 } else { 2 }).collect());
    });
}

#[test]
fn a_close_gives_back_exactly_what_no_caller_got() {
    loom::model(|| {
        let cell = Arc::new(CounterCell::new());
        assert!(cell.publish(0, 1) && cell.publish(1, 2));
        let other = {
            let cell = cell.clone();
            thread::spawn(move || {
                let two = [take(&cell), take(&cell)];
                // A keeper that comes too late.
                (two, cell.publish(10, 1))
            })
        };
        let rest = rest(&cell);
        let (theirs, published) = other.join().expect("it ends");
        let seen = all_different(theirs.into_iter().flatten().chain(rest));
        // The keeper may have been faster than the close; then its number was given back or is 10.
        let expected: BTreeSet<u64> = if published { (0..3).chain([10]).collect() } else { (0..3).collect() };
        assert!(seen == expected || published && seen == (0..3).collect());
        assert_eq!(take(&cell), None, "closed");
    });
}

#[test]
fn the_base_of_wide_ids_is_seen_with_the_first_number() {
    loom::model(|| {
        let cell = Arc::new(CounterCell::new());
        let other = {
            let cell = cell.clone();
            thread::spawn(move || cell.take_one().map(|number| number + cell.base()))
        };
        cell.set_base(1_000);
        assert!(cell.publish(0, 1));
        if let Some(number) = other.join().expect("it ends") {
            assert_eq!(number, 1_000);
        }
    });
}

/// A counter whose next numbers were reserved ahead, as a bank has them.
struct Hot {
    cell: CounterCell,
    /// The ranges, and whether the bank was closed.
    supply: Mutex<(Ahead, bool)>,
}

impl Hot {
    fn new(numbers: &[(u64, u64)], ahead: &[(u64, u64)]) -> Arc<Hot> {
        let cell = CounterCell::new();
        for (lo, hi) in numbers {
            assert!(cell.publish(*lo, hi - lo));
        }
        let mut supply = Ahead::default();
        supply.ranges.extend(ahead);
        Arc::new(Hot { cell, supply: Mutex::new((supply, false)) })
    }

    /// As a caller: what is in the cell, else what it brings there itself, unless another thread is at it.
    fn take(&self) -> Option<u64> {
        take(&self.cell).or_else(|| {
            let mut supply = self.supply.try_lock().ok()?;
            let served = !supply.1 && supply.0.serve(&self.cell);
            drop(supply);
            if served { take(&self.cell) } else { None }
        })
    }

    /// As the keeper: a range that was just reserved, behind those that wait, or in the cell where none does.
    fn publish(&self, lo: u64, hi: u64) {
        let mut supply = self.supply.lock().expect("no thread panics");
        if !supply.1 {
            supply.0.ranges.push_back((lo, hi));
            supply.0.serve(&self.cell);
        }
    }

    /// Closes; answers with what no caller got.
    fn close(&self) -> Vec<u64> {
        let mut supply = self.supply.lock().expect("no thread panics");
        supply.1 = true;
        let ahead: Vec<u64> = supply.0.ranges.drain(..).flat_map(|(lo, hi)| lo..hi).collect();
        let mut left = rest(&self.cell);
        left.extend(ahead);
        left
    }
}

#[test]
fn callers_that_bring_a_counter_its_next_numbers_themselves_get_each_of_them_once_and_rising() {
    loom::model(|| {
        let hot = Hot::new(&[(0, 1)], &[(1, 2), (2, 3)]);
        let other = {
            let hot = hot.clone();
            thread::spawn(move || [hot.take(), hot.take()])
        };
        let mine = [hot.take(), hot.take()];
        let theirs = other.join().expect("it ends");
        for pair in [mine, theirs] {
            assert!(pair.iter().flatten().is_sorted(), "{pair:?} does not rise");
        }
        let seen = all_different(mine.into_iter().chain(theirs).flatten().chain(hot.close()));
        assert_eq!(seen, (0..3).collect(), "no number is lost");
    });
}

#[test]
fn a_caller_and_the_keeper_that_serve_one_counter_at_once_keep_its_order() {
    loom::model(|| {
        let hot = Hot::new(&[(0, 1)], &[(1, 2)]);
        let keeper = {
            let hot = hot.clone();
            thread::spawn(move || hot.publish(2, 3))
        };
        let mine: Vec<u64> = (0..3).filter_map(|_| hot.take()).collect();
        keeper.join().expect("it ends");
        assert!(mine.is_sorted(), "{mine:?} does not rise");
        let seen = all_different(mine.into_iter().chain(hot.close()));
        assert_eq!(seen, (0..3).collect(), "no number is lost");
    });
}

#[test]
fn a_close_while_a_caller_serves_its_counter_gives_back_exactly_the_rest() {
    loom::model(|| {
        let hot = Hot::new(&[], &[(0, 1), (1, 2)]);
        let caller = {
            let hot = hot.clone();
            thread::spawn(move || [hot.take(), hot.take()])
        };
        let rest = hot.close();
        let theirs = caller.join().expect("it ends");
        let seen = all_different(theirs.into_iter().flatten().chain(rest));
        assert_eq!(seen, (0..2).collect(), "each number is issued or given back");
        assert_eq!(hot.take(), None, "closed");
    });
}
