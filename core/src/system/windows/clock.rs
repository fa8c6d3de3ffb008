//! The machine's clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use windows_sys::Win32::System::SystemInformation::GetTickCount64;

/// What both clocks show, as finely as they tell it.
pub(crate) fn moment() -> (SystemTime, Instant) {
    (SystemTime::now(), Instant::now())
}

/// Seconds and nanoseconds since 1970, by `GetSystemTimePreciseAsFileTime`, whose steps are of 100 ns. The steps of the coarse clock are of
/// up to 15.6 ms. A clock before 1970 shows 1970.
#[inline]
fn since_1970() -> (i64, i64) {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs() as i64, i64::from(since.subsec_nanos())),
        Err(_) => (0, 0),
    }
}

/// Milliseconds since some fixed moment, up to 16 ms old.
#[inline]
pub(crate) fn coarse_ms() -> u64 {
    // SAFETY: takes no arguments, touches no memory and always succeeds.
    unsafe { GetTickCount64() }
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> i64 {
    let (seconds, nanos) = since_1970();
    seconds * 1000 + nanos / 1_000_000
}

/// Seconds since 1970 and nanoseconds. No coarse clock has fine enough steps here.
#[inline]
pub(crate) fn coarse_wall() -> (i64, i64) {
    since_1970()
}

/// Milliseconds since some fixed moment, sleep and hibernation counted; its steps are of 10 to 16 ms.
pub(crate) fn boot_ms() -> u64 {
    coarse_ms()
}
