//! A program that closes keymill's descriptors, as `closefrom(3)` and `close` in a loop do, and then opens files of its
//! own, which get the same numbers: keymill writes nothing into them, and no id comes twice.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use keymill::{Code, Mill, Source};

/// The folder, the configuration and the scene of a process of its own: `FOLDER|CONFIG|SCENE`.
const SCENE: &str = "KEYMILL_TEST_CLOSED";
const PATIENCE: Duration = Duration::from_secs(180);
/// How long a keeper reserves nothing that has enough.
const REST: Duration = Duration::from_secs(2);
/// More than keymill has descriptors.
const FILES: usize = 60;
const ORDERS: &str = "segment:closed_descriptors?step=10&max_step=10&deadline=60s";
const TEXT: &str = "the program's own\n";

/// Files of the program, opened one after the other, so that they get the lowest free numbers.
struct Own(Vec<(PathBuf, File)>);

impl Own {
    fn open(folder: &Path) -> Own {
        let open = |n| {
            let path = folder.join(format!("own-{}-{n}", std::process::id()));
            let mut file =
                File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
            file.write_all(TEXT.as_bytes()).expect("a text");
            (path, file)
        };
        Own((0..FILES).map(open).collect())
    }

    /// Neither a byte nor a position has changed, and each is still open.
    fn check(&mut self) {
        for (path, file) in &mut self.0 {
            let fd = file.as_raw_fd();
            let text = std::fs::read(&*path).expect("a text");
            assert!(
                text == TEXT.as_bytes(),
                "descriptor {fd}: {} bytes in a file of the program",
                text.len()
            );
            assert_eq!(file.stream_position().expect("a position"), TEXT.len() as u64, "descriptor {fd}");
            file.rewind().expect("a position");
            let mut again = String::new();
            file.read_to_string(&mut again).expect("a text");
            assert_eq!(again, TEXT, "descriptor {fd}");
        }
    }
}

/// The descriptors of this process on files below a folder.
fn descriptors_below(folder: &Path) -> Vec<i32> {
    let fds = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let fds = fds.filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|at| at.starts_with(folder)));
    let mut fds: Vec<i32> = fds.filter_map(|fd| fd.file_name().to_str()?.parse().ok()).collect();
    fds.sort_unstable();
    fds
}

fn close_all() {
    // SAFETY: a program that becomes a daemon does the same; this process needs none of its descriptors.
    assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) }, 0);
}

/// The ids of many refills, until one is refused.
fn take(source: &Source, ids: &mut Vec<u64>, most: usize) -> Result<(), keymill::Error> {
    for _ in 0..most {
        ids.push(source.next()?);
    }
    Ok(())
}

fn source(mill: &Mill) -> Source {
    mill.source(ORDERS).expect("a source")
}

/// The ids that a child makes and prints into a file of its own.
fn in_a_child(fork: impl FnOnce() -> libc::pid_t, log: &Path, work: impl FnOnce(&mut Vec<u64>)) {
    let pid = fork();
    if pid == 0 {
        let mut ids = Vec::new();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut ids)));
        let kept = keep(log, &ids);
        // SAFETY: ends the child at once, without its parent's destructors.
        unsafe { libc::_exit(i32::from(done.is_err() || kept.is_err())) };
    }
    assert!(pid > 0, "a child");
    let mut status = 0;
    // SAFETY: `pid` is our child, and `status` is written.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "the child has failed");
}

fn keep(log: &Path, ids: &[u64]) -> std::io::Result<()> {
    let lines: Vec<String> = ids.iter().map(u64::to_string).collect();
    std::fs::write(log, lines.join("\n"))
}

