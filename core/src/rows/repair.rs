//! Makes rows alike that differ, by statements that are conditional on the version.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::Router;
use crate::error::{Code, Error, Result};

use super::compare::{Difference, Differs, look};
use super::copy::guarded;
use super::digest::Primary;
use super::key::Id;
use super::moved_table::MovedTable;
use super::permit::{CONDITION, Permit, Until};
use super::shard::Shard;
use super::watch::{RowsEvent, Watch};
use super::{Both, Wording, no_version, too_long};

/// What is to be done to a row.
///
/// Of a row that the shard that counts does not have, no program has an acknowledged write that was not followed by an acknowledged delete, so
/// nothing is ever inserted there: a program may be deleting the row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cure {
    /// Written to the shard that does not count.
    ToNew,
    ToOld,
    /// Written to the shard that counts, where it is there already.
    UpdateNew,
    UpdateOld,
    DeleteNew,
    DeleteOld,
}

/// Decides by what counts for an id: the shard that its route says to write to.
fn cure(of: &Difference, new_counts: bool, deletes: bool) -> Option<Cure> {
    match (of.how, new_counts) {
        (Differs::OnlyOld | Differs::OldNewer | Differs::Content, false) => Some(Cure::ToNew),
        (Differs::OnlyNew | Differs::NewNewer | Differs::Content, true) => Some(Cure::ToOld),
        (Differs::OldNewer, true) => Some(Cure::UpdateNew),
        (Differs::NewNewer, false) => Some(Cure::UpdateOld),
        // It was deleted in the shard that counts, or its write there failed and was not acknowledged.
        (Differs::OnlyNew, false) => deletes.then_some(Cure::DeleteNew),
        (Differs::OnlyOld, true) => deletes.then_some(Cure::DeleteOld),
    }
}

/// Whether the new shard's answer counts for an id.
fn new_counts(router: &Router, to: &str, id: &Id) -> Result<bool> {
    let wrong = || Error::argument(format!("{id} is no id"));
    let write = match id {
        Id::Number(id) => router.route(*id)?.write,
        Id::Bytes(bytes) => match <[u8; 8]>::try_from(bytes.as_slice()) {
            Ok(narrow) => router.route(u64::from_be_bytes(narrow))?.write,
            Err(_) => {
                let wide = <[u8; 16]>::try_from(bytes.as_slice()).map_err(|_| wrong())?;
                router.route_wide(u128::from_be_bytes(wide))?.write
            }
        },
    };
    Ok(write == to)
}

/// Repairs rows; answers with those that still differ.
pub fn repair(
    both: &mut Both<'_>,
    found: &[Difference],
    router: &Router,
    to: &str,
    deletes: bool,
    permit: &Permit<'_>,
) -> Result<Vec<Difference>> {
    let ids: BTreeSet<Id> = found.iter().map(|of| of.id.clone()).collect();
    let mut cures: BTreeMap<u8, Vec<&Difference>> = BTreeMap::new();
    for of in found {
        if let Some(cure) = cure(of, new_counts(router, to, &of.id)?, deletes) {
            cures.entry(cure as u8).or_default().push(of);
        }
    }
    let of = |cure: Cure| cures.get(&(cure as u8)).cloned().unwrap_or_default();
    let (longest, watch) = ((both.longest, both.wording), both.watch);
    let mut reasons = Reasons::new();
    let Both { from, to, old, new, .. } = both;
    for (cure, inserts) in [(Cure::ToNew, true), (Cure::UpdateNew, false)] {
        let how = (longest, inserts, permit, watch);
        watch.persist(|| bring((from, old), (to, new), &of(cure), how, &mut reasons))?;
    }
    for (cure, inserts) in [(Cure::ToOld, true), (Cure::UpdateOld, false)] {
        let how = (longest, inserts, permit, watch);
        watch.persist(|| bring((to, new), (from, old), &of(cure), how, &mut reasons))?;
    }
    for (cure, shard, table) in [(Cure::DeleteNew, to, new), (Cure::DeleteOld, from, old)] {
        for gone in of(cure) {
            let delete = |until: &Until| table.delete(&[(&gone.primary, gone.version)], &until.condition());
            watch.persist(|| permit.write(shard, watch, &delete))?;
        }
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

/// Copies these rows unless the other shard has a newer one; an equal version is overwritten.
fn bring(
    (from, old): (&mut Shard, &MovedTable),
    (to, new): (&mut Shard, &MovedTable),
    rows: &[&Difference],
    ((longest, wording), inserts, permit, watch): ((usize, Wording), bool, &Permit<'_>, &Watch<'_>),
    reasons: &mut Reasons,
) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let wanted: BTreeSet<&Primary> = rows.iter().map(|of| &of.primary).collect();
    let ids: BTreeSet<Id> = rows.iter().map(|of| of.id.clone()).collect();
    let (head, tail) = (new.insert(), new.unless_newer(">="));
    let mut again = None;
    let (from_at, to_at) = (from.at(), to.at());
    from.read(&old.select_where(&old.one_of(&ids)), |row| {
        let Some(primary) = old.primary_of(row).filter(|primary| wanted.contains(primary)) else { return };
        if again.is_some() {
            return;
        }
        // One row a statement: one that another row's unique value keeps out does not keep out the others.
        let mut insert = head.clone();
        let Some(version) = old.version_of(row) else {
            reasons.insert(primary, no_version(&from_at, old, row).message);
            return;
        };
        let at = new.write_row(&mut insert, row, version);
        insert.push_str(&tail);
        if insert.len() + CONDITION > longest {
            reasons.insert(primary, too_long(&from_at, old, row, insert.len(), wording).message);
            return;
        }
        let statement = |until: &Until| {
            if inserts { guarded(&insert, &at, until) } else { new.update(row, version, &until.condition()) }
        };
        let reason = match permit.write(to, watch, &statement) {
            Err(error) if error.code == Code::StoreUnavailable || permit.ask().is_err() => {
                again = Some(error);
                return;
            }
            Err(error) => error.message,
            // MySQL tells no error where the statement met the row of another id by a unique value.
            Ok(0) => format!("{to_at} left it out: another row there has one of its unique values, or a newer one of this id came"),
            Ok(_) => format!("it was written to {to_at} and reads otherwise there: a trigger or a program changes it"),
        };
        reasons.insert(primary, reason);
    })?;
    again.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_row_is_brought_over_and_only_a_row_that_does_not_count_is_deleted() {
        let of = |how| Difference { primary: vec![b"1".to_vec()], id: Id::Number(1), how, version: 1 };
        for (how, new_counts, deletes, wanted) in [
            (Differs::OnlyOld, false, false, Some(Cure::ToNew)),
            (Differs::OnlyOld, true, false, None),
            (Differs::OnlyOld, true, true, Some(Cure::DeleteOld)),
            (Differs::OldNewer, false, false, Some(Cure::ToNew)),
            (Differs::OldNewer, true, false, Some(Cure::UpdateNew)),
            (Differs::NewNewer, true, false, Some(Cure::ToOld)),
            (Differs::NewNewer, false, false, Some(Cure::UpdateOld)),
            (Differs::OnlyNew, false, false, None),
            (Differs::OnlyNew, false, true, Some(Cure::DeleteNew)),
            (Differs::OnlyNew, true, true, Some(Cure::ToOld)),
            (Differs::Content, false, false, Some(Cure::ToNew)),
            (Differs::Content, true, false, Some(Cure::ToOld)),
        ] {
            assert_eq!(cure(&of(how), new_counts, deletes), wanted, "{how:?} {new_counts} {deletes}");
        }
    }
}
