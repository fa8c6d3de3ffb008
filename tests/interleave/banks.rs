//! Banks over several stores: many counters at once, and none of their numbers twice.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::thread;

use keymill::simulation::counter_key;
use keymill::store::interleave::Interleaved;
use keymill::store::memory::{Memory, Step};
use keymill::store::{BankStore, Catalogue, FaultKind, GiveBack, Key, Mark, Request, Reserved};

use super::{CHUNK, assert_disjoint, memories, of_memories, owner, part, row_of, stands};

/// How many counters go into one batch here.
const MANY: u32 = 300;

pub(crate) fn bank() -> Arc<Key> {
    Arc::new(Key::bank("keymill_segment", "order"))
}

fn counter(index: u32) -> Arc<Key> {
    counter_key(&bank(), 65_536, index)
}

pub(crate) fn request(index: u32, len: u64, seen: u64) -> Request {
    Request { high_water: Mark { period: 0, next: seen }, ..keymill_tests::request(&counter(index), len) }
}

pub(crate) fn all(answers: Vec<Result<Reserved, keymill::store::Fault>>) -> Vec<(u64, u64)> {
    answers.into_iter().map(|answer| answer.map(|range| (range.lo, range.hi)).expect("a range")).collect()
}

#[test]
fn new_counters_begin_together_and_each_store_records_them_before_any_number_is_given() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let requests: Vec<_> = (0..MANY).map(|index| request(index, 16, 0)).collect();
    assert_eq!(all(store.reserve_counters(&requests)), vec![(1, 17); MANY as usize]);
    for index in [0, 7, MANY - 1] {
        assert_eq!(row_of(&a, &counter(index)), Some(part(2, 0, CHUNK, 17)));
        assert_eq!(row_of(&b, &counter(index)), Some(part(2, 1, CHUNK, 1)));
    }
    // As one by one: another process goes on with them, and a mill with other stores is refused.
    let again: Vec<_> = (0..MANY).map(|index| request(index, 16, 0)).collect();
    for (lo, hi) in all(of_memories(&[&a, &b], CHUNK).reserve_counters(&again)) {
        assert!(lo >= 17 && hi == lo + 16, "{lo}..{hi}");
    }
    for answer in of_memories(&[&b, &a], CHUNK).reserve_counters(&again) {
        assert_eq!(answer.expect_err("in another order").kind, FaultKind::Refused);
    }
}

#[test]
fn a_store_that_is_down_is_skipped_by_the_whole_batch_and_reported_once() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let mut seen = vec![0; MANY as usize];
    let mut round = |store: &mut Interleaved, len: u64| {
        let requests: Vec<_> = (0..).zip(&seen).map(|(index, seen)| request(index, len, *seen)).collect();
        let ranges = all(store.reserve_counters(&requests));
        for (seen, (lo, hi)) in seen.iter_mut().zip(&ranges) {
            assert!(lo >= seen, "{lo} is below {seen}");
            *seen = *hi;
        }
        ranges
    };
    round(&mut store, 16);
    assert!(store.news().is_empty());
    a.set_down(true);
    assert!(round(&mut store, 16).iter().all(|(lo, _)| owner(*lo, 2) == 1));
    assert_eq!(store.news().len(), 1, "one outage is one event");
    a.set_down(false);
    b.set_down(true);
    assert!(round(&mut store, 16).iter().all(|(lo, _)| owner(*lo, 2) == 0), "above every number of before");
    b.set_down(false);
    for _ in 0..200 {
        round(&mut store, 100);
    }
}

#[test]
fn counters_of_a_new_process_are_served_while_a_store_is_down() {
    let [a, b] = memories();
    let requests: Vec<_> = (0..MANY).map(|index| request(index, 16, 0)).collect();
    all(of_memories(&[&a, &b], CHUNK).reserve_counters(&requests));
    for down in [&a, &b] {
        down.set_down(true);
        let ranges = all(of_memories(&[&a, &b], CHUNK).reserve_counters(&requests));
        assert_eq!(ranges.len(), MANY as usize);
        // But a counter that no store has begins when every store answers.
        let new = [request(MANY, 16, 0), request(MANY + 1, 16, 0)];
        for answer in of_memories(&[&a, &b], CHUNK).reserve_counters(&new) {
            assert_eq!(answer.expect_err("it is new").kind, FaultKind::Unavailable);
        }
        down.set_down(false);
    }
}

