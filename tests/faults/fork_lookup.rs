//! A forked child gets numbers although a thread of its parent was looking a name up at the fork, and holds the resolver's
//! lock for ever.
//!
//! glibc reads `/etc/resolv.conf` under a lock. In a mount namespace of the test's own that file is a pipe without a writer: a
//! look-up of the parent waits there, with the lock, as long as the test wants.

use std::io::{Read, Write};
use std::net::ToSocketAddrs;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileTypeExt;
use std::process::Command;
use std::time::{Duration, Instant};

use keymill::{Change, Mill, Source};
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, postgres, redis};

const INSIDE: &str = "KEYMILL_TEST_WITH_MOUNTS_OF_ITS_OWN";
const CHILDREN: u64 = 3;
const RESOLVER: &str = "/etc/resolv.conf";

/// The answers that a forked child gets.
fn in_a_child(source: &Source) -> String {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child uses the mill, which is made for that, writes and exits.
    let pid = unsafe { libc::fork() };
    // SAFETY: both descriptors are ours; each process closes its copies.
    let [mut from, mut to] = ends.map(|end| unsafe { std::fs::File::from_raw_fd(end) });
    if pid == 0 {
        let answer = match source.next() {
            Ok(id) => format!("id {id}"),
            Err(error) => error.to_string(),
        };
        let written = to.write_all(answer.as_bytes());
        // SAFETY: ends the child at once, without its parent's destructors.
        unsafe { libc::_exit(i32::from(written.is_err())) };
    }
    drop(to);
    let mut answer = String::new();
    from.read_to_string(&mut answer).expect("the child's answer");
    // SAFETY: `pid` is our child; its status is not needed.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    answer
}

fn a_process_with_a_look_up_that_never_ends() {
    let urls = [mariadb::url(), postgres::url(), redis::url()];
    let sources: Vec<_> = urls
        .iter()
        .map(|url| {
            let by_name = url.replace("127.0.0.1", "localhost");
            let mill = Mill::open(&format!("{by_name}?connect_timeout=500ms&timeout=25s")).expect("a mill");
            persistently(|| mill.init(&[], Change::Apply)).expect("a table");
            let source = mill.source("segment:forked?deadline=60s&start=1").expect("a source");
            source.next().expect("an id of the parent's");
            (mill, source)
        })
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    let run = |command: &str, arguments: &[&std::ffi::OsStr]| {
        let status = Command::new(command).args(arguments).status().expect("it runs");
        assert!(status.success(), "{command} {arguments:?}");
    };
    run("mkfifo", &[pipe.as_os_str()]);
    run("mount", &["--bind".as_ref(), pipe.as_os_str(), RESOLVER.as_ref()]);
    assert!(std::fs::metadata(RESOLVER).expect("a file").file_type().is_fifo());
    std::thread::spawn(|| ("nobody.invalid", 0).to_socket_addrs().map(drop));
    // The resolver waits for a writer of the pipe: only then can an end for writing be opened.
    let deadline = Instant::now() + Duration::from_secs(120);
    while !waits_in_open() {
        assert!(Instant::now() < deadline, "nobody reads {RESOLVER}");
        std::thread::yield_now();
    }
    for (mill, source) in &sources {
        for _ in 0..CHILDREN {
            let answer = in_a_child(source);
            assert!(answer.starts_with("id "), "{}: {answer}", mill.store());
        }
    }
    println!("forked: {} children", sources.len() as u64 * CHILDREN);
    // The mills' threads continue; the process ends although one thread still waits.
}

/// Whether a thread of this process sleeps in `open` of a pipe.
fn waits_in_open() -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    tasks.flatten().any(|task| {
        let call = std::fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
        let number = call.split(' ').next().and_then(|number| number.parse::<i64>().ok());
        let opens = number == Some(libc::SYS_openat);
        let state = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        opens && state.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    })
}

#[test]
fn a_child_gets_numbers_although_its_parents_resolver_is_locked_for_ever() {
    if std::env::var_os(INSIDE).is_some() {
        return a_process_with_a_look_up_that_never_ends();
    }
    let inside = |command: &str| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user", "--mount", "sh", "-ec", command]);
        unshare
    };
    let made = inside(&format!("mount --bind /dev/null {RESOLVER}")).output();
    if !made.as_ref().is_ok_and(|made| made.status.success()) {
        println!("not run: this machine allows no mount namespace: {made:?}");
        return;
    }
    let test = std::env::current_exe().expect("this program");
    let name = "fork_lookup::a_child_gets_numbers_although_its_parents_resolver_is_locked_for_ever";
    let ran = inside(&format!("exec \"$0\" --exact {name} --nocapture"))
        .arg(test)
        .env(INSIDE, "1")
        .output()
        .expect("it runs");
    print!("{}", String::from_utf8_lossy(&ran.stdout));
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(String::from_utf8_lossy(&ran.stdout).contains(" children"), "the test ran inside");
}
