//! The rows of a bank: its record, its floor, and its counters.

use std::sync::Arc;

use crate::error::fault::{Fault, FaultKind, Remedy};
use crate::request::bank_spec::{BankSpec, OpenBank, Record, counter_key, floor_key};
use crate::request::partition::Partition;
use crate::request::reservation::{GiveBack, Key, MAX_NUMBER, Mark, Request, Reserved};
use crate::request::row_mark::{RowMark, RowState, RowStatus};

use super::model::decide::{decide, misplaced};
use super::model::rows::{self, Rows};
use super::{Row, RowStore, RowsWork, Work};

/// Compares a bank's record with the source, or records a new bank. A source that names no number of counters has those that are
/// recorded.
pub(super) fn open(
    store: &mut (impl RowStore + ?Sized),
    key: &Arc<Key>,
    bank: BankSpec,
) -> Result<OpenBank, Fault> {
    let doing = |fault: Fault| fault.with_context(&format!("opening `{}`", key.name));
    if recorded(store, key).map_err(doing)?.is_none() {
        let record = Record { generation: 1, counters: bank.counters };
        match store.raise(key, Some(0), record.to_position()) {
            // Another process was faster; its record is compared below.
            Err(fault) if fault.kind != FaultKind::Taken => return Err(doing(fault)),
            _ => {}
        }
    }
    let counters = match recorded(store, key).map_err(doing)? {
        Some(record) if record.counters == bank.counters || !bank.is_named => record.counters,
        found => return Err(doing(other_counters(key, found, bank.counters))),
    };
    let floor = store.look(&floor_key(key)).map_err(doing)?.map_or(0, |row| row.mark.next);
    Ok(OpenBank { counters, floor })
}

/// What the record of a bank says; `None`: there is no record.
pub(super) fn recorded(store: &mut (impl RowStore + ?Sized), key: &Key) -> Result<Option<Record>, Fault> {
    let Some(row) = store.look(key)? else { return Ok(None) };
    match Record::of_position(row.mark.next) {
        Some(record) if row.mark.period == 0 && row.status == RowStatus::default() => Ok(Some(record)),
        _ => Err(Fault::new(
            FaultKind::Refused,
            format!(
                "its record says {}, which no version of keymill wrote; stop every program that uses it, then mend the row (`next` is generation · 32 + log2 of the number of counters) or restore it; nothing was changed",
                row.text
            ),
        )),
    }
}

fn other_counters(key: &Key, found: Option<Record>, counters: u32) -> Fault {
    let found = found.map_or_else(|| "none any more".to_owned(), |record| record.counters.to_string());
    Fault::new(
        FaultKind::Refused,
        format!(
            "`{}` is recorded with counters={found}, and this source has counters={counters}: two counters would number the ids of one key, and ids could be equal; nothing was changed. Open it with `counters={found}`, or change the record: that raises every new counter above every old one",
            key.name
        ),
    )
    .with_remedy(Remedy::Counters(counters))
}

/// Reserves for counters of one bank.
pub(super) fn reserve(
    store: &mut (impl RowStore + ?Sized),
    requests: &[Request],
) -> Vec<Result<Reserved, Fault>> {
    if let [request] = requests {
        return vec![store.reserve(request)];
    }
    let keys: Vec<_> = requests.iter().map(|request| Arc::clone(&request.key)).collect();
    let mut answers: Vec<Result<Reserved, Fault>> = vec![Err(rows::moved_on()); requests.len()];
    let mut work = |at: usize, row: Result<Option<RowMark>, Fault>| {
        let (request, answer) = (requests.get(at)?, answers.get_mut(at)?);
        *answer = row.and_then(|row| decide(row, request));
        let range = answer.as_ref().ok()?;
        let ends = request.key.row_at(Mark { period: range.period, next: range.hi });
        Some(ends.by(request.writer))
    };
    let written = store.change_rows(&keys, &mut RowsWork::new(&mut work));
    for (at, (request, answer)) in requests.iter().zip(&mut answers).enumerate() {
        match &written {
            Ok(written) if answer.is_err() || written.get(at) == Some(&true) => {}
            Ok(_) => *answer = Err(rows::moved_on()),
            Err(fault) => *answer = Err(fault.clone()),
        }
        if let Err(fault) = answer {
            *fault = fault.clone().with_context(&rows::reserving(request));
        }
    }
    answers
}

