//! One suite for every store and scheme: what `keymill::store::Store` promises, proved against the real thing.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/mariadb run cargo test …` sets it); without it those tests fail and
//! say so, because a suite that skips in silence proves nothing.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use keymill::serial::SerialPattern;
use keymill::store::memory::{Memory, MemoryStore, Step};
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{
    Durability, Fault, FaultKind, Key, MAX_NUMBER, Mark, Request, Reserved, Scheme, SerialKey, Store,
};
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::server;
use mysql::prelude::Queryable;

const DAY: u64 = 20_261_120_000_000_000;
const NEXT_DAY: u64 = 20_261_121_000_000_000;

/// What is kept: a segment, or a serial number under one scheme or the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Segment,
    Serial,
    Producer,
    Sequence,
    Leaf,
    Tiny,
    Cosid,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Segment, Kind::Serial, Kind::Producer, Kind::Sequence, Kind::Leaf, Kind::Tiny, Kind::Cosid];

    fn scheme(self) -> Scheme {
        match self {
            Kind::Segment | Kind::Serial => Scheme::Keymill,
            Kind::Producer => Scheme::KeyProducer,
            Kind::Sequence => Scheme::SequenceTable,
            Kind::Leaf => Scheme::LeafAlloc,
            Kind::Tiny => Scheme::TinyIdInfo,
            Kind::Cosid => Scheme::Cosid,
        }
    }

    fn is_serial(self) -> bool {
        matches!(self, Kind::Serial | Kind::Producer)
    }

    fn period(self) -> u64 {
        if self.is_serial() { DAY } else { 0 }
    }

    /// Of a table of another program's: the columns of the name and of the maximum, and how many characters a name has.
    fn columns(self) -> Option<(&'static str, &'static str, usize)> {
        match self {
            Kind::Segment | Kind::Serial | Kind::Producer => None,
            Kind::Sequence => Some(("biz_type", "cur_id", 50)),
            Kind::Leaf => Some(("biz_tag", "max_id", 128)),
            Kind::Tiny => Some(("biz_type", "max_id", 63)),
            Kind::Cosid => Some(("name", "last_max_id", 100)),
        }
    }

    /// The maximum that a row holds where `next` is the next number.
    fn kept(self, next: u64) -> u64 {
        if self == Kind::Leaf { next } else { next - 1 }
    }

    /// The last number there is: Leaf's column has to hold the number after it.
    fn last(self) -> u64 {
        if self == Kind::Leaf { MAX_NUMBER - 1 } else { MAX_NUMBER }
    }

    fn key(self, table: &str, name: &str, init_max: bool) -> Arc<Key> {
        let serial = self.is_serial().then(|| SerialKey {
            table: name.to_owned(),
            column: "id".to_owned(),
            pattern: SerialPattern::new("yyyyMMdd", "0000", "UTC").unwrap(),
            init_max,
        });
        let name = match self {
            _ if !self.is_serial() => format!("segment:{name}"),
            _ => format!("serial:{name}/id?date=yyyyMMdd&number=0000"),
        };
        Arc::new(Key {
            scheme: self.scheme(),
            table: table.to_owned(),
            name,
            serial,
            step: 1,
            unsafe_on: false,
        })
    }
}

/// Where it is kept.
enum Place {
    Memory(Arc<Memory>),
    /// The file, and the folder that goes with the bench.
    Sqlite(PathBuf, #[allow(dead_code)] Option<tempfile::TempDir>),
    MariaDb,
}

/// One store, with a table of its own, and a way to tamper with it behind the store's back.
struct Bench {
    kind: Kind,
    place: Place,
    table: String,
}

fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

impl Bench {
    fn memory(kind: Kind) -> Bench {
        Bench { kind, place: Place::Memory(Memory::new()), table: kind.scheme().default_table().to_owned() }
    }

    fn sqlite(kind: Kind) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Sqlite(folder.path().join("ids.db"), Some(folder));
        Bench { kind, place, table: kind.scheme().default_table().to_owned() }
    }

    fn mariadb(kind: Kind) -> Bench {
        let bench = Bench { kind, place: Place::MariaDb, table: unique("t") };
        bench.open().init(&[bench.key("x")], false).unwrap();
        bench
    }

    fn key(&self, name: &str) -> Arc<Key> {
        self.kind.key(&self.table, name, false)
    }

    fn open(&self) -> Box<dyn Store> {
        match &self.place {
            Place::Memory(memory) => Box::new(MemoryStore::new(Arc::clone(memory))),
            Place::Sqlite(path, _) => Box::new(SqliteStore::new(path.clone(), sqlite::Options::default())),
            Place::MariaDb => Box::new(server::store(server::options())),
        }
    }

    fn request(&self, name: &str, len: u64) -> Request {
        let period = self.kind.period();
        Request {
            key: self.key(name),
            len,
            high_water: Mark::default(),
            start: 1,
            last: MAX_NUMBER,
            period,
            period_max: period,
            heal: false,
            max_jump: 0,
        }
    }

    fn mark(&self, next: u64) -> Mark {
        Mark { period: self.kind.period(), next }
    }

    fn stands_at(&self, name: &str) -> Option<u64> {
        self.open().look(&self.key(name)).unwrap().map(|row| row.mark.next)
    }

    /// One statement behind the store's back; `{t}` is the table.
    fn tamper(&self, sql: &str, values: &[&str]) -> u64 {
        let sql = sql.replace("{t}", &self.table);
        match &self.place {
            Place::Memory(_) => unreachable!("memory has no SQL"),
            Place::Sqlite(path, _) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.execute(&sql, rusqlite::params_from_iter(values)).unwrap() as u64
            }
            Place::MariaDb => {
                let mut connection = server::connection();
                connection.exec_drop(&sql, values.to_vec()).unwrap();
                connection.affected_rows()
            }
        }
    }

    fn set_row(&self, name: &str, mark: Mark) {
        let key = self.key(name);
        if let Place::Memory(memory) = &self.place {
            return memory.set_row(&key, mark).unwrap();
        }
        let changed = match &key.serial {
            None if self.kind != Kind::Segment => self.set_maximum(name, self.kind.kept(mark.next)),
            Some(serial) if self.kind == Kind::Producer => self.tamper(
                "UPDATE {t} SET MAXSERIALNO = ? WHERE TABLENAME = ?",
                &[&serial.pattern.text(mark.period, mark.next - 1), &serial.table.to_uppercase()],
            ),
            _ => self.tamper(
                "UPDATE {t} SET period = ?, next = ? WHERE name = ?",
                &[&mark.period.to_string(), &mark.next.to_string(), &key.name],
            ),
        };
        assert_eq!(changed, 1, "there is a row to set");
    }

    /// Behind the store's back, on another program's table.
    fn set_maximum(&self, name: &str, maximum: u64) -> u64 {
        let (by, column, _) = self.kind.columns().unwrap();
        let sql = format!("UPDATE {{t}} SET {column} = ? WHERE {by} = ?");
        // As a number: SQLite would keep a text.
        match &self.place {
            Place::Sqlite(path, _) => {
                let sql = sql.replace("{t}", &self.table);
                let values = rusqlite::params![maximum as i64, name];
                rusqlite::Connection::open(path).unwrap().execute(&sql, values).unwrap() as u64
            }
            _ => self.tamper(&sql, &[&maximum.to_string(), name]),
        }
    }

    fn set_text(&self, name: &str, text: Option<&str>) {
        if let Place::Memory(memory) = &self.place {
            return memory.set_text(&self.key(name), text).unwrap();
        }
        let name = name.to_uppercase();
        match text {
            Some(text) => self.tamper("UPDATE {t} SET MAXSERIALNO = ? WHERE TABLENAME = ?", &[text, &name]),
            None => self.tamper("UPDATE {t} SET MAXSERIALNO = NULL WHERE TABLENAME = ?", &[&name]),
        };
    }

    fn delete_row(&self, name: &str) {
        let key = self.key(name);
        match (&self.place, self.kind) {
            (Place::Memory(memory), _) => assert!(memory.delete_row(&key)),
            (_, Kind::Producer) => {
                assert_eq!(self.tamper("DELETE FROM {t} WHERE TABLENAME = ?", &[&name.to_uppercase()]), 1);
            }
            (_, kind) => {
                let (column, name) =
                    kind.columns().map_or(("name", key.name.as_str()), |(by, ..)| (by, name));
                assert_eq!(self.tamper(&format!("DELETE FROM {{t}} WHERE {column} = ?"), &[name]), 1);
            }
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if matches!(self.place, Place::MariaDb) && !std::thread::panicking() {
            self.tamper("DROP TABLE IF EXISTS {t}", &[]);
        }
    }
}

