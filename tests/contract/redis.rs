//! Tests for Redis alone: scripts, eviction, replicas, settings that change while it runs.

mod connection;
mod dying;
mod fake;
mod settings;

use std::time::{Duration, Instant};

use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::redis::{RedisOptions, RedisStore};
use keymill::store::{Catalogue, Durability, Fault, FaultKind, MAX_NUMBER, Mark, Request, RowStore, Secret};
use keymill_tests::redis::{self, Private};

use crate::bench::*;

/// A new caller's request to a private server.
fn request(len: u64) -> Request {
    keymill_tests::request(&Kind::Segment.key("keymill_segment", "orders", false), len)
}

const ROW: &str = "keymill_segment:segment:orders";

fn at(url: &str) -> RedisStore {
    redis::store(redis::options_of(url))
}

fn seen(next: u64, len: u64) -> Request {
    Request { high_water: Mark { period: 0, next }, ..request(len) }
}

fn says(answer: Result<impl std::fmt::Debug, Fault>, expected: FaultKind, parts: &[&str]) {
    let fault = answer.expect_err("a fault was expected");
    assert_eq!(fault.kind, expected, "{fault}");
    for part in parts {
        assert!(fault.to_string().contains(part), "`{part}` is not in: {fault}");
    }
    let text = fault.to_string();
    // Before Redis 7 an error inside a script names the script.
    assert!(!text.contains('\n') && (is_before_7() || !text.contains("user_script")), "{fault}");
}

/// Whether the servers of these tests are older than Redis 7, whose commands and errors differ.
fn is_before_7() -> bool {
    std::env::var("KEYMILL_CI_REDIS_VERSION").is_ok_and(|version| version.starts_with('6'))
}

