//! Banks of counters over several stores: every store records the bank, and each has its part of every counter's numbers.

use std::sync::Arc;

use crate::request::bank_spec::{BankSpec, OpenBank};
use crate::store::bank::{self, BankChange, BankRows, Direct};
use crate::store::{Fault, Key, Row};

use super::member::Hold;
use super::{Interleaved, gone, is_outage};

impl Interleaved {
    /// The rows of a bank were changed by hand: each of them is looked at again.
    fn forget_bank(&mut self, key: &Key) {
        self.sources.retain(|source, _| !source.is_of_bank(key));
        self.banks.retain(|source, _| !source.is_of_bank(key));
    }

    /// Compares the bank's record in every store that answers, and records it in each: one of them may be down when a process
    /// begins. A new bank begins when all of them answer.
    pub(super) fn open_bank_in_each(&mut self, key: &Arc<Key>, bank: BankSpec) -> Result<OpenBank, Fault> {
        let mut found = self.ask_each(|_, store| bank::recorded(&mut **store, key));
        if !found.iter().any(|record| matches!(record, Ok(Some(_)))) {
            // All of them are needed.
            for (member, record) in
                self.members.iter_mut().zip(&mut found).filter(|(_, record)| is_outage(record))
            {
                *record = member.ask_alone(Hold::Alone, |store| bank::recorded(&mut **store, key));
            }
        }
        let mut down = None;
        let mut records = Vec::with_capacity(found.len());
        for record in found {
            match record {
                Ok(record) => records.push(Some(record)),
                Err(fault) if gone(fault.kind) => {
                    records.push(None);
                    down = Some(fault);
                }
                Err(fault) => return Err(fault),
            }
        }
        let is_begun = records.iter().flatten().any(Option::is_some);
        if let Some(fault) = down.filter(|_| !is_begun) {
            return Err(fault
                .with_context(&format!("beginning `{}`, for which every store has to answer,", key.name)));
        }
        // What the stores have to agree about: a change of counters that was cut off is refused.
        let latest = records.iter().flatten().flatten().max_by_key(|record| record.generation);
        let counters = latest.filter(|_| !bank.is_named).map_or(bank.counters, |record| record.counters);
        let named = BankSpec { counters, is_named: true, ..bank };
        let mut open = OpenBank { counters, floor: 0 };
        let mut answer = None;
        for (member, record) in self.members.iter_mut().zip(records) {
            // A store that is down has recorded the bank with the others, or does so when it is back.
            if record.is_none() {
                continue;
            }
            match member.ask(|store| bank::open(&mut **store, key, named)) {
                Ok(opened) => {
                    open.floor = open.floor.max(opened.floor);
                    answer = Some(Ok(()));
                }
                Err(fault) if gone(fault.kind) && is_begun => {
                    answer.get_or_insert(Err(fault));
                }
                Err(fault) => return Err(fault),
            }
        }
        answer.unwrap_or(Ok(()))?;
        self.look_whether_complete(key, counters);
        Ok(open)
    }

    /// Reads the bank in every store that answers.
    pub(super) fn look_at_bank(&mut self, key: &Key, start: u64) -> Result<Option<BankRows>, Fault> {
        let found = self.ask_each(|_, store| {
            let partition = Some(store.partition);
            bank::look(&mut [Direct { store: &mut **store, partition }], key, start)
        });
        let mut all: Option<BankRows> = None;
        let mut fault = None;
        let mut has_answer = false;
        for answer in found {
            match answer {
                Ok(rows) => {
                    has_answer = true;
                    all = match (all, rows) {
                        (Some(all), Some(rows)) => Some(added(all, rows)),
                        (all, rows) => all.or(rows),
                    };
                }
                Err(failed) if gone(failed.kind) => fault = Some(failed),
                Err(refused) => return Err(refused),
            }
        }
        match fault {
            Some(fault) if !has_answer => Err(fault),
            _ => Ok(all),
        }
    }

    /// Every store answers, and is about to be changed.
    fn all_answer(&mut self, key: &Key) -> Result<(), Fault> {
        self.operate_on_each(|_, store| store.look(key)).map(drop)
    }

    /// Changes the number of counters in every store.
    pub(super) fn change_counters_of_all(
        &mut self,
        key: &Arc<Key>,
        counters: u32,
        dry_run: bool,
    ) -> Result<BankChange, Fault> {
        let doing = format!("changing the counters of `{}`", key.name);
        let changed =
            self.all_answer(key).and_then(|()| bank::change(&mut self.members, key, counters, dry_run));
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
        let repaired =
            self.all_answer(key).and_then(|()| bank::raise_all(&mut self.members, key, bank, to, dry_run));
        self.forget_bank(key);
        repaired.map_err(|fault| fault.with_context(&doing))
    }
}

/// Adds the rows of one store to the other stores' rows.
fn added(mut all: BankRows, rows: BankRows) -> BankRows {
    all.floor = all.floor.max(rows.floor);
    let of_all = all.next.iter_mut().zip(&mut all.reserved);
    for ((next, reserved), (own_next, own_reserved)) in of_all.zip(rows.next.into_iter().zip(rows.reserved)) {
        *reserved += own_reserved;
        // The lowest number that none of the stores has reserved.
        *next = match (*next, own_next) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }
    all
}
