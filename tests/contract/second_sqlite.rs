//! A second SQLite library in the process: the system's, loaded beside the one that keymill carries. A program that keeps its
//! own tables in SQLite has one (Python's `sqlite3`, better-sqlite3, sqlite-jdbc). POSIX locks belong to the process, so
//! two libraries on one file neither hold each other off nor keep their locks when the other one closes.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{Catalogue, Durability, FaultKind, Request, RowStore};
use keymill_tests::worker::in_a_process_of_its_own;

use crate::bench::*;
use crate::sqlite::{forked, ranges_of};
use crate::{assert_disjoint, kind, reserve_many};

type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type Run = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    Option<unsafe extern "C" fn()>,
    *mut c_void,
    *mut *mut c_char,
) -> c_int;
type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
type Patience = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// The system's SQLite.
#[derive(Clone, Copy)]
struct Library {
    open: Open,
    run: Run,
    close: Close,
    patience: Patience,
}

impl Library {
    fn load() -> Option<Library> {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: the name ends with NUL; SQLite's initialisers may run on any thread.
        let library = unsafe { libc::dlopen(c"libsqlite3.so.0".as_ptr(), flags) };
        if library.is_null() {
            println!("not run: the system has no libsqlite3.so.0");
            return None;
        }
        let symbol = |name: &CStr| {
            // SAFETY: the library is loaded and never unloaded; the name ends with NUL.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!symbol.is_null(), "{name:?}");
            symbol
        };
        // SAFETY: the functions have these types (sqlite3.h).
        unsafe {
            Some(Library {
                open: std::mem::transmute::<*mut c_void, Open>(symbol(c"sqlite3_open")),
                run: std::mem::transmute::<*mut c_void, Run>(symbol(c"sqlite3_exec")),
                close: std::mem::transmute::<*mut c_void, Close>(symbol(c"sqlite3_close")),
                patience: std::mem::transmute::<*mut c_void, Patience>(symbol(c"sqlite3_busy_timeout")),
            })
        }
    }

    fn open(self, path: &Path) -> Connection {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        let mut handle = null_mut();
        // SAFETY: the path ends with NUL, and `handle` is written.
        let code = unsafe { (self.open)(path.as_ptr(), &raw mut handle) };
        assert_eq!(code, 0, "the second library opens {path:?}");
        // SAFETY: the connection is open.
        unsafe { (self.patience)(handle, 120_000) };
        Connection { library: self, handle }
    }
}

struct Connection {
    library: Library,
    handle: *mut c_void,
}

impl Connection {
    fn run(&self, sql: &str) -> Result<(), c_int> {
        let sql = CString::new(sql).unwrap();
        // SAFETY: the connection is open and the statement ends with NUL.
        match unsafe { (self.library.run)(self.handle, sql.as_ptr(), None, null_mut(), null_mut()) } {
            0 => Ok(()),
            code => Err(code),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: the connection is open, and this is its last use.
        unsafe { (self.library.close)(self.handle) };
    }
}

fn place(bench: &Bench) -> &Path {
    let Place::Sqlite(path, _) = &bench.place else { unreachable!() };
    path
}

#[test]
fn a_file_that_another_sqlite_library_of_this_process_has_open_is_refused() {
    let Some(library) = Library::load() else { return };
    for connection_first in [false, true] {
        let bench = Bench::sqlite(Kind::Segment);
        let request = bench.request("orders", 10);
        let mut store = bench.open();
        store.reserve(&request).unwrap();
        if connection_first {
            store = bench.open();
        }
        let second = library.open(place(&bench));
        second.run("SELECT * FROM keymill_segment").unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        let fault = loop {
            match store.reserve(&request) {
                Err(fault) => break fault,
                Ok(_) => assert!(std::time::Instant::now() < deadline, "it is never noticed"),
            }
        };
        assert_eq!(fault.kind, FaultKind::Unsafe, "{fault}");
        assert!(fault.to_string().contains("name a file of keymill's own"), "{fault}");
        assert_eq!(kind(bench.open().reserve(&request)), FaultKind::Unsafe, "a new store refuses it too");
        // `durability=warn` accepts it with a warning.
        let options =
            sqlite::SqliteOptions { durability: Durability::Warn, ..sqlite::SqliteOptions::default() };
        let mut warned = SqliteStore::new(place(&bench).to_owned(), options);
        let before = warned.reserve(&request).unwrap().hi;
        let facts = warned.facts().unwrap();
        assert!(facts.warnings.iter().any(|warning| warning.contains("outside keymill")), "{facts:?}");
        drop(warned);
        drop(second);
        assert_eq!(
            store.reserve(&request).unwrap().lo,
            before,
            "it is served again when the other has closed it"
        );
    }
}

#[test]
fn stores_of_one_process_are_not_taken_for_another_library() {
    let bench = Bench::sqlite(Kind::Segment);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    // Each store opens and closes the file.
                    assert_eq!(reserve_many(bench.open().as_mut(), &bench.request("orders", 3), 2).len(), 2);
                }
            });
        }
    });
    assert_eq!(bench.stands_at("orders"), Some(8 * 20 * 2 * 3 + 1));
}

