//! What a message advises, followed to the letter while two programs draw ids: the commands and statements between back quotes, after
//! `stop every program` where the message says so. No id comes twice.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL` and `KEYMILL_TEST_POSTGRES`.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::common::{BINARY, Home};
use crate::restore::{Server, patiently};

/// Waits for a condition.
fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(120);
    while !is_true() {
        assert!(Instant::now() < give_up, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program that draws ids, many a second, until it is stopped or refused.
struct Program {
    child: Child,
    ids: Arc<Mutex<Vec<u64>>>,
    /// It is read without a pause.
    is_stopped: Arc<AtomicBool>,
    reader: JoinHandle<()>,
    errors: JoinHandle<String>,
}

impl Program {
    fn start(url: &str, spec: &str) -> Program {
        let mut command = Command::new(BINARY.as_str());
        command.args(["--mill", url, "take", spec, "1000000000"]).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (ids, is_stopped) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (lines, errors) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (own, stopped) = (Arc::clone(&ids), Arc::clone(&is_stopped));
        let reader = std::thread::spawn(move || {
            for (at, line) in BufReader::new(lines).lines().enumerate() {
                own.lock().unwrap().push(line.unwrap().parse().unwrap());
                // The program waits where its pipe is full. ordering: Relaxed — a flag.
                if at % 50 == 0 && !stopped.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        let errors = std::thread::spawn(move || {
            BufReader::new(errors).lines().map(Result::unwrap).collect::<Vec<_>>().join("\n")
        });
        Program { child, ids, is_stopped, reader, errors }
    }

    fn count(&self) -> usize {
        self.ids.lock().unwrap().len()
    }

    /// Stops it as an operator does; answers with its ids.
    fn stop(mut self) -> Vec<u64> {
        // ordering: Relaxed — a flag.
        self.is_stopped.store(true, Ordering::Relaxed);
        // SAFETY: a signal to a child that was not waited for.
        unsafe { libc::kill(self.child.id().try_into().unwrap(), libc::SIGINT) };
        self.reader.join().unwrap();
        self.child.wait().unwrap();
        self.errors.join().unwrap();
        std::mem::take(&mut *self.ids.lock().unwrap())
    }
}

/// A source whose ids are drawn, and which of them came.
struct Drawn<'s> {
    server: &'s Server,
    home: Home,
    spec: String,
    programs: Vec<Program>,
    ids: Vec<u64>,
}

impl Drawn<'_> {
    /// Two programs that have drawn some ids.
    fn begin<'s>(server: &'s Server, spec: &str) -> Drawn<'s> {
        let mut drawn =
            Drawn { server, home: Home::new(), spec: spec.to_owned(), programs: Vec::new(), ids: Vec::new() };
        patiently(&drawn.home, &["--mill", &server.url(), "init", spec]).done();
        drawn.go_on();
        drawn
    }

    fn go_on(&mut self) {
        self.programs = (0..2).map(|_| Program::start(&self.server.url(), &self.spec)).collect();
        until("both draw", || self.programs.iter().all(|program| program.count() > 2_000));
    }

    fn stop(&mut self) {
        for program in self.programs.drain(..) {
            self.ids.extend(program.stop());
        }
    }

    /// What a process says that begins now.
    fn says(&self) -> String {
        let ran = patiently(&self.home, &["--mill", &self.server.url(), "next", &self.spec]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        ran.err
    }

    /// What a program says that draws on until it has nothing more.
    fn last_words(&mut self) -> String {
        let program = self.programs.remove(0);
        // ordering: Relaxed — a flag.
        program.is_stopped.store(true, Ordering::Relaxed);
        program.reader.join().unwrap();
        let mut child = program.child;
        assert_eq!(child.wait().unwrap().code(), Some(1));
        self.ids.append(&mut program.ids.lock().unwrap());
        program.errors.join().unwrap()
    }

    /// Does what the message says, as it says it; its options are written into the source from then on.
    fn follow(&mut self, message: &str) {
        if message.contains("stop every program") {
            self.stop();
        }
        let issued = self.ids.iter().copied().max().unwrap_or(0);
        let least = message.split("at least ").nth(1).and_then(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        });
        let number = (issued + 1).max(least.unwrap_or(0)).to_string();
        for said in message.split('`').skip(1).step_by(2) {
            if said.starts_with("ALTER ") || said.starts_with("SELECT NEXT ") {
                self.server.say(said);
            } else if let Some((_, words)) = said.split_once("keymill ") {
                // The login stands in the environment, as the message says.
                let words = words.replace(" N ", &format!(" {number} "));
                let line = format!("export KEYMILL_CONFIG='{}'; \"$K\" {words}", self.server.url());
                let ran = self.home.shell(&line);
                assert_eq!(ran.code, Some(0), "{line}: {ran:?}");
            }
        }
    }

    /// Two programs draw again, beside those that go on; no id came twice.
    fn end(mut self) {
        let before: Vec<Program> = self.programs.drain(..).collect();
        self.go_on();
        self.programs.extend(before);
        self.stop();
        let distinct: HashSet<u64> = self.ids.iter().copied().collect();
        assert_eq!(distinct.len(), self.ids.len(), "an id of `{}` came twice", self.spec);
    }
}

fn servers(name: &str) -> [Server; 2] {
    [Server::mariadb(name), Server::postgres(name)]
}

const SEGMENT: &str = "segment:orders?min_step=100&deadline=20s";

#[test]
fn a_row_that_went_backwards_is_repaired_as_the_message_of_a_running_program_says() {
    for server in servers("advice_back") {
        let mut drawn = Drawn::begin(&server, SEGMENT);
        server.say("UPDATE keymill_segment SET next = 7");
        let says = drawn.last_words();
        assert!(says.contains("STORE_WENT_BACKWARDS") && says.contains("at least "), "{says}");
        drawn.follow(&says);
        drawn.end();
    }
}

#[test]
fn a_row_that_says_0_is_repaired_as_the_message_says() {
    for server in servers("advice_zero") {
        let mut drawn = Drawn::begin(&server, SEGMENT);
        server.say("UPDATE keymill_segment SET next = 0");
        let says = drawn.says();
        assert!(says.contains("numbers begin at 1"), "{says}");
        drawn.follow(&says);
        drawn.end();
    }
}

/// A program that goes on has numbers above any that a person can find.
#[test]
fn a_row_that_is_set_by_hand_as_the_message_says_repeats_nothing() {
    let rows = [
        (SEGMENT, "keymill_segment", "next", "9223372036854775809", "lowest number that was never issued"),
        (SEGMENT, "keymill_segment", "state", "'zzz'", "every other row gets `open`"),
        ("segment:o?scheme=leaf_alloc&step=100&deadline=20s", "leaf_alloc", "max_id", "-5", "lowest number"),
        (
            "segment:n.o?scheme=cosid&min_step=100&deadline=20s",
            "cosid",
            "last_max_id",
            "-5",
            "highest number",
        ),
        (
            "serial:o/no?date=&number=0000000000&deadline=20s",
            "key_producer",
            "MAXSERIALNO",
            "''",
            "highest serial",
        ),
    ];
    let server = Server::mariadb("advice_hand");
    for (spec, table, column, wrong, says_what) in rows {
        let mut drawn = Drawn::begin(&server, spec);
        server.say(&format!("UPDATE {table} SET {column} = {wrong}"));
        let says = drawn.says();
        assert!(says.contains("stop every program that uses it, then "), "{says}");
        assert!(says.contains(says_what), "{says}");
        drawn.follow(&says);
        let highest = drawn.ids.iter().copied().max().unwrap();
        let number = if says_what.starts_with("lowest") { highest + 1 } else { highest };
        let right = if column == "state" { "open".to_owned() } else { format!("{number:010}") };
        server.say(&format!("UPDATE {table} SET {column} = '{right}'"));
        drawn.end();
    }
}

/// The file is in memory, and is moved to a disk with its ids.
#[test]
fn a_sqlite_file_is_moved_to_a_disk_as_the_message_says() {
    let (memory, disk) = (tempfile::tempdir_in("/dev/shm").unwrap(), Home::new());
    let at = |path: &Path| format!("sqlite:{}/ids.db?durability=warn", path.display());
    let ids = disk.run(&["--mill", &at(memory.path()), "take", SEGMENT, "1000"]);
    let last = ids.out.lines().last().unwrap().parse::<u64>().unwrap();
    let says = disk.run(&["--mill", &at(memory.path()).replace("?durability=warn", ""), "next", SEGMENT]);
    let says = says.refused("STORE_UNSAFE");
    assert!(says.contains("; stop every program that uses it, copy the file"), "{says}");
    for file in std::fs::read_dir(memory.path()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), disk.path().join(file.file_name())).unwrap();
    }
    let next = disk.run(&["--mill", &at(disk.path()), "next", SEGMENT]).out;
    assert!(next.trim().parse::<u64>().unwrap() > last, "{next}");
}

