//! Threads, in a library that stays loaded.

use std::io;
use std::ptr;
use std::sync::Once;

use windows_sys::Win32::System::LibraryLoader::{
    GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, GET_MODULE_HANDLE_EX_FLAG_PIN, GetModuleHandleExW,
};

/// Threads receive no signals.
pub(crate) struct Blocked;

impl Blocked {
    /// Blocks nothing.
    #[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Blocked)
    }
}

/// Keeps the library loaded that has this code, as `-z nodelete` does on Linux: a thread may never find its code gone.
pub(crate) fn pin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut module = ptr::null_mut();
        // SAFETY: the address is of this module, and `module` is writable. A failure leaves the library as it was.
        unsafe {
            GetModuleHandleExW(
                GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN,
                (pin as *const ()).cast(),
                &raw mut module,
            )
        };
    });
}
