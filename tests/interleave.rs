//! Several stores behind one source (`stores = […]`): one may die and ids go on, none comes twice, and whoever counts
//! otherwise is refused.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/mariadb run cargo test -p keymill-tests --test interleave`); the servers that
//! are killed are the tests' own.

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use keymill::SerialPattern;
use keymill::store::interleave::Interleaved;
use keymill::store::memory::{Memory, MemoryStore, Step};
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{
    Columns, Fault, FaultKind, Key, MAX_NUMBER, Mark, Request, Reserved, Scheme, SerialKey, Store,
};
use keymill::{Code, Mill};
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::server::{self, Private};
use keymill_tests::worker;

const CHUNK: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(30);

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < give_up, "waited {PATIENCE:?} in vain until {what}");
        thread::yield_now();
    }
}

fn unique(name: &str) -> String {
    format!("{name}_{}_{}", std::process::id(), fastrand::u32(..))
}

fn key(scheme: Scheme, name: &str) -> Arc<Key> {
    Arc::new(Key {
        scheme,
        table: scheme.default_table().to_owned(),
        name: format!("segment:{name}"),
        serial: None,
        step: 100,
        unsafe_on: false,
        stride: keymill::store::Stride::EVERY,
        columns: Columns::default(),
    })
}

/// The segment of scheme `keymill` that most tests use.
fn orders(len: u64) -> Request {
    keymill_tests::request(&key(Scheme::Keymill, "orders"), len)
}

fn seen(request: &Request, next: u64) -> Request {
    Request { high_water: Mark { period: 0, next }, ..request.clone() }
}

fn memories<const N: usize>() -> [Arc<Memory>; N] {
    std::array::from_fn(|_| Memory::new())
}

fn of_memories(memories: &[&Arc<Memory>], chunk: u64) -> Interleaved {
    let stores = memories.iter().enumerate().map(|(n, memory)| {
        let store: Box<dyn Store> = Box::new(MemoryStore::new(Arc::clone(memory)));
        (format!("memory:{n}"), store)
    });
    Interleaved::new(stores.collect(), chunk)
}

/// Where a row of a store stands, in that store's own numbers.
fn stands(memory: &Arc<Memory>, key: &Key) -> Option<Mark> {
    MemoryStore::new(Arc::clone(memory)).look(key).unwrap().map(|row| row.mark)
}

/// The share's code, as it is written: stores, index in two digits, chunk in fourteen.
fn code(stores: u64, index: u64, chunk: u64) -> u64 {
    format!("{stores}{index:02}{chunk:014}").parse().unwrap()
}

/// Which of `stores` owns a number.
fn owner(number: u64, stores: u64) -> u64 {
    (number - 1) / CHUNK % stores
}

fn refused(answer: Result<Reserved, Fault>, kind: FaultKind, says: &[&str]) {
    let fault = answer.expect_err("a fault was expected");
    eprintln!("{:?}: {}", fault.kind, fault.message);
    assert_eq!(fault.kind, kind, "{fault}");
    for part in says {
        assert!(fault.message.contains(part), "`{part}` is not in: {fault}");
    }
    assert!(!fault.message.contains('\n'), "one line: {fault}");
}

/// Takes so many ranges, each above the one before, and answers with them.
fn take(store: &mut dyn Store, request: &mut Request, ranges: usize) -> Vec<(u64, u64)> {
    let mut got = Vec::new();
    for _ in 0..ranges {
        let range = store.reserve(request).unwrap();
        assert!(range.lo >= request.high_water.next && range.lo < range.hi, "{range:?} rises");
        request.high_water = Mark { period: range.period, next: range.hi };
        got.push((range.lo, range.hi));
    }
    got
}

fn assert_disjoint(mut ranges: Vec<(u64, u64)>) -> u64 {
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{:?} and {:?} overlap", pair[0], pair[1]);
    }
    ranges.iter().map(|(lo, hi)| hi - lo).sum()
}

// ---- numbers ----