/// Not a test of its own: the other tests start it. Without its variable it does nothing.
#[test]
fn a_process_closes_descriptors_that_it_did_not_open() {
    let Ok(order) = std::env::var(SCENE) else { return };
    let mut parts = order.split('|');
    let (Some(folder), Some(config), Some(scene)) = (parts.next(), parts.next(), parts.next()) else {
        panic!("{SCENE}={order} is not FOLDER|CONFIG|SCENE")
    };
    let folder = Path::new(folder);
    let mill = Mill::open(config).expect("a mill");
    let source = source(&mill);
    let mut ids = Vec::new();
    take(&source, &mut ids, 25).expect("ids");
    match scene {
        "all" => {
            let logs = descriptors_below(&folder.canonicalize().expect("a folder").join("ids.db-wal"));
            assert!(logs.iter().all(|fd| *fd >= 512), "a number that the program's next file gets: {logs:?}");
            close_all();
            let mut own = Own::open(folder);
            let error = take(&source, &mut ids, 1000).expect_err("the file is refused");
            assert_eq!(error.code, Code::StoreUnsafe, "{error}");
            assert!(error.to_string().contains("this program closed descriptor"), "{error}");
            // A new mill may not either, and no option accepts it.
            for config in [config.to_owned(), format!("{config}?durability=warn")] {
                let mill = Mill::open(&config).expect("a mill");
                let error = self::source(&mill).next().expect_err("the file is refused");
                assert_eq!(error.code, Code::StoreUnsafe, "{error}");
            }
            // A child inherits SQLite's state of the file.
            // SAFETY: the child uses the mill, which is made for that, writes and exits.
            in_a_child(
                || unsafe { libc::fork() },
                &folder.join("child.ids"),
                |ids| {
                    let error = take(&source, ids, 1000).expect_err("the file is refused");
                    assert_eq!(error.code, Code::StoreUnsafe, "{error}");
                },
            );
            // Another file is not affected.
            let other = Mill::open(&format!("sqlite:{}", folder.join("other.db").display())).expect("a mill");
            take(&self::source(&other), &mut Vec::new(), 1000).expect("ids");
            mill.close();
            drop((mill, source));
            own.check();
        }
        "each" => {
            let give_up = Instant::now() + PATIENCE;
            let victim = PathBuf::from(parts.next().expect("a file"));
            let nth: usize = parts.next().and_then(|nth| nth.parse().ok()).expect("a number");
            // The keeper may be opening a file at this moment.
            let fd = loop {
                let fds = descriptors_below(&victim);
                if let Some(fd) = fds.get(nth) {
                    break *fd;
                }
                assert!(Instant::now() < give_up, "{} has no descriptor {nth}: {fds:?}", victim.display());
            };
            // keymill checks a descriptor just before it uses it: a close in between is noticed too late. So the keeper rests when the
            // number is taken away: it has reserved ahead, and nothing for a while.
            let (mut since, mut seen) = (Instant::now(), 0);
            loop {
                let stats = source.stats().expect("figures");
                if stats.left < 10 || stats.refills != seen {
                    (since, seen) = (Instant::now(), stats.refills);
                }
                if since.elapsed() >= REST {
                    break;
                }
                assert!(Instant::now() < give_up, "nothing is reserved ahead, or without end");
                std::thread::sleep(Duration::from_millis(1));
            }
            // A program closes a number twice: the number belongs to its own file afterwards.
            let mut own = Own::open(folder);
            // SAFETY: both descriptors are open.
            assert_eq!(unsafe { libc::dup2(own.0[0].1.as_raw_fd(), fd) }, fd);
            let error = take(&source, &mut ids, 1000).expect_err("the file is refused");
            assert_eq!(error.code, Code::StoreUnsafe, "{error}");
            drop((mill, source));
            own.check();
            // SAFETY: it is open if it is the program's.
            assert_eq!(unsafe { libc::close(fd) }, 0, "its number was closed by keymill");
        }
        "daemon" | "clone" => {
            // SAFETY: the child uses the mill, which is made for that, writes and exits.
            let fork = || unsafe {
                if scene == "daemon" {
                    libc::fork()
                } else {
                    libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t
                }
            };
            in_a_child(fork, &folder.join("child.ids"), |ids| {
                close_all();
                let mut own = Own::open(folder);
                match take(&source, ids, 1000) {
                    // Refused: it was cloned in the middle of an operation.
                    Err(error) if scene == "clone" => {
                        assert!(matches!(error.code, Code::StoreUnsafe | Code::StoreRefused), "{error}");
                    }
                    answer => answer.expect("ids"),
                }
                mill.close();
                own.check();
            });
            take(&source, &mut ids, 1000).expect("ids");
        }
        "none left" => {
            let limit = libc::rlimit { rlim_cur: 200, rlim_max: 200 };
            // SAFETY: the limit is this process's own, and lives through the call.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
            let (mut refused, mut served) = (0, 0);
            for left in 0..10 {
                for file in [format!("new-{left}.db"), "ids.db".to_owned()] {
                    let mill =
                        Mill::open(&format!("sqlite:{}", folder.join(file).display())).expect("a mill");
                    let source = mill.source("segment:orders?deadline=300ms").expect("a source");
                    let mut full: Vec<File> =
                        std::iter::from_fn(|| File::open("/dev/null").ok()).take(200).collect();
                    full.truncate(full.len() - left);
                    // On a busy machine the mill's own thread may not have asked within the deadline.
                    let answer = loop {
                        match source.next() {
                            Err(error) if error.code == Code::Deadline => {}
                            answer => break answer,
                        }
                    };
                    match answer {
                        Ok(_) => served += 1,
                        Err(error) => {
                            assert_eq!(error.code, Code::StoreUnavailable, "{error}");
                            assert!(error.to_string().contains("no file descriptor left"), "{error}");
                            refused += 1;
                        }
                    }
                    drop(full);
                    let give_up = Instant::now() + PATIENCE;
                    while let Err(error) = source.next() {
                        assert!(Instant::now() < give_up, "it never recovers: {error}");
                    }
                }
            }
            assert!(refused > 2 && served > 2, "{refused} refused, {served} served");
        }
        _ => panic!("no scene {scene}"),
    }
    keep(&folder.join(format!("{}.ids", std::process::id())), &ids).expect("the ids");
}

