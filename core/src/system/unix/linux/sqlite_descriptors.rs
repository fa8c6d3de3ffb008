//! The descriptors of this copy of SQLite, and locks that another copy cannot drop.
//!
//! SQLite locks with `fcntl`, and POSIX locks belong to the process, not to the descriptor. When a second SQLite library in
//! the same process (Python's `sqlite3`, better-sqlite3, sqlite-jdbc) closes the file, the first library's locks are
//! dropped silently, and while both have it open their locks do not exclude each other (sqlite.org/howtocorrupt.html
//! §2.2.1). Numbers came twice because of this. Three measures:
//!
//! * keymill's files are locked with open file description locks (`F_OFD_SETLK`, Linux 3.15): same bytes, same conflicts
//!   with other processes, but they end with the descriptor that took them, and hold off every other descriptor, of this
//!   process too. SQLite counts a process's locks per inode, so one descriptor here takes all locks of an inode. SQLite lets
//!   its system calls be replaced (`xSetSystemCall`); calls for files that are not keymill's are passed on unchanged.
//! * `open` and `close` are replaced too, so keymill knows the descriptors of this SQLite. Any other descriptor of this
//!   process on the same file belongs to a second library and is reported by [`foreign`].
//! * keymill does not close its descriptor while a foreign one exists: that would drop the other library's locks. It keeps
//!   such descriptors and uses them when it opens the file again; a forked child closes its copies at once, while it has no
//!   locks that this could drop.
//!
//! The program may also close keymill's descriptors: code that makes a daemon calls `closefrom(3)`, and a number that is
//! closed twice may be keymill's the second time. The next file or socket of the program gets that number, and SQLite would
//! write its log there without any lock. So keymill remembers device and inode of each descriptor and compares them with
//! `fstat` before each operation, after its commit ([`closed`]) and before each system call of SQLite with a keymill
//! descriptor: a call on a changed descriptor fails with EBADF. A close between the check and the call remains possible; so
//! the log, which is written most, has a high number: the program's next files get lower ones. SQLite shares a file's state
//! among all connections of a process, so a file with such a descriptor is not used again in this process.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use once_cell::sync::OnceCell;
use rusqlite::ffi;

use crate::system::{FileId as Inode, Shortage, files};

type OpenCall = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
type CloseCall = unsafe extern "C" fn(c_int) -> c_int;
/// Variadic in C. On 64-bit Linux an integer or a pointer is passed to both kinds of function in the same way.
type ControlCall = unsafe extern "C" fn(c_int, c_int, usize) -> c_int;
type WriteCall = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type ReadCall = unsafe extern "C" fn(c_int, *mut c_void, usize) -> isize;
type TruncateCall = unsafe extern "C" fn(c_int, i64) -> c_int;
type StatCall = unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int;
type MapCall = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
type AnyCall = unsafe extern "C" fn();

/// SQLite's original system calls.
#[derive(Clone, Copy)]
struct Calls {
    vfs: usize,
    open: OpenCall,
    close: CloseCall,
    control: ControlCall,
    write: WriteCall,
    read: ReadCall,
    truncate: TruncateCall,
    stat: StatCall,
    map: MapCall,
}

/// The logs' descriptors have numbers from here on, where the limit allows it: the program's next file gets the lowest
/// free number.
const HIGH: RawFd = 512;

static CALLS: OnceCell<Calls> = OnceCell::new();
static INSTALLED: OnceCell<()> = OnceCell::new();

/// Never held while SQLite is called.
static TABLE: Mutex<DescriptorTable> = Mutex::new(DescriptorTable {
    process: 0,
    open: BTreeMap::new(),
    locks: BTreeMap::new(),
    kept: Vec::new(),
    known: Vec::new(),
    closed: BTreeMap::new(),
});

/// Opens and closes that have begun, and those that are in the table. If they differ, a descriptor may be open without
/// being in the table.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread is inside an operation of keymill's: files that SQLite opens are then keymill's.
    static IN_KEYMILL: Cell<bool> = const { Cell::new(false) };
    /// EMFILE or ENFILE, if SQLite found no free descriptor since this thread began its operation.
    static SHORTAGE: Cell<Option<c_int>> = const { Cell::new(None) };
}