#[test]
fn alone_a_process_gets_every_number_although_the_stores_alternate() {
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
                                // What a larger request left over may come now.
                                assert!(range.hi - range.lo < 400);
                                request.high_water = Mark { period: 0, next: range.hi };
                                got.push((range.lo, range.hi));
                            }
                            Err(fault) => assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}"),
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
fn what_runs_over_a_chunks_end_is_issued_later_without_the_store() {
    let [a, b] = memories();
    let key = key(Scheme::SequenceTable, "orders");
    for memory in [&a, &b] {
        // The row's step is five chunks, so every reservation runs over.
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
    assert!(store.give_back(&key, 0, lo + 10, hi).unwrap());
    let mut next = [&a, &b].map(|memory| stands(memory, &key).unwrap().next);
    next.sort_unstable();
    // Who began at the second store has left the first chunk of the first one out.
    let begun_at_the_second = owner(lo, 2) == 1;
    assert_eq!(next, if begun_at_the_second { [11, CHUNK + 1] } else { [1, 11] });
    // Somebody else has moved a row: nothing is given back.
    let range = of_memories(&[&a, &b], CHUNK).reserve(&seen(&request, hi)).unwrap();
    assert!(!store.give_back(&key, 0, range.lo - 5, range.hi - 5).unwrap());
}

// ---- stores that fail ----

#[test]
fn a_store_that_is_down_is_passed_over_in_the_same_call_and_both_down_are_named() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let mut request = orders(100);
    take(&mut store, &mut request, 1);
    for round in 0..4 {
        let (down, up) = if round % 2 == 0 { (&a, 1) } else { (&b, 0) };
        down.set_down(true);
        for (lo, _) in take(&mut store, &mut request, 25) {
            assert_eq!(owner(lo, 2), up, "round {round}");
        }
        down.set_down(false);
    }
    let news = store.news();
    assert!(news.iter().all(|fault| fault.kind == FaultKind::Unavailable), "{news:?}");
    for name in ["store 1 of 2 (memory:0)", "store 2 of 2 (memory:1)"] {
        assert!(news.iter().any(|fault| fault.message.contains(name)), "{name}: {news:?}");
    }
    assert_eq!(store.news(), [], "told once");
    a.set_down(true);
    b.set_down(true);
    let says = ["store 1 of 2 (memory:0)", "store 2 of 2 (memory:1)", "reserving 100 for `segment:orders`"];
    refused(store.reserve(&request), FaultKind::Unavailable, &says);
    refused(store.reserve(&request), FaultKind::Unavailable, &says);
    b.set_down(false);
    // One of those who rest is asked at once; at the latest the rests are over.
    until("the store that is up again serves", || store.reserve(&request).is_ok());
}

#[test]
fn an_unknown_outcome_burns_the_range_and_the_next_store_serves() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let mut request = orders(100);
    let first = owner(take(&mut store, &mut request, 1)[0].0, 2);
    let lost = [&a, &b][first as usize];
    let before = stands(lost, &request.key).unwrap().next;
    lost.fail_next(Step::Lost);
    let (lo, _) = take(&mut store, &mut request, 1)[0];
    assert_ne!(owner(lo, 2), first);
    assert_eq!(stands(lost, &request.key).unwrap().next, before + 100, "reserved for nobody");
    assert_eq!(store.news()[0].kind, FaultKind::Unknown);
}

#[test]
fn a_new_source_begins_when_every_store_answers_and_one_that_has_begun_needs_one() {
    let [a, b] = memories();
    b.set_down(true);
    let says = ["a new source begins when every store answers", "store 2 of 2 (memory:1)"];
    refused(of_memories(&[&a, &b], CHUNK).reserve(&orders(1)), FaultKind::Refused, &says);
    assert_eq!(stands(&a, &orders(1).key), None, "nothing was written");
    b.set_down(false);
    of_memories(&[&a, &b], CHUNK).reserve(&orders(1)).unwrap();
    for down in [&a, &b] {
        down.set_down(true);
        of_memories(&[&a, &b], CHUNK).reserve(&orders(1)).unwrap();
        down.set_down(false);
    }
}

// ---- rows that went backwards ----

