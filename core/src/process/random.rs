//! Random numbers of the operating system: for names that must differ between machines, and for the backoff of machines that were
//! started together.
//!
//! `fastrand` alone seeds itself from the clock and the thread's number, which are the same on machines that boot from one
//! image.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A number from the operating system.
pub(crate) fn u64() -> u64 {
    // No known kernel is without random numbers; less random ones are better than an error.
    crate::system::random().unwrap_or_else(|| fastrand::u64(..))
}

/// The token of one request, from 1 to 2^63-1, drawn when the request is made.
///
/// It rests on the kernel's random numbers, and on clocks for the case that these are not enough: two machines restored from one
/// snapshot have equal kernels, which give equal numbers until each has mixed in noise of its own (Linux does so at once where the
/// hypervisor tells it of the copy, by VMGENID; elsewhere within a minute or so). Both copies draw equal tokens only if, besides that,
/// they draw in the same nanosecond of the wall clock and of the monotonic clock.
pub(crate) fn token() -> u64 {
    let mut hasher = DefaultHasher::new();
    (u64(), crate::time::moment()).hash(&mut hasher);
    (hasher.finish() >> 1).max(1)
}

/// Seeds this thread's `fastrand` from the operating system.
pub(crate) fn seed() {
    fastrand::seed(u64());
}
