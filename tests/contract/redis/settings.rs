//! Settings and roles that change under an open connection, and servers that hide theirs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keymill::store::redis::{RedisOptions, RedisStore};
use keymill::store::server::PasswordSource;
use keymill::store::{Catalogue, Durability, FaultKind, Mark, Request, Reserved, RowStore, Secret};
use keymill_tests::assert_disjoint;
use keymill_tests::redis::{self, Private};

use super::fake::{Fake, array, bulk};
use super::{ROW, at, free_port, request, says};

fn range(got: &Reserved) -> (u64, u64) {
    (got.lo, got.hi)
}

/// Reserves range after range until the store refuses.
fn until_refused(store: &mut RedisStore, begun: &AtomicBool) -> (Vec<(u64, u64)>, keymill::store::Fault) {
    // The first fifty ranges wait for as many flushes of the disk.
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    loop {
        let next = ranges.last().map_or(0, |(_, hi)| *hi);
        match store.reserve(&Request { high_water: Mark { period: 0, next }, ..request(10) }) {
            Ok(got) => ranges.push(range(&got)),
            Err(fault) => return (ranges, fault),
        }
        // ordering: Relaxed — a flag, nothing hangs on it.
        begun.store(ranges.len() > 50, Ordering::Relaxed);
        assert!(Instant::now() < deadline, "it was never refused");
    }
}

#[test]
fn a_setting_changed_under_load_is_refused_with_the_next_reservation_and_a_killed_server_repeats_nothing() {
    for (name, value, safe) in [
        ("appendonly", "no", "yes"),
        ("appendfsync", "everysec", "always"),
        ("no-appendfsync-on-rewrite", "yes", "no"),
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
    ] {
        let private = Private::start("");
        let mut admin = redis::connection_of(&private.url());
        let mut store = at(&private.url());
        let begun = AtomicBool::new(false);
        let (mut ranges, fault) = std::thread::scope(|scope| {
            let takes = scope.spawn(|| until_refused(&mut store, &begun));
            // ordering: Relaxed — a flag, nothing hangs on it.
            while !begun.load(Ordering::Relaxed) && !takes.is_finished() {
                std::thread::yield_now();
            }
            redis::say::<()>(&mut admin, &["CONFIG", "SET", name, value]);
            takes.join().unwrap()
        });
        println!("{name}={value} after {} ranges: {fault}", ranges.len());
        let found = format!("{name}={value}");
        says(Err::<(), _>(fault), FaultKind::Unsafe, &[&found, "never used", "durability=warn"]);
        // The range of the refused reservation is the only one that was written.
        let row: u64 = redis::say(&mut admin, &["HGET", ROW, "next"]);
        for _ in 0..3 {
            says(store.reserve(&request(10)), FaultKind::Unsafe, &[&found]);
        }
        let together = store.reserve_all(&[request(10), request(10)]);
        assert!(
            together
                .iter()
                .flatten()
                .all(|answer| answer.as_ref().is_err_and(|f| f.kind == FaultKind::Unsafe))
        );
        assert_eq!(redis::say::<u64>(&mut admin, &["HGET", ROW, "next"]), row);
        private.kill();
        private.start_again();
        // The options of the command line apply again.
        let mut fresh = at(&private.url());
        for _ in 0..20 {
            ranges.push(range(&fresh.reserve(&request(10)).unwrap()));
        }
        let mut admin = redis::connection_of(&private.url());
        let setting: BTreeMap<String, String> = redis::say(&mut admin, &["CONFIG", "GET", name]);
        assert_eq!(setting[name], safe);
        println!("{} numbers, 0 twice", assert_disjoint(ranges));
    }
}