/// A file that is reached by two names goes on under one of them, where both stood.
#[test]
fn a_sqlite_file_of_two_names_is_left_with_one_as_the_message_says() {
    let home = Home::new();
    let (file, other) = (home.path().join("ids.db"), home.path().join("other.db"));
    let take =
        |path: &Path| home.run(&["--mill", &format!("sqlite:{}", path.display()), "take", SEGMENT, "1000"]);
    let last = *take(&file).ids().last().unwrap();
    std::fs::hard_link(&file, &other).unwrap();
    for name in [&other, &file] {
        let says = take(name).refused("STORE_UNSAFE");
        assert!(says.contains("then remove the name that has no `-wal` beside it"), "{says}");
    }
    std::fs::remove_file(&other).unwrap();
    assert!(take(&file).ids()[0] > last);

    // The application's own file, of which keymill's is a neighbour, lies elsewhere.
    let (beside, elsewhere) = (home.path().join("app.db.keymill"), home.path().join("elsewhere"));
    let last = *take(&beside).ids().last().unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    std::fs::write(elsewhere.join("app.db"), "").unwrap();
    std::os::unix::fs::symlink(elsewhere.join("app.db"), home.path().join("app.db")).unwrap();
    let says = take(&beside).refused("STORE_UNSAFE");
    let moved = elsewhere.join("app.db.keymill");
    assert!(
        says.contains(&format!("then use `sqlite:{}`, to which this file is moved", moved.display())),
        "{says}"
    );
    std::fs::rename(&beside, &moved).unwrap();
    assert!(take(&moved).ids()[0] > last);
}