/// Outside the range from which the system gives ports to clients: such a port could be taken before the server listens.
fn free_port() -> u16 {
    let mut ports = std::iter::repeat_with(|| fastrand::u16(12_000..20_000));
    ports.find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
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

// ---- the script and decision.rs ----

/// A number near a limit of the arithmetic.
fn near_an_edge() -> u64 {
    let edges = [1, 10, 100, 9_999_999_999, 10_000_000_000, 1 << 53, MAX_NUMBER / 2, MAX_NUMBER];
    let edge: u64 = edges[fastrand::usize(..edges.len())];
    edge.saturating_add(fastrand::u64(..6)).saturating_sub(fastrand::u64(..6)).min(MAX_NUMBER + 1)
}

#[test]
fn the_script_decides_as_every_other_store_does() {
    for kind in [Kind::Segment, Kind::Serial] {
        let ours = Bench::redis(kind);
        let memory = Memory::new();
        let (mut redis, mut model) = (ours.open(), MemoryStore::new(memory.clone()));
        let mut connection = redis::connection_of(&redis::url());
        let mut reserved = 0;
        let period = || if kind == Kind::Segment { 0 } else { [DAY, NEXT_DAY][fastrand::usize(..2)] };
        for turn in 0..4000 {
            let name = "orders";
            let key = ours.key(name);
            if turn % 3 == 0 {
                let mark = Mark { period: period(), next: near_an_edge() };
                memory.set_row(&key, mark).unwrap();
                let (period, next) = (mark.period.to_string(), mark.next.to_string());
                let at = format!("{}:{}", ours.table, key.name);
                let status = ["state", "open", "stores", "1", "store", "1", "chunk", "0", "writer", "0"];
                let row = ["HSET", &at, "date", &period, "next", &next];
                redis::say::<i64>(&mut connection, &[&row[..], &status].concat());
            }
            let wanted = period();
            let request = Request {
                len: if fastrand::bool() { fastrand::u64(1..12) } else { near_an_edge() },
                high_water: if fastrand::bool() {
                    Mark { period: period(), next: near_an_edge() }
                } else {
                    Mark::default()
                },
                last: near_an_edge().min(MAX_NUMBER),
                period: wanted,
                period_max: wanted.max(period()),
                heal: fastrand::bool(),
                max_jump: near_an_edge(),
                ..ours.request(name, 1)
            };
            let (got, expected) = (redis.reserve(&request), model.reserve(&request));
            reserved += u32::from(got.is_ok());
            assert_eq!(
                got.map_err(|fault| (fault.kind, fault.to_string())),
                expected.map_err(|fault| (fault.kind, fault.to_string())),
                "turn {turn}: {request:?}"
            );
            assert_eq!(redis.look(&key).unwrap(), model.look(&key).unwrap(), "turn {turn}: {request:?}");
        }
        println!("{kind:?}: 4000 requests, {reserved} reserved, as in memory");
        assert!(reserved > 500);
    }
}

#[test]
fn a_server_that_has_lost_the_scripts_gets_them_again() {
    let private = Private::start("");
    let mut store = at(&private.url());
    let mut connection = redis::connection_of(&private.url());
    for round in 0..3 {
        assert_eq!(store.reserve(&request(10)).unwrap().lo, 1 + 10 * round);
        redis::say::<()>(&mut connection, &["SCRIPT", "FLUSH"]);
    }
    let stats: String = redis::say(&mut connection, &["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_eval:") && stats.contains("cmdstat_evalsha:"), "{stats}");
}

// ---- logins and rights ----

#[test]
fn a_wrong_password_or_right_is_refused_and_never_shown() {
    let private = Private::start("");
    let url = private.url();
    let with = |user: &str, password: &str| {
        let mut options = redis::options_of(&url);
        options.server.user = user.to_owned();
        options.server.password = Secret::new(password);
        options
    };
    for (user, password, part) in [
        ("default", "wrong-horse-battery", "check user and password"),
        ("nobody", "wrong-horse-battery", "check user and password"),
        ("", "wrong-horse-battery", "check user and password"),
        ("", "", "the server wants a password"),
    ] {
        let options = with(user, password);
        let mut store = redis::store(options.clone());
        let fault = store.reserve(&request(1)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        assert!(fault.to_string().contains(part), "{fault}");
        let shown = format!("{fault} {fault:?} {options:?} {store:?}");
        assert!(!shown.contains("wrong-horse"), "{shown}");
    }
    // The rights in the message are enough; with fewer the server refuses, and keymill gives that message.
    let mut admin = redis::connection_of(&url);
    redis::say::<()>(
        &mut admin,
        &["ACL", "SETUSER", "app", "on", ">opensesame", "~keymill_segment:*", "+info", "+config|get"],
    );
    let mut store = redis::store(with("app", "opensesame"));
    let fault = store.reserve(&request(1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    let fault = fault.to_string();
    let advice = fault.split('`').find(|part| part.starts_with("~keymill_segment")).expect("the rights");
    assert!(
        include_str!("../../docs/operations/privileges.md").contains(advice),
        "the page names the same rights"
    );
    let rights: Vec<_> = ["ACL", "SETUSER", "app"].into_iter().chain(advice.split(' ')).collect();
    redis::say::<()>(&mut admin, &rights);
    let mut options = with("app", "opensesame");
    options.server.database = "3".to_owned();
    let mut store = redis::store(options);
    assert_eq!(store.reserve(&request(1)).unwrap().lo, 1);
    assert_eq!(store.repair(&request(1).key, Mark { period: 0, next: 50 }).unwrap().1.mark.next, 50);
    // The tests' server has its passwords in its settings.
    let warnings = redis::warnings(&store.facts().unwrap());
    assert!(matches!(&warnings[..], [one] if one.contains("requirepass")), "{warnings:?}");
    // A managed server hides its settings.
    redis::say::<()>(&mut admin, &["ACL", "SETUSER", "app", "-config"]);
    let unread = ["`appendfsync` cannot be read", "+config|get", "durability=warn"];
    says(redis::store(with("app", "opensesame")).reserve(&request(1)), FaultKind::Unsafe, &unread);
    let mut accepted = with("app", "opensesame");
    accepted.server.durability = Durability::Warn;
    let mut store = redis::store(accepted);
    assert_eq!(store.reserve(&request(1)).unwrap().lo, 1, "another database");
    let warnings = redis::warnings(&store.facts().unwrap());
    assert!(warnings.len() == 2 && warnings.iter().all(|w| w.contains("cannot be read")), "{warnings:?}");
    redis::say::<()>(&mut admin, &["ACL", "SETUSER", "app", "-info"]);
    let warnings = redis::warnings(&redis::store(with("app", "opensesame")).facts().unwrap());
    assert!(warnings[0].contains("INFO cannot be read") && warnings.len() == 5, "{warnings:?}");
    // No password at all.
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "requirepass", ""]);
    assert_eq!(redis::store(with("", "")).reserve(&request(1)).unwrap().lo, 2);
    says(redis::store(with("", "opensesame")).reserve(&request(1)), FaultKind::Refused, &["leave it out"]);
    let mut beyond = with("", "");
    beyond.server.database = "4711".to_owned();
    says(redis::store(beyond).reserve(&request(1)), FaultKind::Refused, &["0 to 15"]);
}

#[test]
fn too_many_clients_a_busy_script_and_missing_replicas_pass() {
    let private = Private::start("");
    let mut admin = redis::connection_of(&private.url());
    let mut store = at(&private.url());
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 1);
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "2"]);
    says(at(&private.url()).reserve(&request(10)), FaultKind::Unavailable, &["maxclients"]);
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "100"]);

    redis::say::<()>(&mut admin, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let answer = store.reserve(&request(10));
    // Before Redis 7 the setting does not hold for what a script writes.
    if is_before_7() {
        assert_eq!(answer.unwrap().lo, 11);
    } else {
        says(answer, FaultKind::Unavailable, &["min-replicas-to-write"]);
    }
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "min-replicas-to-write", "0"]);

    redis::say::<()>(&mut admin, &["CONFIG", "SET", "lua-time-limit", "20"]);
    let url = private.url();
    let endless = std::thread::spawn(move || {
        let mut connection = redis::connection_of(&url);
        ::redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query::<()>(&mut connection)
            .unwrap_err()
            .to_string()
    });
    let deadline = Instant::now() + Duration::from_secs(180);
    let busy = loop {
        match store.reserve(&request(10)) {
            Err(fault) => break fault,
            Ok(_) => assert!(Instant::now() < deadline, "the script never came to be busy"),
        }
    };
    says(Err::<(), _>(busy), FaultKind::Unavailable, &["BUSY", "SCRIPT KILL"]);
    redis::say::<()>(&mut admin, &["SCRIPT", "KILL"]);
    endless.join().unwrap();
    store.reserve(&request(10)).unwrap();
}

