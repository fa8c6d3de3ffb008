//! Workers of snowflakes: slots of pools that are leased, marks of fixed workers, numbers that are used once.

use std::fmt;

use crate::store::model::pool_rows::SlotRows;
use crate::store::model::rows;
use crate::store::model::slot_rows;
use crate::store::places;
use crate::store::{
    BeginMark, Fault, FaultKind, Key, PoolRows, RaisePool, Release, Renewal, Renewed, Row, Take, Taken,
};

use super::RowStore;

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
pub(crate) fn on_slots<T>(
    store: &mut (impl SlotStore + ?Sized),
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
pub(crate) fn renew_slots(
    store: &mut (impl SlotStore + ?Sized),
    renewals: &[Renewal],
) -> Result<Renewed, Fault> {
    let Some(first) = renewals.first() else { return Ok(Renewed { marks: Vec::new(), now_ms: 0 }) };
    let doing = renewing(renewals);
    on_slots(store, &first.own.key, &doing, |rows, _| slot_rows::renew(rows, renewals))
}

/// What is being done, for messages.
pub(crate) fn making_a_node(key: &Key) -> String {
    format!("inserting a row into `{}` for the worker of `{}`", key.table, key.name)
}

/// As `AsRows`, for what is written once over slots.
pub trait AsSlots {
    /// This store.
    fn as_slots(&mut self) -> &mut dyn SlotStore;
}

impl<S: SlotStore> AsSlots for S {
    fn as_slots(&mut self) -> &mut dyn SlotStore {
        self
    }
}

/// Workers of snowflakes. The verbs are transactions on the rows of slots unless a store overrides them.
pub trait SlotStore: RowStore + AsSlots {
    /// The store's clock, milliseconds since 1970; 0: it has none. Of several stores, the store which has the row of `key`.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn clock_ms(&mut self, _key: &Key) -> Result<u64, Fault> {
        Ok(0)
    }

    /// Begins with the mark of a fixed worker, which no other place that keeps one may stand above; answers with where it stands.
    ///
    /// # Errors
    /// See [`FaultKind`]; `NoneFree` while another process leases this worker, `Refused` where other stores keep it.
    fn begin_mark(&mut self, begin: &BeginMark) -> Result<u64, Fault> {
        places::begin(self.as_slots(), begin)
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
        let repaired = places::repair(self.as_slots(), begin, to, dry_run);
        repaired.map_err(|fault| fault.with_context(&format!("repairing `{}`", begin.key.name)))
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
        places::take(self.as_slots(), take)
    }

    /// Renews leases: their marks and ends rise together. All of one table; an answer to each, in their order.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` some may be renewed.
    fn renew_slots(&mut self, renewals: &[Renewal]) -> Result<Renewed, Fault> {
        renew_slots(self.as_slots(), renewals)
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
        on_slots(self.as_slots(), &first.own.key, &doing, |rows, _| slot_rows::free(rows, releases))
    }

    /// Raises a pool whose table was restored or emptied, and takes its workers from the processes that use them; answers with its
    /// rows before and after.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where every worker begins later anyway.
    fn raise_pool(&mut self, raise: &RaisePool) -> Result<(PoolRows, PoolRows), Fault> {
        let doing = format!("repairing pool `{}`", raise.key.name);
        let raised = on_slots(self.as_slots(), &raise.key, &doing, |rows, _| slot_rows::raise(rows, raise))?;
        on_slots(self.as_slots(), &raise.key, &doing, |rows, _| {
            slot_rows::raise_added(rows, raise, &raised.0)
        })?;
        Ok(raised)
    }

    /// The rows that [`raise_pool`](SlotStore::raise_pool) would leave. Nothing is written.
    ///
    /// # Errors
    /// As `raise_pool`.
    fn would_raise_pool(&mut self, raise: &RaisePool) -> Result<(PoolRows, PoolRows), Fault> {
        self.writable().map_err(|fault| rows::would_fail(&raise.key, fault))?;
        let before = self.slots(&raise.key)?;
        let after = slot_rows::raised(raise, &before).map_err(|fault| rows::would_fail(&raise.key, fault))?;
        Ok((before, after))
    }

    /// The rows of a pool.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn slots(&mut self, key: &Key) -> Result<PoolRows, Fault> {
        let doing = format!("looking at pool `{}`", key.name);
        on_slots(self.as_slots(), key, &doing, |rows, _| rows.read_pool(key).map(Some))
    }
}
