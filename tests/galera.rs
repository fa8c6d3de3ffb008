//! A MariaDB Galera cluster of three nodes, each of which writes: conflicts that show at the commit, nodes that answer with
//! yesterday's row, a node killed, a quorum lost.
//!
//! The cluster is found by `KEYMILL_TEST_GALERA`, which `ci/galera run` sets; the tests hurt its nodes, so they run one after
//! the other.

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use keymill::serial::SerialPattern;
use keymill::store::mysql::MysqlStore;
use keymill::store::{Key, Mark, Request, Scheme, SerialKey, Store};
use keymill::{Code, Mill, Source};
use keymill_tests::server;
use mysql::prelude::Queryable;

const NODES: [usize; 3] = [1, 2, 3];

/// The cluster's URL: three hosts.
fn url() -> String {
    std::env::var("KEYMILL_TEST_GALERA")
        .unwrap_or_else(|_| panic!("KEYMILL_TEST_GALERA is not set; run `ci/galera run`"))
}

/// The URL with this node first, and `others` of them behind it.
fn url_from(node: usize, others: usize) -> String {
    let url = url();
    let (login, place) = url.rsplit_once('@').expect("a login");
    let (hosts, database) = place.split_once('/').expect("a database");
    let mut hosts: Vec<&str> = hosts.split(',').collect();
    hosts.rotate_left(node - 1);
    format!("{login}@{}/{database}", hosts[..=others].join(","))
}

fn store_at(node: usize) -> MysqlStore {
    server::store(server::options_of(&url_from(node, 0)))
}

fn connection_at(node: usize) -> mysql::Conn {
    server::connection_of(&url_from(node, 0))
}

/// `ci/galera VERB NODE`.
fn cluster(verb: &str, node: usize) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/galera");
    let output = Command::new(script).args([verb, &node.to_string()]).output().expect("ci/galera can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A number of a node's status.
fn status(node: usize, name: &str) -> u64 {
    let row = connection_at(node).query_first::<(String, String), _>(format!("SHOW STATUS LIKE '{name}'"));
    row.expect("a status").expect("a row").1.parse().expect("a number")
}

/// Transactions that lost against one of another node, in the whole cluster.
fn conflicts() -> u64 {
    let of = |node| status(node, "wsrep_local_cert_failures") + status(node, "wsrep_local_bf_aborts");
    NODES.into_iter().map(of).sum()
}

fn until(what: &str, patience: Duration, mut is_true: impl FnMut() -> bool) {
    let give_up = Instant::now() + patience;
    while !is_true() {
        assert!(Instant::now() < give_up, "waited {patience:?} in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A name of its own for each test, on a cluster that all of them share.
fn unique(name: &str) -> String {
    format!("{name}_{}", fastrand::u32(..))
}

/// A key of this scheme in a table of its own, which exists on every node.
fn key(scheme: Scheme) -> Arc<Key> {
    let serial = scheme == Scheme::KeyProducer;
    let pattern = || SerialPattern::new("", "000000000000", "UTC").expect("a pattern");
    let key = Arc::new(Key {
        scheme,
        table: unique("t"),
        name: if serial { "serial:cust/id" } else { "segment:orders" }.to_owned(),
        serial: serial.then(|| SerialKey {
            table: "cust".to_owned(),
            column: "id".to_owned(),
            pattern: pattern(),
            init_max: false,
        }),
        step: 10,
        unsafe_on: false,
    });
    store_at(1).init(&[Arc::clone(&key)], false).expect("init");
    key
}

fn seen(request: &Request, next: u64) -> Request {
    Request { high_water: Mark { period: 0, next }, ..request.clone() }
}

fn assert_disjoint(name: &str, mut ranges: Vec<(u64, u64)>) {
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{name}: {:?} and {:?} overlap", pair[0], pair[1]);
    }
}

const SCHEMES: [Scheme; 8] = [
    Scheme::Keymill,
    Scheme::KeyProducer,
    Scheme::SequenceTable,
    Scheme::LeafAlloc,
    Scheme::TinyIdInfo,
    Scheme::Cosid,
    Scheme::AutoIncrement,
    Scheme::Ticket,
];

#[test]
fn nine_writers_on_three_nodes_never_overlap_and_conflicts_are_no_outage() {
    const EACH: usize = 40;
    for scheme in SCHEMES {
        let key = key(scheme);
        let before = conflicts();
        let together = Barrier::new(9);
        let began = Instant::now();
        let ranges: Vec<(u64, u64)> = thread::scope(|scope| {
            let threads: Vec<_> = (0..9)
                .map(|writer| {
                    let (key, together) = (&key, &together);
                    scope.spawn(move || {
                        let mut store = store_at(writer % 3 + 1);
                        let mut request = keymill_tests::request(key, 10);
                        together.wait();
                        (0..EACH)
                            .map(|_| {
                                let got = store.reserve(&request).expect("a conflict is tried again");
                                request = seen(&request, got.hi);
                                (got.lo, got.hi)
                            })
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("a writer")).collect()
        });
        let rate = ranges.len() as f64 / began.elapsed().as_secs_f64();
        let lost = conflicts() - before;
        println!(
            "galera {}: {} reservations by 9 writers on 3 nodes, {lost} conflicts, {rate:.0} a second, none twice",
            scheme.name(),
            ranges.len()
        );
        assert_eq!(ranges.len(), 9 * EACH);
        assert_disjoint(scheme.name(), ranges);
        // Writers of one name who never meet have proved nothing; rows that are only inserted do not meet.
        assert!(lost > 0 || scheme == Scheme::AutoIncrement, "{}: no conflict", scheme.name());
    }
}