// ---- rows ----

/// The command that writes a row: period, next, and state, stores, store, chunk.
fn row<'w>(period: &'w str, next: &'w str, [state, stores, store, chunk]: [&'w str; 4]) -> [&'w str; 16] {
    let numbers = ["date", period, "next", next];
    let status = ["state", state, "stores", stores, "store", store, "chunk", chunk];
    std::array::from_fn(|at| match at {
        0 => "HSET",
        1 => ROW,
        2..6 => numbers[at - 2],
        6..14 => status[at - 6],
        14 => "writer",
        _ => "0",
    })
}

#[test]
fn a_key_that_is_no_row_of_ours_is_refused_and_left_alone() {
    let private = Private::start("");
    let mut admin = redis::connection_of(&private.url());
    let mut store = at(&private.url());
    let key = request(1).key;
    for (words, parts) in [
        (&["SET", ROW, "17"][..], &["WRONGTYPE", "table="][..]),
        (&["RPUSH", ROW, "17"], &["WRONGTYPE", "table="]),
        (&["HSET", ROW, "max", "17"], &["no `date`"]),
        (&["HSET", ROW, "date", "0"], &["no `next`"]),
        (&["HSET", ROW, "next", "17"], &["no `date`"]),
        (&["HSET", ROW, "date", "0", "next", "017"], &["next=017"]),
        (&["HSET", ROW, "date", "0", "next", "-1"], &["next=-1"]),
        (&["HSET", ROW, "date", "0", "next", "1.5"], &["next=1.5"]),
        (&["HSET", ROW, "date", "0", "next", "1e3"], &["next=1e3"]),
        (&["HSET", ROW, "date", "0", "next", ""], &["next="]),
        (&["HSET", ROW, "date", "0", "next", "99999999999999999999"], &["next=9999"]),
        (
            &["HSET", ROW, "period", "0", "next", "17"],
            &["earlier build", "`period` in place of `date`", "repair SOURCE --to N"],
        ),
        (&["HSET", ROW, "date", "0", "next", "17", "state", "open", "stores", "1"], &["no `store`"]),
        (&row("0", "17", ["shut", "1", "1", "0"]), &["holds `shut` in `state`", "`closed`", "mend the row"]),
        (&row("0", "17", ["open", "2", "3", "1000"]), &["stores=2 store=3 chunk=1000", "mend the row"]),
        (&row("0", "17", ["open", "2", "1", "0"]), &["stores=2 store=1 chunk=0", "mend the row"]),
        (&row("0", "17", ["open", "2", "01", "10"]), &["store=01"]),
        (&row("0", "0", ["open", "1", "1", "0"]), &["numbers begin at 1"]),
        (&row("7", "17", ["open", "1", "1", "0"]), &["no periods"]),
    ] {
        redis::say::<i64>(&mut admin, &["DEL", ROW]);
        redis::say::<::redis::Value>(&mut admin, words);
        let before: Vec<u8> = redis::say(&mut admin, &["DUMP", ROW]);
        says(store.reserve(&request(10)), FaultKind::Refused, parts);
        if !parts[0].contains("periods") && !parts[0].contains("begin at 1") {
            says(store.repair(&key, Mark { period: 0, next: 1000 }), FaultKind::Refused, parts);
            says(store.look(&key), FaultKind::Refused, parts);
            let healing = Request { heal: true, max_jump: 100, ..seen(20, 10) };
            says(store.reserve(&healing), FaultKind::Refused, parts);
        }
        assert_eq!(redis::say::<Vec<u8>>(&mut admin, &["DUMP", ROW]), before, "{words:?} was left alone");
    }
    redis::say::<i64>(&mut admin, &["DEL", ROW]);
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 1);
    redis::say::<i64>(&mut admin, &["EXPIRE", ROW, "1000"]);
    says(store.reserve(&request(10)), FaultKind::Unsafe, &["PERSIST", ROW]);
    redis::say::<i64>(&mut admin, &["PERSIST", ROW]);
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 11);
    // Other fields of the hash belong to operators.
    redis::say::<i64>(&mut admin, &["HSET", ROW, "owner", "billing"]);
    store.reserve(&request(10)).unwrap();
    store.repair(&key, Mark { period: 0, next: 1000 }).unwrap();
    assert_eq!(redis::say::<String>(&mut admin, &["HGET", ROW, "owner"]), "billing");
}

