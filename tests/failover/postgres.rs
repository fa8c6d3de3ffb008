//! PostgreSQL failovers: to a replica that lacks writes and to a complete one, and a restored backup. Each test has its own
//! servers; `ci/servers/postgres` starts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keymill::store::{Catalogue, FaultKind, Key, Request, RowStore, Scheme, Subject};
use keymill::{Change, Code, Mill};
use keymill_tests::ci::patient;
use keymill_tests::postgres::{self, Private, Sql};
use keymill_tests::takers::until;

const PATIENCE: Duration = Duration::from_secs(240);

fn request(scheme: Scheme) -> Request {
    let key = Key { step: 100, ..Key::segment(scheme, scheme.default_table(), "orders") };
    keymill_tests::request(&Arc::new(key), 100)
}

/// The URL of a mill with both servers, the primary first.
fn both(server: &Private) -> String {
    let (primary, replica) = (server.url(), server.ci(&["url", "replica"]));
    let place = |url: &str| url.split('@').nth(1).and_then(|at| at.split('/').next()).unwrap().to_owned();
    let hosts = format!("{},{}", place(&primary), place(&replica));
    format!(
        "postgres://keymill:secret@{hosts}/ids?target_session_attrs=read-write&timeout=25s&connect_timeout=25s"
    )
}

/// Waits until the replica has carried out what is written so far.
fn until_followed(server: &Private) {
    let (primary, replica) = (Sql::root(&server.url()), Sql::root(&server.ci(&["url", "replica"])));
    let written = primary.rows("SELECT pg_current_wal_lsn()");
    until("the replica follows", PATIENCE, || {
        replica.rows(&format!("SELECT pg_last_wal_replay_lsn() >= '{}'", written[0][0])) == [["t"]]
    });
}

/// Takes until the source refuses with this code, within a time limit; answers with the ids before.
fn until_refused(source: &keymill::Source, code: Code) -> (Vec<u64>, String) {
    let mut ids = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    loop {
        match source.next() {
            Ok(id) => ids.push(id),
            Err(error) if error.code == code => return (ids, error.message),
            Err(error) => assert!(Instant::now() < deadline, "{code:?} was expected: {error}"),
        }
        assert!(Instant::now() < deadline, "{} ids, and no {code:?}", ids.len());
    }
}

/// A mill with short segments, so that every few ids come from the store.
const SPEC: &str = "segment:orders?min_step=10&max_step=10&buffer=1s&deadline=30s";

#[test]
fn a_replica_without_the_last_writes_is_refused_by_who_has_seen_them() {
    for spec in [SPEC, "segment:orders?scheme=sequence&step=10&deadline=30s"] {
        let server = Private::start("");
        server.ci(&["replica"]);
        let mill = Mill::open(&both(&server)).unwrap();
        mill.init(&[spec], Change::Apply).unwrap();
        let source = mill.source(spec).unwrap();
        for _ in 0..100 {
            source.next().unwrap();
        }
        // The replica has the writes so far, and none of the later ones. A sequence is logged 32 values ahead.
        until_followed(&server);
        server.ci(&["kill", "replica"]);
        let mut ids = std::collections::HashSet::new();
        for _ in 0..2000 {
            assert!(ids.insert(source.next().unwrap()));
        }
        server.kill();
        server.ci(&["start", "replica"]);
        server.ci(&["promote"]);
        let (more, message) = until_refused(&source, Code::StoreWentBackwards);
        assert!(more.iter().all(|id| ids.insert(*id)), "none twice");
        assert!(message.contains("repair 'segment:orders"), "{message}");
        mill.close();
    }
}

