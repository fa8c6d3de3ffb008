//! The descriptors through which this copy of SQLite has files open, and locks that another copy cannot drop. (floor 2)
//!
//! SQLite locks with `fcntl`, and POSIX locks belong to the process, not to the descriptor. When a second SQLite library in
//! the same process (Python's `sqlite3`, better-sqlite3, sqlite-jdbc) closes the file, the first one's locks are gone without
//! a word, and while both have it open the locks of one do not hold off the other (sqlite.org/howtocorrupt.html §2.2.1).
//! Numbers came twice by that. Three measures:
//!
//! * keymill's files are locked with open file description locks (`F_OFD_SETLK`, Linux 3.15): same bytes, same conflicts
//!   with other processes, but they end with the descriptor that took them, and hold off every other descriptor, of this
//!   process too. SQLite counts a process's locks per inode, so one descriptor here takes all locks of an inode. SQLite lets
//!   its system calls be replaced (`xSetSystemCall`); calls for files that are not keymill's are passed on unchanged.
//! * `open` and `close` pass through here too, so it is known which descriptors are this SQLite's. Any other descriptor of
//!   this process on the same file belongs to a second library and is reported by [`foreign`].
//! * A descriptor of ours is not closed while there is a foreign one: closing it would drop the other library's locks.

use std::path::{Path, PathBuf};

pub(super) use imp::{foreign, in_keymill, install, know};

