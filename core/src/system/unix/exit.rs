//! The end of the process.

/// Has the C library run this at the end of the process. `false`: it has no memory.
pub(crate) fn at_exit(run: extern "C" fn()) -> bool {
    // SAFETY: the function takes and gives nothing, and does not unwind. The library stays loaded until it has run.
    unsafe { libc::atexit(run) == 0 }
}

/// `false`: threads run until the process has ended.
pub(crate) fn have_threads_ended() -> bool {
    false
}
