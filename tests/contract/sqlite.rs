//! Tests for a file alone: other programs' files, full disks, read-only places, locks, forks.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{Catalogue, Durability, FaultKind, Request, RowStore};
use keymill_tests::takers::until;
use keymill_tests::worker::in_a_process_of_its_own;

use crate::bench::*;
use crate::{CHILD, assert_disjoint, kind, repetitions, reserve_many};

/// The `application_id` and the journal version in the header of a file.
fn mark_and_journal(bench: &Bench) -> (i32, String) {
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    let connection = rusqlite::Connection::open(path).unwrap();
    let pragma = |name: &str| format!("PRAGMA {name}");
    (
        connection.query_one(&pragma("application_id"), [], |row| row.get(0)).unwrap(),
        connection.query_one(&pragma("journal_mode"), [], |row| row.get(0)).unwrap(),
    )
}

/// "kmil", in the header of each of keymill's files.
const MARK: i32 = 0x6b6d_696c;

#[test]
fn a_file_of_another_program_is_refused_and_left_alone() {
    for kind in Kind::all() {
        let bench = Bench::sqlite(kind);
        bench.tamper("CREATE TABLE customers (id INTEGER PRIMARY KEY)", &[]);
        let mut store = bench.open();
        let request = bench.request("orders", 10);
        let key = bench.key("x");
        for fault in [
            store.reserve(&request).unwrap_err(),
            store.init(std::slice::from_ref(&key), false).unwrap_err(),
            store.init(&[key], true).unwrap_err(),
            store.look(&request.key).unwrap_err(),
        ] {
            assert_eq!(fault.kind, FaultKind::Refused);
            for part in ["table `customers` of another program", "name a file of keymill's own"] {
                assert!(fault.to_string().contains(part), "{fault}");
            }
        }
        assert_eq!(mark_and_journal(&bench), (0, "delete".to_owned()), "nothing in it was changed");
    }
    // A table of keymill's in another program's file does not make the file keymill's.
    let bench = Bench::sqlite(Kind::Segment);
    bench.tamper("CREATE TABLE customers (id INTEGER PRIMARY KEY)", &[]);
    bench.tamper(&sqlite::create_table(&bench.key("x")), &[]);
    assert_eq!(self::kind(bench.open().reserve(&bench.request("orders", 10))), FaultKind::Refused);
    // Marked as another program's, without any table yet.
    let bench = Bench::sqlite(Kind::Segment);
    bench.tamper("PRAGMA application_id = 252006673", &[]);
    assert_eq!(self::kind(bench.open().reserve(&bench.request("orders", 10))), FaultKind::Refused);
    assert_eq!(mark_and_journal(&bench).0, 252_006_673);
}

#[test]
fn a_number_whose_column_keeps_fractions_or_text_is_refused_with_what_it_must_be() {
    for (declared, kept) in [("REAL", "fractions"), ("VARCHAR(20)", "text")] {
        let bench = Bench::sqlite(Kind::Segment);
        let statement = sqlite::create_table(&bench.key("x"));
        let wrong = statement.replace("next INTEGER", &format!("next {declared}"));
        assert_ne!(wrong, statement);
        bench.tamper(&wrong, &[]);
        let mut store = bench.open();
        let request = bench.request("orders", 10);
        for answer in [
            store.reserve(&request).map(drop),
            store.init(std::slice::from_ref(&request.key), false).map(drop),
            store.look(&request.key).map(drop),
        ] {
            let fault = answer.unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            for part in [&format!("column `next` is `{declared}`"), kept, "has to be `next INTEGER NOT NULL`"]
            {
                assert!(fault.to_string().contains(part), "{fault}");
            }
        }
    }
}

