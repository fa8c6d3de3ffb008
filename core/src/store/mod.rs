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

pub(crate) mod guarded;
#[cfg_attr(not(all(feature = "mysql", feature = "postgres")), allow(dead_code))]
mod model;
pub(crate) mod places;
pub(crate) mod secret_file;
#[cfg(any(feature = "mysql", feature = "redis"))]
#[cfg_attr(not(all(feature = "mysql", feature = "redis")), allow(dead_code))]
mod socket;
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

pub use crate::base::bank::{BankSpec, OpenBank};
pub use bank::{BankChange, BankRows};
pub use model::import::{Import, PARKED_AT};

pub(crate) use crate::base::fault::Remedy;
pub use crate::base::reservation::{
    Columns, Fault, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Request, Reserved, Scheme, SerialKey,
};
pub use crate::base::stride::Stride;
pub use crate::base::worker::{
    BeginMark, Beside, Left, OwnSlot, Places, PoolRows, RaisePool, Release, Renewal, Renewed, SlotRow, Slots,
    Take, Taken, noted,
};

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

/// A route table as a store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTable {
    /// The version of its text.
    pub version: u64,
    /// TOML or JSON; `None` where the caller knows this version.
    pub text: Option<String>,
    /// Of several stores: why the table cannot be used, where two of them have different texts of this version.
    pub split: Option<String>,
}

impl StoredTable {
    /// The table of one store.
    #[must_use]
    pub fn new(version: u64, text: Option<String>) -> StoredTable {
        StoredTable { version, text, split: None }
    }
}

#[cfg_attr(not(feature = "_sql"), allow(dead_code))]
pub(crate) fn listing_routes(key: &Key) -> String {
    format!("reading the route tables in `{}`", key.table)
}

pub(crate) fn reading_route(key: &Key) -> String {
    format!("reading route table `{}`", key.name)
}

#[cfg_attr(not(feature = "_sql"), allow(dead_code))]
pub(crate) fn replacing_route(key: &Key) -> String {
    format!("storing route table `{}`", key.name)
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

/// Decides about many rows, each by its index among the keys. It may be asked about a row several times, if other processes are
/// faster; its last answer counts.
pub struct RowsWork<'w>(&'w mut dyn FnMut(usize, Result<Option<Mark>, Fault>) -> Option<Mark>);

impl<'w> RowsWork<'w> {
    pub(crate) fn new(work: &'w mut dyn FnMut(usize, Result<Option<Mark>, Fault>) -> Option<Mark>) -> Self {
        RowsWork(work)
    }

    /// Where the row shall stand; `None`: it stays as it is.
    pub(crate) fn run(&mut self, at: usize, row: Result<Option<Mark>, Fault>) -> Option<Mark> {
        (self.0)(at, row)
    }
}

impl fmt::Debug for RowsWork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowsWork").finish_non_exhaustive()
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

/// What a renewal is called in messages.
pub(crate) fn renewing(renewals: &[Renewal]) -> String {
    match renewals.len() {
        1 => "renewing a leased worker".to_owned(),
        many => format!("renewing {many} leased workers"),
    }
}

