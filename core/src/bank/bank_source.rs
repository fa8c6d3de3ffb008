//! A source of business ids: what its callers and its keeper share.
//!
//! A caller that finds no number marks its counter, wakes the keeper and waits on the bank's condition until its deadline. The
//! keeper's side is `supply`.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::callers::counters::Counters;
use crate::callers::waker::ReadyQueue;
use crate::callers::{Callers, GiveUpAt};
use crate::error::{Error, Result};
use crate::gene::{Gene, NUMBER_BITS, WIDE_SHIFT};
use crate::process::revocation::RevocationWord;
use crate::request::bank_spec::{BankSpec, LAST_NUMBER, MOST_COUNTERS};
use crate::spec::Spec;
use crate::time::Clock;

use super::bits::Bits;
use super::counter_cell::{CellContents, CounterCell, FIRST, MOST, cells};
use super::supply::Supply;

/// The counters of a bank, once it is known how many there are.
pub(super) struct Counted {
    pub(super) bank: BankSpec,
    shift: u32,
    pub(super) cells: Box<[CounterCell]>,
}

impl Counted {
    fn new(bank: BankSpec) -> Counted {
        Counted { bank, shift: bank.shift(), cells: cells(bank.counters as usize) }
    }

    #[inline]
    fn cell(&self, gene: Gene) -> &CounterCell {
        // A gene has 16 bits, and there are as many cells as its upper bits have values.
        &self.cells[usize::from(gene.get()) >> self.shift]
    }
}

/// One bank.
pub struct BankSource {
    pub(crate) callers: Callers,
    /// As the spec says it.
    given: BankSpec,
    /// Set once: at the beginning where the spec names the number of counters, else when the store has answered. A caller that
    /// found a counter's index never has to doubt it.
    counted: OnceLock<Counted>,
    /// Zero in a forked child.
    word: RevocationWord,
    pub(super) closed: AtomicBool,
    /// Counters whose callers found no number, and counters whose second segment is in use.
    pub(super) urgent: Bits,
    pub(super) background: Bits,
    /// Counters whose callers could not bring them what was reserved ahead, because another thread was at it.
    pub(super) unserved: Bits,
    /// How many callers sleep.
    pub(super) sleeping: AtomicU64,
    /// Numbers that were reserved and left memory without a caller.
    pub(super) dropped: AtomicU64,
    /// Numbers that callers lack of a bank whose number of counters is not known yet. Not in the supply: callers note them under the lock
    /// of the last error, which the keeper takes under the supply's lock.
    pub(super) early: Mutex<BTreeMap<Gene, u64>>,
    pub(super) supply: Mutex<Supply>,
}

impl std::fmt::Debug for BankSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BankSource").field("source", &self.spec().label).finish_non_exhaustive()
    }
}

impl BankSource {
    /// A bank without numbers yet.
    pub(crate) fn new(
        spec: Arc<Spec>,
        bank: BankSpec,
        ready: Arc<ReadyQueue>,
        index: usize,
        clock: Clock,
    ) -> Self {
        let most = if bank.is_named { bank.counters } else { MOST_COUNTERS };
        BankSource {
            callers: Callers::new(spec, ready, index, clock),
            given: bank,
            counted: if bank.is_named { Counted::new(bank).into() } else { OnceLock::new() },
            word: RevocationWord::new(),
            closed: AtomicBool::new(false),
            urgent: Bits::new(most),
            background: Bits::new(most),
            unserved: Bits::new(most),
            sleeping: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            early: Mutex::default(),
            supply: Mutex::new(Supply::new()),
        }
    }

    #[inline]
    pub(super) fn counted(&self) -> Option<&Counted> {
        self.counted.get()
    }

    /// The bank has so many counters, from now on for good.
    pub(super) fn count(&self, counters: u32) -> &Counted {
        self.counted.get_or_init(|| Counted::new(BankSpec { counters, is_named: true, ..self.given }))
    }

