//! Leased workers: what a planner asks of a store, and what a store answers.
//!
//! A slot is a worker id of a pool. Its row holds a token, which changes with each owner, and a mark: no id of the slot has a tick at
//! or above the stored mark, and a new owner begins there. So two owners never share a tick, whatever any clock shows; clocks decide
//! only when a slot may be taken.

use std::sync::Arc;

use super::reservation::{Fault, Key};

/// The slots of a pool that a process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The lowest.
    pub first: u64,
    /// The highest.
    pub last: u64,
}

/// A request for a slot.
#[derive(Clone, Debug)]
pub struct Take {
    /// The table, and the pool's name.
    pub key: Arc<Key>,
    /// Layout and epoch, as the pool records them.
    pub layout: Arc<str>,
    /// The slots to choose from.
    pub slots: Slots,
    /// Of several stores: how many, and which one this is. A store has the slots that leave its index as remainder.
    pub member: (u64, u64),
    /// Slots with a higher mark are passed over.
    pub latest_mark: u64,
    /// Slots with this mark or a lower one are equally good: their first id need not wait for the clock.
    pub present: u64,
    /// The mark that the slot gets, unless its own is higher.
    pub mark: u64,
    /// How long the lease lasts, by the store's clock.
    pub lease_ms: u64,
    /// A new token, never 0.
    pub token: u64,
    /// The process, for people.
    pub owner: Arc<str>,
}

/// A slot that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The worker id.
    pub slot: u64,
    /// The first tick that no earlier owner used.
    pub start: u64,
    /// The stored mark.
    pub mark: u64,
    /// The store's clock, milliseconds since 1970.
    pub now_ms: u64,
}

/// A request to renew the lease of a slot.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The table, and the pool's name.
    pub key: Arc<Key>,
    /// The slot.
    pub slot: u64,
    /// The token of this owner.
    pub token: u64,
    /// Where the mark may stand: where this owner left it, and where requests with lost answers may have left it.
    pub expect: Vec<u64>,
    /// The new mark.
    pub to: u64,
    /// How long the lease lasts from now on.
    pub lease_ms: u64,
}

/// A request to free a slot.
#[derive(Clone, Debug)]
pub struct Release {
    /// The table, and the pool's name.
    pub key: Arc<Key>,
    /// The slot.
    pub slot: u64,
    /// The token of this owner.
    pub token: u64,
    /// Where the mark may stand.
    pub expect: Vec<u64>,
    /// The first tick that this owner did not use.
    pub used: u64,
}

/// The answers to several renewals.
#[derive(Clone, Debug)]
pub struct Renewed {
    /// The new mark of each, in the order of the renewals; `Taken` where another process has the slot.
    pub marks: Vec<Result<u64, Fault>>,
    /// The store's clock, milliseconds since 1970, by store where there are several.
    pub now_ms: u64,
}

/// The row of a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotRow {
    /// The worker id.
    pub slot: u64,
    /// The owner's token.
    pub token: u64,
    /// The first tick that may not be issued.
    pub mark: u64,
    /// When the lease ends by the store's clock, milliseconds since 1970; 0: the slot is free.
    pub ends_at: u64,
    /// The owner.
    pub owner: String,
}

/// The rows of a pool, as a store shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolRows {
    /// Layout and epoch; `None` before the first slot was taken.
    pub layout: Option<String>,
    /// The slots ever taken, by number.
    pub slots: Vec<SlotRow>,
    /// The store's clock, milliseconds since 1970.
    pub now_ms: u64,
}

impl SlotRow {
    /// Whether its owner may use it at this time of the store.
    #[must_use]
    pub fn is_held(&self, now_ms: u64) -> bool {
        self.ends_at > now_ms
    }
}
