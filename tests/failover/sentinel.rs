//! A master is killed, and three Sentinels promote its replica: the reaction of a mill that follows them.
//! `ci/servers/redis` starts the servers; each test has its own.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use keymill::store::{Catalogue, FaultKind, Mark, RowStore};
use keymill::{Code, Mill};
use keymill_tests::redis::{self, Private};
use keymill_tests::takers::Ends;

const PATIENCE: Duration = Duration::from_secs(300);

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < give_up, "waited {PATIENCE:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn request(len: u64) -> keymill::store::Request {
    keymill_tests::request(&keymill_key(), len)
}

fn keymill_key() -> std::sync::Arc<keymill::store::Key> {
    std::sync::Arc::new(keymill::store::Key::segment(
        keymill::store::Scheme::Keymill,
        "keymill_segment",
        "orders",
    ))
}

/// `None` without an answer: Sentinels close a server's connections when they change its role.
fn is_master(url: &str) -> Option<bool> {
    let mut connection = ::redis::Client::open(url).unwrap().get_connection().ok()?;
    let info: String = ::redis::cmd("INFO").arg("replication").query(&mut connection).ok()?;
    Some(info.contains("role:master"))
}

/// The process behind a URL.
fn process(url: &str) -> i32 {
    let info: String = redis::say(&mut redis::connection_of(url), &["INFO", "server"]);
    info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().parse().unwrap()
}

fn signal(process: i32, signal: i32) {
    // SAFETY: a server that this test started.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

#[test]
fn four_mills_go_on_with_the_promoted_replica_and_no_id_comes_twice() {
    let servers = Private::start("");
    let url = servers.sentinels();
    let replica = servers.replica();
    let over = AtomicBool::new(false);
    let (count, after) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let promoted = AtomicBool::new(false);
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let (over, count, after, promoted) = (&over, &count, &after, &promoted);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let url = format!("{url}&wait_replicas=1&timeout=5s&connect_timeout=5s");
                scope.spawn(move || {
                    let mill = Mill::open(&url).unwrap();
                    // Small segments: every few ids need a round trip to the master.
                    let source = mill.source("segment:orders?step=20&max_step=20&deadline=300ms").unwrap();
                    let mut ids = Vec::new();
                    // ordering: Relaxed — flags and counters, nothing hangs on them.
                    while !over.load(Ordering::Relaxed) {
                        match source.next() {
                            Ok(id) => {
                                ids.push(id);
                                // ordering: Relaxed — as above.
                                count.fetch_add(1, Ordering::Relaxed);
                                if promoted.load(Ordering::Relaxed) {
                                    after.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                            Err(error) => {
                                let outage = [Code::StoreUnavailable, Code::Deadline];
                                assert!(outage.contains(&error.code), "{error}");
                            }
                        }
                    }
                    ids
                })
            })
            .collect();
        let ends = Ends(over);
        // ordering: Relaxed — as above.
        until("the mills are at work", || count.load(Ordering::Relaxed) > 5_000);
        servers.kill();
        let killed = Instant::now();
        until("the Sentinels have promoted the replica", || is_master(&replica) == Some(true));
        println!("promoted after {:?}", killed.elapsed());
        // The new master has no replica, so none acknowledges. An operator accepts that, or adds a replica.
        servers.start_again();
        let port = replica.rsplit([':', '/']).nth(1).unwrap();
        redis::say::<()>(&mut redis::connection_of(&servers.url()), &["REPLICAOF", "127.0.0.1", port]);
        // ordering: Relaxed — as above.
        promoted.store(true, Ordering::Relaxed);
        until("the mills go on with it", || after.load(Ordering::Relaxed) > 5_000);
        drop(ends);
        for thread in threads {
            all.extend(thread.join().unwrap());
        }
    });
    let total = all.len();
    all.sort_unstable();
    all.dedup();
    println!("{total} ids of four mills over one failover");
    assert_eq!(all.len(), total, "no id twice");
}

