//! Several stores behind one source (`stores = […]`): one of them may die and ids go on, none comes twice, and a mill with
//! other stores, another order or another chunk is refused.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test -p keymill-tests --test interleave`); the servers that
//! are killed are the tests' own.

mod banks;
mod complete;
mod losses;
mod marks;
mod mills;
mod numbers;
mod readers;
mod records;
mod routes;
mod servers;
mod silent;
mod workers;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keymill::SerialPattern;
use keymill::store::interleave::Interleaved;
use keymill::store::memory::{Memory, MemoryStore, Step};
use keymill::store::{
    Catalogue, Fault, FaultKind, Key, Mark, Partition, Request, Reserved, RowMark, RowStore, Scheme,
    SerialKey, Store,
};
use keymill::time::{Clock, ManualClock};
use keymill_tests::{assert_disjoint, schemes, takers, wordless};

const CHUNK: u64 = 1000;
const PATIENCE: Duration = Duration::from_secs(300);

fn until(what: &str, is_true: impl FnMut() -> bool) {
    takers::until(what, PATIENCE, is_true);
}

fn unique(name: &str) -> String {
    format!("{name}_{}_{}", std::process::id(), fastrand::u32(..))
}

fn key(scheme: Scheme, name: &str) -> Arc<Key> {
    Arc::new(Key { step: 100, ..Key::segment(scheme, scheme.default_table(), name) })
}

/// The rows of segments that several stores may keep together: not those from which other programs allocate.
fn shared() -> impl Iterator<Item = Scheme> {
    schemes::in_rows().filter(|scheme| scheme.keeps_segments() && !scheme.keeps_allocation())
}

/// The segment of scheme `keymill` that most tests use.
fn orders(len: u64) -> Request {
    keymill_tests::request(&key(Scheme::Keymill, "orders"), len)
}

fn seen(request: &Request, next: u64) -> Request {
    Request { high_water: Mark { period: 0, next }, ..request.clone() }
}

fn memories<const N: usize>() -> [Arc<Memory>; N] {
    let _ = wordless::is_on();
    std::array::from_fn(|_| Memory::new())
}

fn of_memories(memories: &[&Arc<Memory>], chunk: u64) -> Interleaved {
    let stores = memories.iter().enumerate().map(|(n, memory)| {
        let store: Box<dyn Store> = Box::new(MemoryStore::new(Arc::clone(memory)));
        (format!("memory:{n}"), store)
    });
    Interleaved::new(stores.collect(), chunk)
}

/// The same with a clock of its own: a store that failed is asked again when the clock was moved on.
fn at_hand(memories: &[&Arc<Memory>]) -> (Interleaved, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::new(0));
    (of_memories(memories, CHUNK).with_clock(Clock::Manual(Arc::clone(&clock))), clock)
}

/// Longer than any pause.
const PAUSE_MS: u64 = 120_000;

/// Kinds, rows and whom to ask do not depend on what messages say.
#[test]
fn behaviour_is_the_same_when_every_message_is_x() {
    let servers = ["servers::", "mills::", "mariadb", "postgresql", "a_sequence_", "numbers::"];
    let skipped = servers.iter().chain(&["when_every_message_is_x"]);
    wordless::run_again(&skipped.flat_map(|name| ["--skip", name]).collect::<Vec<_>>());
}

/// The position of a store's row, in that store's own numbers.
fn stands(memory: &Arc<Memory>, key: &Key) -> Option<Mark> {
    MemoryStore::new(Arc::clone(memory)).look(key).unwrap().map(|row| row.mark)
}

/// A store's row with its status.
fn row_of(memory: &Arc<Memory>, key: &Key) -> Option<RowMark> {
    MemoryStore::new(Arc::clone(memory)).look(key).unwrap().map(|row| row.row_mark())
}

/// A row of one of several stores.
fn part(stores: u64, index: u64, chunk: u64, next: u64) -> RowMark {
    RowMark::open(Some(Partition { stores, index, chunk }), next)
}

