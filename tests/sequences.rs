//! Scheme `sequence` on MariaDB: refused, and under `unsafe=on` what it keeps all the same.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/mariadb run cargo test …` sets it).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keymill::store::{Columns, FaultKind, Key, MAX_NUMBER, Mark, Request, Scheme, Store};
use keymill_tests::server;
use mysql::prelude::Queryable;

/// A sequence on MariaDB, gone with the value.
struct Sequence(String);

impl Sequence {
    fn missing() -> Sequence {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        Sequence(format!("s_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    fn new() -> Sequence {
        let sequence = Sequence::missing();
        open().init(&[sequence.key(100, true)], false).unwrap();
        sequence
    }

    fn key(&self, step: u64, unsafe_on: bool) -> Arc<Key> {
        Arc::new(Key {
            scheme: Scheme::Sequence,
            table: self.0.clone(),
            name: "segment:orders".to_owned(),
            columns: Columns::default(),
            serial: None,
            step,
            unsafe_on,
            stride: keymill::store::Stride::EVERY,
        })
    }

    fn request(&self, seen: u64) -> Request {
        Request {
            key: self.key(100, true),
            len: 10,
            high_water: Mark { period: 0, next: seen },
            start: 1,
            last: MAX_NUMBER,
            period: 0,
            period_max: 0,
            heal: false,
            max_jump: 0,
        }
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            say(&format!("DROP TABLE IF EXISTS {}", self.0));
        }
    }
}

fn open() -> impl Store {
    server::store(server::options())
}

fn say(sql: &str) {
    server::connection().query_drop(sql).unwrap();
}

#[test]
fn mariadb_is_refused_with_the_reason_unless_the_risk_is_accepted() {
    let sequence = Sequence::missing();
    let key = sequence.key(100, false);
    let request = Request { key: Arc::clone(&key), ..sequence.request(0) };
    for answer in [
        open().reserve(&request).map(drop),
        open().init(&[Arc::clone(&key)], false).map(drop),
        open().look(&key).map(drop),
        open().repair(&key, Mark { period: 0, next: 5 }).map(drop),
    ] {
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
        for part in ["again after a crash", "scheme=keymill", "unsafe=on"] {
            assert!(fault.message.contains(part), "{fault}");
        }
    }
    let mill = keymill::Mill::open(&server::url()).unwrap();
    let error = mill.source("segment:orders?scheme=sequence").unwrap().next().unwrap_err();
    assert_eq!(error.code, keymill::Code::StoreUnsafe, "{}", error.message);
    mill.close();
}

#[test]
fn each_value_is_worth_step_numbers_and_sixteen_connections_draw_apart() {
    let sequence = Sequence::new();
    let mut store = open();
    assert_eq!(store.look(&sequence.key(100, true)).unwrap().unwrap().mark.next, 1);
    let first = store.reserve(&sequence.request(0)).unwrap();
    let second = store.reserve(&sequence.request(first.hi)).unwrap();
    assert_eq!((first.lo, first.hi, second.lo, second.hi), (1, 101, 101, 201));
    assert!(!store.give_back(&sequence.key(100, true), 0, 150, 201).unwrap());
    let mut ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let draw = || {
            let mut store = open();
            let mut seen = 0;
            let mut ranges = Vec::new();
            for _ in 0..50 {
                let got = store.reserve(&sequence.request(seen)).unwrap();
                seen = got.hi;
                ranges.push((got.lo, got.hi));
            }
            ranges
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    ranges.sort_unstable();
    assert_eq!((ranges[0].0, ranges.last().unwrap().1), (201, 201 + 16 * 50 * 100));
    assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0));
}

#[test]
fn a_sequence_that_was_set_back_is_refused_until_it_is_repaired() {
    let sequence = Sequence::new();
    let mut store = open();
    let mut hi = 0;
    for _ in 0..5 {
        hi = store.reserve(&sequence.request(hi)).unwrap().hi;
    }
    say(&format!("ALTER SEQUENCE {} RESTART 101", sequence.0));
    for _ in 0..20 {
        let fault = store.reserve(&sequence.request(hi)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::WentBackwards, "{fault}");
        assert!(fault.message.contains("stands at 101"), "nothing was drawn: {fault}");
    }
    let (before, after) = store.repair(&sequence.key(100, true), Mark { period: 0, next: hi }).unwrap();
    assert_eq!((before.unwrap().mark.next, after.mark.next), (101, hi));
    assert_eq!(store.reserve(&sequence.request(hi)).unwrap().lo, hi);
    let (_, after) = store.repair(&sequence.key(100, true), Mark { period: 0, next: 950 }).unwrap();
    assert_eq!(after.mark.next, 1001);
    assert_eq!(store.reserve(&sequence.request(hi)).unwrap().lo, 1001);
    let lower = store.repair(&sequence.key(100, true), Mark { period: 0, next: 1000 }).unwrap_err();
    assert_eq!(lower.kind, FaultKind::Refused, "{lower}");
}

#[test]
fn what_is_no_sequence_of_this_step_is_refused() {
    let sequence = Sequence::new();
    // Also by a connection that has drawn from it with the right step.
    let mut store = open();
    store.reserve(&sequence.request(0)).unwrap();
    let other = Request { key: sequence.key(50, true), ..sequence.request(0) };
    let fault = store.reserve(&other).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    assert!(fault.message.contains("use `step=100`"), "{fault}");
    let request = Request { key: sequence.key(50, true), ..sequence.request(0) };
    let fault = open().reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    assert!(fault.message.contains("use `step=100`"), "{fault}");

    let cycle = Sequence::missing();
    say(&format!("CREATE SEQUENCE {} INCREMENT BY 100 CYCLE", cycle.0));
    let fault = open().reserve(&cycle.request(0)).unwrap_err();
    assert!(fault.message.contains("starts over"), "{fault}");

    let table = Sequence::missing();
    say(&format!("CREATE TABLE {} (id INT)", table.0));
    let fault = open().reserve(&table.request(0)).unwrap_err();
    assert!(fault.message.contains("not a sequence"), "{fault}");

    let missing = Sequence::missing();
    let fault = open().reserve(&missing.request(0)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(fault.message.ends_with("is missing; run `keymill init`"), "{fault}");
    assert_eq!(open().look(&missing.key(100, true)).unwrap(), None);
}

#[test]
fn the_last_number_is_issued_and_nothing_wraps() {
    let sequence = Sequence::new();
    let mut store = open();
    store.repair(&sequence.key(100, true), Mark { period: 0, next: MAX_NUMBER - 106 }).unwrap();
    let mut seen = 0;
    let fault = loop {
        match store.reserve(&sequence.request(seen)) {
            Ok(got) => {
                assert!(got.lo < got.hi && got.hi <= MAX_NUMBER + 1);
                seen = got.hi;
            }
            Err(fault) => break fault,
        }
    };
    assert!(seen > MAX_NUMBER - 107, "{seen}");
    assert_eq!(fault.kind, FaultKind::Exhausted, "{fault}");
}
