//! Several stores behind one source: who owns which numbers when columns are renamed, numbers are returned, rows are lost
//! and two processes begin at once.

use std::sync::Arc;

use keymill::store::interleave::Interleaved;
use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{
    BankStore, Catalogue, Columns, Facts, Fault, FaultKind, GiveBack, Key, Mark, ReaderStore, Request,
    Reserved, RouteStore, Row, RowStore, Scheme, SlotStore, Store,
};
use keymill_tests::wordless;

const CHUNK: u64 = 1000;

fn key(scheme: Scheme, columns: &[(&str, &str)]) -> Arc<Key> {
    let columns = columns.iter().map(|(standard, own)| ((*standard).to_owned(), (*own).to_owned())).collect();
    Arc::new(Key {
        columns: Columns::new(columns),
        step: 100,
        ..Key::segment(scheme, scheme.default_table(), "orders")
    })
}

fn orders(len: u64) -> Request {
    keymill_tests::request(&key(Scheme::Keymill, &[]), len)
}

fn above(request: &Request, next: u64) -> Request {
    Request { high_water: Mark { period: 0, next }, ..request.clone() }
}

fn of_memories(memories: [&Arc<Memory>; 2]) -> Interleaved {
    of_stores(memories.map(|memory| -> Box<dyn Store> { Box::new(MemoryStore::new(Arc::clone(memory))) }))
}

fn of_stores(stores: [Box<dyn Store>; 2]) -> Interleaved {
    let _ = wordless::is_on();
    let stores = stores.into_iter().enumerate().map(|(n, store)| (format!("store:{n}"), store));
    Interleaved::new(stores.collect(), CHUNK)
}

#[test]
fn two_columns_of_one_row_never_get_each_others_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a.db", "b.db"].map(|name| folder.path().join(name));
    for file in &files {
        // A step of five chunks: the rest of each reservation is kept for the next request.
        let table = "CREATE TABLE sequence_table (biz_type VARCHAR(50) PRIMARY KEY, cur_id BIGINT NOT NULL, \
                     other_id BIGINT NOT NULL, step INT NOT NULL, time_to_live INT NOT NULL);
                     INSERT INTO sequence_table VALUES ('orders', 0, 0, 5000, 0)";
        rusqlite::Connection::open(file).unwrap().execute_batch(table).unwrap();
    }
    let open = || {
        of_stores(files.each_ref().map(|file| -> Box<dyn Store> {
            Box::new(SqliteStore::new(file.clone(), sqlite::SqliteOptions::default()))
        }))
    };
    let one = keymill_tests::request(&key(Scheme::SequenceTable, &[]), 10);
    let other = keymill_tests::request(&key(Scheme::SequenceTable, &[("cur_id", "other_id")]), 10);
    let mut store = open();
    store.init(&[Arc::clone(&one.key), Arc::clone(&other.key)], false).unwrap();
    store.reserve(&one).unwrap();
    let mut ranges = vec![store.reserve(&other).unwrap()];
    for _ in 0..30 {
        // Processes that count only in the other column.
        ranges.push(open().reserve(&other).unwrap());
    }
    ranges.push(store.reserve(&above(&other, ranges[0].hi)).unwrap());
    disjoint(&ranges);
}

#[test]
fn numbers_of_a_renamed_column_that_was_counted_by_one_store_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let files = ["a.db", "b.db"].map(|name| folder.path().join(name));
    for (file, other) in files.iter().zip([2500, 0]) {
        let table = format!(
            "CREATE TABLE sequence_table (biz_type VARCHAR(50) PRIMARY KEY, cur_id BIGINT NOT NULL, \
             other_id BIGINT NOT NULL, step INT NOT NULL, time_to_live INT NOT NULL);
             INSERT INTO sequence_table VALUES ('orders', 0, {other}, 10, 0)"
        );
        rusqlite::Connection::open(file).unwrap().execute_batch(&table).unwrap();
    }
    let mut store = of_stores(files.each_ref().map(|file| -> Box<dyn Store> {
        Box::new(SqliteStore::new(file.clone(), sqlite::SqliteOptions::default()))
    }));
    let one = keymill_tests::request(&key(Scheme::SequenceTable, &[]), 10);
    store.init(std::slice::from_ref(&one.key), false).unwrap();
    store.reserve(&one).unwrap();
    let other = keymill_tests::request(&key(Scheme::SequenceTable, &[("cur_id", "other_id")]), 10);
    let fault = store.reserve(&other).expect_err("numbers up to 2500 are out");
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    assert!(wordless::says(&fault, "numbers up to 2500"), "{fault}");
}

