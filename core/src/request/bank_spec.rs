//! Banks: the counters of one source of business ids, and the rows they are kept in.
//!
//! A bank of C counters has a row for each counter that was used, `business:NAME/C/i`, and two rows of its own:
//! * `business:NAME`, the record: which C the bank has. Its position is `generation · 32 + log2 C`, so it rises with each change.
//! * `business:NAME/floor`: where counters without a row begin.
//!
//! C is in the name of a counter's row, so processes that disagree about C share no row, and the rows of an earlier C can be
//! closed for good before the rows of the next one give a number.

use std::sync::Arc;

use super::position::MAX_NUMBER;
use super::row_key::Key;
use super::subject::{BankRow, Subject};
use crate::gene::{GENES, Gene};

/// The most counters of a bank: one for each gene.
pub const MOST_COUNTERS: u32 = GENES;

/// The largest number of a 64-bit id: the bits that the gene leaves.
pub const LAST_NUMBER: u64 = (1 << 47) - 1;

/// The options of a source of business ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankSpec {
    /// How many counters there are: a power of two, at most [`MOST_COUNTERS`].
    pub counters: u32,
    /// `counters=` is written. Else a bank that is recorded with another number is opened with that one.
    pub is_named: bool,
    /// `wide=on`: ids have 128 bits.
    pub wide: bool,
}

impl BankSpec {
    /// By how many bits a gene is shifted to give the index of its counter.
    #[must_use]
    pub const fn shift(self) -> u32 {
        16 - self.counters.trailing_zeros()
    }

    /// The index of a gene's counter.
    #[inline]
    #[must_use]
    pub const fn index(self, gene: Gene) -> u32 {
        (gene.get() as u32) >> self.shift()
    }

    /// The genes that share a counter: first and last.
    #[must_use]
    pub fn genes(self, index: u32) -> (u16, u16) {
        let first = index << self.shift();
        (first as u16, (first + ((1 << self.shift()) - 1)) as u16)
    }

    /// The largest number of an id.
    #[must_use]
    pub const fn last(self) -> u64 {
        if self.wide { MAX_NUMBER } else { LAST_NUMBER }
    }
}

/// What opening a bank found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenBank {
    /// How many counters it has.
    pub counters: u32,
    /// Where counters without a row begin; 0: at their `start`.
    pub floor: u64,
}

/// The key of another row of the bank that `key` is a row of; the key itself where it is of no bank.
fn row_of_bank(key: &Key, row: BankRow) -> Key {
    match key.name.subject() {
        Subject::Bank { bank, .. } => {
            Key { name: Subject::Bank { bank: Arc::clone(bank), row }.into(), ..key.clone() }
        }
        _ => key.clone(),
    }
}

/// The key of a counter's row; `bank` is the key of the record.
#[must_use]
pub fn counter_key(bank: &Key, counters: u32, index: u32) -> Arc<Key> {
    Arc::new(row_of_bank(bank, BankRow::Counter { counters, index }))
}

/// The key of a bank's floor; `bank` is the key of the record.
pub(crate) fn floor_key(bank: &Key) -> Arc<Key> {
    Arc::new(row_of_bank(bank, BankRow::Floor))
}

/// The key of the row which records that every counter of this bank has its row in each of several stores; `bank` is the key of the
/// record.
pub(crate) fn complete_key(bank: &Key, counters: u32) -> Arc<Key> {
    Arc::new(row_of_bank(bank, BankRow::Complete { counters }))
}

/// The key of its bank's record and the bank's number of counters, of the key of a counter.
pub(crate) fn bank_of(counter: &Key) -> Option<(Key, u32)> {
    match counter.name.subject() {
        Subject::Bank { row: BankRow::Counter { counters, .. }, .. } => {
            Some((row_of_bank(counter, BankRow::Record), *counters))
        }
        _ => None,
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) generation: u64,
    pub(crate) counters: u32,
}

impl Record {
    /// As the position of the record's row; 0 is none.
    pub(crate) fn to_position(self) -> u64 {
        self.generation * 32 + u64::from(self.counters.trailing_zeros())
    }

    /// The record in a row's position; `None`: no record has this position.
    pub(crate) fn of_position(position: u64) -> Option<Record> {
        let (generation, bits) = (position / 32, position % 32);
        (generation > 0 && bits <= 16).then(|| Record { generation, counters: 1 << bits })
    }
}

/// How many counters a record's position says.
pub(crate) fn recorded_counters(position: u64) -> Option<u32> {
    Record::of_position(position).map(|record| record.counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_genes_share_a_counter_and_every_gene_has_one() {
        for bits in 0..=16 {
            let bank = BankSpec { counters: 1 << bits, is_named: true, wide: false };
            let mut next = 0u32;
            for index in 0..bank.counters {
                let (first, last) = bank.genes(index);
                assert_eq!(u32::from(first), next);
                next = u32::from(last) + 1;
                for gene in [first, last] {
                    assert_eq!(bank.index(Gene::from(gene)), index);
                }
            }
            assert_eq!(next, GENES);
        }
    }

    #[test]
    fn a_record_reads_back_and_rises_with_each_generation() {
        let mut before = 0;
        for generation in 1..4 {
            for bits in 0..=16 {
                let record = Record { generation, counters: 1 << bits };
                assert_eq!(Record::of_position(record.to_position()), Some(record));
                assert!(record.to_position() > before);
                before = record.to_position();
            }
        }
        for none in [0, 16, 31, 32 + 17, 63] {
            assert_eq!(Record::of_position(none), None);
        }
    }
}