fn kind<T: std::fmt::Debug>(answer: Result<T, Fault>) -> FaultKind {
    let fault = answer.expect_err("a fault was expected");
    eprintln!("{:?}: {}", fault.kind, fault.message);
    assert!(!fault.message.contains('\n'), "one line: {}", fault.message);
    fault.kind
}

/// Every number of these ranges once.
fn assert_disjoint(mut ranges: Vec<(u64, u64)>) {
    ranges.sort_unstable();
    for (lo, hi) in &ranges {
        assert!(lo < hi, "[{lo}, {hi}) is empty");
    }
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{:?} and {:?} overlap", pair[0], pair[1]);
    }
}

/// Each function once for each store and kind.
macro_rules! contract {
    ($($name:ident)*) => {
        contract!(@ memory_segment, Bench::memory(Kind::Segment), $($name)*);
        contract!(@ memory_serial, Bench::memory(Kind::Serial), $($name)*);
        contract!(@ memory_key_producer, Bench::memory(Kind::Producer), $($name)*);
        contract!(@ memory_sequence_table, Bench::memory(Kind::Sequence), $($name)*);
        contract!(@ memory_leaf_alloc, Bench::memory(Kind::Leaf), $($name)*);
        contract!(@ memory_tiny_id_info, Bench::memory(Kind::Tiny), $($name)*);
        contract!(@ memory_cosid, Bench::memory(Kind::Cosid), $($name)*);
        contract!(@ sqlite_segment, Bench::sqlite(Kind::Segment), $($name)*);
        contract!(@ sqlite_serial, Bench::sqlite(Kind::Serial), $($name)*);
        contract!(@ sqlite_key_producer, Bench::sqlite(Kind::Producer), $($name)*);
        contract!(@ sqlite_sequence_table, Bench::sqlite(Kind::Sequence), $($name)*);
        contract!(@ sqlite_leaf_alloc, Bench::sqlite(Kind::Leaf), $($name)*);
        contract!(@ sqlite_tiny_id_info, Bench::sqlite(Kind::Tiny), $($name)*);
        contract!(@ sqlite_cosid, Bench::sqlite(Kind::Cosid), $($name)*);
        contract!(@ mariadb_segment, Bench::mariadb(Kind::Segment), $($name)*);
        contract!(@ mariadb_serial, Bench::mariadb(Kind::Serial), $($name)*);
        contract!(@ mariadb_key_producer, Bench::mariadb(Kind::Producer), $($name)*);
        contract!(@ mariadb_sequence_table, Bench::mariadb(Kind::Sequence), $($name)*);
        contract!(@ mariadb_leaf_alloc, Bench::mariadb(Kind::Leaf), $($name)*);
        contract!(@ mariadb_tiny_id_info, Bench::mariadb(Kind::Tiny), $($name)*);
        contract!(@ mariadb_cosid, Bench::mariadb(Kind::Cosid), $($name)*);
    };
    (@ $module:ident, $bench:expr, $($name:ident)*) => {
        mod $module {
            use super::*;
            $(#[test] fn $name() { super::$name(&$bench) })*
        }
    };
}

contract! {
    reservations_follow_each_other
    another_connection_goes_on_where_the_first_stopped
    sixteen_connections_never_overlap_from_the_first_use_on
    eight_processes_never_overlap
    a_row_below_the_high_water_is_refused_and_left_alone
    a_deleted_row_is_refused_and_not_created_again
    healing_raises_a_row_but_not_by_more_than_allowed
    odd_names_are_just_names
    the_last_number_is_issued_and_nothing_wraps
    a_smaller_last_number_holds
    a_range_is_given_back_only_while_the_row_ends_there
    a_new_period_starts_anew_and_an_old_one_never_comes_back
    a_mark_is_raised_and_never_lowered
    repair_raises_only
    rows_of_old_key_factory_nodes_are_understood
    a_text_that_is_no_serial_is_refused_and_left_alone
    init_max_starts_after_the_largest_serial_of_the_period
    a_table_of_another_shape_is_refused
    a_missing_row_is_nothing_to_see
    a_name_that_becomes_sql_must_be_an_identifier
}

fn reservations_follow_each_other(bench: &Bench) {
    let mut store = bench.open();
    let mut request = bench.request("orders", 10);
    for round in 0..20 {
        let got = store.reserve(&request).unwrap();
        assert_eq!(
            got,
            Reserved { lo: 1 + round * 10, hi: 11 + round * 10, period: bench.kind.period(), ttl_ms: None }
        );
        request.high_water = Mark { period: got.period, next: got.hi };
    }
    let other = bench.request("invoices", 3);
    assert_eq!(store.reserve(&other).unwrap().lo, 1);
    let started = Request { start: 5000, ..bench.request("late", 3) };
    assert_eq!(
        store.reserve(&started).unwrap(),
        Reserved { lo: 5000, hi: 5003, period: bench.kind.period(), ttl_ms: None }
    );
}

fn another_connection_goes_on_where_the_first_stopped(bench: &Bench) {
    let request = bench.request("orders", 1000);
    let first = bench.open().reserve(&request).unwrap();
    let second = bench.open().reserve(&request).unwrap();
    assert_eq!((first.lo, first.hi, second.lo), (1, 1001, 1001));
    assert_eq!(bench.stands_at("orders"), Some(2001));
}

/// Reserves until `count` ranges are there; other processes may make single attempts fail, but not for ever.
fn reserve_many(store: &mut dyn Store, request: &Request, count: usize) -> Vec<(u64, u64)> {
    reserve_timed(store, request, count).0
}

/// The same, and the longest that one attempt took.
fn reserve_timed(store: &mut dyn Store, request: &Request, count: usize) -> (Vec<(u64, u64)>, Duration) {
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut request = request.clone();
    let mut ranges = Vec::new();
    let mut worst = Duration::ZERO;
    while ranges.len() < count {
        let began = Instant::now();
        let answer = store.reserve(&request);
        worst = worst.max(began.elapsed());
        match answer {
            Ok(got) => {
                request.high_water = Mark { period: got.period, next: got.hi };
                ranges.push((got.lo, got.hi));
            }
            Err(fault) if fault.kind == FaultKind::Unavailable && Instant::now() < deadline => {
                eprintln!("{}", fault.message);
            }
            Err(fault) => panic!("{fault}"),
        }
    }
    (ranges, worst)
}

fn sixteen_connections_never_overlap_from_the_first_use_on(bench: &Bench) {
    const ROUNDS: usize = 40;
    let together = Barrier::new(16);
    let ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|n| {
                let together = &together;
                scope.spawn(move || {
                    let mut store = bench.open();
                    let request = bench.request("orders", 1 + n % 7);
                    together.wait();
                    reserve_many(store.as_mut(), &request, ROUNDS)
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ranges.len(), 16 * ROUNDS);
    let total: u64 = ranges.iter().map(|(lo, hi)| hi - lo).sum();
    assert_disjoint(ranges);
    // One row, begun once, and no attempt that failed has moved it.
    assert_eq!(bench.stands_at("orders"), Some(total + 1));
}

/// The environment variable by which this binary knows that it is a child: kind, place, table.
const CHILD: &str = "KEYMILL_CONTRACT_CHILD";

fn eight_processes_never_overlap(bench: &Bench) {
    let place = match &bench.place {
        Place::Memory(_) => return, // one process's memory is no other's
        Place::Sqlite(path, _) => path.display().to_string(),
        Place::MariaDb => String::new(),
    };
    let children: Vec<_> = (0..8)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "a_child_of_this_suite_reserves_and_prints",
                    "--nocapture",
                    "--test-threads=1",
                ])
                .env(CHILD, format!("{:?}|{place}|{}", bench.kind, bench.table))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut ranges = Vec::new();
    let mut worst = 0;
    for mut child in children {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map(Result::unwrap) {
            if let Some((lo, hi)) = line.strip_prefix("range ").and_then(|range| range.split_once(' ')) {
                ranges.push((lo.parse().unwrap(), hi.parse().unwrap()));
            }
            if let Some(millis) = line.strip_prefix("worst ") {
                worst = worst.max(millis.parse::<u64>().unwrap());
            }
        }
        assert!(child.wait().unwrap().success());
    }
    println!("the longest of {} reservations took {worst} ms", ranges.len());
    assert_eq!(ranges.len(), 8 * 100);
    let total: u64 = ranges.iter().map(|(lo, hi)| hi - lo).sum();
    assert_disjoint(ranges);
    assert_eq!(bench.stands_at("orders"), Some(total + 1));
}

/// Not a test of its own: what `eight_processes_never_overlap` starts. Without its variable it does nothing.
#[test]
fn a_child_of_this_suite_reserves_and_prints() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let mut parts = task.split('|');
    let name = parts.next().unwrap();
    let kind = Kind::ALL.into_iter().find(|kind| format!("{kind:?}") == name).unwrap();
    let place = match parts.next().unwrap() {
        "" => Place::MariaDb,
        path => Place::Sqlite(path.into(), None),
    };
    let bench = std::mem::ManuallyDrop::new(Bench { kind, place, table: parts.next().unwrap().to_owned() });
    let count = 100;
    let (ranges, worst) = reserve_timed(bench.open().as_mut(), &bench.request("orders", 7), count);
    for (lo, hi) in ranges {
        println!("\nrange {lo} {hi}");
    }
    println!("\nworst {}", worst.as_millis());
}

