//! Route tables: texts with versions, which routers follow.

use crate::store::{Fault, FaultKind, Key, StoredTable};

#[cfg_attr(not(feature = "_sql"), allow(dead_code))]
pub(crate) fn listing_routes(key: &Key) -> String {
    format!("reading the route tables in `{}`", key.table)
}

pub(crate) fn reading_route(key: &Key) -> String {
    format!("reading route table `{}`", key.name)
}

#[cfg_attr(not(feature = "_sql"), allow(dead_code))]
pub(crate) fn replacing_route(key: &Key) -> String {
    format!("storing route table `{}`", key.name)
}

/// Route tables. A store that keeps none has the verbs as they are here.
pub trait RouteStore: Send {
    /// Reads a route table; its text only where its version is not `known`. `None` if there is none.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn read_route(&mut self, _key: &Key, _known: u64) -> Result<Option<StoredTable>, Fault> {
        Err(Fault::new(FaultKind::Refused, "this store keeps no route tables"))
    }

    /// Every route table in the table of `key`, with its name, in the order of the names.
    ///
    /// # Errors
    /// See [`FaultKind`].
    fn list_routes(&mut self, _key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        Ok(Vec::new())
    }

    /// Replaces a route table whose version is `old`, `None` where there is none, by a version and its text. `false`: it has
    /// another version by now, and nothing was changed. From a version to itself it is the same text.
    ///
    /// # Errors
    /// See [`FaultKind`]; after `Unknown` it may have been replaced.
    fn replace_route(&mut self, _key: &Key, _old: Option<u64>, _new: (u64, &str)) -> Result<bool, Fault> {
        Err(Fault::new(FaultKind::Refused, "this store keeps no route tables"))
    }
}
