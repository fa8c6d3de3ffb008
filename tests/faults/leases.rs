//! Leased workers over real processes: they are stopped for longer than a lease, forked, closed and killed.
//!
//! `KEYMILL_ROUNDS=20` runs as many rounds as the promise names; the gate runs two.

use std::collections::{BTreeSet, VecDeque};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use keymill::{Change, Code, Mill, Source};
use keymill_tests::ci::patient;
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, postgres, redis, worker};

/// A lease of processes that are killed.
const LEASE: Duration = Duration::from_secs(1);

/// A lease of processes that go on: on a busy machine a renewal may be some seconds late.
const LONG_LEASE: Duration = Duration::from_secs(6);

#[test]
fn a_worker_of_these_tests() {
    worker::work();
}

fn rounds() -> usize {
    std::env::var("KEYMILL_ROUNDS").map_or(2, |rounds| rounds.parse().expect("a number of rounds"))
}

fn start(config: &str, spec: &str, log: &Path) -> Child {
    worker::start("leases::a_worker_of_these_tests", config, spec, log)
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: sends a signal to a child that this test has started and not yet waited for.
    assert_eq!(unsafe { libc::kill(child.id().cast_signed(), signal) }, 0);
}

/// The whole lines of a log, as ids.
fn ids(log: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| line.parse().expect("an id")).collect()
}

fn lines(log: &Path) -> usize {
    std::fs::read_to_string(log).map_or(0, |text| text.matches('\n').count())
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(300);
    while !is_true() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The mark of a pool with one slot.
fn mark(source: &Source) -> u64 {
    source.row().expect("the pool").expect("a row").mark.next
}

fn tick(source: &Source, id: u64) -> u64 {
    source.layout().expect("a layout").unpack(id).tick
}

/// Two processes and one worker: the second has ids only after the lease of the first, which is stopped, has ended. The first goes on
/// below the mark that it left, and gets the worker again by itself, at the mark that the second left.
fn stopped_and_woken(config: &str) {
    let spec = format!("snowflake:stopped{}?lease={}ms&slots=0-0", fastrand::u32(..), LONG_LEASE.as_millis());
    let watching = Mill::open(&patient(config)).expect("a mill");
    watching.init(&[&spec], Change::Apply).expect("the table");
    let pool = watching.source(&spec).expect("a source");
    let (mut all, mut late, mut anew) = (0, 0, 0);
    for round in 1..=rounds() {
        let folder = tempfile::tempdir().expect("a folder");
        let (first_log, second_log) = (folder.path().join("first.ids"), folder.path().join("second.ids"));
        let mut first = start(config, &spec, &first_log);
        until("the first has ids", || lines(&first_log) > 100);
        signal(&first, libc::SIGSTOP);
        let old = mark(&pool);
        let mut second = start(config, &spec, &second_log);
        until("the second has the worker", || lines(&second_log) > 1_000);
        let before = lines(&first_log);
        signal(&first, libc::SIGCONT);
        let seen = lines(&second_log);
        until("the second goes on", || lines(&second_log) > seen + 1_000);
        second.kill().and_then(|()| second.wait()).expect("the second ends");
        let taken = mark(&pool);
        let woken = lines(&first_log);
        until("the first has leased anew", || lines(&first_log) > woken + 1_000);
        first.kill().and_then(|()| first.wait()).expect("the first ends");

        assert!(taken > old, "the second raised the mark: {old} and {taken}");
        for id in ids(&second_log) {
            let tick = tick(&pool, id);
            assert!(
                (old..taken).contains(&tick),
                "round {round}: the second issued tick {tick}, not {old}..{taken}"
            );
        }
        // A renewal that was on its way when the first was stopped may have raised the mark later.
        let begun = ids(&second_log).iter().map(|id| tick(&pool, *id)).min().expect("ids of the second");
        let after = ids(&first_log).split_off(before);
        let (below, above): (Vec<u64>, Vec<u64>) = after.into_iter().partition(|id| tick(&pool, *id) < begun);
        let again = above.iter().map(|id| tick(&pool, *id)).min().expect("ids of the new lease");
        assert!(
            again >= taken,
            "round {round}: the first issued tick {again}, which is the second's: {begun}..{taken}"
        );
        late += below.len();
        anew += above.len();
        all += worker::count_distinct(folder.path());
    }
    println!(
        "ids  {}: {} rounds, {all} ids, none twice; the first issued {late} below its old mark after it woke, {anew} of a new lease",
        config.split(':').next().unwrap_or_default(),
        rounds()
    );
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
    let source = mill.source("snowflake:tx?deadline=60s").expect("a source");
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
    one.source("snowflake:tx?slots=0-0&deadline=60s").and_then(|source| source.next()).expect("an id");
    let two = Mill::open(&config).expect("a mill");
    let hasty = two.source("snowflake:tx?slots=0-0&deadline=50ms").expect("a source");
    // The store's first answer may take longer.
    let refused = persistently(|| hasty.next()).expect_err("no worker is free");
    assert_eq!(refused.code, Code::NoWorkerFree, "{refused}");
    assert!(refused.message.contains("0 by "), "{refused}");
    let waiting = two.source("snowflake:tx?slots=0-0&deadline=60s").expect("a source");
    let waiter = std::thread::spawn(move || waiting.next());
    one.close();
    assert!(waiter.join().expect("a thread").is_ok(), "a close frees the worker");
}

/// A process that is closed frees its worker, so the next one has the same.
fn restarted(config: &str) {
    let spec = format!("snowflake:restarted{}", fastrand::u32(..));
    let config = &patient(config);
    Mill::open(config).and_then(|mill| mill.init(&[&spec], Change::Apply)).expect("the table");
    let (mut last, mut kept) = (0, 0);
    let lives = 50 * rounds();
    for _ in 0..lives {
        let mill = Mill::open(config).expect("a mill");
        let source = mill.source(&format!("{spec}?deadline=60s")).expect("a source");
        let id = source.next().expect("an id");
        assert!(id > last, "{id} came after {last}");
        last = source.take(10).expect("ids")[9];
        let worker = source.parse(last).expect("its parts").worker;
        assert!(worker.is_some_and(|worker| worker <= kept), "{worker:?}, and {kept} were not freed in time");
        let began = Instant::now();
        mill.close();
        // A close asks the store for eight seconds at most.
        kept += u64::from(began.elapsed() >= Duration::from_secs(8));
    }
    println!("ids  {lives} clean restarts, one worker, and {kept} that a slow store kept");
}

#[test]
fn clean_restarts_use_up_no_workers_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    restarted(&format!("sqlite:{}", folder.path().join("ids.db").display()));
}

