//! Makes rows of the new shard what they are in the old one.
//!
//! While a row is brought over, the old shard has it locked. A row that only the new shard has is locked there first; then the old shard is
//! asked again.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Code, Error, Result};

use super::Both;
use super::compare::{Difference, Differs, look};
use super::key::{Id, Primary};
use super::permit::{Permit, Until};
use super::send::{HowSent, RowsToSend, SentRows, send};
use super::shard::{RowConflict, Shard};
use super::watch::{PATIENCE, RowsEvent};

/// What is to be done to a row of the new shard. The old one decides, and nothing is written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    /// It becomes what it is in the old shard.
    Bring,
    /// The old shard does not have it.
    Delete,
}

fn cure(row: &Difference, deletes: bool) -> Option<Cure> {
    match row.how {
        Differs::OnlyOld | Differs::Content => Some(Cure::Bring),
        // It was deleted in the old shard, or its write there failed and was not acknowledged.
        Differs::OnlyNew => deletes.then_some(Cure::Delete),
    }
}

/// Repairs rows; answers with those that still differ.
pub fn repair(
    both: &mut Both<'_>,
    found: &[Difference],
    deletes: bool,
    permit: &Permit<'_>,
) -> Result<Vec<Difference>> {
    let ids: BTreeSet<Id> = found.iter().map(|row| row.id.clone()).collect();
    let with =
        |wanted| found.iter().filter(move |row| cure(row, deletes) == Some(wanted)).collect::<Vec<_>>();
    let (brought, deleted) = (with(Cure::Bring), with(Cure::Delete));
    let mut reasons = Reasons::new();
    for row in brought {
        if let Some(reason) = bring(both, &row.primary, permit)? {
            reasons.insert(row.primary.clone(), reason);
        }
    }
    let watch = both.watch;
    let Both { from, to, old, new, .. } = both;
    for gone in deleted {
        let delete = |until: &Until| new.delete(&gone.primary, &until.condition());
        let mut in_transaction = |to: &mut Shard| {
            to.transaction(|to| {
                // A program that writes this row now waits for it on the new shard, after it has written it on the old one.
                let mut is_there = false;
                to.read(&new.lock_row(&gone.primary), |_| is_there = true)?;
                // What is not there any more is not locked: a program may insert it on both shards before it would be deleted.
                let is_orphan = is_there && from.number(&old.count_row(&gone.primary))? == 0;
                is_orphan.then(|| permit.write_once(to, &delete)).transpose()
            })
        };
        permit.persist(watch, PATIENCE, || {
            permit.limit_writes(to)?;
            permit.in_time(to, watch, &mut in_transaction, |deleted| *deleted == Some(0))
        })?;
    }
    let left = look(both, &ids)?;
    for differing in &left {
        if let Some(reason) = reasons.get(&differing.primary) {
            let row = format!("row {} of `{}`: {reason}", both.old.shown(&differing.primary), both.old.name);
            watch.say(RowsEvent::NotRepaired(&Error::new(Code::StoreRefused, row)));
        }
    }
    Ok(left)
}

/// Why a row that was sent may still differ.
type Reasons = BTreeMap<Primary, String>;

/// Makes a row of the new shard what it is in the old one. Answers with a reason why it may still differ.
///
/// One row a transaction: a row that another row's unique value keeps out does not keep out the others.
fn bring(both: &mut Both<'_>, primary: &Primary, permit: &Permit<'_>) -> Result<Option<String>> {
    let watch = both.watch;
    let row = RowsToSend::One(primary);
    let error = match permit.persist(watch, PATIENCE, || send(both, &row, permit, HowSent::Replace)) {
        // The old shard has it no more.
        Ok(SentRows { rows: 0, .. }) => return Ok(None),
        Ok(_) => {
            let at = both.to.at();
            return Ok(Some(format!(
                "it was written to {at} and reads otherwise there: a trigger or a program changes it"
            )));
        }
        Err(error) if error.code == Code::StoreUnavailable || permit.ask().is_err() => return Err(error),
        Err(error) => error,
    };
    let at = both.to.at();
    Ok(Some(match both.to.take_conflict() {
        Some(RowConflict::Unique) => {
            format!("{at} left it out: another row there has one of its unique values")
        }
        Some(RowConflict::Parent) => format!("{at} left it out: it lacks the row that this one refers to"),
        None => error.message,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_becomes_what_it_is_in_the_old_shard_and_is_deleted_only_where_that_was_asked_for() {
        let difference = |how| Difference { primary: vec![b"1".to_vec()], id: Id::Number(1), how };
        for how in [Differs::OnlyOld, Differs::Content] {
            assert_eq!(cure(&difference(how), false), Some(Cure::Bring), "{how:?}");
        }
        assert_eq!(cure(&difference(Differs::OnlyNew), false), None);
        assert_eq!(cure(&difference(Differs::OnlyNew), true), Some(Cure::Delete));
    }
}
