//! The end of mills on the servers: a thousand sources returned at a close, a fork under load, a Redis that comes back
//! empty.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL`, `KEYMILL_TEST_POSTGRES` and `KEYMILL_TEST_REDIS`
//! (`ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo test …`).

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Mill, Source};
use keymill_tests::ci::patient;
use keymill_tests::takers::until;
use keymill_tests::worker::in_a_process_of_its_own;
use keymill_tests::{mariadb, postgres, redis};

/// One of a thousand sources.
fn named(n: usize) -> String {
    format!("segment:ends_{}_{n}?step=100&max_step=100&deadline=60s", std::process::id())
}

/// The first id of every source, requested at once by a few threads.
fn first_ids(sources: &[Source]) -> Vec<u64> {
    thread::scope(|scope| {
        let part = sources.len().div_ceil(8);
        let threads: Vec<_> = sources
            .chunks(part)
            .map(|sources| {
                scope.spawn(move || sources.iter().map(|source| source.next().unwrap()).collect::<Vec<_>>())
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn a_thousand_sources_are_given_back_in_a_moment() {
    const SOURCES: usize = 1000;
    let folder = tempfile::tempdir().unwrap();
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    for (place, url) in [
        ("MariaDB", mariadb::url()),
        ("PostgreSQL", postgres::url()),
        ("Redis", redis::url()),
        ("SQLite", file),
    ] {
        let open = || {
            let mill = Mill::open(&patient(&url)).unwrap();
            mill.init(&["segment:x"], Change::Apply).unwrap();
            let sources: Vec<_> = (0..SOURCES).map(|n| mill.source(&named(n)).unwrap()).collect();
            (mill, sources)
        };
        let (mill, sources) = open();
        let began = Instant::now();
        assert!(first_ids(&sources).iter().all(|id| *id == 1));
        let taken = began.elapsed();
        let began = Instant::now();
        mill.close();
        let closed = began.elapsed();
        // Each row ends after its one id: nothing was lost, and no number comes twice.
        let (mill, sources) = open();
        let mut lost = 0;
        for id in first_ids(&sources) {
            assert!(id >= 2, "{id} came twice");
            lost += usize::from(id > 2);
        }
        mill.close();
        println!(
            "ends     {place}: {SOURCES} first ids in {taken:?}, closed in {closed:?}, {lost} not given back"
        );
        // A close returns numbers for eight seconds at most. A busy disk flushes fewer than a thousand commits in that
        // time.
        assert!(lost == 0 || closed >= Duration::from_secs(8), "{place}: {lost} sources were not given back");
        assert!(closed < Duration::from_secs(180), "{place}: {closed:?}");
    }
}

/// Takes until it is stopped; each id is on disk before it counts.
fn log_ids(source: &Source, path: &Path, over: &AtomicBool) {
    let mut log = File::create(path).unwrap();
    // ordering: Relaxed — a flag.
    while !over.load(Ordering::Relaxed) {
        let ids = source.take(7).unwrap();
        let lines: Vec<_> = ids.iter().map(u64::to_string).collect();
        log.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    }
}

/// The exit status of a child.
const FORKED: i32 = 16;
const DONE: i32 = 0;

/// Forks while the parent's threads take; the child takes `count` ids into a log of its own.
fn fork_and_take(source: &Source, path: &Path, count: usize) -> libc::pid_t {
    // SAFETY: the child uses the mill, which is made for that, writes and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut code = DONE;
        let mut lines = String::new();
        for _ in 0..count {
            match source.next() {
                Ok(id) => lines.push_str(&format!("{id}\n")),
                Err(error) => {
                    code = if error.code == Code::Forked { FORKED } else { 99 };
                    lines = format!("{error}\n");
                    break;
                }
            }
        }
        let written = fs::write(path, lines).is_ok();
        // SAFETY: ends the child at once, without its parent's destructors.
        unsafe { libc::_exit(if written { code } else { 98 }) };
    }
    pid
}

#[track_caller]
fn ended(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        // SAFETY: `pid` is our child.
        let found = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if found == pid {
            return libc::WEXITSTATUS(status);
        }
        assert!(Instant::now() < deadline, "the child hangs");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn forked_under_load_parent_and_children_share_no_id_and_no_connection() {
    const CHILDREN: usize = 8;
    if !in_a_process_of_its_own("ends::forked_under_load_parent_and_children_share_no_id_and_no_connection") {
        return;
    }
    for (place, url) in
        [("MariaDB", mariadb::url()), ("PostgreSQL", postgres::url()), ("Redis", redis::url())]
    {
        for fork in ["revive", "error"] {
            let folder = tempfile::tempdir().unwrap();
            let mill = Mill::open(&format!("{}&fork={fork}", patient(&url))).unwrap();
            let spec =
                format!("segment:forks_{}_{fork}?step=20&max_step=20&deadline=60s", std::process::id());
            mill.init(&[&spec], Change::Apply).unwrap();
            let source = mill.source(&spec).unwrap();
            source.next().unwrap();
            let over = AtomicBool::new(false);
            thread::scope(|scope| {
                for n in 0..3 {
                    let (source, over, log) = (&source, &over, folder.path().join(format!("parent-{n}")));
                    scope.spawn(move || log_ids(source, &log, over));
                }
                for child in 0..CHILDREN {
                    // At a random moment, mostly with a reservation in flight.
                    thread::sleep(Duration::from_micros(fastrand::u64(..5_000)));
                    let pid = fork_and_take(&source, &folder.path().join(format!("child-{child}")), 50);
                    let code = ended(pid);
                    let told = fs::read_to_string(folder.path().join(format!("child-{child}"))).unwrap();
                    assert_eq!(code, if fork == "error" { FORKED } else { DONE }, "{place}: {told}");
                }
                let so_far = source.stats().unwrap().issued;
                until("the parent goes on", Duration::from_secs(300), || {
                    source.stats().unwrap().issued > so_far + 500
                });
                // ordering: Relaxed — a flag.
                over.store(true, Ordering::Relaxed);
            });
            let refills_failed = mill.latency().failed;
            mill.close();
            let mut seen = HashSet::new();
            for log in fs::read_dir(folder.path()).unwrap().flatten() {
                for id in fs::read_to_string(log.path()).unwrap().lines().filter(|_| fork == "revive") {
                    assert!(seen.insert(id.to_owned()), "{place}: {id} came twice");
                }
            }
            println!("ends     {place} fork={fork}: {CHILDREN} children, {} ids, none twice", seen.len());
            assert_eq!(refills_failed, 0, "{place}: the parent's connection was harmed");
        }
    }
}

#[test]
fn a_redis_that_lost_its_rows_is_refused_by_old_processes_and_repeats_for_new_ones() {
    let private = redis::Private::start("--appendonly no --save ''");
    let url = private.url();
    let spec = "segment:orders?step=10&max_step=10&deadline=60s";
    let careful = Mill::open(&patient(&url)).unwrap();
    let error = careful.source(spec).unwrap().next().unwrap_err();
    assert_eq!(error.code, Code::StoreUnsafe, "{error}");
    careful.close();
    // `durability=warn` accepts the risk, and warns about it.
    let url = format!("{}&durability=warn", patient(&url));
    let mill = Mill::open(&url).unwrap();
    let source = mill.source(spec).unwrap();
    let ids = source.take(100).unwrap();
    assert!(mill.facts().unwrap().warnings.iter().any(|warning| warning.contains("appendonly=no")));
    private.kill();
    private.start_again();
    let error = loop {
        match source.next() {
            Ok(id) => assert!(id > ids[99]),
            Err(error) if matches!(error.code, Code::StoreUnavailable | Code::Deadline) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, Code::StoreWentBackwards, "{error}");
    assert!(
        error.message.contains("is gone or empty") && error.message.contains(" repair 'segment:orders"),
        "{error}"
    );
    // A process that has seen nothing cannot detect it: `durability=warn` accepts that, so it is not the default.
    let fresh = Mill::open(&url).unwrap();
    assert_eq!(fresh.source(spec).unwrap().next().unwrap(), 1);
    let error = source.next().unwrap_err();
    assert_eq!(error.code, Code::StoreWentBackwards, "{error}");
    fresh.close();
    mill.close();
}
