//! The descriptors of this copy of SQLite, which `system/unix/linux/sqlite_descriptors.rs` keeps.

use std::path::{Path, PathBuf};

use super::fork::Operation;
use crate::system::sqlite_descriptors;
pub(super) use crate::system::sqlite_descriptors::{
    closed, create, in_forked_child, in_keymill, know, shortage,
};

/// Device and number of a file.
pub(super) type Inode = crate::system::FileId;

/// The files that SQLite opens for a database, the database itself first. `database` is without symbolic links.
fn files_of(database: &Path) -> [PathBuf; 4] {
    ["", "-wal", "-shm", "-journal"].map(|suffix| {
        let mut file = database.as_os_str().to_owned();
        file.push(suffix);
        PathBuf::from(file)
    })
}

/// Replaces SQLite's system calls, once in a process's life, while no thread forks.
pub(super) fn install(_operation: &Operation) {
    sqlite_descriptors::install();
}

/// A descriptor of this process on the database, or on a file that SQLite keeps beside it, that another SQLite library
/// opened.
pub(super) fn foreign(database: &Path) -> Option<i32> {
    sqlite_descriptors::foreign(&files_of(database))
}