    /// None before the number of counters is known.
    pub(super) fn cells(&self) -> &[CounterCell] {
        self.counted().map_or(&[], |counted| &counted.cells)
    }

    /// What the source is.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.callers.spec
    }

    /// How many counters the bank has, and the form of its ids; as the spec says it before the store has answered.
    #[must_use]
    pub fn bank(&self) -> BankSpec {
        self.counted().map_or(self.given, |counted| counted.bank)
    }

    /// The word that is zero in a forked child.
    #[inline]
    pub(crate) fn word(&self) -> &RevocationWord {
        &self.word
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Supply> {
        self.supply.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An id of 64 bits if one is in memory: the id path. It may be used only if the source [`RevocationWord::is_ours`].
    #[inline]
    pub(crate) fn take_one(&self, gene: Gene) -> Option<u64> {
        let number = self.counted()?.cell(gene).take_one()?;
        Some(narrow(gene, number + FIRST))
    }

    /// As [`BankSource::take_one`], an id of 128 bits.
    #[inline]
    pub(crate) fn take_one_wide(&self, gene: Gene) -> Option<u128> {
        let cell = self.counted()?.cell(gene);
        let number = cell.take_one()?;
        Some(wide(gene, number + cell.base()))
    }

    /// Up to `want` numbers of a gene's counter once `enough` are in memory, or as many as memory can hold; else why not, at once.
    pub fn try_take(&self, gene: Gene, want: u64, enough: u64) -> Result<Range<u64>> {
        self.check_count(enough)?;
        let Some(index) = self.index(gene) else {
            self.check_open()?;
            let error = self.callers.not_ready_of(None, enough, || 0);
            self.ask(gene, enough);
            return Err(error);
        };
        if let Some(taken) = self.take_if(index, want, enough)? {
            return Ok(taken);
        }
        // Read before the keeper is woken: the same call in the same state gets the same answer.
        let error = self.callers.not_ready_of(Some(index), enough, || self.holds(index).left);
        self.ask(gene, enough);
        Err(error)
    }

    /// The index of a gene's counter; `None`: it is not known yet how many there are.
    pub(crate) fn index(&self, gene: Gene) -> Option<u32> {
        self.counted().map(|counted| counted.bank.index(gene))
    }

    fn check_open(&self) -> Result<()> {
        // ordering: Acquire — pairs with the close, which empties the cells afterwards.
        if self.closed.load(Ordering::Acquire) { Err(self.callers.closed()) } else { Ok(()) }
    }

    /// One number of a gene's counter; waits until the deadline at most.
    pub(crate) fn next(&self, gene: Gene) -> Result<u64> {
        let taken = self.wait_for(gene, 1, 1, &mut GiveUpAt::default())?;
        Ok(taken.start)
    }

    /// `count` numbers of a gene's counter in ranges: all of them, or an error; waits until the deadline.
    pub(crate) fn take_all(&self, gene: Gene, count: u64, mut with: impl FnMut(Range<u64>)) -> Result<()> {
        self.check_count(count)?;
        let mut give_up_at = GiveUpAt::default();
        let mut done = 0;
        while done < count {
            let lacking = count - done;
            // Nothing is taken before enough is there, so that an outage costs numbers only where callers race.
            let taken = self
                .wait_for(gene, lacking, lacking, &mut give_up_at)
                .inspect_err(|_| self.callers.counters.lose(done))?;
            done += taken.end - taken.start;
            with(taken);
        }
        Ok(())
    }

    /// Refuses a batch that no counter can ever give; with `wide=on` more than any memory holds.
    fn check_count(&self, count: u64) -> Result<()> {
        if count <= LAST_NUMBER {
            return Ok(());
        }
        Err(Error::argument(format!(
            "{count} ids of `{}` for one key; the most at once are {LAST_NUMBER}",
            self.spec().label
        )))
    }

    pub(super) fn holds(&self, index: u32) -> CellContents {
        self.cells().get(index as usize).map_or_else(CellContents::default, CounterCell::holds)
    }

    /// Whether a counter's cell has `enough` numbers, or as many as it can hold. Brings it what was reserved ahead.
    fn has_enough(&self, index: u32, cell: &CounterCell, enough: u64) -> bool {
        loop {
            let holds = cell.holds();
            if holds.left >= enough.min(MOST) || holds.room == 0 {
                return true;
            }
            if !self.serve_one(index) {
                return false;
            }
        }
    }

    /// Takes up to `want` numbers if `enough` are in memory; `None`: too few are.
    fn take_if(&self, index: u32, want: u64, enough: u64) -> Result<Option<Range<u64>>> {
        self.check_open()?;
        let Some(cell) = self.cells().get(index as usize) else { return Ok(None) };
        if enough > 1 && !self.has_enough(index, cell, enough) {
            return Ok(None);
        }
        let got = match cell.take(want) {
            None if self.serve_one(index) => cell.take(want),
            got => got,
        };
        let Some(got) = got else { return Ok(None) };
        if got.moved {
            self.serve_one(index);
            self.background.set(index);
            self.callers.waker.wake();
        }
        let base = cell.base();
        Ok(Some(got.lo + base..got.hi + base))
    }

    /// Tells the keeper that a caller lacks numbers.
    fn ask(&self, gene: Gene, numbers: u64) {
        if self.counted().is_some() || !self.want_early(gene, numbers) {
            let Some(counted) = self.counted() else { return };
            counted.cell(gene).want(numbers);
            self.urgent.set(counted.bank.index(gene));
        }
        self.callers.waker.wake();
    }

    #[cold]
    fn wait_for(&self, gene: Gene, want: u64, enough: u64, give_up_at: &mut GiveUpAt) -> Result<Range<u64>> {
        let sleeps = || {
            // ordering: Relaxed — `Waker::wake` publishes it.
            self.sleeping.fetch_add(1, Ordering::Relaxed);
            self.ask(gene, enough);
        };
        let awake = || {
            // ordering: Relaxed — a hint for the keeper.
            self.sleeping.fetch_sub(1, Ordering::Relaxed);
        };
        let index = if let Some(index) = self.index(gene) {
            index
        } else {
            // Until it is known how many counters there are.
            let waiting = self.callers.begin_wait_of(None, enough, give_up_at);
            let opened = || match self.index(gene) {
                None => self.check_open().map(|()| None),
                index => Ok(index),
            };
            self.callers.wait(waiting, opened, || 0, sleeps, awake)?
        };
        if let Some(taken) = self.take_if(index, want, enough)? {
            return Ok(taken);
        }
        Counters::add(&self.callers.counters.waits, 1);
        let waiting = self.callers.begin_wait_of(Some(index), enough, give_up_at);
        let left = || self.holds(index).left;
        self.callers.wait(waiting, || self.take_if(index, want, enough), left, sleeps, awake)
    }

    /// Numbers handed out, and numbers in memory.
    pub(crate) fn issued_and_left(&self) -> (u64, u64) {
        let ahead = self.lock().ahead_of_all();
        let left = ahead + self.cells().iter().map(|cell| cell.holds().left).sum::<u64>();
        // ordering: Relaxed — a statistic.
        let dropped = self.dropped.load(Ordering::Relaxed);
        let reserved = Counters::get(&self.callers.counters.reserved);
        (reserved.saturating_sub(left).saturating_sub(dropped), left)
    }
}

/// The id of a gene and a number, in 64 bits.
#[inline]
pub(crate) fn narrow(gene: Gene, number: u64) -> u64 {
    u64::from(gene.get()) << NUMBER_BITS | number
}

/// The id of a gene and a number, in 128 bits.
#[inline]
pub(crate) fn wide(gene: Gene, number: u64) -> u128 {
    u128::from(gene.get()) << WIDE_SHIFT | u128::from(number)
}