fn a_row_below_the_high_water_is_refused_and_left_alone(bench: &Bench) {
    let mut store = bench.open();
    let request = bench.request("orders", 100);
    let got = store.reserve(&request).unwrap();
    let seen = Request { high_water: bench.mark(got.hi), ..request };
    assert_eq!(store.reserve(&seen).unwrap().lo, 101);
    let seen = Request { high_water: bench.mark(201), ..seen };
    bench.set_row("orders", bench.mark(200));
    let fault = store.reserve(&seen).unwrap_err();
    assert_eq!(fault.kind, FaultKind::WentBackwards);
    for part in ["200", "201", "keymill repair", &seen.key.name] {
        assert!(fault.message.contains(part), "{part} is not in: {fault}");
    }
    assert_eq!(bench.stands_at("orders"), Some(200));
    // A process that has seen less cannot know better.
    assert_eq!(store.reserve(&bench.request("orders", 1)).unwrap().lo, 200);
    assert_eq!(store.reserve(&seen).unwrap().lo, 201);
}

fn a_deleted_row_is_refused_and_not_created_again(bench: &Bench) {
    let mut store = bench.open();
    let got = store.reserve(&bench.request("orders", 100)).unwrap();
    bench.delete_row("orders");
    let seen = Request { high_water: bench.mark(got.hi), ..bench.request("orders", 100) };
    assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
    assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
    assert_eq!(bench.stands_at("orders"), None);
}

fn healing_raises_a_row_but_not_by_more_than_allowed(bench: &Bench) {
    let mut store = bench.open();
    store.reserve(&bench.request("orders", 1000)).unwrap();
    bench.set_row("orders", bench.mark(500));
    let seen =
        Request { high_water: bench.mark(1001), heal: true, max_jump: 500, ..bench.request("orders", 10) };
    assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
    assert_eq!(bench.stands_at("orders"), Some(500));
    let seen = Request { max_jump: 501, ..seen };
    assert_eq!(store.reserve(&seen).unwrap().lo, 1001);
    assert_eq!(bench.stands_at("orders"), Some(1011));
    bench.delete_row("orders");
    let seen = Request { high_water: bench.mark(1011), max_jump: 1010, ..seen };
    assert_eq!(store.reserve(&seen).unwrap().lo, 1011);
}

fn odd_names_are_just_names(bench: &Bench) {
    let foreign = bench.kind == Kind::Producer || bench.kind.columns().is_some();
    // Memory keeps serials by the names that KeyFactory's table would have.
    let caseless = bench.kind == Kind::Serial && matches!(bench.place, Place::Memory(..));
    let widest = bench.kind.columns().map_or(80, |(.., most)| most);
    let long = "x".repeat(if foreign { widest } else { 128 });
    let names = [
        "a",
        "A",
        "a ",
        " a",
        "a'b",
        "a\"b",
        "a`b",
        "a%",
        "a_",
        "a\\",
        "a\\'",
        "'; DROP TABLE keymill_segment; --",
        "订单",
        "é",
        "e\u{301}",
        "🦀",
        "${x}",
        "?",
        "NULL",
        "0",
        "00",
        long.as_str(),
    ];
    let mut store = bench.open();
    let mut ranges: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
    for round in 0..2 {
        for name in names {
            match store.reserve(&bench.request(name, 5)) {
                Ok(got) => {
                    let shared = foreign || (caseless && name.eq_ignore_ascii_case("a"));
                    if !shared {
                        assert_eq!(got.lo, 1 + round * 5, "{name} has a row of its own");
                    }
                    // KeyFactory's table knows no case and, on MariaDB, no trailing space.
                    let row = name.to_uppercase();
                    let row = if caseless { row.as_str() } else { row.trim_end() };
                    ranges.entry(row.to_owned()).or_default().push((got.lo, got.hi));
                }
                Err(fault) => {
                    // The seed's table is three-byte utf8.
                    assert_eq!((foreign, fault.kind), (true, FaultKind::Refused), "{fault}");
                    // Leaf's and CosId's tables are of the database's character set, whatever that is.
                    let by_database = matches!(bench.kind, Kind::Leaf | Kind::Cosid) && !name.is_ascii();
                    assert!(name == "🦀" || by_database, "{name}: {fault}");
                    assert!(fault.message.contains("scheme=keymill") || by_database, "{fault}");
                }
            }
        }
    }
    for ranges in ranges.into_values() {
        if !matches!(bench.place, Place::MariaDb) && foreign {
            continue; // `a` and `a ` are two rows there
        }
        if foreign || caseless {
            assert_disjoint(ranges);
        }
    }
    if foreign {
        let long = "x".repeat(widest + 1);
        assert_eq!(kind(store.reserve(&bench.request(&long, 5))), FaultKind::Refused);
    }
}

fn the_last_number_is_issued_and_nothing_wraps(bench: &Bench) {
    let mut store = bench.open();
    let request = bench.request("orders", 10);
    store.reserve(&request).unwrap();
    let last = bench.kind.last();
    bench.set_row("orders", bench.mark(last - 12));
    assert_eq!(store.reserve(&request).unwrap().lo, last - 12);
    let got = store.reserve(&request).unwrap();
    assert_eq!((got.lo, got.hi), (last - 2, last + 1), "three were left, and three are given");
    let seen = Request { high_water: bench.mark(last + 1), ..request.clone() };
    for request in [&request, &seen] {
        assert_eq!(kind(store.reserve(request)), FaultKind::Exhausted);
        assert_eq!(kind(store.reserve(&Request { len: u64::MAX, ..request.clone() })), FaultKind::Exhausted);
    }
    assert_eq!(bench.stands_at("orders"), Some(last + 1));
    // Given back, the last number can be had again.
    let key = bench.key("orders");
    assert!(store.give_back(&key, bench.kind.period(), last, last + 1).unwrap());
    let got = store.reserve(&Request { len: 1, ..request }).unwrap();
    assert_eq!((got.lo, got.hi), (last, last + 1));
}

