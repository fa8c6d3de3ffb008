//! SQLite's descriptors where keymill does not follow them.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::system::{FileId, Shortage, files};

/// Runs `work`.
pub(crate) fn in_keymill<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Leaves SQLite's own system calls as they are.
pub(crate) fn install() {}

/// Nothing was kept.
pub(crate) fn in_forked_child() {}

/// Nothing is looked for.
pub(crate) fn know(_file: &File, _database: FileId) {}

/// Not known.
pub(crate) fn closed(_database: FileId) -> Option<i32> {
    None
}

/// Not known.
pub(crate) fn shortage() -> Option<Shortage> {
    None
}

/// Not known.
pub(crate) fn foreign(_files: &[PathBuf]) -> Option<i32> {
    None
}

/// Creates a new database file for its user alone. Another process may have created it first, and SQLite reports every other
/// failure. Nothing holds a lock on a file that is created here.
pub(crate) fn create(path: &Path) {
    drop(files::create_private(path));
}
