//! The rotation of a source over its stores.

use super::member::Pause;

/// A source's row in one of the stores.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberRow {
    /// Its record has been compared.
    pub(super) known: bool,
    /// One past the last own number that this process received; 0: none yet.
    pub(super) seen: u64,
    /// Why the store, which answers, is not asked for this source.
    pub(super) pause: Option<Pause>,
}

/// Own numbers `[lo, hi)` of a store, reserved and not issued yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeftOver {
    pub(super) member: usize,
    pub(super) lo: u64,
    pub(super) hi: u64,
    /// Boot time of the reservation.
    pub(super) since_ms: u64,
    pub(super) ttl_ms: Option<u64>,
}

/// One source's rotation.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    /// The records of all stores have been compared.
    pub(super) begun: bool,
    pub(super) turn: usize,
    pub(super) rows: Vec<MemberRow>,
    pub(super) left_over: Option<LeftOver>,
}