fn a_smaller_last_number_holds(bench: &Bench) {
    let mut store = bench.open();
    let request = Request { last: 999, ..bench.request("orders", 990) };
    assert_eq!(store.reserve(&request).unwrap().hi, 991);
    let got = store.reserve(&request).unwrap();
    assert_eq!((got.lo, got.hi), (991, 1000));
    assert_eq!(kind(store.reserve(&request)), FaultKind::Exhausted);
    assert_eq!(bench.stands_at("orders"), Some(1000));
}

fn a_range_is_given_back_only_while_the_row_ends_there(bench: &Bench) {
    let mut store = bench.open();
    let (key, period) = (bench.key("orders"), bench.kind.period());
    assert!(!store.give_back(&key, period, 1, 5).unwrap(), "there is no row yet");
    let request = bench.request("orders", 100);
    let first = store.reserve(&request).unwrap();
    assert!(store.give_back(&key, period, 40, first.hi).unwrap());
    assert_eq!(bench.stands_at("orders"), Some(40));
    assert!(!store.give_back(&key, period, 40, first.hi).unwrap(), "not twice");
    let second = store.reserve(&request).unwrap();
    assert_eq!(second.lo, 40);
    store.reserve(&request).unwrap();
    assert!(!store.give_back(&key, period, 60, second.hi).unwrap(), "the row has moved on");
    assert!(!store.give_back(&key, period, 240, 240).unwrap(), "nothing to give");
    assert!(!store.give_back(&key, period + 1, 200, 240).unwrap(), "of another period");
    assert_eq!(bench.stands_at("orders"), Some(240));
}

fn a_new_period_starts_anew_and_an_old_one_never_comes_back(bench: &Bench) {
    if !bench.kind.is_serial() {
        return; // has no periods
    }
    let mut store = bench.open();
    let today = bench.request("cust", 300);
    assert_eq!(store.reserve(&today).unwrap(), Reserved { lo: 1, hi: 301, period: DAY, ttl_ms: None });
    let seen = Mark { period: DAY, next: 301 };
    let tomorrow = Request { period: NEXT_DAY, period_max: NEXT_DAY, high_water: seen, ..today.clone() };
    assert_eq!(
        store.reserve(&tomorrow).unwrap(),
        Reserved { lo: 1, hi: 301, period: NEXT_DAY, ttl_ms: None }
    );
    let late = store.reserve(&Request { high_water: seen, ..today.clone() });
    assert_eq!(kind(late), FaultKind::ClockBehind);
    let within_skew = Request { period_max: NEXT_DAY, high_water: seen, ..today.clone() };
    assert_eq!(
        store.reserve(&within_skew).unwrap(),
        Reserved { lo: 301, hi: 601, period: NEXT_DAY, ttl_ms: None }
    );
    assert!(!store.give_back(&today.key, DAY, 100, 301).unwrap());
    // The row of a slow old node: set back to yesterday, below what this process has seen.
    bench.set_row("cust", Mark { period: DAY, next: 400 });
    let seen = Mark { period: NEXT_DAY, next: 601 };
    let set_back = store.reserve(&Request { high_water: seen, ..tomorrow });
    assert_eq!(kind(set_back), FaultKind::WentBackwards);
    assert_eq!(bench.stands_at("cust"), Some(400));
}

