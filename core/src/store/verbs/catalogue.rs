//! What a store says and does about itself: tables, settings, connections.

use std::sync::Arc;

use crate::store::{Facts, Fault, Key};

/// A row of keymill's own tables as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ListedRow {
    /// Its name: `segment:orders`; of leased workers the pool's.
    pub name: String,
    /// The date of a serial, `20261121000000000`; 0 in every other row, and where the column holds no number.
    pub date: u64,
    /// The lowest number that is not reserved; `None` for a pool, and where the column holds no number.
    pub next: Option<u64>,
}

impl ListedRow {
    /// A pool of leased workers.
    #[cfg_attr(not(feature = "redis"), allow(dead_code))]
    pub(crate) fn pool(name: &str) -> ListedRow {
        ListedRow { name: name.to_owned(), date: 0, next: None }
    }

    /// Whether a row of this name is one of those that say more about a bank whose record is listed.
    pub(crate) fn is_of_listed_bank(name: &str) -> bool {
        // The names of banks have no `/` of their own.
        name.strip_prefix("business:").is_some_and(|bank| bank.contains('/'))
    }
}

#[cfg_attr(not(feature = "_sql"), allow(dead_code))]
pub(crate) fn listing_rows(key: &Key) -> String {
    format!("listing the rows in `{}`", key.table)
}

/// The store itself.
pub trait Catalogue: Send {
    /// Creates what these keys need and is missing, and answers with the statements. `dry_run` only answers; a table counts
    /// as missing if the store does not answer.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault>;

    /// Whether rows can be changed here now.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn writable(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// The rows in the table of `key`, keymill's own of sources or of leased workers, in the order of their names: `most` of them at most.
    /// The rows of one bank are one, its record; the rows of one pool count as one. For people: nothing decides by it.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn list_rows(&mut self, _key: &Key, _most: usize) -> Result<Vec<ListedRow>, Fault> {
        Ok(Vec::new())
    }

    /// Dialect, version and durability, read from the store itself.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn facts(&mut self) -> Result<Facts, Fault>;

    /// Problems with the settings as they were read last; sends no query. `None`: nothing was read yet, or the store does
    /// not record it.
    fn warnings(&mut self) -> Option<Vec<String>> {
        None
    }

    /// Closes connections that have been idle for the store's `idle_timeout`, before the server does and logs an aborted
    /// connection. `now_ms` is the system's boot time. Answers with the boot time at which to ask again; `None`: no
    /// connection of this store will have to be closed.
    fn release_idle(&mut self, _now_ms: u64) -> Option<u64> {
        None
    }

    /// Objects created since the last call without `init`: a new file, where numbers begin at 1.
    fn created(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The mill closes: what follows is asked for the last time, so no pause puts it off.
    fn closing(&mut self) {}

    /// Faults since the last call that the caller did not notice, for example of one of several stores.
    fn news(&mut self) -> Vec<Fault> {
        Vec::new()
    }
}
