//! Removes the rows of finished moves from the old shard, each only where the new shard has it or an operator says that it was deleted there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::children::check_children;
use super::compare::sub_range;
use super::copy::behind;
use super::digest::{Digest, digests};
use super::key::{IdRange, Primary};
use super::pace::Pace;
use super::permit::{Permit, Until};
use super::sides::check_sides;
use super::watch::{OnEvent, RowsTask, Watch};
use super::{Both, MovedRows, url};
use crate::api::{Change, FinishedMove, MoveStatus, Moves, Router};
use crate::error::{Code, Error, Result, shown};

/// Rows of a chunk, and of a statement.
const CHUNK: u64 = 500;
/// So many rows are named.
const NAMED: usize = 5;
/// So many rows may be missing in the new shard, however few there are.
const DELETED: u64 = 100;

/// How many rows of a table were removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovedRows {
    /// The table.
    pub table: String,
    /// How many rows; of a dry run, those that would be removed.
    pub rows: u64,
}

impl Moves {
    /// Removes the rows of moves that were finished so long ago from the old shard. First the whole range of each table is checked: where
    /// the new shard lacks a row, or has it with other values, nothing is removed; [`MovedRows::changed_too`] says that such rows were
    /// changed or deleted there since the move. Then rows go in chunks, each only with the values that were checked. A dry run checks and counts.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`: the shards' names are not in front of the URLs, or no finished move has these shards. `INVALID_CONFIG`: no move is finished, or
    /// the range has moved on. `NOT_READY`: the move was finished later, or `on_event` has said stop. `STORE_REFUSED`: the new shard lacks
    /// rows, rows of an unnamed table would go too, or the databases are mixed up. Others as [`Moves::copy`].
    pub fn clean<'c>(
        &self,
        rows: &MovedRows,
        older_than: Duration,
        change: Change,
        on_event: &'c mut OnEvent<'c>,
    ) -> Result<Vec<RemovedRows>> {
        let watch = Watch::new(on_event);
        let status = self.status()?;
        let (finished, routes) = self.finished(&status, rows, older_than)?;
        let Some(planned) = finished.first().map(|finished| &finished.planned) else { return Ok(Vec::new()) };
        let mut all = rows.open(planned, &watch)?;
        // All tables before the first row goes: where one is missing, something is wrong.
        let mut counts = Vec::new();
        for at in 0..all.len() {
            let (before, behind) = all.split_at_mut(at + 1);
            let Some(both) = before.last_mut() else { continue };
            check_sides(both, &routes, planned, &status.finished)?;
            let behind: Vec<_> = behind.iter().map(|both| &both.old).collect();
            check_children(&mut both.from, &both.old, &behind, rows.wording)?;
            let (mut known, mut missing) = (0, 0);
            for range in ranges(&finished, both) {
                let count = &mut |_: &mut Both<'_>, rows: &KnownRows| {
                    missing += rows.missing.len() as u64;
                    Ok(rows.all.len() as u64)
                };
                let how = (u64::MAX, rows.has_changed);
                known += each_chunk(both, &range, how, RowsTask::Checking, count)?;
            }
            check_missing(both, known, missing)?;
            counts.push((known, missing));
        }
        // The range moves again, or another shard's rows were taken for old ones, only under another version.
        let still = || self.check_still(status.version);
        let permit = Permit::new(&still, status.settle);
        if !change.is_dry() {
            // Children stand behind their parents.
            for (both, (count, missing)) in all.iter_mut().zip(&mut counts).rev() {
                *count = 0;
                let how = (rows.per_second, rows.has_changed);
                // What the new shard lacks goes first: of what a killed command leaves it never lacks a larger part than at the beginning.
                for range in ranges(&finished, both).into_iter().filter(|_| *missing > 0) {
                    let remove = &mut |both: &mut Both<'_>, rows: &KnownRows| {
                        remove(both, rows.all.iter().filter(|(row, _)| rows.missing.contains(*row)), &permit)
                    };
                    *count += each_chunk(both, &range, how, RowsTask::Removing, remove)?;
                }
                for range in ranges(&finished, both) {
                    let remove =
                        &mut |both: &mut Both<'_>, rows: &KnownRows| remove(both, rows.all.iter(), &permit);
                    *count += each_chunk(both, &range, how, RowsTask::Removing, remove)?;
                    check_gone(both, &range)?;
                }
            }
        }
        let named = all.iter().zip(counts);
        Ok(named.map(|(both, (rows, _))| RemovedRows { table: both.old.name.clone(), rows }).collect())
    }

    /// The moves whose rows may go, and the present routes.
    fn finished(
        &self,
        status: &MoveStatus,
        rows: &MovedRows,
        older_than: Duration,
    ) -> Result<(Vec<FinishedMove>, Router)> {
        let finished = finished(self.router(), status, rows, older_than)?;
        let routes = self.routes()?;
        for finished_move in &finished {
            check_routes(&routes, finished_move)?;
        }
        Ok((finished, routes))
    }
}