/// The index of the store that owns a number.
fn owner(number: u64, stores: u64) -> u64 {
    (number - 1) / CHUNK % stores
}

fn refused(answer: Result<Reserved, Fault>, kind: FaultKind, says: &[&str]) {
    let fault = answer.expect_err("a fault was expected");
    eprintln!("{:?}: {fault}", fault.kind);
    assert_eq!(fault.kind, kind, "{fault}");
    for part in says {
        assert!(wordless::says(&fault, part), "`{part}` is not in: {fault}");
    }
    assert!(!fault.to_string().contains('\n'), "one line: {fault}");
}

/// Takes this many ranges, each above the one before, and answers with them.
fn take(store: &mut dyn Store, request: &mut Request, ranges: usize) -> Vec<(u64, u64)> {
    let mut got = Vec::new();
    let give_up = Instant::now() + PATIENCE;
    for _ in 0..ranges {
        let range = loop {
            let asked = Instant::now();
            match store.reserve(request) {
                Ok(range) => break range,
                // Of stores that rest the second is asked only if the first answered at once: not if this thread did not run.
                Err(fault)
                    if fault.kind == FaultKind::Unavailable
                        && asked.elapsed() >= Duration::from_millis(100)
                        && Instant::now() < give_up => {}
                Err(fault) => panic!("{fault}"),
            }
        };
        assert!(range.lo >= request.high_water.next && range.lo < range.hi, "{range:?} rises");
        request.high_water = Mark { period: range.period, next: range.hi };
        got.push((range.lo, range.hi));
    }
    got
}

// ---- stores that fail ----

#[test]
fn a_store_that_is_down_is_skipped_in_the_same_call_and_if_both_are_down_both_are_named() {
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
        assert!(news.iter().any(|fault| wordless::says(fault, name)), "{name}: {news:?}");
    }
    assert_eq!(store.news(), [], "told once");
    a.set_down(true);
    b.set_down(true);
    let says = ["store 1 of 2 (memory:0)", "store 2 of 2 (memory:1)", "reserving 100 for `segment:orders`"];
    refused(store.reserve(&request), FaultKind::Unavailable, &says);
    refused(store.reserve(&request), FaultKind::Unavailable, &says);
}

