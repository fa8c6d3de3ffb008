//! What every store can do with the rows of a pool: leased workers, and readers of a route table.

use crate::request::worker::{PoolRows, SlotRow};
use crate::store::{Fault, Key};

/// The rows of one pool inside a transaction.
pub(crate) trait SlotRows {
    /// The pool's rows and the store's clock.
    fn read_pool(&mut self, key: &Key) -> Result<PoolRows, Fault>;

    /// Creates a row that records the pool itself, or another pool of its source; `false`: another process has just done so.
    fn insert_pool(&mut self, key: &Key, new: &SlotRow) -> Result<bool, Fault>;

    /// Creates the row of a slot while the pool's floor is this one, which cannot change before the commit; `false`: another process
    /// has just created it, or raised the pool.
    fn insert_slot(&mut self, key: &Key, new: &SlotRow, floor: u64) -> Result<bool, Fault>;

    /// Changes the row that is `old`, compared by token, mark and end; `false`: it has changed.
    fn replace_slot(&mut self, key: &Key, old: &SlotRow, new: &SlotRow) -> Result<bool, Fault>;

    /// Deletes the row that is `old`, compared by token, mark and end; `false`: it has changed.
    fn delete_slot(&mut self, key: &Key, old: &SlotRow) -> Result<bool, Fault>;
}
