//! The keeper's side of a bank: which counters it asks the store for, and where the numbers go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::fault::{Fault, FaultKind};
use crate::error::{Code, Error};
use crate::gene::Gene;
use crate::request::bank_spec::{BankSpec, OpenBank, counter_key};
use crate::request::reservation::{Key, Mark, Request, Reserved, unused_end};
use crate::spec::Spec;
use crate::time::Now;

use super::BankSource;
use super::counter_cell::{CounterCell, END, FIRST, MOST};
use super::step::{Note, Used, step};

/// How long a counter whose row was refused is not asked for again.
const REFUSED_MS: u64 = 1_000;

/// How often in a row another process may be faster before the row is treated as a locked one: something else than a race undoes its
/// changes.
const CONFLICTS: u32 = 32;

/// The rate of a counter is measured over this long at least.
const MEASURED_MS: u64 = 250;

/// What the planner sees of a bank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BankView {
    /// A counter wants numbers.
    pub(crate) wants: bool,
    /// A caller waits for one.
    pub(crate) waiting: bool,
    /// How many numbers were reserved.
    pub(crate) reserved: u64,
    /// The boot time at which a refill that failed is due again.
    pub(crate) due_ms: Option<u64>,
}

/// What a bank asks of the store.
#[derive(Clone, Debug)]
pub enum BankAsk {
    /// Whether the bank has so many counters, and where those begin that have no row; a new bank is recorded.
    Open {
        /// The key of the bank's record.
        key: Arc<Key>,
        /// How many counters the source has.
        bank: BankSpec,
    },
    /// A range for each of these counters.
    Reserve {
        /// The counters.
        indexes: Vec<u32>,
        /// Their requests, in the same order.
        requests: Vec<Request>,
    },
}

impl BankAsk {
    /// The same for this mill, which the rows name afterwards.
    pub(crate) fn signed(mut self, writer: u64) -> BankAsk {
        if let BankAsk::Reserve { requests, .. } = &mut self {
            for request in requests {
                request.writer = writer;
            }
        }
        self
    }
}

/// The answer.
#[derive(Clone, Debug)]
pub enum BankAnswer {
    /// How many counters the bank has, and where those without a row begin.
    Opened(Result<OpenBank, Fault>),
    /// The counters that were asked for, and an answer to each of their requests in the same order.
    Reserved(Vec<u32>, Vec<Result<Reserved, Fault>>),
}

/// Ranges of a hot counter for which its cell has no room yet.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) ranges: VecDeque<(u64, u64)>,
    /// How many numbers lay in memory after the last refill, and when that was.
    left: u64,
    at_ms: u64,
    /// The rate that was measured last.
    used: Used,
}

impl Ahead {
    fn count(&self) -> u64 {
        self.ranges.iter().map(|(lo, hi)| hi - lo).sum()
    }

    /// The next part of the ranges, as long as a cell can hold.
    fn pop(&mut self) -> Option<(u64, u64)> {
        let (lo, hi) = self.ranges.front_mut()?;
        let part = (*lo, (*lo + MOST).min(*hi));
        *lo = part.1;
        if *lo == *hi {
            self.ranges.pop_front();
        }
        Some(part)
    }

    fn push_back(&mut self, part: (u64, u64)) {
        self.ranges.push_front(part);
    }

    /// Brings the cell as much as it has room for; answers whether that was anything. Under the lock of the supply, so that one thread
    /// at a time publishes.
    pub(super) fn serve(&mut self, cell: &CounterCell) -> bool {
        let mut served = false;
        while cell.holds().room > 0
            && let Some((lo, hi)) = self.pop()
        {
            if !publish_in(cell, lo, hi) {
                self.push_back((lo, hi));
                break;
            }
            served = true;
        }
        served
    }
}

