//! Scheme `sequence` on PostgreSQL: values that survive a crash, whoever drew or rolled back beside us.

use std::sync::Arc;

use keymill::store::{Columns, FaultKind, Key, MAX_NUMBER, Mark, Request, Scheme, Store};
use keymill_tests::postgres::{self, Private, Sql};
use keymill_tests::proxy::{Answers, Proxy};

use crate::assert_disjoint;
use crate::bench::unique;

/// A sequence on the shared server, gone with the value.
struct Sequence(String);

impl Sequence {
    fn new() -> Sequence {
        let sequence = Sequence(unique("s"));
        open().init(&[key(&sequence.0, 100)], false).unwrap();
        sequence
    }

    fn request(&self, seen: u64) -> Request {
        request(&self.0, seen)
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            Sql::shared().say(&format!("DROP SEQUENCE IF EXISTS {}", self.0));
        }
    }
}

fn key(table: &str, step: u64) -> Arc<Key> {
    Arc::new(Key {
        scheme: Scheme::Sequence,
        table: table.to_owned(),
        name: "segment:orders".to_owned(),
        columns: Columns::default(),
        serial: None,
        step,
        unsafe_on: false,
        stride: keymill::store::Stride::EVERY,
    })
}

fn request(table: &str, seen: u64) -> Request {
    let high_water = Mark { period: 0, next: seen };
    Request { high_water, ..keymill_tests::request(&key(table, 100), 10) }
}

fn open() -> impl Store {
    postgres::store(postgres::options())
}