#[test]
fn a_failover_that_lost_reservations_is_refused_by_who_has_seen_them() {
    let servers = Private::start("");
    let url = servers.sentinels();
    let replica = servers.replica();
    let mut options = redis::options_of(&url);
    options.server.read_timeout = Duration::from_secs(10);
    let mut store = redis::store(options);
    let mut high_water = Mark::default();
    for _ in 0..3 {
        let got = store.reserve(&request(10)).unwrap();
        high_water = Mark { period: 0, next: got.hi };
    }
    let warnings = redis::warnings(&store.facts().unwrap());
    assert!(matches!(&warnings[..], [one] if one.contains("asynchronously")), "{warnings:?}");
    let acknowledged = || {
        let row: Option<u64> = redis::say(
            &mut redis::connection_of(&replica),
            &["HGET", "keymill_segment:segment:orders", "next"],
        );
        row
    };
    until("the replica has followed", || acknowledged() == Some(31));
    // The replica loses its master and cannot return; the master still answers.
    redis::say::<()>(&mut redis::connection_of(&replica), &["CONFIG", "SET", "masterauth", "wrong"]);
    redis::say::<i64>(&mut redis::connection_of(&servers.url()), &["CLIENT", "KILL", "TYPE", "replica"]);
    for _ in 0..5 {
        let got = store.reserve(&keymill::store::Request { high_water, ..request(10) }).unwrap();
        high_water = Mark { period: 0, next: got.hi };
    }
    assert_eq!(high_water.next, 81);
    servers.kill();
    until("the Sentinels have promoted the replica", || is_master(&replica) == Some(true));
    assert_eq!(acknowledged(), Some(31), "what was answered since is lost");
    let seen = keymill::store::Request { high_water, ..request(10) };
    let mut answer = store.reserve(&seen);
    until("the new master answers", || {
        if matches!(&answer, Err(fault) if fault.kind == FaultKind::Unavailable || fault.kind == FaultKind::Unknown)
        {
            answer = store.reserve(&seen);
            return false;
        }
        true
    });
    let fault = answer.unwrap_err();
    assert_eq!(fault.kind, FaultKind::WentBackwards, "{fault}");
    assert_eq!(acknowledged(), Some(31), "the row was left alone");
    store.repair(&request(1).key, high_water).unwrap();
    assert_eq!(store.reserve(&seen).unwrap().lo, 81);
}

#[test]
fn a_master_that_has_been_replaced_behind_our_back_is_left() {
    // Cut off from the Sentinels and the replica, but not from the mill, the old master would serve for ever.
    let servers = Private::start("");
    let url = servers.sentinels();
    let (old, new) = (servers.url(), servers.replica());
    let mut store = redis::store(redis::options_of(&url));
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 1);
    let held = process(&old);
    signal(held, libc::SIGSTOP);
    until("the Sentinels have promoted the replica", || is_master(&new) == Some(true));
    signal(held, libc::SIGCONT);
    let mut direct = redis::store(redis::options_of(&old));
    let still = direct.reserve(&request(10));
    println!("the old master itself says {still:?}");
    let mut answer = store.reserve(&request(10));
    until("the store has left the old master", || {
        if answer.is_err() {
            answer = store.reserve(&request(10));
            return false;
        }
        true
    });
    let row: u64 =
        redis::say(&mut redis::connection_of(&new), &["HGET", "keymill_segment:segment:orders", "next"]);
    assert_eq!(row, answer.unwrap().hi, "it was the new master's row");
}

#[test]
fn a_minority_of_sentinels_does_not_decide() {
    let servers = Private::start("");
    let url = servers.sentinels();
    let options = redis::options_of(&url);
    let mut store = redis::store(options.clone());
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 1);
    let sentinels: Vec<i32> = options
        .server
        .hosts
        .iter()
        .map(|(host, port)| {
            // Sentinels have no password.
            let info: String =
                redis::say(&mut redis::connection_of(&format!("redis://{host}:{port}")), &["INFO", "server"]);
            info.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().parse().unwrap()
        })
        .collect();
    signal(sentinels[0], libc::SIGKILL);
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 11, "two of three agree");
    signal(sentinels[1], libc::SIGKILL);
    let fault = store.reserve(&request(10)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unavailable);
    assert!(fault.to_string().contains("1 of 3 Sentinels"), "{fault}");
    assert_eq!(store.look(&request(1).key).unwrap().unwrap().mark.next, 21, "asking is no change");
    // Wrong names and addresses.
    let mut unknown = options.clone();
    unknown.sentinel = Some("nobody".to_owned());
    unknown.server.hosts.drain(..2);
    let fault = redis::store(unknown).reserve(&request(10)).unwrap_err();
    assert!(
        fault.to_string().contains("0 of 1 Sentinels")
            && fault.to_string().contains("knows no master `nobody`; it watches `mymaster`"),
        "{fault}"
    );
    let mut no_sentinel = redis::options_of(&servers.url());
    no_sentinel.sentinel = Some("mymaster".to_owned());
    let fault = redis::store(no_sentinel).reserve(&request(10)).unwrap_err();
    assert!(fault.to_string().contains("0 of 1 Sentinels"), "{fault}");
    let mut not_followed = options;
    not_followed.sentinel = None;
    not_followed.server.hosts.drain(..2);
    (not_followed.server.user, not_followed.server.password) = Default::default();
    let fault = redis::store(not_followed).reserve(&request(10)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    assert!(fault.to_string().contains("?sentinel=NAME"), "{fault}");
}