#[test]
fn keymills_files_are_marked_and_an_unmarked_older_file_is_adopted() {
    for kind in Kind::all() {
        let request = |bench: &Bench| bench.request("orders", 10);
        let new = Bench::sqlite(kind);
        new.open().reserve(&request(&new)).unwrap();
        assert_eq!(mark_and_journal(&new), (MARK, "wal".to_owned()));
        // Made by hand with the statements of `init --dry-run`.
        let old = Bench::sqlite(kind);
        old.tamper(&sqlite::create_table(&old.key("x")), &[]);
        assert_eq!(mark_and_journal(&old).0, 0);
        assert_eq!(old.open().look(&request(&old).key).unwrap(), None);
        assert_eq!(mark_and_journal(&old).0, 0, "a look changes nothing");
        old.open().reserve(&request(&old)).unwrap();
        assert_eq!(mark_and_journal(&old), (MARK, "wal".to_owned()));
    }
    // Tables with other names and keymill's columns.
    let bench = Bench::sqlite(Kind::Segment);
    let key = bench.key("x");
    let table = |name: &str| sqlite::create_table(&key).replace("keymill_segment", name);
    bench.tamper(&table("orders_ids"), &[]);
    bench.tamper(&table("more_ids"), &[]);
    bench.open().reserve(&bench.request("orders", 10)).unwrap();
    assert_eq!(mark_and_journal(&bench).0, MARK);
}

#[test]
fn a_table_that_another_process_has_dropped_holds_no_row() {
    let bench = Bench::sqlite(Kind::Segment);
    let mut store = bench.open();
    let key = bench.key("orders");
    store.reserve(&bench.request("orders", 1)).unwrap();
    assert!(store.look(&key).unwrap().is_some());
    bench.tamper("DROP TABLE {t}", &[]);
    assert_eq!(store.look(&key).unwrap(), None);
    assert_eq!(store.age(&key).unwrap(), None);
    let row = store.repair(&key, keymill::store::Mark { period: 0, next: 500 }).unwrap();
    assert_eq!((row.0, row.1.mark.next), (None, 500));
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    std::fs::write(path, "not a database, but long enough to be taken for one".repeat(50)).unwrap();
    assert_eq!(kind(bench.open().reserve(&bench.request("orders", 10))), FaultKind::Refused);
}

#[test]
fn a_file_deleted_or_replaced_under_a_running_process_went_backwards() {
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    let mut store = bench.open();
    let request = bench.request("orders", 10);
    assert_eq!(store.reserve(&request).unwrap().hi, 11);
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(suffix);
        std::fs::remove_file(file).unwrap();
    }
    let seen = Request { high_water: bench.mark(11), ..request.clone() };
    assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
    assert_eq!(bench.stands_at("orders"), None);
    // Replaced by a backup.
    let mut store = bench.open();
    store.reserve(&request).unwrap();
    drop(store);
    let backup = path.with_extension("backup");
    std::fs::copy(path, &backup).unwrap();
    let mut store = bench.open();
    assert_eq!(store.reserve(&request).unwrap().hi, 21);
    std::fs::rename(&backup, path).unwrap();
    for suffix in ["-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(suffix);
        std::fs::remove_file(file).unwrap();
    }
    let seen = Request { high_water: bench.mark(21), ..request };
    assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
}

/// The modes of a database and of the files beside it.
fn modes(path: &std::path::Path) -> Vec<(String, u32)> {
    use std::os::unix::fs::PermissionsExt;
    let listed = std::fs::read_dir(path.parent().unwrap()).unwrap().flatten();
    let mut found: Vec<_> = listed
        .map(|file| {
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            (file.file_name().into_string().unwrap(), mode)
        })
        .collect();
    found.sort();
    found
}

