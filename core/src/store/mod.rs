//! Where reservations are kept. All I/O of keymill happens behind the trait [`Store`], on the keeper's thread.
//!
//! What every store promises, and what `tests/` proves on each of them with one contract suite:
//! * Two reservations of one key never overlap, whichever processes made them.
//! * A reservation is durable before it is answered.
//! * A row below what the caller has seen is refused and left as it is (`high_water`).
//! * An answer is either "reserved", "not reserved" or "unknown"; an unknown range is never used.
//!
//! `model` decides, without I/O; `sql` is the part that all databases share; `sqlite`, `mysql` and `postgres` are the parts
//! in which they differ. `redis`, `memory` and `interleave` are stores of their own.

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

pub(crate) mod guarded;
#[cfg_attr(not(all(feature = "mysql", feature = "postgres")), allow(dead_code))]
mod model;
pub(crate) mod secret_file;
#[cfg(feature = "_sql")]
#[cfg_attr(not(all(feature = "mysql", feature = "postgres")), allow(dead_code, unused_imports))]
pub(crate) mod sql;
#[cfg(feature = "_server")]
#[cfg_attr(not(all(feature = "mysql", feature = "postgres", feature = "redis")), allow(dead_code))]
mod tls;

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

use model::rows::{self, Rows};
use model::worker::{self, SlotRows};
use model::{counter, import};

pub(crate) use model::counter::not_imported;
pub(crate) use model::decide::one_of_several;
pub(crate) use model::import::{check_schemes, planned_import};
pub(crate) use model::rows::step_of;

pub use model::import::{Import, PARKED_AT};

pub(crate) use crate::base::fault::Remedy;
pub use crate::base::reservation::{
    Columns, Fault, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Request, Reserved, Scheme, SerialKey,
};
pub use crate::base::stride::Stride;
pub use crate::base::worker::{PoolRows, Release, Renewal, Renewed, SlotRow, Slots, Take, Taken};

/// The most requests in one batch. More would save little, and the first request's caller waits for the whole batch.
pub const MOST_AT_ONCE: usize = 64;

/// A store's row, read for display.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The row's position.
    pub mark: Mark,
    /// The row's columns as text: `next=1001`, `MAXSERIALNO=20261120000500`.
    pub text: String,
    /// Its other columns, under the scheme of another program's counter.
    pub(crate) counter: Option<counter::CounterRow>,
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
    /// The connection's protection: `none`, `encrypted, server not authenticated`, `verified`; empty without a connection.
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

/// Work inside one transaction. It may run several times, if other processes are faster.
pub struct Work<'w>(&'w mut dyn FnMut(&mut dyn Rows) -> Result<bool, Fault>);

impl Work<'_> {
    /// `false`: another transaction was faster; roll back and begin again.
    pub(crate) fn run(&mut self, rows: &mut dyn Rows) -> Result<bool, Fault> {
        (self.0)(rows)
    }
}

impl fmt::Debug for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").finish_non_exhaustive()
    }
}

/// Work on the rows of leased workers inside one transaction. It runs again if other processes are faster.
pub struct SlotWork<'w>(&'w mut dyn FnMut(&mut dyn SlotRows) -> Result<bool, Fault>);

impl SlotWork<'_> {
    /// `false`: another process was faster; roll back and begin again.
    pub(crate) fn run(&mut self, rows: &mut dyn SlotRows) -> Result<bool, Fault> {
        (self.0)(rows)
    }
}

impl fmt::Debug for SlotWork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotWork").finish_non_exhaustive()
    }
}

/// One transaction on the rows of leased workers in the table of `key`; `doing` is for messages. `work` gets the number of earlier
/// attempts.
fn on_slots<T>(
    store: &mut (impl Store + ?Sized),
    key: &Key,
    doing: &str,
    work: impl Fn(&mut dyn SlotRows, usize) -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    let mut done = None;
    let mut attempts = 0;
    let mut attempt = |rows: &mut dyn SlotRows| {
        done = work(rows, attempts)?;
        attempts += 1;
        Ok(done.is_some())
    };
    let answer = store.transact_slots(key, &mut SlotWork(&mut attempt));
    answer.and_then(|()| done.ok_or_else(rows::moved_on)).map_err(|fault| fault.with_context(doing))
}

