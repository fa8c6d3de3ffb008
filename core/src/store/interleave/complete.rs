//! Complete banks: every counter has its row in every store, whether it was used or not.
//!
//! A counter that no store has begins when every store answers: a store that does not might have a row with numbers. A bank has up
//! to 65 536 counters, and most of them are first used at some later time, when one of the stores may be down. So the bank makes the
//! rows of all its counters ahead, some with each conversation while every store answers. When each of them has been seen in every
//! store, every store records that the bank is *complete*.
//!
//! From then on no counter is new, and a row that is missing was deleted, whatever the other stores say and whether they answer. So
//! a counter that was never used is served by any store that has its row, and no store begins a counter again that another one may
//! have given numbers of. That holds in a store that lost its rows too, as long as one store that answers has the record.
//!
//! The rows are made by the rule of every new source: where no store has one, from the first store to the last.

use std::sync::Arc;

use super::Interleaved;
use super::member::Member;
use super::record::{self, Recorded, SourceId};
use crate::request::bank_spec::{bank_of, complete_key, counter_key};
use crate::store::{Fault, Key, Request, RowMark, RowState, RowStatus, RowsWork};

/// How many counters get their rows in one conversation. The callers of others wait meanwhile.
const ROWS_AT_ONCE: u32 = 256;

/// How long a bank with a lost row rests, and how long the answer that it is not complete holds.
const REST_MS: u64 = 1_000;

/// What a new source is told while a store does not answer.
pub(super) const NEEDS_EVERY_STORE: &str = "a new source begins when every store answers";

/// How far a bank is, as this process knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completion {
    is_complete: bool,
    /// The counters that are looked at next.
    next: u32,
    /// How many in a row had their rows in every store.
    whole: u32,
    /// Boot time before which none is looked at.
    not_before_ms: u64,
    /// Boot time before which the stores are not asked again whether it is complete.
    unknown_until_ms: u64,
}

impl Completion {
    /// Processes that begin at once begin with different counters.
    fn new(counters: u32) -> Completion {
        let parts = counters.div_ceil(ROWS_AT_ONCE).max(1);
        let next = fastrand::u32(..parts) * ROWS_AT_ONCE;
        Completion { is_complete: false, next, whole: 0, not_before_ms: 0, unknown_until_ms: 0 }
    }
}

impl Interleaved {
    /// Whether the counter's bank is complete, so that a row which is missing was deleted. Another process may have completed it: before
    /// a row is made, every store is asked, and where one of them did not answer for the counter, the others from time to time.
    pub(super) fn is_complete(&mut self, counter: &Key, found: &[Option<Recorded>]) -> Result<bool, Fault> {
        let Some((bank, counters)) = bank_of(counter) else { return Ok(false) };
        if self.is_known_complete(&bank, counters) {
            return Ok(true);
        }
        if found.iter().all(Option::is_some) {
            return if record::is_new(found) {
                self.read_whether_complete(&bank, counters)
            } else {
                Ok(false)
            };
        }
        let identity = SourceId::of(&complete_key(&bank, counters));
        let unknown_until_ms = self.banks.get(&identity).map_or(0, |bank| bank.unknown_until_ms);
        if self.clock.boot_ms() >= unknown_until_ms {
            self.look_whether_complete(&bank, counters);
        }
        Ok(self.is_known_complete(&bank, counters))
    }

    /// The same from every store; every store has to answer.
    pub(super) fn read_whether_complete(&mut self, bank: &Key, counters: u32) -> Result<bool, Fault> {
        let keys = [complete_key(bank, counters)];
        let mut is_complete = false;
        for member in &mut self.members {
            is_complete |= member.ask(|store| store.inspect_all(&keys))?.iter().any(is_recorded);
        }
        if is_complete {
            self.look_whether_complete(bank, counters);
        }
        Ok(is_complete)
    }

    pub(super) fn is_known_complete(&self, bank: &Key, counters: u32) -> bool {
        let key = complete_key(bank, counters);
        self.banks.get(&SourceId::of(&key)).is_some_and(|bank| bank.is_complete)
    }

    /// Reads the record of a complete bank in every store that answers. The record of any of them is enough.
    pub(super) fn look_whether_complete(&mut self, bank: &Key, counters: u32) {
        if self.is_known_complete(bank, counters) {
            return;
        }
        let keys = [complete_key(bank, counters)];
        let found = self.ask_each(|_, store| store.inspect_all(&keys));
        let is_record = |rows: &Vec<Recorded>| rows.iter().any(is_recorded);
        let until_ms = self.clock.boot_ms() + REST_MS;
        let bank = self.banks.entry(SourceId::of(&keys[0])).or_insert_with(|| Completion::new(counters));
        bank.is_complete = found.iter().flatten().any(is_record);
        bank.unknown_until_ms = until_ms;
    }