/// Returns ranges of counters of one bank.
pub(super) fn give_back(
    store: &mut (impl RowStore + ?Sized),
    ranges: &[GiveBack],
) -> Result<Vec<bool>, Fault> {
    let keys: Vec<_> = ranges.iter().map(|range| Arc::clone(&range.key)).collect();
    let mut given = vec![false; ranges.len()];
    let mut work = |at: usize, row: Result<Option<RowMark>, Fault>| {
        let range = ranges.get(at)?;
        let gives = range.has_numbers() && row.ok().flatten() == Some(range.end());
        *given.get_mut(at)? = gives;
        gives.then(|| range.begin())
    };
    let written = store.change_rows(&keys, &mut RowsWork::new(&mut work));
    let written = written.map_err(|fault| {
        fault.with_context(&format!("giving back the ranges of {} counters", ranges.len()))
    })?;
    Ok(given.into_iter().zip(written).map(|(given, written)| given && written).collect())
}

/// Changes rows one after the other.
pub(super) fn change_one_by_one(
    store: &mut (impl RowStore + ?Sized),
    keys: &[Arc<Key>],
    work: &mut RowsWork<'_>,
) -> Result<Vec<bool>, Fault> {
    let mut written = Vec::with_capacity(keys.len());
    for (at, key) in keys.iter().enumerate() {
        let mut done = false;
        let mut attempt = |open: &mut dyn Rows| {
            let stored = open.read(key, true);
            let row = stored.as_ref().map_err(Clone::clone).and_then(|stored| match stored {
                Some(stored) => rows::row_mark_of(key, stored),
                None => Ok(None),
            });
            let before = row.as_ref().ok().copied().flatten();
            done = match work.run(at, row) {
                Some(after) if Some(after) != before => {
                    let new = rows::stored_as(key, after)?;
                    match stored.ok().flatten() {
                        Some(old) => open.replace(key, &old, &new)?,
                        None => open.insert(key, &new)?,
                    }
                }
                _ => true,
            };
            Ok(done)
        };
        store.transact(key, 0, &mut Work(&mut attempt))?;
        written.push(done);
    }
    Ok(written)
}

/// How many rows of a bank are read or changed at once.
const ROWS_AT_ONCE: u32 = 512;

/// How often rows that other processes move are tried again.
const ATTEMPTS: usize = 20;

/// A store as a part of a bank: the only one, or one of several.
pub(super) trait BankPart {
    /// What the store is asked through.
    type Store: RowStore + ?Sized;

    /// The partition of one of several stores.
    fn partition(&self) -> Option<Partition>;

    /// Asks the store. Its faults name it.
    fn ask<T>(&mut self, work: impl FnOnce(&mut Self::Store) -> Result<T, Fault>) -> Result<T, Fault>;

    /// Names the store in a fault.
    fn said(&self, fault: Fault) -> Fault;

    /// The store's own position for a number of the bank.
    fn first(&self, number: u64) -> u64 {
        self.partition().map_or(number, |partition| partition.first(number))
    }

    /// The number of the bank at which a row of this store stands.
    fn stands(&self, next: u64) -> u64 {
        self.partition().map_or(next, |partition| partition.stands(next))
    }

