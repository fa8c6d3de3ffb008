//! A MariaDB Galera cluster of three nodes, each of which takes writes: conflicts that appear at the commit, nodes that lag
//! behind, a killed node, a lost quorum.
//!
//! `KEYMILL_TEST_GALERA` names the cluster, and `ci/servers/galera run` sets it; the tests stop its nodes, so they run one
//! after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keymill::store::{Catalogue, FaultKind, Key, RowStore, Scheme};
use keymill::{Change, Code, Mill, Source};
use keymill_tests::takers::{Takers, persistently, until};
use keymill_tests::{assert_disjoint, mariadb, schemes};
use mysql::prelude::Queryable;

use crate::cluster::{Cluster, all_reserve, seen, unique};

const NODES: [usize; 3] = [1, 2, 3];

const GALERA: Cluster = Cluster { script: "galera", variable: "KEYMILL_TEST_GALERA" };

fn connection_at(node: usize) -> mysql::Conn {
    mariadb::connection_of(&GALERA.url_from(node, 0))
}

/// A number in a node's status.
fn status(node: usize, name: &str) -> u64 {
    let row = connection_at(node).query_first::<(String, String), _>(format!("SHOW STATUS LIKE '{name}'"));
    row.expect("a status").expect("a row").1.parse().expect("a number")
}

/// Transactions that lost a certification against another node's, in the whole cluster.
fn conflicts() -> u64 {
    let conflicts_at =
        |node| status(node, "wsrep_local_cert_failures") + status(node, "wsrep_local_bf_aborts");
    NODES.into_iter().map(conflicts_at).sum()
}

#[test]
fn nine_writers_on_three_nodes_never_overlap_and_conflicts_are_no_outage() {
    const EACH: usize = 40;
    for scheme in schemes::on_mysql() {
        let key = GALERA.key(scheme, &NODES);
        let before = conflicts();
        let began = Instant::now();
        // Writers of one name without a conflict have proved nothing; rows that are only inserted do not conflict.
        let ranges = GALERA.nine_writers(&key, EACH, |count| {
            scheme != Scheme::AutoIncrement && count < 50 * EACH && conflicts() == before
        });
        let rate = ranges.len() as f64 / began.elapsed().as_secs_f64();
        let lost = conflicts() - before;
        println!(
            "galera: {}: {} reservations by 9 writers on 3 nodes, {lost} conflicts, {rate:.0} a second, none twice",
            scheme.name(),
            ranges.len()
        );
        assert!(ranges.len() >= 9 * EACH);
        println!("{}: {} numbers, 0 twice", scheme.name(), assert_disjoint(ranges));
        assert!(lost > 0 || scheme == Scheme::AutoIncrement, "{}: no conflict", scheme.name());
    }
}

#[test]
fn changing_nodes_is_never_reported_as_a_row_that_went_backwards() {
    const ROUNDS: u64 = 45;
    // Load, so that nodes lag: each has writes of others to apply.
    let load = unique("load");
    connection_at(1)
        .query_drop(format!("CREATE TABLE {load} (id BIGINT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(200))"))
        .expect("a table");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for node in NODES {
            let (over, load) = (&over, &load);
            scope.spawn(move || {
                let mut connection = connection_at(node);
                // ordering: Relaxed — a flag.
                while !over.load(Ordering::Relaxed) {
                    let rows = vec!["(REPEAT('x', 200))"; 400].join(",");
                    // It is only load: a conflict here does not matter.
                    let _ = connection.query_drop(format!("INSERT INTO {load} (text) VALUES {rows}"));
                }
            });
        }
        let mut stale = 0;
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for scheme in schemes::on_mysql() {
                let mut request = keymill_tests::request(&GALERA.key(scheme, &NODES), 10);
                let mut stores: Vec<_> =
                    NODES.into_iter().map(|node| (GALERA.store_at(node), connection_at(node))).collect();
                for round in 0..ROUNDS {
                    let (store, _) = &mut stores[round as usize % 3];
                    let got = store
                        .reserve(&request)
                        .unwrap_or_else(|fault| panic!("{}, round {round}: {fault}", scheme.name()));
                    assert!(
                        got.lo >= request.high_water.next,
                        "{}: {got:?} after {:?}",
                        scheme.name(),
                        request.high_water
                    );
                    request = seen(&request, got.hi);
                    // A plain read of another node at this moment.
                    if scheme == Scheme::Keymill {
                        let (_, other) = &mut stores[(round as usize + 1) % 3];
                        let sql = format!("SELECT next FROM {}", request.key.table);
                        stale += u64::from(other.query_first::<u64, _>(sql).expect("a read") < Some(got.hi));
                    }
                    let next = stores[(round as usize + 2) % 3]
                        .0
                        .look(&request.key)
                        .expect("a look")
                        .expect("a row");
                    assert!(next.mark >= request.high_water, "{}: {next:?} after {got:?}", scheme.name());
                }
            }
        }));
        // ordering: Relaxed — a flag.
        over.store(true, Ordering::Relaxed);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        println!(
            "galera: {ROUNDS} reservations from node to node, a plain read was behind {stale} times, keymill never"
        );
    });
    connection_at(1).query_drop(format!("DROP TABLE {load}")).expect("the load goes");
}