#[test]
fn a_row_set_back_on_one_store_is_refused_there_and_the_others_go_on() {
    for scheme in [Scheme::Keymill, Scheme::SequenceTable, Scheme::LeafAlloc, Scheme::Cosid] {
        for deleted in [false, true] {
            let [a, b] = memories();
            let mut store = of_memories(&[&a, &b], CHUNK);
            let mut request = keymill_tests::request(&key(scheme, "orders"), 100);
            // Both have been used, and the process stands far above its last range of `a`.
            while [&a, &b]
                .iter()
                .any(|memory| stands(memory, &request.key).is_none_or(|mark| mark.next < 500))
            {
                take(&mut store, &mut request, 1);
            }
            let on_a = stands(&a, &request.key).unwrap();
            let back = Mark { next: on_a.next - 1, ..on_a };
            if deleted {
                a.delete_row(&request.key);
            } else {
                a.set_row(&request.key, back).unwrap();
            }
            for (lo, _) in take(&mut store, &mut request, 40) {
                assert_eq!(owner(lo, 2), 1, "{scheme:?}: only `b` serves");
            }
            let left = stands(&a, &request.key);
            assert_eq!(left, (!deleted).then_some(back), "{scheme:?}: the row is left as it is");
            let news = store.news();
            let told = news.iter().find(|fault| fault.kind == FaultKind::WentBackwards).expect("it is told");
            assert!(told.message.contains("store 1 of 2 (memory:0)"), "{told}");
            assert!(told.message.contains("keymill repair 'segment:orders'"), "{told}");
            b.set_down(true);
            assert!(store.reserve(&request).is_err(), "nobody else is there, and `a` stays refused");
            b.set_down(false);
            let to = request.high_water.next + 50;
            store.repair(&request.key, Mark { period: 0, next: to }).unwrap();
            until("`a` serves again", || {
                let range = store.reserve(&request).unwrap();
                request.high_water.next = range.hi;
                range.lo >= to && owner(range.lo, 2) == 0
            });
        }
    }
}

#[test]
fn over_random_restores_no_client_is_given_numbers_of_a_row_below_what_it_has_seen() {
    let mut refusals = 0;
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let memories: [Arc<Memory>; 3] = memories();
        let all: Vec<&Arc<Memory>> = memories.iter().collect();
        let mut clients: Vec<(Interleaved, Request, [u64; 3])> =
            (0..4).map(|_| (of_memories(&all, CHUNK), orders(1), [0; 3])).collect();
        let mut backups: Vec<_> = all.iter().map(|memory| memory.snapshot()).collect();
        let rows = || [0, 1, 2].map(|n| stands(all[n], &orders(1).key).map_or(0, |mark| mark.next));
        let reservations = || all.iter().map(|memory| memory.reservations()).sum::<u64>();
        for _ in 0..120 {
            let n = rng.usize(..3);
            match rng.u32(..12) {
                0 => backups[n] = all[n].snapshot(),
                1 => all[n].restore(&backups[n]),
                2 => all[n].fail_next(Step::NotApplied),
                3 => all[n].fail_next(Step::Lost),
                _ => {}
            }
            let (store, request, seen) = &mut clients[rng.usize(..4)];
            request.len = rng.u64(1..700);
            let (before, asked) = (rows(), reservations());
            if let Ok(range) = store.reserve(request) {
                assert!(range.lo >= request.high_water.next, "seed {seed}");
                request.high_water.next = range.hi;
                let from = owner(range.lo, 3) as usize;
                if reservations() > asked {
                    assert!(before[from] >= seen[from], "seed {seed}: a row below what was seen served");
                }
                let local = (range.hi - 2) / CHUNK / 3 * CHUNK + (range.hi - 2) % CHUNK + 2;
                seen[from] = seen[from].max(local);
            }
            refusals += store.news().iter().filter(|fault| fault.kind == FaultKind::WentBackwards).count();
        }
    }
    println!("{refusals} rows that went backwards were refused in 300 histories");
    assert!(refusals > 100, "{refusals}");
}