    /// Changes the rows of these counters; `work` gets the index of the counter and the row's position.
    fn change(
        &mut self,
        bank: &Key,
        counters: u32,
        mut work: impl FnMut(u32, Option<RowMark>) -> Result<Option<RowMark>, Fault>,
    ) -> Result<(), Fault> {
        for from in (0..counters).step_by(ROWS_AT_ONCE as usize) {
            let to = from.saturating_add(ROWS_AT_ONCE).min(counters);
            let mut indexes: Vec<u32> = (from..to).collect();
            let mut attempts = 0;
            while !indexes.is_empty() {
                let keys: Vec<_> = indexes.iter().map(|&index| counter_key(bank, counters, index)).collect();
                let mut refused = None;
                let mut decide = |at: usize, row: Result<Option<RowMark>, Fault>| {
                    let index = *indexes.get(at)?;
                    row.and_then(|row| work(index, row)).unwrap_or_else(|fault| {
                        refused.get_or_insert(fault);
                        None
                    })
                };
                let written = self.ask(|store| store.change_rows(&keys, &mut RowsWork::new(&mut decide)))?;
                if let Some(fault) = refused {
                    return Err(self.said(fault));
                }
                let mut written = written.into_iter();
                indexes.retain(|_| written.next() == Some(false));
                attempts += 1;
                if attempts == ATTEMPTS {
                    return Err(self.said(rows::moved_on()));
                }
            }
        }
        Ok(())
    }

    /// The rows of these counters, by index; and the highest number of the bank at which one of them stands, open or closed.
    fn seen(&mut self, bank: &Key, counters: u32) -> Result<(Vec<Option<RowMark>>, u64), Fault> {
        let rows = self.ask(|store| rows_of(store, bank, counters))?;
        let highest = rows.iter().flatten().map(|row| self.stands(row.mark.next)).max().unwrap_or(0);
        Ok((rows, highest))
    }

    /// Refuses a row that is no counter of this part of the bank, open or closed.
    fn check(&self, bank: &Key, row: RowMark) -> Result<(), Fault> {
        let status = RowStatus { state: row.status.state, partition: self.partition() };
        if !matches!(row.status.state, RowState::Open | RowState::Closed) || row.status != status {
            let own = Key { partition: self.partition(), ..bank.clone() };
            return Err(misplaced(&own, row.status));
        }
        if row.mark.period != 0 {
            return Err(Fault::new(
                FaultKind::Refused,
                format!("a row of it stands in period {}; nothing more was changed", row.mark.period),
            ));
        }
        Ok(())
    }
}

/// A store that is asked directly: the only one, or one of several with which a conversation has begun.
pub(super) struct Direct<'s, S: ?Sized> {
    pub(super) store: &'s mut S,
    pub(super) partition: Option<Partition>,
}

impl<S: RowStore + ?Sized> BankPart for Direct<'_, S> {
    type Store = S;

    fn partition(&self) -> Option<Partition> {
        self.partition
    }

    fn ask<T>(&mut self, work: impl FnOnce(&mut S) -> Result<T, Fault>) -> Result<T, Fault> {
        work(self.store)
    }

    fn said(&self, fault: Fault) -> Fault {
        fault
    }
}

/// The rows of the counters of a bank, by index.
pub(super) fn rows_of(
    store: &mut (impl RowStore + ?Sized),
    bank: &Key,
    counters: u32,
) -> Result<Vec<Option<RowMark>>, Fault> {
    let mut found = Vec::with_capacity(counters as usize);
    for from in (0..counters).step_by(ROWS_AT_ONCE as usize) {
        let to = from.saturating_add(ROWS_AT_ONCE).min(counters);
        let keys: Vec<_> = (from..to).map(|index| counter_key(bank, counters, index)).collect();
        found.extend(store.look_rows(&keys)?);
    }
    Ok(found)
}

/// The rows of a bank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BankRows {
    /// How many counters it has.
    pub counters: u32,
    /// Where counters without a row begin; 0: at their `start`.
    pub floor: u64,
    /// The next number of each counter; `None`: it was not used.
    pub next: Vec<Option<u64>>,
    /// How many numbers of each counter were reserved since it began.
    pub reserved: Vec<u64>,
}

