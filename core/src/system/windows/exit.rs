//! The end of the process.

use std::ffi::c_int;

unsafe extern "C" {
    /// The C library's `atexit` runs a function of a DLL only after the system has ended all other threads; this one runs it when the
    /// program calls `exit`.
    fn _crt_atexit(run: extern "C" fn()) -> c_int;
}

#[link(name = "ntdll")]
unsafe extern "system" {
    fn RtlDllShutdownInProgress() -> u8;
}

/// Has the C library run this at the end of the process. `false`: it has no memory.
///
/// A program with a C library of its own, such as Node, ends without it.
pub(crate) fn at_exit(run: extern "C" fn()) -> bool {
    // SAFETY: the function takes and gives nothing, and does not unwind. The library stays loaded until it has run.
    unsafe { _crt_atexit(run) == 0 }
}

/// Whether the system has ended all other threads.
pub(crate) fn have_threads_ended() -> bool {
    // SAFETY: the function only reads a word of the process.
    unsafe { RtlDllShutdownInProgress() != 0 }
}
