//! The router: a table of shards over the ring of 65 536 genes, replaced as a whole while readers go on.
//!
//! * `table` reads and checks tables. Pure.
//! * `ring` holds the words of the present table; readers never lock.
//! * `names` keeps the names of shards by number.
//!
//! [`LiveTable`] joins them. A table is replaced only by one of a higher version, and a bad one is refused with all its
//! faults: the old one stays.

mod json;
#[cfg(all(test, loom))]
mod loom;
mod names;
mod ring;
mod table;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Code, Error, Result};
use crate::gene::Gene;
use crate::process::revocation::ForkLock;

use names::Names;
use ring::Ring;
pub use table::LONGEST_TEXT;
pub(crate) use table::{RouteTable, RouteWord};

/// The present table.
pub(crate) struct LiveTable {
    ring: Ring,
    names: Names,
    /// Held while a table is replaced.
    writer: ForkLock,
    /// Boot time at which the store said last that the table is the present one; 0: it is not from a store.
    confirmed_ms: AtomicU64,
}

impl fmt::Debug for LiveTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LiveTable")
            .field("version", &self.version())
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl LiveTable {
    pub(crate) fn new(table: &RouteTable) -> Result<LiveTable> {
        let live = LiveTable {
            ring: Ring::new(),
            names: Names::new(),
            writer: ForkLock::new(),
            confirmed_ms: AtomicU64::new(0),
        };
        live.replace(table)?;
        Ok(live)
    }

    /// The word of a gene, and the version of its table.
    #[inline]
    pub(crate) fn word(&self, gene: Gene) -> (RouteWord, u64) {
        let (word, version) = self.ring.word(gene.get());
        (RouteWord(word), version)
    }

    /// The name with this number of a [`RouteWord`].
    #[inline]
    pub(crate) fn name(&self, number: u16) -> &str {
        self.names.get(number)
    }

    pub(crate) fn version(&self) -> u64 {
        self.ring.version()
    }

    /// The store has said that this table is its own.
    pub(crate) fn confirm(&self, boot_ms: u64) {
        // ordering: Relaxed — a statistic.
        self.confirmed_ms.store(boot_ms.max(1), Ordering::Relaxed);
    }

    /// How long ago the store confirmed the table; `None` where it is not from a store.
    pub(crate) fn age_ms(&self, boot_ms: u64) -> Option<u64> {
        // ordering: Relaxed — a statistic.
        let confirmed = self.confirmed_ms.load(Ordering::Relaxed);
        (confirmed > 0).then(|| boot_ms.saturating_sub(confirmed))
    }

    /// Replaces the table. `false`: it is the present one.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: the version is lower, or it is the same and the table is another one. The old table stays.
    pub(crate) fn replace(&self, table: &RouteTable) -> Result<bool> {
        let _held = self.writer.lock();
        let (version, present) = (table.version(), self.ring.version());
        if version < present {
            return Err(refused(&format!("its version {version} is lower than {present}, the present one")));
        }
        let numbers = self.names.numbers(table.names())?;
        let words = table.words(&numbers);
        if version == present {
            if self.ring.has(&words) {
                return Ok(false);
            }
            return Err(refused(&format!(
                "it differs from the present table, and both are version {version}; raise `version` with each change"
            )));
        }
        self.ring.publish(&words, version);
        Ok(true)
    }
}

fn refused(why: &str) -> Error {
    Error::new(Code::InvalidConfig, format!("the route table is refused: {why}"))
}
