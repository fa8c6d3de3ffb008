//! Banks of which every counter has its row in every store: a counter that was never used is served while a store is gone, and a row
//! that was lost is never made again.

use std::collections::BTreeMap;
use std::sync::{Arc, Barrier};
use std::thread;

use keymill::simulation::counter_key;
use keymill::store::interleave::Interleaved;
use keymill::store::memory::{Memory, Step};
use keymill::store::{
    BankRow, BankSpec, BankStore, Catalogue, FaultKind, Key, Mark, Request, Reserved, Subject,
};

use super::{
    CHUNK, PAUSE_MS, assert_disjoint, at_hand, banks, memories, of_memories, owner, part, row_of, stands,
};

/// More than get their rows in one conversation.
const COUNTERS: u32 = 1_024;

fn spec(counters: u32) -> BankSpec {
    BankSpec { counters, is_named: true, wide: false }
}

fn counter(index: u32) -> Arc<Key> {
    counter_key(&banks::bank(), COUNTERS, index)
}

fn request(index: u32, len: u64, seen: u64) -> Request {
    Request { high_water: Mark { period: 0, next: seen }, ..keymill_tests::request(&counter(index), len) }
}

fn record() -> Key {
    let row = BankRow::Complete { counters: COUNTERS };
    Key { name: Subject::Bank { bank: "order".into(), row }.into(), ..Key::clone(&banks::bank()) }
}

/// A client that has opened the bank.
fn opened(stores: &[&Arc<Memory>]) -> Interleaved {
    let mut store = of_memories(stores, CHUNK);
    store.open_bank(&banks::bank(), spec(COUNTERS)).expect("the bank");
    store
}

/// Uses the first counter until every store records that the bank is complete; answers with the ranges.
fn complete(stores: &[&Arc<Memory>]) -> Vec<(u64, u64)> {
    let mut store = opened(stores);
    let mut ranges = Vec::new();
    for _ in 0..100 {
        ranges.extend(banks::all(store.reserve_counters(&[request(0, 16, 0)])));
        if stores.iter().all(|memory| stands(memory, &record()).is_some()) {
            return ranges;
        }
    }
    panic!("the bank is not complete");
}

fn one(store: &mut Interleaved, index: u32) -> Result<Reserved, keymill::store::Fault> {
    store.reserve_counters(&[request(index, 16, 0)]).remove(0)
}

#[test]
fn every_counter_gets_its_row_in_every_store_and_then_the_stores_record_it() {
    let [a, b, c] = memories();
    complete(&[&a, &b, &c]);
    for index in 1..COUNTERS {
        for (at, memory) in (0..).zip([&a, &b, &c]) {
            let first = Some(part(3, at, CHUNK, 1));
            assert_eq!(row_of(memory, &counter(index)), first, "counter {index} of store {at}");
        }
    }
    // Used or not is seen from the numbers.
    let rows = opened(&[&a, &b, &c]).look_bank(&banks::bank(), 1).expect("an answer").expect("a bank");
    assert!(rows.reserved[0] > 0 && rows.reserved[1..].iter().all(|reserved| *reserved == 0));
}

#[test]
fn rows_begin_where_the_source_does() {
    let [a, b] = memories();
    let mut store = opened(&[&a, &b]);
    let from = |index| Request { start: 5_001, ..request(index, 16, 0) };
    for _ in 0..10 {
        banks::all(store.reserve_counters(&[from(0)]));
    }
    a.set_down(true);
    let got = store.reserve_counters(&[from(9)]).remove(0).expect("the other store has its row");
    assert!(got.lo >= 5_001, "{got:?}");
}

