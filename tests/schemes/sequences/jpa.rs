//! The sequences of JPA's `@SequenceGenerator`, beside programs that count as Hibernate does. `tests/languages/jpa.rs` has Hibernate itself.

use std::sync::{Arc, Barrier};

use keymill::store::{FaultKind, Key, Request, Scheme};
use keymill_tests::{assert_disjoint, in_time, mariadb, postgres};
use mysql::prelude::Queryable;

use super::{SERVERS, Sequence, Server, at};

const ALLOCATION: u64 = 10;

pub(super) fn key(sequence: &Sequence, is_pooled: bool) -> Arc<Key> {
    Arc::new(Key {
        scheme: Scheme::JpaSequence,
        is_pooled,
        ..(*super::key(&sequence.name, ALLOCATION, sequence.server.unsafe_on)).clone()
    })
}

pub(super) fn request(key: &Arc<Key>, seen: u64) -> Request {
    super::request(key, seen)
}

/// Draws a value as other programs do, on a connection of its own.
pub(super) fn drawer(server: &Server, name: &str) -> Box<dyn FnMut() -> u64> {
    if server.unsafe_on {
        let (mut connection, sql) = (mariadb::connection(), format!("SELECT NEXTVAL({name})"));
        return Box::new(move || connection.query_first(&sql).expect("a value").expect("a row"));
    }
    let (sql, say) = (format!("SELECT nextval('{name}')"), postgres::Sql::shared());
    Box::new(move || say.rows(&sql)[0][0].parse().expect("a number"))
}

/// A value, which may be below 0, drawn as another program draws it.
pub(super) fn drawn(server: &Server, name: &str) -> i64 {
    if server.unsafe_on {
        let sql = format!("SELECT NEXTVAL({name})");
        return mariadb::connection().query_first(sql).expect("a value").expect("a row");
    }
    postgres::Sql::shared().rows(&format!("SELECT nextval('{name}')"))[0][0].parse().expect("a number")
}

/// Hibernate's `PooledOptimizer` before the fix of HHH-15118, with the `initialValue` 1.
struct Pooled {
    draw: Box<dyn FnMut() -> u64>,
    value: u64,
    high: Option<u64>,
}

impl Pooled {
    fn next(&mut self) -> u64 {
        match self.high {
            None => {
                let first = (self.draw)();
                if first == 1 {
                    (self.value, self.high) = (first, Some((self.draw)()));
                } else {
                    (self.value, self.high) = (first - (ALLOCATION - 1), Some(first));
                }
            }
            Some(high) if self.value > high => {
                let high = (self.draw)();
                (self.value, self.high) = (high - (ALLOCATION - 1), Some(high));
            }
            Some(_) => {}
        }
        self.value += 1;
        self.value - 1
    }
}

/// Hibernate's `PooledLoOptimizer`.
struct PooledLo {
    draw: Box<dyn FnMut() -> u64>,
    value: u64,
    end: u64,
}

impl PooledLo {
    fn next(&mut self) -> u64 {
        if self.value >= self.end {
            self.value = (self.draw)();
            self.end = self.value + ALLOCATION;
        }
        self.value += 1;
        self.value - 1
    }
}

/// One of those nodes, which has taken its first id.
fn node(server: &Server, name: &str, is_pooled: bool) -> (u64, Box<dyn FnMut() -> u64>) {
    let draw = drawer(server, name);
    let mut next: Box<dyn FnMut() -> u64> = if is_pooled {
        let mut optimizer = Pooled { draw, value: 0, high: None };
        Box::new(move || optimizer.next())
    } else {
        let mut optimizer = PooledLo { draw, value: 0, end: 0 };
        Box::new(move || optimizer.next())
    };
    (next(), next)
}

