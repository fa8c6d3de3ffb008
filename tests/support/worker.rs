//! Processes that take ids until they are killed, and the check that no id came twice.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The variable that makes a test binary a worker: `CONFIG|SPEC|LOG`.
pub const WORKER: &str = "KEYMILL_TEST_WORKER";

/// Between two turns of a worker. Thousands of turns a second are enough to be killed amid each kind of work; as many as the
/// processors can make would only be counted.
const PAUSE: Duration = Duration::from_micros(100);

/// The work of a worker: takes from one source for ever, one line an id, each written before the next is taken.
///
/// # Panics
/// When the source refuses: the test that started the worker then misses its ids.
pub fn work() {
    let Ok(order) = std::env::var(WORKER) else { return };
    let mut parts = order.split('|');
    let (Some(config), Some(spec), Some(log)) = (parts.next(), parts.next(), parts.next()) else {
        panic!("{WORKER}={order} is not CONFIG|SPEC|LOG")
    };
    let mut log = OpenOptions::new().create(true).append(true).open(log).expect("a log file");
    let mill = keymill::Mill::open(config).expect("a mill");
    // A shared disk may be slow; a worker does not end because of that.
    let more = if spec.contains("deadline=") { "" } else { "&deadline=60s" };
    let source = mill.source(&format!("{spec}{more}")).expect("a source");
    let serial = spec.starts_with("serial:");
    let business = spec.starts_with("business:");
    if spec.contains("counters=65536") {
        write_first_ids(&source, &mut log);
    }
    let lines = |ids: &[u64]| ids.iter().fold(String::new(), |text, id| text + &id.to_string() + "\n");
    for turn in 0u64.. {
        let lines = if business && turn % 3 == 0 {
            lines(&source.take_for(turn % 30, 20).expect("ids"))
        } else if business {
            lines(&[source.next_for(&format!("buyer-{}", turn % 9)).expect("an id")])
        } else if serial {
            format!("{}\n", source.next_text().expect("a serial"))
        } else if turn % 3 == 0 {
            lines(&source.take(20).expect("ids"))
        } else {
            lines(&[source.next().expect("an id")])
        };
        // One write: a killed worker leaves whole lines, but for the last.
        log.write_all(lines.as_bytes()).expect("the log takes a line");
        std::thread::sleep(PAUSE);
    }
}

/// The first id of every gene, each written before the next is taken, in the order in which the counters have numbers.
fn write_first_ids(source: &keymill::Source, log: &mut File) {
    let mut lacking: Vec<_> = (0..=u16::MAX).map(keymill::Gene::from).collect();
    while !lacking.is_empty() {
        let mut lines = String::new();
        lacking.retain(|gene| match source.try_next_of(*gene) {
            Ok(id) => {
                lines.push_str(&format!("{id}\n"));
                false
            }
            Err(error) => {
                // Eight processes write one file: on a busy machine one may find it locked for longer than it waits.
                let waits = [keymill::Code::NotReady, keymill::Code::StoreUnavailable].contains(&error.code);
                assert!(waits, "{error}");
                true
            }
        });
        log.write_all(lines.as_bytes()).expect("the log takes lines");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a worker: this test binary again, running only the test of this name.
///
/// # Panics
/// Where it cannot be started.
#[must_use]
pub fn start(test: &str, config: &str, spec: &str, log: &Path) -> Child {
    Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", test, "--nocapture"])
        .env(WORKER, format!("{config}|{spec}|{}", log.display()))
        .stdout(Stdio::null())
        .stderr(File::create(log.with_extension("stderr")).expect("a file for errors"))
        .spawn()
        .expect("a worker starts")
}

/// Runs the calling test again in a process of its own and waits for it; `true` in that process. For tests that fork: a
/// lock that another test's thread holds at the fork (SQLite's, the allocator's, the resolver's) stays locked in the child
/// for ever, and the child keeps the other tests' connections open.
///
/// # Panics
/// Where the test fails there, or takes longer than ten minutes.
#[must_use]
pub fn in_a_process_of_its_own(test: &str) -> bool {
    const ALONE: &str = "KEYMILL_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(ALONE, "1")
        .stdout(Stdio::null())
        .spawn()
        .expect("the test starts");
    let deadline = Instant::now() + Duration::from_secs(600);
    loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            assert!(status.success(), "{test} failed: {status}");
            return false;
        }
        if Instant::now() > deadline {
            child.kill().expect("a child of ours");
            panic!("{test} hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// How many whole lines the logs in a folder hold; panics if a line exists twice.
///
/// # Panics
/// On a duplicate: that is the point.
#[must_use]
pub fn count_distinct(folder: &Path) -> usize {
    let mut seen: HashMap<String, PathBuf> = HashMap::new();
    for entry in fs::read_dir(folder).expect("a folder of logs").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "ids") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a log");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines() {
            if let Some(first) = seen.insert(line.to_owned(), path.clone()) {
                panic!("{line} was handed out twice: {} and {}", first.display(), path.display());
            }
        }
    }
    seen.len()
}