#[test]
fn a_row_that_was_lost_after_its_store_alone_gave_numbers_is_not_made_again() {
    for deleted in 0..2 {
        let [a, b] = memories();
        complete(&[&a, &b]);
        let stores = [&a, &b];
        let (lost, other) = (stores[deleted], stores[1 - deleted]);
        // The other store is away while this one gives a counter's first numbers: its own row stands at its first.
        other.set_down(true);
        let used = one(&mut opened(&stores), 77).expect("a range");
        other.set_down(false);
        assert!(lost.delete_row(&counter(77)));
        for round in 0..8 {
            let (mut store, clock) = at_hand(&stores);
            store.open_bank(&banks::bank(), spec(COUNTERS)).expect("the bank");
            let got = if round % 2 == 0 {
                one(&mut store, 77).expect("the other store")
            } else {
                let together = [request(77, 16, 0), request(78, 16, 0)];
                banks::all(store.reserve_counters(&together));
                one(&mut store, 77).expect("the other store")
            };
            assert_eq!(owner(got.lo, 2), 1 - deleted as u64, "it was used up to {}: {got:?}", used.hi);
            assert_eq!(stands(lost, &counter(77)), None, "it is not made again");
            // And where the other one is away: nothing is better than twice.
            clock.advance(PAUSE_MS);
            other.set_down(true);
            one(&mut store, 77).expect_err("no store has its numbers");
            one(&mut opened(&stores), 77).expect_err("no store has its numbers");
            other.set_down(false);
            assert_eq!(stands(lost, &counter(77)), None, "it is not made again");
        }
        let mut store = opened(&stores);
        store.repair_bank(&banks::bank(), spec(COUNTERS), 100_000, false).expect("repaired");
        other.set_down(true);
        let got = one(&mut store, 77).expect("its row is there again");
        assert!(got.lo >= 100_000, "{got:?}");
    }
}

#[test]
fn a_process_that_opened_the_bank_at_the_store_that_was_put_back_makes_no_row_again() {
    for together in [false, true] {
        let [a, b] = memories();
        let mut begun = opened(&[&a, &b]);
        banks::all(begun.reserve_counters(&[request(0, 16, 0)]));
        let used_last: Vec<u32> =
            (0..COUNTERS).filter(|index| stands(&b, &counter(*index)).is_none()).take(2).collect();
        let backup = b.snapshot();
        complete(&[&a, &b]);
        // The first store is away: only the second one gives these counters' first numbers, and is put back.
        a.set_down(true);
        let used: Vec<u64> =
            used_last.iter().map(|index| one(&mut opened(&[&a, &b]), *index).expect("a range").hi).collect();
        b.restore(&backup);
        // A process begins while the record is in the store that is away.
        let (mut store, clock) = at_hand(&[&a, &b]);
        store.open_bank(&banks::bank(), spec(COUNTERS)).expect("the bank");
        one(&mut store, used_last[0]).expect_err("a store is away");
        a.set_down(false);
        clock.advance(PAUSE_MS);
        let requests: Vec<_> = used_last.iter().map(|index| request(*index, 16, 0)).collect();
        let ranges = if together {
            banks::all(store.reserve_counters(&requests))
        } else {
            requests
                .iter()
                .flat_map(|request| banks::all(store.reserve_counters(std::slice::from_ref(request))))
                .collect()
        };
        for ((lo, _), hi) in ranges.into_iter().zip(used) {
            assert_eq!(owner(lo, 2), 0, "the second store gave numbers up to {hi}, and gives {lo}");
        }
        for index in used_last {
            assert_eq!(stands(&b, &counter(index)), None, "it is not made again");
        }
    }
}

#[test]
fn a_store_that_was_put_back_to_before_the_rows_begins_none_of_them_again() {
    let [a, b] = memories();
    let backup = b.snapshot();
    let mut begun = opened(&[&a, &b]);
    banks::all(begun.reserve_counters(&[request(0, 16, 0)]));
    let younger = b.snapshot();
    complete(&[&a, &b]);
    a.set_down(true);
    let mut ranges: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    let mut store = opened(&[&a, &b]);
    for index in 0..COUNTERS {
        let range = one(&mut store, index).expect("a range");
        ranges.entry(index).or_default().push((range.lo, range.hi));
    }
    a.set_down(false);
    for backup in [younger, backup] {
        b.restore(&backup);
        for a_is_away in [false, true] {
            a.set_down(a_is_away);
            let mut store = of_memories(&[&a, &b], CHUNK);
            if store.open_bank(&banks::bank(), spec(COUNTERS)).is_err() {
                assert!(a_is_away);
                continue;
            }
            for index in 1..COUNTERS {
                // What the row of `b` says is an old number, as after every restore; a row that is not there is told.
                if stands(&b, &counter(index)).is_none()
                    && let Ok(range) = one(&mut store, index)
                {
                    ranges.entry(index).or_default().push((range.lo, range.hi));
                }
            }
        }
    }
    for (index, ranges) in ranges {
        assert!(index == 0 || ranges.len() <= 3, "counter {index}: {ranges:?}");
        assert_disjoint(ranges);
    }
}