#[test]
fn a_new_file_is_its_users_alone_and_the_mode_of_an_old_one_is_left_as_it_is() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ids.db");
    let set = |path: &std::path::Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let open = || SqliteStore::new(path.clone(), sqlite::SqliteOptions::default());
    let all = |mode: u32| ["", "-shm", "-wal"].map(|suffix| (format!("ids.db{suffix}"), mode)).to_vec();
    let request = Bench::memory(Kind::Segment).request("orders", 10);
    // `init` of a table, and the first number.
    let mut store = open();
    store.init(std::slice::from_ref(&request.key), false).unwrap();
    assert_eq!(modes(&path), all(0o600));
    store.reserve(&request).unwrap();
    assert_eq!(modes(&path), all(0o600));
    let warnings = |store: &mut SqliteStore| {
        let found = store.facts().unwrap().warnings;
        found.into_iter().filter(|warning| warning.contains("has mode")).collect::<Vec<_>>()
    };
    assert!(warnings(&mut store).is_empty());
    drop(store);
    // An operator shares it with a group, as the page says, or with everybody.
    for (mode, says) in
        [(0o660, None), (0o644, Some("and read it")), (0o666, Some("and change the numbers in it"))]
    {
        set(&path, mode);
        let mut store = open();
        store.reserve(&request).unwrap();
        assert_eq!(modes(&path), all(mode));
        // The folder lets no other user through.
        assert!(warnings(&mut store).is_empty(), "{mode:o}");
        set(folder.path(), 0o755);
        let found = warnings(&mut store);
        println!("{mode:o}: {found:?}");
        match says {
            None => assert!(found.is_empty(), "{found:?}"),
            Some(says) => assert!(found.len() == 1 && found[0].contains(says), "{found:?}"),
        }
        set(folder.path(), 0o700);
    }
}

#[test]
fn a_missing_folder_or_right_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: PathBuf| SqliteStore::new(path, sqlite::SqliteOptions::default());
    let bench = Bench::memory(Kind::Segment);
    let request = bench.request("orders", 10);
    let fault = open(folder.path().join("no/such/ids.db")).reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(fault.to_string().contains("create it"), "{fault}");
    let fault = open(folder.path().to_owned()).reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    assert!(fault.to_string().contains("is a folder; name a file in it"), "{fault}");
    // Here `:memory:` is the name of a file: a store without a file is `memory:`.
    assert_eq!(open(folder.path().join(":memory:")).reserve(&request).unwrap().lo, 1);
    assert_eq!(open(folder.path().join(":memory:")).reserve(&request).unwrap().lo, 11);
}

/// A small file system for this test; only root may mount one.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(options: &str) -> Option<Mount> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "keymill-test"])
            .arg(folder.path())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            println!("not run: mounting a tmpfs needs root");
        }
        mounted.then_some(Mount(folder))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// For files on tmpfs, which are refused by default.
fn on_memory() -> sqlite::SqliteOptions {
    sqlite::SqliteOptions { durability: Durability::Warn, ..sqlite::SqliteOptions::default() }
}

#[test]
fn a_file_in_memory_is_refused_unless_that_is_accepted() {
    let Some(mount) = Mount::new("size=1m") else { return };
    let request = Bench::memory(Kind::Segment).request("orders", 10);
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("ids.db");
    std::os::unix::fs::symlink(mount.0.path().join("ids.db"), &link).unwrap();
    // By its own name, and by a symbolic link from a disk, before and after the file exists.
    for _ in 0..2 {
        for path in [mount.0.path().join("ids.db"), link.clone()] {
            let fault = SqliteStore::new(path.clone(), sqlite::SqliteOptions::default())
                .reserve(&request)
                .unwrap_err();
            assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
            assert!(fault.to_string().contains("is on tmpfs"), "{fault}");
            let mut warned = SqliteStore::new(path, on_memory());
            warned.reserve(&request).unwrap();
            assert!(warned.facts().unwrap().warnings.iter().any(|warning| warning.contains("is on tmpfs")));
        }
    }
}