fn a_mark_is_raised_and_never_lowered(bench: &Bench) {
    let mut store = bench.open();
    let key = bench.key("worker-7");
    if bench.kind.scheme() != Scheme::Keymill {
        assert_eq!(kind(store.raise(&key, None, 5)), FaultKind::Refused);
        return;
    }
    assert_eq!(store.raise(&key, None, 500).unwrap(), 0);
    assert_eq!(store.raise(&key, None, 400).unwrap(), 500);
    assert_eq!(bench.stands_at("worker-7"), Some(500));
    assert_eq!(store.raise(&key, Some(500), 600).unwrap(), 500);
    assert_eq!(kind(store.raise(&key, Some(500), 700)), FaultKind::Taken);
    assert_eq!(bench.stands_at("worker-7"), Some(600));
    assert_eq!(kind(store.raise(&bench.key("worker-8"), Some(1), 700)), FaultKind::Taken);
    assert_eq!(store.raise(&bench.key("worker-8"), Some(0), 700).unwrap(), 0);
    assert_eq!(kind(store.raise(&key, None, u64::MAX)), FaultKind::Refused);
    // Sixteen who all expect the same: one wins.
    let winners: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|n| {
                let key = &key;
                scope.spawn(move || match bench.open().raise(key, Some(600), 1000 + n) {
                    Ok(before) => {
                        assert_eq!(before, 600);
                        1
                    }
                    Err(fault) => {
                        assert_eq!(fault.kind, FaultKind::Taken, "{fault}");
                        0
                    }
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(winners, 1);
}

fn repair_raises_only(bench: &Bench) {
    let mut store = bench.open();
    let key = bench.key("orders");
    let (before, after) = store.repair(&key, bench.mark(500)).unwrap();
    assert_eq!((before, after.mark), (None, bench.mark(500)));
    assert_eq!(store.reserve(&bench.request("orders", 10)).unwrap().lo, 500);
    assert_eq!(kind(store.repair(&key, bench.mark(509))), FaultKind::Refused);
    let (before, after) = store.repair(&key, bench.mark(510)).unwrap();
    assert_eq!((before.unwrap().mark, after.mark), (bench.mark(510), bench.mark(510)));
    let (before, after) = store.repair(&key, bench.mark(9000)).unwrap();
    assert_eq!((before.unwrap().mark, after.mark), (bench.mark(510), bench.mark(9000)));
    assert_eq!(store.reserve(&bench.request("orders", 10)).unwrap().lo, 9000);
    assert_eq!(kind(store.repair(&key, Mark::default())), FaultKind::Refused);
}

fn rows_of_old_key_factory_nodes_are_understood(bench: &Bench) {
    if bench.kind != Kind::Producer {
        return;
    }
    let mut store = bench.open();
    let request = bench.request("cust", 500);
    store.reserve(&request).unwrap();
    for (text, lo) in [
        (None, 1),
        (Some("INIT"), 1),
        (Some(""), 1),
        (Some("202611200500"), 501),
        (Some("202611200000"), 1),
        (Some("202611199999"), 1),                 // another day
        (Some("2026112010000"), 10_001),           // widened
        (Some("20261120000000000000000500"), 501), // padded further
    ] {
        bench.set_text("cust", text);
        let got = store.reserve(&request).unwrap();
        assert_eq!((got.lo, got.hi, got.period), (lo, lo + 500, DAY), "after {text:?}");
    }
    let kept = store.look(&bench.key("CUST")).unwrap().unwrap();
    assert_eq!(kept.text, "MAXSERIALNO=202611201000", "names are upper-cased, the text is KeyFactory's");
    // A row that was emptied under a process that has seen numbers is no fresh start.
    for text in [None, Some("INIT")] {
        bench.set_text("cust", text);
        let seen = Request { high_water: bench.mark(1001), ..request.clone() };
        assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
    }
}

fn a_text_that_is_no_serial_is_refused_and_left_alone(bench: &Bench) {
    if bench.kind != Kind::Producer {
        return;
    }
    let mut store = bench.open();
    let request = bench.request("cust", 500);
    store.reserve(&request).unwrap();
    for text in [
        "init",
        "20261120",
        "20261340000001",
        "CUST202611200001",
        "20261120-0001",
        "20261120 001",
        "20261120 ",
    ] {
        bench.set_text("cust", Some(text));
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{text}");
        assert!(fault.message.contains(text), "{fault}");
        if !matches!(bench.place, Place::Memory(_)) {
            let same = "UPDATE {t} SET MAXSERIALNO = 'seen' WHERE MAXSERIALNO = ?";
            assert_eq!(bench.tamper(same, &[text]), 1, "the row was left alone");
        }
    }
}

fn init_max_starts_after_the_largest_serial_of_the_period(bench: &Bench) {
    if !bench.kind.is_serial() || matches!(bench.place, Place::Memory(_)) {
        return; // no serials, no business tables
    }
    let mut store = bench.open();
    let business = unique("cust");
    // Something has to be there before anything else may be, or the SQLite file belongs to another program.
    store.reserve(&bench.request("first", 1)).unwrap();
    let charset = if matches!(bench.place, Place::MariaDb) { "CHARSET=utf8mb4" } else { "" };
    bench.tamper(&format!("CREATE TABLE {business} (id VARCHAR(64)) {charset}"), &[]);
    for text in [
        "202611200007",
        "202611200999",
        "2026112010000",
        "202611209999", // the widened one is the largest
        "202611190001",
        "202611219999",
        "20261120",
        "20261120-9999",
        "20261120x",
        "2026112000099999",
        "x",
        "",
        "20261120 99999",
        "20261120１２３４５",
    ] {
        bench.tamper(&format!("INSERT INTO {business} VALUES (?)"), &[text]);
    }
    let key = bench.kind.key(&bench.table, &business, true);
    let request = Request { key: Arc::clone(&key), ..bench.request("x", 100) };
    let got = store.reserve(&request).unwrap();
    assert_eq!((got.lo, got.hi), (10_001, 10_101));
    assert_eq!(store.reserve(&request).unwrap().lo, 10_101, "only a missing row looks there");
    if bench.kind == Kind::Producer {
        for text in [None, Some("INIT")] {
            bench.set_text(&business, text);
            assert_eq!(store.reserve(&request).unwrap().lo, 10_001);
        }
    }
    let tomorrow = Request { period: NEXT_DAY, period_max: NEXT_DAY, ..request.clone() };
    assert_eq!(store.reserve(&tomorrow).unwrap().lo, 1, "a new period of a row begins at the start");
    // Under `overflow=error` a widened number is none of this pattern.
    let strict = Request { last: 9999, period: NEXT_DAY, period_max: NEXT_DAY, ..request };
    bench.delete_row(&business);
    assert_eq!(kind(store.reserve(&strict)), FaultKind::Exhausted);
    let today = Request { period: DAY, period_max: DAY, ..strict };
    assert_eq!(kind(store.reserve(&today)), FaultKind::Exhausted);
    bench.tamper(&format!("DELETE FROM {business} WHERE id = '202611209999'"), &[]);
    assert_eq!(store.reserve(&today).unwrap().lo, 1000);
    bench.tamper(&format!("DROP TABLE {business}"), &[]);
}

fn a_table_of_another_shape_is_refused(bench: &Bench) {
    if matches!(bench.place, Place::Memory(_)) {
        return; // has no tables
    }
    let columns = match bench.kind {
        Kind::Producer => {
            "(TABLENAME VARCHAR(80) PRIMARY KEY, COLUMNNAME VARCHAR(80), MAXSERIALNO VARCHAR(80))"
        }
        kind if kind.columns().is_some() => {
            "(biz_type VARCHAR(80) PRIMARY KEY, biz_tag VARCHAR(80), name VARCHAR(80))"
        }
        _ => "(name VARCHAR(80) PRIMARY KEY, next BIGINT)",
    };
    let missing = match bench.kind {
        Kind::Producer => "datefmt",
        kind => kind.columns().map_or("period", |(_, maximum, _)| maximum),
    };
    if matches!(bench.place, Place::MariaDb) {
        bench.tamper("DROP TABLE {t}", &[]);
    }
    bench.tamper(&format!("CREATE TABLE {{t}} {columns}"), &[]);
    let mut store = bench.open();
    for answer in [
        store.reserve(&bench.request("orders", 1)).map(|_| ()),
        store.init(&[bench.key("orders")], false).map(|_| ()),
        store.look(&bench.key("orders")).map(|_| ()),
    ] {
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert!(fault.message.to_lowercase().contains(&format!("`{missing}` is missing")), "{fault}");
    }
}

fn a_missing_row_is_nothing_to_see(bench: &Bench) {
    assert_eq!(bench.stands_at("nobody"), None);
    bench.open().reserve(&bench.request("somebody", 1)).unwrap();
    assert_eq!(bench.stands_at("nobody"), None);
    let facts = bench.open().facts().unwrap();
    assert!(facts.warnings.is_empty(), "{facts:?}");
    assert!(!facts.version.is_empty() && !facts.durability.is_empty(), "{facts:?}");
}

fn a_name_that_becomes_sql_must_be_an_identifier(bench: &Bench) {
    let mut store = bench.open();
    if bench.kind.is_serial() && !matches!(bench.place, Place::Memory(_)) {
        let key = bench.kind.key(&bench.table, "cust; DROP TABLE x", true);
        let request = Request { key, ..bench.request("x", 1) };
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert!(fault.message.contains("identifier"), "{fault}");
    }
    if !matches!(bench.place, Place::Memory(_)) {
        let key = bench.kind.key("t`\" (x", "orders", false);
        let request = Request { key: Arc::clone(&key), ..bench.request("x", 1) };
        assert_eq!(kind(store.reserve(&request)), FaultKind::Refused);
        assert_eq!(kind(store.init(&[key], true)), FaultKind::Refused);
    }
}

// ---- memory only

#[test]
fn scripted_outcomes_happen_in_order() {
    let bench = Bench::memory(Kind::Segment);
    let Place::Memory(memory) = &bench.place else { unreachable!() };
    let mut store = bench.open();
    let request = bench.request("orders", 10);
    memory.script([
        Step::Lost,
        Step::NotApplied,
        Step::Cut,
        Step::Refused("no".to_owned()),
        Step::Frozen(Duration::from_millis(20)),
        Step::Lost,
        Step::Ack,
    ]);
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unknown);
    assert_eq!(bench.stands_at("orders"), Some(11), "applied all the same");
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unavailable);
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unknown);
    assert_eq!(kind(store.reserve(&request)), FaultKind::Refused);
    assert_eq!(bench.stands_at("orders"), Some(11));
    let frozen = Instant::now();
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unknown);
    assert!(frozen.elapsed() >= Duration::from_millis(20));
    assert_eq!(store.reserve(&request).unwrap().lo, 21);
    let backup = memory.snapshot();
    assert_eq!(store.reserve(&request).unwrap().lo, 31);
    memory.restore(&backup);
    let seen = Request { high_water: bench.mark(41), ..request.clone() };
    assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
    memory.set_down(true);
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unavailable);
    memory.set_down(false);
    assert_eq!(store.reserve(&request).unwrap().lo, 31);
}

#[test]
fn a_named_memory_is_shared_while_somebody_holds_it() {
    let name = unique("memory");
    let first = Memory::named(&name);
    assert!(Arc::ptr_eq(&first, &Memory::named(&name)));
    assert!(!Arc::ptr_eq(&first, &Memory::named(&unique("memory"))));
}

// ---- MariaDB only

#[test]
fn a_missing_table_names_the_command() {
    for kind in Kind::ALL {
        let bench = Bench::mariadb(kind);
        bench.tamper("DROP TABLE {t}", &[]);
        let mut store = bench.open();
        let request = bench.request("orders", 2000);
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert_eq!(
            fault.message,
            format!(
                "reserving 2000 for `{}` failed: table `{}` is missing; run `keymill init`",
                request.key.name, bench.table
            )
        );
        // The same connection goes on as soon as the table is there.
        assert_eq!(store.init(&[bench.key("orders")], true).unwrap().len(), 1);
        assert_eq!(self::kind(store.reserve(&request)), FaultKind::Refused);
        store.init(&[bench.key("orders"), bench.key("invoices")], false).unwrap();
        store.init(&[bench.key("orders")], false).unwrap();
        assert_eq!(store.reserve(&request).unwrap().lo, 1);
    }
}

