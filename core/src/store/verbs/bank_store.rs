//! Banks: up to 65 536 counters of one source, served many at once.

use std::sync::Arc;

use crate::store::bank;
use crate::store::{BankChange, BankRows, BankSpec, Fault, GiveBack, Key, OpenBank, Request, Reserved, Row};

use super::RowStore;

/// Banks of counters. The verbs are changes of many rows unless a store overrides them.
pub trait BankStore: RowStore {
    /// Compares the record of a bank with how many counters its source has, or records a new bank. A source that names no number has
    /// those that are recorded.
    ///
    /// # Errors
    /// See [`FaultKind`]; `Refused` for another number of counters.
    fn open_bank(&mut self, key: &Arc<Key>, bank: BankSpec) -> Result<OpenBank, Fault> {
        bank::open(self.as_rows(), key, bank)
    }

    /// Gives a bank another number of counters. Each begins above all numbers of the old ones; a dry run only says what
    /// would be done.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn change_counters(&mut self, key: &Arc<Key>, counters: u32, dry_run: bool) -> Result<BankChange, Fault> {
        let doing = format!("changing the counters of `{}`", key.name);
        let mut parts = [bank::Direct { store: self.as_rows(), partition: None }];
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
        let mut parts = [bank::Direct { store: self.as_rows(), partition: None }];
        bank::raise_all(&mut parts, key, bank, to, dry_run).map_err(|fault| fault.with_context(&doing))
    }

    /// Reads a bank whose counters begin at `start`, or at the floor; `None`: it is not recorded.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn look_bank(&mut self, key: &Key, start: u64) -> Result<Option<BankRows>, Fault> {
        bank::look(&mut [bank::Direct { store: self.as_rows(), partition: None }], key, start)
    }

    /// Reserves for several counters of one bank: an answer to each, in their order. Missing rows are made.
    fn reserve_counters(&mut self, requests: &[Request]) -> Vec<Result<Reserved, Fault>> {
        bank::reserve(self.as_rows(), requests)
    }

    /// Returns ranges of counters of one bank, each as [`give_back`](RowStore::give_back) does: an answer to each, in their order.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn give_back_counters(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        bank::give_back(self.as_rows(), ranges)
    }
}
