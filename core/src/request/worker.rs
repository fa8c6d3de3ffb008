//! Leased workers: what a planner asks of a store, and what a store answers.
//!
//! A slot is a worker id of a pool. Its row holds a mark: no id of the slot has a tick at or above it, and a new owner begins there. So
//! two owners never share a tick, whatever any clock shows; clocks decide only when a slot may be taken.
//!
//! The row also holds a token, which changes with each owner and with each renewal. A process renews only the row that one of its own
//! requests wrote. Two copies of one process, as a restored snapshot of a machine makes them, know the same row and write different
//! tokens: whichever copy renews second finds a token that it did not write, and has lost the worker.

use std::sync::Arc;

use super::reservation::{BELIEVED_MS, Fault, FaultKind, Key};
use super::store_index::StoreIndex;

/// The slots of a pool that a process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The lowest.
    pub first: u64,
    /// The highest.
    pub last: u64,
}

/// The places that may keep marks of a source's workers: rows of fixed workers, its own pool, and pools of other names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The source's name, which its own pool has too.
    pub source: String,
    /// The table of fixed workers.
    pub fixed_table: String,
    /// The table of leased workers.
    pub pool_table: String,
    /// Every spelling of the layout's widths. A fixed worker's row is named by the first, and a pool records one of them.
    pub layouts: Vec<String>,
}

impl Places {
    /// The row that keeps the mark of a fixed worker.
    #[must_use]
    pub fn fixed_row(&self, worker: u64) -> Key {
        let fields = self.layouts.first().map_or("", String::as_str);
        Key::mark(&self.fixed_table, &self.source, fields, worker)
    }

    /// A pool of leased workers.
    #[must_use]
    pub fn pool(&self, name: &str) -> Key {
        Key::pool(&self.pool_table, name)
    }

    /// Whether ids of a pool with this record could be ids of this source: equal widths. Equal ticks make equal ids, whatever the epoch.
    #[must_use]
    pub fn makes_ids_of(&self, record: &str) -> bool {
        self.layouts
            .iter()
            .any(|layout| record.strip_prefix(layout.as_str()).is_some_and(|rest| rest.starts_with(' ')))
    }
}

/// A request to begin with the mark of a fixed worker.
#[derive(Clone, Debug)]
pub struct BeginMark {
    /// The worker's row.
    pub key: Arc<Key>,
    /// The worker.
    pub worker: u64,
    /// Where else its marks may be.
    pub places: Arc<Places>,
    /// As in [`Take`].
    pub store: StoreIndex,
}

/// What a request for a slot knows of the other places that keep marks of its source's workers.
#[derive(Clone, Debug, Default)]
pub struct Beside {
    /// The places; `None`: there are no others.
    pub places: Option<Arc<Places>>,
    /// Slots that are not taken.
    pub passed_over: Vec<PassedOver>,
}

/// A slot that is not taken.
#[derive(Clone, Debug)]
pub struct PassedOver {
    /// Its number.
    pub slot: u64,
    /// The reason.
    pub why: String,
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
    /// The store that is asked.
    pub store: StoreIndex,
    /// Slots with a higher mark are passed over.
    pub latest_mark: u64,
    /// Slots with this mark or a lower one are equally good: their first id need not wait for the clock.
    pub present: u64,
    /// The mark that the slot gets, unless its own is higher.
    pub mark: u64,
    /// The wall clock of this machine when these three ticks were made, in milliseconds since 1970.
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
    /// The other places that keep marks of this source's workers.
    pub beside: Beside,
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
    /// The other places of the worker were looked at: its newest mark may have been there.
    pub has_moved: bool,
}

/// What a request writes into the row of a slot, and by which its process knows the row again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Drawn for this request alone, never 0.
    pub token: u64,
    /// The mark.
    pub mark: u64,
}

/// A slot as its owner left it. A change is refused where its row shows anything else.
#[derive(Clone, Debug)]
pub struct OwnSlot {
    /// The table, and the pool's name.
    pub key: Arc<Key>,
    /// The slot.
    pub slot: u64,
    /// What the row may hold: what this owner wrote last, and what requests with lost answers may have written since.
    pub left: Vec<Left>,
    /// The source whose newest mark this is, which the next change notes; empty: none.
    pub source: Arc<str>,
}