#[test]
fn a_wrong_password_or_right_is_refused_and_never_shown() {
    let mut options = server::options();
    options.password = keymill::store::mysql::Secret::new("wrong-horse-battery");
    let bench = Bench::mariadb(Kind::Segment);
    let mut store = server::store(options.clone());
    let fault = store.reserve(&bench.request("orders", 1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    let shown = format!("{fault} {fault:?} {options:?} {store:?}");
    assert!(!shown.contains("wrong-horse"), "{shown}");
    assert!(fault.message.contains("check user and password"), "{fault}");
    let mut options = server::options();
    options.database = "mysql".to_owned();
    let fault = server::store(options).reserve(&bench.request("orders", 1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(fault.message.contains("grant"), "{fault}");
    let mut options = server::options();
    options.hosts = vec![("127.0.0.1".to_owned(), 1), ("no-such-host.invalid".to_owned(), 3306)];
    let fault = server::store(options).reserve(&bench.request("orders", 1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
}

#[test]
fn the_second_host_serves_when_the_first_does_not() {
    let bench = Bench::mariadb(Kind::Segment);
    let mut options = server::options();
    options.hosts.insert(0, ("127.0.0.1".to_owned(), 1));
    assert_eq!(server::store(options).reserve(&bench.request("orders", 1)).unwrap().lo, 1);
}

#[test]
fn a_swallowed_answer_is_an_unknown_outcome_and_its_range_is_never_used() {
    for kind in Kind::ALL {
        let bench = Bench::mariadb(kind);
        let mut options = server::options();
        let proxy = Proxy::start(options.hosts[0].clone());
        options.hosts = vec![proxy.address()];
        let mut store = server::store(options);
        let mut request = bench.request("orders", 10);
        let mut ranges = Vec::new();
        let mut unknown = 0;
        for round in 0..80 {
            // One reservation undisturbed, one cut at each of its answers in turn.
            for answers in [Answers::Pass, Answers::CutAfter(round % 5)] {
                proxy.set(answers);
                match store.reserve(&request) {
                    Ok(got) => {
                        request.high_water = Mark { period: got.period, next: got.hi };
                        ranges.push((got.lo, got.hi));
                    }
                    Err(fault) if fault.kind == FaultKind::Unknown => unknown += 1,
                    Err(fault) => assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}"),
                }
            }
        }
        proxy.set(Answers::Pass);
        let got = store.reserve(&request).unwrap();
        ranges.push((got.lo, got.hi));
        println!("{kind:?}: {} reserved, {unknown} unknown, the row stands at {}", ranges.len(), got.hi);
        assert!(unknown >= 16 && ranges.len() > 80);
        // Ranges whose outcome was unknown are gaps: some of them were applied.
        assert!(got.hi > 10 * ranges.len() as u64 + 1, "no applied range was lost");
        assert_disjoint(ranges);
    }
}

#[test]
fn an_answer_that_comes_too_late_is_never_taken_for_the_next_one() {
    for kind in Kind::ALL {
        let bench = Bench::mariadb(kind);
        let mut options = server::options();
        options.read_timeout = Duration::from_millis(300);
        let proxy = Proxy::start(options.hosts[0].clone());
        options.hosts = vec![proxy.address()];
        let mut store = server::store(options);
        let (orders, invoices) = (bench.request("orders", 10), bench.request("invoices", 10));
        for start in [&orders, &invoices] {
            store.reserve(start).unwrap();
        }
        bench.set_row("orders", bench.mark(1_000_001));
        proxy.set(Answers::Hold);
        let began = Instant::now();
        let fault = store.reserve(&orders).unwrap_err();
        let took = began.elapsed();
        assert!(took < Duration::from_secs(2), "a silent server held the caller for {took:?}");
        let of_a_segment = kind == Kind::Segment;
        let expected = if of_a_segment { FaultKind::Unknown } else { FaultKind::Unavailable };
        assert_eq!(fault.kind, expected, "{fault}");
        assert!(fault.message.contains("did not answer in time"), "{fault}");
        // While it is silent, a new connection fails as well, within the same time.
        assert_eq!(self::kind(store.reserve(&invoices)), FaultKind::Unavailable);
        proxy.set(Answers::Pass); // now the held answers arrive, wherever they belong
        assert_eq!(store.reserve(&invoices).unwrap().lo, 11, "never the range of `orders`");
        let again = store.reserve(&orders).unwrap();
        assert!(again.lo == 1_000_001 || (of_a_segment && again.lo == 1_000_011), "{again:?}");
    }
}

#[test]
fn a_connection_ended_by_the_server_is_replaced() {
    let bench = Bench::mariadb(Kind::Serial);
    let mut store = bench.open();
    let request = bench.request("orders", 10);
    store.reserve(&request).unwrap();
    let mut tamper = server::connection();
    let killed: Vec<u64> = tamper
        .exec(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'keymill' AND COMMAND = 'Sleep' AND ID <> \
             CONNECTION_ID() AND DB = 'ids'",
            (),
        )
        .unwrap();
    assert!(!killed.is_empty());
    // Its own id is among many; a transaction on the row finds it.
    tamper.query_drop("START TRANSACTION").unwrap();
    tamper
        .exec_drop(
            format!("SELECT next FROM {} WHERE name = ? FOR UPDATE", bench.table),
            (&request.key.name,),
        )
        .unwrap();
    let fault = store.reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
    assert!(fault.message.contains("1205"), "the lock wait ends in the server's own answer: {fault}");
    tamper.query_drop("ROLLBACK").unwrap();
    assert_eq!(store.reserve(&request).unwrap().lo, 11);
}

#[test]
fn settings_that_lose_commits_are_refused_or_warned_about() {
    let private = server::Private::start("--innodb-flush-log-at-trx-commit=2");
    let mut options = server::options_of(&private.url());
    let bench =
        Bench { kind: Kind::Segment, place: Place::Memory(Memory::new()), table: "keymill_segment".into() };
    let request = bench.request("orders", 10);
    let fault = server::store(options.clone()).reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsafe);
    assert!(fault.message.contains("innodb_flush_log_at_trx_commit=2"), "{fault}");
    options.durability = Durability::Warn;
    let mut store = server::store(options.clone());
    store.init(&[Arc::clone(&request.key)], false).unwrap();
    assert_eq!(store.reserve(&request).unwrap().lo, 1);
    let facts = store.facts().unwrap();
    assert_eq!((facts.dialect.as_str(), facts.warnings.len()), ("mariadb", 1), "{facts:?}");
    // A replica: questions are answered, reservations are not; afterwards it may be the primary.
    let mut root = server::connection_of(&private.url().replace("keymill:secret", "root:"));
    root.query_drop("SET GLOBAL innodb_flush_log_at_trx_commit = 1, read_only = 1").unwrap();
    let mut replica = server::store(options);
    assert_eq!(replica.look(&request.key).unwrap().unwrap().mark.next, 11);
    for store in [&mut replica, &mut store] {
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unavailable);
        assert!(fault.message.contains("read-only"), "{fault}");
    }
    root.query_drop("SET GLOBAL read_only = 0").unwrap();
    assert_eq!(replica.reserve(&request).unwrap().lo, 11);
    root.query_drop(format!("ALTER TABLE {} ENGINE = MyISAM", bench.table)).unwrap();
    let fault = server::store(server::options_of(&private.url())).reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsafe);
    assert!(fault.message.contains("MyISAM"), "{fault}");
}

#[test]
fn what_was_answered_survives_a_killed_server() {
    let private = server::Private::start("");
    let options = server::options_of(&private.url());
    let bench =
        Bench { kind: Kind::Segment, place: Place::Memory(Memory::new()), table: "keymill_segment".into() };
    let mut store = server::store(options);
    let mut request = bench.request("orders", 10);
    store.init(&[Arc::clone(&request.key)], false).unwrap();
    let mut ranges = Vec::new();
    for _ in 0..3 {
        for _ in 0..40 {
            let got = store.reserve(&request).unwrap();
            // Nothing may hide behind the high water: another process would not have it.
            ranges.push((got.lo, got.hi));
        }
        private.kill();
        let fault = store.reserve(&request).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Unknown | FaultKind::Unavailable), "{fault}");
        assert_eq!(kind(store.reserve(&request)), FaultKind::Unavailable);
        private.start_again();
    }
    request.high_water = Mark { period: 0, next: ranges[ranges.len() - 1].1 };
    ranges.push(store.reserve(&request).map(|got| (got.lo, got.hi)).unwrap());
    assert_eq!(ranges.len(), 121);
    assert_disjoint(ranges);
}

// ---- SQLite only

