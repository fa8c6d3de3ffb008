//! Ids that carry the gene of a key: the verbs of sources of business ids.

use std::ops::Range;

use crate::bank::BankSource;
use crate::engine::IdPath;
use crate::error::{Error, Result, shown};
use crate::gene::{Gene, GeneKey, NUMBER_BITS};
use crate::request::bank_spec::{BankSpec, MOST_COUNTERS};
use crate::store::{BankChange, BankRows, MAX_NUMBER};

use super::{Change, Parts, Repair, Source};

/// How much a counter of business ids was used: see [`Source::heat`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heat {
    /// The genes that share the counter: virtual nodes of the ring.
    pub genes: Range<u32>,
    /// Numbers that all processes reserved since the counters were last changed, by the store's row.
    pub reserved: u64,
    /// Numbers that this process reserved.
    pub own: u64,
    /// Numbers that are left before the counter is exhausted.
    pub left: u64,
}

impl Source {
    /// The next id for a key; waits at most the source's deadline when none is in memory. The id carries the key's gene, and ids
    /// of one gene rise within the process.
    ///
    /// ```
    /// let mill = keymill::Mill::open("memory:")?;
    /// let orders = mill.source("business:order?counters=4096")?;
    /// let id = orders.next_for(42)?;
    /// assert_eq!(keymill::Gene::of_id(id)?, keymill::Gene::of(42)?);
    /// assert!(orders.next_for("buyer-42").is_ok());
    /// # Ok::<(), keymill::Error>(())
    /// ```
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another kind of source, with `wide=on`, and for a key longer than 64 KiB; `DEADLINE`, `STORE_*`,
    /// `EXHAUSTED`, `CLOSED`, `FORKED`.
    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    pub fn next_for<'k>(&self, key: impl Into<GeneKey<'k>>) -> Result<u64> {
        self.next_of(self.gene_of(key)?)
    }

    /// The next id for a key if one is in memory; never blocks.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::next_for`].
    #[inline]
    pub fn try_next_for<'k>(&self, key: impl Into<GeneKey<'k>>) -> Result<u64> {
        self.try_next_of(self.gene_of(key)?)
    }

    /// `count` ids for a key.
    ///
    /// # Errors
    /// As [`Source::next_for`]; `INVALID_ARGUMENT` for more than memory holds.
    pub fn take_for<'k>(&self, key: impl Into<GeneKey<'k>>, count: usize) -> Result<Vec<u64>> {
        self.take_with(count, |ids| self.fill_for(key, ids))
    }

    /// Fills a buffer with ids for a key: all of it, or none and an error.
    ///
    /// # Errors
    /// As [`Source::next_for`].
    pub fn fill_for<'k>(&self, key: impl Into<GeneKey<'k>>, buffer: &mut [u64]) -> Result<()> {
        self.fill_of(self.gene_of(key)?, buffer)
    }

    /// The next id of 128 bits for a key, of a source with `wide=on`. As 16 bytes such ids are big-endian, `id.to_be_bytes()`.
    ///
    /// # Errors
    /// As [`Source::next_for`]; `INVALID_ARGUMENT` without `wide=on`.
    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    pub fn next_wide_for<'k>(&self, key: impl Into<GeneKey<'k>>) -> Result<u128> {
        self.next_wide_of(self.gene_of(key)?)
    }

    /// The next id of 128 bits for a key if one is in memory; never blocks.
    ///
    /// # Errors
    /// `NOT_READY` with `retry_after`, and as [`Source::next_wide_for`].
    pub fn try_next_wide_for<'k>(&self, key: impl Into<GeneKey<'k>>) -> Result<u128> {
        self.try_next_wide_of(self.gene_of(key)?)
    }

    /// `count` ids of 128 bits for a key.
    ///
    /// # Errors
    /// As [`Source::next_wide_for`]; `INVALID_ARGUMENT` for more than memory holds.
    pub fn take_wide_for<'k>(&self, key: impl Into<GeneKey<'k>>, count: usize) -> Result<Vec<u128>> {
        self.take_with(count, |ids| self.fill_wide_for(key, ids))
    }

    /// Fills a buffer with ids of 128 bits for a key: all of it, or none and an error.
    ///
    /// # Errors
    /// As [`Source::next_wide_for`].
    pub fn fill_wide_for<'k>(&self, key: impl Into<GeneKey<'k>>, buffer: &mut [u128]) -> Result<()> {
        self.fill_wide_of(self.gene_of(key)?, buffer)
    }

    /// Parses the bytes of an id in big-endian order: 8 of them, or 16 of an id of 128 bits.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another length, and for an id this source cannot have made.
    pub fn parse_bytes(&self, id: &[u8]) -> Result<Parts> {
        if let Ok(id) = id.try_into() {
            return self.parse(u64::from_be_bytes(id));
        }
        match id.try_into() {
            Ok(id) => self.parse_wide(u128::from_be_bytes(id)),
            Err(_) => Err(self.failed(wrong_length(id.len()))),
        }
    }

    /// Parses an id of 128 bits. The type says the form: a number below 2^64 has gene 0.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a number this source cannot have made.
    pub fn parse_wide(&self, id: u128) -> Result<Parts> {
        self.parse_business_wide(id).map_err(|e| self.failed(e))
    }

    fn parse_business_wide(&self, id: u128) -> Result<Parts> {
        if !self.is_wide() {
            return Err(Error::argument(format!(
                "`{}` makes no ids of 128 bits; open it with `wide=on`",
                self.label()
            )));
        }
        let gene = Gene::of_wide(id)?;
        let number = (id & u128::from(MAX_NUMBER)) as u64;
        if number == 0 {
            return Err(no_number(self.label()));
        }
        Ok(Parts { gene: Some(gene.get()), number: Some(number), ..Parts::default() })
    }

    /// An id as a text. Decimal digits do not say how long the id is, and a source with `wide=on` may have ids of both forms: a
    /// number that is an id in both, with different genes, is refused.
    pub(crate) fn parse_business_text(&self, bank: BankSpec, text: &str) -> Result<Parts> {
        if let Some(digits) = text.strip_prefix("0x") {
            return match (digits.len(), u128::from_str_radix(digits, 16)) {
                // `from_str_radix` allows a sign.
                _ if digits.starts_with('+') => Err(no_text(text)),
                (16, Ok(id)) => self.parse_business(id as u64),
                (32, Ok(id)) => self.parse_business_wide(id),
                (_, Ok(_)) => Err(wrong_length(digits.len().div_ceil(2))),
                (_, Err(_)) => Err(no_text(text)),
            };
        }
        // `parse` allows a sign and zeros in front.
        let is_written = text == "0" || text.starts_with(|c: char| ('1'..='9').contains(&c));
        let id: u128 = text.parse().ok().filter(|_| is_written).ok_or_else(|| no_text(text))?;
        let short = u64::try_from(id);
        if !bank.wide {
            return match short {
                Ok(id) => self.parse_business(id),
                Err(_) => self.parse_business_wide(id),
            };
        }
        match short.map(|id| self.parse_business(id)) {
            // Gene 0 and the same number in both forms.
            Ok(Ok(parts)) if parts.gene == Some(0) => Ok(parts),
            Ok(Ok(parts)) => Err(Error::argument(format!(
                "{id} may be an id of 64 bits, with gene {}, or one of 128 bits, with gene 0; write 0x{id:016x} or 0x{id:032x}",
                parts.gene.unwrap_or_default()
            ))),
            _ => self.parse_business_wide(id),
        }
    }

    /// How much each counter of a source of business ids was used, in the order of its genes; counters that were not used are left
    /// out. One look at the store's rows: counting costs the ids nothing. The number of counters is the recorded one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another kind of source; `STORE_UNAVAILABLE`, `STORE_REFUSED`, `CLOSED`.
    pub fn heat(&self) -> Result<Vec<Heat>> {
        self.enter(|| self.shared.bank().map(drop))?;
        self.heat_in(&self.bank_rows()?.unwrap_or_default())
    }

    /// The counters of these rows that have ids.
    pub(super) fn heat_in(&self, rows: &BankRows) -> Result<Vec<Heat>> {
        let (own, counters) = self.enter(|| {
            let bank = self.shared.bank()?;
            Ok((bank.reserved_by_counter(), bank.bank().counters))
        })?;
        let bank = BankSpec { counters: rows.counters, is_named: true, wide: self.is_wide() };
        let mut own = own.into_iter().filter(|_| counters == rows.counters).peekable();
        let mut heat = Vec::new();
        for ((index, next), reserved) in (0..).zip(&rows.next).zip(&rows.reserved) {
            let own = own.next_if(|(counter, _)| *counter == index).map_or(0, |(_, numbers)| numbers);
            // Several stores have a row for each counter, whether it was used or not.
            let Some(next) = next.filter(|_| *reserved > 0 || own > 0) else { continue };
            let (first, last) = bank.genes(index);
            heat.push(Heat {
                genes: u32::from(first)..u32::from(last) + 1,
                reserved: *reserved,
                own,
                left: bank.last().saturating_sub(next - 1),
            });
        }
        Ok(heat)
    }

    /// The rows of its bank.
    pub(super) fn bank_rows(&self) -> Result<Option<BankRows>> {
        let (key, start) = (self.spec().key.clone(), self.spec().start);
        self.on_store(move |store| Ok(store.look_bank(&key, start)?))
    }

    /// Gives a source of business ids another number of counters, in the store: a power of two up to 65536. Every new counter
    /// begins above all numbers of the old ones. Processes that still have the old number are refused with `STORE_REFUSED` at their
    /// next reservation; ids that they have in memory stay unique. Run again after a crash it goes on where it ended.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for another kind of source and for a number that is no power of two; `STORE_UNAVAILABLE`,
    /// `STORE_REFUSED`, `CLOSED`.
    pub fn change_counters(&self, counters: u32, change: Change) -> Result<BankChange> {
        if self.spec().bank.is_none() {
            return Err(self.failed(Error::argument(format!("`{}` has no counters", self.label()))));
        }
        if !counters.is_power_of_two() || counters > MOST_COUNTERS {
            return Err(self.failed(Error::argument(format!(
                "{counters} is no number of counters; give a power of two from 1 to {MOST_COUNTERS}"
            ))));
        }
        let key = self.spec().key.clone();
        self.on_store(move |store| Ok(store.change_counters(&key, counters, change.is_dry())?))
    }

    /// Raises every counter to `next` at least.
    pub(super) fn repair_bank(&self, bank: BankSpec, next: u64, change: Change) -> Result<Repair> {
        let key = self.spec().key.clone();
        self.on_store(move |store| {
            let (before, after) = store.repair_bank(&key, bank, next, change.is_dry())?;
            Ok(Repair { before, after, set_back: None, changes_more: false })
        })
    }

    /// How many counters a source of business ids has; `None` for other kinds. Without `counters=` it is 1 until the store has said what
    /// is recorded.
    #[must_use]
    pub fn counters(&self) -> Option<u32> {
        self.spec().bank.map(|bank| self.shared.bank().map_or(bank, BankSource::bank).counters)
    }

    /// Whether its ids have 128 bits (`wide=on`).
    #[must_use]
    pub fn is_wide(&self) -> bool {
        self.spec().bank.is_some_and(|bank| bank.wide)
    }

    /// An id of 64 bits. A source that has become wide still parses those that it made before.
    pub(super) fn parse_business(&self, id: u64) -> Result<Parts> {
        let gene = Gene::of_id(id)?;
        let number = id & ((1 << NUMBER_BITS) - 1);
        if number == 0 {
            return Err(no_number(self.label()));
        }
        Ok(Parts { gene: Some(gene.get()), number: Some(number), ..Parts::default() })
    }

    #[expect(clippy::inline_always, reason = "as for `next`")]
    #[inline(always)]
    fn gene_of<'k>(&self, key: impl Into<GeneKey<'k>>) -> Result<Gene> {
        Gene::of(key).map_err(|error| self.failed(error))
    }

    /// The state of a source of 64-bit business ids, of this process.
    pub(crate) fn narrow_bank(&self) -> Result<&BankSource> {
        if let IdPath::WideBank(_) = self.shared.path {
            return Err(Error::argument(format!(
                "`{}` has `wide=on`, so its ids have 128 bits; take wide ids of it",
                self.label()
            )));
        }
        self.shared.bank()
    }

    /// The state of a source of 128-bit business ids, of this process.
    pub(crate) fn wide_bank(&self) -> Result<&BankSource> {
        if let IdPath::Bank(_) = self.shared.path {
            return Err(Error::argument(format!(
                "the ids of `{}` have 64 bits; take ids that are not wide, or open it with `wide=on`",
                self.label()
            )));
        }
        self.shared.bank()
    }
}

fn no_text(text: &str) -> Error {
    Error::argument(format!(
        "`{}` is not an id: write it in decimal digits, or as 0x and its 16 or 32 hexadecimal digits",
        shown(text)
    ))
}

fn wrong_length(bytes: usize) -> Error {
    Error::argument(format!("an id of {bytes} bytes; ids have 8 bytes, or 16 where the source is `wide=on`"))
}

fn no_number(label: &str) -> Error {
    Error::argument(format!("no id of `{label}`: the number below the gene is 0, and numbers begin at 1"))
}
