//! Random numbers of the operating system: for names that must differ between machines, and for the backoff of machines that were
//! started together.
//!
//! `fastrand` alone seeds itself from the clock and the thread's number, which are the same on machines that boot from one
//! image.

/// A number from the operating system.
pub(crate) fn u64() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        // No known kernel is without random numbers; less random ones are better than an error.
        Err(_) => fastrand::u64(..),
    }
}

/// Seeds this thread's `fastrand` from the operating system.
pub(crate) fn seed() {
    fastrand::seed(u64());
}