#[test]
fn a_file_of_another_program_is_refused_until_init_is_run_on_it() {
    for kind in Kind::ALL {
        let bench = Bench::sqlite(kind);
        bench.tamper("CREATE TABLE customers (id INTEGER PRIMARY KEY)", &[]);
        let mut store = bench.open();
        let request = bench.request("orders", 10);
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert!(fault.message.contains("holds tables of another program; run `keymill init`"), "{fault}");
        let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
        let mode: String = rusqlite::Connection::open(path)
            .unwrap()
            .query_one("PRAGMA journal_mode", [], |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "delete", "a file of another program is not even switched to another journal");
        assert!(store.init(&[bench.key("x")], true).unwrap()[0].starts_with("CREATE TABLE"));
        assert_eq!(self::kind(store.reserve(&request)), FaultKind::Refused, "a dry run changes nothing");
        store.init(&[bench.key("x")], false).unwrap();
        assert_eq!(store.reserve(&request).unwrap().lo, 1);
        assert_eq!(bench.open().reserve(&request).unwrap().lo, 11);
    }
    // Marked as another program's, without any table yet.
    let bench = Bench::sqlite(Kind::Segment);
    bench.tamper("PRAGMA application_id = 252006673", &[]);
    assert_eq!(kind(bench.open().reserve(&bench.request("orders", 10))), FaultKind::Refused);
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    std::fs::write(path, "not a database, but long enough to be taken for one".repeat(50)).unwrap();
    assert_eq!(kind(bench.open().reserve(&bench.request("orders", 10))), FaultKind::Refused);
}

#[test]
fn a_file_deleted_or_replaced_under_a_running_process_went_backwards() {
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    let mut store = bench.open();
    let request = bench.request("orders", 10);
    assert_eq!(store.reserve(&request).unwrap().hi, 11);
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(suffix);
        std::fs::remove_file(file).unwrap();
    }
    let seen = Request { high_water: bench.mark(11), ..request.clone() };
    assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
    assert_eq!(bench.stands_at("orders"), None);
    // Replaced by a backup.
    let mut store = bench.open();
    store.reserve(&request).unwrap();
    drop(store);
    let backup = path.with_extension("backup");
    std::fs::copy(path, &backup).unwrap();
    let mut store = bench.open();
    assert_eq!(store.reserve(&request).unwrap().hi, 21);
    std::fs::rename(&backup, path).unwrap();
    for suffix in ["-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(suffix);
        std::fs::remove_file(file).unwrap();
    }
    let seen = Request { high_water: bench.mark(21), ..request };
    assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
}

#[test]
fn a_missing_folder_or_right_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: PathBuf| SqliteStore::new(path, sqlite::Options::default());
    let bench = Bench::memory(Kind::Segment);
    let request = bench.request("orders", 10);
    let fault = open(folder.path().join("no/such/ids.db")).reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(fault.message.contains("create it"), "{fault}");
    let fault = open(folder.path().to_owned()).reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    // `:memory:` is a file's name here: ids that vanish are `memory:`'s business.
    assert_eq!(open(folder.path().join(":memory:")).reserve(&request).unwrap().lo, 1);
    assert_eq!(open(folder.path().join(":memory:")).reserve(&request).unwrap().lo, 11);
}

/// A small file system of one's own; only root may have one.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(options: &str) -> Option<Mount> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "keymill-test"])
            .arg(folder.path())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            println!("not run: mounting a tmpfs needs root");
        }
        mounted.then_some(Mount(folder))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_gives_an_error_and_no_number() {
    let Some(mount) = Mount::new("size=256k") else { return };
    let path = mount.0.path().join("ids.db");
    let bench = Bench::memory(Kind::Segment);
    let mut store = SqliteStore::new(path.clone(), sqlite::Options::default());
    let mut request = bench.request("orders", 10);
    let mut ranges = vec![store.reserve(&request).map(|got| (got.lo, got.hi)).unwrap()];
    let ballast = mount.0.path().join("ballast");
    let _ = std::fs::write(&ballast, vec![1; 1 << 20]);
    let mut refused = 0;
    for _ in 0..400 {
        match store.reserve(&request) {
            Ok(got) => ranges.push((got.lo, got.hi)),
            Err(fault) => {
                assert!(matches!(fault.kind, FaultKind::Unavailable | FaultKind::Unknown), "{fault}");
                refused += 1;
            }
        }
    }
    println!("{} reserved, {refused} refused", ranges.len());
    assert!(refused >= 40);
    std::fs::remove_file(&ballast).unwrap();
    request.high_water = bench.mark(ranges.last().unwrap().1);
    ranges.push(store.reserve(&request).map(|got| (got.lo, got.hi)).unwrap());
    assert_disjoint(ranges);
}

#[test]
fn a_read_only_file_system_gives_an_error_and_no_number() {
    let Some(mount) = Mount::new("size=1m") else { return };
    let path = mount.0.path().join("ids.db");
    let bench = Bench::memory(Kind::Segment);
    let request = bench.request("orders", 10);
    SqliteStore::new(path.clone(), sqlite::Options::default()).reserve(&request).unwrap();
    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", how]).arg(mount.0.path()).status().unwrap();
        assert!(done.success());
    };
    remount("remount,ro");
    let mut store = SqliteStore::new(path, sqlite::Options::default());
    let fault = store.reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(fault.message.contains("writable"), "{fault}");
    remount("remount,rw");
    assert_eq!(store.reserve(&request).unwrap().lo, 11);
}

#[test]
fn a_lock_that_stays_ends_within_the_deadline() {
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    bench.open().reserve(&bench.request("orders", 10)).unwrap();
    let blocker = rusqlite::Connection::open(path).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let options = sqlite::Options { busy: Duration::from_millis(300), ..sqlite::Options::default() };
    let mut store = SqliteStore::new(path.clone(), options);
    for _ in 0..2 {
        let began = Instant::now();
        assert_eq!(kind(store.reserve(&bench.request("orders", 10))), FaultKind::Unavailable);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(290) && took < Duration::from_millis(900), "{took:?}");
    }
    blocker.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.reserve(&bench.request("orders", 10)).unwrap().lo, 11);
}

/// Forks by hand, so that nothing but libc's handlers run; the child writes its ranges into a pipe.
fn forked(work: impl FnOnce() -> Vec<(u64, u64)>) -> (libc::pid_t, std::fs::File) {
    use std::io::Write;
    use std::os::fd::FromRawFd;
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: both descriptors were just opened and belong to nobody else.
    let [reader, mut writer] = ends.map(|end| unsafe { std::fs::File::from_raw_fd(end) });
    // SAFETY: the child leaves by `_exit` and runs no destructors or handlers of the parent's.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (lo, hi) in work() {
                writeln!(writer, "{lo} {hi}").unwrap();
            }
        }));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    (pid, reader)
}

fn ranges_of((pid, reader): (libc::pid_t, std::fs::File)) -> Vec<(u64, u64)> {
    let ranges = BufReader::new(reader)
        .lines()
        .map(|line| {
            let line = line.unwrap();
            let (lo, hi) = line.split_once(' ').unwrap();
            (lo.parse().unwrap(), hi.parse().unwrap())
        })
        .collect();
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child succeeded");
    ranges
}

#[test]
fn forks_in_the_middle_of_reservations_neither_overlap_nor_hang() {
    let bench = Bench::sqlite(Kind::Segment);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut ranges = Vec::new();
    std::thread::scope(|scope| {
        let busy: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut store = bench.open();
                    let mut ranges = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        ranges.extend(reserve_many(store.as_mut(), &bench.request("orders", 3), 1));
                    }
                    ranges
                })
            })
            .collect();
        let mut idle = bench.open();
        ranges.extend(reserve_many(idle.as_mut(), &bench.request("orders", 3), 1));
        for _ in 0..40 {
            let child = forked(|| {
                // The parent's store is abandoned, as the mill does; the child opens its own.
                let mut store = bench.open();
                reserve_many(store.as_mut(), &bench.request("orders", 5), 5)
            });
            ranges.extend(ranges_of(child));
            ranges.extend(reserve_many(idle.as_mut(), &bench.request("orders", 3), 1));
        }
        stop.store(true, Ordering::Relaxed);
        for thread in busy {
            ranges.extend(thread.join().unwrap());
        }
    });
    println!("{} ranges, 40 forks", ranges.len());
    let total: u64 = ranges.iter().map(|(lo, hi)| hi - lo).sum();
    assert_disjoint(ranges);
    assert_eq!(bench.stands_at("orders"), Some(total + 1));
}