/// Renews leases in one transaction, which reads their rows.
fn renew_slots(store: &mut (impl Store + ?Sized), renewals: &[Renewal]) -> Result<Renewed, Fault> {
    let Some(first) = renewals.first() else { return Ok(Renewed { marks: Vec::new(), now_ms: 0 }) };
    let doing = renewing(renewals);
    on_slots(store, &first.own.key, &doing, |rows, _| worker::renew(rows, renewals))
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

/// The slots of a pool as one row, for people.
pub(crate) fn shown_pool(pool: &PoolRows) -> Row {
    worker::shown(pool)
}

/// What is being done, for messages.
fn making_a_node(key: &Key) -> String {
    format!("inserting a row into `{}` for the worker of `{}`", key.table, key.name)
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
    Ok(pool.layout.is_some().then(|| shown_pool(&pool)))
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

    /// Compares the record of a bank with how many counters its source has, or records a new bank. A source that names no number has
    /// those that are recorded.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` for another number of counters.
    fn open_bank(&mut self, key: &Arc<Key>, bank: BankSpec) -> Result<OpenBank, Fault> {
        bank::open(self, key, bank)
    }

    /// Gives a bank another number of counters, each of which begins above all numbers of the old ones; a dry run only says what
    /// would be done.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn change_counters(&mut self, key: &Arc<Key>, counters: u32, dry_run: bool) -> Result<BankChange, Fault> {
        let doing = format!("changing the counters of `{}`", key.name);
        let mut parts = [bank::Part { store: self, partition: None, name: "" }];
        bank::change(&mut parts, key, counters, dry_run).map_err(|fault| fault.with_context(&doing))
    }

    /// Raises every counter of a bank to `to` at least; a dry run only says what would be done. Answers with the bank before and
    /// after.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where every counter stands higher.
    fn repair_bank(
        &mut self,
        key: &Arc<Key>,
        bank: BankSpec,
        to: u64,
        dry_run: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        let doing = format!("repairing `{}`", key.name);
        let mut parts = [bank::Part { store: self, partition: None, name: "" }];
        bank::raise_all(&mut parts, key, bank, to, dry_run).map_err(|fault| fault.with_context(&doing))
    }

    /// Reads a bank whose counters begin at `start`, or at the floor; `None`: it is not recorded.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn look_bank(&mut self, key: &Key, start: u64) -> Result<Option<BankRows>, Fault> {
        bank::look(&mut [bank::Part { store: self, partition: None, name: "" }], key, start)
    }

    /// Reserves for several counters of one bank: an answer to each, in their order. Missing rows are made.
    fn reserve_counters(&mut self, requests: &[Request]) -> Vec<Result<Reserved, Fault>> {
        bank::reserve(self, requests)
    }

    /// Returns ranges of counters of one bank, each as [`give_back`](Store::give_back) does: an answer to each, in their order.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn give_back_counters(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        bank::give_back(self, ranges)
    }

    /// Reads many rows of scheme `keymill` in one table.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn look_rows(&mut self, keys: &[Arc<Key>]) -> Result<Vec<Option<Mark>>, Fault> {
        keys.iter().map(|key| Ok(self.look(key)?.map(|row| row.mark))).collect()
    }

    /// Reads many rows of scheme `keymill` in one table and writes what `work` decides. Answers for each whether it stands so now;
    /// `false`: another process was faster, and the row was not changed.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` some rows may have been changed.
    fn change_rows(&mut self, keys: &[Arc<Key>], work: &mut RowsWork<'_>) -> Result<Vec<bool>, Fault> {
        bank::change_one_by_one(self, keys, work)
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
        let doing = match to {
            0 => format!("reading the mark `{}`", key.name),
            _ => format!("raising the mark `{}` to {to}", key.name),
        };
        in_transaction(self, key, 0, &doing, |rows| rows::raise(rows, key, expect, to))
    }

    /// Begins with the mark of a fixed worker, which no other place that keeps one may stand above; answers with where it stands.
    ///
    /// # Errors
    /// See [`FaultKind`]; `NoneFree` while another process leases this worker, `Refused` where other stores keep it.
    fn begin_mark(&mut self, begin: &BeginMark) -> Result<u64, Fault> {
        places::begin(self, begin)
    }

    /// Raises the mark of a fixed worker to `to` at least, and takes the worker from a process that uses it; a dry run only says what
    /// would be done. Answers with the mark before and after.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where the mark stands higher, or other stores keep it.
    fn repair_mark(
        &mut self,
        begin: &BeginMark,
        to: u64,
        dry_run: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        let repaired = places::repair(self, begin, to, dry_run);
        repaired.map_err(|fault| fault.with_context(&format!("repairing `{}`", begin.key.name)))
    }

    /// The store's clock, milliseconds since 1970; 0: it has none. Of several stores, that of the one which has the row of `key`.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn clock_ms(&mut self, _key: &Key) -> Result<u64, Fault> {
        Ok(0)
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

    /// Makes a row of uid-generator's `WORKER_NODE` for this process; answers with its number, which no other process gets. `process`
    /// distinguishes the processes of a host.
    ///
    /// # Errors
    /// See [`FaultKind`]. After `Unknown` the row may be there, and no process uses its number.
    fn make_node(&mut self, key: &Key, _host: &str, _process: &str) -> Result<u64, Fault> {
        Err(Fault::new(FaultKind::Refused, "this store has no table of uid-generator")
            .with_context(&making_a_node(key)))
    }

    /// Leases a slot of a pool: no other process gets it before the lease ends by the store's clock.
    ///
    /// # Errors
    /// See [`FaultKind`]; `NoneFree` if every slot is leased. After `Unknown` the slot may be leased until its end, and no process
    /// uses it.
    fn take_slot(&mut self, take: &Take) -> Result<Taken, Fault> {
        places::take(self, take)
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
        let doing = match releases.len() {
            1 => "freeing a leased worker".to_owned(),
            many => format!("freeing {many} leased workers"),
        };
        on_slots(self, &first.own.key, &doing, |rows, _| worker::free(rows, releases))
    }

    /// Raises a pool whose table was restored or emptied, and takes its workers from the processes that use them; answers with its
    /// rows before and after.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where every worker begins later anyway.
    fn raise_pool(&mut self, raise: &RaisePool) -> Result<(PoolRows, PoolRows), Fault> {
        let doing = format!("repairing pool `{}`", raise.key.name);
        let raised = on_slots(self, &raise.key, &doing, |rows, _| worker::raise(rows, raise))?;
        on_slots(self, &raise.key, &doing, |rows, _| worker::raise_added(rows, raise, &raised.0))?;
        Ok(raised)
    }

    /// The rows that [`raise_pool`](Store::raise_pool) would leave. Nothing is written.
    ///
    /// # Errors
    /// The same as those of `raise_pool`.
    fn would_raise_pool(&mut self, raise: &RaisePool) -> Result<(PoolRows, PoolRows), Fault> {
        self.writable().map_err(|fault| rows::would_fail(&raise.key, fault))?;
        let before = self.slots(&raise.key)?;
        let after = worker::raised(raise, &before).map_err(|fault| rows::would_fail(&raise.key, fault))?;
        Ok((before, after))
    }

    /// The rows of a pool.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn slots(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        let doing = format!("looking at pool `{}`", key.name);
        on_slots(self, key, &doing, |rows, _| rows.read_pool(key).map(Some))
    }

    /// Reads a route table; its text only where its version is not `known`. `None` if there is none.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn read_route(&mut self, _key: &Key, _known: u64) -> Result<Option<StoredTable>, Fault> {
        Err(Fault::new(FaultKind::Refused, "this store keeps no route tables"))
    }

    /// Every route table in the table of `key`, with its name, in the order of the names.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn list_routes(&mut self, _key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        Ok(Vec::new())
    }

    /// Replaces a route table whose version is `old`, `None` where there is none, by a version and its text. `false`: it has
    /// another version by now, and nothing was changed. From a version to itself it is the same text.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` it may have been replaced.
    fn replace_route(&mut self, _key: &Key, _old: Option<u64>, _new: (u64, &str)) -> Result<bool, Fault> {
        Err(Fault::new(FaultKind::Refused, "this store keeps no route tables"))
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

    /// The mill closes: what follows is asked for the last time, so no pause puts it off.
    fn closing(&mut self) {}

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