/// Reads a bank; `None`: it is not recorded.
pub(super) fn look(parts: &mut [impl BankPart], key: &Key, start: u64) -> Result<Option<BankRows>, Fault> {
    let mut bank: Option<BankRows> = None;
    for part in parts {
        let Some(record) = part.ask(|store| recorded(store, key))? else { continue };
        let floor = part.ask(|store| store.look(&floor_key(key)))?;
        let found = part.ask(|store| rows_of(store, key, record.counters))?;
        let all = bank.get_or_insert_with(|| BankRows {
            counters: record.counters,
            next: vec![None; record.counters as usize],
            reserved: vec![0; record.counters as usize],
            ..BankRows::default()
        });
        all.floor = all.floor.max(floor.map_or(0, |row| row.mark.next));
        let begin = part.first(all.floor.max(start).max(1));
        for (reserved, row) in all.reserved.iter_mut().zip(&found) {
            *reserved += row.map_or(0, |row| row.mark.next.saturating_sub(begin));
        }
        for (all, row) in all.next.iter_mut().zip(found) {
            // Of several stores the lowest number that none of them has reserved.
            let stands = row.map(|row| part.stands(row.mark.next));
            *all = match (*all, stands) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
        }
    }
    Ok(bank)
}

/// What changing a bank did, or would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BankChange {
    /// How many counters the bank had; `None`: it was not recorded.
    pub before: Option<u32>,
    /// How many it has.
    pub after: u32,
    /// How many rows of counters there were.
    pub rows: u64,
    /// The first number of every counter from now on, or a lower one where no counter was used.
    pub floor: u64,
}

/// Gives a bank another number of counters. Run again after a crash it goes on where it ended.
///
/// The rows of the old counters are closed first, those that were never used included: a process that still has the old number
/// of counters is refused at its next reservation, whichever counter it is for. So the highest of them is final. Then every new
/// counter begins above it: those without a row at the floor, which is recorded before the number of counters is; and the counters of an
/// earlier time with as many counters are raised and opened again at last, when the record says that they count.
///
/// Of several commands at once one is carried out, whatever they are, and whenever each of them goes on:
/// * a command that opens rows has recorded a new generation before, by compare-and-set. A command that began earlier is refused there;
/// * a row is opened only as it stood before that, and closing moves closed rows too. What a later command has closed stays closed.
pub(super) fn change(
    parts: &mut [impl BankPart],
    key: &Arc<Key>,
    counters: u32,
    dry: bool,
) -> Result<BankChange, Fault> {
    try_change(parts, key, counters, dry).map_err(refused)
}

fn try_change(
    parts: &mut [impl BankPart],
    key: &Arc<Key>,
    counters: u32,
    dry: bool,
) -> Result<BankChange, Fault> {
    let mut records = Vec::with_capacity(parts.len());
    let mut floor = 1;
    for part in &mut *parts {
        records.push(part.ask(|store| recorded(store, key))?);
        let row = part.ask(|store| store.look(&floor_key(key)))?;
        floor = floor.max(row.map_or(0, |row| row.mark.next));
    }
    let latest = records.iter().flatten().max_by_key(|record| record.generation).copied();
    let mut old: Vec<u32> = records.iter().flatten().map(|record| record.counters).collect();
    old.retain(|earlier| *earlier != counters);
    old.sort_unstable();
    old.dedup();
    let mut count = 0;
    for earlier in old {
        for part in &mut *parts {
            if !dry {
                close(part, key, earlier)?;
            }
            let (rows, highest) = part.seen(key, earlier)?;
            floor = floor.max(highest);
            count += rows.iter().flatten().count() as u64;
        }
    }
    let mut seen = Vec::with_capacity(parts.len());
    for part in &mut *parts {
        let (rows, highest) = part.seen(key, counters)?;
        floor = floor.max(highest);
        seen.push(rows);
    }
    let before = latest.map(|record| record.counters);
    let done = BankChange { before, after: counters, rows: count, floor };
    if dry {
        return Ok(done);
    }
    let record = next_record(latest, counters);
    for part in &mut *parts {
        part.ask(|store| store.raise(&floor_key(key), None, floor))?;
    }
    for (part, before) in parts.iter_mut().zip(&records) {
        replace_record(part, key, *before, record)?;
    }
    for (part, seen) in parts.iter_mut().zip(&seen) {
        open_at(part, key, floor, seen, false)?;
    }
    Ok(done)
}