#[test]
fn a_store_that_lost_its_row_while_nobody_looked_is_noticed_by_its_siblings_numbers() {
    let [a, b] = memories();
    let key = orders(1).key;
    take(&mut of_memories(&[&a, &b], CHUNK), &mut orders(600), 4);
    assert!(b.delete_row(&key));
    let mut store = of_memories(&[&a, &b], CHUNK);
    let mut request = orders(100);
    for (lo, _) in take(&mut store, &mut request, 30) {
        assert_eq!(owner(lo, 2), 0, "an empty store would give its first numbers again");
    }
    assert_eq!(store.news()[0].kind, FaultKind::WentBackwards);
    assert_eq!(stands(&b, &key), None);
    store.repair(&key, Mark { period: 0, next: 50_000 }).unwrap();
    let mut request = seen(&request, 50_000);
    let owners: BTreeSet<u64> =
        take(&mut store, &mut request, 30).iter().map(|(lo, _)| owner(*lo, 2)).collect();
    assert_eq!(owners.len(), 2);
}

#[test]
fn healing_raises_a_row_that_was_set_back_where_the_source_says_so() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let mut request = Request { heal: true, max_jump: 100_000, ..orders(100) };
    take(&mut store, &mut request, 30);
    for memory in [&a, &b] {
        let mark = stands(memory, &request.key).unwrap();
        memory.set_row(&request.key, Mark { next: 2, ..mark }).unwrap();
    }
    take(&mut store, &mut request, 30);
    assert_eq!(store.news(), []);
}

// ---- who counts otherwise ----

#[test]
fn another_order_number_or_chunk_of_the_stores_is_refused_and_nothing_is_issued() {
    for scheme in [Scheme::Keymill, Scheme::SequenceTable, Scheme::TinyIdInfo] {
        let [a, b, c] = memories();
        let request = keymill_tests::request(&key(scheme, "orders"), 100);
        take(&mut of_memories(&[&a, &b], CHUNK), &mut request.clone(), 25);
        let rows = || [&a, &b, &c].map(|memory| stands(memory, &request.key));
        let before = rows();
        let all_wrong: [(&[&Arc<Memory>], u64, &str); 6] = [
            (&[&b, &a], CHUNK, "store 2 of 2 with chunk=1000"),
            (&[&a, &b, &c], CHUNK, "of 2 with chunk=1000, and this mill opens it as store"),
            (&[&c, &a, &b], CHUNK, "of 2 with chunk=1000"),
            (&[&a, &c, &b], CHUNK, "of 2 with chunk=1000"),
            (&[&a, &b], CHUNK + 1, "this mill opens it as store 1 of 2 with chunk=1001"),
            (&[&c, &b, &a], CHUNK, "of 2 with chunk=1000"),
        ];
        for (stores, chunk, says) in all_wrong {
            for _ in 0..8 {
                let answer = of_memories(stores, chunk).reserve(&request);
                refused(answer, FaultKind::Refused, &[says, "Open it with the `stores` and the `chunk`"]);
            }
        }
        assert_eq!(rows(), before, "{scheme:?}: nothing was written");
    }
}

#[test]
fn a_store_that_is_added_while_the_old_ones_are_down_gives_nothing() {
    let [a, b, c] = memories();
    take(&mut of_memories(&[&a, &b], CHUNK), &mut orders(100), 5);
    a.set_down(true);
    b.set_down(true);
    for _ in 0..8 {
        assert!(of_memories(&[&a, &b, &c], CHUNK).reserve(&orders(1)).is_err());
        assert!(of_memories(&[&c, &a], CHUNK).reserve(&orders(1)).is_err());
    }
    assert_eq!(stands(&c, &orders(1).key), None);
}

#[test]
fn two_names_of_one_store_are_refused_and_nothing_is_issued() {
    for scheme in [Scheme::Keymill, Scheme::SequenceTable] {
        let [a, b] = memories();
        let request = keymill_tests::request(&key(scheme, "orders"), 100);
        for _ in 0..8 {
            let answer = of_memories(&[&a, &a], CHUNK).reserve(&request);
            refused(answer, FaultKind::Refused, &["of 2 with chunk=1000, and this mill opens it as store"]);
            let answer = of_memories(&[&b, &a, &b], CHUNK).reserve(&request);
            refused(answer, FaultKind::Refused, &["with chunk=1000, and this mill opens it as store"]);
        }
        assert!(stands(&a, &request.key).is_none_or(|mark| mark.next <= 1));
        assert!(stands(&b, &request.key).is_none_or(|mark| mark.next <= 1));
    }
}

