//! Functions that run around a fork. Memory that a forked child finds wiped is in `linux` and `macos`.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

pub(crate) use super::own::{unmap, wiped_pages};

/// Zeroed pages of this process alone. `None`: there are none to be had.
pub(super) fn zeroed_pages(bytes: usize) -> Option<NonNull<c_void>> {
    // SAFETY: a fresh anonymous mapping; the arguments follow mmap(2).
    let pages = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON,
            -1,
            0,
        )
    };
    if pages == libc::MAP_FAILED { None } else { NonNull::new(pages) }
}

/// Runs this in every forked child from now on, where no other thread exists. It may only do what is safe between fork and exec.
pub(crate) fn in_child(run: extern "C" fn()) {
    // Miri has one process.
    if cfg!(not(miri)) {
        // SAFETY: the function lives as long as the process (the library is never unmapped), takes no arguments and does not
        // unwind.
        unsafe { libc::pthread_atfork(None, None, Some(run)) };
    }
}

/// Runs these before each fork, and after it in the parent and in the child. `false`: they could not be registered (no memory).
#[must_use]
pub(crate) fn around(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) -> bool {
    // SAFETY: as above, for each of the three.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 }
}