struct DescriptorTable {
    /// The process in which `locks` were opened; 0: none yet.
    process: u32,
    /// Every descriptor that this copy of SQLite has open.
    open: BTreeMap<RawFd, Descriptor>,
    /// The descriptor that takes an inode's locks; ends with the inode's last one in `open`.
    locks: BTreeMap<Inode, Lock>,
    /// Closed for SQLite, and kept open because of a foreign descriptor.
    kept: Vec<(RawFd, Inode)>,
    /// Opened by keymill without SQLite; with the database whose locks this descriptor holds.
    known: Vec<(RawFd, Option<Descriptor>)>,
    /// Databases with a descriptor that the program has closed, and that descriptor. For the rest of this process's
    /// life: SQLite's state of the file is invalid.
    closed: BTreeMap<Inode, RawFd>,
}

#[derive(Clone, Copy)]
struct Descriptor {
    inode: Inode,
    /// The database to which the file belongs.
    database: Inode,
    /// Opened by keymill.
    keymill: bool,
    /// Opened by keymill, and a file that SQLite locks.
    ours: bool,
}

#[derive(Clone, Copy)]
struct Lock {
    fd: RawFd,
    database: Inode,
}

fn identity(path: &Path) -> Option<Inode> {
    files::identity(path).ok()
}

/// SQLite creates a new file with keymill's mode, see [`private`].
pub(crate) fn create(_path: &Path) {}

/// Runs `work`; files that SQLite opens in it on this thread are keymill's.
pub(crate) fn in_keymill<T>(work: impl FnOnce() -> T) -> T {
    struct Leave(bool);
    impl Drop for Leave {
        fn drop(&mut self) {
            IN_KEYMILL.set(self.0);
        }
    }
    let _leave = Leave(IN_KEYMILL.replace(true));
    SHORTAGE.set(None);
    work()
}

/// Who has no further descriptor, if SQLite found none in this thread's operation.
pub(crate) fn shortage() -> Option<Shortage> {
    SHORTAGE.get().map(|error| if error == libc::ENFILE { Shortage::Machine } else { Shortage::Process })
}

/// A descriptor of keymill's on this database, its log or its locks, that the program has closed.
pub(crate) fn closed(database: Inode) -> Option<RawFd> {
    let mut table = table();
    table.look_for_closed(database);
    table.closed.get(&database).copied()
}

/// Replaces SQLite's system calls, once in a process's life. If that fails, SQLite works with its own calls.
///
/// No thread may fork meanwhile: the child would have an installation that never ends, and every operation there would wait for
/// it.
pub(crate) fn install() {
    INSTALLED.get_or_init(|| {
        if let Some(calls) = present_calls() {
            replace(CALLS.get_or_init(|| calls));
        }
    });
}

fn present_calls() -> Option<Calls> {
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
    let get = unsafe { (*vfs).xGetSystemCall? };
    let call = |name: &CStr| {
        // SAFETY: the VFS is a static object, and the name ends with NUL.
        unsafe { get(vfs, name.as_ptr()) }
    };
    let (open, close, control) = (call(c"open")?, call(c"close")?, call(c"fcntl")?);
    let (write, read, map) = (call(c"write")?, call(c"read")?, call(c"mmap")?);
    let (truncate, stat) = (call(c"ftruncate")?, call(c"fstat")?);
    // SAFETY: SQLite calls each as a function of this type (`osOpen`, `osClose`, `osFcntl` and so on of os_unix.c).
    Some(unsafe {
        Calls {
            vfs: vfs as usize,
            open: std::mem::transmute::<AnyCall, OpenCall>(open),
            close: std::mem::transmute::<AnyCall, CloseCall>(close),
            control: std::mem::transmute::<AnyCall, ControlCall>(control),
            write: std::mem::transmute::<AnyCall, WriteCall>(write),
            read: std::mem::transmute::<AnyCall, ReadCall>(read),
            truncate: std::mem::transmute::<AnyCall, TruncateCall>(truncate),
            stat: std::mem::transmute::<AnyCall, StatCall>(stat),
            map: std::mem::transmute::<AnyCall, MapCall>(map),
        }
    })
}

