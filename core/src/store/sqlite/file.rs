//! The file: its identity and owner, its file system, the busy deadline, and the meaning of SQLite's errors.
//!

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OptionalExtension};

use super::descriptors;
use crate::request::reader::READER_TABLE;
use crate::store::{Fault, FaultKind, Remedy, Scheme};
use crate::system::{FileId, Shortage, files};

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
    let real = |path: &Path| std::fs::canonicalize(path).map(files::without_short_names);
    real(path).unwrap_or_else(|_| match (path.parent().map(real), path.file_name()) {
        (Some(Ok(folder)), Some(name)) => folder.join(name),
        _ => path.to_owned(),
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
    let whose =
        if descriptors::shortage() == Some(Shortage::Machine) { "this machine" } else { "this process" };
    Fault::new(
        FaultKind::Unavailable,
        format!(
            "`{}` cannot be opened: {whose} has no file descriptor left; close files or sockets that are not needed, or raise the limit (`ulimit -n`)",
            path.display()
        ),
    )
}

/// Whether SQLite can only read through this connection.
pub(super) fn is_readonly(connection: &Connection) -> bool {
    // SAFETY: the connection is open, and the name ends with a NUL.
    unsafe { rusqlite::ffi::sqlite3_db_readonly(connection.handle(), c"main".as_ptr()) == 1 }
}

/// The fault where SQLite could not open the file or its log for writing, and no right to the file is lacking.
pub(super) fn held(path: &Path) -> Fault {
    Fault::new(
        FaultKind::Unavailable,
        format!(
            "`{}` cannot be opened: another program holds it, such as a virus scanner, an indexer or a backup, or this user cannot write its folder; keymill tries again; exclude the file, its `-wal` and its `-shm` in that program, or make the folder writable",
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
        ErrorCode::CannotOpen if files::was_held(path) => held(path),
        ErrorCode::CannotOpen if path.is_dir() => {
            Fault::new(FaultKind::Refused, format!("`{file}` is a folder; name a file in it"))
        }
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

pub(super) fn identity(path: &Path) -> Option<FileId> {
    files::identity(path).ok()
}
