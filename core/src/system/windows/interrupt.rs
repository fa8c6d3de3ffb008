//! The events of the console by which a user asks a command to end.

use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::sync::OnceCell;
use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};
use windows_sys::core::BOOL;

/// What SIGINT is elsewhere: a command that was interrupted exits with 130.
const INTERRUPT: i32 = 2;

static REMEMBER: OnceCell<extern "C" fn(i32)> = OnceCell::new();

static CAME: AtomicBool = AtomicBool::new(false);

/// Runs in a thread of its own. The second event finds the default, which ends the process.
unsafe extern "system" fn on_event(event: u32) -> BOOL {
    // ordering: Relaxed — a flag that carries nothing else.
    if !matches!(event, CTRL_C_EVENT | CTRL_BREAK_EVENT) || CAME.swap(true, Ordering::Relaxed) {
        return 0;
    }
    if let Some(remember) = REMEMBER.get() {
        remember(INTERRUPT);
    }
    1
}

/// From now on `remember` is called with the first Ctrl-C or Ctrl-Break; the second one ends the process.
pub(crate) fn listen(remember: extern "C" fn(i32)) {
    if REMEMBER.set(remember).is_ok() {
        // SAFETY: the handler lives as long as the process.
        unsafe { SetConsoleCtrlHandler(Some(on_event), 1) };
    }
}
