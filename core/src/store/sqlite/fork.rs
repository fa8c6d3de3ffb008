//! SQLite and `fork`: no connection of this process is open at the moment of a fork.
//!
//! SQLite must not be carried across a fork (sqlite.org/howtocorrupt.html §2.6). It keeps one list of open files per
//! process, with the locks that the process holds. A child inherits the list but not the POSIX locks, so its SQLite would
//! act on locks that it does not hold. Another process could then delete the write-ahead log: reservations would be made in
//! a file without a name, and the same numbers issued twice. A mutex of SQLite that another thread holds at that moment is
//! never released in the child.
//!
//! So a `pthread_atfork` handler waits for the operation in progress (milliseconds, at most the busy deadline) and closes
//! every connection before the fork. Parent and child open new connections when they need them. The handlers do not cover
//! the program's own use of the same SQLite (`rusqlite` in a Rust program): such calls must not run while another thread
//! forks.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use once_cell::sync::OnceCell;
use rusqlite::Connection;
use rusqlite::config::DbConfig;

use super::descriptors::{self, Inode};
use crate::store::sql::State;
use crate::system::{self, files};

/// Lower 32 bits: operations in progress. Bit 32: a thread is forking.
static STATE: AtomicU64 = AtomicU64::new(0);
const FORKING: u64 = 1 << 32;
const OPERATIONS: u64 = FORKING - 1;

/// The child was forked while an operation had not ended; its copy of SQLite is unusable.
static UNUSABLE: AtomicBool = AtomicBool::new(false);
static GAVE_UP: AtomicBool = AtomicBool::new(false);

/// The process that uses this copy of SQLite; 0: none yet.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// This process is the child of a raw `clone`.
static CLONED: AtomicBool = AtomicBool::new(false);
/// Files whose locks [`hold_locks`] has taken; the descriptors are never closed, which would drop them.
static HELD: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// How long a fork waits for the operation in progress. Longer than any busy deadline; a hung disk must not hang `fork`.
const PATIENCE: Duration = Duration::from_secs(10);

/// Every connection that may be open. Its lock is taken only during an [`Operation`], so it is free during a fork.
static CONNECTIONS: Mutex<Vec<Weak<ForkSafeConnection>>> = Mutex::new(Vec::new());
static HANDLERS: OnceCell<()> = OnceCell::new();

/// A connection to a file. If the program has closed the connection's descriptors, the connection is never closed: the
/// numbers may belong to the program now.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) connection: ManuallyDrop<Connection>,
    pub(super) opened: Opened,
    pub(super) state: State,
}

/// What was found when a file was opened.
#[derive(Debug)]
pub(super) struct Opened {
    /// The path as it is configured.
    pub(super) path: PathBuf,
    /// The path without symbolic links, beside which SQLite keeps its other files.
    pub(super) real: PathBuf,
    pub(super) file: Inode,
    /// The inode of the write-ahead log, if there is one.
    pub(super) log: Option<Inode>,
    pub(super) journal: String,
    pub(super) synchronous: i64,
}

impl OpenFile {
    pub(super) fn database(&self) -> Inode {
        self.opened.file
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        if descriptors::closed(self.database()).is_none() {
            // SAFETY: `drop` is the only place that drops it, and nothing uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.connection) };
        }
    }
}

/// A connection that a fork may close.
#[derive(Debug, Default)]
pub(super) struct ForkSafeConnection(Mutex<Option<OpenFile>>);

impl ForkSafeConnection {
    /// A connection that is registered with the fork handlers. `None`: the handlers could not be registered (no memory).
    pub(super) fn new() -> Option<Arc<ForkSafeConnection>> {
        HANDLERS.get_or_try_init(register).ok()?;
        let connection = Arc::new(ForkSafeConnection::default());
        let _operation = begin();
        let mut connections = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| connection.strong_count() > 0);
        connections.push(Arc::downgrade(&connection));
        Some(connection)
    }

    /// Locks the connection; requires an [`Operation`].
    pub(super) fn lock<'a>(&'a self, _operation: &'a Operation) -> MutexGuard<'a, Option<OpenFile>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An operation in progress: a fork waits until it is dropped.
#[derive(Debug)]
pub(super) struct Operation(());

impl Drop for Operation {
    fn drop(&mut self) {
        // ordering: Release pairs with the forking thread's Acquire: what the operation wrote is seen before closing.
        STATE.fetch_sub(1, Ordering::Release);
    }
}