#[test]
fn a_batch_is_checked_against_the_servers_report_after_it() {
    let private = Private::start("");
    let mut admin = redis::connection_of(&private.url());
    let mut store = at(&private.url());
    let named = |name: &str| {
        let key = keymill::store::Key::segment(keymill::store::Scheme::Keymill, &request(1).key.table, name);
        keymill_tests::request(&Arc::new(key), 10)
    };
    let requests = ["a", "b", "c"].map(named);
    for request in &requests {
        store.reserve(request).unwrap();
    }
    let seen = requests.each_ref().map(|r| Request { high_water: Mark { period: 0, next: 11 }, ..r.clone() });
    assert!(store.reserve_all(&seen).into_iter().all(|got| got.is_some_and(|got| got.unwrap().lo == 11)));
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "appendonly", "no"]);
    for answer in store.reserve_all(&seen) {
        says(answer.expect("it was asked"), FaultKind::Unsafe, &["appendonly=no"]);
    }
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "appendonly", "yes"]);
    let got = store.reserve_all(&seen);
    assert!(got.into_iter().all(|got| got.is_none_or(|got| got.unwrap().lo >= 31)), "that range was burnt");
}

#[test]
fn a_new_replica_that_still_takes_writes_is_left_at_once() {
    let private = Private::start("--replica-read-only no");
    let mut admin = redis::connection_of(&private.url());
    let mut store = at(&private.url());
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 1);
    redis::say::<()>(&mut admin, &["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    says(store.reserve(&request(10)), FaultKind::Unavailable, &["a replica", "never used"]);
    assert_eq!(redis::say::<u64>(&mut admin, &["HGET", ROW, "next"]), 21, "the server did take it");
    says(store.reserve(&request(10)), FaultKind::Unavailable, &["a replica"]);
    assert_eq!(redis::say::<u64>(&mut admin, &["HGET", ROW, "next"]), 21, "and no other one");
}

#[test]
fn a_server_that_stops_reporting_its_role_is_left_at_once() {
    let private = Private::start("--replica-read-only no");
    let mut admin = redis::connection_of(&private.url());
    redis::say::<()>(&mut admin, &["ACL", "SETUSER", "ids", "on", ">secret", "~*", "+@all"]);
    let url = private.url().replace("default:", "ids:");
    let mut store = at(&url);
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 1);
    // The role at connect does not count: the server may be a replica by now.
    redis::say::<()>(&mut admin, &["ACL", "SETUSER", "ids", "-info"]);
    redis::say::<()>(&mut admin, &["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    let parts = ["does not say whether it is a master", "`+info`", "never used"];
    says(store.reserve(&request(10)), FaultKind::Unavailable, &parts);
    says(store.reserve(&request(10)), FaultKind::Unavailable, &parts[..2]);
    assert_eq!(redis::say::<u64>(&mut admin, &["HGET", ROW, "next"]), 21, "no other range was taken");
}

#[test]
fn a_connection_has_a_client_name_and_is_closed_when_idle() {
    let private = Private::start("");
    let mut admin = redis::connection_of(&private.url());
    let mut store = at(&private.url());
    let named = |admin: &mut _| {
        let list: String = redis::say(admin, &["CLIENT", "LIST"]);
        list.lines().filter(|line| line.contains(" name=keymill ")).count()
    };
    assert_eq!(store.release_idle(0), None, "there is none");
    store.reserve(&request(10)).unwrap();
    assert_eq!(named(&mut admin), 1);
    let close_at = store.release_idle(0).expect("when to ask again");
    assert_eq!(store.release_idle(close_at - 1), Some(close_at));
    assert_eq!(store.release_idle(close_at), None);
    let deadline = Instant::now() + Duration::from_secs(60);
    while named(&mut admin) > 0 {
        assert!(Instant::now() < deadline, "the connection was never closed");
    }
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 11);
}

// ---- servers that are not Redis ----

/// The server's report about its settings and role.
#[derive(Clone, Copy)]
struct Says {
    info: &'static str,
    config: &'static [(&'static str, &'static str)],
    /// `CLIENT` and `CONFIG` are refused.
    restricted: bool,
}

const SAFE: &[(&str, &str)] = &[
    ("appendonly", "yes"),
    ("appendfsync", "always"),
    ("no-appendfsync-on-rewrite", "no"),
    ("maxmemory-policy", "noeviction"),
];

/// A server with one row and this report.
fn like_redis(says: Says) -> Fake {
    let row = Mutex::new(None::<(u64, u64)>);
    Fake::start(move |words| {
        let mut row = row.lock().unwrap();
        match words[0].as_str() {
            "CLIENT" | "CONFIG" if says.restricted => {
                "-ERR unknown command, or disabled by the provider\r\n".to_owned()
            }
            "CLIENT" => "+OK\r\n".to_owned(),
            "INFO" => bulk(says.info),
            "CONFIG" => {
                let pattern = words[2].trim_matches('*');
                let globbed = words[2].contains('*');
                let found = says
                    .config
                    .iter()
                    .filter(|(name, _)| if globbed { name.contains(pattern) } else { *name == pattern });
                array(&found.flat_map(|(name, value)| [*name, *value]).collect::<Vec<_>>())
            }
            "HMGET" => match *row {
                Some((period, next)) => {
                    array(&[&period.to_string(), &next.to_string(), "open", "1", "1", "0", "0"])
                }
                None => format!("*7\r\n{}", "$-1\r\n".repeat(7)),
            },
            "PTTL" => if row.is_some() { ":-1\r\n" } else { ":-2\r\n" }.to_owned(),
            // keymill's own scripts, as far as a row without other writers needs them.
            "EVALSHA" => {
                let number = |at: usize| words[at].parse::<u64>().unwrap_or(0);
                match (*row, words.len()) {
                    // Reserves.
                    (Some((period, next)), 13) if next >= number(5) => {
                        *row = Some((period, next + number(7)));
                        bulk(&next.to_string())
                    }
                    // Makes the row.
                    (None, 18) if words[5].is_empty() => {
                        *row = Some((number(11), number(12)));
                        ":1\r\n".to_owned()
                    }
                    _ => "$-1\r\n".to_owned(),
                }
            }
            _ => format!("-ERR unknown command '{}'\r\n", words[0]),
        }
    })
}

fn store(fake: &Fake, durability: Durability) -> RedisStore {
    let mut options = RedisOptions::default();
    options.server.hosts = vec![fake.place()];
    options.server.durability = durability;
    redis::store(options)
}

#[test]
fn a_server_that_hides_its_settings_is_refused_unless_that_is_accepted() {
    let info = "redis_version:7.4.0\r\nredis_mode:standalone\r\nrole:master\r\nconnected_slaves:0\r\n";
    for (what, config, restricted, part) in [
        (
            "a server without an append-only file",
            &[("maxmemory-policy", "noeviction")][..],
            false,
            "`appendonly`",
        ),
        ("a server without settings", &[], false, "`appendonly`"),
        ("a managed server", SAFE, true, "`appendonly`"),
        ("one setting is missing", &SAFE[..3], false, "`maxmemory-policy`"),
    ] {
        let fake = like_redis(Says { info, config, restricted });
        let part = format!("{part} cannot be read");
        says(
            store(&fake, Durability::Refuse).reserve(&request(10)),
            FaultKind::Unsafe,
            &[&part, "durability=warn"],
        );
        let mut accepted = store(&fake, Durability::Warn);
        assert_eq!(accepted.reserve(&request(10)).unwrap().lo, 1, "{what}");
        assert_eq!(accepted.reserve(&request(10)).unwrap().lo, 11, "{what}");
        let warnings = accepted.facts().unwrap().warnings;
        assert!(warnings.iter().any(|warning| warning.contains(&part)), "{what}: {warnings:?}");
    }
    let fake = like_redis(Says { info, config: SAFE, restricted: false });
    let mut store = store(&fake, Durability::Refuse);
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 1);
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 11);
}

