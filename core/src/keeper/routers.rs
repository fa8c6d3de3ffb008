//! The routers of a mill whose tables are in the store, as its callers find them.
//!
//! Routers are added and never removed, as sources are, without a lock: a forked child finds a list that is whole, and its own
//! keeper goes on with it.

use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::router::LiveTable;

#[derive(Debug)]
struct Link {
    table: Arc<LiveTable>,
    next: OnceBox<Link>,
}

/// The tables of a mill's routers, in the order in which they were opened.
#[derive(Debug, Default)]
pub(crate) struct Routers {
    first: OnceBox<Link>,
}

impl Routers {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<LiveTable>> {
        let mut at = &self.first;
        std::iter::from_fn(move || {
            let link = at.get()?;
            at = &link.next;
            Some(&link.table)
        })
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Arc<LiveTable>> {
        self.iter().find(|table| table.router() == name)
    }

    /// Adds the table of a router. The keeper's thread alone does so, and once for each name.
    pub(super) fn add(&self, table: Arc<LiveTable>) {
        let mut at = &self.first;
        while let Some(link) = at.get() {
            at = &link.next;
        }
        // The place is free: no other thread adds.
        let _ = at.set(Box::new(Link { table, next: OnceBox::new() }));
    }

    /// A forked child starts its keeper: it has no row yet, and its parent's tables may be old.
    pub(crate) fn begin_anew(&self) {
        self.iter().for_each(|table| table.begin_anew());
    }
}
