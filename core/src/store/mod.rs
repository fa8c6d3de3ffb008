//! Where reservations are kept. All I/O of keymill happens behind the trait [`Store`], on the keeper's thread. Its verbs are in `verbs`.
//!
//! What every store promises, and what `tests/` proves on each of them with one contract suite:
//! * Two reservations of one key never overlap, whichever processes made them.
//! * A reservation is durable before it is answered.
//! * A row below what the caller has seen is refused and left as it is (`high_water`).
//! * An answer is either "reserved", "not reserved" or "unknown"; an unknown range is never used.
//!
//! `model` decides, without I/O; `sql` is the part that all databases share; `sqlite`, `mysql` and `postgres` are the parts
//! in which they differ. `redis`, `memory` and `interleave` are stores of their own.

mod bank;
pub mod interleave;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod resolve;
pub mod server;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod stored_table;

pub(crate) mod contained_store;
#[cfg_attr(not(all(feature = "mysql", feature = "postgres")), allow(dead_code))]
mod model;
pub(crate) mod places;
pub(crate) mod secret_file;
#[cfg(all(feature = "moves", any(feature = "mysql", feature = "postgres")))]
#[cfg_attr(not(all(feature = "mysql", feature = "postgres")), allow(dead_code))]
pub(crate) mod shard_session;
#[cfg(any(feature = "mysql", feature = "redis"))]
#[cfg_attr(not(all(feature = "mysql", feature = "redis")), allow(dead_code))]
mod socket;
#[cfg(feature = "_sql")]
#[cfg_attr(not(all(feature = "mysql", feature = "postgres")), allow(dead_code, unused_imports))]
pub(crate) mod sql;
pub(crate) mod time_budget;
#[cfg(feature = "_server")]
#[cfg_attr(not(all(feature = "mysql", feature = "postgres", feature = "redis")), allow(dead_code))]
mod tls;
#[cfg(feature = "_server")]
#[cfg_attr(not(feature = "postgres"), allow(dead_code))]
mod tried;
mod verbs;

use std::fmt;

use zeroize::Zeroizing;

use model::{counter, slot_rows};

pub(crate) use model::counter::{highest_next, not_imported};
pub(crate) use model::decide::misplaced;
pub(crate) use model::import::{check_schemes, planned_import};
pub(crate) use model::period_clock::{
    check_not_ahead, operators_clock_ms, periods_to_write, present_periods,
};
pub(crate) use model::rows::step_of;

pub use crate::request::bank_spec::{BankSpec, OpenBank};
pub use crate::request::reader::{OwnReader, Reader, Readers};
pub use bank::{BankChange, BankRows};
pub use model::import::{Import, PARKED_AT};
pub use stored_table::StoredTable;
pub(crate) use stored_table::{no_stored_table, stored_table};
#[cfg(feature = "redis")]
pub(crate) use verbs::renew_slots;
pub use verbs::{
    BankStore, Catalogue, KeepReader, ListedRow, ReaderStore, RouteStore, RowStore, RowsWork, SlotStore,
    SlotWork, Work,
};
pub(crate) use verbs::{
    drawn_member, in_transaction, listing_routes, listing_rows, making_a_node, new_owner, on_slots,
    reading_route, renewing, replacing_route,
};

pub(crate) use crate::error::fault::{Absence, Remedy};
pub use crate::request::partition::Partition;
pub use crate::request::reservation::{
    Columns, Fault, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, PeriodClock, Request, Reserved, Scheme,
    SerialKey,
};
pub use crate::request::row_mark::{RowMark, RowState, RowStatus};
pub use crate::request::store_index::StoreIndex;
pub use crate::request::stride::Stride;
pub use crate::request::subject::{BankRow, RowName, Subject};
pub use crate::request::worker::{
    BeginMark, Beside, Left, OwnSlot, Places, PoolRecord, PoolRows, RaisePool, Release, Renewal, Renewed,
    SlotRow, SlotState, Slots, Take, Taken,
};

/// The most requests in one batch. More would save little, and the first request's caller waits for the whole batch.
pub const MOST_AT_ONCE: usize = 64;

/// A store's row, read for display.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The row's position.
    pub mark: Mark,
    /// Its state and its partition; the values of an open row of one store if its table has no columns for them.
    pub status: RowStatus,
    /// The mill that reserved last, by the random number that it drew when it was opened. 0: no reservation wrote the row as it stands.
    pub writer: u64,
    /// The row's columns as text: `next=1001`, `MAXSERIALNO=20261120000500`.
    pub text: String,
    /// Its other columns, under the scheme of another program's counter.
    pub(crate) counter: Option<counter::CounterRow>,
}

impl Row {
    /// A row at this number that says nothing else in columns.
    pub(crate) fn at(next: u64, text: String) -> Row {
        Row { mark: Mark { period: 0, next }, status: RowStatus::default(), writer: 0, text, counter: None }
    }

    /// Where the row stands, with its status.
    #[must_use]
    pub fn row_mark(&self) -> RowMark {
        RowMark { mark: self.mark, status: self.status, writer: self.writer }
    }
}

/// Facts that a store reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// `sqlite`, `mariadb`, `mysql`, `postgresql`, `memory`.
    pub dialect: String,
    /// The version as the store says it.
    pub version: String,
    /// The settings that decide whether a commit survives, `name=value`.
    pub durability: Vec<String>,
    /// The connection's protection: `none`, `encrypted, server not authenticated` with the remedy, `verified by the authority, whatever
    /// host`, `verified`; empty without a connection.
    pub tls: String,
    /// Problems with these settings.
    pub warnings: Vec<String>,
    /// Where the tables used so far were found, `schema.table`, on databases with schemas.
    pub tables: Vec<String>,
}

/// `durability=refuse|warn`: what to do about settings that lose commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Refuse to reserve: `STORE_UNSAFE`.
    #[default]
    Refuse,
    /// Continue, with a warning in an event and in `status`.
    Warn,
}

/// A password: never shown, and its memory is overwritten when it is dropped.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a password.
    #[must_use]
    pub fn new(password: impl Into<String>) -> Secret {
        Secret(Zeroizing::new(password.into()))
    }

    /// The plain text, for the login.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(none)" } else { "(hidden)" })
    }
}

/// The slots of a pool as one row, for people.
pub(crate) fn shown_pool(pool: &PoolRows) -> Row {
    slot_rows::shown(pool)
}

/// Reads the row of a key for display; of a pool of leased workers all of its slots.
pub(crate) fn look(store: &mut (impl Store + ?Sized), key: &Key) -> Result<Option<Row>, Fault> {
    if key.scheme == Scheme::WorkerNode {
        return Ok(None);
    }
    if key.scheme != Scheme::Worker {
        return store.look(key);
    }
    let pool = store.slots(key)?;
    Ok(pool.record.is_some().then(|| shown_pool(&pool)))
}

/// A place where reservations are kept. Used by one thread; connects at the first call, and again after a fault.
///
/// A forked child never touches its parent's store, not even to drop it: the other end of each connection is the
/// parent's. The child opens its own.
pub trait Store: RowStore + SlotStore + BankStore + RouteStore + ReaderStore + Catalogue {}

impl<S: RowStore + SlotStore + BankStore + RouteStore + ReaderStore + Catalogue> Store for S {}