#[test]
fn a_file_that_is_mounted_without_its_folder_is_refused() {
    let Some(mount) = Mount::new("size=1m") else { return };
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    bench.open().reserve(&bench.request("orders", 10)).unwrap();
    // As `docker run -v ids.db:/app/ids.db` does: the log would be in the container's layer.
    let inside = mount.0.path().join("ids.db");
    std::fs::write(&inside, "").unwrap();
    let run = |command: &mut Command| assert!(command.status().unwrap().success());
    run(Command::new("mount").arg("--bind").arg(path).arg(&inside));
    let fault = SqliteStore::new(inside.clone(), sqlite::SqliteOptions::default())
        .reserve(&bench.request("orders", 10))
        .unwrap_err();
    run(Command::new("umount").arg(&inside));
    assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
    assert!(fault.to_string().contains("mount its folder"), "{fault}");
    assert_eq!(bench.stands_at("orders"), Some(11));
}

#[test]
fn a_created_file_is_reported_once() {
    let bench = Bench::sqlite(Kind::Segment);
    let mut store = bench.open();
    assert!(store.created().is_empty());
    store.reserve(&bench.request("orders", 10)).unwrap();
    let told = store.created();
    assert!(told.len() == 1 && told[0].contains("ids.db`: it holds no numbers yet"), "{told:?}");
    store.reserve(&bench.request("orders", 10)).unwrap();
    assert!(store.created().is_empty());
    let mut other = bench.open();
    other.reserve(&bench.request("orders", 10)).unwrap();
    assert!(other.created().is_empty());
}

#[test]
fn a_full_disk_gives_an_error_and_no_number() {
    let Some(mount) = Mount::new("size=256k") else { return };
    let path = mount.0.path().join("ids.db");
    let bench = Bench::memory(Kind::Segment);
    let mut store = SqliteStore::new(path.clone(), on_memory());
    let mut request = bench.request("orders", 10);
    let mut ranges = vec![store.reserve(&request).map(|got| (got.lo, got.hi)).unwrap()];
    let ballast = mount.0.path().join("ballast");
    let _ = std::fs::write(&ballast, vec![1; 1 << 20]);
    let mut refused = 0;
    for _ in 0..400 {
        match store.reserve(&request) {
            Ok(got) => ranges.push((got.lo, got.hi)),
            Err(fault) => {
                assert!(matches!(fault.kind, FaultKind::Unavailable | FaultKind::Unknown), "{fault}");
                refused += 1;
            }
        }
    }
    println!("{} reserved, {refused} refused", ranges.len());
    assert!(refused >= 40);
    std::fs::remove_file(&ballast).unwrap();
    request.high_water = bench.mark(ranges.last().unwrap().1);
    ranges.push(store.reserve(&request).map(|got| (got.lo, got.hi)).unwrap());
    assert_disjoint(ranges);
}

#[test]
fn a_read_only_file_system_gives_an_error_and_no_number() {
    let Some(mount) = Mount::new("size=1m") else { return };
    let path = mount.0.path().join("ids.db");
    let bench = Bench::memory(Kind::Segment);
    let request = bench.request("orders", 10);
    SqliteStore::new(path.clone(), on_memory()).reserve(&request).unwrap();
    let remount = |how: &str| {
        let done = Command::new("mount").args(["-o", how]).arg(mount.0.path()).status().unwrap();
        assert!(done.success());
    };
    remount("remount,ro");
    let mut store = SqliteStore::new(path, on_memory());
    let fault = store.reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(fault.to_string().contains("writable"), "{fault}");
    remount("remount,rw");
    assert_eq!(store.reserve(&request).unwrap().lo, 11);
}

#[test]
fn a_lock_that_stays_ends_within_the_deadline() {
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    bench.open().reserve(&bench.request("orders", 10)).unwrap();
    let blocker = rusqlite::Connection::open(path).unwrap();
    blocker.execute_batch("BEGIN IMMEDIATE").unwrap();
    let options =
        sqlite::SqliteOptions { busy: Duration::from_millis(300), ..sqlite::SqliteOptions::default() };
    let mut store = SqliteStore::new(path.clone(), options);
    let mut wait = || {
        let began = Instant::now();
        assert_eq!(kind(store.reserve(&bench.request("orders", 10))), FaultKind::Unavailable);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(290), "{took:?}");
        took
    };
    // Only the machine makes a wait longer than that; sooner or later it does not.
    until("a wait of the deadline and no more", Duration::from_secs(120), || {
        wait() < Duration::from_millis(900)
    });
    blocker.execute_batch("ROLLBACK").unwrap();
    assert_eq!(store.reserve(&bench.request("orders", 10)).unwrap().lo, 11);
}

