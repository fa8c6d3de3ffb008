//! The file: its identity and owner, its file system, the busy deadline, and the meaning of SQLite's errors.
//!

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OptionalExtension};

use super::descriptors;
use crate::request::reader::READER_TABLE;
use crate::store::{Fault, FaultKind, Remedy, Scheme};

/// `PRAGMA application_id` of files that keymill made: "kmil".
pub(super) const APPLICATION_ID: i32 = 0x6b6d_696c;

thread_local! {
    /// Of the operation that this thread has in progress: when it began to wait, and when it ends.
    static WAIT: Cell<Option<(Instant, Instant)>> = const { Cell::new(None) };
}

/// Begins an operation of this thread, which may wait this long for other processes.
pub(super) fn begin_wait(most: Duration) {
    let now = Instant::now();
    WAIT.set(Some((now, now + most)));
}

/// Waits a little; `false` when there is no time left. SQLite calls the busy handler on the thread that began the operation.
pub(super) fn pause() -> bool {
    let now = Instant::now();
    let Some((began, _)) = WAIT.get().filter(|(_, ends)| now < *ends) else { return false };
    // A random pause, so that no process is always last. The opposite of a back-off: a process that has waited long
    // asks more often, so that newcomers do not overtake it for ever.
    let longest = if now - began < Duration::from_millis(10) { 1100 } else { 300 };
    std::thread::sleep(Duration::from_micros(fastrand::u64(50..longest)));
    true
}

/// The path of a file's write-ahead log.
pub(super) fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}

/// A path without symbolic links: SQLite keeps the log beside their target. The file need not exist yet.
pub(super) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| {
        match (path.parent().map(std::fs::canonicalize), path.file_name()) {
            (Some(Ok(folder)), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        }
    })
}

/// Which program a file belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileOwner {
    /// It has keymill's `application_id`.
    Keymill,
    /// It has no `application_id`, and no tables but keymill's: new, made by hand, or by a keymill that set none.
    Unmarked,
    /// Another program's, with the reason as the end of a sentence about the file.
    Other(String),
}

/// A table that shows a file without `application_id` to be another program's: not `ours`, not named as a scheme's table
/// usually is, and without the columns of keymill's own tables.
const FOREIGN_TABLE: &str = "SELECT name FROM sqlite_schema AS found WHERE type IN ('table', 'view') \
     AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND lower(name) NOT IN (SELECT value FROM json_each(?1)) AND (SELECT count(*) FROM pragma_table_info(found.name) WHERE lower(name) IN ('name', 'date', 'period', 'next', 'updated_at')) < 4 ORDER BY name LIMIT 1";

/// Finds which program the file belongs to; `table` is the table of one of our sources.
pub(super) fn owner(connection: &Connection, table: Option<&str>) -> rusqlite::Result<FileOwner> {
    let mark: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if mark == APPLICATION_ID {
        return Ok(FileOwner::Keymill);
    }
    if mark != 0 {
        return Ok(FileOwner::Other(format!(
            "is marked as another program's (`PRAGMA application_id` is {mark})"
        )));
    }
    let ours: Vec<String> = Scheme::ALL
        .into_iter()
        .chain([Scheme::Worker, Scheme::Route])
        .map(|scheme| -> &str { scheme.default_table() })
        .chain([READER_TABLE])
        .chain(table)
        .map(|name| format!("\"{}\"", name.to_ascii_lowercase()))
        .collect();
    let foreign: Option<String> = connection
        .query_row(FOREIGN_TABLE, [format!("[{}]", ours.join(","))], |row| row.get(0))
        .optional()?;
    Ok(foreign.map_or(FileOwner::Unmarked, |table| {
        FileOwner::Other(format!("holds table `{table}` of another program"))
    }))
}

