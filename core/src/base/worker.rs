//! Leased workers: what a planner asks of a store, and what a store answers.
//!
//! A slot is a worker id of a pool. Its row holds a token, which changes with each owner, and a mark: no id of the slot has a tick at
//! or above the stored mark, and a new owner begins there. So two owners never share a tick, whatever any clock shows; clocks decide
//! only when a slot may be taken.

use std::sync::Arc;

use super::reservation::{Fault, Key};

/// How far a wall clock may be ahead of the store's, or have jumped, before marks are no longer made of it.
pub(crate) const BELIEVED_MS: u64 = 600_000;

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
    /// The wall clock of this machine, of which these three ticks were made, in milliseconds since 1970.
    pub wall_ms: i64,
    /// How many milliseconds a tick has.
    pub unit_ms: u64,
    /// The mark is not lower than this, whatever the time.
    pub least_mark: u64,
    /// How long the lease lasts, by the store's clock.
    pub lease_ms: u64,
    /// A new token, never 0.
    pub token: u64,
    /// The process, for people.
    pub owner: Arc<str>,
}

impl Take {
    /// The request, with ticks made of the store's clock where this machine's is far ahead of it: a wrong clock would leave a mark that
    /// keeps every later owner waiting.
    #[must_use]
    pub(crate) fn believed(&self, now_ms: u64) -> Take {
        let ahead = u64::try_from(i128::from(self.wall_ms) - i128::from(now_ms)).unwrap_or(0);
        let ticks = if now_ms > 0 && ahead > BELIEVED_MS { ahead / self.unit_ms.max(1) } else { 0 };
        let back = |tick: u64| tick.saturating_sub(ticks);
        Take {
            latest_mark: back(self.latest_mark),
            present: back(self.present),
            mark: back(self.mark).max(self.least_mark),
            ..self.clone()
        }
    }
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

/// A slot as its owner left it. A change is refused where its row shows anything else.
#[derive(Clone, Debug)]
pub struct OwnSlot {
    /// The table, and the pool's name.
    pub key: Arc<Key>,
    /// The slot.
    pub slot: u64,
    /// The token of this owner.
    pub token: u64,
    /// Where the mark may stand: where this owner left it, and where requests with lost answers may have left it.
    pub expect: Vec<u64>,
}

/// A request to renew the lease of a slot.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The slot.
    pub own: OwnSlot,
    /// The new mark.
    pub to: u64,
    /// How long the lease lasts from now on.
    pub lease_ms: u64,
}

/// A request to free a slot.
#[derive(Clone, Debug)]
pub struct Release {
    /// The slot.
    pub own: OwnSlot,
    /// The first tick that this owner did not use.
    pub used: u64,
}

/// A request to raise a pool, whose table was restored or emptied.
#[derive(Clone, Debug)]
pub struct RaisePool {
    /// The table, and the pool's name.
    pub key: Arc<Key>,
    /// Layout and epoch, as the pool records them.
    pub layout: Arc<str>,
    /// As in [`Take`].
    pub member: (u64, u64),
    /// No worker of the pool begins below this tick.
    pub to: u64,
    /// New tokens are made of this: processes that still use a worker lose it at their next renewal.
    pub token: u64,
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
    /// The first tick of any slot, as the last repair set it: 0 without one.
    pub floor: u64,
    /// The slots ever taken, by number.
    pub slots: Vec<SlotRow>,
    /// The store's clock, milliseconds since 1970.
    pub now_ms: u64,
    /// Slots whose rows another transaction held when this process tried to change them: taken only where there is no other.
    pub locked: Vec<u64>,
}

impl SlotRow {
    /// Whether its owner may use it at this time of the store.
    #[must_use]
    pub fn is_held(&self, now_ms: u64) -> bool {
        self.ends_at > now_ms
    }
}