/// What the keeper knows of a bank.
#[derive(Debug)]
pub(super) struct Supply {
    /// Where counters without a row begin; `None` until the record was compared.
    floor: Option<u64>,
    /// Hot counters.
    ahead: BTreeMap<u32, Ahead>,
    /// How many of them have ranges.
    filled: usize,
    /// Counters whose rows another session had locked: they are asked for alone.
    alone: BTreeSet<u32>,
    /// The one of them that the last batch passed over: the next batch is its, so that it has its turn beside counters that never rest.
    passed_over: Option<u32>,
    /// How many counters go into one batch, after a locked row fewer.
    most: usize,
    /// How often in a row another process was faster at the rows of these counters.
    conflicts: BTreeMap<u32, u32>,
    /// Counters with numbers in memory whose refill failed, by the boot time at which it is due again.
    later: BTreeSet<(u64, u32)>,
    /// Requests of batches that lacked more than their counters' rates needed, and how many those had needed.
    large: BTreeMap<u32, u64>,
    /// How many numbers of each counter this process reserved.
    reserved: Vec<u64>,
    /// How many counters the keeper's checks have looked at.
    #[cfg(test)]
    pub(super) visited: u64,
}

impl Supply {
    pub(super) fn new() -> Supply {
        Supply {
            floor: None,
            ahead: BTreeMap::new(),
            filled: 0,
            alone: BTreeSet::new(),
            passed_over: None,
            most: usize::MAX,
            conflicts: BTreeMap::new(),
            later: BTreeSet::new(),
            large: BTreeMap::new(),
            reserved: Vec::new(),
            #[cfg(test)]
            visited: 0,
        }
    }

    pub(super) fn ahead_of_all(&self) -> u64 {
        self.ahead.values().map(Ahead::count).sum()
    }

    /// Brings a hot counter's cell as much as it has room for; answers whether that was anything.
    fn serve(&mut self, index: u32, cell: &CounterCell) -> bool {
        let Some(ahead) = self.ahead.get_mut(&index).filter(|ahead| !ahead.ranges.is_empty()) else {
            return false;
        };
        let served = ahead.serve(cell);
        self.filled -= usize::from(ahead.ranges.is_empty());
        served
    }

    /// Whether another process was faster by chance: not too often in a row.
    fn is_race(&mut self, index: u32) -> bool {
        let conflicts = self.conflicts.entry(index).or_default();
        *conflicts += 1;
        *conflicts <= CONFLICTS
    }

    /// How many numbers lay in memory after a counter's last refill, and how many of them were used since.
    fn used(&mut self, index: u32, note: Note, left: u64, now: Now) -> (u64, Used) {
        if let Some(ahead) = self.ahead.get_mut(&index) {
            let ms = now.boot_ms.saturating_sub(ahead.at_ms);
            if ms >= MEASURED_MS || ahead.used == Used::default() {
                ahead.used = Used { numbers: ahead.left.saturating_sub(left), ms };
            }
            return (note.len, ahead.used);
        }
        (note.len, Used { numbers: note.len.saturating_sub(left), ms: note.age_ms(now.boot_ms) })
    }

    /// Puts a range into a counter's cell as far as that has room, if `halved` in two segments, and the rest behind what is ahead.
    fn place(&mut self, cell: &CounterCell, index: u32, range: (u64, u64), halved: bool, now: Now) {
        let mut rest = range;
        let has_ahead = self.ahead.get(&index).is_some_and(|ahead| !ahead.ranges.is_empty());
        let mut room = if has_ahead { 0 } else { cell.holds().room };
        while room > 0 && rest.0 < rest.1 {
            let all = rest.1 - rest.0;
            let len = if halved && room == 2 { all.div_ceil(2) } else { all }.min(MOST);
            if !publish_in(cell, rest.0, rest.0 + len) {
                break;
            }
            rest.0 += len;
            room -= 1;
        }
        let ahead = self.ahead.remove(&index);
        if rest.0 < rest.1 || has_ahead {
            self.filled += usize::from(!has_ahead);
            let mut ahead = ahead.unwrap_or_default();
            if rest.0 < rest.1 {
                ahead.ranges.push_back(rest);
            }
            ahead.left = cell.holds().left + ahead.count();
            ahead.at_ms = now.boot_ms;
            self.ahead.insert(index, ahead);
        }
    }
}

