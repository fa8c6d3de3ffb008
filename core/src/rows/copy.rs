//! Copies the rows of a range, chunk by chunk along the key.
//!
//! Nothing is written down about how far it is: a chunk that both shards have alike is passed over, so a copy that was killed goes on
//! where it was when it is started again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::error::{Code, Error, Result};

use super::digest::{Primary, digests};
use super::insert::{Added, Insert};
use super::key::{Id, IdRange};
use super::moved_table::MovedTable;
use super::pace::Pace;
use super::permit::Permit;
use super::shard::{RowConflict, Shard, ShardKind};
use super::watch::{RowsEvent, RowsTask, Watch};
use super::{Both, Wording, no_id, too_long};

/// Rows of a chunk. They are locked while it is copied, so a writer of one of them waits for as long. With 4000 the slowest hundredth of such
/// writes took three to ten times as long as without a copy, with 1000 twice as long at the most; a copy is as fast within the noise.
const CHUNK: u64 = 1000;
/// So often a chunk is read whose rows another row keeps out: a program may have written that one in one shard only, until now.
const READS: u32 = 5;
const BETWEEN_READS: Duration = Duration::from_millis(100);
/// Bytes of an insert, unless one row has more.
const INSERT: usize = 1 << 20;

/// What a copy did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Rows that were read and sent.
    pub sent: u64,
    /// Rows that both shards had alike.
    pub alike: u64,
}

/// The id `behind` rows behind the first of the range, if there are so many.
pub fn nth(shard: &mut Shard, table: &MovedTable, range: &IdRange, behind: u64) -> Result<Option<Id>> {
    let mut found = None;
    shard.read(&table.nth(range, behind), |row| {
        found = row.first().copied().flatten().and_then(|bytes| table.read_id(bytes));
    })?;
    Ok(found)
}

/// The number that a statement answers with.
pub fn number(shard: &mut Shard, sql: &str) -> Result<u64> {
    let mut found = 0;
    shard.read(sql, |row| {
        let text = row.first().copied().flatten().and_then(|bytes| std::str::from_utf8(bytes).ok());
        found = text.and_then(|text| text.parse().ok()).unwrap_or(0);
    })?;
    Ok(found)
}

/// The part of a range behind an id; `None`: nothing is left.
pub fn behind(range: &IdRange, done: &Id) -> Option<IdRange> {
    if *done >= range.last {
        return None;
    }
    let first = match done {
        Id::Number(number) => Id::Number(number + 1),
        // The next value of bytes in their order.
        Id::Bytes(bytes) => Id::Bytes([bytes.as_slice(), &[0]].concat()),
    };
    Some(IdRange { first, last: range.last.clone() })
}

/// How many rows of a range there are in the old shard, and in the new one.
pub fn counted(both: &mut Both<'_>, range: &IdRange) -> Result<Copied> {
    let sent = number(&mut both.from, &both.old.count(range))?;
    Ok(Copied { sent, alike: number(&mut both.to, &both.new.count(range))? })
}

/// Copies a range.
pub fn whole(both: &mut Both<'_>, range: &IdRange, per_second: u64, permit: &Permit<'_>) -> Result<Copied> {
    let mut pace = Pace::new(per_second, Instant::now());
    let mut copied = Copied::default();
    let mut rest = Some(range.clone());
    while let Some(left) = rest {
        both.watch.go_on("what is copied stays, and the same copy goes on from here")?;
        both.watch.persist(|| permit.ask())?;
        let most = pace.most(CHUNK);
        let asked = Instant::now();
        let upto = both.watch.persist(|| nth(&mut both.from, &both.old, &left, most - 1))?;
        let last = upto.as_ref().unwrap_or(&left.last).clone();
        let chunk = IdRange { first: left.first.clone(), last };
        let mut reply = asked.elapsed();
        let before = both.watch.persist(|| before(both, &chunk))?;
        let mut rows = 0;
        if !before.is_all {
            let began = Instant::now();
            rows = send_whole(both, &chunk, permit, before.is_none)?;
            reply += began.elapsed();
        }
        // A row that was alike is sent again with the others of its chunk, which changes nothing.
        copied.sent += rows.saturating_sub(before.alike);
        copied.alike += before.alike;
        both.progress(
            RowsTask::Copying,
            range.share(&chunk.last),
            copied.sent + copied.alike,
            pace.is_easing(),
        );
        std::thread::sleep(pace.pause(rows, reply, Instant::now()));
        rest = upto.and_then(|upto| behind(range, &upto));
    }
    Ok(copied)
}

/// What the new shard has of a chunk before it is sent.
struct ThereBefore {
    /// Rows that both shards have alike.
    alike: u64,
    /// Whether these are all rows of the chunk.
    is_all: bool,
    /// Whether it has none.
    is_none: bool,
}

/// Only where both shards have as many rows it is worth asking for the checksum of all. Fewer are the end of a copy that was stopped, or
/// rows that programs have written since.
fn before(both: &mut Both<'_>, chunk: &IdRange) -> Result<ThereBefore> {
    let there = number(&mut both.to, &both.new.count(chunk))?;
    if there == 0 {
        return Ok(ThereBefore { alike: 0, is_all: false, is_none: true });
    }
    if there == number(&mut both.from, &both.old.count(chunk))? && both.is_alike(chunk)? {
        return Ok(ThereBefore { alike: there, is_all: true, is_none: false });
    }
    let new = digests(&mut both.to, &both.new, &both.new.within(chunk))?;
    let ids: BTreeSet<Id> = new.keys().filter_map(|row| both.new.id_of(row)).collect();
    if ids.is_empty() {
        return Ok(ThereBefore { alike: 0, is_all: false, is_none: false });
    }
    let old = digests(&mut both.from, &both.old, &both.old.one_of(&ids))?;
    let alike = new.iter().filter(|(row, new)| old.get(*row) == Some(new)).count() as u64;
    Ok(ThereBefore { alike, is_all: false, is_none: false })
}

