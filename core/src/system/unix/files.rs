//! Which file a path is, its names, its file system, and locks on its bytes.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::own::SET_LOCK;
pub(crate) use super::own::file_system;
use crate::system::FileId;

fn id(found: &Metadata) -> FileId {
    (found.dev(), found.ino())
}

/// Which file a path leads to.
///
/// # Errors
/// There is none, or it cannot be looked at.
pub(crate) fn identity(path: &Path) -> io::Result<FileId> {
    std::fs::metadata(path).map(|found| id(&found))
}

/// Which file this is.
///
/// # Errors
/// The program has closed the descriptor.
pub(crate) fn identity_of(file: &File) -> io::Result<FileId> {
    file.metadata().map(|found| id(&found))
}

/// How many names a regular file has; 0: it is none, or is not there.
pub(crate) fn names(path: &Path) -> u64 {
    std::fs::metadata(path).ok().filter(Metadata::is_file).map_or(0, |found| found.nlink())
}

/// The path that a URL names.
pub(crate) fn path_of_url(text: &str) -> PathBuf {
    PathBuf::from(text)
}

/// The path itself: a file has no short names.
pub(crate) fn without_short_names(path: PathBuf) -> PathBuf {
    path
}

/// `false`: no program keeps others from opening a file.
pub(crate) fn was_held(_path: &Path) -> bool {
    false
}

/// Opens a file to read. A pipe, which would wait for its other end, is opened at once.
///
/// # Errors
/// The errors of opening.
pub(crate) fn open_at_once(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path)
}

/// Creates a file that only this user can read and write.
///
/// # Errors
/// It is there already, or cannot be created.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Takes a shared lock on these bytes. On Linux it belongs to the open file: SQLite closes other descriptors of the same one.
///
/// # Errors
/// Another program has locked them for itself.
pub(crate) fn share_lock(file: &File, start: i64, len: i64) -> io::Result<()> {
    // SAFETY: zero is a valid value of every field of `flock`.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_RDLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (start, len);
    // SAFETY: the descriptor is open and `lock` outlives the call.
    let refused = unsafe { libc::fcntl(file.as_raw_fd(), SET_LOCK, &raw const lock) };
    if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
