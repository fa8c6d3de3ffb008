//! Functions of the program that has loaded this library.

use std::ffi::{CStr, c_void};

/// The function of this name that the program or one of its libraries exports; NULL: there is none. On a system whose libraries do not
/// share their names `neighbour`, the address of something in a library, says which one.
pub(crate) fn exported(name: &CStr, _neighbour: *const c_void) -> *mut c_void {
    // SAFETY: the name ends with NUL.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}