#[test]
fn a_row_that_another_order_has_taken_under_a_running_mill_is_named_and_the_others_go_on() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let mut request = orders(100);
    take(&mut store, &mut request, 25);
    for (share, next) in [(code(3, 0, CHUNK), 9000), (code(2, 0, CHUNK - 1), 9000), (0, 9000)] {
        a.set_row(&request.key, Mark { period: share, next }).unwrap();
        for (lo, _) in take(&mut store, &mut request, 25) {
            assert_eq!(owner(lo, 2), 1);
        }
        until("the store that rests is asked again, and told of", || {
            take(&mut store, &mut request, 5);
            let news = store.news();
            news.iter()
                .any(|fault| fault.kind == FaultKind::Refused && fault.message.contains("store 1 of 2"))
        });
    }
}

#[test]
fn a_plain_mill_is_refused_the_row_of_an_interleaved_source() {
    let [a, b] = memories();
    take(&mut of_memories(&[&a, &b], CHUNK), &mut orders(100), 1);
    for memory in [&a, &b] {
        let before = stands(memory, &orders(1).key);
        let answer = MemoryStore::new(Arc::clone(memory)).reserve(&orders(1));
        refused(answer, FaultKind::Refused, &["of 2 with chunk=1000", "its `stores`"]);
        assert_eq!(stands(memory, &orders(1).key), before);
    }
}

#[test]
fn a_plain_row_with_numbers_is_refused_until_an_operator_adopts_it() {
    for scheme in [Scheme::Keymill, Scheme::LeafAlloc, Scheme::Cosid] {
        let [a, b] = memories();
        let request = keymill_tests::request(&key(scheme, "orders"), 100);
        let mut plain = MemoryStore::new(Arc::clone(&a));
        take(&mut plain, &mut request.clone(), 30);
        let mut store = of_memories(&[&a, &b], CHUNK);
        for _ in 0..4 {
            let says =
                ["numbers up to 3000 of a source with one store", "keymill repair 'segment:orders' --to N"];
            refused(store.reserve(&request), FaultKind::Refused, &says);
        }
        assert_eq!(stands(&b, &request.key), None);
        let low = store.repair(&request.key, Mark { period: 0, next: 3000 });
        assert_eq!(low.map(drop).unwrap_err().kind, FaultKind::Refused, "3000 was issued");
        store.repair(&request.key, Mark { period: 0, next: 3001 }).unwrap();
        let ranges = take(&mut store, &mut request.clone(), 40);
        assert!(ranges.iter().all(|(lo, _)| *lo >= 3001), "{scheme:?}: {ranges:?}");
        // A program of another kind does not look at our record; that cannot be prevented.
        if scheme == Scheme::Keymill {
            refused(plain.reserve(&request), FaultKind::Refused, &["its `stores`"]);
        }
    }
}

#[test]
fn serials_and_marks_are_no_shares() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let pattern = SerialPattern::new("yyyyMMdd", "0000", "UTC").unwrap();
    let serial = SerialKey { table: "a".into(), column: "b".into(), pattern, init_max: false };
    let day = Arc::new(Key { name: "serial:a/b".into(), serial: Some(serial), ..(*orders(1).key).clone() });
    let says = ["`serial:a/b`: serial numbers", "a mill with one store"];
    refused(store.reserve(&keymill_tests::request(&day, 1)), FaultKind::Refused, &says);
    let mark = Arc::new(Key { name: "snowflake:tx?worker=1".to_owned(), ..(*orders(1).key).clone() });
    assert_eq!(store.raise(&mark, None, 500).unwrap(), 0);
    assert_eq!(stands(&a, &mark).map(|mark| mark.next), Some(500), "marks are kept by the first store");
    assert_eq!(stands(&b, &mark), None);
    assert!(store.look(&mark).unwrap().is_some());
    assert!(store.give_back(&mark, 0, 400, 500).unwrap());
}

// ---- what an operator sees ----