/// A store that waits for other writers for less time than a fork waits for an operation in progress.
fn that_forks(bench: &Bench) -> SqliteStore {
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    SqliteStore::new(path.clone(), sqlite::SqliteOptions::default())
}

/// Forks with libc's handlers only; the child writes its ranges into a pipe.
pub fn forked(work: impl FnOnce() -> Vec<(u64, u64)>) -> (libc::pid_t, std::fs::File) {
    use std::io::Write;
    use std::os::fd::FromRawFd;
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for the two descriptors.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: both descriptors were just opened and are used here only.
    let [reader, mut writer] = ends.map(|end| unsafe { std::fs::File::from_raw_fd(end) });
    // SAFETY: the child leaves by `_exit` and runs no destructors or handlers of the parent's.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for (lo, hi) in work() {
                writeln!(writer, "{lo} {hi}").unwrap();
            }
        }));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(done.is_err())) };
    }
    (pid, reader)
}

pub fn ranges_of((pid, reader): (libc::pid_t, std::fs::File)) -> Vec<(u64, u64)> {
    let ranges = BufReader::new(reader)
        .lines()
        .map(|line| {
            let line = line.unwrap();
            let (lo, hi) = line.split_once(' ').unwrap();
            (lo.parse().unwrap(), hi.parse().unwrap())
        })
        .collect();
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child succeeded");
    ranges
}

#[test]
fn forks_in_the_middle_of_reservations_neither_overlap_nor_hang() {
    if !in_a_process_of_its_own("sqlite::forks_in_the_middle_of_reservations_neither_overlap_nor_hang") {
        return;
    }
    let bench = Bench::sqlite(Kind::Segment);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut ranges = Vec::new();
    std::thread::scope(|scope| {
        let busy: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut store = that_forks(&bench);
                    let mut ranges = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        ranges.extend(reserve_many(&mut store, &bench.request("orders", 3), 1));
                    }
                    ranges
                })
            })
            .collect();
        let mut idle = that_forks(&bench);
        ranges.extend(reserve_many(&mut idle, &bench.request("orders", 3), 1));
        for _ in 0..40 {
            let child = forked(|| {
                // The parent's store is abandoned, as the mill does; the child opens its own.
                let mut store = that_forks(&bench);
                reserve_many(&mut store, &bench.request("orders", 5), 5)
            });
            ranges.extend(ranges_of(child));
            ranges.extend(reserve_many(&mut idle, &bench.request("orders", 3), 1));
        }
        stop.store(true, Ordering::Relaxed);
        for thread in busy {
            ranges.extend(thread.join().unwrap());
        }
    });
    println!("{} ranges, 40 forks", ranges.len());
    let total: u64 = ranges.iter().map(|(lo, hi)| hi - lo).sum();
    assert_disjoint(ranges);
    assert_eq!(bench.stands_at("orders"), Some(total + 1));
}