#[test]
fn returned_left_over_numbers_are_not_issued_again() {
    let [a, b] = [Memory::new(), Memory::new()];
    let mut store = of_memories([&a, &b]);
    let first = store.reserve(&orders(990)).unwrap();
    // Another process at the same store: our next reservation begins later than we know, and exceeds its chunk.
    let mut moved = orders(5);
    moved.high_water.next = first.lo;
    let mut ranges = vec![first];
    while ranges.last().is_some_and(|last| last.lo / CHUNK != first.lo / CHUNK) || ranges.len() < 2 {
        ranges.push(of_memories([&a, &b]).reserve(&moved).unwrap());
    }
    let run_over = store.reserve(&above(&orders(10), first.hi)).unwrap();
    assert!(run_over.hi - run_over.lo < 10, "{run_over:?} ends with its chunk");
    assert!(store.give_back(&GiveBack::new(&orders(1).key, 0, run_over.lo, run_over.hi)).unwrap());
    for _ in 0..20 {
        ranges.push(of_memories([&a, &b]).reserve(&above(&orders(5), first.hi)).unwrap());
    }
    ranges.push(store.reserve(&above(&orders(10), run_over.hi)).unwrap());
    disjoint(&ranges);
}

fn disjoint(ranges: &[Reserved]) {
    keymill_tests::assert_disjoint(ranges.iter().map(|range| (range.lo, range.hi)).collect());
}

#[test]
fn a_row_lost_before_the_other_store_was_used_is_noticed() {
    for _ in 0..16 {
        let [a, b] = [Memory::new(), Memory::new()];
        let first = of_memories([&a, &b]).reserve(&orders(10)).unwrap();
        let lost = [&a, &b][usize::try_from((first.lo - 1) / CHUNK % 2).unwrap()];
        assert!(lost.delete_row(&orders(1).key));
        for _ in 0..8 {
            if let Ok(range) = of_memories([&a, &b]).reserve(&orders(10)) {
                assert!(range.lo >= first.hi, "{range:?} after {first:?}");
            }
        }
    }
}

/// A store on which a plain mill begins the source between the look at the row and the record in it.
struct Beside {
    store: MemoryStore,
    plain: Option<MemoryStore>,
    numbers: Arc<std::sync::Mutex<Vec<Reserved>>>,
}

impl RowStore for Beside {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        self.store.reserve(request)
    }

    fn give_back(&mut self, range: &GiveBack) -> Result<bool, Fault> {
        self.store.give_back(range)
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.store.raise(key, expect, to)
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        self.store.look(key)
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if let Some(mut plain) = self.plain.take() {
            self.numbers.lock().unwrap().push(plain.reserve(&orders(400))?);
        }
        self.store.repair(key, to)
    }
}

impl SlotStore for Beside {}

impl BankStore for Beside {}

impl RouteStore for Beside {}
impl ReaderStore for Beside {}

impl Catalogue for Beside {
    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        self.store.init(keys, dry_run)
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        self.store.facts()
    }
}

#[test]
fn a_plain_mill_that_begins_at_the_same_moment_never_has_its_numbers_again() {
    for late in 0..2 {
        let memories = [Memory::new(), Memory::new()];
        let numbers = Arc::default();
        let stores = [0, 1].map(|n| -> Box<dyn Store> {
            let client = || MemoryStore::new(Arc::clone(&memories[n]));
            let plain = (n == late).then(client);
            Box::new(Beside { store: client(), plain, numbers: Arc::clone(&numbers) })
        });
        let mut store = of_stores(stores);
        let mut ranges = Vec::new();
        for _ in 0..8 {
            let begun = store.reserve(&above(&orders(300), ranges.last().map_or(0, |r: &Reserved| r.hi)));
            ranges.extend(begun.ok());
            let other = of_memories([&memories[0], &memories[1]]).reserve(&orders(300));
            numbers.lock().unwrap().extend(other.ok());
        }
        ranges.extend(numbers.lock().unwrap().drain(..));
        disjoint(&ranges);
    }
}
