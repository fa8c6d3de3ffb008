//! One suite for every store and scheme: what `keymill::store::Store` promises, proved against the real thing.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it), PostgreSQL by `KEYMILL_TEST_POSTGRES`
//! (`ci/servers/postgres run …`), Redis by `KEYMILL_TEST_REDIS` (`ci/servers/redis run …`); without them those tests fail and say so,
//! because a suite that skips silently proves nothing.

mod bank_changes;
mod banks;
mod bench;
mod counted;
mod mariadb;
mod matrix;
mod memory;
mod places;
mod postgres;
mod raised;
mod readers;
mod redis;
mod routes;
mod second_sqlite;
mod spelled;
mod sqlite;
mod wire;
mod workers;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use keymill::serial::SerialPattern;
use keymill::store::{
    Fault, FaultKind, GiveBack, Key, Mark, Partition, PeriodClock, Request, Reserved, RowMark, RowState,
    RowStatus, Scheme, SerialKey, Store,
};
use keymill::time::Clock;
use keymill_tests::{assert_disjoint, in_time, wordless};

use bench::{Bench, DAY, Kind, NEXT_DAY, Place, unique};

fn kind<T: std::fmt::Debug>(answer: Result<T, Fault>) -> FaultKind {
    let fault = answer.expect_err("a fault was expected");
    eprintln!("{:?}: {fault}", fault.kind);
    assert!(!fault.to_string().contains('\n'), "one line: {fault}");
    fault.kind
}

/// A promise that cannot be tested here, with the reason; `ci/steps/pairs` shows it in the table of pairs and promises.
fn not_kept(reason: &str) {
    // The name of the thread is the name of the test.
    println!("not kept in {}: {reason}", std::thread::current().name().unwrap_or("?"));
}

/// Defines each promise as a test of each kind on each store: `leaf_alloc::mariadb::repair_raises_only`.
macro_rules! contract {
    (
        everywhere { $($own:ident: $own_row:expr,)+ }
        in_tables { $($kind:ident: $row:expr,)+ }
        promises $names:tt
    ) => {
        /// Every row of the table.
        const LISTED: &[Kind] = &[$($own_row,)+ $($row,)+];
        $(contract!(@ $own $own_row, memory sqlite mariadb tidb postgres redis, $names);)+
        $(contract!(@ $kind $row, memory sqlite mariadb tidb postgres, $names);)+
    };
    (@ $kind:ident $row:expr, $($store:ident)+, $names:tt) => {
        mod $kind {
            $(contract!(@ $store $row, $names);)+
        }
    };
    (@ $store:ident $row:expr, { $($name:ident)* }) => {
        mod $store {
            use crate::*;
            $(
                #[test]
                fn $name() {
                    let _ = wordless::is_on();
                    crate::$name(&Bench::$store($row))
                }
            )*
        }
    };
}

contract! {
    everywhere {
        segment: Kind::Segment,
        serial: Kind::Serial,
    }
    // Redis keeps no rows of other programs.
    in_tables {
        key_producer: Kind::Producer,
        sequence_table: Kind::Counter(Scheme::SequenceTable),
        leaf_alloc: Kind::Counter(Scheme::LeafAlloc),
        tiny_id_info: Kind::Counter(Scheme::TinyIdInfo),
        tiny_id_info_strided: Kind::Strided,
        cosid: Kind::Counter(Scheme::Cosid),
        jpa_table: Kind::Counter(Scheme::JpaTable),
    }
    promises {
        reservations_follow_each_other
        another_connection_goes_on_where_the_first_stopped
        sixteen_connections_never_overlap_from_the_first_use_on
        eight_processes_never_overlap
        a_row_below_the_high_water_is_refused_and_left_alone
        a_deleted_row_is_refused_and_not_created_again
        a_row_of_another_partition_or_in_another_state_gives_nothing
        healing_raises_a_row_but_not_by_more_than_allowed
        odd_names_are_names_like_others
        the_last_number_is_issued_and_nothing_wraps
        a_smaller_last_number_holds
        the_last_tenth_of_a_period_is_given_in_single_steps
        a_range_is_given_back_only_while_the_row_ends_there
        a_row_that_was_begun_anew_or_repaired_takes_nothing_back_from_before
        a_new_period_starts_anew_and_an_old_one_never_comes_back
        a_period_ahead_of_the_stores_clock_is_refused_and_a_row_that_stands_in_one_is_set_back
        a_date_of_a_zone_far_east_is_not_ahead_and_one_that_begins_after_a_day_is
        a_mark_is_raised_and_never_lowered
        repair_raises_only
        rows_of_old_key_factory_nodes_are_understood
        a_text_that_is_no_serial_is_refused_and_left_alone
        init_max_starts_after_the_largest_serial_of_the_period
        a_machine_that_is_behind_makes_no_row_of_a_day_that_is_over
        a_table_of_another_shape_is_refused
        a_table_of_an_earlier_build_is_refused_and_left_alone
        inspecting_a_missing_row_answers_none
        a_name_that_becomes_sql_must_be_an_identifier
    }
}

#[test]
fn every_scheme_with_rows_has_a_row_in_the_table_of_this_suite() {
    for kind in Kind::all() {
        assert!(LISTED.contains(&kind), "{kind:?} is missing in `contract!`");
    }
}