#[test]
fn a_counter_whose_row_was_lost_is_left_out_there_and_its_neighbours_are_served() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let requests: Vec<_> = (0..20).map(|index| request(index, 16, 0)).collect();
    all(store.reserve_counters(&requests));
    a.delete_row(&counter(3));
    let again: Vec<_> = (0..20).map(|index| request(index, 16, 17)).collect();
    for (index, (lo, _)) in (0..).zip(all(store.reserve_counters(&again))) {
        assert_eq!(owner(lo, 2), u64::from(index == 3), "counter {index}");
    }
    assert_eq!(stands(&a, &counter(3)), None, "it is not made again");
    // A new process learns it from the other store.
    for (index, (lo, _)) in (0..).zip(all(of_memories(&[&a, &b], CHUNK).reserve_counters(&requests))) {
        assert!(index != 3 || owner(lo, 2) == 1, "counter {index}: {lo}");
    }
    assert_eq!(stands(&a, &counter(3)), None);
}

#[test]
fn processes_that_use_the_same_counters_at_once_over_failing_stores_share_no_number() {
    let memories: [Arc<Memory>; 3] = memories();
    let stores: Vec<&Arc<Memory>> = memories.iter().collect();
    let together = Barrier::new(6);
    let taken: Vec<(u32, u64, u64)> = thread::scope(|scope| {
        let processes: Vec<_> = (0..6)
            .map(|process| {
                let (stores, together) = (&stores, &together);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(process);
                    let mut store = of_memories(stores, CHUNK);
                    let mut seen: BTreeMap<u32, u64> = BTreeMap::new();
                    let mut got = Vec::new();
                    together.wait();
                    for _ in 0..60 {
                        if rng.u32(..4) == 0 {
                            let step = [Step::Lost, Step::Cut, Step::NotApplied][rng.usize(..3)].clone();
                            stores[rng.usize(..3)].fail_next(step);
                        }
                        let mut indexes: Vec<u32> = (0..40).collect();
                        rng.shuffle(&mut indexes);
                        indexes.truncate(rng.usize(1..40));
                        let requests: Vec<_> = indexes
                            .iter()
                            .map(|index| request(*index, rng.u64(1..400), *seen.get(index).unwrap_or(&0)))
                            .collect();
                        for (index, answer) in indexes.into_iter().zip(store.reserve_counters(&requests)) {
                            let Ok(range) = answer else { continue };
                            assert!(range.lo >= *seen.get(&index).unwrap_or(&0), "it rises");
                            assert_eq!(owner(range.lo, 3), owner(range.hi - 1, 3));
                            seen.insert(index, range.hi);
                            got.push((index, range.lo, range.hi));
                        }
                    }
                    got
                })
            })
            .collect();
        processes.into_iter().flat_map(|process| process.join().expect("a process")).collect()
    });
    assert!(taken.len() > 2_000, "{} ranges", taken.len());
    for index in 0..40 {
        assert_disjoint(
            taken
                .iter()
                .filter(|(counter, ..)| *counter == index)
                .map(|(_, lo, hi)| (*lo, *hi))
                .collect::<Vec<_>>(),
        );
    }
}

#[test]
fn what_was_not_used_is_given_back_to_its_stores_together() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let requests: Vec<_> = (0..MANY).map(|index| request(index, 100, 0)).collect();
    all(store.reserve_counters(&requests));
    let back = |index: u32, lo, hi| GiveBack { key: counter(index), period: 0, lo, hi, writer: 0 };
    // Another process has reserved from the last one since.
    let other = request(MANY - 1, 16, 0);
    let raced = all(of_memories(&[&a, &b], CHUNK).reserve_counters(&[other]))[0];
    let ranges: Vec<_> = (0..MANY).map(|index| back(index, 40, 101)).collect();
    let given = store.give_back_counters(&ranges).expect("the stores answer");
    for (index, given) in (0..).zip(given) {
        assert_eq!(given, index != MANY - 1 || owner(raced.0, 2) == 1, "counter {index}");
        if index != MANY - 1 {
            assert_eq!(stands(&a, &counter(index)).map(|mark| mark.next), Some(40));
        }
    }
}