#[test]
fn a_store_that_is_up_again_serves_at_once_when_all_the_others_are_down() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let mut request = orders(100);
    take(&mut store, &mut request, 1);
    for round in 0..6 {
        let (first, second) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        // It has been down for long, so its pause is longer.
        first.set_down(true);
        take(&mut store, &mut request, 25);
        second.set_down(true);
        for _ in 0..round {
            store.reserve(&request).unwrap_err();
        }
        first.set_down(false);
        if round > 2 {
            // A fault of a row there ends the pause of the server.
            first.fail_next(Step::Refused("its row is held".to_owned()));
            refused(store.reserve(&request), FaultKind::Unavailable, &["its row is held"]);
        }
        take(&mut store, &mut request, 1);
        // A new process finds it too.
        let mut begun = of_memories(&[&a, &b], CHUNK);
        take(&mut begun, &mut request.clone(), 1);
        second.set_down(false);
        take(&mut store, &mut request, 25);
    }
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
    refused(of_memories(&[&a, &b], CHUNK).reserve(&orders(1)), FaultKind::Unavailable, &says);
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
    for scheme in shared() {
        for deleted in [false, true] {
            let [a, b] = memories();
            let mut store = of_memories(&[&a, &b], CHUNK);
            let mut request = keymill_tests::request(&key(scheme, "orders"), 100);
            // Both have been used, and the process is far above its last range of `a`.
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
            assert!(wordless::says(told, "store 1 of 2 (memory:0)"), "{told}");
            assert!(wordless::says(told, "keymill repair 'segment:orders'"), "{told}");
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
fn a_row_lost_between_processes_is_noticed_by_the_other_stores_numbers() {
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

// ---- mills that count otherwise ----

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
    for row in [part(3, 0, CHUNK, 9000), part(2, 0, CHUNK - 1, 9000), RowMark::open(None, 9000)] {
        a.set_row_mark(&request.key, row).unwrap();
        for (lo, _) in take(&mut store, &mut request, 25) {
            assert_eq!(owner(lo, 2), 1);
        }
        until("the store that rests is asked again, and told of", || {
            take(&mut store, &mut request, 5);
            let news = store.news();
            news.iter().any(|fault| fault.kind == FaultKind::Refused && wordless::says(fault, "store 1 of 2"))
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
    for scheme in shared() {
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
        // A program of another kind does not read the record; that cannot be prevented.
        if scheme == Scheme::Keymill {
            refused(plain.reserve(&request), FaultKind::Refused, &["its `stores`"]);
        }
    }
}

#[test]
fn serials_and_marks_are_not_partitioned() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    let pattern = SerialPattern::new("yyyyMMdd", "0000", "UTC").unwrap();
    let serial = SerialKey { table: "a".into(), column: "b".into(), pattern, init_max: false };
    let day = Arc::new(Key::of_serials(Scheme::Keymill, "keymill_segment", serial));
    let says = ["`serial:A/B?date=yyyyMMdd&number=0000`: serial numbers", "a mill with one store"];
    refused(store.reserve(&keymill_tests::request(&day, 1)), FaultKind::Refused, &says);
    let mark = Arc::new(Key::mark("keymill_segment", "tx", "L", 1));
    assert_eq!(store.raise(&mark, None, 500).unwrap(), 0);
    assert_eq!(
        stands(&b, &mark).map(|mark| mark.next),
        Some(500),
        "worker 1 of two stores lives in the second"
    );
    assert_eq!(stands(&a, &mark), None);
    let other = Arc::new(Key::mark("keymill_segment", "tx", "L", 4));
    assert_eq!(store.raise(&other, None, 500).unwrap(), 0);
    assert_eq!(stands(&a, &other).map(|mark| mark.next), Some(500), "worker 4 lives in the first");
    assert!(store.look(&mark).unwrap().is_some());
}

// ---- what an operator sees ----

#[test]
fn look_repair_and_facts_cover_every_store() {
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
    let down = "store 2 of 2 (memory:1): looking at `segment:orders` failed";
    assert!(wordless::says(&row.text, down), "{}", row.text);
    let facts = of_memories(&[&a, &b], CHUNK).facts().unwrap();
    assert_eq!((facts.dialect.as_str(), facts.durability.len()), ("interleaved", 2));
    assert!(store.repair(&key, Mark { period: 0, next: 90_000 }).is_err(), "repair wants every store");
    b.set_down(false);
    let (before, after) = store.repair(&key, Mark { period: 0, next: 90_500 }).unwrap();
    assert!(before.is_some());
    assert_eq!(after.mark.next, 90_500);
    // 90 500 is in chunk 90, which is the first store's; the second continues in chunk 91.
    assert!(after.text.contains("next=90500") && after.text.contains("next=91001"), "{}", after.text);
    // Below every row there is nothing to raise; between two rows there is.
    for low in [1, 90_499] {
        let to = Mark { period: 0, next: low };
        for fault in [store.repair(&key, to).unwrap_err(), store.would_repair(&key, to).unwrap_err()] {
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            let says = format!(
                "store 1 of 2 (memory:0), stands at 90500, above {low}, and repair never lowers a row"
            );
            assert!(wordless::says(&fault, &says), "{fault}");
        }
    }
    for between in [90_500, 90_700] {
        store.would_repair(&key, Mark { period: 0, next: between }).unwrap();
    }
    assert_eq!(row_of(&a, &key), Some(part(2, 0, CHUNK, 45_500)));
    assert_eq!(row_of(&b, &key), Some(part(2, 1, CHUNK, 45_001)));
}
