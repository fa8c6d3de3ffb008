//! Every language at once on one server: Rust, C, Java, Python and Node processes, and an old KeyFactory node, share one
//! `key_producer` row, one segment and one bank of counters, are killed at random, and no number comes twice.
//!
//! Each language also runs on PostgreSQL, on Redis and on several stores: every language accepts every configuration.
//!
//! `ci/steps/polyglot` builds the workers and names them in `KEYMILL_TEST_WORKERS`: one a line, `NAME PROGRAM ARGUMENT…`
//! with tabs between; a worker gets CONFIG, SPEC and LOG. A worker whose name starts with `old` takes serials only and is
//! not killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, postgres, redis, worker};

const KILLS: usize = 30;
/// A virtual machine may take a while to start beside ten others.
const PATIENCE: Duration = Duration::from_secs(240);
const RUST_WORKER: &str = "polyglot::the_rust_worker_takes_until_it_is_killed";

#[test]
fn the_rust_worker_takes_until_it_is_killed() {
    worker::work();
}

/// How to start one language's workers.
struct Language {
    name: String,
    /// Empty for Rust, whose worker is this program.
    command: Vec<String>,
}

fn languages() -> Vec<Language> {
    let list = std::env::var("KEYMILL_TEST_WORKERS")
        .expect("KEYMILL_TEST_WORKERS names the workers; run `ci/steps/polyglot`");
    let others = list.lines().filter(|line| !line.is_empty()).map(|line| {
        let mut parts = line.split('\t').map(str::to_owned);
        Language { name: parts.next().unwrap_or_default(), command: parts.collect() }
    });
    std::iter::once(Language { name: "rust".to_owned(), command: Vec::new() }).chain(others).collect()
}

impl Language {
    fn is_old(&self) -> bool {
        self.name.starts_with("old")
    }

    fn start(&self, config: &str, spec: &str, log: &Path) -> Child {
        let Some((program, arguments)) = self.command.split_first() else {
            return worker::start(RUST_WORKER, config, spec, log);
        };
        Command::new(program)
            .args(arguments)
            .args([config, &if self.is_old() { spec.to_owned() } else { format!("{spec}&deadline=60s") }])
            .arg(log)
            // Cargo's own, in which a library of the build would be found before the package's.
            .env_remove("LD_LIBRARY_PATH")
            .stdout(Stdio::null())
            .stderr(File::create(log.with_extension("stderr")).expect("a file for errors"))
            .spawn()
            .unwrap_or_else(|error| panic!("the {} worker `{program}` does not start: {error}", self.name))
    }
}

/// A running process, killed when it is dropped.
struct Worker {
    process: Child,
    log: PathBuf,
}

impl Worker {
    fn start(language: &Language, spec: &str, folder: &Path, number: usize) -> Worker {
        Worker::start_on(language, &mariadb::url(), spec, folder, number)
    }

    fn start_on(language: &Language, config: &str, spec: &str, folder: &Path, number: usize) -> Worker {
        let log = folder.join(format!("{}-{number}.ids", language.name));
        Worker { process: language.start(config, spec, &log), log }
    }

    fn wait_until_it_takes(&mut self) {
        self.wait_until_it_has(1);
    }

    fn wait_until_it_has(&mut self, bytes: u64) {
        let give_up = Instant::now() + PATIENCE;
        while fs::metadata(&self.log).map_or(0, |m| m.len()) < bytes {
            self.still_works();
            assert!(
                Instant::now() < give_up,
                "{} took not enough in {PATIENCE:?}\n{}",
                self.log.display(),
                self.errors()
            );
            thread::park_timeout(Duration::from_millis(1));
        }
    }

    fn still_works(&mut self) {
        if let Ok(Some(status)) = self.process.try_wait() {
            panic!("{} ended by itself: {status}\n{}", self.log.display(), self.errors());
        }
    }

