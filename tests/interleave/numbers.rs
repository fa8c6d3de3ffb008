//! Which numbers a process gets from several stores, and that none comes twice.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::thread;

use keymill::store::memory::{Memory, MemoryStore, Step};
use keymill::store::{FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Request, RowStore, Scheme};

use super::{CHUNK, assert_disjoint, key, memories, of_memories, orders, owner, seen, stands, take};

#[test]
fn a_single_process_gets_every_number_although_the_stores_alternate() {
    let [a, b, c] = memories();
    let mut store = of_memories(&[&a, &b, &c], CHUNK);
    let ranges = take(&mut store, &mut orders(300), 40);
    for pair in ranges.windows(2) {
        assert_eq!(pair[0].1, pair[1].0, "no gap between two ranges");
    }
    let owners: BTreeSet<u64> = ranges.iter().map(|(lo, _)| owner(*lo, 3)).collect();
    assert_eq!(owners.len(), 3, "every store had its turn");
    for (lo, hi) in ranges {
        assert_eq!(owner(lo, 3), owner(hi - 1, 3), "a range lies in one chunk");
    }
}

#[test]
fn processes_begin_at_stores_drawn_at_random() {
    let [a, b] = memories();
    let begins: BTreeSet<u64> =
        (0..64).map(|_| owner(of_memories(&[&a, &b], CHUNK).reserve(&orders(1)).unwrap().lo, 2)).collect();
    assert_eq!(begins.len(), 2);
}

#[test]
fn sixteen_clients_of_three_stores_that_fail_never_overlap_and_each_rises() {
    let memories: [Arc<Memory>; 3] = memories();
    let all: Vec<&Arc<Memory>> = memories.iter().collect();
    // Recorded before the stores begin to fail.
    of_memories(&all, CHUNK).reserve(&orders(1)).unwrap();
    let together = Barrier::new(16);
    let ranges: Vec<(u64, u64)> = thread::scope(|scope| {
        let clients: Vec<_> = (0..16)
            .map(|client| {
                let (all, together) = (&all, &together);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(client);
                    let mut store = of_memories(all, CHUNK);
                    let mut request = orders(0);
                    let mut got = Vec::new();
                    together.wait();
                    while got.len() < 300 {
                        let step = match rng.u32(..10) {
                            0 => Some(Step::Lost),
                            1 => Some(Step::Cut),
                            2 => Some(Step::NotApplied),
                            _ => None,
                        };
                        if let Some(step) = step {
                            all[rng.usize(..3)].fail_next(step);
                        }
                        request.len = rng.u64(1..400);
                        match store.reserve(&request) {
                            Ok(range) => {
                                assert!(range.lo >= request.high_water.next && range.lo < range.hi);
                                // Left-over numbers of a larger request may come now.
                                assert!(range.hi - range.lo < 400);
                                request.high_water = Mark { period: 0, next: range.hi };
                                got.push((range.lo, range.hi));
                            }
                            Err(fault) => {
                                let kinds = [FaultKind::Unavailable, FaultKind::Conflict];
                                assert!(kinds.contains(&fault.kind), "{fault}");
                            }
                        }
                    }
                    got
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    println!("{} numbers of 16 clients and 3 stores that fail, 0 twice", assert_disjoint(ranges));
}

#[test]
fn numbers_beyond_a_chunks_end_are_issued_later_without_the_store() {
    let [a, b] = memories();
    let key = key(Scheme::SequenceTable, "orders");
    for memory in [&a, &b] {
        // The row's step is five chunks, so every reservation exceeds its chunk.
        let mut row = MemoryStore::new(Arc::clone(memory));
        row.reserve(&keymill_tests::request(&Arc::new(Key { step: 5 * CHUNK, ..(*key).clone() }), 1))
            .unwrap();
        memory.set_row(&key, Mark { period: 0, next: 1 }).unwrap();
    }
    let before = a.reservations() + b.reservations();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let ranges = take(&mut store, &mut keymill_tests::request(&key, 10), 10);
    assert_eq!(assert_disjoint(ranges), 10 * CHUNK);
    assert_eq!(a.reservations() + b.reservations() - before, 2, "ten ranges of two reservations");
}

#[test]
fn the_last_numbers_are_issued_and_nothing_wraps() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let mut request = orders(10);
    store.reserve(&request).unwrap();
    store.repair(&request.key, Mark { period: 0, next: MAX_NUMBER - 25 }).unwrap();
    let mut got = Vec::new();
    let fault = loop {
        match store.reserve(&request) {
            Ok(range) => {
                assert!(range.lo >= request.high_water.next && range.hi <= MAX_NUMBER + 1);
                request.high_water.next = range.hi;
                got.push((range.lo, range.hi));
            }
            Err(fault) => break fault,
        }
    };
    assert_eq!(fault.kind, FaultKind::Exhausted, "{fault}");
    assert_eq!(got.last().map(|(_, hi)| *hi), Some(MAX_NUMBER + 1), "the last number was issued");
    let small = Request { last: 1500, ..keymill_tests::request(&key(Scheme::Keymill, "small"), 10_000) };
    let mut got = Vec::new();
    while let Ok(range) = store.reserve(&seen(&small, got.last().map_or(0, |(_, hi)| *hi))) {
        got.push((range.lo, range.hi));
    }
    assert!(got.iter().all(|(_, hi)| *hi <= 1501) && !got.is_empty(), "{got:?}");
}

#[test]
fn unused_numbers_go_back_to_the_stores_they_came_from() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let key = orders(1).key;
    let mut request = orders(600);
    let ranges = take(&mut store, &mut request, 4);
    let (lo, hi) = (ranges[0].0, ranges[3].1);
    assert_eq!(hi - lo, 2 * CHUNK, "one chunk of each");
    assert!(store.give_back(&GiveBack::new(&key, 0, lo + 10, hi)).unwrap());
    let mut next = [&a, &b].map(|memory| stands(memory, &key).unwrap().next);
    next.sort_unstable();
    // A process that began at the second store has skipped the first chunk of the first store.
    let begun_at_the_second = owner(lo, 2) == 1;
    assert_eq!(next, if begun_at_the_second { [11, CHUNK + 1] } else { [1, 11] });
    // Another process has moved a row: nothing is returned.
    let range = of_memories(&[&a, &b], CHUNK).reserve(&seen(&request, hi)).unwrap();
    assert!(!store.give_back(&GiveBack::new(&key, 0, range.lo - 5, range.hi - 5)).unwrap());
}
