//! What a store says and does about itself: tables, settings, connections.

use std::sync::Arc;

use crate::store::{Facts, Fault, Key};

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
