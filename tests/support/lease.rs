//! Requests for leased workers, at one moment: the clock stands at tick 1000.

use std::sync::Arc;

use keymill::store::{Beside, Key, Slots, StoreIndex, Take};

/// The tick of the clock.
pub const PRESENT: u64 = 1_000;
/// The mark of a slot that is taken.
pub const MARK: u64 = 1_033;
/// Longer than a busy machine lets a test wait.
pub const LEASE_MS: u64 = 600_000;

/// A request for one of slots 0 to 9 that knows of no other place.
#[must_use]
pub fn take(key: Arc<Key>, token: u64) -> Take {
    Take {
        key,
        layout: "a layout".into(),
        slots: Slots { first: 0, last: 9 },
        store: StoreIndex::ONLY,
        latest_mark: PRESENT + 3,
        present: PRESENT,
        mark: MARK,
        wall_ms: 0,
        unit_ms: 1,
        least_mark: 0,
        lease_ms: LEASE_MS,
        token,
        owner: format!("host:{token}").into(),
        beside: Beside::default(),
    }
}