#[test]
fn only_its_own_scheme_is_kept() {
    let mut store = redis::store(redis::options());
    for kind in Kind::all().filter(|kind| kind.scheme() != keymill::store::Scheme::Keymill) {
        let request = keymill_tests::request(&kind.key("t", "orders", false), 1);
        let says_so = ["Redis keeps `scheme=keymill`", kind.scheme().name()];
        says(store.reserve(&request), FaultKind::Refused, &says_so);
        says(store.look(&request.key), FaultKind::Refused, &says_so);
        says(store.repair(&request.key, Mark { period: 0, next: 5 }), FaultKind::Refused, &says_so);
        says(store.init(std::slice::from_ref(&request.key), true), FaultKind::Refused, &says_so);
        says(store.raise(&request.key, None, 5), FaultKind::Refused, &says_so);
    }
    let bench = Bench::redis(Kind::Serial);
    let init_max = Kind::Serial.key(&bench.table, "cust", true);
    says(
        store.reserve(&Request { key: init_max, ..bench.request("cust", 1) }),
        FaultKind::Refused,
        &["business table"],
    );
}

#[test]
fn a_flushed_or_evicted_row_is_refused_and_short_memory_is_reported() {
    let private = Private::start("--maxmemory-policy allkeys-random");
    let mut admin = redis::connection_of(&private.url());
    let mut options = redis::options_of(&private.url());
    says(
        redis::store(options.clone()).reserve(&request(10)),
        FaultKind::Unsafe,
        &["maxmemory-policy=allkeys-random", "durability=warn"],
    );
    options.server.durability = Durability::Warn;
    let mut store = redis::store(options);
    store.reserve(&request(10)).unwrap();
    redis::say::<()>(&mut admin, &["FLUSHALL"]);
    says(store.reserve(&seen(11, 10)), FaultKind::WentBackwards, &["gone", "keymill repair"]);
    assert_eq!(redis::say::<i64>(&mut admin, &["EXISTS", ROW]), 0, "nothing was created");
    store.repair(&request(1).key, Mark { period: 0, next: 11 }).unwrap();
    assert_eq!(store.reserve(&seen(11, 10)).unwrap().lo, 11);

    redis::say::<()>(&mut admin, &["CONFIG", "SET", "maxmemory", "3mb"]);
    let fat = "x".repeat(100_000);
    // Each key waits for the disk.
    let deadline = Instant::now() + Duration::from_secs(300);
    for n in 0.. {
        // The server evicts any key, so at some point the row.
        let _ = ::redis::cmd("SET").arg(n).arg(&fat).query::<()>(&mut admin);
        if redis::say::<i64>(&mut admin, &["EXISTS", ROW]) == 0 {
            println!("evicted after {n} large keys");
            break;
        }
        assert!(Instant::now() < deadline, "the row was never evicted");
    }
    says(store.reserve(&seen(21, 10)), FaultKind::WentBackwards, &["gone"]);

    redis::say::<()>(&mut admin, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "maxmemory", "1mb"]);
    says(store.repair(&request(1).key, Mark { period: 0, next: 21 }), FaultKind::Unavailable, &["maxmemory"]);
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "maxmemory", "0"]);
    store.repair(&request(1).key, Mark { period: 0, next: 21 }).unwrap();
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "maxmemory", "1mb"]);
    says(store.reserve(&seen(21, 10)), FaultKind::Unavailable, &["maxmemory"]);
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(store.reserve(&seen(21, 10)).unwrap().lo, 21, "nothing was reserved meanwhile");
}