fn ranges(finished: &[FinishedMove], both: &Both<'_>) -> Vec<IdRange> {
    finished.iter().flat_map(|moved| both.ranges(&moved.planned)).collect()
}

/// The moves whose rows may go. The names of the shards must be there: a new shard that is taken for the old one would be emptied.
fn finished(
    router: &str,
    status: &MoveStatus,
    rows: &MovedRows,
    older_than: Duration,
) -> Result<Vec<FinishedMove>> {
    let MovedRows { from, to, wording, .. } = rows;
    let is_named = |moved: &FinishedMove| {
        url(from, &moved.planned.from).is_some() && url(to, &moved.planned.to).is_some()
    };
    let all: Vec<_> = status.finished.iter().filter(|moved| is_named(moved)).cloned().collect();
    let Some(last) = status.finished.last() else {
        return Err(Error::config(format!(
            "router `{}` has no finished move; rows are removed from the old shard after `keymill move finish`",
            shown(router)
        )));
    };
    if all.is_empty() {
        return Err(Error::argument(format!(
            "{} and {} do not name the shards of a finished move; of the last one they are {} and {}",
            wording.option("from"),
            wording.option("to"),
            wording.shard("from", &shown(&last.planned.from)),
            wording.shard("to", &shown(&last.planned.to))
        )));
    }
    let age = |moved: &FinishedMove| Duration::from_millis(status.now_ms.saturating_sub(moved.finished_at));
    let old: Vec<_> = all.iter().filter(|moved| age(moved) >= older_than).cloned().collect();
    if old.is_empty() {
        let oldest = all.iter().map(age).max().unwrap_or_default();
        return Err(Error::new(
            Code::NotReady,
            format!(
                "the move was finished {} s ago, and the old shard's rows are kept for {} s, in case the new one is lost; `{}` says another time",
                oldest.as_secs(),
                older_than.as_secs(),
                wording.name("older_than")
            ),
        ));
    }
    Ok(old)
}

/// Refuses a range that is not the new shard's alone: it moves, or has moved on.
fn check_routes(routes: &Router, moved: &FinishedMove) -> Result<()> {
    for range in IdRange::of(&moved.planned, false) {
        let (super::key::Id::Number(first), super::key::Id::Number(last)) = (range.first, range.last) else {
            continue;
        };
        for id in (first..=last).step_by(1 << 47) {
            let route = routes.route(id)?;
            if route.shard != moved.planned.to || route.mirror.is_some() {
                return Err(Error::config(format!(
                    "gene {} was moved from `{}` to `{}`, and is `{}`'s now or moves; rows of ranges that have moved on are not removed by this command",
                    id >> 47,
                    moved.planned.from,
                    moved.planned.to,
                    route.shard
                )));
            }
        }
    }
    Ok(())
}

/// The old shard's rows of a chunk, and which of them the new shard does not have any more.
struct KnownRows {
    all: BTreeMap<Primary, Digest>,
    missing: BTreeSet<Primary>,
}

/// Refuses where the new shard lacks more rows than programs delete: it may have lost them.
fn check_missing(both: &Both<'_>, all: u64, missing: u64) -> Result<()> {
    if missing <= (all / 2).max(DELETED) {
        return Ok(());
    }
    Err(Error::new(
        Code::StoreRefused,
        format!(
            "the new shard ({}) does not have {missing} of {all} rows of `{}`: has it lost them? If programs have deleted them, delete them in the old shard ({}) by hand",
            both.to.at(),
            both.old.name,
            both.from.at()
        ),
    ))
}