#[test]
fn a_cluster_that_would_go_on_in_both_halves_is_refused() {
    let request = keymill_tests::request(&GALERA.key(Scheme::Keymill, &NODES), 10);
    let mut root = mariadb::connection_of(&GALERA.url_from(2, 0).replace("keymill:secret", "root:"));
    for option in ["pc.ignore_sb", "pc.ignore_quorum"] {
        let mut set = |to: &str| {
            let sql = format!("SET GLOBAL wsrep_provider_options = '{option}={to}'");
            root.query_drop(sql).expect("root may set that");
        };
        set("true");
        let (answer, facts) = (GALERA.store_at(2).reserve(&request), GALERA.store_at(2).facts());
        set("false");
        let fault = answer.expect_err("refused");
        assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
        assert!(fault.to_string().contains(option), "{fault}");
        let facts = facts.expect("facts");
        assert!(facts.durability.iter().any(|fact| fact == "wsrep_cluster_size=3"), "{facts:?}");
        assert_eq!(facts.warnings.len(), 1, "{facts:?}");
        GALERA.store_at(2).reserve(&request).expect("a safe cluster");
    }
}

#[test]
fn tickets_of_a_long_idle_node_continue_above_the_other_nodes() {
    for scheme in [Scheme::AutoIncrement, Scheme::Ticket] {
        let key = GALERA.key(scheme, &NODES);
        let mut request = keymill_tests::request(&key, 10);
        let mut first = GALERA.store_at(1);
        let mut ranges = Vec::new();
        for _ in 0..600 {
            let got = first.reserve(&request).expect("a ticket");
            request = seen(&request, got.hi);
            ranges.push((got.lo, got.hi));
        }
        for node in [2, 3, 1, 2, 1, 3] {
            let got = GALERA
                .store_at(node)
                .reserve(&request)
                .unwrap_or_else(|fault| panic!("{}, node {node}: {fault}", scheme.name()));
            request = seen(&request, got.hi);
            ranges.push((got.lo, got.hi));
        }
        println!("{}: {} numbers, 0 twice", scheme.name(), assert_disjoint(ranges));
    }
}

/// A node's row of this segment, read without keymill.
fn row(node: usize, name: &str) -> Option<u64> {
    let sql = "SELECT next FROM keymill_segment WHERE name = ?";
    connection_at(node).exec_first(sql, (format!("segment:{name}"),)).expect("a read")
}

/// How many connections of mills a node has.
fn mills_at(node: usize) -> u64 {
    let sql =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = 'ids' AND ID <> CONNECTION_ID()";
    connection_at(node).query_first(sql).expect("a list").expect("a count")
}