#[test]
fn look_repair_and_facts_tell_of_every_store() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let key = orders(1).key;
    assert_eq!(store.look(&key).unwrap(), None);
    let mut request = orders(100);
    take(&mut store, &mut request, 12);
    let row = store.look(&key).unwrap().unwrap();
    eprintln!("{}", row.text);
    assert!(row.text.contains("store 1 of 2 (memory:0): next=") && row.text.contains("store 2 of 2"));
    assert!(row.mark.next <= request.high_water.next);
    b.set_down(true);
    let row = store.look(&key).unwrap().unwrap();
    assert!(row.text.contains("store 2 of 2 (memory:1): looking at `segment:orders` failed"), "{}", row.text);
    let facts = store.facts().unwrap();
    assert_eq!((facts.dialect.as_str(), facts.durability.len()), ("interleaved", 2));
    assert!(store.repair(&key, Mark { period: 0, next: 90_000 }).is_err(), "repair wants every store");
    b.set_down(false);
    let (before, after) = store.repair(&key, Mark { period: 0, next: 90_500 }).unwrap();
    assert!(before.is_some());
    assert_eq!(after.mark.next, 90_500);
    // 90 500 lies in chunk 90, which is the first store's; the second goes on in chunk 91.
    assert!(after.text.contains("next=90500") && after.text.contains("next=91001"), "{}", after.text);
    // Below every row there is nothing to raise; between them there is.
    for low in [1, 90_499] {
        let to = Mark { period: 0, next: low };
        for fault in [store.repair(&key, to).unwrap_err(), store.would_repair(&key, to).unwrap_err()] {
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            let says = format!(
                "store 1 of 2 (memory:0), stands at 90500, above {low}, and repair never lowers a row"
            );
            assert!(fault.message.contains(&says), "{fault}");
        }
    }
    for between in [90_500, 90_700] {
        store.would_repair(&key, Mark { period: 0, next: between }).unwrap();
    }
    assert_eq!(stands(&a, &key), Some(Mark { period: code(2, 0, CHUNK), next: 45_500 }));
    assert_eq!(stands(&b, &key), Some(Mark { period: code(2, 1, CHUNK), next: 45_001 }));
}

// ---- real stores ----

/// A table of its own on the shared MariaDB.
fn table(scheme: Scheme) -> Arc<Key> {
    Arc::new(Key {
        table: unique("i"),
        name: format!("segment:{}", unique("orders")),
        ..(*key(scheme, "x")).clone()
    })
}

