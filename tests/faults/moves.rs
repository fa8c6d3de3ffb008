//! Live moves over real processes: readers that are frozen and killed, and operators that are killed, in every phase.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use keymill::{Change, Code, Error, Mill, MoveOptions, MoveStatus, Moves};
use keymill_tests::ci::patient;
use keymill_tests::victim::Victim;
use keymill_tests::{mariadb, nanos};

/// The variable that makes the test binary a reader (`read|CONFIG|ROUTER|LOG`) or an operator (`step|…`).
const ROLE: &str = "KEYMILL_TEST_MOVES";

const TABLE: &str = "version = 1\nsettle = \"50ms\"\n[[range]]\nupper = 65535\nshard = \"a\"\n";

/// An id of a range that moves, for each percentage of the cut-over.
fn ids() -> impl Iterator<Item = u64> {
    (0..40).map(|number| 60_000 << 47 | number)
}

/// What a process of these tests does, until it is killed.
#[test]
fn a_process_of_these_tests() {
    let Ok(order) = std::env::var(ROLE) else { return };
    let parts: Vec<&str> = order.split('|').collect();
    let [role, config, name, log] = parts[..] else { panic!("{ROLE}={order} is not ROLE|CONFIG|ROUTER|LOG") };
    let mill = Mill::open(config).expect("a mill");
    if role == "step" {
        let moves = mill.moves(name).expect("a name");
        std::fs::write(log, "begins").expect("a log");
        while step(&moves).is_err() {}
        // One step for each operator, so that one is killed in every phase.
        loop {
            std::thread::sleep(Duration::from_secs(60));
        }
    }
    let mut log = std::fs::File::create(log).expect("a log");
    let router = in_time(|| mill.router(name));
    loop {
        // Each line is asked for after its time, and written in one piece.
        let mut lines = String::new();
        for id in ids() {
            let began = nanos();
            match router.route(id) {
                Ok(route) => lines += &format!("{began} {} {} {id}\n", route.version, route.read),
                Err(error) => {
                    assert_eq!(error.code, Code::LeaseLost, "{error}");
                    lines += &format!("{began} 0 - {id}\n");
                }
            }
        }
        log.write_all(lines.as_bytes()).expect("the log takes a line");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A process that is killed with the test.
struct Process(Child);

impl Process {
    fn start(role: &str, stage: &Stage, log: &Path) -> Process {
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["moves::a_process_of_these_tests", "--exact", "--nocapture"])
            .env(ROLE, format!("{role}|{}|{}|{}", stage.config, stage.router, log.display()))
            .stdout(Stdio::null())
            .spawn();
        Process(child.expect("a process"))
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: sends a signal to a child that this test has started and not yet waited for.
        assert_eq!(unsafe { libc::kill(self.0.id().cast_signed(), signal) }, 0);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks again for what may take a while, on a busy machine too.
fn in_time<T>(mut ask: impl FnMut() -> Result<T, Error>) -> T {
    let until = Instant::now() + Duration::from_secs(240);
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(error)
                if matches!(error.code, Code::NotReady | Code::StoreUnavailable | Code::Deadline)
                    && Instant::now() < until => {}
            Err(error) => panic!("{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(240);
    while !is_true() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The next step of the move, whichever it is; `None`: there is none left.
fn step(moves: &Moves) -> Result<Option<MoveStatus>, Error> {
    let status = moves.status()?;
    let Some(moving) = status.moving else { return Ok(None) };
    let phase = moving.phase.to_string();
    let is_last = phase == "cut over 100 %" || phase == "pausing";
    let is_compared = moving.verified_at.is_some() || phase != "mirror" && phase != "cut over 100 %";
    let made = if is_last && is_compared {
        moves.finish(None, Change::Apply)
    } else if is_compared {
        moves.next(None, Change::Apply)
    } else if let Some(began) = moving.verify_from {
        std::thread::sleep(Duration::from_millis(began.saturating_sub(status.now_ms)));
        moves.verified(began, Change::Apply)
    } else {
        moves.begin_verify(Change::Apply)
    };
    made.map(Some)
}

struct Stage {
    folder: tempfile::TempDir,
    config: String,
    router: String,
    moves: Moves,
    mill: Mill,
}

impl Stage {
    fn new() -> Stage {
        Stage::on(&mariadb::url())
    }

    fn on(url: &str) -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        let config = patient(&format!("{url}?reader_lease=1s"));
        let router = format!("moved{}", fastrand::u32(..));
        let mill = Mill::open(&config).expect("a mill");
        in_time(|| mill.init(&[], Change::Apply));
        in_time(|| mill.put_routes(&router, TABLE, Change::Apply));
        let moves = mill.moves(&router).expect("a name");
        Stage { folder, config, router, moves, mill }
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn reader(&self, name: &str) -> Process {
        let reader = Process::start("read", self, &self.log(name));
        until("the reader answers", || lines(&self.log(name)).len() > 40);
        reader
    }

    fn start(&self) {
        in_time(|| self.try_start());
    }

    fn try_start(&self) -> Result<MoveStatus, Error> {
        let plan = self.moves.plan(&[("a", 1), ("b", 1)], None)?;
        let options = MoveOptions { watch: Duration::ZERO, ..MoveOptions::default() };
        self.moves.start(&plan, 1, &options, Change::Apply)
    }

    fn version(&self) -> u64 {
        in_time(|| self.moves.status()).version
    }
}

/// The whole lines of a log: when it was asked, the version (0: refused), what was read, the id.
fn lines(log: &Path) -> Vec<(u128, u64, String, u64)> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let line = |line: &str| {
        let parts: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| parts[at].parse::<u64>().expect("a number");
        (parts[0].parse().expect("a time"), number(1), parts[2].to_owned(), number(3))
    };
    whole.lines().map(line).collect()
}

/// No id goes back to the old shard, and no version falls.
fn is_monotone(log: &Path) {
    let (mut highest, mut moved) = (0, std::collections::HashSet::new());
    for (_, version, read, id) in lines(log) {
        if version == 0 {
            continue;
        }
        assert!(version >= highest, "version {version} after {highest}");
        highest = version;
        match read.as_str() {
            "b" => _ = moved.insert(id),
            read => assert!(!moved.contains(&id), "{id} is read from `{read}` again"),
        }
    }
}

#[test]
fn a_reader_that_was_frozen_through_steps_answers_nothing_stale_when_it_wakes() {
    let stage = Stage::new();
    stage.start();
    let (sleeper, log) = (stage.reader("sleeper"), stage.log("sleeper"));
    // A reader may be one step behind, and the next one waits until its lease is over.
    for steps in [2, 2, 3, 3] {
        sleeper.signal(libc::SIGSTOP);
        for _ in 0..steps {
            in_time(|| step(&stage.moves));
        }
        let (version, woken) = (stage.version(), nanos());
        sleeper.signal(libc::SIGCONT);
        let follows = || lines(&log).iter().any(|(_, seen, ..)| *seen == version);
        until("it follows", follows);
        let after: Vec<_> = lines(&log).into_iter().filter(|(asked, ..)| *asked >= woken).collect();
        let stale: Vec<_> = after.iter().filter(|(_, seen, ..)| *seen != 0 && *seen + 1 < version).collect();
        assert!(stale.is_empty(), "version {version}: {} stale answers, {:?}", stale.len(), stale.first());
    }
    assert_eq!(in_time(|| stage.moves.status()).moving, None);
    is_monotone(&log);
}

#[test]
fn readers_and_operators_that_are_killed_in_every_phase_leave_a_move_that_goes_on() {
    let stage = Stage::new();
    let stays = stage.reader("stays");
    stage.start();
    let mut phases = Vec::new();
    loop {
        let before = in_time(|| stage.moves.status());
        let Some(moving) = &before.moving else { break };
        phases.push(moving.phase.to_string());
        let name = format!("killed-{}", phases.len());
        let dies = stage.reader(&name);
        let begun = stage.log(&format!("operator-{}", phases.len()));
        let operator = Process::start("step", &stage, &begun);
        until("the operator begins its step", || begun.exists());
        // It is amid its step, waits for the readers, or has made the step.
        std::thread::sleep(Duration::from_millis(fastrand::u64(..100)));
        drop(operator);
        drop(dies);
        let after = in_time(|| stage.moves.status());
        assert!((before.version..=before.version + 1).contains(&after.version), "{before:?}, {after:?}");
        if after.version == before.version {
            in_time(|| step(&stage.moves));
        }
        is_monotone(&stage.log(&name));
    }
    phases.dedup();
    let each = ["mirror", "cut over 5 %", "cut over 25 %", "cut over 50 %", "cut over 100 %", "pausing"];
    assert_eq!(phases, each, "an operator and a reader were killed in each phase");
    let version = stage.version();
    let log = stage.log("stays");
    until("the living reader follows", || lines(&log).last().is_some_and(|(_, seen, ..)| *seen == version));
    is_monotone(&log);
    assert!(lines(&log).iter().rev().take(40).all(|(_, _, read, _)| read == "b"), "all were handed over");
    drop(stays);
}

#[test]
fn a_server_that_is_restored_from_before_the_move_makes_no_step_until_the_last_table_is_stored_again() {
    let server = mariadb::Private::start("");
    let stage = Stage::on(&server.url());
    server.backup();
    stage.start();
    let (_reader, log) = (stage.reader("reader"), stage.log("reader"));
    for _ in 0..4 {
        in_time(|| step(&stage.moves));
    }
    let (version, table) = (stage.version(), in_time(|| stage.mill.route_table(&stage.router)));
    until("it follows", || lines(&log).last().is_some_and(|(_, seen, ..)| *seen == version));
    server.restore();
    let knows = || {
        stage.moves.status().is_ok_and(|status| status.readers.iter().any(|reader| reader.version == version))
    };
    until("the reader has a row again", knows);
    assert_eq!(stage.version(), 1, "the table is the one of before");
    let refused = in_time(|| match stage.try_start() {
        Err(error) if error.code == Code::StoreRefused => Ok(error),
        Err(error) => Err(error),
        Ok(made) => panic!("a step was made: {made:?}"),
    });
    assert!(refused.message.contains("restored from a backup"), "{refused}");
    let above = table.replace(&format!("version = {version}"), &format!("version = {}", version + 1));
    assert_ne!(above, table);
    in_time(|| stage.mill.put_routes(&stage.router, &above, Change::Apply));
    while in_time(|| step(&stage.moves)).is_some() {}
    let version = stage.version();
    until("it follows to the end", || lines(&log).last().is_some_and(|(_, seen, ..)| *seen == version));
    is_monotone(&log);
}
