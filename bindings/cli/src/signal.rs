//! The first Ctrl-C (or SIGTERM) asks a long verb to end and give its numbers back; the second one kills.

use std::sync::atomic::{AtomicI32, Ordering};

/// The signal that came; 0: none.
static CAME: AtomicI32 = AtomicI32::new(0);

extern "C" fn remember(signal: libc::c_int) {
    // ordering: Relaxed — a flag that carries nothing else.
    CAME.store(signal, Ordering::Relaxed);
}

/// From now on the first signal is only remembered.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: all-zero is a valid `sigaction`: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = remember as *const () as libc::sighandler_t;
        // One signal only: a write that waits for a reader which does not read is tried again after the first one, so
        // the second one must find the default, which ends the process.
        action.sa_flags = libc::SA_RESETHAND;
        // SAFETY: the handler does one atomic store, which is async-signal-safe; `action` outlives the call.
        unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
    }
}

/// The exit code a remembered signal asks for, as a shell counts it.
#[must_use]
pub fn exit_code() -> Option<u8> {
    // ordering: Relaxed — see `remember`.
    match CAME.load(Ordering::Relaxed) {
        0 => None,
        signal => u8::try_from(128 + signal).ok(),
    }
}