fn replace(calls: &Calls) {
    let vfs = calls.vfs as *mut ffi::sqlite3_vfs;
    // SAFETY: SQLite's own VFS is a static object; `present_calls` has found it.
    let Some(set) = (unsafe { (*vfs).xSetSystemCall }) else { return };
    // SAFETY: SQLite casts each back to its own type before the call.
    let ours = unsafe {
        [
            (c"open", std::mem::transmute::<OpenCall, AnyCall>(open)),
            (c"close", std::mem::transmute::<CloseCall, AnyCall>(close)),
            (c"fcntl", std::mem::transmute::<ControlCall, AnyCall>(control)),
            (c"write", std::mem::transmute::<WriteCall, AnyCall>(write)),
            (c"read", std::mem::transmute::<ReadCall, AnyCall>(read)),
            (c"ftruncate", std::mem::transmute::<TruncateCall, AnyCall>(truncate)),
            (c"fstat", std::mem::transmute::<StatCall, AnyCall>(stat)),
            (c"mmap", std::mem::transmute::<MapCall, AnyCall>(map)),
        ]
    };
    for (name, call) in ours {
        // SAFETY: the name ends with NUL, and the function lives as long as the process.
        unsafe { set(vfs, name.as_ptr(), Some(call)) };
    }
}

/// A descriptor that keymill opened without SQLite for this database's locks, and never closes.
pub(crate) fn know(file: &File, database: Inode) {
    let fd = file.as_raw_fd();
    let descriptor =
        inode_of(fd).map(|(inode, _)| Descriptor { inode, database, keymill: true, ours: false });
    table().known.push((fd, descriptor));
}

/// In the child, right after a fork: closes the copies of kept descriptors. The parent uses those again, and a lock that it
/// takes would live as long as a copy. The child has no locks yet that closing could drop.
pub(crate) fn in_forked_child() {
    // Another thread of the parent may have held it at the fork: then `renew` finds the copies.
    let Ok(mut table) = TABLE.try_lock() else { return };
    for (fd, inode) in table.kept.drain(..) {
        close_ours(fd, inode);
    }
}

/// A descriptor of this process on one of these files, which are a database and those that SQLite keeps beside it, that another
/// SQLite library opened.
pub(crate) fn foreign(files: &[PathBuf]) -> Option<RawFd> {
    CALLS.get()?;
    let inodes: Vec<Inode> = files.iter().filter_map(|file| identity(file)).collect();
    let mut table = table();
    table.close_deleted();
    if inodes.is_empty() {
        return None;
    }
    // ordering: Acquire on both pairs with `ChangeInProgress`: descriptors opened before the scan are in the table, and those
    // opened after it do not count as foreign.
    let done = DONE.load(Ordering::Acquire);
    let found = table.foreign(&inodes);
    if found.is_some() {
        return found.filter(|_| BEGUN.load(Ordering::Acquire) == done);
    }
    let kept = std::mem::take(&mut table.kept);
    let (free, kept) = kept.into_iter().partition::<Vec<_>, _>(|(_, inode)| inodes.contains(inode));
    table.kept = kept;
    for (fd, inode) in free {
        close_ours(fd, inode);
    }
    None
}

/// An open or a close in progress.
struct ChangeInProgress;

impl ChangeInProgress {
    fn begin() -> ChangeInProgress {
        // ordering: Release pairs with `foreign`'s Acquire.
        BEGUN.fetch_add(1, Ordering::Release);
        ChangeInProgress
    }
}

impl Drop for ChangeInProgress {
    fn drop(&mut self) {
        // ordering: Release pairs with `foreign`'s Acquire: the table is up to date.
        DONE.fetch_add(1, Ordering::Release);
    }
}

fn table() -> MutexGuard<'static, DescriptorTable> {
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if table.process != process {
        if table.process != 0 {
            table.renew();
        }
        table.process = process;
    }
    table
}

impl DescriptorTable {
    /// In a forked or cloned child: an inherited descriptor shares its locks with the parent's.
    fn renew(&mut self) {
        // The child may have closed a number already, and a file of its own may have it now.
        self.kept.retain(|(fd, inode)| inode_is(*fd, *inode));
        self.known.extend(self.kept.drain(..).map(|(fd, _)| (fd, None)));
        for (inode, lock) in std::mem::take(&mut self.locks) {
            if inode_is(lock.fd, inode) {
                if let Ok(Some(fd)) = self.reopened(lock.fd) {
                    self.locks.insert(inode, Lock { fd, ..lock });
                }
                close_ours(lock.fd, inode);
            } else {
                self.closed.insert(lock.database, lock.fd);
            }
        }
    }