    /// Its standard error.
    fn errors(&self) -> String {
        fs::read_to_string(self.log.with_extension("stderr")).unwrap_or_default()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Whole lines in a language's logs.
fn count(folder: &Path, language: &Language) -> usize {
    let mine = format!("{}-", language.name);
    let logs = fs::read_dir(folder).expect("a folder of logs").flatten().map(|log| log.path());
    let logs = logs.filter(|log| {
        let stem = log.file_stem().unwrap_or_default().to_string_lossy();
        stem.starts_with(&mine) && log.extension().is_some_and(|kind| kind == "ids")
    });
    logs.map(|log| fs::read_to_string(log).expect("a log").matches('\n').count()).sum()
}

#[test]
fn killed_in_every_language_they_share_one_row_one_segment_and_one_bank_without_a_duplicate() {
    let languages = languages();
    let folder = tempfile::tempdir().expect("a folder");
    let row = format!("poly_{}", std::process::id());
    let specs = [
        format!("segment:{row}?min_step=50"),
        format!("serial:{row}/custid?number=0000000000&step=100"),
        format!("business:{row}?counters=64&min_step=50"),
    ];
    let folders = ["segment", "serial", "business"].map(|name| folder.path().join(name));
    for folder in &folders {
        fs::create_dir(folder).expect("a folder");
    }
    let mill = keymill::Mill::open(&mariadb::url()).expect("a mill");
    persistently(|| mill.init(&specs.each_ref().map(String::as_str), keymill::Change::Apply)).expect("init");

    thread::scope(|scope| {
        let killers: Vec<_> = languages
            .iter()
            .filter(|language| !language.is_old())
            .map(|language| {
                let (specs, folders) = (&specs, &folders);
                scope.spawn(move || {
                    let begin = |i: usize| Worker::start(language, &specs[i % 3], &folders[i % 3], i);
                    let mut at_work = [begin(0), begin(1), begin(2)];
                    for kill in 0..KILLS {
                        let victim = &mut at_work[kill % 3];
                        victim.wait_until_it_takes();
                        // At a random moment.
                        thread::sleep(Duration::from_micros(fastrand::u64(..20_000)));
                        // A process that crashed or gave up would count as killed.
                        victim.still_works();
                        *victim = begin(kill + 3);
                    }
                    for worker in &mut at_work {
                        worker.wait_until_it_takes();
                        worker.still_works();
                    }
                })
            })
            .collect();
        let mut old: Vec<_> = languages
            .iter()
            .filter(|language| language.is_old())
            .map(|language| Worker::start(language, &specs[1], &folders[1], 0))
            .collect();
        for killer in killers {
            killer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        for node in &mut old {
            node.wait_until_it_takes();
            node.still_works();
        }
    });

    for language in &languages {
        let [segment, serial, business] = folders.each_ref().map(|folder| count(folder, language));
        let kills = if language.is_old() { 0 } else { KILLS };
        println!(
            "{:<16} {kills:>3} kills, {segment:>9} ids, {serial:>9} serials, {business:>9} business ids",
            language.name
        );
        let took = serial > 0 && (language.is_old() || segment > 0 && business > 0);
        assert!(took, "{} did not take part in everything", language.name);
    }
    let [ids, serials, business] = folders.each_ref().map(|folder| worker::count_distinct(folder));
    println!(
        "all: {} kills, {ids} ids, {serials} serials and {business} business ids, 0 duplicates",
        KILLS * (languages.len() - 1)
    );
}

#[test]
fn every_language_takes_from_each_server_and_from_several_at_once() {
    let languages = languages();
    let home = tempfile::tempdir().expect("a folder");
    let name = format!("poly_all_{}", std::process::id());
    let spec = format!("segment:{name}?min_step=50&max_step=5000");
    let stores = [mariadb::url(), postgres::url(), redis::url()];
    let file = home.path().join("keymill.toml");
    // Options that a string cannot hold are in the file: chunk and list.
    let toml = format!("stores = {stores:?}\nchunk = 1000\n[source.\"segment:{name}\"]\nblock = 16\n");
    keymill_tests::write_private(&file, &toml);
    let several = format!("file:{}", file.display());
    let places = [("postgres", &stores[1]), ("redis", &stores[2]), ("stores", &several)];
    for (place, config) in places {
        // A source is one store's or several stores', never both.
        let spec = spec.replace(&name, &format!("{name}_{place}"));
        let mill = keymill::Mill::open(config).expect("a mill");
        persistently(|| mill.init(&[&spec], keymill::Change::Apply)).expect("init");
        mill.close();
        let folder = home.path().join(place);
        fs::create_dir(&folder).expect("a folder");
        let new = languages.iter().filter(|language| !language.is_old());
        let mut at_work: Vec<_> =
            new.clone().map(|language| Worker::start_on(language, config, &spec, &folder, 0)).collect();
        for worker in &mut at_work {
            // A batch of twenty, two single ones, and enough of them for several reservations: 100 000 bytes are 10 000 ids
            // or more.
            worker.wait_until_it_has(100_000);
            worker.still_works();
        }
        drop(at_work);
        let taken: Vec<_> =
            new.map(|language| format!("{} {}", language.name, count(&folder, language))).collect();
        println!("{place:<16} {} ids, none twice: {}", worker::count_distinct(&folder), taken.join(", "));
    }
}