/// Passes the old shard's rows to `then`, chunk by chunk, once the new shard is known to have each of them.
fn each_chunk(
    both: &mut Both<'_>,
    range: &IdRange,
    (per_second, has_changed): (u64, bool),
    task: RowsTask,
    then: &mut dyn FnMut(&mut Both<'_>, &KnownRows) -> Result<u64>,
) -> Result<u64> {
    let mut pace = Pace::new(per_second, Instant::now());
    let (mut done, mut rest) = (0, Some(range.clone()));
    while let Some(left) = rest {
        both.watch.go_on("the same clean goes on from here")?;
        let asked = Instant::now();
        let chunk = sub_range(both, &left, pace.most(CHUNK))?;
        let rows = known(both, &chunk, has_changed)?;
        let reply = asked.elapsed();
        done += if rows.all.is_empty() { 0 } else { then(both, &rows)? };
        both.progress(task, range.share(&chunk.last), done, pace.is_easing());
        std::thread::sleep(pace.pause(rows.all.len() as u64, reply, Instant::now()));
        rest = behind(&left, &chunk.last);
    }
    Ok(done)
}

/// The old shard's rows of a chunk. Refuses where the new shard does not have one of them, or has it with other values.
fn known(both: &mut Both<'_>, chunk: &IdRange, has_changed: bool) -> Result<KnownRows> {
    let old = both.watch.persist(|| digests(&mut both.from, &both.old, &both.old.within(chunk)))?;
    if old.is_empty() {
        return Ok(KnownRows { all: old, missing: BTreeSet::new() });
    }
    let new = both.watch.persist(|| digests(&mut both.to, &both.new, &both.new.within(chunk)))?;
    let (mut missing, mut other) = (BTreeSet::new(), Vec::new());
    for (primary, row) in &old {
        match new.get(primary) {
            None => {
                missing.insert(primary.clone());
            }
            Some(there) if there != row && !has_changed => other.push(both.old.shown(primary)),
            Some(_) => {}
        }
    }
    let (from, to, table) = (both.from.at(), both.to.at(), &both.old.name);
    let what = if !missing.is_empty() && !has_changed {
        format!(
            "the new shard ({to}) does not have these rows of `{table}`: {}; they were deleted in the new shard since the move, or a program that did not follow it has written them to the old one ({from}); `{}` says that it is the first, and removes them too",
            named(missing.iter().map(|primary| both.old.shown(primary)).collect()),
            both.wording.name("changed_too")
        )
    } else if !other.is_empty() {
        format!(
            "the new shard ({to}) has these rows of `{table}` with other values than the old one ({from}): {}; they were changed in the new shard since the move, or a program that did not follow it has written to the old one; `{}` says that it is the first, and removes them too",
            named(other),
            both.wording.name("changed_too")
        )
    } else {
        return Ok(KnownRows { all: old, missing });
    };
    Err(Error::new(Code::StoreRefused, what))
}

/// The first rows of a list.
fn named(mut rows: Vec<String>) -> String {
    let more = if rows.len() > NAMED { ", …" } else { "" };
    rows.truncate(NAMED);
    format!("{}{more}", rows.join(", "))
}

/// Removes rows that still have the values that were looked at; answers with how many.
fn remove<'r>(
    both: &mut Both<'_>,
    rows: impl Iterator<Item = (&'r Primary, &'r Digest)>,
    permit: &Permit<'_>,
) -> Result<u64> {
    let rows: Vec<_> = rows.collect();
    let Both { from, old, watch, .. } = both;
    let mut removed = 0;
    for part in rows.chunks(CHUNK as usize) {
        let delete = |until: &Until| old.delete_unchanged(part, &until.condition());
        removed += watch.persist(|| permit.write(from, watch, &delete))?;
    }
    Ok(removed)
}

/// Refuses to go on where rows are left: they were changed, or written, since they were looked at.
fn check_gone(both: &mut Both<'_>, range: &IdRange) -> Result<()> {
    let Both { from, old, watch, .. } = both;
    let left = watch.persist(|| from.number(&old.count(range)))?;
    if left == 0 {
        return Ok(());
    }
    Err(Error::new(
        Code::StoreRefused,
        format!(
            "{left} rows of `{}` are left in the old shard ({}): they were written or changed there meanwhile, or a trigger keeps them; programs that still write to the old shard are a fault; look at these rows before the same command is run again",
            old.name,
            from.at()
        ),
    ))
}
