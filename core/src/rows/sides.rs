//! Whether the databases of the two shards are mixed up.

use crate::api::{FinishedMove, Router};
use crate::error::{Code, Error, Result, shown};
use crate::moves::PlannedMove;

use super::Both;
use super::copy::{counted, nth};
use super::key::IdRange;

/// Refuses databases that were mixed up: rows of genes that are one shard's, and never moved between the two, are in the other one. A
/// database has no name that tells it from every other, so its rows have to.
pub fn check_sides(
    both: &mut Both<'_>,
    routes: &Router,
    planned: &PlannedMove,
    finished: &[FinishedMove],
) -> Result<()> {
    let watch = both.watch;
    let is_either = |name: &String| *name == planned.from || *name == planned.to;
    let has_moved = |gene: u16| {
        let moved = finished.iter().map(|moved| &moved.planned);
        // A range may go on at gene 0.
        let holds = |one: &PlannedMove| gene.wrapping_sub(one.first) <= one.last.wrapping_sub(one.first);
        moved.filter(|one| is_either(&one.from) && is_either(&one.to)).any(holds)
    };
    for (own, is_old) in [(&planned.from, true), (&planned.to, false)] {
        let is_own = |gene: &u16| {
            let route = routes.route(u64::from(*gene) << 47);
            route.is_ok_and(|route| route.shard == *own && route.mirror.is_none()) && !has_moved(*gene)
        };
        let genes: Vec<u16> = (0..=u16::MAX).filter(is_own).collect();
        for part in genes.chunk_by(|one, next| one + 1 == *next) {
            let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
            let mut others = planned.clone();
            (others.first, others.last) = (*first, *last);
            for range in IdRange::of(&others, both.old.is_wide) {
                let (other, table) =
                    if is_old { (&mut both.to, &both.new) } else { (&mut both.from, &both.old) };
                if let Some(id) = watch.persist(|| nth(other, table, &range, 0))? {
                    let option = both.wording.option(if is_old { "to" } else { "from" });
                    let at = other.at();
                    return Err(Error::new(
                        Code::StoreRefused,
                        format!(
                            "{option} ({at}) has row {id} of `{}`, whose gene is shard `{}`'s and was never moved between the two: are the databases mixed up? If they are not, the row was left by a move that was undone; delete what it left first",
                            both.old.name,
                            shown(own)
                        ),
                    ));
                }
            }
        }
    }
    Ok(())
}

/// How many rows more than the old shard the new one may have: those that came back while they were copied.
const CAME_BACK: u64 = 100;

/// Refuses to delete in the new shard what the old one lacks where that would be more than what came back during a copy.
pub fn check_deletes(both: &mut Both<'_>, planned: &PlannedMove) -> Result<()> {
    let (mut old, mut new) = (0, 0);
    for range in IdRange::of(planned, both.old.is_wide) {
        let rows = both.watch.persist(|| counted(both, &range))?;
        old += rows.sent;
        new += rows.alike;
    }
    if new <= old.saturating_mul(2).min(old.saturating_add((old / 50).max(CAME_BACK))) {
        return Ok(());
    }
    Err(Error::new(
        Code::StoreRefused,
        format!(
            "the new shard ({}) has {new} rows of `{}` in the range, and the old one ({}) {old}: more would be deleted than come back while rows are copied; are the databases mixed up? If they are not, delete these rows by hand",
            both.to.at(),
            both.old.name,
            both.from.at()
        ),
    ))
}