// ---- settings ----

#[test]
fn settings_that_lose_commits_are_refused_or_warned_about() {
    let private = Private::start("");
    let mut admin = redis::connection_of(&private.url());
    let options = redis::options_of(&private.url());
    let careless = RedisOptions {
        server: keymill::store::server::ServerOptions {
            durability: Durability::Warn,
            ..redis::options_of(&private.url()).server
        },
        ..RedisOptions::default()
    };
    let mut next = 1;
    for (name, value, safe) in [
        ("appendfsync", "everysec", "always"),
        ("appendfsync", "no", "always"),
        ("no-appendfsync-on-rewrite", "yes", "no"),
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ("appendonly", "no", "yes"),
    ] {
        redis::say::<()>(&mut admin, &["CONFIG", "SET", name, value]);
        let found = format!("{name}={value}");
        says(
            redis::store(options.clone()).reserve(&request(1)),
            FaultKind::Unsafe,
            &[&found, "durability=warn"],
        );
        let mut store = redis::store(careless.clone());
        assert_eq!(store.reserve(&request(1)).unwrap().lo, next);
        next += 1;
        for facts in [store.facts().unwrap(), redis::store(options.clone()).facts().unwrap()] {
            let warnings = redis::warnings(&facts);
            assert!(matches!(&warnings[..], [one] if one.contains(&found)), "{facts:?}");
            assert!(facts.durability.contains(&found), "{facts:?}");
        }
        redis::say::<()>(&mut admin, &["CONFIG", "SET", name, safe]);
    }
    redis::say::<()>(&mut admin, &["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]);
    assert_eq!(redis::store(options).reserve(&request(1)).unwrap().lo, next);
}

#[test]
fn a_cluster_is_refused() {
    // By default the cluster port is 10000 above the first, even if it is in use.
    let port = if is_before_7() { String::new() } else { format!("--cluster-port {}", free_port()) };
    let cluster = Private::start(&format!("--cluster-enabled yes {port}"));
    says(at(&cluster.url()).reserve(&request(1)), FaultKind::Refused, &["Redis Cluster"]);
}

#[test]
fn a_replica_reserves_nothing_and_the_master_beside_it_does() {
    let private = Private::start("");
    let replica = private.replica();
    let (master, replica) = (redis::options_of(&private.url()), redis::options_of(&replica));
    let mut store = redis::store(master.clone());
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 1);
    let facts = store.facts().unwrap();
    assert!(facts.durability.contains(&"replicas=1".to_owned()), "{facts:?}");
    let warnings = redis::warnings(&facts);
    assert!(matches!(&warnings[..], [one] if one.contains("wait_replicas=N")), "{facts:?}");
    let mut of_replica = redis::store(replica.clone());
    for answer in [
        of_replica.reserve(&request(10)).map(drop),
        of_replica.raise(&request(1).key, None, 500).map(drop),
        of_replica.init(&[request(1).key], false).map(drop),
    ] {
        says(answer, FaultKind::Unavailable, &["a replica"]);
    }
    let mut either = replica.clone();
    either.server.hosts.extend(master.server.hosts.clone());
    let got = redis::store(either.clone()).reserve(&request(10)).unwrap();
    assert_eq!(got.lo, 11);
    // Acknowledged by a replica: at once.
    let mut waits = master.clone();
    waits.wait_replicas = 1;
    let mut waiting = redis::store(waits.clone());
    assert_eq!(waiting.reserve(&request(10)).unwrap().lo, 21);
    assert_eq!(of_replica.look(&request(1).key).unwrap().unwrap().mark.next, 31, "the replica has it");
    assert_eq!(redis::warnings(&waiting.facts().unwrap()), Vec::<String>::new());
    assert_eq!(store.reserve(&request(10)).unwrap().lo, 31);
    // A connection to a master that became a replica.
    let mut admin = redis::connection_of(&private.url());
    let [_, port] = [&replica.server.hosts[0].0, &replica.server.hosts[0].1.to_string()].map(Clone::clone);
    redis::say::<()>(&mut redis::connection_of(&private.replica()), &["REPLICAOF", "NO", "ONE"]);
    redis::say::<()>(&mut admin, &["REPLICAOF", "127.0.0.1", &port]);
    says(store.reserve(&request(10)), FaultKind::Unavailable, &["READONLY", "replica"]);
    says(store.reserve(&request(10)), FaultKind::Unavailable, &["a replica"]);
    assert_eq!(redis::store(either).reserve(&request(10)).unwrap().lo, 41, "the other is the master now");
}

#[test]
fn too_few_replicas_are_an_outage_before_and_an_unknown_outcome_after() {
    let private = Private::start("");
    let replica = private.replica();
    let mut options = redis::options_of(&private.url());
    options.wait_replicas = 1;
    // The replica's limit is half of it, and its disk may be slow.
    options.server.read_timeout = Duration::from_secs(12);
    let mut store = redis::store(options.clone());
    let deadline = Instant::now() + Duration::from_secs(120);
    let first = loop {
        match store.reserve(&request(10)) {
            Ok(got) => break got,
            Err(fault) => assert!(fault.kind.is_outage() && Instant::now() < deadline, "{fault}"),
        }
    };
    options.wait_replicas = 2;
    says(
        redis::store(options).reserve(&request(10)),
        FaultKind::Unavailable,
        &["1 of 2", "nothing was reserved"],
    );
    // A stopped replica is still connected: the script runs, and no replica acknowledges it.
    let id = process(&replica);
    signal(id, libc::SIGSTOP);
    let began = Instant::now();
    let fault = store.reserve(&request(10)).unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(fault.kind, FaultKind::Unknown, "{fault}");
    assert!(fault.to_string().contains("0 of 1"), "{fault}");
    // Now its lag is known: no further range is lost.
    for _ in 0..3 {
        says(store.reserve(&request(10)), FaultKind::Unavailable, &["0 of 1", "nothing was reserved"]);
    }
    signal(id, libc::SIGCONT);
    let got = crate::reserve_many(&mut store, &request(10), 1);
    assert_eq!(got, [(first.hi + 10, first.hi + 20)], "one range was burnt");
}