/// One past the highest number of a counter that this process has seen; 0: none.
fn seen(cell: &CounterCell, ahead: Option<&Ahead>) -> u64 {
    match ahead.and_then(|ahead| ahead.ranges.back()) {
        Some((_, hi)) => *hi,
        None => match cell.holds().end {
            0 if cell.note() == 0 => 0,
            end => cell.base() + end,
        },
    }
}

/// How many numbers of a counter are in memory, and whether callers have begun the last segment.
fn left_in(cell: &CounterCell, ahead: Option<&Ahead>) -> (u64, bool) {
    let (holds, ahead) = (cell.holds(), ahead.map_or(0, Ahead::count));
    (holds.left + ahead, holds.room > 0 && ahead == 0)
}

fn publish_in(cell: &CounterCell, lo: u64, hi: u64) -> bool {
    let base = cell.base();
    lo >= base && cell.publish(lo - base, hi - lo)
}

impl BankSource {
    /// What the planner decides by.
    pub(crate) fn view(&self, now: Now) -> BankView {
        self.callers.waker.acknowledge();
        self.serve(now);
        let due_ms = self.ask_later(now);
        BankView {
            wants: self.urgent.has_any() || self.background.has_any() || self.is_wanted_early(),
            waiting: self.is_waited_for(),
            reserved: crate::callers::counters::Counters::get(&self.callers.counters.reserved),
            due_ms,
        }
    }

    /// Whether a caller lacks numbers.
    pub(crate) fn is_waited_for(&self) -> bool {
        // ordering: Relaxed — acquired with the wake that made the keeper check the source.
        self.sleeping.load(Ordering::Relaxed) > 0 || self.urgent.has_any() || self.is_wanted_early()
    }

    /// Whether a caller lacks numbers, and how many counters there are is not known yet.
    fn is_wanted_early(&self) -> bool {
        self.counted().is_none() && !self.lock_early().is_empty()
    }

    fn lock_early(&self) -> MutexGuard<'_, BTreeMap<Gene, u64>> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a caller lacks numbers of a bank whose number of counters is not known. `false`: it is known now.
    pub(super) fn want_early(&self, gene: Gene, numbers: u64) -> bool {
        let mut early = self.lock_early();
        if self.counted().is_some() {
            return false;
        }
        let wanted = early.entry(gene).or_default();
        *wanted = numbers.max(*wanted);
        true
    }

    /// Whether numbers lie in memory that only the keeper can bring to their counters.
    pub(crate) fn has_ahead(&self) -> bool {
        self.lock().filled > 0
    }

    /// Brings hot counters the numbers that were reserved ahead, where their callers could not do so themselves.
    fn serve(&self, now: Now) {
        if !self.unserved.has_any() {
            return;
        }
        let mut supply = self.lock();
        let mut served = Vec::new();
        for index in self.unserved.take_all() {
            #[cfg(test)]
            {
                supply.visited += 1;
            }
            let Some(cell) = self.cells().get(index as usize) else { continue };
            if !supply.serve(index, cell) {
                continue;
            }
            served.push(index);
            let left = left_in(cell, supply.ahead.get(&index));
            let Some(note) = Note::from_bits(cell.note()) else { continue };
            let last = supply.used(index, note, left.0, now);
            if step(&self.spec().rules, Some(last), left, 0) == 0 {
                self.urgent.clear(index);
                self.background.clear(index);
            }
        }
        drop(supply);
        if !served.is_empty() {
            self.callers.supplied_of(&served);
        }
    }

    /// Brings one counter the numbers that were reserved ahead, on a caller's thread: a hot counter uses up a segment faster than
    /// the keeper can be woken. Answers whether it did. While another thread is at it, the keeper is left to do it. Every segment is
    /// published under the lock, so segments still rise.
    pub(super) fn serve_one(&self, index: u32) -> bool {
        let Ok(mut supply) = self.supply.try_lock() else {
            self.unserved.set(index);
            return false;
        };
        // ordering: Relaxed — under the lock, as in `close`.
        let is_closed = self.closed.load(Ordering::Relaxed);
        let Some(cell) = self.cells().get(index as usize) else { return false };
        !is_closed && supply.serve(index, cell)
    }

