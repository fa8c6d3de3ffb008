//! The descriptors of this copy of SQLite, to tell them from another copy's.
//!
//! A second SQLite library in this process drops the locks of this one when it closes the file (`linux/sqlite_descriptors.rs` says why). Here
//! nothing prevents that: keymill looks at the process's descriptors (`/dev/fd`) and refuses the file while another one leads to it. A
//! library that opens and closes the file between two looks is not seen.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use once_cell::sync::OnceCell;
use rusqlite::ffi;

use crate::system::{FileId, Shortage, files};

type OpenCall = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
type CloseCall = unsafe extern "C" fn(c_int) -> c_int;
type AnyCall = unsafe extern "C" fn();

/// SQLite's original system calls.
#[derive(Clone, Copy)]
struct Calls {
    open: OpenCall,
    close: CloseCall,
}

static CALLS: OnceCell<Calls> = OnceCell::new();
static INSTALLED: OnceCell<()> = OnceCell::new();

/// Every descriptor that this copy of SQLite has open. Never held while SQLite is called.
static OPEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Opens and closes that have begun, and those that are in the table. If they differ, a descriptor may be open without being in the
/// table.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);

fn table() -> MutexGuard<'static, BTreeSet<RawFd>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work`.
pub(crate) fn in_keymill<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Replaces two of SQLite's system calls, once in a process's life. If that fails, no descriptor is ever called foreign. No thread may
/// fork meanwhile.
pub(crate) fn install() {
    INSTALLED.get_or_init(|| {
        let _ = replace();
    });
}

fn replace() -> Option<()> {
    // SAFETY: may be called at any time and from any thread.
    if unsafe { ffi::sqlite3_initialize() } != ffi::SQLITE_OK {
        return None;
    }
    // SAFETY: the name ends with NUL.
    let vfs = unsafe { ffi::sqlite3_vfs_find(c"unix".as_ptr()) };
    if vfs.is_null() {
        return None;
    }
    // SAFETY: SQLite's own VFS is a static object.
    let (get, set) = unsafe { ((*vfs).xGetSystemCall?, (*vfs).xSetSystemCall?) };
    let call = |name: &CStr| {
        // SAFETY: the VFS is a static object, and the name ends with NUL.
        unsafe { get(vfs, name.as_ptr()) }
    };
    let (opens, closes) = (call(c"open")?, call(c"close")?);
    // SAFETY: SQLite calls both as functions of these types (`osOpen` and `osClose` of os_unix.c).
    let calls = unsafe {
        Calls {
            open: std::mem::transmute::<AnyCall, OpenCall>(opens),
            close: std::mem::transmute::<AnyCall, CloseCall>(closes),
        }
    };
    CALLS.set(calls).ok()?;
    // SAFETY: SQLite casts both back to their own types before the call; the names end with NUL, and the functions live as long as
    // the process.
    unsafe {
        set(vfs, c"open".as_ptr(), Some(std::mem::transmute::<OpenCall, AnyCall>(open)));
        set(vfs, c"close".as_ptr(), Some(std::mem::transmute::<CloseCall, AnyCall>(close)));
    }
    Some(())
}

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    let Some(calls) = CALLS.get() else { return -1 };
    // ordering: Release — pairs with the acquire in `foreign`.
    BEGUN.fetch_add(1, Ordering::Release);
    // SAFETY: the arguments are SQLite's own.
    let fd = unsafe { (calls.open)(path, flags, mode) };
    if fd >= 0 {
        table().insert(fd);
    }
    // ordering: Release — as above: the table is up to date.
    DONE.fetch_add(1, Ordering::Release);
    fd
}

unsafe extern "C" fn close(fd: c_int) -> c_int {
    let Some(calls) = CALLS.get() else { return -1 };
    // ordering: Release — as in `open`.
    BEGUN.fetch_add(1, Ordering::Release);
    table().remove(&fd);
    // SAFETY: the argument is SQLite's own.
    let closed = unsafe { (calls.close)(fd) };
    // ordering: Release — as in `open`.
    DONE.fetch_add(1, Ordering::Release);
    closed
}

/// A forked child has the copies of its parent's descriptors, and its table.
pub(crate) fn in_forked_child() {}

/// A descriptor that keymill opened without SQLite, and never closes.
pub(crate) fn know(file: &File, _database: FileId) {
    table().insert(file.as_raw_fd());
}

/// Not looked for: what closes keymill's descriptors is not noticed here.
pub(crate) fn closed(_database: FileId) -> Option<i32> {
    None
}

/// Not known: SQLite's own error says what failed.
pub(crate) fn shortage() -> Option<Shortage> {
    None
}

/// A descriptor of this process on one of these files, which are a database and those that SQLite keeps beside it, that another
/// SQLite library opened.
pub(crate) fn foreign(files: &[PathBuf]) -> Option<i32> {
    CALLS.get()?;
    let ids: Vec<FileId> = files.iter().filter_map(|file| files::identity(file).ok()).collect();
    // ordering: Acquire on both pairs with the release in `open` and `close`: descriptors opened before the scan are in the table, and
    // those opened after it do not count as foreign.
    let done = DONE.load(Ordering::Acquire);
    let listed = std::fs::read_dir("/dev/fd").ok()?;
    let known = table().clone();
    let found = listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok())
        .find(|fd| !known.contains(fd) && is_on(*fd, &ids));
    // ordering: as above.
    found.filter(|_| BEGUN.load(Ordering::Acquire) == done)
}

fn is_on(fd: RawFd, ids: &[FileId]) -> bool {
    // SAFETY: only looked at, and never closed here; a descriptor that was closed meanwhile is an error.
    let file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    files::identity_of(&file).is_ok_and(|id| ids.contains(&id))
}

/// Creates a new database file for its user alone. Another process may have created it first, and SQLite reports every other
/// failure. Nothing holds a lock on a file that is created here.
pub(crate) fn create(path: &Path) {
    drop(files::create_private(path));
}
