//! `move clean`: removes the rows of finished moves from the old shard, each only where the new shard has it.

use std::time::{Duration, Instant};

use keymill::{Code, Error, FinishedMove, Mill, MoveStatus, Result, Router};

use super::children::check_children;
use super::compare::sub_range;
use super::copy::{behind, number};
use super::digest::{Primary, digests};
use super::key::IdRange;
use super::pace::Pace;
use super::progress::Progress;
use super::sides::check_sides;
use super::{Answer, Both, is_asked_to_end, persist, tables, url};
use crate::move_args::RowsArgs;
use crate::{print, signal};

/// Rows of a chunk, and of a statement.
const CHUNK: u64 = 500;
/// So many rows are named.
const NAMED: usize = 5;

/// What is removed, and how.
#[derive(Debug)]
pub struct Clean<'a> {
    pub rows: &'a RowsArgs,
    pub older_than: Duration,
    pub per_second: u64,
    pub yes: bool,
}

/// `move clean`.
pub fn clean(mill: &Mill, router: &str, wanted: &Clean<'_>, json: bool) -> Result<()> {
    let status = mill.moves(router)?.status()?;
    let finished = finished(router, &status, wanted)?;
    let routes = Router::from_text(&mill.route_table(router)?)?;
    for of in &finished {
        check_routes(&routes, of)?;
    }
    signal::listen();
    let mut answer = Answer::default();
    let Some(of) = finished.first().map(|of| &of.of) else { return Ok(()) };
    let each = tables(wanted.rows)?.into_iter().map(|(name, key)| Both::open(wanted.rows, of, name, key));
    let mut all: Vec<Both> = each.collect::<Result<_>>()?;
    let ranges = |both: &Both| -> Vec<IdRange> {
        finished.iter().flat_map(|of| IdRange::of(&of.of, both.old.is_wide)).collect()
    };
    if wanted.rows.print {
        for both in &all {
            print::text(&super::script::of_clean(both, &ranges(both)))?;
        }
        return Ok(());
    }
    // All tables before the first row goes: where one is missing, something is wrong.
    let mut rows = Vec::new();
    for at in 0..all.len() {
        let (before, behind) = all.split_at_mut(at + 1);
        let Some(both) = before.last_mut() else { continue };
        check_sides(both, &routes, of, &status.finished)?;
        check_children(&mut both.from, &both.old, &behind.iter().map(|of| &of.old).collect::<Vec<_>>())?;
        let mut known = 0;
        for range in ranges(both) {
            let doing = format!("checking `{}`", both.old.name);
            known += each_chunk(both, &range, u64::MAX, &doing, &mut |_, rows| Ok(rows.len() as u64))?;
        }
        rows.push(known);
    }
    if wanted.yes {
        // Children stand behind their parents.
        for (both, rows) in all.iter_mut().zip(&mut rows).rev() {
            *rows = 0;
            for range in ranges(both) {
                let doing = format!("removing from `{}`", both.old.name);
                *rows += each_chunk(both, &range, wanted.per_second, &doing, &mut remove)?;
                check_gone(both, &range)?;
            }
        }
    }
    for (both, rows) in all.iter().zip(rows) {
        let what = if wanted.yes { "rows removed" } else { "rows to remove" };
        answer.table(&both.old.name, &[(what, rows)]);
    }
    answer.say(json)?;
    if !wanted.yes {
        print::note("keymill: nothing was removed; --yes removes it");
    }
    Ok(())
}

/// The moves whose rows may go. The names of the shards must be there: a new shard that is taken for the old one would be emptied.
fn finished(router: &str, status: &MoveStatus, wanted: &Clean<'_>) -> Result<Vec<FinishedMove>> {
    let RowsArgs { from, to, .. } = wanted.rows;
    let is_named = |of: &FinishedMove| url(from, &of.of.from).is_some() && url(to, &of.of.to).is_some();
    let all: Vec<_> = status.finished.iter().filter(|of| is_named(of)).cloned().collect();
    let Some(last) = status.finished.last() else {
        return Err(Error::config(format!(
            "router `{}` has no finished move; rows are removed from the old shard after `keymill move finish`",
            print::one_line(router)
        )));
    };
    if all.is_empty() {
        return Err(Error::argument(format!(
            "--from and --to do not name the shards of a finished move; of the last one they are --from '{}=URL' and --to '{}=URL'",
            print::one_line(&last.of.from),
            print::one_line(&last.of.to)
        )));
    }
    let age = |of: &FinishedMove| Duration::from_millis(status.now_ms.saturating_sub(of.finished_at));
    let old: Vec<_> = all.iter().filter(|of| age(of) >= wanted.older_than).cloned().collect();
    if old.is_empty() {
        let oldest = all.iter().map(age).max().unwrap_or_default();
        return Err(Error::new(
            Code::NotReady,
            format!(
                "the move was finished {} s ago, and the old shard's rows are kept for {} s, in case the new one is lost; `--older-than` says another time",
                oldest.as_secs(),
                wanted.older_than.as_secs()
            ),
        ));
    }
    Ok(old)
}

