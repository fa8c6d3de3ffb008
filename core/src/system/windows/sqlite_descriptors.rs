//! SQLite's handles need no care: a lock belongs to the handle that took it, so a second library drops none, and a program cannot
//! close a handle whose value it was never given.

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::system::{FileId, Shortage};

/// Runs `work`.
pub(crate) fn in_keymill<T>(work: impl FnOnce() -> T) -> T {
    work()
}

/// Leaves SQLite's own system calls as they are.
pub(crate) fn install() {}

/// There is no fork.
pub(crate) fn in_forked_child() {}

/// There is no fork.
pub(crate) fn know(_file: &File, _database: FileId) {}

/// None: see above.
pub(crate) fn closed(_database: FileId) -> Option<i32> {
    None
}

/// A process may have millions of handles.
pub(crate) fn shortage() -> Option<Shortage> {
    None
}

/// None that does harm: see above.
pub(crate) fn foreign(_files: &[PathBuf]) -> Option<i32> {
    None
}

/// SQLite creates the file, with the rights of its folder.
pub(crate) fn create(_path: &Path) {}
