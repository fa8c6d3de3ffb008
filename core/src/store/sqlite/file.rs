//! The file: who it is, whose it is, what it lies on, how long it is waited for, and what SQLite's errors about it mean.
//! (floor 2)

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction};

use crate::store::{Fault, FaultKind, Scheme};

/// `PRAGMA application_id` of files that keymill made: "kmil".
pub(super) const APPLICATION_ID: i32 = 0x6b6d_696c;

/// When the operation in progress has waited long enough, for the busy handler.
#[derive(Debug)]
pub(super) struct Deadline {
    pub(super) origin: Instant,
    pub(super) wait: Duration,
    pub(super) micros: AtomicU64,
}

impl Deadline {
    // ordering: Relaxed throughout: SQLite calls the busy handler on the thread that set the deadline.
    pub(super) fn set(&self) {
        self.micros.store((self.origin.elapsed() + self.wait).as_micros() as u64, Ordering::Relaxed);
    }

    fn waited(&self) -> Duration {
        let ends = Duration::from_micros(self.micros.load(Ordering::Relaxed));
        self.origin.elapsed().saturating_sub(ends.saturating_sub(self.wait))
    }

    fn passed(&self) -> bool {
        // ordering: Relaxed — one thread writes and reads it, SQLite's callback in between.
        self.origin.elapsed().as_micros() as u64 >= self.micros.load(Ordering::Relaxed)
    }

    /// Waits a little; `false` when there is no time left.
    pub(super) fn pause(&self) -> bool {
        if self.passed() {
            return false;
        }
        // At random, so that nobody is always the last; and the opposite of a back-off: who has waited long asks more
        // often, so that newcomers do not overtake for ever.
        let longest = if self.waited() < Duration::from_millis(10) { 1100 } else { 300 };
        std::thread::sleep(Duration::from_micros(fastrand::u64(50..longest)));
        true
    }
}

/// Where SQLite keeps the write-ahead log of a file.
pub(super) fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}

/// A path without symbolic links: SQLite keeps the log beside the file that they lead to. The file need not be there yet.
pub(super) fn real(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| {
        match (path.parent().map(std::fs::canonicalize), path.file_name()) {
            (Some(Ok(folder)), Some(name)) => folder.join(name),
            _ => path.to_owned(),
        }
    })
}

/// Whose file it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// It bears our mark.
    Keymill,
    /// No mark, and no tables but those that keymill keeps: new, made by hand, or by a keymill that set no mark.
    Unmarked,
    /// Another program's, and how that is known: the end of a sentence about the file.
    Other(String),
}

/// A table by which a file without a mark is known as another program's: not `ours`, none of a scheme's usual name, none of
/// the shape of keymill's own.
const FOREIGN_TABLE: &str = "SELECT name FROM sqlite_schema AS found WHERE type IN ('table', 'view') \
     AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND lower(name) NOT IN (SELECT value FROM json_each(?1)) \
     AND (SELECT count(*) FROM pragma_table_info(found.name) \
          WHERE lower(name) IN ('name', 'period', 'next', 'updated_at')) < 4 ORDER BY name LIMIT 1";

/// Whose file it is; `table` is one that a source of ours names.
pub(super) fn owner(connection: &Connection, table: Option<&str>) -> rusqlite::Result<Owner> {
    let mark: i32 = connection.query_one("PRAGMA application_id", [], |row| row.get(0))?;
    if mark == APPLICATION_ID {
        return Ok(Owner::Keymill);
    }
    if mark != 0 {
        return Ok(Owner::Other(format!(
            "is marked as another program's (`PRAGMA application_id` is {mark})"
        )));
    }
    let ours: Vec<String> = Scheme::ALL
        .into_iter()
        .map(|scheme| -> &str { scheme.default_table() })
        .chain(table)
        .map(|name| format!("\"{}\"", name.to_ascii_lowercase()))
        .collect();
    let foreign: Option<String> = connection
        .query_one(FOREIGN_TABLE, [format!("[{}]", ours.join(","))], |row| row.get(0))
        .optional()?;
    Ok(foreign
        .map_or(Owner::Unmarked, |table| Owner::Other(format!("holds table `{table}` of another program"))))
}

/// A file that is not keymill's is left alone, by `init` too.
pub(super) fn refuse_foreign(path: &Path, why: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "`{}` {why}; name a file of keymill's own, such as sqlite:ids.db: two SQLite libraries in one process drop each \
             other's locks on a file they share. To move a source out of this file run `keymill repair` on the new one, N \
             above every number issued",
            path.display()
        ),
    )
}

/// Commits; only its own `Ok` makes a range usable.
pub(super) fn commit(transaction: Transaction<'_>, path: &Path) -> Result<(), Fault> {
    transaction.commit().map_err(|error| {
        let mut fault = fault(path, &error);
        if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
            // The commit frame may have reached the disk: it counts after a crash, or it does not.
            fault.kind = FaultKind::Unknown;
        }
        fault
    })
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed)
    )
}

/// What SQLite said, as a fault of ours.
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
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Fault::new(
            FaultKind::Refused,
            format!(
                "`{file}` is damaged or not a SQLite file ({error}); restore it, then run `keymill repair`, N above \
                 every number issued"
            ),
        ),
        ErrorCode::SystemIoFailure => {
            Fault::new(FaultKind::Unavailable, format!("reading or writing `{file}` failed: {error}"))
        }
        _ => Fault::new(FaultKind::Refused, format!("`{file}`: {error}")),
    }
}

pub(super) fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

pub(super) enum FileSystem {
    /// Between machines.
    Network(&'static str),
    /// Could be anything.
    Doubtful(&'static str),
}

#[cfg(target_os = "linux")]
pub(super) fn file_system(folder: &Path) -> Option<FileSystem> {
    use std::os::unix::ffi::OsStrExt;
    let folder = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `folder` ends with NUL and `found` is a statfs to be written; both outlive the call.
    if unsafe { libc::statfs(folder.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zero is a valid value of every field, and the call has succeeded.
    let kind = unsafe { found.assume_init() }.f_type;
    // The numbers of statfs(2); 32 bits wide whatever the field's type.
    match kind as u32 {
        0x6969 => Some(FileSystem::Network("NFS")),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some(FileSystem::Network("SMB")),
        0x5346_414f => Some(FileSystem::Network("AFS")),
        0x00c3_6400 => Some(FileSystem::Network("Ceph")),
        0x0102_1997 => Some(FileSystem::Doubtful("9p")),
        0x6573_5546 => Some(FileSystem::Doubtful("FUSE")),
        _ => None,
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn file_system(_folder: &Path) -> Option<FileSystem> {
    None
}