#[test]
fn a_synchronous_replica_that_is_promoted_goes_on_where_the_first_server_stopped() {
    let server = Private::start("");
    server.ci(&["replica", "sync"]);
    let url = both(&server);
    let specs = [
        "segment:orders?min_step=10&max_step=10&buffer=1s&deadline=30s",
        "segment:bills?scheme=sequence&step=10&deadline=30s",
    ];
    let mills: Vec<Mill> = (0..3).map(|_| Mill::open(&url).unwrap()).collect();
    mills[0].init(&specs, Change::Apply).unwrap();
    let promoted = AtomicBool::new(false);
    let counts: Vec<AtomicUsize> = (0..6).map(|_| AtomicUsize::new(0)).collect();
    let taken: Vec<(usize, Vec<u64>)> = std::thread::scope(|scope| {
        let (promoted, counts) = (&promoted, &counts);
        let mut threads = Vec::new();
        for (m, mill) in mills.iter().enumerate() {
            for (s, spec) in specs.iter().enumerate() {
                threads.push(scope.spawn(move || {
                    let source = mill.source(spec).unwrap();
                    let mut ids = Vec::new();
                    let (mut after, deadline) = (0, Instant::now() + 2 * PATIENCE);
                    // At least a thousand ids after the failover.
                    while after < 1000 {
                        match source.next() {
                            Ok(id) => {
                                ids.push(id);
                                // ordering: Relaxed — a counter and a flag, nothing hangs on them.
                                counts[2 * m + s].fetch_add(1, Ordering::Relaxed);
                                after += usize::from(promoted.load(Ordering::Relaxed));
                            }
                            Err(error) => {
                                assert_ne!(error.code, Code::StoreWentBackwards, "{error}");
                                assert!(Instant::now() < deadline, "{error}");
                            }
                        }
                    }
                    (s, ids)
                }));
            }
        }
        let deadline = Instant::now() + PATIENCE;
        // ordering: Relaxed — counters.
        while counts.iter().any(|count| count.load(Ordering::Relaxed) < 300) {
            assert!(Instant::now() < deadline, "ids flow before the failover");
            std::thread::sleep(Duration::from_millis(5));
        }
        server.kill();
        server.ci(&["promote"]);
        // ordering: Relaxed — as above.
        promoted.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (s, spec) in specs.iter().enumerate() {
        let all: Vec<u64> =
            taken.iter().filter(|(index, _)| *index == s).flat_map(|(_, ids)| ids).copied().collect();
        let distinct: std::collections::HashSet<_> = all.iter().collect();
        println!("{spec}: {} ids of 3 mills over a failover", all.len());
        assert_eq!(distinct.len(), all.len(), "none twice");
    }
    mills.iter().for_each(Mill::close);
}

#[test]
fn a_commit_let_go_before_its_standby_had_it_is_not_used() {
    let server = Private::start("");
    server.ci(&["replica", "sync"]);
    let root = Sql::root(&server.url());
    for scheme in [Scheme::Keymill, Scheme::Sequence, Scheme::KeyProducer] {
        let mut request = request(if scheme == Scheme::KeyProducer { Scheme::Keymill } else { scheme });
        if scheme == Scheme::KeyProducer {
            // By a transaction: a row's period is not changed by the single statement.
            request.key = Arc::new(Key {
                name: Subject::Segment("dated".into()).into(),
                ..request.key.as_ref().clone()
            });
            (request.period, request.period_max) = (7, 7);
        }
        let mut options = server.options();
        options.read_timeout = PATIENCE;
        let mut store = postgres::store(options);
        store.init(&[Arc::clone(&request.key)], false).unwrap();
        let first = store.reserve(&request).unwrap();
        assert_eq!(store.facts().unwrap().durability.last().unwrap(), "synchronous_standby_names=replica");
        server.ci(&["kill", "replica"]);
        let fault = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| store.reserve(&request));
            let deadline = Instant::now() + PATIENCE;
            // An operator cancels the hanging commit.
            while root
                .rows("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
                .is_empty()
            {
                assert!(Instant::now() < deadline, "the commit waits for its standby");
                std::thread::sleep(Duration::from_millis(5));
            }
            waiting.join().unwrap().unwrap_err()
        });
        assert_eq!(fault.kind, FaultKind::Unknown, "{fault}");
        assert!(fault.to_string().contains("before its synchronous standby had it"), "{fault}");
        server.ci(&["start", "replica"]);
        let next = store.reserve(&request).unwrap();
        assert!(next.lo >= first.hi + 100, "that range is a gap: {next:?} after {first:?}");
    }
}