/// How many descriptors this process has on files of this database.
fn descriptors_on(path: &Path) -> usize {
    let of_database =
        |file: std::path::PathBuf| file.to_str().is_some_and(|file| file.starts_with(path.to_str().unwrap()));
    let listed = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    listed
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|file| of_database(file.clone()))
        .count()
}

#[test]
fn forks_beside_another_library_leave_no_descriptor_behind_and_no_number_comes_twice() {
    if !in_a_process_of_its_own(
        "second_sqlite::forks_beside_another_library_leave_no_descriptor_behind_and_no_number_comes_twice",
    ) {
        return;
    }
    let Some(library) = Library::load() else { return };
    let bench = Bench::sqlite(Kind::Segment);
    let warned = || {
        let options =
            sqlite::SqliteOptions { durability: Durability::Warn, busy: std::time::Duration::from_secs(5) };
        SqliteStore::new(place(&bench).to_owned(), options)
    };
    let request = |next| Request {
        high_water: keymill::store::Mark { period: 0, next },
        ..bench.request("orders", 10)
    };
    let mut store = warned();
    store.reserve(&request(0)).unwrap();
    let second = library.open(place(&bench));
    second.run("SELECT * FROM keymill_segment").unwrap();
    let mut ranges = Vec::new();
    let mut counted = Vec::new();
    for _ in 0..20 {
        let next = ranges.iter().map(|(_, hi)| *hi).max().unwrap_or(0);
        // Both write while the other one has the file open too.
        let child = forked(|| {
            let mut own = warned();
            let mut got = reserve_many(&mut own, &request(next), 5);
            // A fork of a fork.
            got.extend(ranges_of(forked(|| reserve_many(&mut warned(), &request(next), 5))));
            got.extend(reserve_many(&mut own, &request(next), 5));
            let open = descriptors_on(place(&bench));
            assert!(open <= 16, "a child has {open} descriptors");
            got
        });
        ranges.extend(reserve_many(&mut store, &request(next), 5));
        ranges.extend(ranges_of(child));
        counted.push(descriptors_on(place(&bench)));
    }
    println!("descriptors: {counted:?}");
    assert!(counted.iter().all(|count| *count <= counted[1]), "{counted:?}");
    assert_disjoint(ranges);
    drop(second);
    // Without another library nothing is kept.
    let next = store.reserve(&request(1)).unwrap().hi;
    store.reserve(&request(next)).unwrap();
    drop(store);
    assert_eq!(descriptors_on(place(&bench)), 0);
}

