//! One row or many, each the row of a key: what segments, serials and marks ask of a store.

use std::fmt;
use std::sync::Arc;

use crate::store::bank;
use crate::store::model::import;
use crate::store::model::period_clock::check_set_back;
use crate::store::model::rows::{self, Rows};
use crate::store::{Fault, FaultKind, GiveBack, Import, Key, Mark, Request, Reserved, Row, RowMark};

use super::Catalogue;

/// Work inside one transaction. It may run several times, if other processes are faster.
pub struct Work<'w>(pub(crate) &'w mut dyn FnMut(&mut dyn Rows) -> Result<bool, Fault>);

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

/// Decides about many rows, each by its index among the keys. It may be asked about a row several times, if other processes are
/// faster; its last answer counts.
pub struct RowsWork<'w>(&'w mut DecideRow<'w>);

/// The index of a key and its row; answers with how the row shall be.
type DecideRow<'w> = dyn FnMut(usize, Result<Option<RowMark>, Fault>) -> Option<RowMark> + 'w;

impl<'w> RowsWork<'w> {
    pub(crate) fn new(work: &'w mut DecideRow<'w>) -> Self {
        RowsWork(work)
    }

    /// Where the row shall stand; `None`: it stays as it is.
    pub(crate) fn run(&mut self, at: usize, row: Result<Option<RowMark>, Fault>) -> Option<RowMark> {
        (self.0)(at, row)
    }
}

impl fmt::Debug for RowsWork<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowsWork").finish_non_exhaustive()
    }
}

/// One transaction on the row of `key`, which would begin in `period` if it is missing; `doing` is for messages.
pub(crate) fn in_transaction<T>(
    store: &mut (impl RowStore + ?Sized),
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
    store: &mut (impl RowStore + ?Sized),
    old: &Key,
    new: &Key,
) -> Result<Option<String>, Fault> {
    let record = import::record_of(old);
    let doing = format!("importing `{}`", new.name);
    in_transaction(store, new, 0, &doing, |rows| rows.new_owner(new, &record).map(Some))
}

/// The store behind a trait object, so that what is written once over rows is compiled once, and not for each store.
pub trait AsRows {
    /// This store.
    fn as_rows(&mut self) -> &mut dyn RowStore;
}

impl<S: RowStore> AsRows for S {
    fn as_rows(&mut self) -> &mut dyn RowStore {
        self
    }
}

/// Reservations and marks in rows. The verbs are transactions on a row unless a store overrides them.
pub trait RowStore: Catalogue + AsRows {
    /// Carries out one transaction on the row of `key`, which would begin in `period` if it is missing. The verbs that follow
    /// are such transactions unless a store overrides them.
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
        in_transaction(self.as_rows(), &request.key, request.period, &doing, |rows| {
            rows::reserve(rows, request)
        })
    }

    /// How many requests [`reserve_all`](RowStore::reserve_all) sends at once; 1: it sends them one by one.
    fn batch(&self) -> usize {
        1
    }

    /// Reserves for several sources at once, if nothing about any of them is unusual: an answer to each request, in their
    /// order. `None`: that request has to be sent on its own, with [`reserve`](RowStore::reserve), and nothing was changed for
    /// it. A store that fails reports it no later than for a single request.
    fn reserve_all(&mut self, requests: &[Request]) -> Vec<Option<Result<Reserved, Fault>>> {
        vec![None; requests.len()]
    }

    /// Returns a range, only if the row is still as its reservation left it. `false`: the row has moved on, nothing was done.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn give_back(&mut self, range: &GiveBack) -> Result<bool, Fault> {
        let doing = format!("giving back [{}, {}) of `{}`", range.lo, range.hi, range.key.name);
        in_transaction(self.as_rows(), &range.key, range.period, &doing, |rows| {
            rows::give_back(rows, range).map(Some)
        })
    }

    /// Returns several ranges, each as [`give_back`](RowStore::give_back) does: an answer to each, in their order. After a fault
    /// it is not known which of them were returned.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn give_back_all(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        ranges.iter().map(|range| self.give_back(range)).collect()
    }

    /// Reads the row; `None` if there is none.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault>;

    /// Reads many rows of scheme `keymill` in one table.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn look_rows(&mut self, keys: &[Arc<Key>]) -> Result<Vec<Option<RowMark>>, Fault> {
        keys.iter().map(|key| Ok(self.look(key)?.map(|row| row.row_mark()))).collect()
    }

    /// Reads many rows of scheme `keymill` in one table and writes what `work` decides. Answers for each whether it stands so now;
    /// `false`: another process was faster, and the row was not changed.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` some rows may have been changed.
    fn change_rows(&mut self, keys: &[Arc<Key>], work: &mut RowsWork<'_>) -> Result<Vec<bool>, Fault> {
        bank::change_one_by_one(self.as_rows(), keys, work)
    }

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
        in_transaction(self.as_rows(), key, 0, &doing, |rows| rows::raise(rows, key, expect, to))
    }

    /// Raises a row to `to`; never lowers it. Answers with the row before and after.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where the row stands higher.
    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        let doing = format!("repairing `{}`", key.name);
        in_transaction(self.as_rows(), key, to.period, &doing, |rows| rows::repair(rows, key, to))
    }

    /// The row that [`repair`](RowStore::repair) would leave. Nothing is written.
    ///
    /// # Errors
    /// As `repair`.
    fn would_repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        // A replica may show old rows, and takes no writes.
        self.writable().map_err(|fault| rows::would_fail(key, fault))?;
        let before = self.look(key)?;
        let after = rows::repaired(key, before.as_ref(), to).map_err(|fault| rows::would_fail(key, fault))?;
        Ok((before, after))
    }

    /// Sets a row whose period is later than `latest` back to `to`, of an earlier one; a dry run only says what would be done. Answers with
    /// the row before and after.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where the row stands in `latest` or earlier.
    fn set_back(
        &mut self,
        key: &Key,
        to: Mark,
        latest: u64,
        is_dry: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        let doing = format!("setting back `{}`", key.name);
        if !is_dry {
            return in_transaction(self.as_rows(), key, to.period, &doing, |rows| {
                rows::set_back(rows, key, to, latest)
            });
        }
        self.writable().map_err(|fault| rows::would_fail(key, fault))?;
        let before = self.look(key)?;
        let stands = before.as_ref().map_or_else(Mark::default, |row| row.mark);
        let after =
            check_set_back(key, stands, to, latest).and_then(|()| rows::moved(key, before.as_ref(), to));
        Ok((before, after.map_err(|fault| fault.with_context(&doing))?))
    }

    /// Parks another program's row and makes `new` begin where it stood, in one transaction; `period` is the present one.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` where numbers could come twice, and on stores without tables of other programs.
    fn import(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        let doing = format!("importing `{}`", new.name);
        in_transaction(self.as_rows(), new, period, &doing, |rows| import::import(rows, old, new, period))
    }

    /// The source that this row of another program was imported into, by the record in the table of `new`.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn new_owner(&mut self, old: &Key, new: &Key) -> Result<Option<String>, Fault> {
        new_owner(self.as_rows(), old, new)
    }
}
