//! Scheme `sequence`: a database's own counter, each value of which owns `step` numbers. The common tests are here;
//! `postgres` has those of PostgreSQL's promises, `mariadb` that MariaDB is refused.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL` and `KEYMILL_TEST_POSTGRES`
//! (`ci/servers/mariadb run ci/servers/postgres run cargo test …` sets them).

mod jpa;
mod mariadb;
mod postgres;
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keymill::store::{FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Request, Scheme, Store};
use keymill_tests::{assert_disjoint, in_time};

/// A server with sequences.
#[derive(Clone, Copy)]
struct Server {
    open: fn() -> Box<dyn Store>,
    say: fn(&str),
    /// MariaDB's do not survive a crash of the server: its mills need `unsafe=on`.
    unsafe_on: bool,
}

const SERVERS: [Server; 2] = [mariadb::SERVER, postgres::SERVER];

impl Server {
    /// What Hibernate adds where it makes a sequence of MariaDB.
    fn nocache(self) -> &'static str {
        if self.unsafe_on { "NOCACHE" } else { "" }
    }
}

fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // ordering: Relaxed — a number for each, nothing more.
    format!("q_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The name of a sequence on the shared server, which is dropped with the value.
struct Sequence {
    server: Server,
    name: String,
}

impl Sequence {
    fn missing(server: Server) -> Sequence {
        Sequence { server, name: unique() }
    }

    fn new(server: Server) -> Sequence {
        let sequence = Sequence::missing(server);
        sequence.open().init(&[sequence.key(100)], false).unwrap();
        sequence
    }

    fn open(&self) -> Box<dyn Store> {
        (self.server.open)()
    }

    fn key(&self, step: u64) -> Arc<Key> {
        key(&self.name, step, self.server.unsafe_on)
    }

    fn request(&self, seen: u64) -> Request {
        request(&self.key(100), seen)
    }
}

impl Drop for Sequence {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            (self.server.say)(&format!("DROP SEQUENCE IF EXISTS {}", self.name));
        }
    }
}

fn key(name: &str, step: u64, unsafe_on: bool) -> Arc<Key> {
    Arc::new(Key { step, unsafe_on, ..Key::segment(Scheme::Sequence, name, "orders") })
}

fn request(key: &Arc<Key>, seen: u64) -> Request {
    Request { high_water: at(seen), ..keymill_tests::request(key, 10) }
}

fn at(next: u64) -> Mark {
    Mark { period: 0, next }
}

#[test]
fn each_value_is_worth_step_numbers_and_sixteen_connections_draw_apart() {
    for server in SERVERS {
        let sequence = Sequence::new(server);
        let mut store = sequence.open();
        assert_eq!(store.look(&sequence.key(100)).unwrap().unwrap().mark.next, 1);
        let first = store.reserve(&sequence.request(0)).unwrap();
        let second = store.reserve(&sequence.request(first.hi)).unwrap();
        assert_eq!((first.lo, first.hi, second.lo, second.hi), (1, 101, 101, 201));
        assert!(!store.give_back(&GiveBack::new(&sequence.key(100), 0, 150, 201)).unwrap());
        let ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let draw = || {
                let mut store = sequence.open();
                let mut seen = 0;
                let mut ranges = Vec::new();
                for _ in 0..50 {
                    let got = in_time(|| store.reserve(&sequence.request(seen))).unwrap();
                    seen = got.hi;
                    ranges.push((got.lo, got.hi));
                }
                ranges
            };
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let ends = (ranges.iter().map(|range| range.0).min(), ranges.iter().map(|range| range.1).max());
        assert_eq!(ends, (Some(201), Some(201 + 16 * 50 * 100)));
        assert_eq!(assert_disjoint(ranges), 16 * 50 * 100, "none is skipped");
    }
}

#[test]
fn a_sequence_that_was_set_back_is_refused_until_it_is_repaired() {
    for server in SERVERS {
        let sequence = Sequence::new(server);
        let (mut store, key) = (sequence.open(), sequence.key(100));
        let mut hi = 0;
        for _ in 0..5 {
            hi = store.reserve(&sequence.request(hi)).unwrap().hi;
        }
        (server.say)(&format!("ALTER SEQUENCE {} RESTART 101", sequence.name));
        for _ in 0..20 {
            let fault = store.reserve(&sequence.request(hi)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::WentBackwards, "{fault}");
            assert!(fault.to_string().contains("stands at 101"), "nothing was drawn: {fault}");
        }
        let (before, after) = store.repair(&key, at(hi)).unwrap();
        assert_eq!((before.unwrap().mark.next, after.mark), (101, at(hi)));
        assert_eq!(store.reserve(&sequence.request(hi)).unwrap().lo, hi);
        let (_, after) = store.repair(&key, at(950)).unwrap();
        assert_eq!(after.mark.next, 1001);
        assert_eq!(store.reserve(&sequence.request(hi)).unwrap().lo, 1001);
        let lower = store.repair(&key, at(1000)).unwrap_err();
        assert_eq!(lower.kind, FaultKind::Refused, "{lower}");
    }
}

