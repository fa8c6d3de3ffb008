//! Tables of routers in several stores: each store has every table, and the newest one counts.

use std::collections::{BTreeMap, BTreeSet};

use crate::request::reader::LARGEST_VERSION;
use crate::store::{Fault, FaultKind, Key, ListedRow, StoredTable};

use super::Interleaved;

impl Interleaved {
    /// The newest table of the stores that answer: a store that missed a change has an older one.
    pub(super) fn newest_route(&mut self, key: &Key, known: u64) -> Result<Option<StoredTable>, Fault> {
        let mut found = Vec::with_capacity(self.members.len());
        let mut faults = Vec::new();
        let answers = self.ask_each(|_, store| store.read_route(key, known));
        for (member, answer) in self.members.iter().zip(answers) {
            match answer {
                Ok(table) => found.extend(table.map(|table| (member.name(), table))),
                Err(fault) => faults.push(fault),
            }
        }
        if found.is_empty() && !faults.is_empty() {
            let kind = faults.first().map_or(FaultKind::Unavailable, |fault| fault.kind);
            return Err(Fault::all(kind, faults));
        }
        Ok(newest(&key.name, found))
    }

    /// The newest table of each name, of the stores that answer.
    pub(super) fn newest_routes(&mut self, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
        let mut found: BTreeMap<String, Vec<(&str, StoredTable)>> = BTreeMap::new();
        let answers = self.ask_each(|_, store| store.list_routes(key));
        for (at, listed) in given_answers(answers)? {
            for (name, table) in listed {
                found.entry(name).or_default().push((self.members[at].name(), table));
            }
        }
        let newest = |(name, found): (String, _)| newest(&name, found).map(|table| (name, table));
        Ok(found.into_iter().filter_map(newest).collect())
    }

    /// The rows of the stores that answer. Each store's row stands elsewhere, so none has a number here.
    pub(super) fn rows_of_each(&mut self, key: &Key, most: usize) -> Result<Vec<ListedRow>, Fault> {
        let answers = given_answers(self.ask_each(|_, store| store.list_rows(key, most)))?;
        let without_number = |row: ListedRow| ListedRow { next: None, date: 0, ..row };
        let found: BTreeSet<ListedRow> =
            answers.into_iter().flat_map(|(_, listed)| listed).map(without_number).collect();
        Ok(found.into_iter().take(most).collect())
    }

    /// Replaces the table in every store; a store that missed an earlier change is brought up to date. All are asked before any is
    /// changed. After a fault of one of them the same change is made again.
    pub(super) fn replace_route_in_each(
        &mut self,
        key: &Key,
        (version, text): (u64, &str),
    ) -> Result<bool, Fault> {
        let found = self.operate_on_each(|_, store| store.read_route(key, 0));
        // The stores were only read.
        let found =
            found.map_err(|fault| fault.and("; nothing was stored, because every store has to answer"))?;
        // A version that no table may have does not count: its table is refused wherever it is read.
        let is_newer = |table: &StoredTable| table.version > version && table.version <= LARGEST_VERSION;
        let newer = self.members.iter().zip(&found).find_map(|(member, table)| {
            let table = table.as_ref().filter(|table| is_newer(table))?;
            Some((member.name(), table.version))
        });
        // Another store's table of a version that no table may have was taken for the newest, or another process was faster.
        if let Some((member, newer)) = newer {
            let is_lost = |table: &StoredTable| table.version > LARGEST_VERSION;
            if !found.iter().flatten().any(is_lost) {
                return Ok(false);
            }
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "{member} has version {newer}, and this table is version {version}; nothing was stored: raise `version` above it"
                ),
            ));
        }
        let of_version = self.members.iter().zip(&found).filter_map(|(member, table)| {
            let table = table.clone().filter(|table| table.version == version)?;
            Some((member.name(), table))
        });
        // The new table among them: a store that has another text of this version is named.
        let own = ("the new table", StoredTable::new(version, Some(text.to_owned())));
        let newest = newest(&key.name, std::iter::once(own).chain(of_version).collect());
        if let Some(refused) = newest.and_then(|table| table.refused) {
            return Err(Fault::new(FaultKind::Refused, refused));
        }
        let mut stored: Vec<String> = Vec::new();
        let all = self.members.len();
        for (member, found) in self.members.iter_mut().zip(found) {
            let before = found.map(|table| table.version);
            if before == Some(version) {
                stored.push(member.name().to_owned());
                continue;
            }
            match member.operate(|store| store.replace_route(key, before, (version, text))) {
                Ok(true) => stored.push(member.name().to_owned()),
                // Another process was faster.
                Ok(false) => return Ok(false),
                Err(fault) => {
                    return Err(if stored.is_empty() {
                        fault
                    } else {
                        fault.and(&in_part(version, &stored, all))
                    });
                }
            }
        }
        Ok(true)
    }
}

/// The answers of the stores that gave one, each with the index of its store; the faults where none did.
fn given_answers<T>(answers: Vec<Result<T, Fault>>) -> Result<Vec<(usize, T)>, Fault> {
    let (mut given, mut faults) = (Vec::with_capacity(answers.len()), Vec::new());
    for (at, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(answer) => given.push((at, answer)),
            Err(fault) => faults.push(fault),
        }
    }
    if given.is_empty() {
        let kind = faults.first().map_or(FaultKind::Unavailable, |fault| fault.kind);
        let absence = faults.first().and_then(Fault::absence);
        let is_shared = faults.iter().all(|fault| fault.absence() == absence);
        return Err(Fault::all(kind, faults).with_absence(absence.filter(|_| is_shared)));
    }
    Ok(given)
}

/// What an operator has to know after a change that some stores have and others perhaps not.
fn in_part(version: u64, stored: &[String], all: usize) -> String {
    format!(
        "; version {version} is stored in {} of {all} stores ({}), and programs follow it from there: run the same command again, with the same table, when every store answers",
        stored.len(),
        stored.join(", ")
    )
}

/// The table with the highest version, and whether two stores have different texts of it.
fn newest(name: &str, found: Vec<(&str, StoredTable)>) -> Option<StoredTable> {
    let mut newest: Option<(&str, StoredTable)> = None;
    for (at, table) in found {
        match &mut newest {
            Some((other_at, other)) if other.version == table.version => {
                let is_other = |(one, two): (&String, &String)| one != two;
                if other.refused.is_none()
                    && other.text.as_ref().zip(table.text.as_ref()).is_some_and(is_other)
                {
                    other.refused = Some(two_texts(name, table.version, other_at, at));
                }
            }
            Some((_, other)) if other.version > table.version => {}
            _ => newest = Some((at, table)),
        }
    }
    newest.map(|(_, table)| table)
}

fn two_texts(name: &str, version: u64, one: &str, other: &str) -> String {
    format!(
        "version {version} of route table `{name}` has one text in {one} and another in {other}: processes would send one id to different shards; store a table with a higher version"
    )
}