#[test]
fn a_table_that_was_dropped_is_made_and_repaired_as_the_message_of_a_running_program_says() {
    for server in servers("advice_drop") {
        let mut drawn = Drawn::begin(&server, SEGMENT);
        server.say("DROP TABLE keymill_segment");
        let says = drawn.last_words();
        assert!(says.contains("is missing") && says.contains("; stop every program"), "{says}");
        drawn.follow(&says);
        drawn.end();
    }
}

/// A process that has seen nothing knows by the other tables that this one may have been there.
#[test]
fn a_table_that_was_dropped_beside_another_is_made_and_repaired_as_the_message_of_a_new_program_says() {
    for server in servers("advice_beside") {
        patiently(&Home::new(), &["--mill", &server.url(), "init", "snowflake:tx"]).done();
        let mut drawn = Drawn::begin(&server, SEGMENT);
        server.say("DROP TABLE keymill_segment");
        let says = drawn.says();
        let (first, lost) = says.split_once("; else ").expect("what to do where ids were issued");
        assert!(
            first.contains("the store has `keymill_worker`") && first.contains("if no id was issued"),
            "{says}"
        );
        drawn.follow(lost);
        drawn.end();
    }
}

#[test]
fn init_says_that_the_ids_of_a_table_that_it_makes_begin_at_the_first() {
    let home = Home::new();
    let ran = home.run(&["init", SEGMENT]);
    assert!(ran.err.contains("begin at the first one") && ran.err.contains("keymill repair"), "{ran:?}");
    assert_eq!(home.run(&["init", SEGMENT]).err, "", "nothing was made");
}

