//! How a verb's error or panic becomes a code, and the thread's last message.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use keymill_core::{Code, Error, Result};

/// A thread's last failure, as `km_last_error` shows it.
struct Last {
    message: CString,
    retry_ms: u32,
}

thread_local! {
    static LAST: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// What a function answers with: [`KM_OK`], or the number of a [`Code`]. In C it is an enum, which the header makes of `Code`.
///
/// cbindgen:ignore
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct km_code(i32);

/// Success, which is C's own: the core lists errors.
pub(crate) const KM_OK: km_code = km_code(0);

impl From<Code> for km_code {
    fn from(code: Code) -> km_code {
        km_code(code.number())
    }
}

/// Runs a verb: its error becomes the thread's last message and a code, a panic becomes `KM_INTERNAL`.
#[inline]
pub(crate) fn enter(verb: impl FnOnce() -> Result<()>) -> km_code {
    match catch_unwind(AssertUnwindSafe(verb)) {
        Ok(Ok(())) => KM_OK,
        Ok(Err(error)) => failed(&error),
        Err(panic) => panicked(panic),
    }
}

/// As [`enter`], for the few functions that do not answer with a code: a panic becomes `otherwise`.
pub(crate) fn enter_for<T>(otherwise: T, verb: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(verb)).unwrap_or_else(|panic| {
        panicked(panic);
        otherwise
    })
}

/// Milliseconds to wait, rounded up: a caller that waits so long is not early. 0 where nothing is known.
pub(crate) fn retry_ms(error: &Error) -> u32 {
    let Some(wait) = error.retry_after else { return 0 };
    let ms = wait.as_nanos().div_ceil(Duration::from_millis(1).as_nanos());
    u32::try_from(ms).unwrap_or(u32::MAX)
}

#[cold]
fn failed(error: &Error) -> km_code {
    let bytes: Vec<u8> = error.message.bytes().filter(|b| *b != 0).collect();
    let last = Last { message: CString::new(bytes).unwrap_or_default(), retry_ms: retry_ms(error) };
    // A thread that is ending has no message any more, only the code.
    let _ = LAST.try_with(|cell| cell.replace(Some(last)));
    error.code.into()
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> km_code {
    let what = panic.downcast_ref::<&str>().copied();
    let what = what.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    let code = failed(&Error::new(Code::Internal, format!("a defect in keymill, please report it: {what}")));
    // Dropping a payload may panic again; it is small and rare.
    std::mem::forget(panic);
    code
}

/// What went wrong in this thread's last call that failed, as one line for a person: what was being done, what was seen,
/// what to do. Never NULL: an empty string when nothing has failed yet. Never holds a password. The string belongs to the
/// library and stays until the same thread's next call that fails, or the thread's end.
#[unsafe(no_mangle)]
pub extern "C" fn km_last_error() -> *const c_char {
    const NOTHING: &CStr = c"";
    enter_for(NOTHING.as_ptr(), || {
        LAST.try_with(|cell| cell.borrow().as_ref().map_or(NOTHING.as_ptr(), |last| last.message.as_ptr()))
            .unwrap_or(NOTHING.as_ptr())
    })
}

/// After how many milliseconds the call that failed last in this thread may succeed; 0 where that is not known.
#[unsafe(no_mangle)]
pub extern "C" fn km_last_retry_ms() -> u32 {
    enter_for(0, || LAST.try_with(|cell| cell.borrow().as_ref().map_or(0, |last| last.retry_ms)).unwrap_or(0))
}

/// The name of a code as every language prints it, "STORE_UNAVAILABLE"; "UNKNOWN" for a number that is no code.
/// A static string.
#[unsafe(no_mangle)]
pub extern "C" fn km_code_name(code: i32) -> *const c_char {
    const UNKNOWN: &CStr = c"UNKNOWN";
    enter_for(UNKNOWN.as_ptr(), || {
        if km_code(code) == KM_OK {
            return c"OK".as_ptr();
        }
        let known = Code::ALL.iter().position(|known| known.number() == code);
        known.map_or(UNKNOWN, |at| NAMES[at]).as_ptr()
    })
}

/// The names of `Code::ALL`, NUL-terminated.
const NAMES: [&CStr; Code::ALL.len()] = {
    /// Room for the longest name and its NUL.
    const ROOM: usize = 32;
    static TEXTS: [[u8; ROOM]; Code::ALL.len()] = {
        let mut texts = [[0; ROOM]; Code::ALL.len()];
        let mut at = 0;
        while at < texts.len() {
            let name = Code::ALL[at].name().as_bytes();
            let mut i = 0;
            while i < name.len() {
                texts[at][i] = name[i];
                i += 1;
            }
            at += 1;
        }
        texts
    };
    let mut names = [c""; Code::ALL.len()];
    let mut at = 0;
    while at < names.len() {
        names[at] = match CStr::from_bytes_until_nul(&TEXTS[at]) {
            Ok(name) => name,
            Err(_) => panic!("a code's name is longer than its room"),
        };
        at += 1;
    }
    names
};