/// Refuses a file that is not keymill's, for `init` too.
pub(super) fn refuse_foreign(path: &Path, why: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "`{}` {why}; name a file of keymill's own, such as sqlite:ids.db: two SQLite libraries in one process drop each other's locks on a file they share. A source that has a row in this one begins in the new one at 1: repair it there, above every number issued",
            path.display()
        ),
    )
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed)
    )
}

/// The fault when the process or the machine has no free descriptor.
pub(super) fn no_descriptor(path: &Path) -> Fault {
    let whose = if descriptors::shortage() == Some(libc::ENFILE) { "this machine" } else { "this process" };
    Fault::new(
        FaultKind::Unavailable,
        format!(
            "`{}` cannot be opened: {whose} has no file descriptor left; close files or sockets that are not needed, or raise the limit (`ulimit -n`)",
            path.display()
        ),
    )
}

/// A SQLite error as a [`Fault`].
pub(super) fn fault(path: &Path, error: &rusqlite::Error) -> Fault {
    let file = path.display();
    let Some(code) = error.sqlite_error_code() else {
        return Fault::new(FaultKind::Refused, format!("`{file}`: {error}"));
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    match code {
        _ if is_busy(error) => Fault::new(
            FaultKind::Unavailable,
            format!("`{file}` stayed locked by other processes for too long"),
        ),
        ErrorCode::DiskFull => Fault::new(
            FaultKind::Unavailable,
            format!("the disk of `{file}` is full; make room, nothing was reserved"),
        ),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Fault::new(
            FaultKind::Refused,
            format!("`{file}` cannot be written; make the file and its folder writable for this user"),
        ),
        ErrorCode::CannotOpen if descriptors::shortage().is_some() => no_descriptor(path),
        ErrorCode::CannotOpen if !folder.is_dir() => Fault::new(
            FaultKind::Refused,
            format!("`{file}` cannot be opened: there is no folder `{}`; create it", folder.display()),
        ),
        ErrorCode::CannotOpen => Fault::new(
            FaultKind::Refused,
            format!(
                "`{file}` cannot be opened; make the file and its folder readable and writable for this user"
            ),
        ),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
            Fault::new(FaultKind::Refused, format!("`{file}` is damaged or not a SQLite file ({error})"))
                .with_remedy(Remedy::Repair {
                    first: "restore the file and ",
                    row: None,
                    above: "every number issued",
                    seen: 0,
                })
        }
        ErrorCode::SystemIoFailure => {
            Fault::new(FaultKind::Unavailable, format!("reading or writing `{file}` failed: {error}"))
        }
        _ => Fault::new(FaultKind::Refused, format!("`{file}`: {error}")),
    }
}

pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Creates a new database file for its user alone; on Linux `descriptors` does that as SQLite creates it.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
pub(super) fn create(path: &Path) {
    use std::os::unix::fs::OpenOptionsExt;
    // Another process may have created it first, and SQLite reports every other failure. Nothing holds a lock on a file that
    // is created here.
    drop(std::fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path));
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(super) fn create(_path: &Path) {}

/// What the file's mode lets users do who are neither its owner nor of its group, as the end of a sentence about the file;
/// `None`: nothing, or a folder above it lets none of them through.
pub(super) fn exposed(real: &Path) -> Option<String> {
    let mode = |path: &Path| std::fs::metadata(path).map(|found| found.mode()).ok();
    let file = mode(real)?;
    let reached = real.ancestors().skip(1).all(|folder| mode(folder).is_none_or(|mode| mode & 0o001 != 0));
    if file & 0o006 == 0 || !reached {
        return None;
    }
    Some(format!(
        "has mode {:03o}: {} can hold its locks, so that each reservation waits, {}; `chmod 600`, or `chmod 660` for the users of one group",
        file & 0o777,
        "every user of this machine",
        if file & 0o002 == 0 { "and read it" } else { "and change the numbers in it" },
    ))
}