#[test]
fn a_sequence_that_is_altered_while_programs_draw_issues_no_number_twice() {
    for server in SERVERS {
        let sequence = Sequence::new(server);
        let mut stores = [sequence.open(), sequence.open()];
        let mut ranges = Vec::new();
        let mut draw = |store: &mut dyn Store| {
            // Without a high water: no other process would have seen a number.
            let got = store.reserve(&sequence.request(0))?;
            ranges.push((got.lo, got.hi));
            Ok::<_, keymill::store::Fault>(())
        };
        for (altered, part) in [
            ("INCREMENT BY 1", "INCREMENT BY 100`"),
            ("INCREMENT BY 30", "INCREMENT BY 100`"),
            ("CYCLE", "starts over"),
        ] {
            (server.say)(&format!("ALTER SEQUENCE {} INCREMENT BY 100", sequence.name));
            for store in &mut stores {
                draw(&mut **store).expect("it counts as the source says");
            }
            (server.say)(&format!("ALTER SEQUENCE {} {altered}", sequence.name));
            for _ in 0..3 {
                for store in &mut stores {
                    let fault = draw(&mut **store).expect_err("it does not count as the source says");
                    assert_eq!(fault.kind, FaultKind::Refused, "{altered}: {fault}");
                    assert!(fault.to_string().contains(part), "{altered}: {fault}");
                }
            }
        }
        assert_disjoint(ranges);
    }
}

#[test]
fn a_sequence_of_another_step_is_refused() {
    for server in SERVERS {
        let says = |store: &mut dyn Store, request: &Request, part: &str| {
            let fault = store.reserve(request).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(fault.to_string().contains(part), "{part}: {fault}");
        };
        let sequence = Sequence::new(server);
        let mut store = sequence.open();
        let other = Request { key: sequence.key(50), ..sequence.request(0) };
        says(&mut *store, &other, "use `step=100`");
        // A connection that has drawn from it with the right step refuses too.
        store.reserve(&sequence.request(0)).unwrap();
        says(&mut *store, &other, "use `step=100`");

        let cycle = Sequence::missing(server);
        (server.say)(&format!("CREATE SEQUENCE {} INCREMENT BY 100 CYCLE", cycle.name));
        says(&mut *store, &cycle.request(0), "starts over");

        let missing = Sequence::missing(server);
        says(&mut *store, &missing.request(0), "is missing; run `keymill init`");
        assert_eq!(store.look(&missing.key(100)).unwrap(), None);

        // It is no sequence, so dropping the name would not drop it.
        let table = unique();
        (server.say)(&format!("CREATE TABLE {table} (id INT)"));
        says(&mut *store, &request(&key(&table, 100, server.unsafe_on), 0), "not a sequence");
        (server.say)(&format!("DROP TABLE {table}"));
    }
}

#[test]
fn the_last_number_is_issued_and_nothing_wraps() {
    for server in SERVERS {
        let sequence = Sequence::new(server);
        let mut store = sequence.open();
        store.repair(&sequence.key(100), at(MAX_NUMBER - 106)).unwrap();
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
}

/// Values of the new step would own numbers that the values of the old one owned.
#[test]
fn a_step_that_was_made_smaller_is_refused_for_every_source_until_it_is_put_back() {
    for server in SERVERS {
        let sequence = Sequence::new(server);
        let mut store = sequence.open();
        let mut ranges = Vec::new();
        let mut seen = 0;
        for _ in 0..3 {
            let got = store.reserve(&sequence.request(seen)).unwrap();
            seen = got.hi;
            ranges.push((got.lo, got.hi));
        }
        (server.say)(&format!("ALTER SEQUENCE {} INCREMENT BY 50", sequence.name));
        // A program that runs, one that begins with the old step, and one that begins with the new one.
        let mut says = Vec::new();
        for (store, step, seen) in
            [(&mut store, 100, seen), (&mut sequence.open(), 100, 0), (&mut sequence.open(), 50, 0)]
        {
            let fault = store.reserve(&request(&sequence.key(step), seen)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            says.push(fault.to_string());
        }
        let statement = says[2].split('`').find(|part| part.starts_with("ALTER ")).expect("a statement");
        assert!(says.iter().all(|says| says.contains(statement) && !says.contains("use `step")), "{says:?}");
        // It is followed while the program goes on.
        (server.say)(statement);
        for store in [&mut store, &mut sequence.open()] {
            let got = store.reserve(&sequence.request(seen)).unwrap();
            ranges.push((got.lo, got.hi));
        }
        assert_disjoint(ranges);
    }
}

/// Each value that is drawn is lost to the other programs.
#[test]
fn a_sequence_that_stands_where_no_number_is_counted_is_refused_before_a_value_is_drawn() {
    for server in SERVERS {
        for (made, says) in [
            ("START WITH -1000 MINVALUE -1000", "starts with -1000"),
            ("START WITH 1 MINVALUE -1000 RESTART -501", "stands below"),
        ] {
            let sequence = Sequence::missing(server);
            let (options, restart) = made.split_once(" RESTART").unwrap_or((made, ""));
            (server.say)(&format!(
                "CREATE SEQUENCE {} INCREMENT BY 100 {options} {}",
                sequence.name,
                server.nocache()
            ));
            if !restart.is_empty() {
                (server.say)(&format!("ALTER SEQUENCE {} RESTART {restart}", sequence.name));
            }
            let mut store = sequence.open();
            for _ in 0..3 {
                let fault = store.reserve(&sequence.request(0)).unwrap_err();
                assert_eq!(fault.kind, FaultKind::Refused, "{made}: {fault}");
                assert!(fault.to_string().contains(says), "{made}: {fault}");
            }
            // The first value is still there for the other programs; the two programs count beside each other from 1 on.
            let first = jpa::drawn(&server, &sequence.name);
            assert!([-1000, -501].contains(&first), "{made}: {first}");
        }
        let zero = Sequence::missing(server);
        (server.say)(&format!(
            "CREATE SEQUENCE {} INCREMENT BY 100 START WITH 0 MINVALUE 0 {}",
            zero.name,
            server.nocache()
        ));
        assert_eq!(zero.open().reserve(&zero.request(0)).unwrap().lo, 100, "0 is no number");
    }
}
