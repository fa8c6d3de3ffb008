//! Leased workers under a wrong wall clock, in every language. libfaketime moves the clock of a process while it runs, and it stays
//! wrong over a restart; the boot clock and the store's clock are not moved.
//!
//! `KEYMILL_TEST_FAKETIME` names libfaketime's library. `KEYMILL_TEST_ASKERS` names the programs of other languages
//! (`ci/steps/clocks`): one a line, `NAME PROGRAM ARGUMENT…` with tabs between; an asker gets CONFIG, SPEC and LOG. Without it Rust's
//! own asker runs alone, which is this program.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use keymill::{Change, Mill};
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, worker};

/// How far the wall clock is moved: as libfaketime is told.
const STEPS: [&str; 6] = ["+1s", "-1s", "+10m", "-10m", "-2d", "+1y"];

/// Longer than the answers of two leases take to come, which last a second.
const PHASE: Duration = Duration::from_millis(2_500);

/// A virtual machine may take a while to start beside twenty others.
const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn an_asker_of_these_tests() {
    let Ok(order) = std::env::var(worker::WORKER) else { return };
    let parts: Vec<_> = order.split('|').collect();
    let [config, spec, log] = parts[..] else { panic!("{order} is not CONFIG|SPEC|LOG") };
    let mut log = OpenOptions::new().create(true).append(true).open(log).expect("a log file");
    let source = Mill::open(config).and_then(|mill| mill.source(spec)).expect("a source");
    loop {
        let line = match source.next() {
            Ok(id) => format!("{id}\n"),
            Err(error) => format!("{}\n", error.code.name()),
        };
        log.write_all(line.as_bytes()).expect("the log takes a line");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A program that asks, and its clock.
struct Asker {
    process: Child,
    log: PathBuf,
    seen: usize,
}

/// Answers in their order: what came, ids as `ids`, and how often in a row.
type Answers = Vec<(String, usize)>;

impl Asker {
    fn start(language: &[String], config: &str, spec: &str, log: PathBuf, clock: &Path) -> Asker {
        let library = std::env::var("KEYMILL_TEST_FAKETIME")
            .expect("KEYMILL_TEST_FAKETIME names libfaketime; run `ci/steps/clocks`");
        let mut command = match language {
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments).args([config, spec]).arg(&log);
                command
            }
            [] => {
                let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
                command.args(["--exact", "clocks::an_asker_of_these_tests", "--nocapture"]);
                command.env(worker::WORKER, format!("{config}|{spec}|{}", log.display()));
                command
            }
        };
        let process = command
            .env("LD_PRELOAD", library)
            .env("FAKETIME_TIMESTAMP_FILE", clock)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            // For a glibc before 2.31; with a newer one a JVM's waits would end at once, or never.
            .env("FAKETIME_FORCE_MONOTONIC_FIX", "0")
            .stdout(Stdio::null())
            .stderr(File::create(log.with_extension("stderr")).expect("a file for errors"))
            .spawn()
            .expect("an asker starts");
        Asker { process, log, seen: 0 }
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(str::to_owned).collect()
    }

    /// Waits for an answer like this.
    fn until(&mut self, is_it: impl Fn(&str) -> bool) {
        let give_up = Instant::now() + PATIENCE;
        while !self.lines().iter().any(|line| is_it(line)) {
            let errors = || fs::read_to_string(self.log.with_extension("stderr")).unwrap_or_default();
            if let Ok(Some(status)) = self.process.try_wait() {
                panic!("it ended: {status}\n{}", errors());
            }
            assert!(
                Instant::now() < give_up,
                "no such answer in {PATIENCE:?}: {:?}\n{}",
                self.lines(),
                errors()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The answers of a phase, and the ids among them.
    fn answers(&mut self, ids: &mut Vec<u64>) -> Answers {
        std::thread::sleep(PHASE);
        let lines = self.lines();
        let mut answers = Answers::new();
        for line in lines.iter().skip(self.seen) {
            let id: Option<u64> = line.parse().ok();
            ids.extend(id);
            let answer = id.map_or(line.as_str(), |_| "ids");
            match answers.last_mut() {
                Some((last, count)) if last == answer => *count += 1,
                _ => answers.push((answer.to_owned(), 1)),
            }
        }
        self.seen = lines.len();
        answers
    }

    fn kill(mut self, ids: &mut Vec<u64>) {
        self.process.kill().and_then(|()| self.process.wait()).expect("it ends");
        ids.extend(self.lines().iter().skip(self.seen).filter_map(|line| line.parse::<u64>().ok()));
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        // It has ended where the test went well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn shown(answers: &Answers) -> String {
    let each: Vec<_> = answers.iter().map(|(answer, count)| format!("{answer} {count}")).collect();
    let runs = each.len();
    if runs <= 5 {
        return each.join(", ");
    }
    format!("{}, … {} changes …, {}", each[..2].join(", "), runs - 4, each[runs - 2..].join(", "))
}

fn set(clock: &Path, step: &str) {
    // Read at any moment: so it is replaced as a whole.
    let new = clock.with_extension("new");
    fs::write(&new, format!("{step}\n")).and_then(|()| fs::rename(&new, clock)).expect("the clock is set");
}

/// The clock moves under a process, which is killed; the next one begins with the wrong clock, and sees it set right; the last one begins
/// with the right clock. None of their ids is equal.
fn moved(language: &[String], config: &str, slots: &str, step: &str) -> String {
    let spec = format!("snowflake:clocks{}?lease=1s&deadline=200ms{slots}", fastrand::u32(..));
    let mill = Mill::open(config).expect("a mill");
    persistently(|| mill.init(&[&spec], Change::Apply)).expect("the table");
    mill.close();
    let folder = tempfile::tempdir().expect("a folder");
    let clock = folder.path().join("clock");
    let mut ids = Vec::new();
    let mut told = String::new();
    let start = |name: &str| {
        let mut asker = Asker::start(language, config, &spec, folder.path().join(name), &clock);
        asker.until(|_| true);
        asker
    };
    set(&clock, "+0");
    let mut first = start("first.log");
    first.until(|line| line.parse::<u64>().is_ok());
    first.answers(&mut ids);
    set(&clock, step);
    let _ = write!(told, "moved: {}; ", shown(&first.answers(&mut ids)));
    first.kill(&mut ids);
    let mut second = start("second.log");
    let _ = write!(told, "started so: {}; ", shown(&second.answers(&mut ids)));
    set(&clock, "+0");
    let _ = write!(told, "set right: {}; ", shown(&second.answers(&mut ids)));
    second.kill(&mut ids);
    let mut third = start("third.log");
    let _ = write!(told, "started right: {}", shown(&third.answers(&mut ids)));
    third.kill(&mut ids);
    let distinct: HashSet<_> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{step}{slots}: an id came twice ({told})");
    told
}

/// The programs: a name and a command each; Rust's command is empty.
fn languages() -> Vec<(String, Vec<String>)> {
    let others = std::env::var("KEYMILL_TEST_ASKERS").unwrap_or_default();
    let others = others.lines().filter(|line| !line.is_empty()).map(|line| {
        let mut parts = line.split('\t').map(str::to_owned);
        (parts.next().unwrap_or_default(), parts.collect())
    });
    std::iter::once(("rust".to_owned(), Vec::new())).chain(others).collect()
}

/// With all workers to choose from, and with one: then each process goes on where the one before it left its mark.
const SLOTS: [&str; 2] = ["", "&slots=0-0"];

fn every_language_and_step(store: &str, config: &str) {
    for (name, command) in &languages() {
        let cases: Vec<_> = SLOTS.iter().flat_map(|slots| STEPS.map(|step| (*slots, step))).collect();
        let told: Vec<_> = std::thread::scope(|scope| {
            let cases: Vec<_> = cases
                .iter()
                .map(|(slots, step)| scope.spawn(move || moved(command, config, slots, step)))
                .collect();
            cases.into_iter().map(ScopedJoinHandle::join).collect()
        });
        for ((slots, step), told) in cases.iter().zip(told) {
            let told = told.unwrap_or_else(|_| panic!("{name} on {store}, {step}{slots}: see above"));
            println!("ids  {name}, {store}, {step}{slots}: {told}; none twice");
        }
    }
}

#[test]
fn a_wrong_wall_clock_repeats_nothing_on_sqlite() {
    let folder = tempfile::tempdir().expect("a folder");
    every_language_and_step("sqlite", &format!("sqlite:{}", folder.path().join("ids.db").display()));
}

#[test]
fn a_wrong_wall_clock_repeats_nothing_on_mariadb() {
    every_language_and_step("mariadb", &mariadb::url());
}