    /// Makes the rows of some counters more. A store that fails meanwhile has its pause, and they are made later.
    pub(super) fn complete_further(&mut self, request: &Request) {
        let Some((bank, counters)) = bank_of(&request.key) else { return };
        let record = complete_key(&bank, counters);
        let identity = SourceId::of(&record);
        let mut completion = *self.banks.entry(identity.clone()).or_insert_with(|| Completion::new(counters));
        let now_ms = self.clock.boot_ms();
        let rests = now_ms < completion.not_before_ms || self.members.iter().any(Member::is_paused);
        if completion.is_complete || rests {
            return;
        }
        let to = completion.next.saturating_add(ROWS_AT_ONCE).min(counters);
        let keys: Vec<Arc<Key>> =
            (completion.next..to).map(|index| counter_key(&bank, counters, index)).collect();
        match self.make_rows(&keys, &record, request.start) {
            Ok(Made::Whole) => completion.whole = completion.whole.saturating_add(to - completion.next),
            // One of them was lost, or another process is at it: the bank is not complete before it is seen whole.
            Ok(Made::InPart) => {
                completion.whole = 0;
                completion.not_before_ms = now_ms + REST_MS;
            }
            Ok(Made::Before) => completion.is_complete = true,
            Err(_) => return,
        }
        completion.next = if to == counters { 0 } else { to };
        if completion.whole >= counters && self.record_complete(&record).is_ok() {
            completion.is_complete = true;
        }
        self.banks.insert(identity, completion);
    }

    /// Makes the rows of these counters that no store has; each store is asked for `record` too.
    fn make_rows(&mut self, keys: &[Arc<Key>], record: &Arc<Key>, start: u64) -> Result<Made, Fault> {
        let asked: Vec<Arc<Key>> = keys.iter().chain([record]).cloned().collect();
        let mut found: Vec<Vec<Recorded>> = Vec::with_capacity(self.members.len());
        for member in &mut self.members {
            let mut rows = member.ask(|store| store.inspect_all(&asked))?;
            if rows.pop().as_ref().is_some_and(is_recorded) {
                return Ok(Made::Before);
            }
            found.push(rows);
        }
        let mut new = Vec::new();
        let mut is_whole = true;
        for (at, key) in keys.iter().enumerate() {
            let rows: Vec<Option<Recorded>> = found.iter().map(|rows| rows.get(at).copied()).collect();
            let each = || rows.iter().flatten().zip(&self.members);
            if rows.iter().all(|row| row.as_ref().is_some_and(has_row)) {
                continue;
            }
            let in_use = each().any(|(row, member)| {
                has_row(row) && !matches!(row, Recorded::Ours { .. })
                    || member.partition().has_issued(key, start, row)
            });
            if !in_use && record::is_new(&rows) {
                new.push(Arc::clone(key));
            } else {
                is_whole = false;
            }
        }
        if !new.is_empty() {
            self.record_in_each(&new, |_| start)?;
        }
        Ok(if is_whole { Made::Whole } else { Made::InPart })
    }

    /// Records in every store that the bank is complete.
    fn record_complete(&mut self, record: &Arc<Key>) -> Result<(), Fault> {
        self.record_in_each(std::slice::from_ref(record), |_| 1)
    }

    /// Makes the rows of these keys in every store where there are none, from the first store to the last, and reads all of them
    /// afterwards: another process may have been faster, and two of the URLs may lead to one store.
    pub(super) fn record_in_each(
        &mut self,
        keys: &[Arc<Key>],
        start: impl Fn(usize) -> u64,
    ) -> Result<(), Fault> {
        for member in &mut self.members {
            member.ask(|store| {
                let partition = store.partition;
                let mut work = |at: usize, row: Result<Option<RowMark>, Fault>| {
                    let is_unused = row.is_ok_and(|row| row.is_none_or(is_unused));
                    is_unused.then(|| RowMark::open(Some(partition), partition.first(start(at))))
                };
                store.change_rows(keys, &mut RowsWork::new(&mut work))
            })?;
        }
        for member in &mut self.members {
            let rows = member.ask(|store| store.inspect_all(keys))?;
            if !rows.iter().all(|row| matches!(row, Recorded::Ours { .. })) {
                return Err(crate::store::model::rows::moved_on());
            }
        }
        Ok(())
    }
}

/// What became of the rows of some counters.
enum Made {
    /// Every store has all of them.
    Whole,
    /// Some of them are missing where another store has used them.
    InPart,
    /// The bank was complete before.
    Before,
}

fn has_row(found: &Recorded) -> bool {
    match found {
        Recorded::Ours { .. } => true,
        Recorded::Foreign(row) => row.status.state == RowState::Closed,
        _ => false,
    }
}

/// Whether a row of a mill with one store has given no number.
fn is_unused(row: RowMark) -> bool {
    row.status == RowStatus::default() && row.mark.period == 0 && row.mark.next <= 1
}

fn is_recorded(found: &Recorded) -> bool {
    matches!(found, Recorded::Ours { .. })
}