/// Codes, kinds and rows do not depend on what messages say.
#[test]
fn behaviour_is_the_same_when_every_message_is_x() {
    wordless::run_again(&[
        "segment::memory::",
        "tiny_id_info_strided::memory::",
        "segment::sqlite::",
        "key_producer::sqlite::",
        "segment::mariadb::",
        "leaf_alloc::mariadb::",
        "segment::tidb::",
        "serial::postgres::",
        "cosid::postgres::",
        "segment::redis::",
    ]);
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

/// Reserves until there are `count` ranges; other processes may make single attempts fail, but not for ever.
fn reserve_many(store: &mut dyn Store, request: &Request, count: usize) -> Vec<(u64, u64)> {
    let (ranges, _, unknown) = reserve_timed(store, request, count);
    assert_eq!(unknown, 0, "each attempt is answered");
    ranges
}

/// The same, with the time of the longest attempt, and how many attempts had no answer: their ranges may be reserved and are not used.
fn reserve_timed(store: &mut dyn Store, request: &Request, count: usize) -> (Vec<(u64, u64)>, Duration, u64) {
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut request = request.clone();
    let mut ranges = Vec::new();
    let (mut worst, mut unknown) = (Duration::ZERO, 0);
    while ranges.len() < count {
        let began = Instant::now();
        let answer = store.reserve(&request);
        worst = worst.max(began.elapsed());
        match answer {
            Ok(got) => {
                request.high_water = Mark { period: got.period, next: got.hi };
                ranges.push((got.lo, got.hi));
            }
            // On a busy machine a process may sleep with the row locked for longer than others wait for it.
            Err(fault)
                if matches!(fault.kind, FaultKind::Unavailable | FaultKind::Locked | FaultKind::Conflict)
                    && Instant::now() < deadline =>
            {
                eprintln!("{fault}");
            }
            // Nor is it answered in time then.
            Err(fault) if fault.kind == FaultKind::Unknown && Instant::now() < deadline => {
                eprintln!("{fault}");
                unknown += 1;
            }
            Err(fault) => panic!("{fault}"),
        }
    }
    (ranges, worst, unknown)
}

fn sixteen_connections_never_overlap_from_the_first_use_on(bench: &Bench) {
    let rounds = repetitions(40);
    let together = Barrier::new(16);
    let ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|n| {
                let together = &together;
                scope.spawn(move || {
                    let mut store = bench.open();
                    let request = bench.request("orders", 1 + n % 7);
                    together.wait();
                    reserve_many(store.as_mut(), &request, rounds)
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ranges.len(), 16 * rounds);
    let total: u64 = ranges.iter().map(|(lo, hi)| hi - lo).sum();
    assert_disjoint(ranges);
    // One row, created once, and no failed attempt has moved it.
    assert_eq!(bench.stands_at("orders"), Some(total + 1));
}

/// How often a test repeats what it does: a quarter of `all`, and `all` in `ci/test --all`.
fn repetitions(all: usize) -> usize {
    if keymill_tests::ci::is_full_run() { all } else { all / 4 }
}

/// The environment variable that makes this binary a child: kind, place, table.
pub const CHILD: &str = "KEYMILL_CONTRACT_CHILD";

fn eight_processes_never_overlap(bench: &Bench) {
    let place = match &bench.place {
        Place::Memory(_) => return not_kept("one process's memory is no other's"),
        Place::Sqlite(path, _) => path.display().to_string(),
        Place::MariaDb => String::new(),
        Place::TiDb(url) => url.clone(),
        Place::Postgres => "postgres:".to_owned(),
        Place::Redis => "redis:".to_owned(),
    };
    let children: Vec<_> = (0..8)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "a_child_process_reserves_and_prints", "--nocapture", "--test-threads=1"])
                .env(CHILD, format!("{:?}|{place}|{}", bench.kind, bench.table))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut ranges = Vec::new();
    let (mut worst, mut unknown) = (0, 0);
    for mut child in children {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for line in lines.map(Result::unwrap) {
            if let Some((lo, hi)) = line.strip_prefix("range ").and_then(|range| range.split_once(' ')) {
                ranges.push((lo.parse().unwrap(), hi.parse().unwrap()));
            }
            if let Some(millis) = line.strip_prefix("worst ") {
                worst = worst.max(millis.parse::<u64>().unwrap());
            }
            if let Some(attempts) = line.strip_prefix("unknown ") {
                unknown += attempts.parse::<u64>().unwrap();
            }
        }
        assert!(child.wait().unwrap().success());
    }
    println!("the longest of {} reservations took {worst} ms", ranges.len());
    assert_eq!(ranges.len(), 8 * repetitions(100));
    let total: u64 = ranges.iter().map(|(lo, hi)| hi - lo).sum();
    assert_disjoint(ranges);
    let stands_at = bench.stands_at("orders").unwrap();
    assert!((total + 1..=total + 1 + 7 * unknown).contains(&stands_at), "{stands_at}, {total}, {unknown}");
}

/// Not a test of its own: `eight_processes_never_overlap` starts it. Without its variable it does nothing.
#[test]
fn a_child_process_reserves_and_prints() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let mut parts = task.split('|');
    let name = parts.next().unwrap();
    let kind = Kind::all().find(|kind| format!("{kind:?}") == name).unwrap();
    let place = match parts.next().unwrap() {
        "" => Place::MariaDb,
        url if url.starts_with("mysql://") => Place::TiDb(url.to_owned()),
        "postgres:" => Place::Postgres,
        "redis:" => Place::Redis,
        path => Place::Sqlite(path.into(), None),
    };
    let bench = std::mem::ManuallyDrop::new(Bench { kind, place, table: parts.next().unwrap().to_owned() });
    let count = repetitions(100);
    let (ranges, worst, unknown) = reserve_timed(bench.open().as_mut(), &bench.request("orders", 7), count);
    for (lo, hi) in ranges {
        println!("\nrange {lo} {hi}");
    }
    println!("\nworst {}", worst.as_millis());
    println!("\nunknown {unknown}");
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
    let [found, known] = [200, 201].map(|n| bench.kind.stride().nth(n).to_string());
    for part in [found.as_str(), &known, "keymill repair", &seen.key.name] {
        assert!(wordless::says(&fault, part), "{part} is not in: {fault}");
    }
    assert_eq!(bench.stands_at("orders"), Some(200));
    // A process that has seen less cannot detect it.
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

/// Its process has read the row and knows where it stood: the reservation itself compares.
fn a_row_of_another_partition_or_in_another_state_gives_nothing(bench: &Bench) {
    if !matches!(bench.kind, Kind::Segment | Kind::Serial) {
        return not_kept("the rows of other programs have no columns for it");
    }
    let mut store = bench.open();
    let mut request = bench.request("orders", 10);
    let got = store.reserve(&request).unwrap();
    request.high_water = Mark { period: got.period, next: got.hi };
    let own = RowStatus::default();
    let share = |stores, index, chunk| RowStatus::open(Some(Partition { stores, index, chunk }));
    let states = RowState::ALL.map(|state| RowStatus { state, ..own });
    let others = states.into_iter().chain([share(2, 0, 10), share(2, 1, 10), share(3, 0, 1)]);
    for status in others.filter(|status| *status != own) {
        let row = RowMark { mark: request.high_water, status, writer: 0 };
        bench.set_row_mark("orders", row);
        for store in [&mut *store, &mut *bench.open()] {
            assert_eq!(kind(store.reserve(&request)), FaultKind::Refused, "{status:?}");
            assert_eq!(kind(store.reserve(&bench.request("orders", 10))), FaultKind::Refused, "{status:?}");
            let together = store.reserve_all(&[request.clone(), bench.request("others", 1)]);
            assert!(!matches!(together[0], Some(Ok(_))), "{status:?}: {together:?}");
            assert!(
                !store.give_back(&GiveBack::new(&request.key, got.period, got.lo, got.hi)).unwrap(),
                "{status:?}"
            );
            let to = Mark { next: got.hi + 100, ..request.high_water };
            assert_eq!(kind(store.repair(&request.key, to)), FaultKind::Refused, "{status:?}");
            let found = store.look(&request.key).unwrap().map(|row| row.row_mark());
            assert_eq!(found, Some(row), "nothing was changed");
        }
    }
    // Of two stores each has its own row, and no other.
    let own_key =
        |index| Arc::new(Key { partition: share(2, index, 10).partition, ..Key::clone(&request.key) });
    for (row, asked, is_own) in [(0, 1, false), (1, 1, true), (1, 0, false), (0, 0, true)] {
        bench.set_row_mark(
            "orders",
            RowMark { mark: request.high_water, status: share(2, row, 10), writer: 0 },
        );
        let answer = store.reserve(&Request { key: own_key(asked), ..request.clone() });
        assert_eq!(answer.is_ok(), is_own, "a row of store {row} for store {asked}: {answer:?}");
    }
    bench.set_row_mark("orders", RowMark { mark: request.high_water, status: own, writer: 0 });
    assert_eq!(kind(store.reserve(&Request { key: own_key(0), ..request.clone() })), FaultKind::Refused);
    assert_eq!(store.reserve(&request).unwrap().lo, got.hi);
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

fn odd_names_are_names_like_others(bench: &Bench) {
    let foreign = bench.kind == Kind::Producer || bench.kind.columns().is_some();
    let widest = bench.kind.columns().map_or(80, |columns| columns.name_width);
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
    let mut used: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..2 {
        for name in names {
            match store.reserve(&bench.request(name, 5)) {
                Ok(got) => {
                    if !foreign {
                        // Two spellings of a serial's column make the same texts.
                        let row =
                            if bench.kind == Kind::Serial { name.to_uppercase() } else { name.to_owned() };
                        let used = used.entry(row).or_default();
                        assert_eq!(got.lo, 1 + *used * 5, "{name} has a row of its own");
                        *used += 1;
                    }
                    ranges.entry(name.to_uppercase()).or_default().push((got.lo, got.hi));
                }
                Err(fault) => {
                    // KeyFactory's table is three-byte utf8.
                    assert_eq!((foreign, fault.kind), (true, FaultKind::Refused), "{fault}");
                    // The authors of these three name no character set, so the tables have that of the database.
                    let by_database =
                        matches!(bench.kind, Kind::LEAF | Kind::COSID | Kind::JPA) && !name.is_ascii();
                    let known = name == "🦀" || by_database;
                    assert!(known, "{name}: {fault}: does the scheme's statement say CHARSET=utf8mb4?");
                    assert!(wordless::says(&fault, "scheme=keymill") || by_database, "{fault}");
                }
            }
        }
    }
    if foreign && bench.is_mysql() {
        // KeyFactory's table ignores case and trailing spaces; other tables have the database's collation, which may ignore
        // them too.
        if bench.pads("a ") {
            let padded = ranges.remove("A ").expect("it was reserved from");
            ranges.entry("A".to_owned()).or_default().extend(padded);
        }
        for ranges in ranges.into_values() {
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
    // A returned last number can be reserved again.
    let key = bench.key("orders");
    assert!(store.give_back(&GiveBack::new(&key, bench.kind.period(), last, last + 1)).unwrap());
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

fn the_last_tenth_of_a_period_is_given_in_single_steps(bench: &Bench) {
    if !bench.kind.is_serial() {
        return not_kept("numbers without a pattern end far away");
    }
    let mut store = bench.open();
    let mut request = Request { last: 9_999, single: 50, ..bench.request("cust", 1_000) };
    let mut ranges = Vec::new();
    let end = loop {
        match store.reserve(&request) {
            Ok(got) => {
                ranges.push(got.hi - got.lo);
                request.high_water = bench.mark(got.hi);
            }
            Err(fault) => break fault.kind,
        }
    };
    // 9001 is the first of the last 999.
    assert_eq!((&ranges[..9], end), ([1_000; 9].as_slice(), FaultKind::Exhausted));
    assert_eq!((ranges.len(), &ranges[9..28], ranges[28]), (29, [50; 19].as_slice(), 49));
    // Another process moved the row, and a range would reach into the last tenth.
    for name in ["other", "late"] {
        store.reserve(&bench.request(name, 1)).unwrap();
    }
    bench.set_row("other", bench.mark(8_931));
    let request = Request { last: 9_999, single: 50, ..bench.request("other", 1_000) };
    let sizes = [50, 50, 50].map(|size| (size, store.reserve(&request).unwrap()));
    for (size, got) in sizes {
        assert_eq!(got.hi - got.lo, size, "{got:?}");
    }
    // A row of the next period: how much of that this process uses is not known.
    bench.set_row("late", Mark { period: NEXT_DAY, next: 7 });
    let late = Request { last: 9_999, single: 50, period_max: NEXT_DAY, ..bench.request("late", 1_000) };
    let got = store.reserve(&late).unwrap();
    assert_eq!((got.period, got.lo, got.hi), (NEXT_DAY, 7, 57));
    let seen = Request { high_water: Mark { period: NEXT_DAY, next: 57 }, ..late };
    assert_eq!(store.reserve(&seen).map(|got| got.hi), Ok(107));
}

fn a_range_is_given_back_only_while_the_row_ends_there(bench: &Bench) {
    let mut store = bench.open();
    let (key, period) = (bench.key("orders"), bench.kind.period());
    assert!(!store.give_back(&GiveBack::new(&key, period, 1, 5)).unwrap(), "there is no row yet");
    let request = bench.request("orders", 100);
    let first = store.reserve(&request).unwrap();
    assert!(store.give_back(&GiveBack::new(&key, period, 40, first.hi)).unwrap());
    assert_eq!(bench.stands_at("orders"), Some(40));
    assert!(!store.give_back(&GiveBack::new(&key, period, 40, first.hi)).unwrap(), "not twice");
    let second = store.reserve(&request).unwrap();
    assert_eq!(second.lo, 40);
    store.reserve(&request).unwrap();
    assert!(!store.give_back(&GiveBack::new(&key, period, 60, second.hi)).unwrap(), "the row has moved on");
    assert!(!store.give_back(&GiveBack::new(&key, period, 240, 240)).unwrap(), "nothing to give");
    assert!(!store.give_back(&GiveBack::new(&key, period + 1, 200, 240)).unwrap(), "of another period");
    assert_eq!(bench.stands_at("orders"), Some(240));
}

fn a_row_that_was_begun_anew_or_repaired_takes_nothing_back_from_before(bench: &Bench) {
    if bench.kind.scheme() != Scheme::Keymill {
        return not_kept("another program's table has no column for the mill that reserved last");
    }
    let mut store = bench.open();
    let (key, period) = (bench.key("orders"), bench.kind.period());
    let ask = |writer, next| Request { writer, high_water: bench.mark(next), ..bench.request("orders", 100) };
    let rest = |writer, lo, hi| GiveBack { writer, ..GiveBack::new(&key, period, lo, hi) };
    let new = |writer| Request { high_water: Mark::default(), ..ask(writer, 0) };
    assert_eq!(store.reserve(&new(7)).unwrap().hi, 101);
    bench.delete_row("orders");
    let begun_anew = store.reserve(&new(8)).unwrap();
    assert_eq!((begun_anew.lo, begun_anew.hi), (1, 101));
    for given in
        [store.give_back(&rest(7, 5, 101)), store.give_back_all(&[rest(7, 5, 101)]).map(|all| all[0])]
    {
        assert_eq!(given, Ok(false), "these numbers were issued by the second mill");
    }
    assert_eq!(bench.stands_at("orders"), Some(101));
    assert_eq!(store.give_back(&rest(8, 91, 101)), Ok(true));
    assert_eq!(store.reserve(&ask(8, 91)).unwrap().lo, 91);
    // By the statement that needs no transaction, too.
    assert_eq!(store.give_back_all(&[rest(7, 181, 191)]), Ok(vec![false]));
    assert_eq!(store.give_back_all(&[rest(8, 181, 191)]), Ok(vec![true]));
    assert_eq!(store.reserve(&ask(9, 181)).unwrap().hi, 281, "another mill goes on");
    assert_eq!(store.give_back(&rest(8, 201, 281)), Ok(false));
    // An operator writes the number at which the row stands: nothing below it is issued any more.
    let to = Mark { period, next: 281 };
    let (before, after) = store.repair(&key, to).unwrap();
    assert_ne!(before.unwrap(), after, "the mill that reserved last is forgotten");
    assert_eq!(store.give_back(&rest(9, 201, 281)), Ok(false));
    assert_eq!(store.give_back_all(&[rest(9, 201, 281)]), Ok(vec![false]));
    assert_eq!(bench.stands_at("orders"), Some(281));
    let (before, after) = store.repair(&key, to).unwrap();
    assert_eq!(before, Some(after), "it stands there already");
}

fn a_new_period_starts_anew_and_an_old_one_never_comes_back(bench: &Bench) {
    if !bench.kind.is_serial() {
        return not_kept("numbers without dates have no periods");
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
    assert!(!store.give_back(&GiveBack::new(&today.key, DAY, 100, 301)).unwrap());
    // The row of an old node with a slow clock: set back to yesterday, below what this process has seen.
    bench.set_row("cust", Mark { period: DAY, next: 400 });
    let seen = Mark { period: NEXT_DAY, next: 601 };
    let set_back = store.reserve(&Request { high_water: seen, ..tomorrow });
    assert_eq!(kind(set_back), FaultKind::WentBackwards);
    assert_eq!(bench.stands_at("cust"), Some(400));
}

fn a_period_ahead_of_the_stores_clock_is_refused_and_a_row_that_stands_in_one_is_set_back(bench: &Bench) {
    const DAY_MS: i64 = 86_400_000;
    if !bench.kind.is_serial() {
        return not_kept("numbers without dates have no periods");
    }
    match &bench.place {
        Place::Sqlite(..) => not_kept("its clock is this machine's"),
        Place::Memory(memory) => memory.set_clock(Clock::System),
        _ => {}
    }
    let mut store = bench.open();
    let key = bench.key("cust");
    let pattern = &key.serial.as_ref().unwrap().pattern;
    let now_ms = Clock::System.wall_ms();
    let asked = |wall_ms: i64, skew_ms: u64, high_water: Mark| {
        let period = pattern.period_at(wall_ms);
        let clock = Some(PeriodClock { wall_ms, skew_ms });
        Request { period, period_max: period, clock, high_water, ..bench.request("cust", 300) }
    };
    let year_ahead_ms = now_ms + 365 * DAY_MS;
    let is_explained = |behind: &Fault| {
        assert_eq!(behind.kind, FaultKind::ClockBehind, "{behind}");
        if !wordless::is_on() {
            let said = behind.to_string();
            assert!(said.contains("a machine whose clock was ahead") && said.contains(" repair "), "{said}");
        }
    };
    if let Place::Sqlite(..) = &bench.place {
        store.reserve(&asked(year_ahead_ms, 5_000, Mark::default())).unwrap();
        return is_explained(&store.reserve(&asked(now_ms, 5_000, Mark::default())).expect_err("a year ago"));
    }
    let is_refused = |answer: Result<Reserved, Fault>| {
        let fault = answer.expect_err("its clock is a year ahead");
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        if !wordless::is_on() {
            for date in
                [year_ahead_ms, now_ms].map(|ms| pattern.prefix(pattern.period_at(ms)).as_str().to_owned())
            {
                let date = format!("{}-{}-{}", &date[..4], &date[4..6], &date[6..]);
                assert!(fault.to_string().contains(&date), "{fault} names no clock of {date}");
            }
        }
    };
    is_refused(store.reserve(&asked(year_ahead_ms, 5_000, Mark::default())));
    assert_eq!(bench.stands_at("cust"), None, "nothing was written");
    let today = store.reserve(&asked(now_ms, 5_000, Mark::default())).unwrap();
    assert_eq!((today.lo, today.hi, today.period), (1, 301, pattern.period_at(now_ms)));
    let seen = Mark { period: today.period, next: today.hi };
    for _ in 0..2 {
        is_refused(store.reserve(&asked(year_ahead_ms, 5_000, seen)));
        is_refused(bench.open().reserve(&asked(year_ahead_ms, 5_000, Mark::default())));
        let together = store.reserve_all(&[asked(year_ahead_ms, 5_000, seen), bench.request("other", 3)]);
        if let Some(answer) = together.into_iter().next().flatten() {
            is_refused(answer);
        }
    }
    assert_eq!(store.look(&key).unwrap().unwrap().mark, seen, "nothing was written");
    // `skew` says by how much clocks may differ, and may be more than ten minutes.
    let ahead = store.reserve(&asked(now_ms + 3 * DAY_MS, 4 * DAY_MS as u64, seen)).unwrap();
    assert_eq!((ahead.lo, ahead.period), (1, pattern.period_at(now_ms + 3 * DAY_MS)));
    let behind = store.reserve(&asked(now_ms, 5_000, Mark::default())).expect_err("another day");
    is_explained(&behind);
    // Set back, and only from there.
    let latest = pattern.period_at(now_ms + 600_000);
    let to = Mark { period: today.period, next: 900 };
    let (before, after) = store.set_back(&key, to, latest, true).unwrap();
    assert_eq!(
        (before.map(|row| row.mark), after.mark),
        (Some(Mark { period: ahead.period, next: 301 }), to)
    );
    assert_eq!(bench.stands_at("cust"), Some(301), "a dry run writes nothing");
    let late = Mark { period: ahead.period, next: 1 };
    assert_eq!(kind(store.set_back(&key, late, latest, false)), FaultKind::Refused);
    store.set_back(&key, to, latest, false).unwrap();
    assert_eq!(store.look(&key).unwrap().unwrap().mark, to);
    assert_eq!(kind(store.set_back(&key, Mark { next: 5, ..to }, latest, false)), FaultKind::Refused);
    assert_eq!(store.reserve(&asked(now_ms, 5_000, seen)).unwrap().lo, 900);
}

/// Instants are compared: where it is tomorrow already, tomorrow's date has begun.
fn a_date_of_a_zone_far_east_is_not_ahead_and_one_that_begins_after_a_day_is(bench: &Bench) {
    const HOUR_MS: i64 = 3_600_000;
    if !bench.kind.is_serial() {
        return not_kept("numbers without dates have no periods");
    }
    match &bench.place {
        Place::Sqlite(..) => return not_kept("its clock is this machine's"),
        Place::Memory(memory) => memory.set_clock(Clock::System),
        _ => {}
    }
    for zone in ["+14:00", "Pacific/Kiritimati"] {
        let name = if zone.starts_with('+') { "offset" } else { "island" };
        let key = bench.key(name);
        let pattern = SerialPattern::new("yyyyMMdd", "0000", zone).unwrap();
        let serial = key.serial.clone().map(|serial| SerialKey { pattern: pattern.clone(), ..serial });
        let key = Arc::new(Key { serial, ..(*key).clone() });
        let now_ms = Clock::System.wall_ms();
        let asked = |wall_ms: i64| {
            let period = pattern.period_at(wall_ms);
            let clock = Some(PeriodClock { wall_ms, skew_ms: 5_000 });
            Request { key: Arc::clone(&key), period, period_max: period, clock, ..bench.request(name, 300) }
        };
        let mut store = bench.open();
        let refused =
            store.reserve(&asked(now_ms + 26 * HOUR_MS)).expect_err("it begins in two hours or later");
        assert_eq!(refused.kind, FaultKind::Refused, "{zone}: {refused}");
        assert_eq!(store.look(&key).unwrap(), None, "{zone}: nothing was written");
        let today = store.reserve(&asked(now_ms)).unwrap_or_else(|fault| panic!("{zone}: {fault}"));
        assert_eq!((today.lo, today.hi, today.period), (1, 301, pattern.period_at(now_ms)), "{zone}");
        let seen = Mark { period: today.period, next: today.hi };
        let late = Request { high_water: seen, ..asked(now_ms + 26 * HOUR_MS) };
        let refused = store.reserve(&late).expect_err("it begins in two hours or later");
        assert_eq!(refused.kind, FaultKind::Refused, "{zone}: {refused}");
        assert_eq!(store.look(&key).unwrap().unwrap().mark, seen, "{zone}: nothing was written");
    }
}

fn a_mark_is_raised_and_never_lowered(bench: &Bench) {
    let mut store = bench.open();
    let key = bench.key("worker-7");
    if bench.kind.scheme() != Scheme::Keymill {
        assert_eq!(kind(store.raise(&key, None, 5)), FaultKind::Refused);
        return not_kept("marks of snowflakes are kept by scheme keymill alone; refused here");
    }
    assert_eq!(store.raise(&key, None, 500).unwrap(), 0);
    assert_eq!(store.raise(&key, None, 400).unwrap(), 500);
    assert_eq!(bench.stands_at("worker-7"), Some(500));
    assert_eq!(store.raise(&key, Some(500), 600).unwrap(), 500);
    let taken = store.raise(&key, Some(500), 700).unwrap_err();
    assert!(taken.kind == FaultKind::Taken && wordless::says(&taken, "a number of its own"), "{taken}");
    assert_eq!(bench.stands_at("worker-7"), Some(600));
    let gone = store.raise(&bench.key("worker-8"), Some(1), 700).unwrap_err();
    assert!(gone.kind == FaultKind::Taken && wordless::says(&gone, "its row is gone"), "{gone}");
    assert_eq!(store.raise(&bench.key("worker-8"), Some(0), 700).unwrap(), 0);
    assert_eq!(kind(store.raise(&key, None, u64::MAX)), FaultKind::Refused);
    // Sixteen clients expect the same mark: one succeeds.
    let winners: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16)
            .map(|n| {
                let key = &key;
                scope.spawn(move || match in_time(|| bench.open().raise(key, Some(600), 1000 + n)) {
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
        return not_kept("the rows are not KeyFactory's");
    }
    let mut store = bench.open();
    let request = bench.request("cust", 500);
    store.reserve(&request).unwrap();
    for (text, lo) in [
        (Some("INIT"), 1),
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
    // KeyFactory writes neither, and issues nothing when it finds NULL.
    for (text, says) in
        [(None, "holds NULL in `MAXSERIALNO`"), (Some(""), "holds an empty text in `MAXSERIALNO`")]
    {
        bench.set_text("cust", text);
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        assert!(wordless::says(&fault, says) && wordless::says(&fault, "or to INIT"), "{fault}");
        assert_eq!(store.look(&bench.key("cust")).unwrap().unwrap().mark.next, 0, "the row was left alone");
    }
    store.repair(&bench.key("cust"), bench.mark(701)).unwrap();
    assert_eq!(store.reserve(&request).unwrap().lo, 701, "a repair mends it");
    // A row that was emptied after a process has seen numbers does not begin again.
    for text in [None, Some(""), Some("INIT")] {
        bench.set_text("cust", text);
        let seen = Request { high_water: bench.mark(1001), ..request.clone() };
        assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
    }
}

fn a_text_that_is_no_serial_is_refused_and_left_alone(bench: &Bench) {
    if bench.kind != Kind::Producer {
        return not_kept("the rows are not KeyFactory's");
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
        assert!(wordless::says(&fault, text), "{fault}");
        if !matches!(bench.place, Place::Memory(_)) {
            let same = "UPDATE {t} SET MAXSERIALNO = 'seen' WHERE MAXSERIALNO = ?";
            assert_eq!(bench.tamper(same, &[text]), 1, "the row was left alone");
        }
    }
}

fn init_max_starts_after_the_largest_serial_of_the_period(bench: &Bench) {
    if !bench.kind.is_serial() || matches!(bench.place, Place::Memory(_) | Place::Redis) {
        return not_kept("no serials, or no business tables to look into");
    }
    let mut store = bench.open();
    let business = unique("cust");
    // A first table has to exist, or the SQLite file belongs to another program.
    store.reserve(&bench.request("first", 1)).unwrap();
    let charset = if bench.is_mysql() { "CHARSET=utf8mb4" } else { "" };
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
        bench.set_text(&business, Some("INIT"));
        assert_eq!(store.reserve(&request).unwrap().lo, 10_001);
    }
    let tomorrow = Request { period: NEXT_DAY, period_max: NEXT_DAY, ..request.clone() };
    assert_eq!(store.reserve(&tomorrow).unwrap().lo, 1, "a new period of a row begins at the start");
    // With `overflow=error` a widened number does not match this pattern.
    let strict = Request { last: 9999, period: NEXT_DAY, period_max: NEXT_DAY, ..request };
    bench.delete_row(&business);
    assert_eq!(kind(store.reserve(&strict)), FaultKind::Exhausted);
    let today = Request { period: DAY, period_max: DAY, ..strict };
    assert_eq!(kind(store.reserve(&today)), FaultKind::Exhausted);
    bench.tamper(&format!("DELETE FROM {business} WHERE id = '202611209999'"), &[]);
    assert_eq!(store.reserve(&today).unwrap().lo, 1000);
    bench.tamper(&format!("DROP TABLE {business}"), &[]);
}

/// The row would stand in a day that is over, and the programs would begin the present one at 1, of which the business table holds numbers.
fn a_machine_that_is_behind_makes_no_row_of_a_day_that_is_over(bench: &Bench) {
    const DAY_MS: i64 = 86_400_000;
    if !bench.kind.is_serial() || matches!(bench.place, Place::Memory(_) | Place::Redis | Place::Sqlite(..)) {
        return not_kept("no business tables to look into, or no clock of its own");
    }
    let mut store = bench.open();
    let business = unique("cust");
    let key = bench.kind.key(&bench.table, &business, true);
    let pattern = &key.serial.as_ref().unwrap().pattern;
    let now_ms = Clock::System.wall_ms();
    let charset = if bench.is_mysql() { "CHARSET=utf8mb4" } else { "" };
    bench.tamper(&format!("CREATE TABLE {business} (id VARCHAR(64)) {charset}"), &[]);
    for (ms, number) in [(now_ms, 7), (now_ms - DAY_MS, 900)] {
        let text = pattern.text(pattern.period_at(ms), number);
        bench.tamper(&format!("INSERT INTO {business} VALUES (?)"), &[&text]);
    }
    let asked = |wall_ms: i64, skew_ms: i64| {
        let period = pattern.period_at(wall_ms);
        let period_max = pattern.period_at(wall_ms + skew_ms);
        let clock = Some(PeriodClock { wall_ms, skew_ms: skew_ms as u64 });
        Request { key: Arc::clone(&key), period, period_max, clock, ..bench.request("x", 3) }
    };
    let refused = store.reserve(&asked(now_ms - DAY_MS, 5_000)).expect_err("its clock is a day behind");
    assert_eq!(refused.kind, FaultKind::ClockBehind, "{refused}");
    assert!(wordless::is_on() || refused.to_string().contains("this machine's clock says"), "{refused}");
    assert_eq!(store.look(&key).unwrap(), None, "nothing was written");
    // Within `skew` the row is made in the day of the store's clock.
    let today = store.reserve(&asked(now_ms - DAY_MS, DAY_MS + 5_000)).unwrap();
    assert_eq!((today.lo, today.period), (8, pattern.period_at(now_ms)));
    assert_eq!(store.reserve(&asked(now_ms, 5_000)).unwrap().lo, 11);
    bench.tamper(&format!("DROP TABLE {business}"), &[]);
}

/// `keymill_segment` as the builds before 0.2.0 made it.
fn earlier_table(bench: &Bench) -> &'static str {
    match bench.place {
        Place::Sqlite(..) => {
            "CREATE TABLE {t} (name TEXT NOT NULL PRIMARY KEY, period INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL, \
             updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) WITHOUT ROWID"
        }
        Place::Postgres => {
            "CREATE TABLE {t} (name TEXT COLLATE \"C\" NOT NULL PRIMARY KEY, period BIGINT NOT NULL DEFAULT 0, \
             next BIGINT NOT NULL, updated_at TIMESTAMPTZ NOT NULL DEFAULT now()) WITH (fillfactor = 50)"
        }
        _ => {
            "CREATE TABLE {t} (`name` VARBINARY(512) NOT NULL, `period` BIGINT UNSIGNED NOT NULL DEFAULT 0, \
             `next` BIGINT UNSIGNED NOT NULL, `updated_at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP \
             ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (`name`)) ENGINE=InnoDB"
        }
    }
}

fn a_table_of_an_earlier_build_is_refused_and_left_alone(bench: &Bench) {
    if !matches!(bench.kind, Kind::Segment | Kind::Serial) || matches!(bench.place, Place::Memory(_)) {
        return not_kept("the table is another program's, or in memory");
    }
    if matches!(bench.place, Place::Redis) {
        return not_kept(
            "there are no tables; of an earlier row tells a_key_that_is_no_row_of_ours_is_refused_and_left_alone",
        );
    }
    if !matches!(bench.place, Place::Sqlite(..)) {
        bench.tamper("DROP TABLE {t}", &[]);
    }
    bench.tamper(earlier_table(bench), &[]);
    let key = bench.key("orders");
    let insert = "INSERT INTO {t} (name, period, next) VALUES (?, 20100000010000000, 700)";
    bench.tamper(insert, &[&key.name]);
    let mut store = bench.open();
    let mut answers = vec![
        store.reserve(&bench.request("orders", 1)).map(drop),
        store.init(&[Arc::clone(&key)], false).map(drop),
        store.look(&key).map(drop),
        store.look_rows(&[Arc::clone(&key)]).map(drop),
        store.repair(&key, bench.mark(900)).map(drop),
        store.raise(&key, None, 900).map(drop),
        store.give_back(&GiveBack::new(&key, bench.kind.period(), 1, 2)).map(drop),
    ];
    answers.extend(
        store
            .reserve_counters(&[bench.request("a", 1), bench.request("b", 1)])
            .into_iter()
            .map(|a| a.map(drop)),
    );
    for answer in answers {
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        for part in [
            "earlier build",
            "a column `period` in place of `date`",
            "Stop every program",
            "status",
            "rename",
            "init",
            "repair SOURCE --to N",
        ] {
            assert!(wordless::says(&fault, part), "`{part}` is not in: {fault}");
        }
        assert!(!fault.to_string().contains('\n'), "one line: {fault}");
    }
    assert_eq!(bench.tamper("DELETE FROM {t} WHERE period = 20100000010000000 AND next = 700", &[]), 1);
}

fn a_table_of_another_shape_is_refused(bench: &Bench) {
    if matches!(bench.place, Place::Memory(_) | Place::Redis) {
        return not_kept("there are no tables of any shape");
    }
    let columns = match (bench.kind, bench.kind.columns()) {
        (Kind::Producer, _) => {
            "(TABLENAME VARCHAR(80) PRIMARY KEY, COLUMNNAME VARCHAR(80), MAXSERIALNO VARCHAR(80))".to_owned()
        }
        (_, Some(columns)) => format!("({} VARCHAR(80) PRIMARY KEY)", columns.name),
        _ => "(name VARCHAR(80) PRIMARY KEY, next BIGINT)".to_owned(),
    };
    let missing = match bench.kind {
        Kind::Producer => "datefmt",
        kind => kind.columns().map_or("date", |columns| columns.maximum),
    };
    if bench.is_mysql() || matches!(bench.place, Place::Postgres) {
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
        assert!(
            wordless::says(fault.to_string().to_lowercase(), &format!("`{missing}` is missing")),
            "{fault}"
        );
    }
}

fn inspecting_a_missing_row_answers_none(bench: &Bench) {
    assert_eq!(bench.stands_at("nobody"), None);
    bench.open().reserve(&bench.request("somebody", 1)).unwrap();
    assert_eq!(bench.stands_at("nobody"), None);
    let facts = bench.open().facts().unwrap();
    assert!(keymill_tests::redis::warnings(&facts).is_empty(), "{facts:?}");
    assert!(!facts.version.is_empty(), "{facts:?}");
    // TiDB has no setting that loses commits.
    assert_eq!(facts.durability.is_empty(), facts.dialect == "tidb", "{facts:?}");
    assert_eq!(facts.dialect == "tidb", matches!(bench.place, Place::TiDb(_)), "{facts:?}");
}

fn a_name_that_becomes_sql_must_be_an_identifier(bench: &Bench) {
    let mut store = bench.open();
    if bench.kind.is_serial() && !matches!(bench.place, Place::Memory(_)) {
        let key = bench.kind.key(&bench.table, "cust; DROP TABLE x", true);
        let request = Request { key, ..bench.request("x", 1) };
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert!(wordless::says(&fault, "identifier"), "{fault}");
    }
    if !matches!(bench.place, Place::Memory(_)) {
        let key = bench.kind.key("t`\" (x", "orders", false);
        let request = Request { key: Arc::clone(&key), ..bench.request("x", 1) };
        assert_eq!(kind(store.reserve(&request)), FaultKind::Refused);
        assert_eq!(kind(store.init(&[key], true)), FaultKind::Refused);
    }
}