/// Kinds of file systems that lose or split commits, with the name; a local disk is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileSystem {
    /// Shared by several machines, each of which sees a log of its own.
    Network(&'static str),
    /// Lost when the machine stops.
    Memory(&'static str),
    /// Lost with the container.
    Layer(&'static str),
    /// Unknown: any of these is possible.
    Doubtful(&'static str),
}

#[cfg(target_os = "linux")]
pub(super) fn file_system(path: &Path) -> Option<FileSystem> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `path` ends with NUL and `found` is a statfs to be written; both outlive the call.
    if unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zero is a valid value of every field, and the call has succeeded.
    let kind = unsafe { found.assume_init() }.f_type;
    FILE_SYSTEMS.iter().find(|(number, _)| *number == kind as u32).map(|(_, kind)| *kind)
}

/// Looks up the type number that statfs(2) returns, 32 bits wide whatever the field's type. libc defines those of the
/// kernel's own file systems; the rest are from the kernel's `linux/magic.h` and the list in GNU coreutils' `stat`.
#[cfg(target_os = "linux")]
const FILE_SYSTEMS: &[(u32, FileSystem)] = &[
    (libc::NFS_SUPER_MAGIC as u32, FileSystem::Network("NFS")),
    (libc::SMB_SUPER_MAGIC as u32, FileSystem::Network("SMB")),
    (0xff53_4d42, FileSystem::Network("CIFS")),
    (0xfe53_4d42, FileSystem::Network("SMB2")),
    (libc::AFS_SUPER_MAGIC as u32, FileSystem::Network("AFS")),
    (0x6b41_4653, FileSystem::Network("AFS")),
    (libc::CODA_SUPER_MAGIC as u32, FileSystem::Network("Coda")),
    (libc::NCP_SUPER_MAGIC as u32, FileSystem::Network("NCP")),
    (libc::OCFS2_SUPER_MAGIC as u32, FileSystem::Network("OCFS2")),
    (0x0116_1970, FileSystem::Network("GFS2")),
    (0x00c3_6400, FileSystem::Network("Ceph")),
    (0x0bd0_0bd0, FileSystem::Network("Lustre")),
    (0x4750_4653, FileSystem::Network("GPFS")),
    (0x1983_0326, FileSystem::Network("BeeGFS")),
    (0xaad7_aaea, FileSystem::Network("PanFS")),
    (0xbeef_dead, FileSystem::Network("StorNext")),
    (0x6163_6673, FileSystem::Network("ACFS")),
    (0x0131_11a8, FileSystem::Network("IBRIX")),
    (libc::TMPFS_MAGIC as u32, FileSystem::Memory("tmpfs")),
    (0x8584_58f6, FileSystem::Memory("ramfs")),
    (libc::OVERLAYFS_SUPER_MAGIC as u32, FileSystem::Layer("overlay")),
    (0x6175_6673, FileSystem::Layer("aufs")),
    (0x0102_1997, FileSystem::Doubtful("9p")),
    (libc::FUSE_SUPER_MAGIC as u32, FileSystem::Doubtful("FUSE")),
    (libc::HOSTFS_SUPER_MAGIC as u32, FileSystem::Doubtful("hostfs")),
    (0x786f_4256, FileSystem::Doubtful("VirtualBox shared folder")),
    (0xbacb_acbc, FileSystem::Doubtful("VMware shared folder")),
    (0x7c7c_6673, FileSystem::Doubtful("Parallels shared folder")),
];

#[cfg(not(target_os = "linux"))]
pub(super) fn file_system(_path: &Path) -> Option<FileSystem> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_has_one_number_and_one_meaning() {
        let mut numbers: Vec<_> = FILE_SYSTEMS.iter().map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), FILE_SYSTEMS.len());
    }

    #[test]
    fn a_file_system_in_memory_is_recognised() {
        // Not on every machine, but where it is there it is this.
        if Path::new("/dev/shm").is_dir() {
            assert_eq!(file_system(Path::new("/dev/shm")), Some(FileSystem::Memory("tmpfs")));
        }
        assert_eq!(file_system(Path::new("/proc/self/no/such/folder")), None);
    }
}