/// Renews leases in one transaction, which reads their rows.
fn renew_slots(store: &mut (impl Store + ?Sized), renewals: &[Renewal]) -> Result<Renewed, Fault> {
    let Some(first) = renewals.first() else { return Ok(Renewed { marks: Vec::new(), now_ms: 0 }) };
    let doing = format!("renewing {} leased workers", renewals.len());
    on_slots(store, &first.key, &doing, |rows, _| worker::renew(rows, renewals))
}

/// One transaction on the row of `key`, which would begin in `period` if it is missing; `doing` is for messages.
pub(crate) fn in_transaction<T>(
    store: &mut (impl Store + ?Sized),
    key: &Key,
    period: u64,
    doing: &str,
    work: impl Fn(&mut dyn Rows) -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    let mut done = None;
    let mut attempt = |rows: &mut dyn Rows| {
        done = work(rows)?;
        Ok(done.is_some())
    };
    let answer = store.transact(key, period, &mut Work(&mut attempt));
    answer.and_then(|()| done.ok_or_else(rows::moved_on)).map_err(|fault| fault.with_context(doing))
}

/// The source into which the row of `old` was imported, by the record in the table of `new`.
pub(crate) fn new_owner(
    store: &mut (impl Store + ?Sized),
    old: &Key,
    new: &Key,
) -> Result<Option<String>, Fault> {
    let record = import::record_of(old);
    let doing = format!("importing `{}`", new.name);
    in_transaction(store, new, 0, &doing, |rows| rows.new_owner(new, &record).map(Some))
}

/// Reads the row of a key for display; of a pool of leased workers all of its slots.
pub(crate) fn look(store: &mut (impl Store + ?Sized), key: &Key) -> Result<Option<Row>, Fault> {
    if key.scheme != Scheme::Worker {
        return store.look(key);
    }
    let pool = store.slots(key)?;
    Ok(pool.layout.is_some().then(|| worker::shown(&pool)))
}

/// A place where reservations are kept. Used by one thread; connects at the first call, and again after a fault.
///
/// A forked child never touches its parent's store, not even to drop it: the other end of each connection is the
/// parent's. The child opens its own.
///
/// `guarded` forwards every call, so a new method needs an entry there too.
pub trait Store: Send {
    /// Carries out one transaction on the row of `key`, which would begin in `period` if it is missing. The verbs that follow
    /// are such transactions unless a store has a shorter way.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` it may have been carried out or not.
    fn transact(&mut self, _key: &Key, _period: u64, _work: &mut Work<'_>) -> Result<(), Fault> {
        Err(Fault::new(FaultKind::Refused, "this store has no transactions"))
    }