    fn look_for_closed(&mut self, database: Inode) {
        let descriptors = self.open.iter().map(|(fd, descriptor)| (*fd, *descriptor));
        let known = self.known.iter().filter_map(|(fd, descriptor)| Some((*fd, (*descriptor)?)));
        let opened = descriptors.chain(known).filter(|(_, descriptor)| descriptor.keymill);
        let opened = opened.map(|(fd, descriptor)| (fd, descriptor.inode, descriptor.database));
        let locks = self.locks.iter().map(|(inode, lock)| (lock.fd, *inode, lock.database));
        let changed = opened
            .chain(locks)
            .find(|(fd, inode, known_database)| *known_database == database && !inode_is(*fd, *inode));
        if let Some((fd, _, _)) = changed {
            self.closed.entry(database).or_insert(fd);
        }
    }

    /// Whether SQLite may use this descriptor: `false` if it was keymill's and the program has closed it.
    fn is_usable(&mut self, fd: RawFd) -> bool {
        let Some(Descriptor { inode, database, keymill: true, .. }) = self.open.get(&fd).copied() else {
            return true;
        };
        if !inode_is(fd, inode) {
            self.closed.entry(database).or_insert(fd);
        }
        !self.closed.contains_key(&database)
    }

    /// Moves a new descriptor to a number from `least` on, if the limit allows it. It has to move if the table already
    /// has its number: the program has closed that descriptor, and its connection may still use the number. The error
    /// is the system's.
    fn renumbered(&mut self, fd: RawFd, least: RawFd) -> Result<RawFd, c_int> {
        let opened = self.open.get(&fd).filter(|descriptor| descriptor.keymill);
        let locks = self.locks.values().filter(|lock| lock.fd == fd).map(|lock| lock.database);
        let closed: Vec<Inode> =
            opened.map(|descriptor| descriptor.database).into_iter().chain(locks).collect();
        for database in &closed {
            self.closed.entry(*database).or_insert(fd);
        }
        if closed.is_empty() && fd >= least {
            return Ok(fd);
        }
        let highest = self.locks.values().map(|lock| lock.fd).chain(self.open.keys().copied()).max();
        let above = highest.map_or(0, |highest| highest + 1).max(fd + 1);
        // SAFETY: the descriptor was just opened, and is not used anywhere else.
        let mut fresh = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least.max(above)) };
        if fresh < 0 {
            if closed.is_empty() {
                return Ok(fd);
            }
            // SAFETY: as above. The limit on descriptors may be low.
            fresh = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, above) };
        }
        let error = if fresh < 0 { errno() } else { 0 };
        // SAFETY: as above; nothing has used it yet.
        drop(unsafe { File::from_raw_fd(fd) });
        if fresh < 0 { Err(error) } else { Ok(fresh) }
    }

    /// A kept descriptor of this file, opened for the same access.
    fn reused(&mut self, inode: Inode, access: c_int) -> Option<RawFd> {
        let fits = |(fd, kept): &(RawFd, Inode)| {
            // SAFETY: asks for flags; a closed descriptor is an error.
            let flags = unsafe { libc::fcntl(*fd, libc::F_GETFL) };
            *kept == inode && inode_is(*fd, inode) && flags & libc::O_ACCMODE == access & libc::O_ACCMODE
        };
        let at = self.kept.iter().position(fits)?;
        Some(self.kept.swap_remove(at).0)
    }

    /// Opens the same file again, with a descriptor that can take locks of its own. `None`: the kernel has no such
    /// locks. The error is the system's: no descriptor is free.
    fn reopened(&mut self, fd: RawFd) -> Result<Option<RawFd>, c_int> {
        let inode = inode_of(fd).map(|(inode, _)| inode);
        if let Some(kept) = inode.and_then(|inode| self.reused(inode, libc::O_RDWR)) {
            return Ok(Some(kept));
        }
        let path = format!("/proc/thread-self/fd/{fd}");
        let opened = File::options().read(true).write(true).open(&path).or_else(|_| File::open(&path));
        let fresh = match opened {
            Ok(file) => self.renumbered(file.into_raw_fd(), 0)?,
            Err(error) => match error.raw_os_error() {
                Some(full @ (libc::EMFILE | libc::ENFILE)) => return Err(full),
                _ => return Ok(None),
            },
        };
        let mut lock = whole_file(libc::F_WRLCK);
        // SAFETY: the descriptor is open and `lock` outlives the call. A kernel without such locks answers EINVAL.
        let refused = unsafe { libc::fcntl(fresh, libc::F_OFD_GETLK, &raw mut lock) };
        let same = inode_of(fresh) == inode_of(fd);
        if same && refused == 0 && fresh > 2 {
            return Ok(Some(fresh));
        }
        // It may not become standard output, which others write to. Nor is it closed again: that would drop a foreign
        // library's locks.
        self.known.push((fresh, None));
        Ok(None)
    }

    /// Adds a descriptor that SQLite has opened. Its number may change; the error is the system's.
    fn enter(&mut self, fd: RawFd, path: &CStr) -> Result<RawFd, c_int> {
        let name = path.to_bytes();
        // The log is not locked, so one descriptor of it can be closed.
        let least = if IN_KEYMILL.get() && name.ends_with(b"-wal") { HIGH } else { 0 };
        let fd = self.renumbered(fd, least)?;
        let Some((inode, is_file)) = inode_of(fd) else { return Ok(fd) };
        let locked = is_file && !name.ends_with(b"-wal") && !name.ends_with(b"-journal");
        let keymill = IN_KEYMILL.get();
        let ours = locked && keymill;
        let beside: [&[u8]; 3] = [b"-wal", b"-shm", b"-journal"];
        let database = beside
            .iter()
            .find_map(|suffix| name.strip_suffix(*suffix))
            .and_then(|name| identity(Path::new(OsStr::from_bytes(name))))
            .unwrap_or(inode);
        // If this SQLite has already opened the file for the program, its locks stay as they are.
        if ours && !self.open.values().any(|other| other.inode == inode) {
            match self.reopened(fd) {
                Ok(Some(fd)) => drop(self.locks.insert(inode, Lock { fd, database })),
                Ok(None) => {}
                Err(error) => {
                    close_ours(fd, inode);
                    return Err(error);
                }
            }
        }
        self.open.insert(fd, Descriptor { inode, database, keymill, ours });
        Ok(fd)
    }

    /// Removes a descriptor; `true`: it has to stay open.
    fn leave(&mut self, fd: RawFd) -> bool {
        if !self.is_usable(fd) {
            // The number is no longer keymill's to close; it stays in the table as a former one.
            return true;
        }
        let Some(Descriptor { inode, ours, .. }) = self.open.remove(&fd) else { return false };
        // This descriptor and the others of its inode are not foreign.
        self.known.push((fd, None));
        let keep = ours && self.foreign(&[inode]).is_some();
        self.known.pop();
        let is_last = !self.open.values().any(|other| other.inode == inode);
        if let Some(lock) = self.locks.remove(&inode) {
            if !is_last {
                self.locks.insert(inode, lock);
            } else if !inode_is(lock.fd, inode) {
                self.closed.entry(lock.database).or_insert(lock.fd);
            } else if keep {
                unlock(lock.fd);
                self.kept.push((lock.fd, inode));
            } else {
                close_ours(lock.fd, inode);
            }
        }
        if keep {
            self.kept.push((fd, inode));
        }
        keep
    }

    /// Closes kept descriptors of files that are gone: SQLite deletes `-shm` when the last connection closes. No path leads
    /// there, so no other library can begin to use one. A library that still does is left alone.
    fn close_deleted(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        let (gone, kept): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(fd, _)| is_deleted(*fd));
        let inodes: Vec<Inode> = gone.iter().map(|(_, inode)| *inode).collect();
        // They count as known while the others are looked for.
        self.kept = kept.iter().chain(&gone).copied().collect();
        if inodes.is_empty() || self.foreign(&inodes).is_some() {
            return;
        }
        self.kept = kept;
        for (fd, inode) in gone {
            close_ours(fd, inode);
        }
    }

    fn foreign(&self, inodes: &[Inode]) -> Option<RawFd> {
        // A thread may have descriptors of its own.
        let listed = std::fs::read_dir("/proc/thread-self/fd").ok()?;
        listed
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .find(|fd| !self.knows(*fd) && is_on(*fd, inodes) && holds_locks(*fd))
    }

    fn knows(&self, fd: RawFd) -> bool {
        self.open.contains_key(&fd)
            || self.known.iter().any(|(known, _)| *known == fd)
            || self.kept.iter().any(|(kept, _)| *kept == fd)
            || self.locks.values().any(|lock| lock.fd == fd)
    }
}