#[test]
fn a_node_killed_under_load_stalls_the_others_and_ids_flow_on_from_the_runway() {
    let name = unique("killed");
    // Each mill prefers another node; all of them know all nodes.
    let mills: Vec<Mill> = GALERA.three_mills();
    persistently(|| mills[0].init(&[], Change::Apply)).expect("init");
    let spec = format!("segment:{name}?buffer=30s");
    let sources: Vec<Source> = mills.iter().map(|mill| mill.source(&spec).expect("a source")).collect();
    let takers = Takers::default();
    let ids = takers.beside(&sources.iter().collect::<Vec<_>>(), 100, Duration::from_millis(5), || {
        let steady = Instant::now() + Duration::from_secs(4);
        // A stall of six seconds takes longer on a busy machine.
        until("every mill has supply for twenty seconds", Duration::from_secs(240), || {
            Instant::now() > steady
                && sources.iter().all(|s| s.stats().is_ok_and(|s| s.runway_seconds.is_some_and(|r| r > 20.0)))
        });
        let (before, met) = (takers.count(), takers.errors().len());
        GALERA.run("kill", 1);
        let killed = Instant::now();
        // A mill without a runway on a remaining node.
        let mut other = GALERA.store_at(2);
        let probe = keymill_tests::request(&probe_key(), 10);
        until("a node that is left reserves again", Duration::from_secs(240), || {
            other.reserve(&probe).is_ok()
        });
        let stalled = killed.elapsed();
        all_reserve(&sources);
        println!(
            "galera: a node killed, the others stalled {stalled:.1?}, {} ids meanwhile, every mill has reserved again after {:.1?}",
            takers.count() - before,
            killed.elapsed()
        );
        // It comes back and gets the missed writes from one of the working nodes.
        let failed = || mills.iter().map(|mill| mill.latency().failed).sum::<u64>();
        let before = failed();
        GALERA.run("start-node", 1);
        all_reserve(&sources);
        // A node that sends another node its data may not answer meanwhile: then connections break.
        assert!(
            mills_at(1) == 0 || failed() > before,
            "whose favourite died stays where it is served, until that connection breaks"
        );
        assert_eq!(takers.errors().len(), met, "{:?}", takers.errors());
    });
    println!("galera: {ids} ids from three mills, none twice, no error, the node back among them");
    persistently(|| sources[0].take(10)).expect("ids");
    // After a broken connection the preferred node is tried first.
    mills.iter().for_each(Mill::close);
    until("the mills' connections are gone", Duration::from_secs(120), || mills_at(1) == 0);
    let mut orders = mariadb::store(mariadb::options_of(&GALERA.url_from(1, 2)));
    orders.look(&probe_key()).expect("a look");
    assert_eq!(mills_at(1), 1);
    assert!(row(1, &name) >= Some(1));
}

fn probe_key() -> Arc<Key> {
    Arc::new(Key::segment(Scheme::Keymill, "keymill_segment", "probe"))
}

#[test]
fn a_lost_quorum_is_an_outage_with_that_reason_and_heals_by_itself() {
    let name = unique("quorum");
    let patient = Mill::open(&GALERA.url()).expect("a mill");
    persistently(|| patient.init(&[], Change::Apply)).expect("init");
    patient.close();
    let mill = Mill::open(&format!("{}?timeout=1s&connect_timeout=1s", GALERA.url())).expect("a mill");
    let spec = format!("segment:{name}?min_step=10&buffer=100ms&deadline=1s");
    let orders = mill.source(&spec).expect("a source");
    let takers = Takers::default();
    let ids = takers.beside(&[&orders], 5, Duration::from_millis(1), || {
        until("ids flow", Duration::from_secs(240), || takers.count() > 1000);
        for node in [2, 3] {
            GALERA.run("freeze", node);
        }
        let lost = Instant::now();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("the reason is told", Duration::from_secs(240), || {
                takers.met(Code::StoreUnavailable, "no quorum")
            });
        }));
        println!("galera: quorum lost, told after {:.1?}", lost.elapsed());
        for node in [2, 3] {
            GALERA.run("thaw", node);
        }
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let (thawed, before) = (Instant::now(), takers.count());
        until("ids flow again", Duration::from_secs(240), || takers.count() > before + 1000);
        println!("galera: quorum back, ids flow after {:.1?}", thawed.elapsed());
    });
    for (waited, error) in takers.errors() {
        assert!(matches!(error.code, Code::StoreUnavailable | Code::Deadline), "{error}");
        // A thread may wake up late on a busy machine; the quorum is lost for longer.
        assert!(waited < Duration::from_secs(20), "a caller waited {waited:?} with a deadline of 1 s");
    }
    println!("galera: {ids} ids round a lost quorum, none twice; {} errors", takers.errors().len());
}
