//! The numbers of one of several stores: of N stores with chunks of W numbers, store *i* owns chunks *i*, *i* + N, *i* + 2N
//! …
//!
//! A store counts its own numbers 1, 2, 3 … without gaps, like a single store. Its local chunk *c* is the global
//! chunk *c*·N + *i*: inside a chunk both count alike, and numbers that rise in a store rise for its callers. Flickr's
//! ticket servers, one odd and one even, are the case W = 1
//! (<http://code.flickr.net/2010/02/08/ticket-servers-distributed-unique-primary-keys-on-the-cheap/>); a wider chunk keeps
//! ranges whole.

use std::fmt;

use super::position::MAX_NUMBER;
use super::store_index::StoreIndex;

/// The partition of one of several stores. Only [`Partition::of_columns`] checks it; a literal with no chunk divides by zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    /// How many stores there are, at least 2.
    pub stores: u64,
    /// The index of this store, from 0.
    pub index: u64,
    /// How many numbers a chunk has, at least 1; 1 for the mark of a worker, which is no counter.
    pub chunk: u64,
}

/// Columns that no row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoPartition;

/// The most stores.
pub(crate) const MOST_STORES: usize = 99;
/// The widest chunk.
pub(crate) const WIDEST_CHUNK: u64 = 10_000_000_000_000;

impl Partition {
    /// As the columns `stores`, `store` and `chunk` hold it: a store is counted from 1, and one store has no chunk.
    pub(crate) fn columns(partition: Option<Partition>) -> [u64; 3] {
        partition.map_or([1, 1, 0], |Partition { stores, index, chunk }| [stores, index + 1, chunk])
    }

    /// The partition in these columns, `None` with one store.
    ///
    /// # Errors
    /// No row has such columns.
    pub(crate) fn of_columns([stores, store, chunk]: [u64; 3]) -> Result<Option<Partition>, NoPartition> {
        if [stores, store, chunk] == Partition::columns(None) {
            return Ok(None);
        }
        let is_sound = (2..=MOST_STORES as u64).contains(&stores)
            && (1..=stores).contains(&store)
            && (1..=WIDEST_CHUNK).contains(&chunk);
        if is_sound { Ok(Some(Partition { stores, index: store - 1, chunk })) } else { Err(NoPartition) }
    }

    /// Which of the stores this is.
    pub(crate) fn store_index(self) -> StoreIndex {
        StoreIndex { stores: self.stores, index: self.index }
    }

    /// The global number of this store's own number `local`; `None` beyond 2^63-1.
    pub(crate) fn global(self, local: u64) -> Option<u64> {
        let before = local.checked_sub(1)?;
        let chunk = u128::from(before / self.chunk) * u128::from(self.stores) + u128::from(self.index);
        let number = chunk * u128::from(self.chunk) + u128::from(before % self.chunk) + 1;
        u64::try_from(number).ok().filter(|number| *number <= MAX_NUMBER)
    }

    /// The first of this store's own numbers at or above `global`.
    pub(crate) fn first(self, global: u64) -> u64 {
        let before = global.saturating_sub(1);
        let (chunk, within) = (before / self.chunk, before % self.chunk);
        let own = chunk / self.stores;
        match (chunk % self.stores).cmp(&self.index) {
            std::cmp::Ordering::Less => own * self.chunk + 1,
            std::cmp::Ordering::Equal => own * self.chunk + within + 1,
            std::cmp::Ordering::Greater => (own + 1) * self.chunk + 1,
        }
    }

    /// The last of this store's own numbers at or below `global`; 0 if there is none.
    pub(crate) fn last(self, global: u64) -> u64 {
        self.first(global.saturating_add(1)) - 1
    }

    /// How many numbers are left in the chunk of `local`, itself included.
    pub(crate) fn left(self, local: u64) -> u64 {
        self.chunk - local.saturating_sub(1) % self.chunk
    }

    /// The global position of a row at `local`: the lowest own number not yet reserved.
    pub(crate) fn stands(self, local: u64) -> u64 {
        self.global(local.max(1)).unwrap_or(MAX_NUMBER + 1)
    }
}

/// As messages and documents count: from 1.
impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with chunk={}", self.store_index(), self.chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(stores: u64, chunk: u64) -> Vec<Partition> {
        (0..stores).map(|index| Partition { stores, index, chunk }).collect()
    }

    #[test]
    fn every_number_belongs_to_one_store_and_one_place_there() {
        for (stores, chunk) in [(2, 1), (2, 3), (3, 10), (5, 7)] {
            let partitions = partitions(stores, chunk);
            let mut all: Vec<u64> = partitions
                .iter()
                .flat_map(|partition| (1..=20 * chunk).map(|local| partition.global(local).expect("small")))
                .collect();
            all.sort_unstable();
            assert_eq!(all, (1..=20 * chunk * stores).collect::<Vec<_>>(), "{stores} stores, chunk {chunk}");
        }
    }

    #[test]
    fn the_first_at_or_above_and_the_last_at_or_below_are_each_others_neighbours() {
        for partition in partitions(3, 4) {
            for global in 1..200 {
                let first = partition.first(global);
                assert!(partition.global(first).expect("small") >= global);
                assert!(first == 1 || partition.global(first - 1).expect("small") < global);
                let last = partition.last(global);
                assert!(last == 0 || partition.global(last).expect("small") <= global);
                assert!(partition.global(last + 1).expect("small") > global);
            }
        }
    }

    #[test]
    fn the_end_of_the_numbers_is_no_wrap() {
        for chunk in [1, 1000, WIDEST_CHUNK] {
            let partitions = partitions(3, chunk);
            let lasts: Vec<u64> =
                partitions.iter().map(|s| s.global(s.last(MAX_NUMBER)).expect("kept")).collect();
            assert!(lasts.contains(&MAX_NUMBER), "one of them owns the last number");
            for partition in partitions {
                assert_eq!(partition.global(partition.last(MAX_NUMBER) + 1), None);
                assert_eq!(partition.global(u64::MAX), None);
                assert_eq!(partition.stands(u64::MAX), MAX_NUMBER + 1);
                assert!(partition.first(MAX_NUMBER + 1) > partition.last(MAX_NUMBER));
            }
        }
    }

    #[test]
    fn columns_read_back_and_any_others_are_none() {
        for stores in [2, 3, 99] {
            for chunk in [1, 10_000_000, WIDEST_CHUNK] {
                for partition in partitions(stores, chunk) {
                    let columns = Partition::columns(Some(partition));
                    assert_eq!(Partition::of_columns(columns), Ok(Some(partition)));
                }
            }
        }
        assert_eq!(
            Partition::columns(Some(Partition { stores: 2, index: 1, chunk: 10_000_000 })),
            [2, 2, 10_000_000]
        );
        assert_eq!(Partition::of_columns(Partition::columns(None)), Ok(None));
        for none in [
            [0, 0, 0],
            [1, 0, 0],
            [1, 2, 0],
            [1, 1, 1000],
            [2, 0, 1000],
            [2, 3, 1000],
            [2, 1, 0],
            [2, 1, WIDEST_CHUNK + 1],
            [100, 1, 1000],
            [u64::MAX, u64::MAX, u64::MAX],
        ] {
            assert_eq!(Partition::of_columns(none), Err(NoPartition), "{none:?}");
        }
    }
}