#[test]
fn only_a_server_that_says_it_is_the_master_is_written_to() {
    for (info, parts) in [
        (
            "redis_version:6.3.4\r\nrole:active-replica\r\n",
            ["role:active-replica", "only a master may reserve"],
        ),
        ("redis_version:7.0.0\r\nrole:slave\r\n", ["a replica", "sentinel=NAME"]),
        ("redis_version:9.9.9\r\nrole:witness\r\n", ["role:witness", "only a master may reserve"]),
    ] {
        for durability in [Durability::Refuse, Durability::Warn] {
            let fake = like_redis(Says { info, config: SAFE, restricted: false });
            says(store(&fake, durability).reserve(&request(10)), FaultKind::Unavailable, &parts);
            let warnings = store(&fake, durability).facts().unwrap().warnings;
            assert!(warnings.iter().any(|warning| warning.contains(parts[0])), "{warnings:?}");
        }
    }
    let silent = like_redis(Says { info: "redis_version:7.0.0\r\n", config: SAFE, restricted: false });
    let parts = ["does not say whether it is a master", "durability=warn"];
    says(store(&silent, Durability::Refuse).reserve(&request(10)), FaultKind::Unavailable, &parts);
    assert_eq!(store(&silent, Durability::Warn).reserve(&request(10)).unwrap().lo, 1);
}