#[test]
fn a_standby_that_is_gone_is_named_by_the_commit_that_waits_for_it() {
    let server = Private::start("");
    server.ci(&["replica", "sync"]);
    let mut options = server.options();
    options.read_timeout = Duration::from_secs(10);
    let mut store = postgres::store(options);
    let request = request(Scheme::Keymill);
    store.init(&[Arc::clone(&request.key)], false).unwrap();
    let first = store.reserve(&request).unwrap();
    server.ci(&["kill", "replica"]);
    let fault = store.reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unknown, "{fault}");
    assert!(fault.to_string().contains("commits wait for `replica` (synchronous_standby_names)"), "{fault}");
    // The waiting commit holds its row.
    let fault = store.reserve(&request).unwrap_err();
    assert!(fault.to_string().contains("`replica` (synchronous_standby_names)"), "{fault}");
    server.ci(&["start", "replica"]);
    let deadline = Instant::now() + PATIENCE;
    let next = loop {
        match store.reserve(&request) {
            Ok(next) => break next,
            Err(fault) => assert!(Instant::now() < deadline, "{fault}"),
        }
    };
    assert!(next.lo >= first.hi + 100, "that range is a gap: {next:?} after {first:?}");
}

#[test]
fn a_restored_backup_is_refused_until_it_is_repaired() {
    let server = Private::start("");
    let url = server.url();
    let mill = Mill::open(&patient(&url)).unwrap();
    mill.init(&[SPEC], Change::Apply).unwrap();
    let source = mill.source(SPEC).unwrap();
    let mut ids: std::collections::HashSet<u64> = (0..50).map(|_| source.next().unwrap()).collect();
    let sql = Sql::root(&url);
    sql.say("CREATE TABLE backup AS SELECT * FROM keymill_segment");
    for _ in 0..500 {
        assert!(ids.insert(source.next().unwrap()));
    }
    sql.say("BEGIN; DELETE FROM keymill_segment; INSERT INTO keymill_segment SELECT * FROM backup; COMMIT");
    let (more, message) = until_refused(&source, Code::StoreWentBackwards);
    assert!(more.iter().all(|id| ids.insert(*id)), "none twice");
    assert!(message.contains("repair 'segment:orders"), "{message}");
    mill.close();
}

#[test]
fn a_primary_that_comes_back_after_it_was_replaced_is_passed_over() {
    let server = Private::start("");
    server.ci(&["replica"]);
    let url = both(&server);
    let mill = Mill::open(&url).unwrap();
    mill.init(&[SPEC], Change::Apply).unwrap();
    let source = mill.source(SPEC).unwrap();
    let mut ids: std::collections::HashSet<u64> = (0..100).map(|_| source.next().unwrap()).collect();
    let new = Sql::root(&server.ci(&["url", "replica"]));
    until_followed(&server);
    server.kill();
    server.ci(&["promote"]);
    let mut more = |source: &keymill::Source, count: usize, what: &str| {
        let mut taken = 0;
        let deadline = Instant::now() + PATIENCE;
        while taken < count {
            match source.next() {
                Ok(id) => {
                    assert!(ids.insert(id), "{what}: {id} came twice");
                    taken += 1;
                }
                Err(error) => assert!(Instant::now() < deadline, "{what}: {error}"),
            }
        }
    };
    more(&source, 500, "on the promoted replica");
    // The first server is started again by mistake: it takes writes, and lacks those since the failover.
    server.start_again();
    new.end_sessions();
    more(&source, 500, "after a new connection");
    let fresh = Mill::open(&url).unwrap();
    let warnings = fresh.facts().unwrap().warnings;
    assert!(warnings.len() == 1 && warnings[0].contains("replaced in a failover"), "{warnings:?}");
    more(&fresh.source(SPEC).unwrap(), 100, "of a mill that has seen nothing");
    more(&source, 100, "beside it");
    // Even without another server, a process that has seen the newer timeline does not go back.
    server.ci(&["kill", "replica"]);
    let mut refused = None;
    for _ in 0..2000 {
        if let Err(error) = source.next() {
            refused = Some(error);
            break;
        }
    }
    let refused = refused.expect("the store is down");
    assert_eq!(refused.code, Code::StoreUnavailable, "{refused}");
    assert!(refused.message.contains("replaced in a failover"), "{refused}");
    fresh.close();
    mill.close();
}
