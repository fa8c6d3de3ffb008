//! The first Ctrl-C (or SIGTERM) asks a long verb to end and give its numbers back; the second one kills.

use std::sync::atomic::{AtomicI32, Ordering};

/// The signal that came; 0: none.
static CAME: AtomicI32 = AtomicI32::new(0);

extern "C" fn remember(signal: i32) {
    // ordering: Relaxed — a flag that carries nothing else.
    CAME.store(signal, Ordering::Relaxed);
}

/// From now on the first signal is only remembered.
pub fn listen() {
    keymill::binding::remember_interrupt(remember);
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