// ---- Sentinels ----

#[test]
fn sentinels_are_asked_before_each_reservation_over_kept_connections() {
    let private = Private::start("");
    let master = redis::options_of(&private.url()).server.hosts[0].clone();
    let asked = Arc::new(Mutex::new(0_usize));
    let sentinels = [(); 3].map(|()| {
        let (asked, port) = (Arc::clone(&asked), master.1.to_string());
        Fake::start(move |words| match words.get(1).map(String::as_str) {
            Some("MASTER") => {
                *asked.lock().unwrap() += 1;
                master_at(&port)
            }
            Some("GET-MASTER-ADDR-BY-NAME") => array(&["127.0.0.1", &port]),
            _ => "-ERR unknown command\r\n".to_owned(),
        })
    });
    let mut options = redis::options_of(&private.url());
    options.sentinel = Some("mymaster".to_owned());
    options.server.hosts = sentinels.each_ref().map(Fake::place).to_vec();
    let mut store = redis::store(options);
    let accepted = || sentinels.each_ref().map(Fake::accepted);
    for _ in 0..50 {
        store.reserve(&request(10)).unwrap();
    }
    assert_eq!(accepted(), [1, 1, 1], "one connection each");
    assert!(*asked.lock().unwrap() >= 150, "each is asked each time: {}", asked.lock().unwrap());
    // A restarted Sentinel is asked again at once, which costs no reservation.
    sentinels[0].hang_up();
    sentinels[2].hang_up();
    store.reserve(&request(10)).unwrap();
    assert_eq!(accepted(), [2, 1, 2]);
    store.reserve(&request(10)).unwrap();
    assert_eq!(accepted(), [2, 1, 2]);
    // Idle connections to Sentinels are closed with the server's.
    assert_eq!(store.release_idle(u64::MAX), None);
    store.reserve(&request(10)).unwrap();
    assert_eq!(accepted(), [3, 2, 3]);
}

#[test]
fn a_sentinel_gets_the_password_in_the_password_file() {
    let private = Private::start("");
    let master = redis::options_of(&private.url()).server.hosts[0].clone();
    let (port, logged_in) = (master.1.to_string(), AtomicBool::new(false));
    let sentinel = Fake::start(move |words| match words[0].as_str() {
        "AUTH" => {
            // ordering: Relaxed — a flag, nothing hangs on it; here and below.
            logged_in.store(words.last().is_some_and(|word| word == "secret"), Ordering::Relaxed);
            "+OK\r\n".to_owned()
        }
        _ if !logged_in.load(Ordering::Relaxed) => "-NOAUTH Authentication required.\r\n".to_owned(),
        _ if words[1] == "MASTER" => master_at(&port),
        _ => array(&["127.0.0.1", &port]),
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    keymill_tests::write_private(&file, "secret\n");
    let mut options = redis::options_of(&private.url());
    options.sentinel = Some("mymaster".to_owned());
    options.server.hosts = vec![sentinel.place()];
    options.server.password = Secret::default();
    options.server.password_source = PasswordSource::File(file);
    assert_eq!(redis::store(options).reserve(&request(10)).unwrap().lo, 1);
}

/// A Sentinel's report on the master `mymaster` at this port.
fn master_at(port: &str) -> String {
    array(&["name", "mymaster", "ip", "127.0.0.1", "port", port, "flags", "master", "config-epoch", "1"])
}
