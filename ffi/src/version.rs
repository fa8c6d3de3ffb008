//! Which keymill this is.

use std::ffi::{CStr, c_char};

use crate::error::enter_for;

/// The version of this header; km_version() is the version of the library that runs.
pub const KM_VERSION_MAJOR: u32 = 0;
/// See KM_VERSION_MAJOR.
pub const KM_VERSION_MINOR: u32 = 2;
/// See KM_VERSION_MAJOR.
pub const KM_VERSION_PATCH: u32 = 0;

const _: () = {
    const fn number(text: &str) -> u32 {
        match u32::from_str_radix(text, 10) {
            Ok(number) => number,
            Err(_) => panic!("a part of the version is no number"),
        }
    }
    assert!(KM_VERSION_MAJOR == number(env!("CARGO_PKG_VERSION_MAJOR")));
    assert!(KM_VERSION_MINOR == number(env!("CARGO_PKG_VERSION_MINOR")));
    assert!(KM_VERSION_PATCH == number(env!("CARGO_PKG_VERSION_PATCH")));
};

/// The version of the library that runs, "0.2.0". A static string.
#[unsafe(no_mangle)]
pub extern "C" fn km_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => panic!("a version has no NUL inside"),
        };
    enter_for(VERSION.as_ptr(), || VERSION.as_ptr())
}