#[test]
fn nodes_as_hibernate_has_them_and_keymill_never_take_a_number_twice() {
    for (server, is_pooled) in SERVERS.into_iter().flat_map(|server| [(server, true), (server, false)]) {
        let sequence = Sequence::missing(server);
        let key = key(&sequence, is_pooled);
        sequence.open().init(std::slice::from_ref(&key), false).unwrap();
        // Two such nodes that take their first id at one moment may take numbers twice among themselves.
        let (begun, start) = (std::sync::Mutex::new(()), Barrier::new(6));
        let ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let theirs = (0..3).map(|_| {
                scope.spawn(|| {
                    let (first, mut next) = {
                        let _alone = begun.lock().unwrap();
                        node(&sequence.server, &sequence.name, is_pooled)
                    };
                    start.wait();
                    let ids = std::iter::once(first).chain((0..300).map(|_| next()));
                    ids.map(|id| (id, id + 1)).collect::<Vec<_>>()
                })
            });
            let ours = (0..3).map(|_| {
                scope.spawn(|| {
                    let (mut store, mut seen, mut ranges) = (sequence.open(), 0, Vec::new());
                    start.wait();
                    for _ in 0..40 {
                        let got = in_time(|| store.reserve(&request(&key, seen))).unwrap();
                        assert!(got.lo < got.hi && got.lo >= seen);
                        seen = got.hi;
                        ranges.push((got.lo, got.hi));
                    }
                    ranges
                })
            });
            let all: Vec<_> = theirs.chain(ours).collect();
            all.into_iter().flat_map(|taken| taken.join().unwrap()).collect()
        });
        assert_eq!(ranges.len(), 3 * 301 + 3 * 40);
        assert_disjoint(ranges);
    }
}

#[test]
fn what_a_value_owns_is_what_hibernate_makes_of_it() {
    for server in SERVERS {
        let sequence = Sequence::missing(server);
        let pooled = key(&sequence, true);
        let mut store = sequence.open();
        store.init(std::slice::from_ref(&pooled), false).unwrap();
        assert_eq!(store.look(&pooled).unwrap().unwrap().mark, at(1));
        let mut seen = 0;
        for wanted in [(1, 2), (2, 12), (12, 22)] {
            let got = store.reserve(&request(&pooled, seen)).unwrap();
            assert_eq!((got.lo, got.hi), wanted);
            seen = got.hi;
        }
        assert_eq!(store.look(&pooled).unwrap().unwrap().mark, at(22));
        let lo = key(&sequence, false);
        let got = store.reserve(&request(&lo, 0)).unwrap();
        assert_eq!((got.lo, got.hi), (31, 41));
    }
}

#[test]
fn no_number_is_taken_while_a_node_of_hibernate_may_be_between_its_first_two_draws() {
    for server in SERVERS {
        let sequence = Sequence::missing(server);
        let pooled = key(&sequence, true);
        let mut store = sequence.open();
        store.init(std::slice::from_ref(&pooled), false).unwrap();
        let mut draw = drawer(&sequence.server, &sequence.name);
        assert_eq!(draw(), 1);
        let fault = store.reserve(&request(&pooled, 0)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
        // It goes on with its second draw, and takes all numbers from 1 to 21.
        assert_eq!(draw(), 21);
        let got = store.reserve(&request(&pooled, 0)).unwrap();
        assert_eq!((got.lo, got.hi), (22, 32));
    }
}

#[test]
fn a_pooled_sequence_that_was_set_back_is_refused_until_it_is_repaired() {
    for server in SERVERS {
        let sequence = Sequence::missing(server);
        let pooled = key(&sequence, true);
        let mut store = sequence.open();
        store.init(std::slice::from_ref(&pooled), false).unwrap();
        let mut seen = 0;
        for _ in 0..5 {
            seen = store.reserve(&request(&pooled, seen)).unwrap().hi;
        }
        (server.say)(&format!("ALTER SEQUENCE {} RESTART WITH 11", sequence.name));
        for _ in 0..5 {
            let fault = store.reserve(&request(&pooled, seen)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::WentBackwards, "{fault}");
        }
        store.repair(&pooled, at(seen)).unwrap();
        let got = store.reserve(&request(&pooled, seen)).unwrap();
        assert!(got.lo >= seen && got.lo < seen + ALLOCATION, "{got:?}");
    }
}

#[test]
fn a_sequence_that_counts_in_other_steps_than_the_allocation_is_refused() {
    for server in SERVERS {
        let sequence = Sequence::new(server);
        let fault = sequence.open().reserve(&request(&key(&sequence, true), 0)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        assert!(fault.to_string().contains("use `allocation=100`"), "{fault}");
    }
}
