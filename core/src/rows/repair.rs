//! Makes rows of the new shard what they are in the old one.
//!
//! While a row is brought over, the old shard has it locked. A row that only the new shard has is locked there first; then the old shard is
//! asked again.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Code, Error, Result};

use super::compare::{Difference, Differs, look};
use super::copy::number;
use super::digest::Primary;
use super::insert::{Added, Insert};
use super::key::Id;
use super::moved_table::MovedTable;
use super::permit::{Permit, Until};
use super::shard::{RowConflict, Shard};
use super::watch::{RowsEvent, Watch};
use super::{Both, Wording, no_id, too_long};

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
    let ids: BTreeSet<Id> = found.iter().map(|of| of.id.clone()).collect();
    let with =
        |wanted| found.iter().filter(move |row| cure(row, deletes) == Some(wanted)).collect::<Vec<_>>();
    let (brought, deleted) = (with(Cure::Bring), with(Cure::Delete));
    let (longest, watch) = ((both.longest, both.wording), both.watch);
    let mut reasons = Reasons::new();
    let Both { from, to, old, new, .. } = both;
    if !brought.is_empty() {
        permit.limit_waits(from)?;
        watch.persist(|| {
            from.with_locks(|from| {
                bring((from, old), (to, new), &brought, (longest, permit, watch), &mut reasons)
            })
        })?;
    }
    for gone in deleted {
        let delete = |until: &Until| new.delete(&gone.primary, &until.condition());
        watch.persist(|| {
            permit.limit_waits(to)?;
            to.transaction(|to| {
                // A program that writes this row now waits for it on the new shard, after it has written it on the old one.
                let mut is_there = false;
                to.read(&new.lock_row(&gone.primary), |_| is_there = true)?;
                // What is not there any more is not locked: a program may insert it on both shards before it would be deleted.
                if is_there && number(from, &old.count_row(&gone.primary))? == 0 {
                    permit.write(to, watch, &delete)?;
                }
                Ok(())
            })
        })?;
    }
    let left = look(both, &ids)?;
    for of in &left {
        if let Some(reason) = reasons.get(&of.primary) {
            let row = format!("row {} of `{}`: {reason}", both.old.shown(&of.primary), both.old.name);
            watch.say(RowsEvent::NotRepaired(&Error::new(Code::StoreRefused, row)));
        }
    }
    Ok(left)
}

/// Why a row that was sent may still differ.
type Reasons = BTreeMap<Primary, String>;

/// Makes these rows of the new shard what they are in the old one, where they are locked.
fn bring(
    (from, old): (&mut Shard, &MovedTable),
    (to, new): (&mut Shard, &MovedTable),
    rows: &[&Difference],
    ((longest, wording), permit, watch): ((usize, Wording), &Permit<'_>, &Watch<'_>),
    reasons: &mut Reasons,
) -> Result<()> {
    let wanted: BTreeSet<&Primary> = rows.iter().map(|of| &of.primary).collect();
    let ids: BTreeSet<Id> = rows.iter().map(|of| of.id.clone()).collect();
    let mut again = None;
    let (from_at, to_at) = (from.at(), to.at());
    from.read(&old.select_locked(&old.one_of(&ids)), |row| {
        let Some(primary) = old.primary_of(row).filter(|primary| wanted.contains(primary)) else { return };
        if again.is_some() {
            return;
        }
        // One row a statement: one that another row's unique value keeps out does not keep out the others.
        let mut insert = Insert::or_replace(new, longest);
        match insert.add(row) {
            Added::Yes => {}
            Added::TooLong(bytes) => {
                reasons.insert(primary, too_long(&from_at, old, row, bytes, wording).message);
                return;
            }
            Added::NoId | Added::NoRoom => {
                reasons.insert(primary, no_id(&from_at, old, row).message);
                return;
            }
        }
        let statement = |until: &Until| insert.statement(until);
        let reason = match permit.write(to, watch, &statement) {
            Err(error) if error.code == Code::StoreUnavailable || permit.ask().is_err() => {
                again = Some(error);
                return;
            }
            Err(error) => match to.take_conflict() {
                Some(RowConflict::Unique) => {
                    format!("{to_at} left it out: another row there has one of its unique values")
                }
                Some(RowConflict::Parent) => {
                    format!("{to_at} left it out: it lacks the row that this one refers to")
                }
                None => error.message,
            },
            Ok(_) => format!(
                "it was written to {to_at} and reads otherwise there: a trigger or a program changes it"
            ),
        };
        reasons.insert(primary, reason);
    })?;
    again.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_becomes_what_it_is_in_the_old_shard_and_is_deleted_only_where_that_was_asked_for() {
        let of = |how| Difference { primary: vec![b"1".to_vec()], id: Id::Number(1), how };
        for how in [Differs::OnlyOld, Differs::Content] {
            assert_eq!(cure(&of(how), false), Some(Cure::Bring), "{how:?}");
        }
        assert_eq!(cure(&of(Differs::OnlyNew), false), None);
        assert_eq!(cure(&of(Differs::OnlyNew), true), Some(Cure::Delete));
    }
}