fn status(fd: RawFd) -> Option<libc::stat> {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `found` is a stat to be written and outlives the call; a closed descriptor is an error.
    if unsafe { libc::fstat(fd, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zero is a valid value of every field, and the call has succeeded.
    Some(unsafe { found.assume_init() })
}

/// A descriptor's inode, and whether it is a regular file.
fn inode_of(fd: RawFd) -> Option<(Inode, bool)> {
    status(fd).map(|file| ((file.st_dev, file.st_ino), file.st_mode & libc::S_IFMT == libc::S_IFREG))
}

/// Whether the descriptor's file has no name any more.
fn is_deleted(fd: RawFd) -> bool {
    status(fd).is_some_and(|file| file.st_nlink == 0)
}

fn inode_is(fd: RawFd, inode: Inode) -> bool {
    inode_of(fd).is_some_and(|(found, _)| found == inode)
}

/// Closes a descriptor of the table, unless the program has closed it and opened another file.
fn close_ours(fd: RawFd, inode: Inode) {
    if inode_is(fd, inode) {
        // SAFETY: the descriptor is the table's, which has just taken it out.
        drop(unsafe { File::from_raw_fd(fd) });
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

fn set_errno(error: c_int) {
    // SAFETY: the pointer is to this thread's own variable.
    unsafe { *libc::__errno_location() = error };
}

fn is_on(fd: RawFd, inodes: &[Inode]) -> bool {
    inode_of(fd).is_some_and(|(inode, _)| inodes.contains(&inode))
}

/// Excludes `O_PATH` descriptors: closing one drops no locks.
fn holds_locks(fd: RawFd) -> bool {
    // SAFETY: asks for flags; a closed descriptor is an error.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_PATH == 0
}

fn whole_file(kind: c_int) -> libc::flock {
    // SAFETY: zero is a valid value of every field.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock
}

fn unlock(fd: RawFd) {
    let lock = whole_file(libc::F_UNLCK);
    // SAFETY: the descriptor is open and `lock` outlives the call.
    unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) };
}

unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    let Some(calls) = CALLS.get() else { return -1 };
    let _change = ChangeInProgress::begin();
    // SAFETY: SQLite's paths end with NUL and outlive the call.
    let name = unsafe { CStr::from_ptr(path) };
    let kept = (IN_KEYMILL.get() && flags & libc::O_EXCL == 0)
        .then(|| identity(Path::new(OsStr::from_bytes(name.to_bytes()))))
        .flatten()
        .and_then(|inode| table().reused(inode, flags));
    // SAFETY: the arguments are SQLite's own.
    let fd = kept.unwrap_or_else(|| unsafe { (calls.open)(path, flags, private(name, mode)) });
    let entered = if fd < 0 { Err(errno()) } else { table().enter(fd, name) };
    entered.unwrap_or_else(|error| {
        if matches!(error, libc::EMFILE | libc::ENFILE) {
            SHORTAGE.set(Some(error));
        }
        set_errno(error);
        -1
    })
}

/// The mode with which a file is created. A new database of keymill's is its user's alone; the files beside it get the
/// database's own mode from SQLite, whatever it is by then.
fn private(name: &CStr, mode: c_int) -> c_int {
    let beside: [&[u8]; 3] = [b"-wal", b"-shm", b"-journal"];
    let is_beside = beside.iter().any(|suffix| name.to_bytes().ends_with(suffix));
    if IN_KEYMILL.get() && !is_beside { mode & 0o600 } else { mode }
}

/// Whether SQLite may use this descriptor; otherwise the call fails as on a closed descriptor.
fn usable(fd: c_int) -> bool {
    let usable = table().is_usable(fd);
    if !usable {
        set_errno(libc::EBADF);
    }
    usable
}

unsafe extern "C" fn write(fd: c_int, from: *const c_void, len: usize) -> isize {
    match CALLS.get() {
        // SAFETY: the arguments are SQLite's own.
        Some(calls) if usable(fd) => unsafe { (calls.write)(fd, from, len) },
        _ => -1,
    }
}

unsafe extern "C" fn read(fd: c_int, to: *mut c_void, len: usize) -> isize {
    match CALLS.get() {
        // SAFETY: the arguments are SQLite's own.
        Some(calls) if usable(fd) => unsafe { (calls.read)(fd, to, len) },
        _ => -1,
    }
}

unsafe extern "C" fn truncate(fd: c_int, len: i64) -> c_int {
    match CALLS.get() {
        // SAFETY: the arguments are SQLite's own.
        Some(calls) if usable(fd) => unsafe { (calls.truncate)(fd, len) },
        _ => -1,
    }
}

unsafe extern "C" fn stat(fd: c_int, to: *mut libc::stat) -> c_int {
    match CALLS.get() {
        // SAFETY: the arguments are SQLite's own.
        Some(calls) if usable(fd) => unsafe { (calls.stat)(fd, to) },
        _ => -1,
    }
}

unsafe extern "C" fn map(
    at: *mut c_void,
    len: usize,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: i64,
) -> *mut c_void {
    match CALLS.get() {
        // SAFETY: the arguments are SQLite's own.
        Some(calls) if usable(fd) => unsafe { (calls.map)(at, len, protection, flags, fd, offset) },
        _ => libc::MAP_FAILED,
    }
}

unsafe extern "C" fn close(fd: c_int) -> c_int {
    let Some(calls) = CALLS.get() else { return -1 };
    let _change = ChangeInProgress::begin();
    if table().leave(fd) {
        return 0;
    }
    // SAFETY: the argument is SQLite's own.
    unsafe { (calls.close)(fd) }
}

unsafe extern "C" fn control(fd: c_int, command: c_int, argument: usize) -> c_int {
    let Some(calls) = CALLS.get() else { return -1 };
    let own = match command {
        libc::F_SETLK => libc::F_OFD_SETLK,
        libc::F_SETLKW => libc::F_OFD_SETLKW,
        libc::F_GETLK => libc::F_OFD_GETLK,
        // SAFETY: the arguments are SQLite's own.
        _ => return unsafe { (calls.control)(fd, command, argument) },
    };
    let locks = {
        let mut table = table();
        if !table.is_usable(fd) {
            set_errno(libc::EBADF);
            return -1;
        }
        let inode = table.open.get(&fd).map(|descriptor| descriptor.inode);
        match inode.and_then(|inode| Some((inode, *table.locks.get(&inode)?))) {
            Some((inode, lock)) if !inode_is(lock.fd, inode) => {
                table.closed.entry(lock.database).or_insert(lock.fd);
                set_errno(libc::EBADF);
                return -1;
            }
            found => found.map(|(_, lock)| lock.fd),
        }
    };
    let Some(locks) = locks else {
        // SAFETY: the arguments are SQLite's own.
        return unsafe { (calls.control)(fd, command, argument) };
    };
    let given = argument as *mut libc::flock;
    let mut lock = whole_file(libc::F_UNLCK);
    // SAFETY: for these commands the argument is a pointer to SQLite's own `flock`. Its `l_pid`, which SQLite leaves
    // unset and which has to be 0 here, is not read.
    unsafe {
        lock.l_type = (*given).l_type;
        lock.l_whence = (*given).l_whence;
        lock.l_start = (*given).l_start;
        lock.l_len = (*given).l_len;
    }
    // SAFETY: `locks` is open as long as `fd` is, which SQLite is using; `lock` outlives the call.
    let answer = unsafe { libc::fcntl(locks, own, &raw mut lock) };
    if answer == 0 && command == libc::F_GETLK {
        // SAFETY: as above; it is SQLite's to be written.
        unsafe { *given = lock };
    }
    answer
}
