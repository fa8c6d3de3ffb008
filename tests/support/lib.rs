//! Helpers of the system tests: servers, faults on the wire, processes that are killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keymill::store::{Fault, FaultKind, Key, Request};

pub mod authority;
pub mod ci;
pub mod disguise;
pub mod impostor;
pub mod lease;
pub mod mariadb;
pub mod pooled;
pub mod postgres;
pub mod proxy;
pub mod redis;
pub mod rivals;
pub mod schemes;
#[path = "../simulation/mod.rs"]
pub mod simulation;
pub mod takers;
pub mod vectors;
pub mod victim;
pub mod wordless;
pub mod worker;

/// The request of a new caller of a segment: it has seen nothing, and takes any number.
#[must_use]
pub fn request(key: &Arc<Key>, len: u64) -> Request {
    Request::new(key, len)
}

/// Asks a store again for as long as it answers that it is busy and that nothing was changed: on a busy machine a process may
/// sleep with the row locked for longer than others wait for it. Any other answer is the store's.
///
/// # Errors
/// The store's; after two minutes this one too.
pub fn in_time<T>(mut ask: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    let give_up = Instant::now() + Duration::from_secs(120);
    loop {
        match ask() {
            Err(fault)
                if matches!(fault.kind, FaultKind::Unavailable | FaultKind::Locked | FaultKind::Conflict)
                    && Instant::now() < give_up =>
            {
                eprintln!("{fault}");
            }
            answer => return answer,
        }
    }
}

/// Nanoseconds of a clock that all processes of this machine share.
#[must_use]
pub fn nanos() -> u128 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one struct.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut at) }, 0);
    at.tv_sec as u128 * 1_000_000_000 + at.tv_nsec as u128
}

/// Asserts that no number is in two of these ranges, and that none is empty; answers with how many numbers they hold.
///
/// # Panics
/// Where one does.
pub fn assert_disjoint(mut ranges: Vec<(u64, u64)>) -> u64 {
    ranges.sort_unstable();
    for (lo, hi) in &ranges {
        assert!(lo < hi, "[{lo}, {hi}) is empty");
    }
    for pair in ranges.windows(2) {
        assert!(pair[0].1 <= pair[1].0, "{:?} and {:?} overlap", pair[0], pair[1]);
    }
    ranges.iter().map(|(lo, hi)| hi - lo).sum()
}

/// Writes a file that only its owner may read, as a password file has to be.
///
/// # Panics
/// Where the file cannot be written.
pub fn write_private(file: &std::path::Path, text: &str) {
    std::fs::write(file, text).expect("a file");
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a mode");
}