fn next_record(latest: Option<Record>, counters: u32) -> Record {
    Record { generation: latest.map_or(1, |record| record.generation + 1), counters }
}

/// Replaces the record that was read.
fn replace_record(
    part: &mut impl BankPart,
    key: &Arc<Key>,
    before: Option<Record>,
    record: Record,
) -> Result<(), Fault> {
    let expect = before.map_or(0, Record::to_position);
    match part.ask(|store| store.raise(key, Some(expect), record.to_position())) {
        Err(fault) if fault.kind == FaultKind::Taken => Err(part.said(changed_meanwhile())),
        answer => answer.map(drop),
    }
}

/// Another command was faster.
fn changed_meanwhile() -> Fault {
    Fault::new(
        FaultKind::Taken,
        "another `keymill repair` has changed this bank meanwhile: look at `keymill status`, then run the command again whose values you want",
    )
}

/// No worker was taken: to users the command is refused.
fn refused(mut fault: Fault) -> Fault {
    if fault.kind == FaultKind::Taken {
        fault.kind = FaultKind::Refused;
    }
    fault
}

/// Closes the rows of these counters, and makes closed ones of those that are missing. A row that is closed moves on by one number.
fn close(part: &mut impl BankPart, key: &Arc<Key>, counters: u32) -> Result<(), Fault> {
    let partition = part.partition();
    let mut first = None;
    for row in part.ask(|store| rows_of(store, key, counters))?.into_iter().flatten() {
        if let Err(fault) = part.check(key, row) {
            first.get_or_insert(fault);
        }
    }
    if let Some(fault) = first {
        return Err(part.said(fault));
    }
    part.change(key, counters, |_, row| {
        Ok(Some(match row {
            None => RowMark::open(partition, 1).in_state(RowState::Closed),
            Some(row) if is_closed(row) => row.at(row.mark.next.saturating_add(1).min(MAX_NUMBER)),
            Some(row) => row.in_state(RowState::Closed),
        }))
    })
}

fn is_closed(row: RowMark) -> bool {
    row.status.state == RowState::Closed
}

/// Opens the rows of the counters that were `seen` so and raises them to `to` at least; with `all` makes those that are missing.
fn open_at(
    part: &mut impl BankPart,
    key: &Arc<Key>,
    to: u64,
    seen: &[Option<RowMark>],
    all: bool,
) -> Result<(), Fault> {
    let (partition, next) = (part.partition(), part.first(to));
    let is_seen = |index: u32, row: RowMark| seen.get(index as usize) == Some(&Some(row));
    part.change(key, seen.len() as u32, |index, row| {
        Ok(match row {
            None if all => Some(RowMark::open(partition, next)),
            Some(row) if is_closed(row) && !is_seen(index, row) => return Err(changed_meanwhile()),
            Some(row) if is_closed(row) || row.mark.next < next => {
                Some(row.in_state(RowState::Open).at(row.mark.next.max(next)).by(0))
            }
            // Nothing is returned to a row that `repair` has raised, or would have.
            Some(row) if all => Some(row.by(0)),
            None | Some(_) => None,
        })
    })
}

/// Raises every counter of a bank to `to` at least, after a restored backup; missing rows are made. It begins again where another
/// command was faster.
pub(super) fn raise_all(
    parts: &mut [impl BankPart],
    key: &Arc<Key>,
    bank: BankSpec,
    to: u64,
    dry: bool,
) -> Result<(Option<Row>, Row), Fault> {
    for _ in 1..ATTEMPTS {
        match try_raise_all(parts, key, bank, to, dry) {
            Err(fault) if fault.kind == FaultKind::Taken => {}
            done => return done,
        }
    }
    try_raise_all(parts, key, bank, to, dry).map_err(refused)
}