/// A request to renew the lease of a slot.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// The slot.
    pub own: OwnSlot,
    /// The new token and mark. The row may hold them already: no other process knows this token.
    pub to: Left,
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
    pub store: StoreIndex,
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

impl OwnSlot {
    /// Whether this owner wrote what a row holds.
    #[must_use]
    pub(crate) fn is_left(&self, row: &SlotRow) -> bool {
        self.left.iter().any(|left| left.is_in(row))
    }
}

impl Left {
    /// Whether a row holds this.
    #[must_use]
    pub(crate) fn is_in(&self, row: &SlotRow) -> bool {
        (row.token, row.mark) == (self.token, self.mark)
    }
}

/// What a row of a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SlotState {
    /// A slot that a process leases or has leased. Whether the lease lasts, [`SlotRow::is_held`] says.
    #[default]
    Leased,
    /// A slot whose worker has newer marks at another place. A pool that has others does not lease it.
    Elsewhere,
    /// A slot that `keymill repair` has raised.
    Repaired,
    /// The record of the pool itself.
    Pool,
    /// The name of another pool that the source of this one has leased from.
    OtherPool,
}

impl SlotState {
    /// Every state.
    pub const ALL: [SlotState; 5] =
        [SlotState::Leased, SlotState::Elsewhere, SlotState::Repaired, SlotState::Pool, SlotState::OtherPool];

    /// As the row has it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            SlotState::Leased => "leased",
            SlotState::Elsewhere => "elsewhere",
            SlotState::Repaired => "repaired",
            SlotState::Pool => "pool",
            SlotState::OtherPool => "other_pool",
        }
    }

    /// The state of a word; `None`: there is none.
    #[must_use]
    pub fn of_word(word: &str) -> Option<SlotState> {
        SlotState::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// A row of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotRow {
    /// The worker id. Above [`POOL_ROW`] a number that says nothing.
    pub slot: u64,
    /// The token of the last request.
    pub token: u64,
    /// The first tick that may not be issued; of the record of a pool the first tick of any slot.
    pub mark: u64,
    /// When the lease ends by the store's clock, milliseconds since 1970; 0: the slot is free.
    pub ends_at: u64,
    /// What the row is.
    pub state: SlotState,
    /// The source whose newest mark this slot has, or the other pool; empty: none is noted.
    pub source: String,
    /// The process that wrote the row last, for people. It decides nothing.
    pub owner: String,
    /// Of the record of a pool, layout and epoch of its ids; else empty.
    pub layout: String,
    /// The store that keeps the row, in the list of the mill that made it.
    pub store: StoreIndex,
}

/// What a pool records of its ids: they are unique only if all of its processes agree on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolRecord {
    /// Layout and epoch.
    pub layout: String,
    /// The store that keeps the record.
    pub store: StoreIndex,
}

/// The rows of a pool, as a store shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolRows {
    /// `None` before the first slot was taken.
    pub record: Option<PoolRecord>,
    /// The first tick of any slot, as the last repair set it: 0 without one.
    pub floor: u64,
    /// The slots ever taken, by number.
    pub slots: Vec<SlotRow>,
    /// The store's clock, milliseconds since 1970.
    pub now_ms: u64,
    /// Slots whose rows another transaction held when this process tried to change them: taken only where there is no other.
    pub locked: Vec<u64>,
    /// In the pool of a source's own name: the other pools that the source has leased from.
    pub others: Vec<String>,
    /// There are more readers than [`MOST_READERS`]: those that have ended longest are not among the slots.
    pub is_cut: bool,
}

/// How many rows of readers are read. A login that follows tables may write any number.
pub(crate) const MOST_READERS: usize = 20_000;

/// The number of the row that records a pool. Rows that name other pools have higher ones, and slots lower ones: no worker field holds so
/// many.
pub(crate) const POOL_ROW: u64 = 1 << 62;

impl PoolRows {
    /// Of readers nothing is refused: a login that follows a table may write any row, and would stop every other reader. A row counts by its
    /// number, and the steps of a move wait for a slot's whatever it says.
    fn add_reader(&mut self, row: SlotRow) {
        match row.slot {
            POOL_ROW => {
                self.floor = row.mark;
                self.record = Some(PoolRecord { layout: row.layout, store: row.store });
            }
            0..POOL_ROW => self.slots.push(row),
            // No process has such a row.
            _ => {}
        }
    }