    /// Up to `most` counters that want numbers, each once. A caller may set a bit again while the batch is made, and of a counter that was
    /// in it twice one row would be moved twice: no transaction could carry that out.
    pub(super) fn wanted(&self, most: usize) -> Vec<u32> {
        let mut found = self.urgent.some(most);
        let urgent: BTreeSet<u32> = found.iter().copied().collect();
        let background = self.background.some(most - found.len());
        found.extend(background.into_iter().filter(|index| !urgent.contains(index)));
        found
    }

    /// What to ask of the store now, for at most `most` counters; `None`: nothing.
    pub(crate) fn ask_for(&self, most: usize, now: Now) -> Option<BankAsk> {
        let mut supply = self.lock();
        let Some(floor) = supply.floor else {
            return Some(BankAsk::Open { key: self.spec().key.clone(), bank: self.bank() });
        };
        let most = most.min(supply.most).max(1);
        let mut found = self.wanted(most);
        if let Some(first) = supply.passed_over.take() {
            found.retain(|index| *index != first);
            found.insert(0, first);
        }
        let (mut indexes, mut requests) = (Vec::with_capacity(found.len()), Vec::with_capacity(found.len()));
        let mut served = Vec::new();
        for index in found {
            self.urgent.clear(index);
            self.background.clear(index);
            #[cfg(test)]
            {
                supply.visited += 1;
            }
            if let Some(until_ms) = self.callers.rests_until(index, now) {
                // A caller that waits is not told when the rest is over.
                supply.later.insert((until_ms, index));
                continue;
            }
            let alone = supply.alone.contains(&index);
            if alone && !indexes.is_empty() {
                self.urgent.set(index);
                supply.passed_over.get_or_insert(index);
                continue;
            }
            let Some(request) = self.request(&mut supply, index, floor, &mut served, now) else { continue };
            indexes.push(index);
            requests.push(request);
            if alone {
                break;
            }
        }
        drop(supply);
        if !served.is_empty() {
            self.callers.notify_of(&served);
        }
        (!indexes.is_empty()).then_some(BankAsk::Reserve { indexes, requests })
    }

    /// The request of one counter; `None`: it needs nothing. A counter whose callers may have missed that it has numbers is added to
    /// `served`.
    fn request(
        &self,
        supply: &mut Supply,
        index: u32,
        floor: u64,
        served: &mut Vec<u32>,
        now: Now,
    ) -> Option<Request> {
        let cell = self.cells().get(index as usize)?;
        let wanted = cell.take_wanted();
        let left = left_in(cell, supply.ahead.get(&index));
        if wanted > 0 && left.0 > 0 {
            // Another caller brought them there, and callers do not wake each other.
            served.push(index);
        }
        let last = Note::from_bits(cell.note()).map(|note| supply.used(index, note, left.0, now));
        let spec = self.spec();
        let lacking = wanted.saturating_sub(left.0);
        let len = step(&spec.rules, last, left, lacking);
        if len == 0 {
            return None;
        }
        let usual = step(&spec.rules, last, left, lacking.min(1));
        if usual < len {
            supply.large.insert(index, usual);
        }
        let key = counter_key(&spec.key, self.bank().counters, index);
        let seen = Mark { period: 0, next: seen(cell, supply.ahead.get(&index)) };
        Some(Request { start: floor.max(spec.start), ..spec.request(key, len, seen) })
    }

    /// The record was compared.
    pub(crate) fn opened(&self, open: OpenBank) {
        let mut supply = self.lock();
        supply.floor = Some(open.floor);
        let counted = self.count(open.counters);
        if supply.reserved.is_empty() {
            // Zeros that the system hands out without writing them.
            supply.reserved = vec![0; counted.cells.len()];
        }
        let early = std::mem::take(&mut *self.lock_early());
        for (gene, numbers) in early {
            let index = counted.bank.index(gene);
            if let Some(cell) = counted.cells.get(index as usize) {
                cell.want(numbers);
                self.urgent.set(index);
            }
        }
        drop(supply);
        // Callers that wait for the bank wait for their counters now.
        self.callers.notify();
    }