/// The files that SQLite opens for a database, the database itself first. `database` is without symbolic links.
pub(super) fn files_of(database: &Path) -> [PathBuf; 4] {
    ["", "-wal", "-shm", "-journal"].map(|suffix| {
        let mut file = database.as_os_str().to_owned();
        file.push(suffix);
        PathBuf::from(file)
    })
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod imp {
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::ffi::{CStr, c_char, c_int};
    use std::fs::File;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, RawFd};
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use once_cell::sync::OnceCell;
    use rusqlite::ffi;

    use super::super::file::identity;
    use super::super::gate::Pass;

    /// Device and number.
    type Inode = (u64, u64);

    type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
    type Close = unsafe extern "C" fn(c_int) -> c_int;
    /// Variadic in C. On 64-bit Linux an integer or a pointer is passed to both kinds of function in the same way.
    type Control = unsafe extern "C" fn(c_int, c_int, usize) -> c_int;
    type Any = unsafe extern "C" fn();

    /// SQLite's system calls as they were before ours.
    #[derive(Clone, Copy)]
    struct Calls {
        vfs: usize,
        open: Open,
        close: Close,
        control: Control,
    }

    static CALLS: OnceCell<Calls> = OnceCell::new();
    static INSTALLED: OnceCell<()> = OnceCell::new();

    /// Never held while SQLite is called.
    static TABLE: Mutex<Table> = Mutex::new(Table {
        process: 0,
        open: BTreeMap::new(),
        locks: BTreeMap::new(),
        kept: Vec::new(),
        known: Vec::new(),
    });

    /// Opens and closes that have begun, and those that the table knows of. Where the two differ, a descriptor may be open and
    /// not in the table.
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    static DONE: AtomicU64 = AtomicU64::new(0);

    thread_local! {
        /// This thread is inside an operation of keymill's: what SQLite opens is keymill's file.
        static IN_KEYMILL: Cell<bool> = const { Cell::new(false) };
    }

    struct Table {
        /// The process in which `locks` were opened; 0: none yet.
        process: u32,
        /// Every descriptor that this copy of SQLite has open.
        open: BTreeMap<RawFd, Descriptor>,
        /// The descriptor that takes an inode's locks; ends with the inode's last one in `open`.
        locks: BTreeMap<Inode, File>,
        /// Closed as far as SQLite knows, and open because of a foreign descriptor.
        kept: Vec<(RawFd, Inode)>,
        /// Opened by keymill without SQLite.
        known: Vec<RawFd>,
    }

    struct Descriptor {
        inode: Inode,
        /// Opened by keymill, and a file that SQLite locks.
        ours: bool,
    }

    /// Runs `work`; files that SQLite opens in it on this thread are keymill's.
    pub(in super::super) fn in_keymill<T>(work: impl FnOnce() -> T) -> T {
        struct Leave(bool);
        impl Drop for Leave {
            fn drop(&mut self) {
                IN_KEYMILL.set(self.0);
            }
        }
        let _leave = Leave(IN_KEYMILL.replace(true));
        work()
    }

    /// Replaces SQLite's system calls, once in a process's life. Without them everything works as SQLite does by itself.
    ///
    /// Only for who holds a [`Pass`]: a fork in the middle of this would leave the child a beginning that never ends, and every
    /// operation there would wait for it.
    pub(in super::super) fn install(_pass: &Pass) {
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
        // SAFETY: SQLite calls the three as functions of these types (`osOpen`, `osClose`, `osFcntl` of os_unix.c).
        Some(unsafe {
            Calls {
                vfs: vfs as usize,
                open: std::mem::transmute::<Any, Open>(open),
                close: std::mem::transmute::<Any, Close>(close),
                control: std::mem::transmute::<Any, Control>(control),
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
                (c"open", std::mem::transmute::<Open, Any>(open)),
                (c"close", std::mem::transmute::<Close, Any>(close)),
                (c"fcntl", std::mem::transmute::<Control, Any>(control)),
            ]
        };
        for (name, call) in ours {
            // SAFETY: the name ends with NUL, and the function lives as long as the process.
            unsafe { set(vfs, name.as_ptr(), Some(call)) };
        }
    }

    /// A descriptor that keymill opened without SQLite, and never closes.
    pub(in super::super) fn know(file: &File) {
        table().known.push(file.as_raw_fd());
    }

    /// A descriptor of this process on the database, or on a file that SQLite keeps beside it, which is not this SQLite's.
    pub(in super::super) fn foreign(database: &Path) -> Option<RawFd> {
        CALLS.get()?;
        let inodes: Vec<Inode> = super::files_of(database).iter().filter_map(|file| identity(file)).collect();
        if inodes.is_empty() {
            return None;
        }
        let mut table = table();
        // ordering: Acquire on both pairs with `Change`: what is done before the scan stands in the table, and what is begun
        // after it is not taken for foreign.
        let done = DONE.load(Ordering::Acquire);
        let found = table.foreign(&inodes);
        if found.is_some() {
            return found.filter(|_| BEGUN.load(Ordering::Acquire) == done);
        }
        let kept = std::mem::take(&mut table.kept);
        let (free, kept) = kept.into_iter().partition::<Vec<_>, _>(|(_, inode)| inodes.contains(inode));
        table.kept = kept;
        for (fd, _) in free {
            // SAFETY: the descriptor is only in `kept`, and nobody but this table uses it.
            drop(unsafe { File::from_raw_fd(fd) });
        }
        None
    }

    /// An open or a close in progress.
    struct Change;

    impl Change {
        fn begin() -> Change {
            // ordering: Release pairs with `foreign`'s Acquire.
            BEGUN.fetch_add(1, Ordering::Release);
            Change
        }
    }

    impl Drop for Change {
        fn drop(&mut self) {
            // ordering: Release pairs with `foreign`'s Acquire: the table is up to date.
            DONE.fetch_add(1, Ordering::Release);
        }
    }

    fn table() -> MutexGuard<'static, Table> {
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

    impl Table {
        /// In a forked or cloned child: a descriptor that was inherited shares its locks with the parent's.
        fn renew(&mut self) {
            self.locks.retain(|_, file| match reopened(file.as_raw_fd(), &mut self.known) {
                Some(fresh) => {
                    *file = fresh;
                    true
                }
                None => false,
            });
        }

        fn enter(&mut self, fd: RawFd, path: &CStr) {
            let Some((inode, is_file)) = inode_of(fd) else { return };
            let name = path.to_bytes();
            let locked = is_file && !name.ends_with(b"-wal") && !name.ends_with(b"-journal");
            let ours = locked && IN_KEYMILL.get();
            // Where this SQLite has the file open already, for the program, its locks stay what they are.
            if ours
                && !self.open.values().any(|other| other.inode == inode)
                && let Some(file) = reopened(fd, &mut self.known)
            {
                self.locks.insert(inode, file);
            }
            self.open.insert(fd, Descriptor { inode, ours });
        }

        /// Takes a descriptor out; `true`: it is to stay open.
        fn leave(&mut self, fd: RawFd) -> bool {
            let Some(Descriptor { inode, ours }) = self.open.remove(&fd) else { return false };
            // This one and those of its inode are not foreign.
            self.known.push(fd);
            let keep = ours && self.foreign(&[inode]).is_some();
            self.known.pop();
            let is_last = !self.open.values().any(|other| other.inode == inode);
            if let Some(file) = self.locks.remove(&inode) {
                if !is_last {
                    self.locks.insert(inode, file);
                } else if keep {
                    unlock(&file);
                    self.kept.push((file.into_raw_fd(), inode));
                }
            }
            if keep {
                self.kept.push((fd, inode));
            }
            keep
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
                || self.known.contains(&fd)
                || self.kept.iter().any(|(kept, _)| *kept == fd)
                || self.locks.values().any(|file| file.as_raw_fd() == fd)
        }
    }

    /// A descriptor's inode, and whether it is a regular file.
    fn inode_of(fd: RawFd) -> Option<(Inode, bool)> {
        let mut found = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: `found` is a stat to be written and outlives the call; a closed descriptor is an error.
        if unsafe { libc::fstat(fd, found.as_mut_ptr()) } != 0 {
            return None;
        }
        // SAFETY: zero is a valid value of every field, and the call has succeeded.
        let found = unsafe { found.assume_init() };
        Some(((found.st_dev, found.st_ino), found.st_mode & libc::S_IFMT == libc::S_IFREG))
    }

    fn is_on(fd: RawFd, inodes: &[Inode]) -> bool {
        inode_of(fd).is_some_and(|(inode, _)| inodes.contains(&inode))
    }

    /// Not one that only stands for a path: closing such a descriptor drops no locks.
    fn holds_locks(fd: RawFd) -> bool {
        // SAFETY: asks for flags; a closed descriptor is an error.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        flags >= 0 && flags & libc::O_PATH == 0
    }

    /// The same file once more, by a descriptor that shares nothing with this one and can take locks of its own.
    fn reopened(fd: RawFd, known: &mut Vec<RawFd>) -> Option<File> {
        let path = format!("/proc/thread-self/fd/{fd}");
        let file = File::options()
            .read(true)
            .write(true)
            .open(&path)
            .or_else(|_| File::open(&path))
            .ok()
            .filter(|file| inode_of(file.as_raw_fd()) == inode_of(fd))?;
        let mut lock = whole_file(libc::F_WRLCK);
        // SAFETY: the descriptor is open and `lock` outlives the call. A kernel without such locks answers EINVAL.
        let refused = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
        if refused == 0 && file.as_raw_fd() > 2 {
            return Some(file);
        }
        // Not as standard output, which others write to. Nor closed again: that would drop a foreign library's locks.
        known.push(file.into_raw_fd());
        None
    }

    fn whole_file(kind: c_int) -> libc::flock {
        // SAFETY: zero is a valid value of every field.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock
    }

    fn unlock(file: &File) {
        let lock = whole_file(libc::F_UNLCK);
        // SAFETY: the descriptor is open and `lock` outlives the call.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    }

    unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
        let Some(calls) = CALLS.get() else { return -1 };
        let _change = Change::begin();
        // SAFETY: the arguments are SQLite's own.
        let fd = unsafe { (calls.open)(path, flags, mode) };
        if fd >= 0 {
            // SAFETY: SQLite's paths end with NUL and outlive the call.
            table().enter(fd, unsafe { CStr::from_ptr(path) });
        }
        fd
    }

    unsafe extern "C" fn close(fd: c_int) -> c_int {
        let Some(calls) = CALLS.get() else { return -1 };
        let _change = Change::begin();
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
            let table = table();
            let inode = table.open.get(&fd).map(|descriptor| descriptor.inode);
            inode.and_then(|inode| table.locks.get(&inode)).map(AsRawFd::as_raw_fd)
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
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod imp {
    use std::fs::File;
    use std::path::Path;

    pub(in super::super) fn in_keymill<T>(work: impl FnOnce() -> T) -> T {
        work()
    }

    pub(in super::super) fn install(_pass: &super::super::gate::Pass) {}

    pub(in super::super) fn know(_file: &File) {}

    pub(in super::super) fn foreign(database: &Path) -> Option<i32> {
        // Nothing lists a process's descriptors everywhere.
        let _ = super::files_of(database);
        None
    }
}