#[test]
fn clean_restarts_use_up_no_workers_on_mariadb() {
    restarted(&mariadb::url());
}

#[test]
fn clean_restarts_use_up_no_workers_on_postgresql() {
    restarted(&postgres::url());
}

#[test]
fn clean_restarts_use_up_no_workers_on_redis() {
    restarted(&redis::url());
}

#[test]
fn killed_processes_hold_their_workers_for_a_lease_and_no_longer() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = format!("sqlite:{}", folder.path().join("ids.db").display());
    let spec = format!("snowflake:killed?lease={}ms", LEASE.as_millis());
    let pool = Mill::open(&config).and_then(|mill| mill.source(&spec)).expect("a source");
    let lives = 50 * rounds();
    let (mut workers, mut killed_at, mut most) = (BTreeSet::new(), VecDeque::new(), 0);
    for life in 0..lives {
        let log = folder.path().join(format!("{life}.ids"));
        let mut process = start(&config, &spec, &log);
        until("it has ids", || lines(&log) > 0);
        process.kill().and_then(|()| process.wait()).expect("it ends");
        workers.extend(ids(&log).iter().map(|id| pool.layout().expect("a layout").unpack(*id).worker));
        // A lease that was renewed at the last moment is over by twice its length.
        killed_at.push_back(Instant::now());
        while killed_at.front().is_some_and(|at| at.elapsed() > 2 * LEASE) {
            killed_at.pop_front();
        }
        most = most.max(killed_at.len());
    }
    assert!(workers.len() <= most + 1, "{} workers, {most} kills in two leases", workers.len());
    println!(
        "ids  {lives} kills, {} workers, at most {most} kills within two leases; {} ids, none twice",
        workers.len(),
        worker::count_distinct(folder.path())
    );
}