    /// Reserves up to `request.len` numbers.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` the range may be reserved, and no process will use it.
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        let doing = rows::reserving(request);
        in_transaction(self, &request.key, request.period, &doing, |rows| rows::reserve(rows, request))
    }

    /// How many requests [`reserve_all`](Store::reserve_all) sends at once; 1: it sends them one by one.
    fn batch(&self) -> usize {
        1
    }

    /// Reserves for several sources at once, if nothing about any of them is unusual: an answer to each request, in their
    /// order. `None`: that request has to be sent on its own, with [`reserve`](Store::reserve), and nothing was changed for
    /// it. A store that fails reports it no later than for a single request.
    fn reserve_all(&mut self, requests: &[Request]) -> Vec<Option<Result<Reserved, Fault>>> {
        vec![None; requests.len()]
    }

    /// Returns `[lo, hi)`, only if the row still ends at `hi` in `period`. `false`: the row has moved on, nothing was done.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        let doing = format!("giving back [{lo}, {hi}) of `{}`", key.name);
        in_transaction(self, key, period, &doing, |rows| rows::give_back(rows, key, period, lo, hi).map(Some))
    }

    /// Returns several ranges, each as [`give_back`](Store::give_back) does: an answer to each, in their order. After a fault
    /// it is not known which of them were returned.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn give_back_all(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        ranges.iter().map(|range| self.give_back(&range.key, range.period, range.lo, range.hi)).collect()
    }

    /// Raises a row that is a high-water mark (a snowflake's time) to `to`, creating it if it is missing, and answers
    /// with where it stood before (0: missing). With `expect`, only if it stands exactly there; else `Taken`.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        let doing = format!("raising `{}` to {to}", key.name);
        in_transaction(self, key, 0, &doing, |rows| rows::raise(rows, key, expect, to))
    }

    /// Carries out one transaction on the rows of leased workers in the table of `key`. The verbs that follow are such transactions.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` it may have been carried out or not.
    fn transact_slots(&mut self, _key: &Key, _work: &mut SlotWork<'_>) -> Result<(), Fault> {
        Err(Fault::new(
            FaultKind::Refused,
            "this store keeps no leased workers; give this process a worker of its own, `worker=N`",
        ))
    }

    /// Leases a slot of a pool: no other process gets it before the lease ends by the store's clock.
    ///
    /// # Errors
    /// See [`FaultKind`]; `NoneFree` if every slot is leased. After `Unknown` the slot may be leased until its end, and no process
    /// uses it.
    fn take_slot(&mut self, take: &Take) -> Result<Taken, Fault> {
        let doing = format!("leasing a worker of pool `{}`", take.key.name);
        on_slots(self, &take.key, &doing, |rows, attempt| worker::take(rows, take, attempt))
    }

    /// Renews leases: their marks and ends rise together. All of one table; an answer to each, in their order.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` some may be renewed.
    fn renew_slots(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        renew_slots(self, renewals)
    }

    /// Frees slots and lowers their marks to what was used. All of one table; answers which were freed.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn free_slots(&mut self, releases: &[Release]) -> Result<Vec<bool>, Fault> {
        let Some(first) = releases.first() else { return Ok(Vec::new()) };
        let doing = format!("freeing {} leased workers", releases.len());
        on_slots(self, &first.key, &doing, |rows, _| worker::free(rows, releases))
    }

    /// The rows of a pool.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn slots(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        let doing = format!("looking at pool `{}`", key.name);
        on_slots(self, key, &doing, |rows, _| rows.read_pool(key).map(Some))
    }

    /// Reads the row; `None` if there is none.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault>;

    /// How many seconds ago the row was last changed, by the store's clock; `None` if the row does not record it.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn age(&mut self, _key: &Key) -> Result<Option<u64>, Fault> {
        Ok(None)
    }

    /// Problems with this source's rows that do not stop the store: for example one of several stores has lost its row.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn warnings_of(&mut self, _key: &Key) -> Result<Vec<Fault>, Fault> {
        Ok(Vec::new())
    }

    /// Creates what these keys need and is missing, and answers with the statements. `dry_run` only answers; a table counts
    /// as missing if the store does not answer.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault>;

    /// Raises a row to `to`; never lowers it. Answers with the row before and after.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where the row stands higher.
    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        let doing = format!("repairing `{}`", key.name);
        in_transaction(self, key, to.period, &doing, |rows| rows::repair(rows, key, to))
    }

    /// The row that [`repair`](Store::repair) would leave. Nothing is written.
    ///
    /// # Errors
    /// The same as those of `repair`.
    fn would_repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        // A replica may show old rows, and takes no writes.
        self.writable().map_err(|fault| rows::would_fail(key, fault))?;
        let before = self.look(key)?;
        let after = rows::repaired(key, before.as_ref(), to).map_err(|fault| rows::would_fail(key, fault))?;
        Ok((before, after))
    }

    /// Parks another program's row and makes `new` begin where it stood, in one transaction; `period` is the present one.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where numbers could come twice, and on stores without tables of other programs.
    fn import(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        let doing = format!("importing `{}`", new.name);
        in_transaction(self, new, period, &doing, |rows| import::import(rows, old, new, period))
    }

    /// The source that this row of another program was imported into, by the record in the table of `new`.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn new_owner(&mut self, old: &Key, new: &Key) -> Result<Option<String>, Fault> {
        new_owner(self, old, new)
    }

    /// Whether rows can be changed here now.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn writable(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Dialect, version and durability, read from the store itself.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn facts(&mut self) -> Result<Facts, Fault>;

    /// Closes connections that have been idle for the store's `idle_timeout`, before the server does and logs an aborted
    /// connection. `now_ms` is the system's boot time. Answers with the boot time at which to ask again; `None`: no
    /// connection of this store will have to be closed.
    fn release_idle(&mut self, _now_ms: u64) -> Option<u64> {
        None
    }

    /// Problems with the settings as they were read last; sends no query. `None`: nothing was read yet, or the store does
    /// not record it.
    fn warnings(&mut self) -> Option<Vec<String>> {
        None
    }

    /// Faults since the last call that the caller did not notice, for example of one of several stores.
    fn news(&mut self) -> Vec<Fault> {
        Vec::new()
    }

    /// Objects created since the last call without `init`: a new file, where numbers begin at 1.
    fn created(&mut self) -> Vec<String> {
        Vec::new()
    }
}
