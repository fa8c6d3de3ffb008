//! Functions of the program that has loaded this library.

use std::ffi::{CStr, c_void};
use std::ptr;

use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT, GetModuleHandleExW,
    GetProcAddress,
};

/// The function of this name that a library exports; NULL: there is none. `neighbour` is a function of the same library.
pub(crate) fn exported(name: &CStr, neighbour: *const c_void) -> *mut c_void {
    let mut module = ptr::null_mut();
    // SAFETY: `module` is writable; an address of no library is an error.
    let found = unsafe {
        GetModuleHandleExW(
            GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
            neighbour.cast(),
            &raw mut module,
        )
    };
    if found == 0 {
        return ptr::null_mut();
    }
    // SAFETY: the library is loaded, and the name ends with NUL.
    unsafe { GetProcAddress(module, name.as_ptr().cast()) }
        .map_or(ptr::null_mut(), |found| found as *mut c_void)
}