    /// The store answered. Faults of the store itself are left to the planner: this answers with the first of them.
    pub(crate) fn reserved(
        &self,
        indexes: &[u32],
        answers: Vec<Result<Reserved, Fault>>,
        now: Now,
    ) -> Option<Fault> {
        let mut outage = None;
        let mut served = Vec::with_capacity(indexes.len());
        let mut locked = Vec::new();
        let mut refused = Vec::new();
        {
            let mut supply = self.lock();
            for (&index, answer) in indexes.iter().zip(answers) {
                match answer.and_then(|range| self.publish(&mut supply, index, range, now)) {
                    Ok(()) => {
                        supply.alone.remove(&index);
                        supply.conflicts.remove(&index);
                        served.push(index);
                    }
                    Err(fault) if fault.is_outage() => {
                        self.again(index);
                        outage.get_or_insert(fault);
                    }
                    // Another process was faster: it is asked for again, in the bank's next turn.
                    Err(fault) if fault.kind == FaultKind::Conflict && supply.is_race(index) => {
                        self.again(index);
                    }
                    Err(fault) if matches!(fault.kind, FaultKind::Locked | FaultKind::Conflict) => {
                        locked.push((index, fault));
                    }
                    Err(fault) => refused.push((index, fault)),
                }
            }
            if let [(index, _)] = locked.as_slice() {
                supply.alone.insert(*index);
            } else if !locked.is_empty() {
                // One of them has the locked row: it is found in smaller batches, and the others are served meanwhile.
                supply.most = (indexes.len() / 8).max(1);
                for (index, _) in locked.drain(..) {
                    self.again(index);
                }
            } else if outage.is_none() {
                supply.most = supply.most.saturating_mul(2);
            }
            // The row of a counter is closed after the number of counters was changed; the bank's record has the new one. Without
            // a floor the next conversation reads the record.
            if refused.iter().any(|(_, fault)| fault.kind == FaultKind::Closed) {
                supply.floor = None;
            }
            // No caller lacks numbers of these: the keeper has to remember them.
            let failed = refused.iter().filter(|(_, fault)| fault.kind.is_outage()).chain(&locked);
            let failed = failed.filter(|(index, _)| self.holds(*index).left > 0);
            supply.later.extend(failed.map(|(index, _)| (now.boot_ms + REFUSED_MS, *index)));
        }
        let error_of =
            |fault: Fault| fault.error(self.spec().command_line()).after(Duration::from_millis(REFUSED_MS));
        let errors = refused.into_iter().chain(locked).map(|(index, fault)| (index, error_of(fault)));
        self.callers.post_each(errors.collect(), now);
        if !served.is_empty() {
            self.callers.supplied_of(&served);
        }
        outage
    }

    /// A counter is asked for again. A caller that lacks more than is left says so itself.
    fn again(&self, index: u32) {
        if self.holds(index).left > 0 {
            self.background.set(index);
        } else if let Some(cell) = self.cells().get(index as usize) {
            cell.want(1);
            self.urgent.set(index);
        }
    }

    /// Asks again for counters whose refill failed; answers with when the next of them is due.
    fn ask_later(&self, now: Now) -> Option<u64> {
        let mut supply = self.lock();
        while let Some((due_ms, index)) = supply.later.first().copied() {
            if due_ms > now.boot_ms {
                return Some(due_ms);
            }
            supply.later.pop_first();
            self.background.set(index);
        }
        None
    }

    /// The bank as a whole was refused: no counter is asked for before a caller comes again.
    pub(crate) fn forget_wishes(&self) {
        self.urgent.clear_all();
        self.background.clear_all();
        self.lock_early().clear();
    }

    /// The keeper could not serve the bank: its callers get this error.
    pub(crate) fn fail(&self, error: Error, now: Now) {
        if !matches!(error.code, Code::StoreUnavailable) {
            self.forget_wishes();
        }
        self.callers.post(error, now);
    }