#[test]
fn a_file_that_another_library_closes_last_again_and_again_leaves_no_more_descriptors_each_time() {
    if !in_a_process_of_its_own(
        "second_sqlite::a_file_that_another_library_closes_last_again_and_again_leaves_no_more_descriptors_each_time",
    ) {
        return;
    }
    let Some(library) = Library::load() else { return };
    let bench = Bench::sqlite(Kind::Segment);
    let mut counted = Vec::new();
    for _ in 0..10 {
        let mut store = bench.open();
        store.reserve(&bench.request("orders", 10)).unwrap();
        let second = library.open(place(&bench));
        second.run("SELECT * FROM keymill_segment").unwrap();
        drop(store);
        // The last one that closes the file deletes the log and its index.
        drop(second);
        counted.push(descriptors_on(place(&bench)));
    }
    assert!(counted.iter().all(|count| *count <= counted[1]), "{counted:?}");
}

/// The file on which a child of this suite uses both libraries.
const BESIDE: &str = "KEYMILL_CONTRACT_BESIDE";
const ROUNDS: u64 = 150;

/// Not a test of its own: the next test starts it. Without its variable it does nothing.
#[test]
fn a_child_reserves_while_another_library_writes_to_the_same_file() {
    let Some(path) = std::env::var_os(BESIDE) else { return };
    let path = Path::new(&path);
    let Some(library) = Library::load() else { return };
    let bench = std::mem::ManuallyDrop::new(Bench {
        kind: Kind::Segment,
        place: Place::Sqlite(path.to_owned(), None),
        table: "keymill_segment".to_owned(),
    });
    let options =
        sqlite::SqliteOptions { durability: Durability::Warn, busy: std::time::Duration::from_secs(5) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                let second = library.open(path);
                // SQLite's own wait for a lock is not fair: SQLITE_BUSY and SQLITE_PROTOCOL say that nothing was written.
                let give_up = std::time::Instant::now() + std::time::Duration::from_secs(300);
                let insert = || second.run("INSERT INTO app (text) VALUES ('row')");
                let mut done = insert();
                while matches!(done, Err(5 | 15)) && std::time::Instant::now() < give_up {
                    done = insert();
                }
                done.expect("the other library writes");
            }
        });
        let mut store = SqliteStore::new(path.to_owned(), options);
        for (lo, hi) in reserve_many(&mut store, &bench.request("orders", 5), ROUNDS as usize) {
            println!("\nrange {lo} {hi}");
        }
    });
}

#[test]
fn another_library_that_opens_and_closes_the_file_costs_no_number_and_no_row() {
    let Some(library) = Library::load() else { return };
    let bench = Bench::sqlite(Kind::Segment);
    let mut ranges = reserve_many(bench.open().as_mut(), &bench.request("orders", 5), 1);
    library.open(place(&bench)).run("CREATE TABLE app (id INTEGER PRIMARY KEY, text)").unwrap();
    let children: Vec<_> = (0..3)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "second_sqlite::a_child_reserves_while_another_library_writes_to_the_same_file",
                    "--nocapture",
                    "--test-threads=1",
                ])
                .env(BESIDE, place(&bench))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            if let Some((lo, hi)) = line.strip_prefix("range ").and_then(|range| range.split_once(' ')) {
                ranges.push((lo.parse().unwrap(), hi.parse().unwrap()));
            }
        }
        assert!(output.status.success(), "a child failed");
    }
    println!("{} ranges by 3 processes, another library beside each", ranges.len());
    assert_eq!(ranges.len() as u64, 1 + 3 * ROUNDS);
    assert_disjoint(ranges);
    assert_eq!(bench.stands_at("orders"), Some((1 + 3 * ROUNDS) * 5 + 1));
    let file = rusqlite::Connection::open(place(&bench)).unwrap();
    let rows: i64 = file.query_one("SELECT count(*) FROM app", [], |row| row.get(0)).unwrap();
    assert_eq!(rows as u64, 3 * ROUNDS, "no row of the other library is lost");
    let whole: String = file.query_one("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
}