#[test]
fn a_child_that_outlives_its_parent_keeps_its_own_locks() {
    if !in_a_process_of_its_own("sqlite::a_child_that_outlives_its_parent_keeps_its_own_locks") {
        return;
    }
    // Parent and child have the file open; the parent closes it; a third process opens it. If the child had inherited the
    // parent's view of its locks, the third process would see no other user and delete the child's log.
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    let mut store = bench.open();
    let mut ranges = reserve_many(store.as_mut(), &bench.request("orders", 3), 1);
    let mut to_child = [0; 2];
    // SAFETY: `to_child` has room for the two descriptors.
    assert_eq!(unsafe { libc::pipe(to_child.as_mut_ptr()) }, 0);
    let child = forked(|| {
        let mut store = bench.open();
        let mut ranges = reserve_many(store.as_mut(), &bench.request("orders", 5), 1);
        let mut byte = 0u8;
        // SAFETY: reads one byte into `byte`: the parent says when it has closed the file.
        assert_eq!(unsafe { libc::read(to_child[0], (&raw mut byte).cast(), 1) }, 1);
        ranges.extend(reserve_many(store.as_mut(), &bench.request("orders", 5), 3));
        ranges
    });
    drop(store);
    let third = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_process_reserves_and_prints", "--nocapture"])
        .env(CHILD, format!("Segment|{}|{}", path.display(), bench.table))
        .output()
        .unwrap();
    assert!(third.status.success());
    for line in String::from_utf8(third.stdout).unwrap().lines() {
        if let Some((lo, hi)) = line.strip_prefix("range ").and_then(|range| range.split_once(' ')) {
            ranges.push((lo.parse().unwrap(), hi.parse().unwrap()));
        }
    }
    // SAFETY: writes one byte.
    assert_eq!(unsafe { libc::write(to_child[1], b"x".as_ptr().cast(), 1) }, 1);
    ranges.extend(ranges_of(child));
    ranges.extend(reserve_many(bench.open().as_mut(), &bench.request("orders", 3), 1));
    assert_eq!(ranges.len(), 1 + 1 + repetitions(100) + 3 + 1);
    assert_disjoint(ranges);
}

/// The folder of `a_process_that_clones_itself`.
const CLONE: &str = "KEYMILL_CONTRACT_CLONE";

fn wait_for(file: &std::path::Path) {
    let deadline = Instant::now() + Duration::from_secs(180);
    while !file.exists() {
        assert!(Instant::now() < deadline, "{} did not come", file.display());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Not a test of its own: the next test starts it. A raw `clone` runs none of libc's handlers.
#[test]
fn a_process_that_clones_itself() {
    let Ok(folder) = std::env::var(CLONE) else { return };
    let at = |name: &str| PathBuf::from(&folder).join(name);
    let bench = Bench {
        kind: Kind::Segment,
        place: Place::Sqlite(at("ids.db"), None),
        table: "keymill_segment".to_owned(),
    };
    let write = |name: &str, ranges: &[(u64, u64)]| {
        let lines: Vec<_> = ranges.iter().map(|(lo, hi)| format!("{lo} {hi}")).collect();
        std::fs::write(at("unfinished"), lines.join("\n")).unwrap();
        std::fs::rename(at("unfinished"), at(name)).unwrap();
    };
    let mut store = bench.open();
    write("parent", &reserve_many(store.as_mut(), &bench.request("orders", 3), 1));
    // SAFETY: like `fork`, without its handlers; the child leaves by `_exit`.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(pid >= 0);
    if pid > 0 {
        wait_for(&at("ready"));
        return; // closes the store: as far as this process knows it is the last user of the file
    }
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut own = bench.open();
        let mut ranges = reserve_many(own.as_mut(), &bench.request("orders", 5), 2);
        write("ready", &[]);
        wait_for(&at("go"));
        ranges.extend(reserve_many(own.as_mut(), &bench.request("orders", 5), 3));
        write("child", &ranges);
    }));
    // SAFETY: ends the clone at once.
    unsafe { libc::_exit(i32::from(done.is_err())) };
}