    /// Puts a reserved range where callers find it.
    fn publish(&self, supply: &mut Supply, index: u32, range: Reserved, now: Now) -> Result<(), Fault> {
        let Some(cell) = self.cells().get(index as usize) else { return Ok(()) };
        let (lo, hi) = (range.lo, range.hi);
        // ordering: Relaxed — under the lock, as in `close`.
        if self.closed.load(Ordering::Relaxed) {
            // A close that did not wait for the keeper was faster.
            self.callers.counters.refilled(hi.saturating_sub(lo), now);
            self.drop_numbers(hi.saturating_sub(lo));
            return Ok(());
        }
        let seen = Mark { period: 0, next: seen(cell, supply.ahead.get(&index)) };
        let Spec { key, .. } = self.spec().as_ref();
        let name = || counter_key(key, self.bank().counters, index).name.to_string();
        Reserved { period: 0, ..range }.above(seen, key.stride, name, &key.name)?;
        let was_refilled = Note::from_bits(cell.note()).is_some();
        if !was_refilled {
            cell.set_base(if self.bank().wide { lo } else { FIRST });
        }
        self.callers.counters.refilled(hi - lo, now);
        if let Some(reserved) = supply.reserved.get_mut(index as usize) {
            *reserved += hi - lo;
        }
        if hi - cell.base() > END {
            // 2^47 numbers of one counter in one process.
            self.drop_numbers(hi - lo);
            let what = "this process has used every number of this counter that its memory has room for; open the mill again";
            return Err(Fault::new(FaultKind::Exhausted, what));
        }
        // What one batch lacked is no rate.
        let usual = supply.large.remove(&index).unwrap_or(u64::MAX);
        let (left, _) = left_in(cell, supply.ahead.get(&index));
        cell.set_note(Note::new(usual.min(hi - lo) + left, now.boot_ms).to_bits());
        // A counter gets two segments, so that the next refill is asked for when the first one is used up. What a first batch lacked
        // stays whole.
        let halved = was_refilled || hi - lo <= self.spec().rules.min_step;
        supply.place(cell, index, (lo, hi), halved, now);
        Ok(())
    }

    fn drop_numbers(&self, numbers: u64) {
        self.callers.counters.lose(numbers);
        // ordering: Relaxed — a statistic.
        self.dropped.fetch_add(numbers, Ordering::Relaxed);
    }

    /// Closes for good. Returns what may be given back of each counter: the topmost numbers that no caller got, if they end where
    /// its last reservation ends.
    pub(crate) fn close(&self) -> Vec<(u32, u64, u64)> {
        let mut supply = self.lock();
        // ordering: Release — before the cells are emptied: a caller that finds nothing sees why.
        self.closed.store(true, Ordering::Release);
        self.word().revoke();
        let mut rest = Vec::new();
        let mut lost = 0;
        for (index, cell) in (0..).zip(self.cells()) {
            let ahead = supply.ahead.remove(&index);
            let seen = seen(cell, ahead.as_ref());
            let base = cell.base();
            let in_cell = cell.close().into_iter().flatten().map(|(lo, hi)| (lo + base, hi + base));
            let ranges: Vec<_> = in_cell.chain(ahead.into_iter().flat_map(|ahead| ahead.ranges)).collect();
            lost += ranges.iter().map(|(lo, hi)| hi - lo).sum::<u64>();
            rest.extend(unused_end(&ranges, seen).map(|(lo, hi)| (index, lo, hi)));
        }
        supply.filled = 0;
        drop(supply);
        self.drop_numbers(lost);
        self.callers.notify();
        rest
    }

    /// How many numbers this process reserved for each counter that it used.
    pub(crate) fn reserved_by_counter(&self) -> Vec<(u32, u64)> {
        let supply = self.lock();
        (0..)
            .zip(&supply.reserved)
            .filter(|(_, count)| **count > 0)
            .map(|(index, count)| (index, *count))
            .collect()
    }
}
