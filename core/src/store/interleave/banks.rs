//! Banks of counters over several stores: every store records the bank, and each has its part of every counter's numbers.

use std::sync::Arc;

use crate::request::bank_spec::{BankSpec, OpenBank};
use crate::store::bank::{self, BankChange, Part};
use crate::store::{Fault, Key, Row, Store};

use super::{Interleaved, Member, gone, record};

impl Interleaved {
    /// The stores as parts of a bank.
    pub(super) fn parts(&mut self) -> Vec<Part<'_, dyn Store>> {
        let mut parts = Vec::with_capacity(self.members.len());
        for Member { store, partition, name, .. } in &mut self.members {
            parts.push(Part { store: &mut **store, partition: Some(*partition), name: name.as_str() });
        }
        parts
    }

    /// The rows of a bank were changed by hand: each of them is looked at again.
    fn forget_bank(&mut self, key: &Key) {
        let begins = record::identity(key);
        self.sources.retain(|identity, _| !identity.starts_with(&begins));
    }

    /// Compares the bank's record in every store that answers, and records it in each: one of them may be down when a process
    /// begins. A new bank begins when all of them answer.
    pub(super) fn open_bank_in_each(&mut self, key: &Arc<Key>, bank: BankSpec) -> Result<OpenBank, Fault> {
        let mut found = Vec::with_capacity(self.members.len());
        let mut down = None;
        for member in &mut self.members {
            match bank::recorded(&mut *member.store, key) {
                Ok(record) => found.push(Some(record)),
                Err(fault) if gone(fault.kind) => {
                    found.push(None);
                    down = Some(member.said(fault));
                }
                Err(fault) => return Err(member.said(fault)),
            }
        }
        let is_begun = found.iter().flatten().any(Option::is_some);
        if let Some(fault) = down.filter(|_| !is_begun) {
            return Err(fault
                .with_context(&format!("beginning `{}`, for which every store has to answer,", key.name)));
        }
        // What the stores have to agree about: a change of counters that was cut off is refused.
        let latest = found.iter().flatten().flatten().max_by_key(|record| record.generation);
        let counters = latest.filter(|_| !bank.is_named).map_or(bank.counters, |record| record.counters);
        let named = BankSpec { counters, is_named: true, ..bank };
        let mut open = OpenBank { counters, floor: 0 };
        for (member, record) in self.members.iter_mut().zip(found) {
            // A store that is down has recorded the bank with the others, or does so when it is back.
            if record.is_some() {
                let opened =
                    bank::open(&mut *member.store, key, named).map_err(|fault| member.said(fault))?;
                open.floor = open.floor.max(opened.floor);
            }
        }
        Ok(open)
    }

    /// Changes the number of counters in every store.
    pub(super) fn change_counters_of_all(
        &mut self,
        key: &Arc<Key>,
        counters: u32,
        dry_run: bool,
    ) -> Result<BankChange, Fault> {
        let doing = format!("changing the counters of `{}`", key.name);
        let changed = bank::change(&mut self.parts(), key, counters, dry_run);
        self.forget_bank(key);
        changed.map_err(|fault| fault.with_context(&doing))
    }

    /// Raises every counter of a bank in every store.
    pub(super) fn raise_counters_of_all(
        &mut self,
        key: &Arc<Key>,
        bank: BankSpec,
        to: u64,
        dry_run: bool,
    ) -> Result<(Option<Row>, Row), Fault> {
        let doing = format!("repairing `{}`", key.name);
        let repaired = bank::raise_all(&mut self.parts(), key, bank, to, dry_run);
        self.forget_bank(key);
        repaired.map_err(|fault| fault.with_context(&doing))
    }
}
