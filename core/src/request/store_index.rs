//! Which one of several stores a store is. Rows record it, so that a mill with other `stores`, or with the same ones in another order, is
//! refused before it hands out ids twice.

use std::fmt;

/// One store of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreIndex {
    /// How many stores the list has.
    pub stores: u64,
    /// The place of this one, from 0.
    pub index: u64,
}

impl StoreIndex {
    /// A store without others.
    pub const ONLY: StoreIndex = StoreIndex { stores: 1, index: 0 };

    /// Whether this store keeps a worker: of N stores, worker w is in store w mod N.
    #[must_use]
    pub fn has_worker(self, worker: u64) -> bool {
        worker % self.stores.max(1) == self.index
    }

    /// As the columns `stores` and `store` have it: a store is counted from 1.
    #[must_use]
    pub fn columns(self) -> [u64; 2] {
        [self.stores, self.index + 1]
    }

    /// The store in these columns; `None`: no row has such columns.
    #[must_use]
    pub fn of_columns([stores, store]: [u64; 2]) -> Option<StoreIndex> {
        (1..=stores).contains(&store).then(|| StoreIndex { stores, index: store - 1 })
    }

    /// Whether there are other stores.
    #[must_use]
    pub fn is_one_of_several(self) -> bool {
        self.stores > 1
    }
}

impl Default for StoreIndex {
    fn default() -> StoreIndex {
        StoreIndex::ONLY
    }
}

/// As messages and documents count: from 1.
impl fmt::Display for StoreIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_one_of_several() {
            write!(f, "store {} of {}", self.index + 1, self.stores)
        } else {
            f.write_str("the only store")
        }
    }
}
