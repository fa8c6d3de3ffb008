//! There is no fork.

use std::ffi::c_void;
use std::ptr::NonNull;

/// Does nothing: no process has children that share its memory.
pub(crate) fn in_child(_run: extern "C" fn()) {}

/// Does nothing, as above.
#[must_use]
pub(crate) fn around(
    _before: extern "C" fn(),
    _in_parent: extern "C" fn(),
    _in_child: extern "C" fn(),
) -> bool {
    true
}

/// There are none, and no child that needs them.
pub(crate) fn wiped_pages(_bytes: usize) -> Option<NonNull<c_void>> {
    None
}

/// Gives pages back.
///
/// # Safety
/// They are those that [`wiped_pages`] gave for so many bytes, which never are any.
pub(crate) unsafe fn unmap(_pages: NonNull<c_void>, _bytes: usize) {}