fn try_raise_all(
    parts: &mut [impl BankPart],
    key: &Arc<Key>,
    bank: BankSpec,
    to: u64,
    dry: bool,
) -> Result<(Option<Row>, Row), Fault> {
    let mut records = Vec::with_capacity(parts.len());
    for part in &mut *parts {
        records.push(part.ask(|store| recorded(store, key))?);
    }
    let latest = records.iter().flatten().max_by_key(|record| record.generation).copied();
    if latest.is_none() && !bank.is_named {
        return Err(Fault::new(
            FaultKind::Refused,
            format!(
                "the store has no record of `{}`, so keymill does not know how many counters it has; write `counters=C`, as the programs have it; nothing was changed",
                key.name
            ),
        ));
    }
    let counters = latest.map_or(bank.counters, |record| record.counters);
    let found = positions(parts, key, counters)?;
    let lowest = found.lowest.min(found.unused);
    if lowest > to {
        return Err(Fault::new(
            FaultKind::Refused,
            format!(
                "the lowest of its counters stands at {lowest}, above {to}, and repair never lowers a row; a program that runs may return numbers to it when it ends, so stop every program that uses it, then repair it again"
            ),
        ));
    }
    let shown = |rows: u64, lowest: u64, highest: u64| {
        Row::at(lowest, format!("counters={counters} rows={rows} next={lowest} to {highest}"))
    };
    let mut before = (found.count > 0).then(|| shown(found.count, found.lowest, found.highest));
    let after = shown(u64::from(counters), to, found.highest.max(to));
    if let Some(before) = &mut before {
        // A change of the counters that was cut off leaves closed rows.
        let closed =
            found.seen.iter().flatten().flatten().filter(|row| row.status.state == RowState::Closed).count();
        if closed > 0 {
            before.text.push_str(&format!(" closed={closed}"));
        }
        if latest.is_none() {
            before.text.push_str(" not recorded");
        }
    }
    // Of several stores each has rows of its own, which one line does not show.
    let is_returned_to = |row: &RowMark| row.writer != 0;
    let stands = parts.len() == 1
        && before.as_ref() == Some(&after)
        && !found.seen.iter().flatten().flatten().any(is_returned_to);
    if !dry && !stands {
        let record = next_record(latest, counters);
        for part in &mut *parts {
            part.ask(|store| store.raise(&floor_key(key), None, to))?;
        }
        // A store that records other counters has missed a change, which `--counters` completes.
        let is_current = |before: &Option<Record>| before.is_none_or(|before| before.counters == counters);
        for (part, before) in parts.iter_mut().zip(&records).filter(|(_, before)| is_current(before)) {
            replace_record(part, key, *before, record)?;
        }
        for (part, seen) in parts.iter_mut().zip(&found.seen) {
            open_at(part, key, to, seen, true)?;
        }
    }
    Ok((before, after))
}

/// Where the counters of a bank stand in all stores.
struct Positions {
    /// The rows of each store, by index.
    seen: Vec<Vec<Option<RowMark>>>,
    /// How many rows there are.
    count: u64,
    lowest: u64,
    highest: u64,
    /// Where the counters without a row begin, in the store with the lowest floor.
    unused: u64,
}

fn positions(parts: &mut [impl BankPart], key: &Arc<Key>, counters: u32) -> Result<Positions, Fault> {
    let mut found = Positions { seen: Vec::new(), count: 0, lowest: u64::MAX, highest: 0, unused: u64::MAX };
    for part in &mut *parts {
        let floor = part.ask(|store| store.look(&floor_key(key)))?;
        let (rows, highest) = part.seen(key, counters)?;
        found.highest = found.highest.max(highest);
        if rows.iter().any(Option::is_none) {
            found.unused = found.unused.min(floor.map_or(0, |row| row.mark.next));
        }
        for row in rows.iter().flatten() {
            part.check(key, *row)?;
            found.lowest = found.lowest.min(part.stands(row.mark.next));
            found.count += 1;
        }
        found.seen.push(rows);
    }
    Ok(found)
}