#[test]
fn rows_are_not_made_where_one_of_the_stores_has_used_the_counter() {
    let [a, b] = memories();
    let mut old = opened(&[&a, &b]);
    // The bank is not complete yet. A counter of the second half and one of the first.
    for index in [5, 900] {
        banks::all(old.reserve_counters(&[request(index, 16, 0)]));
    }
    for index in [5, 900] {
        b.delete_row(&counter(index));
    }
    let (mut store, clock) = at_hand(&[&a, &b]);
    store.open_bank(&banks::bank(), spec(COUNTERS)).expect("the bank");
    for index in 0..200 {
        banks::all(store.reserve_counters(&[request(index % 4, 16, 0)]));
        clock.advance(PAUSE_MS);
    }
    for index in [5, 900] {
        assert_eq!(stands(&b, &counter(index)), None, "counter {index} had a row");
    }
    assert!(stands(&b, &counter(6)).is_some() && stands(&b, &counter(901)).is_some());
    assert_eq!(stands(&a, &record()), None, "it is not complete before it is repaired");
    store.repair_bank(&banks::bank(), spec(COUNTERS), 50_000, false).expect("repaired");
    complete(&[&a, &b]);
}

#[test]
fn a_crash_at_any_step_of_making_rows_repeats_no_number_and_the_bank_is_completed() {
    for step in [Step::Lost, Step::Cut, Step::NotApplied] {
        for after in 0..8 {
            for at in 0..3 {
                let all: [Arc<Memory>; 3] = memories();
                let stores: Vec<&Arc<Memory>> = all.iter().collect();
                let mut crashed = opened(&stores);
                // The process ends at its n-th write to a store.
                all[at].script((0..after).map(|_| Step::Ack).chain([step.clone()]));
                let mut ranges = Vec::new();
                for _ in 0..4 {
                    if let Ok(range) = one(&mut crashed, 0) {
                        ranges.push((range.lo, range.hi));
                    }
                    if all[at].clear_script() == 0 {
                        break;
                    }
                    all[at].script([step.clone()]);
                }
                drop(crashed);
                all[at].clear_script();
                ranges.extend(complete(&stores));
                assert_disjoint(ranges);
                for memory in &stores {
                    assert!((0..COUNTERS).all(|index| stands(memory, &counter(index)).is_some()));
                }
            }
        }
    }
}

#[test]
fn a_counter_whose_row_a_store_failed_to_make_waits_for_it_and_no_row_is_taken_for_a_lost_one() {
    for together in [false, true] {
        let [a, b] = memories();
        let mut maker = opened(&[&a, &b]);
        // The rows of other counters are made in the first store, and the second one fails then.
        b.script([Step::Ack, Step::NotApplied]);
        one(&mut maker, 0).expect("a range");
        let half: Vec<u32> = (1..COUNTERS)
            .filter(|index| stands(&a, &counter(*index)).is_some() && stands(&b, &counter(*index)).is_none())
            .collect();
        assert!(half.len() > 200, "{half:?}");
        b.set_down(true);
        let (mut store, clock) = at_hand(&[&a, &b]);
        store.open_bank(&banks::bank(), spec(COUNTERS)).expect("the bank has begun");
        let requests: Vec<_> =
            half[..if together { 9 } else { 1 }].iter().map(|index| request(*index, 16, 0)).collect();
        for answer in store.reserve_counters(&requests) {
            assert_eq!(answer.expect_err("a store is down").kind, FaultKind::Unavailable);
        }
        b.set_down(false);
        clock.advance(PAUSE_MS);
        banks::all(store.reserve_counters(&requests));
        store.news();
        complete(&[&a, &b]);
        a.set_down(true);
        banks::all(opened(&[&a, &b]).reserve_counters(&requests));
        assert!(store.news().is_empty(), "nothing was lost");
    }
}

#[test]
fn three_stores_serve_counters_that_were_never_used_while_one_is_gone_and_another_has_lost_rows() {
    let [a, b, c] = memories();
    let stores = [&a, &b, &c];
    complete(&stores);
    a.set_down(true);
    for index in 10..20 {
        b.delete_row(&counter(index));
    }
    let mut store = opened(&stores);
    let requests: Vec<_> = (5..30).map(|index| request(index, 16, 0)).collect();
    for (index, (lo, _)) in (5..).zip(banks::all(store.reserve_counters(&requests))) {
        let is_lost = (10..20).contains(&index);
        assert!(owner(lo, 3) == 2 || !is_lost && owner(lo, 3) == 1, "counter {index}: {lo}");
    }
    assert!((10..20).all(|index| stands(&b, &counter(index)).is_none()));
}