/// Detects that this process is the child of a raw `clone`, before anything else here is used.
pub(super) fn recognise_process() {
    let own = std::process::id();
    // ordering: Relaxed throughout: a clone starts with one thread, and `OWNER` is set before a second one comes here
    // unless two mills are revived at the same instant; then both do the same harmless things.
    let owner = OWNER.load(Ordering::Relaxed);
    if owner == own {
        return;
    }
    if owner != 0 {
        // ordering: Relaxed — as above.
        CLONED.store(true, Ordering::Relaxed);
        // A thread of the parent was using SQLite: its mutexes and lock counts belong to a thread that does not exist here.
        match CONNECTIONS.try_lock() {
            // ordering: Relaxed — as above.
            Ok(mut connections) if STATE.swap(0, Ordering::Relaxed) == 0 => {
                // The connections are the parent's: a later fork of this process must not close them.
                std::mem::forget(std::mem::take(&mut *connections));
            }
            // ordering: Relaxed — as above.
            _ => UNUSABLE.store(true, Ordering::Relaxed),
        }
    }
    // ordering: Relaxed — as above.
    OWNER.store(own, Ordering::Relaxed);
}

/// In the child of a raw `clone`: takes the two shared locks that keep other processes from deleting the log. SQLite's list
/// of files, copied from the parent, already contains these locks.
pub(super) fn hold_locks(database: &Path) -> io::Result<()> {
    // The bytes are part of SQLite's file format: the shared range after the pending byte, and the log index's
    // "dead man's switch".
    const SHARED: (i64, i64) = (0x4000_0002, 510);
    const SWITCH: (i64, i64) = (128, 1);
    // ordering: Relaxed — set by this thread or before it was started.
    if !CLONED.load(Ordering::Relaxed) {
        return Ok(());
    }
    let identity = files::identity(database)?;
    let mut index = database.as_os_str().to_owned();
    index.push("-shm");
    for (path, (start, len)) in [(database, SHARED), (Path::new(&index), SWITCH)] {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        let at = files::identity(path)?;
        let same = |file: &File| files::identity_of(file).is_ok_and(|known| known == at);
        if held.iter().any(same) {
            continue;
        }
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        descriptors::know(&file, identity);
        if let Err(error) = files::share_lock(&file, start, len) {
            // Left open: closing it would drop every lock that SQLite holds on that file.
            std::mem::forget(file);
            return Err(error);
        }
        held.push(file);
    }
    Ok(())
}

/// Begins an operation; waits while another thread forks.
pub(super) fn begin() -> Operation {
    loop {
        // ordering: Acquire pairs with `after_in_parent`: connections closed for the fork are seen as closed.
        if STATE.fetch_add(1, Ordering::Acquire) & FORKING == 0 {
            return Operation(());
        }
        // ordering: Relaxed: no operation was begun.
        STATE.fetch_sub(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Whether this process is a child whose copy of SQLite was in use when it was forked.
pub(super) fn is_unusable() -> bool {
    // ordering: Relaxed: written before this process had a second thread.
    UNUSABLE.load(Ordering::Relaxed)
}

fn register() -> Result<(), ()> {
    if system::forks::around(before, after_in_parent, after_in_child) { Ok(()) } else { Err(()) }
}

extern "C" fn before() {
    let until = Instant::now() + PATIENCE;
    // One fork at a time; then wait for the operations that began before it.
    // ordering: Acquire on both pairs with `Operation::drop`'s Release.
    while STATE.fetch_or(FORKING, Ordering::Acquire) & FORKING != 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_micros(50));
    }
    while STATE.load(Ordering::Acquire) & OPERATIONS != 0 {
        if Instant::now() >= until {
            // ordering: Relaxed: read by the child's only thread, a copy of this one.
            GAVE_UP.store(true, Ordering::Relaxed);
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    let mut connections = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    connections.retain(|connection| {
        let Some(connection) = connection.upgrade() else { return false };
        let mut held = connection.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = held.take() {
            // No checkpoint: the next operation opens the file again, so copying the log into the database would only cost
            // two fsyncs. A failure here does no harm.
            let _ = connection.connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
            drop(connection);
        }
        true
    });
}

extern "C" fn after_in_parent() {
    // ordering: Relaxed and Release: see `begin`.
    GAVE_UP.store(false, Ordering::Relaxed);
    STATE.fetch_and(!FORKING, Ordering::Release);
}

extern "C" fn after_in_child() {
    descriptors::in_forked_child();
    // ordering: Relaxed: the child has one thread.
    if GAVE_UP.swap(false, Ordering::Relaxed) {
        UNUSABLE.store(true, Ordering::Relaxed);
    }
    OWNER.store(0, Ordering::Relaxed);
    // Threads that were waiting to begin an operation do not exist in the child.
    STATE.store(0, Ordering::Relaxed);
}
