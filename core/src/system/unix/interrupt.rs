//! The signals by which a terminal or an operator asks a command to end.

/// From now on `remember` is called with the first SIGINT or SIGTERM; the second one ends the process. It may only do what is safe in a
/// handler of signals.
pub(crate) fn listen(remember: extern "C" fn(i32)) {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero is a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = remember as *const () as libc::sighandler_t;
        // One signal only: a write that waits for a reader which does not read is tried again after the first one, so
        // the second one must find the default, which ends the process.
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: the handler does what is safe in one, as the caller promises; `action` outlives the call.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}