#[test]
fn stores_of_different_kinds_serve_every_scheme_together() {
    let folder = tempfile::tempdir().unwrap();
    for scheme in Scheme::ALL.into_iter().filter(|s| s.keeps_segments() && !s.is_ticket()) {
        let key = table(scheme);
        let memory = Memory::new();
        let open = || {
            let mysql: Box<dyn Store> = Box::new(server::store(server::options()));
            let file = folder.path().join("ids.db");
            let sqlite: Box<dyn Store> = Box::new(SqliteStore::new(file, sqlite::Options::default()));
            let memory: Box<dyn Store> = Box::new(MemoryStore::new(Arc::clone(&memory)));
            let stores = [("mysql", mysql), ("sqlite", sqlite), ("memory", memory)];
            Interleaved::new(
                stores.into_iter().map(|(name, store)| (name.to_owned(), store)).collect(),
                CHUNK,
            )
        };
        let statements = open().init(std::slice::from_ref(&key), false).unwrap();
        assert!(statements.iter().any(|line| line == "-- store 1 of 3 (mysql)"), "{statements:?}");
        let ranges: Vec<(u64, u64)> = thread::scope(|scope| {
            let clients: Vec<_> = (0..6)
                .map(|_| {
                    let (open, request) = (&open, keymill_tests::request(&key, 170));
                    scope.spawn(move || take(&mut open(), &mut request.clone(), 40))
                })
                .collect();
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        let owners: BTreeSet<u64> = ranges.iter().map(|(lo, _)| owner(*lo, 3)).collect();
        assert_eq!(owners.len(), 3, "{scheme:?}");
        assert!(assert_disjoint(ranges) > 0);
        server::say(&format!("DROP TABLE `{}`", key.table));
    }
}

#[test]
fn tickets_of_two_servers_are_shared_by_chunks() {
    let other = Private::start("");
    for scheme in [Scheme::AutoIncrement, Scheme::Ticket] {
        let key = table(scheme);
        let open = || {
            let stores = [server::options(), server::options_of(&other.url())].map(|options| {
                let store: Box<dyn Store> = Box::new(server::store(options));
                ("mysql".to_owned(), store)
            });
            Interleaved::new(stores.into(), CHUNK)
        };
        open().init(std::slice::from_ref(&key), false).unwrap();
        let mut ranges = Vec::new();
        for _ in 0..6 {
            ranges.extend(take(&mut open(), &mut keymill_tests::request(&key, 100), 40));
        }
        let owners: BTreeSet<u64> = ranges.iter().map(|(lo, _)| owner(*lo, 2)).collect();
        assert_eq!(owners.len(), 2, "{scheme:?}");
        println!("{}: {} numbers of two servers, 0 twice", scheme.name(), assert_disjoint(ranges));
        server::say(&format!("DROP TABLE `{}`", key.table));
    }
}

// ---- mills ----

fn config(folder: &Path, name: &str, stores: &[String], more: &str) -> String {
    let list: Vec<String> = stores.iter().map(|store| format!("\"{store}\"")).collect();
    let file = folder.join(name);
    std::fs::write(&file, format!("stores = [{}]\n{more}", list.join(", "))).unwrap();
    format!("file:{}", file.display())
}

#[test]
fn the_ids_of_one_process_rise_over_all_its_threads() {
    let folder = tempfile::tempdir().unwrap();
    let stores = ["a", "b"].map(|name| format!("sqlite:{}", folder.path().join(name).display()));
    let mill = Mill::open(&config(folder.path(), "keymill.toml", &stores, "chunk = 1000")).unwrap();
    let orders = mill.source("segment:orders?min_step=100&buffer=1ms").unwrap();
    let newest = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    let mut newest = newest.lock().unwrap();
                    let id = orders.next().unwrap();
                    assert!(id > *newest, "{id} after {newest}");
                    *newest = id;
                }
            });
        }
    });
    assert!(*newest.lock().unwrap() < 20_000 + 1000, "alone a process leaves few gaps");
    let error = mill.source("serial:cust_info/custid").map(drop).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig, "{error}");
    mill.source("snowflake:tx?worker=3").unwrap().next().unwrap();
    let shown = mill.store();
    assert!(shown.starts_with("[sqlite:") && shown.contains(", sqlite:"), "{shown}");
}

#[test]
fn a_worker_takes_from_several_stores_until_it_is_killed() {
    worker::work();
}

/// How many bytes the logs of a folder hold.
fn logged(folder: &Path) -> u64 {
    let logs = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let ids = logs.filter(|path| path.extension().is_some_and(|e| e == "ids"));
    ids.map(|path| std::fs::metadata(path).map_or(0, |file| file.len())).sum()
}

