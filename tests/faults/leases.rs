//! Leased workers over real processes: one is stopped for longer than its lease, another takes its worker, and the first goes on.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Mill};
use keymill_tests::{mariadb, postgres, redis, worker};

const ROUNDS: usize = 3;

#[test]
fn a_worker_of_these_tests() {
    worker::work();
}

fn start(config: &str, spec: &str, log: &Path) -> Child {
    worker::start("leases::a_worker_of_these_tests", config, spec, log)
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: sends a signal to a child that this test has started and not yet waited for.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

fn lines(log: &Path) -> usize {
    std::fs::read_to_string(log).map_or(0, |text| text.matches('\n').count())
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(120);
    while !is_true() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Two processes and one worker: the second has ids only after the lease of the first, which is stopped, has ended.
fn stopped_and_woken(config: &str) {
    let spec = format!("snowflake:stopped{}?lease=1s&slots=0-0", fastrand::u32(..));
    Mill::open(config).and_then(|mill| mill.init(&[&spec], Change::Apply)).expect("the table");
    for _ in 0..ROUNDS {
        let folder = tempfile::tempdir().expect("a folder");
        let (first_log, second_log) = (folder.path().join("first.ids"), folder.path().join("second.ids"));
        let mut first = start(config, &spec, &first_log);
        until("the first has ids", || lines(&first_log) > 100);
        signal(&first, libc::SIGSTOP);
        let mut second = start(config, &spec, &second_log);
        until("the second has the worker", || lines(&second_log) > 1_000);
        let before = lines(&first_log);
        signal(&first, libc::SIGCONT);
        // Both run for a while: the first may use up its old mark, and then waits.
        let seen = lines(&second_log);
        until("the second goes on", || lines(&second_log) > seen + 1_000);
        second.kill().and_then(|()| second.wait()).expect("the second ends");
        until("the first has leased anew", || lines(&first_log) > before + 20_000);
        first.kill().and_then(|()| first.wait()).expect("the first ends");
        println!("{} ids, none twice", worker::count_distinct(folder.path()));
    }
}

#[test]
fn a_stopped_process_repeats_nothing_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    stopped_and_woken(&format!("sqlite:{}", folder.path().join("ids.db").display()));
}

#[test]
fn a_stopped_process_repeats_nothing_on_mariadb() {
    stopped_and_woken(&mariadb::url());
}

#[test]
fn a_stopped_process_repeats_nothing_on_postgresql() {
    stopped_and_woken(&postgres::url());
}

#[test]
fn a_stopped_process_repeats_nothing_on_redis() {
    stopped_and_woken(&redis::url());
}

#[test]
fn a_forked_child_leases_a_worker_of_its_own() {
    if !worker::in_a_process_of_its_own("leases::a_forked_child_leases_a_worker_of_its_own") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mill = Mill::open(&format!("sqlite:{}", folder.path().join("ids.db").display())).expect("a mill");
    let source = mill.source("snowflake:tx?deadline=30s").expect("a source");
    let ours = source.parse(source.next().expect("an id")).expect("its parts").worker;
    // SAFETY: the child takes one id and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let worker = source.next().ok().and_then(|id| source.parse(id).ok()).and_then(|parts| parts.worker);
        let code = worker.map_or(100, |worker| worker as libc::c_int);
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child above; `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((ours, libc::WEXITSTATUS(status)), (Some(0), 1));
    assert!(source.next().is_ok(), "the parent goes on");
}

#[test]
fn callers_wait_for_a_worker_within_their_deadline() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("sqlite:{}", folder.path().join("ids.db").display());
    let one = Mill::open(&config).expect("a mill");
    one.source("snowflake:tx?slots=0-0").and_then(|source| source.next()).expect("an id");
    let two = Mill::open(&config).expect("a mill");
    let refused = two.source("snowflake:tx?slots=0-0&deadline=50ms").and_then(|source| source.next());
    let refused = refused.expect_err("no worker is free");
    assert_eq!(refused.code, Code::NoWorkerFree, "{refused}");
    assert!(refused.message.contains("0 by "), "{refused}");
    let waiting = two.source("snowflake:tx?slots=0-0&deadline=60s").expect("a source");
    let waiter = std::thread::spawn(move || waiting.next());
    one.close();
    assert!(waiter.join().expect("a thread").is_ok(), "a close frees the worker");
}