#[test]
fn a_sequence_whose_step_was_altered_is_put_back_as_the_message_says_while_the_programs_go_on() {
    for server in servers("advice_step") {
        for (scheme, option) in [("sequence", "step"), ("jpa_sequence&optimizer=pooled-lo", "allocation")] {
            let name = format!("orders_{}", &scheme[..3]);
            let spec = |step: u64| {
                format!("segment:orders?scheme={scheme}&{option}={step}&table={name}&unsafe=on&deadline=20s")
            };
            let spec = |step: u64| match server {
                Server::MariaDb { .. } => spec(step),
                Server::Postgres { .. } => spec(step).replace("&unsafe=on", ""),
            };
            let mut drawn = Drawn::begin(&server, &spec(1000));
            server.say(&format!("ALTER SEQUENCE {name} INCREMENT BY 500"));
            let says = drawn.says();
            let other = patiently(&drawn.home, &["--mill", &server.url(), "next", &spec(500)]).err;
            for says in [&says, &other] {
                assert!(says.contains("INCREMENT BY 1000`") && !says.contains("=500`"), "{says}");
            }
            drawn.follow(&other);
            drawn.end();
        }
    }
}

/// A value of Hibernate's `pooled` owns the numbers up to it, and MariaDB keeps the next value, whatever the step was when it was counted.
#[test]
fn a_pooled_sequence_whose_step_was_altered_is_put_back_as_the_message_says_after_other_programs_drew() {
    for server in servers("advice_pooled") {
        let accepted = if matches!(server, Server::MariaDb { .. }) { "NOCACHE" } else { "" };
        server.say(&format!("CREATE SEQUENCE orders_seq START WITH 1 INCREMENT BY 1000 {accepted}"));
        let spec = "segment:orders?scheme=jpa_sequence&allocation=1000&deadline=20s";
        let spec = if accepted.is_empty() { spec.to_owned() } else { format!("{spec}&unsafe=on") };
        let mut drawn = Drawn::begin(&server, &spec);
        server.say("ALTER SEQUENCE orders_seq INCREMENT BY 10");
        let draw = match server {
            Server::MariaDb { .. } => "SELECT NEXTVAL(orders_seq)",
            Server::Postgres { .. } => "SELECT nextval('orders_seq')",
        };
        // MariaDB's first value after it is one of the old steps.
        server.say(draw);
        for _ in 0..3 {
            let value: u64 = server.say(draw).parse().expect("a value");
            drawn.ids.extend(value - 9..=value);
        }
        let says = drawn.says();
        drawn.follow(&says);
        drawn.end();
    }
}

/// Another program made it, so nothing records its step.
#[test]
fn a_source_of_another_step_than_a_sequence_of_another_program_takes_that_of_the_message() {
    for server in servers("advice_other") {
        let nocache = if matches!(server, Server::MariaDb { .. }) { "NOCACHE" } else { "" };
        server.say(&format!("CREATE SEQUENCE orders_seq START WITH 1 INCREMENT BY 50 {nocache}"));
        let spec = |step: u64| {
            let accepted = if nocache.is_empty() { "" } else { "&unsafe=on" };
            format!("segment:orders?scheme=sequence&step={step}&table=orders_seq&deadline=20s{accepted}")
        };
        let mut drawn = Drawn::begin(&server, &spec(50));
        let says = patiently(&drawn.home, &["--mill", &server.url(), "next", &spec(100)]).err;
        let (_, advice) = says.split_once("if its step was never altered, use `step=").expect("an option");
        let step = advice.split('`').next().and_then(|step| step.parse().ok()).expect("a step");
        let taken = patiently(&drawn.home, &["--mill", &server.url(), "take", &spec(step), "500"]).ids();
        drawn.ids.extend(taken);
        drawn.end();
    }
}