#[test]
fn one_of_two_servers_killed_under_load_and_ids_go_on_none_twice() {
    let folder = tempfile::tempdir().unwrap();
    let servers = [Private::start(""), Private::start("")];
    let urls: Vec<String> =
        servers.iter().map(|server| format!("{}?timeout=1s&connect_timeout=1s", server.url())).collect();
    let config = config(folder.path(), "keymill.toml", &urls, "chunk = 1000");
    let mill = Mill::open(&config).unwrap();
    // Five at a time: what is tested is reservations, and logs are read back.
    let spec = "segment:orders?step=5&max_step=5&buffer=1ms&deadline=5s";
    mill.init(&[spec], false).unwrap();
    let mine = mill.source(spec).unwrap();
    mine.next().unwrap();
    let mut workers: Vec<_> = (0..4)
        .map(|n| {
            let log = folder.path().join(format!("{n}.ids"));
            worker::start("a_worker_takes_from_several_stores_until_it_is_killed", &config, spec, &log)
        })
        .collect();
    let next_of = |server: &Private| -> u64 {
        use mysql::prelude::Queryable;
        let mut connection = server::connection_of(&server.url());
        connection.query_first("SELECT next FROM keymill_segment").unwrap().unwrap()
    };
    let mut alive = || {
        for (n, worker) in workers.iter_mut().enumerate() {
            if let Some(status) = worker.try_wait().unwrap() {
                let why = std::fs::read_to_string(folder.path().join(format!("{n}.stderr")));
                panic!("worker {n} ended by itself: {status}\n{}", why.unwrap_or_default());
            }
        }
    };
    let kept = Mutex::new(HashSet::new());
    let mut more = |what: &str| {
        let before = logged(folder.path());
        until(what, || {
            alive();
            kept.lock().unwrap().insert(mine.next().unwrap());
            thread::park_timeout(Duration::from_millis(1));
            logged(folder.path()) > before + 5000
        });
    };
    for round in 0..4 {
        let server = &servers[round % 2];
        more("workers take from both");
        server.kill();
        more("ids go on with one server");
        let other = next_of(&servers[(round + 1) % 2]);
        more("and on");
        assert!(next_of(&servers[(round + 1) % 2]) > other, "from the one that is left");
        server.start_again();
        let before = next_of(server);
        more("the server that came back serves again");
        until("its row moves", || {
            kept.lock().unwrap().insert(mine.next().unwrap());
            thread::park_timeout(Duration::from_millis(1));
            next_of(server) > before
        });
    }
    for worker in &mut workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    let log: String =
        kept.lock().unwrap().iter().fold(String::new(), |text, id| text + &id.to_string() + "\n");
    std::fs::write(folder.path().join("mine.ids"), log).unwrap();
    println!(
        "4 kills, {} ids of 5 processes and two servers, 0 duplicates",
        worker::count_distinct(folder.path())
    );
    assert!(mill.events().iter().any(|event| event.message.contains("store 2 of 2")), "an operator is told");
    let metrics = mill.metrics();
    assert!(!metrics.contains("keymill_refills_failed_total 0\n"), "{metrics}");

    for server in &servers {
        server.kill();
    }
    let quick = mill.source("segment:orders?step=5&max_step=5&buffer=1ms&deadline=700ms").unwrap();
    let error = loop {
        let asked = Instant::now();
        match quick.next() {
            Ok(_) => {}
            Err(error) => {
                assert!(asked.elapsed() < Duration::from_millis(1200), "waited {:?}", asked.elapsed());
                break error;
            }
        }
    };
    assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
    until("the error names each store", || {
        let error = quick.next().unwrap_err();
        error.message.contains("store 1 of 2 (mysql://") && error.message.contains("store 2 of 2 (mysql://")
    });
    for server in &servers {
        server.start_again();
    }
    until("ids flow again", || quick.next().is_ok());
}

#[test]
fn a_frozen_store_costs_its_timeout_now_and_then_and_not_at_every_refill() {
    let other = Private::start("");
    let proxy = Proxy::start(server::options().hosts[0].clone());
    let folder = tempfile::tempdir().unwrap();
    let (host, port) = proxy.address();
    let url = server::url();
    let (login, database) = (url.rsplit_once('@').unwrap().0, url.rsplit_once('/').unwrap().1);
    let times = "timeout=300ms&connect_timeout=300ms";
    let stores = [format!("{login}@{host}:{port}/{database}?{times}"), format!("{}?{times}", other.url())];
    let mill = Mill::open(&config(folder.path(), "keymill.toml", &stores, "chunk = 1000")).unwrap();
    let spec = format!("segment:{}?step=100&buffer=1ms", unique("frozen"));
    mill.init(&[&spec], false).unwrap();
    let orders = mill.source(&spec).unwrap();
    orders.take(5000).unwrap();
    proxy.set(Answers::Hold);
    let refills = || orders.stats().unwrap().refills;
    let (before, began) = (refills(), Instant::now());
    let mut worst = Duration::ZERO;
    while refills() < before + 300 {
        let asked = Instant::now();
        orders.take(100).expect("the other store serves");
        worst = worst.max(asked.elapsed());
    }
    let (took, each) = (began.elapsed(), Duration::from_millis(300));
    println!(
        "300 refills beside a frozen store took {took:?}, the slowest {worst:?}; its timeout is {each:?}"
    );
    assert!(took < 300 * each / 10, "{took:?}: the timeout was paid at every refill");
    proxy.set(Answers::Pass);
}
