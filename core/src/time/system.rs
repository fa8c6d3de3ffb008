//! The machine's clocks, read through the vDSO: no system call, no thread that has to keep them.

use std::mem::MaybeUninit;

use libc::{clockid_t, timespec};

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

/// Milliseconds since some fixed moment, up to one kernel tick old; suspend may not be counted.
#[inline]
pub(super) fn coarse_ms() -> u64 {
    #[cfg(target_os = "linux")]
    let now = read(libc::CLOCK_MONOTONIC_COARSE);
    #[cfg(not(target_os = "linux"))]
    let now = read(libc::CLOCK_MONOTONIC);
    millis(now) as u64
}

fn millis(t: timespec) -> i64 {
    t.tv_sec * 1000 + t.tv_nsec / 1_000_000
}

pub(super) fn wall_ms() -> i64 {
    millis(read(libc::CLOCK_REALTIME))
}

/// The wall clock's [`Stamp`](super::Stamp), up to one kernel tick old.
#[inline]
pub(super) fn coarse_stamp() -> super::Stamp {
    #[cfg(target_os = "linux")]
    let now = read(libc::CLOCK_REALTIME_COARSE);
    #[cfg(not(target_os = "linux"))]
    let now = read(libc::CLOCK_REALTIME);
    super::Stamp::new(now.tv_sec, now.tv_nsec)
}

/// `CLOCK_BOOTTIME` counts suspend; `CLOCK_MONOTONIC` stops in it and would let a lease outlive its term.
#[cfg(target_os = "linux")]
pub(super) fn boot_ms() -> u64 {
    millis(read(libc::CLOCK_BOOTTIME)) as u64
}

#[cfg(not(target_os = "linux"))]
pub(super) fn boot_ms() -> u64 {
    millis(read(libc::CLOCK_MONOTONIC)) as u64
}
