//! What macOS does in its own way.

use std::ffi::c_void;
use std::path::Path;
use std::ptr::NonNull;

use libc::clockid_t;

use crate::system::FileSystem;

#[cfg(feature = "sqlite")]
#[path = "../unknown_descriptors.rs"]
pub(crate) mod sqlite_descriptors;

/// There is no coarse clock.
pub(super) const COARSE: clockid_t = libc::CLOCK_MONOTONIC;
/// The time of day.
pub(super) const COARSE_WALL: clockid_t = libc::CLOCK_REALTIME;
/// The time since the machine was started.
pub(super) const BOOT: clockid_t = libc::CLOCK_MONOTONIC;

pub(super) const SET_LOCK: libc::c_int = libc::F_SETLK;

/// The kernel wipes no pages.
pub(crate) fn wiped_pages(_bytes: usize) -> Option<NonNull<c_void>> {
    None
}

/// Gives pages back.
///
/// # Safety
/// They are those that [`wiped_pages`] gave for so many bytes, which never are any.
pub(crate) unsafe fn unmap(_pages: NonNull<c_void>, _bytes: usize) {}

/// Nothing keeps the library mapped.
pub(crate) fn pin() {}

/// No limit is set.
#[cfg(any(feature = "mysql", feature = "redis"))]
pub(crate) fn give_up_after(
    _stream: &std::net::TcpStream,
    _limit: std::time::Duration,
) -> std::io::Result<()> {
    Ok(())
}

/// Whether an interface is a bridge.
pub(super) fn is_bridge(_interface: &str) -> bool {
    false
}

/// Not known.
pub(crate) fn file_system(_path: &Path) -> Option<FileSystem> {
    None
}
