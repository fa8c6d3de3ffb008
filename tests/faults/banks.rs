//! Banks of counters under fire: processes that are killed, counters that are changed, several stores, and eight processes that
//! use every counter of the largest bank. No id comes twice, and the ids of one gene rise within a process.
//!
//! `ci/servers/mariadb run ci/servers/postgres run ci/servers/redis run cargo test …` names the servers.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use keymill::{Change, Mill};
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, postgres, redis, worker};

const PATIENCE: Duration = Duration::from_secs(400);

#[test]
fn a_worker_of_these_tests() {
    worker::work();
}

/// A mill with a table of its own, and the folder of its logs.
struct Place {
    config: String,
    table: String,
    folder: tempfile::TempDir,
    logs: u32,
}

impl Place {
    fn new(kind: &str) -> Place {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
        let config = match kind {
            "mariadb" => mariadb::url(),
            "postgres" => postgres::url(),
            "redis" => redis::url(),
            "two files" => {
                let toml = folder.path().join("stores.toml");
                let stores = [file("a.db"), file("b.db")].map(|url| patient(&url));
                let stores = format!("stores = {stores:?}\nchunk = 1000\n");
                fs::write(&toml, stores).expect("a configuration");
                format!("file:{}", toml.display())
            }
            _ => file("ids.db"),
        };
        // A file of options has those of its own.
        let config = if config.starts_with("file:") { config } else { patient(&config) };
        let place = Place { config, table: format!("banks_{}_{count}", std::process::id()), folder, logs: 0 };
        place.mill().init(&[&place.spec("x", 1)], Change::Apply).expect("its table");
        place
    }

    fn mill(&self) -> Mill {
        Mill::open(&self.config).expect("a mill")
    }

    fn spec(&self, name: &str, counters: u32) -> String {
        format!("business:{name}?counters={counters}&table={}", self.table)
    }

    fn start(&mut self, spec: &str) -> (Child, PathBuf) {
        self.logs += 1;
        let log = self.folder.path().join(format!("{}.ids", self.logs));
        (worker::start("banks::a_worker_of_these_tests", &self.config, spec, &log), log)
    }

    /// How many different ids there are; panics where one came twice or did not rise.
    fn count(&self) -> usize {
        for entry in fs::read_dir(self.folder.path()).expect("a folder of logs").flatten() {
            if entry.path().extension().is_some_and(|e| e == "ids") {
                assert_rises(&entry.path());
            }
        }
        worker::count_distinct(self.folder.path())
    }
}

fn kill((mut child, _): (Child, PathBuf)) {
    child.kill().expect("a child of ours");
    child.wait().expect("it has ended");
}

fn lines(log: &Path) -> usize {
    fs::read_to_string(log).map_or(0, |text| text.matches('\n').count())
}

/// Waits until a worker has written so many ids.
fn wait_for((child, log): &mut (Child, PathBuf), ids: usize) {
    let until = Instant::now() + PATIENCE;
    while lines(log) < ids {
        assert!(child.try_wait().expect("a child of ours").is_none(), "it ended: {}", errors(log));
        assert!(Instant::now() < until, "{} of {ids} ids", lines(log));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn errors(log: &Path) -> String {
    fs::read_to_string(log.with_extension("stderr")).unwrap_or_default()
}

/// The ids of one gene rise within one process.
fn assert_rises(log: &Path) {
    let text = fs::read_to_string(log).expect("a log");
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut last: HashMap<u64, u64> = HashMap::new();
    for id in whole.lines().map(|line| line.parse::<u64>().expect("an id")) {
        let before = last.insert(id >> 47, id).unwrap_or(0);
        assert!(before < id, "{id} follows {before} in {}", log.display());
    }
}

fn processes_that_are_killed_share_no_id(kind: &str) {
    let mut place = Place::new(kind);
    let spec = place.spec("storm", 16);
    let mut workers: Vec<_> = (0..4).map(|_| place.start(&spec)).collect();
    for round in 0..12 {
        let at = fastrand::usize(..workers.len());
        wait_for(&mut workers[at], 100 + fastrand::usize(..200));
        let fresh = place.start(&spec);
        kill(std::mem::replace(&mut workers[at], fresh));
        println!("{kind}: round {round}");
    }
    for mut last in workers {
        wait_for(&mut last, 100);
        kill(last);
    }
    let ids = place.count();
    assert!(ids > 1_000, "{ids} ids");
    println!("{kind}: {ids} different ids");
}

fn a_change_of_counters_under_running_processes_gives_no_id_twice(kind: &str) {
    let mut place = Place::new(kind);
    let (old, new) = (place.spec("changed", 4), place.spec("changed", 64));
    let mut workers: Vec<_> = (0..3).map(|_| place.start(&old)).collect();
    for worker in &mut workers {
        wait_for(worker, 500);
    }
    let mill = place.mill();
    let source = mill.source(&new).expect("a source");
    let done = source.change_counters(64, Change::Apply).expect("the counters are changed");
    assert_eq!((done.before, done.after), (Some(4), 64));
    let mut fresh: Vec<_> = (0..3).map(|_| place.start(&new)).collect();
    for worker in &mut fresh {
        wait_for(worker, 2_000);
    }
    // The others have used up what they had in memory, and were refused.
    for (child, log) in &mut workers {
        let until = Instant::now() + PATIENCE;
        while child.try_wait().expect("a child of ours").is_none() {
            assert!(Instant::now() < until, "a process with the old number of counters goes on");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(errors(log).contains("StoreRefused"), "{}", errors(log));
    }
    fresh.into_iter().for_each(kill);
    println!("{kind}: {} different ids", place.count());
}

fn eight_processes_use_every_counter_of_the_largest_bank(kind: &str) {
    let mut place = Place::new(kind);
    let spec = format!("{}&deadline=120s", place.spec("largest", 65_536));
    let mut workers: Vec<_> = (0..8).map(|_| place.start(&spec)).collect();
    for worker in &mut workers {
        wait_for(worker, 65_536);
    }
    workers.into_iter().for_each(kill);
    let ids = place.count();
    assert!(ids >= 8 * 65_536, "{ids} ids");
}

macro_rules! on_each {
    ($($module:ident: $kind:literal,)*) => {
        $(mod $module {
            #[test]
            fn processes_that_are_killed_share_no_id() {
                super::processes_that_are_killed_share_no_id($kind);
            }

            #[test]
            fn a_change_of_counters_under_running_processes_gives_no_id_twice() {
                super::a_change_of_counters_under_running_processes_gives_no_id_twice($kind);
            }
        })*
    };
}

on_each! {
    in_sqlite: "sqlite",
    in_two_files: "two files",
    in_mariadb: "mariadb",
    in_postgres: "postgres",
    in_redis: "redis",
}

#[test]
fn eight_processes_on_sqlite_use_every_counter_of_the_largest_bank() {
    eight_processes_use_every_counter_of_the_largest_bank("sqlite");
}

#[test]
fn eight_processes_on_mariadb_use_every_counter_of_the_largest_bank() {
    eight_processes_use_every_counter_of_the_largest_bank("mariadb");
}