#[test]
fn a_raw_clone_that_outlives_its_parent_keeps_the_log_it_writes_to() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let this = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.stdout(Stdio::null());
        command
    };
    let parent = this()
        .args(["--exact", "sqlite::a_process_that_clones_itself", "--nocapture", "--test-threads=1"])
        .env(CLONE, folder.path())
        .status()
        .unwrap();
    assert!(parent.success());
    let bench = Bench {
        kind: Kind::Segment,
        place: Place::Sqlite(at("ids.db"), None),
        table: "keymill_segment".to_owned(),
    };
    // A third process opens and closes the file while only the clone has it open.
    let third = this()
        .args(["--exact", "a_child_process_reserves_and_prints", "--nocapture"])
        .env(CHILD, format!("Segment|{}|{}", at("ids.db").display(), bench.table))
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut take = |text: &str| {
        for line in text.lines() {
            if let Some((lo, hi)) = line.trim_start_matches("range ").split_once(' ')
                && let (Ok(lo), Ok(hi)) = (lo.parse(), hi.parse())
            {
                ranges.push((lo, hi));
            }
        }
    };
    take(&String::from_utf8(third.stdout).unwrap());
    std::fs::write(at("go"), "").unwrap();
    wait_for(&at("child"));
    take(&std::fs::read_to_string(at("parent")).unwrap());
    take(&std::fs::read_to_string(at("child")).unwrap());
    ranges.extend(reserve_many(bench.open().as_mut(), &bench.request("orders", 3), 1));
    assert_eq!(ranges.len(), repetitions(100) + 1 + 5 + 1);
    assert_disjoint(ranges);
}

#[test]
fn another_programs_journal_mode_is_set_back_and_costs_no_number() {
    let bench = Bench::sqlite(Kind::Segment);
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    let request = bench.request("orders", 10);
    let mut next = bench.open().reserve(&request).unwrap().hi;
    for mode in ["delete", "truncate", "persist", "memory", "off"] {
        let other = rusqlite::Connection::open(path).unwrap();
        let set: String =
            other.query_one(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get(0)).unwrap();
        assert_eq!(set, mode, "nobody has the file open");
        // The other program still has the file open, in its own mode.
        for others in [Some(other), None] {
            let mut store = bench.open();
            let reserved = store.reserve(&request).unwrap();
            assert_eq!(reserved.lo, next, "{mode}");
            next = reserved.hi;
            assert!(store.facts().unwrap().durability.contains(&"journal_mode=wal".to_owned()), "{mode}");
            // Nor can another program change it under an open store.
            let late = rusqlite::Connection::open(path).unwrap();
            let set =
                late.query_one(&format!("PRAGMA journal_mode={mode}"), [], |row| row.get::<_, String>(0));
            assert!(set.as_ref().is_err() || set.as_ref().is_ok_and(|set| set == "wal"), "{mode}: {set:?}");
            let reserved = store.reserve(&request).unwrap();
            assert_eq!(reserved.lo, next, "{mode}");
            next = reserved.hi;
            drop(others);
        }
        assert_eq!(mark_and_journal(&bench), (MARK, "wal".to_owned()));
    }
    assert_eq!(bench.stands_at("orders"), Some(next));
}

#[test]
fn a_file_locked_exclusively_by_another_program_is_unavailable_until_it_is_released() {
    for store_first in [false, true] {
        let bench = Bench::sqlite(Kind::Segment);
        let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
        let options =
            sqlite::SqliteOptions { busy: Duration::from_millis(200), ..sqlite::SqliteOptions::default() };
        let request = bench.request("orders", 10);
        let mut store = SqliteStore::new(path.clone(), options.clone());
        let mut next = store.reserve(&request).unwrap().hi;
        if !store_first {
            store = SqliteStore::new(path.clone(), options);
        }
        let other = rusqlite::Connection::open(path).unwrap();
        let taken = other.execute_batch("PRAGMA locking_mode=EXCLUSIVE; BEGIN IMMEDIATE; CREATE TABLE IF NOT EXISTS keymill_segment (name)");
        if store_first {
            // While keymill has the file open, another program cannot lock it exclusively: keymill writes beside it.
            let _ = taken.and_then(|()| other.execute_batch("COMMIT"));
        } else {
            taken.unwrap();
            other.execute_batch("COMMIT").unwrap();
            let fault = store.reserve(&request).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
            assert!(fault.to_string().contains("stayed locked"), "{fault}");
        }
        drop(other);
        for _ in 0..2 {
            let reserved = store.reserve(&request).unwrap();
            assert_eq!(reserved.lo, next);
            next = reserved.hi;
        }
    }
}
