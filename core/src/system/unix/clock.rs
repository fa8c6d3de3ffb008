//! The machine's clocks, read through the vDSO: no system call, no thread that has to keep them.

use std::mem::MaybeUninit;

use libc::{clockid_t, timespec};

use super::own::{BOOT, COARSE, COARSE_WALL};

/// What both clocks show, as finely as they tell it.
pub(crate) fn moment() -> (std::time::SystemTime, std::time::Instant) {
    (std::time::SystemTime::now(), std::time::Instant::now())
}

#[inline]
fn read(clock: clockid_t) -> timespec {
    let mut now = MaybeUninit::uninit();
    // SAFETY: `now` is writable for the length of the call.
    if unsafe { libc::clock_gettime(clock, now.as_mut_ptr()) } != 0 {
        return missing();
    }
    // SAFETY: written whole by a call that succeeded.
    unsafe { now.assume_init() }
}

/// The time of a clock that this kernel does not have.
#[cold]
fn missing() -> timespec {
    timespec { tv_sec: 0, tv_nsec: 0 }
}

fn millis(t: timespec) -> i64 {
    t.tv_sec * 1000 + t.tv_nsec / 1_000_000
}

/// Milliseconds since some fixed moment, up to one kernel tick old; suspend may not be counted.
#[inline]
pub(crate) fn coarse_ms() -> u64 {
    millis(read(COARSE)) as u64
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> i64 {
    millis(read(libc::CLOCK_REALTIME))
}

/// Seconds since 1970 and nanoseconds, up to one kernel tick old.
#[inline]
pub(crate) fn coarse_wall() -> (i64, i64) {
    let now = read(COARSE_WALL);
    (now.tv_sec, now.tv_nsec)
}

/// Milliseconds since some fixed moment, suspend counted.
pub(crate) fn boot_ms() -> u64 {
    millis(read(BOOT)) as u64
}
