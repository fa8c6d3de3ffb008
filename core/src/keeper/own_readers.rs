//! The rows that say which version of each route table this process runs.

use std::collections::HashMap;
use std::sync::Arc;

use crate::request::reservation::{Fault, Key};
use crate::store::contained_store::ContainedStore;
use crate::store::{KeepReader, OwnReader, StoreIndex};
use crate::time::Clock;

/// Each row is renewed so many times while it lasts.
const RENEWALS: u64 = 3;

/// The part of a lease that is used: the clocks of two machines do not run alike.
const USED: (u64, u64) = (15, 16);

/// The first pause after a renewal that failed; later pauses are longer, up to a renewal's.
const FAILING_MS: u64 = 250;

/// The rows of one process. The keeper's thread has them; a forked child begins without.
#[derive(Debug)]
pub(crate) struct OwnReaders {
    rows: HashMap<String, OwnReader>,
    lease_ms: u64,
    owner: Arc<str>,
    /// Routers age by the system's clock, also where a test sets the mill's by hand.
    pub(super) clock: Clock,
}

/// A row that was written.
pub(super) struct WrittenRow {
    /// The boot time up to which it counts.
    pub(super) until_ms: u64,
    /// The highest version of a living reader; 0 where the store did not look.
    pub(super) highest: u64,
}

impl OwnReaders {
    pub(crate) fn new(lease_ms: u64, owner: Arc<str>) -> OwnReaders {
        OwnReaders { rows: HashMap::new(), lease_ms, owner, clock: Clock::System }
    }

    /// Writes the row of a router with this version; `key` is the key of its readers.
    pub(super) fn write(
        &mut self,
        store: &mut ContainedStore,
        key: &Arc<Key>,
        version: u64,
    ) -> Result<WrittenRow, Fault> {
        let keep = KeepReader {
            version,
            lease_ms: self.lease_ms,
            owner: self.owner.clone(),
            store: StoreIndex::ONLY,
        };
        let own = self.rows.entry(key.name.to_string()).or_default();
        let began_ms = self.clock.boot_ms();
        let highest = store.ask(|store| store.keep_reader(key, own, &keep))?;
        Ok(WrittenRow { until_ms: began_ms + self.lease_ms * USED.0 / USED.1, highest })
    }

    /// The next renewal for this router looks at the rows of all readers.
    pub(super) fn watch(&mut self, router: &str) {
        if let Some(own) = self.rows.get_mut(router) {
            own.watch();
        }
    }

    /// The process, for people.
    #[cfg(test)]
    pub(super) fn owner(&self) -> Arc<str> {
        self.owner.clone()
    }

    /// When a row is renewed that was written now.
    pub(super) fn renewal_ms(&self) -> u64 {
        self.lease_ms / RENEWALS
    }

    /// … after so many renewals in a row that failed before.
    pub(super) fn after_failures(&self, failures: u32) -> u64 {
        (FAILING_MS << failures.min(16)).min(self.renewal_ms().max(FAILING_MS))
    }

    /// Removes the row of a router; `false`: the store failed.
    pub(super) fn remove(&mut self, store: &mut ContainedStore, router: &str) -> bool {
        let Some(own) = self.rows.remove(router) else { return true };
        // A row that is not removed ends by itself.
        store.ask(|store| store.remove_reader(&Key::of_readers(router), &own)).is_ok()
    }

    /// Removes all rows.
    pub(super) fn close(&mut self, store: &mut ContainedStore) {
        let names: Vec<String> = self.rows.keys().cloned().collect();
        // Each try of a store that is down would wait for its timeout.
        let _ = names.into_iter().all(|name| self.remove(store, &name));
    }
}
