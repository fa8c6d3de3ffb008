//! A pool that is raised while another process takes a worker of it: whatever the order of their statements, the worker begins at the
//! raised tick or later, or its process loses it at its next renewal. And leases whose end a wrong clock wrote.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use keymill::store::server::ServerOptions;
use keymill::store::{Key, RaisePool, Slots, Store, StoreIndex, Take};
use keymill_tests::proxy::{Answers, Proxy};
use keymill_tests::{lease, mariadb, postgres, redis};

use crate::bench::unique;

/// Above every mark of a worker that is taken here.
const TO: u64 = 5_000;

/// More answers than taking a worker has.
const MOST_ANSWERS: u32 = 40;

fn pool(table: &str, round: u32) -> Arc<Key> {
    Arc::new(Key::pool(table, &format!("snowflake:tx{round}")))
}

fn take(key: &Arc<Key>, token: u64) -> Take {
    lease::take(key.clone(), token)
}

/// Holds back the answer of each question in turn while the pool is raised.
fn no_worker_that_is_taken_meanwhile_begins_below(
    server: &ServerOptions,
    open: impl Fn(ServerOptions) -> Box<dyn Store> + Copy + Send + Sync,
) {
    let table = unique("w");
    let mut held = 0;
    for round in 0..MOST_ANSWERS {
        let key = pool(&table, round);
        let mut direct = open(server.clone());
        direct.init(std::slice::from_ref(&key), false).expect("the table");
        // The pool is recorded, and the lowest slot has a row.
        direct.take_slot(&take(&key, 1)).expect("a worker");
        let proxy = Proxy::start(server.hosts[0].clone());
        let mut taker = open(ServerOptions { hosts: vec![proxy.address()], ..server.clone() });
        taker.slots(&key).expect("a connection");
        proxy.set(Answers::HoldAfter(round));
        let (taken, raised) = thread::scope(|scope| {
            let taking = scope.spawn(|| taker.take_slot(&take(&key, 2)));
            let give_up = Instant::now() + Duration::from_secs(60);
            while proxy.now() != Answers::Hold && !taking.is_finished() && Instant::now() < give_up {
                thread::yield_now();
            }
            let is_held = proxy.now() == Answers::Hold;
            held += u32::from(is_held);
            let (sender, receiver) = mpsc::channel();
            let raise = RaisePool {
                key: key.clone(),
                layout: "a layout".into(),
                store: StoreIndex::ONLY,
                to: TO,
                token: 99,
            };
            let raising = scope.spawn(move || {
                let answer = open(server.clone()).raise_pool(&raise);
                let _ = sender.send(());
                answer
            });
            // It may wait for a row that the held transaction has.
            let _ = receiver.recv_timeout(Duration::from_secs(if is_held { 2 } else { 60 }));
            proxy.set(Answers::Pass);
            (taking.join().expect("a taker"), raising.join().expect("an operator"))
        });
        raised.unwrap_or_else(|fault| panic!("round {round}: {fault}"));
        for row in direct.slots(&key).expect("rows").slots {
            assert!(row.mark >= TO, "round {round}: {row:?}");
            if row.token == 2 {
                let taken = taken.as_ref().expect("its worker");
                assert!(taken.start >= TO, "round {round}: {taken:?} goes on below {TO}");
            }
        }
    }
    assert!((1..MOST_ANSWERS).contains(&held), "{held} answers were held");
}

#[test]
fn on_mariadb_no_worker_that_is_taken_during_a_raise_begins_below_it() {
    no_worker_that_is_taken_meanwhile_begins_below(&mariadb::options(), |options| {
        Box::new(mariadb::store(options))
    });
}

#[test]
fn on_postgresql_no_worker_that_is_taken_during_a_raise_begins_below_it() {
    no_worker_that_is_taken_meanwhile_begins_below(&postgres::options(), |options| {
        Box::new(postgres::store(options))
    });
}

#[test]
fn on_redis_no_worker_that_is_taken_during_a_raise_begins_below_it() {
    let options = redis::options();
    no_worker_that_is_taken_meanwhile_begins_below(&options.server, |server| {
        Box::new(redis::store(redis::RedisOptions { server, ..redis::options() }))
    });
}

/// The store's clock showed a year more for a moment, and the process was killed: its row says that the lease ends in a year.
fn a_lease_that_a_wrong_clock_ends_in_a_year_is_not_held(mut store: Box<dyn Store>) {
    const YEAR_MS: u64 = 31_536_000_000;
    let key = pool(&unique("w"), 0);
    store.init(std::slice::from_ref(&key), false).expect("the table");
    let alone = |token: u64| Take {
        slots: Slots { first: 0, last: 0 },
        latest_mark: 2_000,
        present: 2_000,
        mark: 2_033,
        ..take(&key, token)
    };
    store.take_slot(&Take { lease_ms: YEAR_MS, ..take(&key, 1) }).expect("a worker");
    let taken = store.take_slot(&alone(2)).expect("the same worker");
    assert_eq!((taken.slot, taken.start), (0, 1_033), "at the mark of the one before");
    assert!(store.take_slot(&alone(3)).is_err(), "a lease of ten minutes is held");
}

#[test]
fn on_mariadb_a_lease_that_ends_in_a_year_is_not_held() {
    a_lease_that_a_wrong_clock_ends_in_a_year_is_not_held(Box::new(mariadb::store(mariadb::options())));
}

#[test]
fn on_postgresql_a_lease_that_ends_in_a_year_is_not_held() {
    a_lease_that_a_wrong_clock_ends_in_a_year_is_not_held(Box::new(postgres::store(postgres::options())));
}

#[test]
fn on_redis_a_lease_that_ends_in_a_year_is_not_held() {
    a_lease_that_a_wrong_clock_ends_in_a_year_is_not_held(Box::new(redis::store(redis::options())));
}