#[test]
fn processes_that_begin_a_bank_at_once_over_failing_stores_share_no_number_and_complete_it() {
    let all: [Arc<Memory>; 2] = memories();
    let stores: Vec<&Arc<Memory>> = all.iter().collect();
    opened(&stores);
    let together = Barrier::new(4);
    let taken: Vec<(u32, u64, u64)> = thread::scope(|scope| {
        let processes: Vec<_> = (0..4)
            .map(|process| {
                let (stores, together) = (&stores, &together);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(process);
                    let (mut store, clock) = at_hand(stores);
                    let mut got = Vec::new();
                    together.wait();
                    for _ in 0..120 {
                        if rng.u32(..5) == 0 {
                            let step = [Step::Lost, Step::Cut, Step::NotApplied][rng.usize(..3)].clone();
                            stores[rng.usize(..2)].fail_next(step);
                        }
                        clock.advance(rng.u64(..2_000));
                        let indexes: Vec<u32> = (0..rng.u32(1..30)).map(|_| rng.u32(..COUNTERS)).collect();
                        let indexes: std::collections::BTreeSet<u32> = indexes.into_iter().collect();
                        let requests: Vec<_> =
                            indexes.iter().map(|index| request(*index, rng.u64(1..300), 0)).collect();
                        for (index, answer) in indexes.into_iter().zip(store.reserve_counters(&requests)) {
                            got.extend(answer.map(|range| (index, range.lo, range.hi)));
                        }
                    }
                    got
                })
            })
            .collect();
        processes.into_iter().flat_map(|process| process.join().expect("a process")).collect()
    });
    for memory in &all {
        memory.clear_script();
    }
    let mut ranges: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
    for (index, lo, hi) in taken {
        ranges.entry(index).or_default().push((lo, hi));
    }
    // A store may have failed between its neighbour's row and its own, and the counter been used since.
    let mut store = opened(&stores);
    store.repair_bank(&banks::bank(), spec(COUNTERS), 1_000_000, false).expect("repaired");
    let repaired = complete(&stores);
    assert!(repaired.iter().all(|(lo, _)| *lo >= 1_000_000), "{repaired:?}");
    ranges.entry(0).or_default().extend(repaired);
    // Every row of one store is lost in turn, while the other one is away or not.
    for at in 0..2 {
        let mut rng = fastrand::Rng::with_seed(7);
        for _ in 0..300 {
            stores[1 - at].set_down(rng.bool());
            let index = rng.u32(..COUNTERS);
            if rng.u32(..8) == 0 {
                stores[at].delete_row(&counter(index));
            }
            if let Ok(range) = one(&mut opened(&stores), index) {
                ranges.entry(index).or_default().push((range.lo, range.hi));
            }
        }
        stores[1 - at].set_down(false);
    }
    for ranges in ranges.into_values() {
        assert_disjoint(ranges);
    }
}

#[test]
fn a_bank_that_was_given_another_number_of_counters_is_completed_anew() {
    let [a, b] = memories();
    let used = complete(&[&a, &b]);
    let mut store = opened(&[&a, &b]);
    let changed = store.change_counters(&banks::bank(), 2 * COUNTERS, false).expect("changed");
    let refused = one(&mut opened_before(&[&a, &b]), 3).expect_err("closed");
    assert_eq!(refused.kind, FaultKind::Closed, "{refused}");
    let more = |index| Request { key: counter_key(&banks::bank(), 2 * COUNTERS, index), ..request(0, 16, 0) };
    let mut store = of_memories(&[&a, &b], CHUNK);
    let open = store.open_bank(&banks::bank(), spec(2 * COUNTERS)).expect("the bank");
    assert_eq!(open.floor, changed.floor);
    let from = |index| Request { start: open.floor, ..more(index) };
    for _ in 0..20 {
        banks::all(store.reserve_counters(&[from(0)]));
    }
    for away in [&a, &b] {
        away.set_down(true);
        let mut store = of_memories(&[&a, &b], CHUNK);
        store.open_bank(&banks::bank(), spec(2 * COUNTERS)).expect("the bank");
        let got = store.reserve_counters(&[from(1_500)]).remove(0).expect("the other store has its row");
        assert!(used.iter().all(|(_, hi)| *hi <= got.lo), "{got:?} is above the numbers of before");
        away.set_down(false);
    }
}

/// A client of before the change.
fn opened_before(stores: &[&Arc<Memory>]) -> Interleaved {
    of_memories(stores, CHUNK)
}