    /// Whether the rows of both say the same.
    pub(crate) fn is_like(&self, other: &PoolRows) -> bool {
        (&self.record, self.floor, &self.slots) == (&other.record, other.floor, &other.slots)
    }

    /// Adds a row by its state; refuses a state that its number cannot have.
    pub(crate) fn add(&mut self, key: &Key, row: SlotRow) -> Result<(), Fault> {
        if key.is_of_readers() {
            self.add_reader(row);
            return Ok(());
        }
        let is_sound = match row.state {
            SlotState::Pool => row.slot == POOL_ROW,
            SlotState::OtherPool => row.slot > POOL_ROW,
            SlotState::Leased | SlotState::Elsewhere | SlotState::Repaired => row.slot < POOL_ROW,
        };
        if !is_sound {
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "the row of slot {} is in state `{}`, which keymill never writes for this number; mend the row: stop every program of the pool; the state of a slot is `repaired`, with a `mark` above the tick of each of its ids; the state of row {POOL_ROW} is `pool`, and above it `other_pool`; nothing was changed",
                    row.slot,
                    row.state.word()
                ),
            ));
        }
        match row.state {
            SlotState::Pool => {
                self.floor = row.mark;
                self.record = Some(PoolRecord { layout: row.layout, store: row.store });
            }
            SlotState::OtherPool => self.others.push(row.source),
            SlotState::Leased | SlotState::Elsewhere | SlotState::Repaired => self.slots.push(row),
        }
        Ok(())
    }
}

impl PoolRecord {
    /// The row that records the pool, with the first tick of any slot.
    pub(crate) fn row(&self, floor: u64) -> SlotRow {
        SlotRow {
            slot: POOL_ROW,
            mark: floor,
            state: SlotState::Pool,
            layout: self.layout.clone(),
            store: self.store,
            ..SlotRow::default()
        }
    }
}

/// The longest lease that `lease=` allows.
pub(crate) const LONGEST_LEASE_MS: u64 = 3_600_000;

/// Whether a lease with so much time left by the store's clock counts, of a worker as of a reader. The store's clock may have stepped back
/// since the lease was written.
pub(crate) fn lasts(left_ms: i128) -> bool {
    0 < left_ms && left_ms <= i128::from(LONGEST_LEASE_MS + BELIEVED_MS)
}

/// The longest owner that the table holds, in bytes.
const LONGEST_OWNER: usize = 255;

/// The process as a row names it, cut to what the table holds: it is for people.
pub(crate) fn owner_shown(owner: &str) -> String {
    const CUT: &str = "…";
    if owner.len() <= LONGEST_OWNER {
        return owner.to_owned();
    }
    let most = LONGEST_OWNER - CUT.len();
    let end = (0..=most).rev().find(|at| owner.is_char_boundary(*at)).unwrap_or(0);
    format!("{}{CUT}", &owner[..end])
}

impl SlotRow {
    /// Whether this source was the last one to take the slot, and noted it. A slot in any other state notes no source, whatever the column
    /// says: its worker has newer marks elsewhere, or was repaired.
    #[must_use]
    pub fn is_noted(&self, source: &str) -> bool {
        self.state == SlotState::Leased && !self.source.is_empty() && self.source == source
    }

    /// Whether another source was the last one to take the slot.
    pub(crate) fn is_of_another(&self, source: &str) -> bool {
        !self.source.is_empty() && self.source != source
    }

    /// The process, and what it leases the slot for.
    pub(crate) fn holder(&self) -> String {
        if self.source.is_empty() {
            self.owner.clone()
        } else {
            format!("{} for {}", self.owner, self.source)
        }
    }

    /// Whether its owner may use it at this time of the store. An end later than the end of the longest lease that begins now does not
    /// count: it was written while the store's clock was wrong. Marks keep the ids unique even if an end is wrong.
    #[must_use]
    pub fn is_held(&self, now_ms: u64) -> bool {
        lasts(i128::from(self.ends_at) - i128::from(now_ms))
    }
}
