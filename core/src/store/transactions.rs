//! The verbs of [`Store`](super::Store) that are one transaction each, with what is said when they fail.

use super::rows::{self, Rows};
use super::{Fault, Import, Key, Mark, Row, import};
#[cfg(feature = "_sql")]
use super::{Request, Reserved};

/// A store that changes rows in transactions.
pub(crate) trait Transactions {
    /// One transaction on the row of `key`, which would begin in `period` if it is missing. Where `work` answers `None`
    /// the row moved under it: begun again, or told as [`rows::moved_on`].
    fn transact<T>(
        &mut self,
        key: &Key,
        period: u64,
        work: impl Fn(&mut dyn Rows) -> Result<Option<T>, Fault>,
    ) -> Result<T, Fault>;

    #[cfg(feature = "_sql")] // memory counts its reservations
    fn reserve_in_one(&mut self, request: &Request) -> Result<Reserved, Fault> {
        self.transact(&request.key, request.period, |rows| rows::reserve(rows, request))
            .map_err(|fault| rows::during(&rows::reserving(request), fault))
    }

    fn give_back_in_one(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        self.transact(key, period, |rows| rows::give_back(rows, key, period, lo, hi).map(Some))
            .map_err(|fault| rows::during(&rows::giving_back(key, lo, hi), fault))
    }

    fn raise_in_one(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.transact(key, 0, |rows| rows::raise(rows, key, expect, to))
            .map_err(|fault| rows::during(&format!("raising `{}` to {to}", key.name), fault))
    }

    fn repair_in_one(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        self.transact(key, to.period, |rows| rows::repair(rows, key, to))
            .map_err(|fault| rows::during(&format!("repairing `{}`", key.name), fault))
    }

    fn import_in_one(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        self.transact(new, period, |rows| import::import(rows, old, new, period))
            .map_err(|fault| rows::during(&format!("importing `{}`", new.name), fault))
    }

    fn new_owner_in_one(&mut self, old: &Key, new: &Key) -> Result<Option<String>, Fault> {
        self.transact(new, 0, |rows| rows.new_owner(new, &import::record_of(old)).map(Some))
            .map_err(|fault| rows::during(&format!("importing `{}`", new.name), fault))
    }
}