/// An error of an insert, with the rows that were in it.
fn named(error: Error, table: &MovedTable, span: &[Option<Primary>; 2]) -> Error {
    let [Some(first), Some(last)] = span else { return error };
    if error.code != Code::StoreRefused {
        return error;
    }
    let (first, last, name) = (table.shown(first), table.shown(last), &table.name);
    let rows = if first == last {
        format!("row {first} of `{name}`")
    } else {
        format!("rows {first} to {last} of `{name}` were in one statement")
    };
    Error::new(error.code, format!("{} ({rows})", error.message))
}

/// An error of a read that no row has answered.
fn within(error: Error, table: &MovedTable, chunk: &IdRange) -> Error {
    if error.code != Code::StoreRefused {
        return error;
    }
    let (first, last) = (&chunk.first, &chunk.last);
    Error::new(error.code, format!("{} (a row of `{}` from {first} to {last})", error.message, table.name))
}

/// How the rows of a chunk are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HowSent {
    /// The new shard had none of them a moment ago.
    New,
    /// They replace those that are there.
    Replace,
    /// Likewise, each in a statement of its own.
    OneByOne,
}

/// Sends the rows of a chunk. Where another row keeps one out, all are read again; the last time one by one, so that the row is named.
fn send_whole(both: &mut Both<'_>, chunk: &IdRange, permit: &Permit<'_>, are_new: bool) -> Result<u64> {
    // MySQL looks for each row at no cost.
    if are_new && both.new.kind == ShardKind::Postgres {
        match both.watch.persist(|| send(both, chunk, permit, HowSent::New)) {
            // A program has written one of them.
            Err(error) if error.code == Code::StoreRefused && both.to.take_conflict().is_some() => {}
            done => return done,
        }
    }
    for read in 1.. {
        let is_last = read == READS;
        let how = if is_last { HowSent::OneByOne } else { HowSent::Replace };
        let error = match both.watch.persist(|| send(both, chunk, permit, how)) {
            Err(error) if error.code == Code::StoreRefused => error,
            done => return done,
        };
        let Some(conflict) = both.to.take_conflict() else { return Err(error) };
        if is_last {
            return Err(kept_out(&error, conflict, both.wording));
        }
        both.watch.say(RowsEvent::Retries(&error));
        both.watch.go_on("what is copied stays, and the same copy goes on from here")?;
        std::thread::sleep(BETWEEN_READS * read);
    }
    Ok(0)
}

/// A row that the new shard does not take, however often it is sent.
fn kept_out(error: &Error, conflict: RowConflict, wording: Wording) -> Error {
    let what = match conflict {
        RowConflict::Unique => format!(
            "{}: another row of the new shard has one of its unique values; {} makes the rows there what they are in the old one, and deletes those that it lacks; then copy again",
            error.message,
            wording.repairs()
        ),
        RowConflict::Parent => format!(
            "{}: the new shard lacks the row that it refers to; copy the table of that row as well, in front of this one, and {}",
            error.message,
            wording.again()
        ),
    };
    Error::new(Code::StoreRefused, what)
}

/// Sends the rows of a chunk while they are read, and locked: no program deletes or changes one before the new shard has it. Sent again, it
/// changes nothing more.
fn send(both: &mut Both<'_>, chunk: &IdRange, permit: &Permit<'_>, how: HowSent) -> Result<u64> {
    let Both { from, to, old, new, longest, wording, watch } = both;
    permit.limit_waits(from)?;
    from.with_locks(|from| {
        send_locked((from, old), (to, new), chunk, permit, (*longest, how, *wording, *watch))
    })
}

fn send_locked(
    (from, old): (&mut Shard, &MovedTable),
    (to, new): (&mut Shard, &MovedTable),
    chunk: &IdRange,
    permit: &Permit<'_>,
    (longest, how, wording, watch): (usize, HowSent, Wording, &Watch<'_>),
) -> Result<u64> {
    let mut rows = 0;
    let most = if how == HowSent::OneByOne { 0 } else { INSERT };
    let mut insert =
        if how == HowSent::New { Insert::new(new, longest) } else { Insert::or_replace(new, longest) };
    let mut failed = None;
    // The first and the last row of the insert.
    let mut span = [None, None];
    let from_at = from.at();
    let mut flush = |insert: &mut Insert<'_>, span: &mut [Option<Primary>; 2]| {
        let sent = permit.write(to, watch, &|until| insert.statement(until)).err();
        insert.clear();
        let span = std::mem::take(span);
        sent.map(|error| named(error, new, &span))
    };
    from.read(&old.select_locked(&old.within(chunk)), |row| {
        if failed.is_some() {
            return;
        }
        let mut added = insert.add(row);
        if added == Added::NoRoom {
            failed = flush(&mut insert, &mut span);
            if failed.is_some() {
                return;
            }
            added = insert.add(row);
        }
        match added {
            Added::Yes => {}
            Added::NoId | Added::NoRoom => failed = Some(no_id(&from_at, old, row)),
            Added::TooLong(bytes) => failed = Some(too_long(&from_at, old, row, bytes, wording)),
        }
        if failed.is_some() {
            return;
        }
        let primary = old.primary_of(row);
        span[0] = span[0].take().or_else(|| primary.clone());
        span[1] = primary;
        rows += 1;
        if insert.len() >= most {
            failed = flush(&mut insert, &mut span);
        }
    })
    .map_err(|error| within(error, old, chunk))?;
    if failed.is_none() && !insert.is_empty() {
        failed = flush(&mut insert, &mut span);
    }
    failed.map_or(Ok(rows), Err)
}