#[test]
fn each_value_is_worth_step_numbers_and_sixteen_connections_draw_apart() {
    let sequence = Sequence::new();
    let mut store = open();
    assert_eq!(store.look(&key(&sequence.0, 100)).unwrap().unwrap().mark.next, 1);
    let first = store.reserve(&sequence.request(0)).unwrap();
    let second = store.reserve(&sequence.request(first.hi)).unwrap();
    assert_eq!((first.lo, first.hi, second.lo, second.hi), (1, 101, 101, 201));
    assert!(!store.give_back(&key(&sequence.0, 100), 0, 150, 201).unwrap());
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

/// PostgreSQL logs 32 values at a time, and only the transaction that did so waits for the disk. Here it is always
/// somebody else's, and rolled back, so that nothing but keymill's own commit brings the log to the disk.
#[test]
fn values_drawn_after_somebody_elses_rollback_survive_a_killed_server() {
    for more in ["", "-c wal_level=minimal -c max_wal_senders=0"] {
        // The log writer, which would flush within 0.2 s, sleeps.
        let sleepy = "-c wal_writer_delay=10s -c wal_writer_flush_after=0 -c bgwriter_lru_maxpages=0";
        let private = Private::start(&format!("{sleepy} {more}"));
        postgres::store(private.options()).init(&[key("orders", 100)], false).unwrap();
        let mut ranges = Vec::new();
        for round in 0..2 {
            let other = Sql::to(&private.options());
            // What the first draw after a start logs is out of the way.
            other.say("SELECT nextval('orders')");
            Sql::root(&private.url()).say("CHECKPOINT");
            other.say("BEGIN; SELECT nextval('orders') FROM generate_series(1, 40); ROLLBACK");
            let mut store = postgres::store(private.options());
            for _ in 0..5 + round * 17 {
                // Nothing may hide behind the high water: another process would not have it.
                let got = store.reserve(&request("orders", 0)).unwrap();
                ranges.push((got.lo, got.hi));
            }
            private.kill();
            private.start_again();
        }
        assert_disjoint(ranges);
    }
}

#[test]
fn a_swallowed_answer_is_an_unknown_outcome_and_its_value_is_never_used() {
    let sequence = Sequence::new();
    let mut options = postgres::options();
    let proxy = Proxy::start(options.hosts[0].clone());
    options.hosts = vec![proxy.address()];
    let mut store = postgres::store(options);
    let (mut ranges, mut seen, mut unknown) = (Vec::new(), 0, 0);
    for _ in 0..40 {
        for answers in [Answers::Pass, Answers::CutAfter(0)] {
            proxy.set(answers);
            match store.reserve(&sequence.request(seen)) {
                Ok(got) => {
                    seen = got.hi;
                    ranges.push((got.lo, got.hi));
                }
                Err(fault) => {
                    assert_eq!(fault.kind, FaultKind::Unknown, "{fault}");
                    unknown += 1;
                }
            }
        }
    }
    assert_eq!((ranges.len(), unknown), (40, 40));
    assert_eq!(seen, 1 + 100 * (40 + 39), "each unknown value is a gap, but the last");
    assert_disjoint(ranges);
}

#[test]
fn a_sequence_that_was_set_back_is_refused_until_it_is_repaired() {
    let sequence = Sequence::new();
    let mut store = open();
    let mut hi = 0;
    for _ in 0..5 {
        hi = store.reserve(&sequence.request(hi)).unwrap().hi;
    }
    Sql::shared().say(&format!("ALTER SEQUENCE {} RESTART 101", sequence.0));
    for _ in 0..20 {
        let fault = store.reserve(&sequence.request(hi)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::WentBackwards, "{fault}");
        assert!(fault.message.contains("stands at 101"), "nothing was drawn: {fault}");
    }
    let key = key(&sequence.0, 100);
    let (before, after) = store.repair(&key, Mark { period: 0, next: hi }).unwrap();
    assert_eq!((before.unwrap().mark.next, after.mark), (101, Mark { period: 0, next: hi }));
    assert_eq!(store.reserve(&sequence.request(hi)).unwrap().lo, hi);
    let (_, after) = store.repair(&key, Mark { period: 0, next: 950 }).unwrap();
    assert_eq!(after.mark.next, 1001);
    assert_eq!(store.reserve(&sequence.request(hi)).unwrap().lo, 1001);
    let lower = store.repair(&key, Mark { period: 0, next: 1000 }).unwrap_err();
    assert_eq!(lower.kind, FaultKind::Refused, "{lower}");
}

#[test]
fn what_is_no_sequence_of_this_step_is_refused() {
    let sequence = Sequence::new();
    let says = |request: &Request, part: &str| {
        let fault = open().reserve(request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        assert!(fault.message.contains(part), "{part}: {fault}");
    };
    says(&Request { key: key(&sequence.0, 50), ..sequence.request(0) }, "use `step=100`");
    let sql = Sql::shared();
    for (making, part) in [
        ("CREATE SEQUENCE {} INCREMENT BY 100 CYCLE", "starts over"),
        ("CREATE SEQUENCE {} INCREMENT BY -100", "counts downwards"),
        ("CREATE TABLE {} (id INT)", "not a sequence"),
    ] {
        let name = unique("s");
        sql.say(&making.replace("{}", &name));
        says(&request(&name, 0), part);
        let kind = if making.contains("TABLE") { "TABLE" } else { "SEQUENCE" };
        sql.say(&format!("DROP {kind} {name}"));
    }
    let missing = unique("s");
    says(&request(&missing, 0), "is missing; run `keymill init`");
    assert_eq!(open().look(&key(&missing, 100)).unwrap(), None);
}

#[test]
fn the_last_number_is_issued_and_nothing_wraps() {
    let sequence = Sequence::new();
    let mut store = open();
    store.repair(&key(&sequence.0, 100), Mark { period: 0, next: MAX_NUMBER - 106 }).unwrap();
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

#[test]
fn tickets_are_another_servers() {
    for scheme in [Scheme::AutoIncrement, Scheme::Ticket] {
        let key = Arc::new(Key { scheme, ..key("tickets", 100).as_ref().clone() });
        let request = Request { key: Arc::clone(&key), ..request("tickets", 0) };
        for answer in [
            open().reserve(&request).map(drop),
            open().init(&[Arc::clone(&key)], true).map(drop),
            open().look(&key).map(drop),
            open().repair(&key, Mark { period: 0, next: 5 }).map(drop),
        ] {
            let fault = answer.unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(fault.message.contains("scheme=keymill"), "{fault}");
        }
    }
}

#[test]
fn a_sequence_that_is_raised_while_others_draw_names_no_value_twice() {
    let sequence = Sequence::new();
    let start = std::sync::Barrier::new(8);
    let rounds = 150_u64;
    let drawn: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let (sequence, start) = (&sequence, &start);
                scope.spawn(move || {
                    let mut store = open();
                    let mut drawn = Vec::new();
                    for round in 1..=rounds {
                        start.wait();
                        // As several stores behind one source do at each chunk's begin.
                        let to = Mark { period: 0, next: round * 10_000 + 1 };
                        match store.repair(&sequence.request(0).key, to) {
                            Err(fault) if fault.kind != FaultKind::Refused => panic!("{fault}"),
                            _ => {}
                        }
                        for _ in 0..3 {
                            let range = store.reserve(&sequence.request(0)).unwrap();
                            drawn.push((range.lo, range.hi));
                        }
                    }
                    drawn
                })
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    assert_disjoint(drawn);
}
