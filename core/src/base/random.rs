//! Random numbers of the operating system, for names that must differ between machines, and for the pauses of machines that
//! were started together.
//!
//! `fastrand` alone seeds itself from the clock and the thread's number, which are the same on machines that boot from one
//! image.

/// A number from the operating system.
pub(crate) fn u64() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        // A kernel without random numbers is none that we know; numbers that are less random are better than none.
        Err(_) => fastrand::u64(..),
    }
}

/// Gives this thread's quick generator a seed of the operating system's.
pub(crate) fn seed() {
    fastrand::seed(u64());
}