#[test]
fn a_child_that_outlives_its_parent_keeps_its_own_locks() {
    // Parent and child have the file open; the parent closes; a third process opens it as the only one it can see.
    // Had the child taken over the parent's idea of its locks, the third would throw away the child's log.
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    let mut store = bench.open();
    let mut ranges = reserve_many(store.as_mut(), &bench.request("orders", 3), 1);
    let mut to_child = [0; 2];
    // SAFETY: `to_child` has room for the two descriptors.
    assert_eq!(unsafe { libc::pipe(to_child.as_mut_ptr()) }, 0);
    let child = forked(|| {
        let mut store = bench.open();
        let mut ranges = reserve_many(store.as_mut(), &bench.request("orders", 5), 1);
        let mut byte = 0u8;
        // SAFETY: reads one byte into `byte`: the parent says when it has closed the file.
        assert_eq!(unsafe { libc::read(to_child[0], (&raw mut byte).cast(), 1) }, 1);
        ranges.extend(reserve_many(store.as_mut(), &bench.request("orders", 5), 3));
        ranges
    });
    drop(store);
    let third = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_of_this_suite_reserves_and_prints", "--nocapture"])
        .env(CHILD, format!("Segment|{}|{}", path.display(), bench.table))
        .output()
        .unwrap();
    assert!(third.status.success());
    for line in String::from_utf8(third.stdout).unwrap().lines() {
        if let Some((lo, hi)) = line.strip_prefix("range ").and_then(|range| range.split_once(' ')) {
            ranges.push((lo.parse().unwrap(), hi.parse().unwrap()));
        }
    }
    // SAFETY: writes one byte.
    assert_eq!(unsafe { libc::write(to_child[1], b"x".as_ptr().cast(), 1) }, 1);
    ranges.extend(ranges_of(child));
    ranges.extend(reserve_many(bench.open().as_mut(), &bench.request("orders", 3), 1));
    assert_eq!(ranges.len(), 1 + 1 + 100 + 3 + 1);
    assert_disjoint(ranges);
}

/// The folder in which `a_process_that_clones_itself` works.
const CLONE: &str = "KEYMILL_CONTRACT_CLONE";

fn wait_for(file: &std::path::Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !file.exists() {
        assert!(Instant::now() < deadline, "{} did not come", file.display());
        std::thread::yield_now();
    }
}

/// Not a test of its own: what the next one starts. A raw `clone` runs none of libc's handlers.
#[test]
fn a_process_that_clones_itself() {
    let Ok(folder) = std::env::var(CLONE) else { return };
    let at = |name: &str| PathBuf::from(&folder).join(name);
    let bench = Bench {
        kind: Kind::Segment,
        place: Place::Sqlite(at("ids.db"), None),
        table: "keymill_segment".to_owned(),
    };
    let write = |name: &str, ranges: &[(u64, u64)]| {
        let lines: Vec<_> = ranges.iter().map(|(lo, hi)| format!("{lo} {hi}")).collect();
        std::fs::write(at("unfinished"), lines.join("\n")).unwrap();
        std::fs::rename(at("unfinished"), at(name)).unwrap();
    };
    let mut store = bench.open();
    write("parent", &reserve_many(store.as_mut(), &bench.request("orders", 3), 1));
    // SAFETY: like `fork`, without its handlers; the child leaves by `_exit`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(pid >= 0);
    if pid > 0 {
        wait_for(&at("ready"));
        return; // closes the store: as far as this process knows it is the last user of the file
    }
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut own = bench.open();
        let mut ranges = reserve_many(own.as_mut(), &bench.request("orders", 5), 2);
        write("ready", &[]);
        wait_for(&at("go"));
        ranges.extend(reserve_many(own.as_mut(), &bench.request("orders", 5), 3));
        write("child", &ranges);
    }));
    // SAFETY: ends the clone at once.
    unsafe { libc::_exit(i32::from(done.is_err())) };
}

#[test]
fn a_raw_clone_that_outlives_its_parent_keeps_the_log_it_writes_to() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let this = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.stdout(Stdio::null());
        command
    };
    let parent = this()
        .args(["--exact", "a_process_that_clones_itself", "--nocapture", "--test-threads=1"])
        .env(CLONE, folder.path())
        .status()
        .unwrap();
    assert!(parent.success());
    let bench = Bench {
        kind: Kind::Segment,
        place: Place::Sqlite(at("ids.db"), None),
        table: "keymill_segment".to_owned(),
    };
    // A third process opens and closes the file while only the clone has it open.
    let third = this()
        .args(["--exact", "a_child_of_this_suite_reserves_and_prints", "--nocapture"])
        .env(CHILD, format!("Segment|{}|{}", at("ids.db").display(), bench.table))
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut take = |text: &str| {
        for line in text.lines() {
            if let Some((lo, hi)) = line.trim_start_matches("range ").split_once(' ')
                && let (Ok(lo), Ok(hi)) = (lo.parse(), hi.parse())
            {
                ranges.push((lo, hi));
            }
        }
    };
    take(&String::from_utf8(third.stdout).unwrap());
    std::fs::write(at("go"), "").unwrap();
    wait_for(&at("child"));
    take(&std::fs::read_to_string(at("parent")).unwrap());
    take(&std::fs::read_to_string(at("child")).unwrap());
    ranges.extend(reserve_many(bench.open().as_mut(), &bench.request("orders", 3), 1));
    assert_eq!(ranges.len(), 100 + 1 + 5 + 1);
    assert_disjoint(ranges);
}

// ---- beside old KeyFactory nodes

/// A refill as the seed's `getSerialNoFromDB` does it, without its faults: `FOR UPDATE`, then compare-and-set.
fn old_node(connection: &mut mysql::Conn, table: &str, len: u64) -> Option<(u64, u64)> {
    let row = "TABLENAME = 'CUST' AND COLUMNNAME = 'ID' AND DATEFMT = 'yyyyMMdd' AND NOFMT = '0000'";
    let mut refill = || -> mysql::Result<Option<(u64, u64)>> {
        connection.query_drop("START TRANSACTION")?;
        let sql = format!("SELECT MAXSERIALNO FROM {table} WHERE {row} FOR UPDATE");
        let Some(old) = connection.query_first::<Option<String>, _>(sql)? else {
            connection.query_drop(format!(
                "INSERT INTO {table} VALUES ('CUST','ID','INIT','yyyyMMdd','0000',NOW())"
            ))?;
            connection.query_drop("COMMIT")?;
            return Ok(None);
        };
        let old = old.unwrap_or_default();
        let number = old.get(8..).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        let new = format!("20261120{:04}", number + len);
        let sql = format!("UPDATE {table} SET MAXSERIALNO = ? WHERE {row} AND MAXSERIALNO = ?");
        connection.exec_drop(sql, (new, old))?;
        let updated = connection.affected_rows() == 1;
        connection.query_drop("COMMIT")?;
        Ok(updated.then_some((number + 1, number + len + 1)))
    };
    refill().unwrap_or_else(|_deadlock| {
        connection.query_drop("ROLLBACK").unwrap();
        None
    })
}

#[test]
fn old_key_factory_nodes_on_the_same_row_never_overlap_with_ours() {
    let bench = Bench::mariadb(Kind::Producer);
    let together = Barrier::new(8);
    let ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (bench, together) = (&bench, &together);
                scope.spawn(move || {
                    together.wait();
                    if n % 2 == 0 {
                        return reserve_many(bench.open().as_mut(), &bench.request("cust", 5), 50);
                    }
                    let mut connection = server::connection();
                    let mut ranges = Vec::new();
                    while ranges.len() < 50 {
                        ranges.extend(old_node(&mut connection, &bench.table, 5));
                    }
                    ranges
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ranges.len(), 400);
    assert_disjoint(ranges);
    assert_eq!(bench.stands_at("cust"), Some(2001));
}
