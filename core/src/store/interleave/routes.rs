//! Tables of routers in several stores: each store has every table, and the newest one counts.

use std::collections::BTreeMap;

use crate::store::{Fault, FaultKind, Key, StoredTable};

use super::Interleaved;

impl Interleaved {
    /// The newest table of the stores that answer: a store that missed a change has an older one.
    pub(super) fn newest_route(&mut self, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
        let mut newest: Option<StoredTable> = None;
        let mut faults = Vec::new();
        for member in &mut self.members {
            match member.store.read_route(key, known) {
                Ok(Some(found)) if newest.as_ref().is_none_or(|newest| found.version > newest.version) => {
                    newest = Some(found);
                }
                Ok(_) => {}
                Err(fault) => faults.push(member.said(fault)),
            }
        }
        if newest.is_some() || faults.is_empty() {
            return Ok(newest);
        }
        let kind = faults.first().map_or(FaultKind::Unavailable, |fault| fault.kind);
        Err(Fault::all(kind, faults))
    }

    /// The newest table of each name, of the stores that answer.
    pub(super) fn newest_routes(&mut self, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        let mut newest: BTreeMap<String, StoredTable> = BTreeMap::new();
        let mut faults = Vec::new();
        for member in &mut self.members {
            match member.store.list_routes(key) {
                Ok(listed) => {
                    for (name, table) in listed {
                        if newest.get(&name).is_none_or(|newest| table.version > newest.version) {
                            newest.insert(name, table);
                        }
                    }
                }
                Err(fault) => faults.push(member.said(fault)),
            }
        }
        if faults.len() < self.members.len() {
            return Ok(newest.into_iter().collect());
        }
        let kind = faults.first().map_or(FaultKind::Unavailable, |fault| fault.kind);
        Err(Fault::all(kind, faults))
    }

    /// Replaces the table in every store; one that missed an earlier change is brought up to date. After a fault of one of them
    /// the same change is made again.
    pub(super) fn replace_route_in_each(&mut self, key: &Key, new: (u64, &str)) -> Result<bool, Fault> {
        for member in &mut self.members {
            let found = member.store.read_route(key, 0).map_err(|fault| member.said(fault))?;
            let version = found.as_ref().map(|found| found.version);
            if version == Some(new.0) && found.and_then(|found| found.text).as_deref() == Some(new.1) {
                continue;
            }
            if version.is_some_and(|version| version >= new.0) {
                return Ok(false);
            }
            let replaced = member.store.replace_route(key, version, new);
            if !replaced.map_err(|fault| member.said(fault))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