/// Refuses a range that is not the new shard's alone: it moves, or has moved on.
fn check_routes(routes: &Router, of: &FinishedMove) -> Result<()> {
    for range in IdRange::of(&of.of, false) {
        let (super::key::Id::Number(first), super::key::Id::Number(last)) = (range.first, range.last) else {
            continue;
        };
        for id in (first..=last).step_by(1 << 47) {
            let route = routes.route(id)?;
            if route.shard != of.of.to || route.mirror.is_some() {
                return Err(Error::config(format!(
                    "gene {} was moved from `{}` to `{}`, and is `{}`'s now or moves; rows of ranges that have moved on are not removed by this command",
                    id >> 47,
                    of.of.from,
                    of.of.to,
                    route.shard
                )));
            }
        }
    }
    Ok(())
}

type Rows = Vec<(Primary, i128)>;

/// Passes the old shard's rows to `then`, chunk by chunk, once the new shard is known to have each of them.
fn each_chunk(
    both: &mut Both,
    range: &IdRange,
    per_second: u64,
    doing: &str,
    then: &mut dyn FnMut(&mut Both, &Rows) -> Result<u64>,
) -> Result<u64> {
    let (mut pace, mut progress) = (Pace::new(per_second, Instant::now()), Progress::new(doing.to_owned()));
    let (mut done, mut rest) = (0, Some(range.clone()));
    while let Some(left) = rest {
        if is_asked_to_end() {
            return Err(Error::argument("stopped by a signal; the same command goes on from here"));
        }
        let asked = Instant::now();
        let chunk = sub_range(both, &left, pace.most(CHUNK))?;
        let rows = known(both, &chunk)?;
        let reply = asked.elapsed();
        done += if rows.is_empty() { 0 } else { then(both, &rows)? };
        progress.at(range.share(&chunk.last), done, pace.is_easing());
        std::thread::sleep(pace.pause(rows.len() as u64, reply, Instant::now()));
        rest = behind(&left, &chunk.last);
    }
    Ok(done)
}

/// The old shard's rows of a chunk. Refuses where the new shard does not have one of them, or an older one.
fn known(both: &mut Both, chunk: &IdRange) -> Result<Rows> {
    let old = persist(|| digests(&mut both.from, &both.old, &both.old.within(chunk)))?;
    if old.is_empty() {
        return Ok(Rows::new());
    }
    let new = persist(|| digests(&mut both.to, &both.new, &both.new.within(chunk)))?;
    let (mut rows, mut unknown) = (Rows::new(), Vec::new());
    for (primary, row) in old {
        match new.get(&primary) {
            Some(there) if there.version > row.version || *there == row => rows.push((primary, row.version)),
            _ => unknown.push(both.old.shown(&primary)),
        }
    }
    if unknown.is_empty() {
        return Ok(rows);
    }
    let more = if unknown.len() > NAMED { ", …" } else { "" };
    unknown.truncate(NAMED);
    Err(Error::new(
        Code::StoreRefused,
        format!(
            "the new shard ({}) does not have these rows of `{}`, or has them in an older version: {}{more}; delete those in the old shard ({}) that were deleted in the new one since the move, and copy the others to the new one, by hand",
            both.to.at(),
            both.old.name,
            unknown.join(", "),
            both.from.at()
        ),
    ))
}

/// Removes rows that still have the version that was looked at; answers with how many.
fn remove(both: &mut Both, rows: &Rows) -> Result<u64> {
    let rows: Vec<_> = rows.iter().map(|(primary, version)| (primary, *version)).collect();
    let Both { from, old, .. } = both;
    let mut removed = 0;
    for part in rows.chunks(CHUNK as usize) {
        removed += persist(|| from.read(&old.delete(part), |_| {}))?;
    }
    Ok(removed)
}

/// Refuses to go on where rows are left: they were changed, or written, since they were looked at.
fn check_gone(both: &mut Both, range: &IdRange) -> Result<()> {
    let Both { from, old, .. } = both;
    let left = persist(|| number(from, &old.count(range)))?;
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