/// Runs a scene in a process of its own; then takes ids here. No id comes twice.
fn play(folder: &Path, config: &str, scene: &str) -> usize {
    let name = "closed_descriptors::a_process_closes_descriptors_that_it_did_not_open";
    let mut child = Command::new(std::env::current_exe().expect("this test has a path"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(SCENE, format!("{}|{config}|{scene}", folder.display()))
        .spawn()
        .expect("the process starts");
    let give_up = Instant::now() + PATIENCE * 2;
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if Instant::now() > give_up {
            child.kill().expect("a child of ours");
            panic!("{scene} hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "{scene}: {status}");
    let mill = Mill::open(config).expect("a mill");
    let mut ids = Vec::new();
    take(&source(&mill), &mut ids, 1000).expect("ids");
    let files = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    for log in files.filter(|path| path.extension().is_some_and(|end| end == "ids")) {
        let text = std::fs::read_to_string(&log).expect("a log");
        ids.extend(text.lines().map(|id| id.parse::<u64>().expect("an id")));
    }
    let mut seen = HashSet::new();
    for id in &ids {
        assert!(seen.insert(*id), "{scene}: {id} came twice");
    }
    ids.len()
}

fn on_a_file(scene: &str) -> usize {
    let folder = tempfile::tempdir().expect("a folder");
    play(folder.path(), &format!("sqlite:{}", folder.path().join("ids.db").display()), scene)
}

#[test]
fn sqlite_is_refused_after_the_program_closed_all_descriptors_and_its_files_stay_whole() {
    assert!(on_a_file("all") >= 1025);
}

#[test]
fn sqlite_is_refused_after_the_program_closed_any_one_descriptor() {
    // The file and the index of its log have a second one, for the locks.
    for (file, descriptors) in [("ids.db", 2), ("ids.db-wal", 1), ("ids.db-shm", 2)] {
        for nth in 0..descriptors {
            let folder = tempfile::tempdir().expect("a folder");
            let real = folder.path().canonicalize().expect("a folder");
            let config = format!("sqlite:{}", real.join("ids.db").display());
            play(&real, &config, &format!("each|{}|{nth}", real.join(file).display()));
        }
    }
}

#[test]
fn sqlite_without_a_free_descriptor_is_unavailable_and_recovers() {
    on_a_file("none left");
}

#[test]
fn a_forked_daemon_that_closes_all_descriptors_goes_on_with_new_ones() {
    assert_eq!(on_a_file("daemon"), 1000 + 1025 + 1000);
}

#[test]
fn a_child_of_a_raw_clone_that_closes_all_descriptors_writes_into_no_file_of_its_own() {
    on_a_file("clone");
}
