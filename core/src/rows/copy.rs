//! Copies the rows of a range, chunk by chunk along the key.
//!
//! Nothing is written down about how far it is: a chunk that both shards have alike is passed over, so a copy that was killed goes on
//! where it was when it is started again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::error::{Code, Error, Result};
use crate::moves::PlannedMove;

use super::digest::digests;
use super::key::{Id, IdRange};
use super::moved_table::MovedTable;
use super::pace::Pace;
use super::parents::WITHOUT_KEY;
use super::permit::Permit;
use super::send::{HowSent, RowsToSend, SentRows, named, send};
use super::shard::{RowConflict, Shard, ShardKind};
use super::watch::{PATIENCE, RowsEvent, RowsTask};
use super::{Both, Wording};

/// Rows of a chunk. They are locked while it is copied, so a writer of one of them waits for as long. With 4000 the slowest hundredth of such
/// writes took three to ten times as long as without a copy, with 1000 twice as long at the most; a copy is as fast within the noise.
const CHUNK: u64 = 1000;
/// Chunks of long rows have fewer of them, so that they have about so many bytes: the new shard keeps a chunk in one transaction.
const CHUNK_BYTES: u64 = 16 << 20;
/// The first chunk, whose rows may have any length; each later one has at most four times as many as the one before.
const FIRST_CHUNK: u64 = 64;
/// A chunk whose locks are not had within this time is made smaller: programs that write some of its rows without a pause hold one or
/// another of them at any moment.
const FOR_LOCKS: Duration = Duration::from_secs(5);
/// So often a chunk is read whose rows another row keeps out: a program may have written that one in one shard only, until now.
const READS: u32 = 5;
const BETWEEN_READS: Duration = Duration::from_millis(100);
/// So often, for a row, the tables that were copied before its table are copied again, to bring the row to which it refers.
const TABLES_AGAIN: u32 = 3;

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
    let sent = both.from.number(&both.old.count(range))?;
    Ok(Copied { sent, alike: both.to.number(&both.new.count(range))? })
}

/// The tables that were copied before this table.
struct EarlierTables<'e, 'w> {
    tables: &'e mut [Both<'w>],
    /// Rows that were sent, by table.
    sent: &'e mut [u64],
    planned: &'e PlannedMove,
}

impl EarlierTables<'_, '_> {
    /// Copies them again. A write that was not acknowledged may have reached the old shard only, after its table was copied.
    ///
    /// Answers with how many rows were sent.
    fn copy_again(&mut self, per_second: u64, permit: &Permit<'_>) -> Result<u64> {
        let before: u64 = self.sent.iter().sum();
        for at in 0..self.tables.len() {
            table(self.tables, at, self.planned, per_second, permit, self.sent)?;
        }
        Ok(self.sent.iter().sum::<u64>() - before)
    }
}

/// Copies the range of a table; answers with how many rows both shards had alike. `sent` counts the rows that were sent, by table: where a
/// row lacks its parent, the tables in front are copied again.
pub fn table(
    tables: &mut [Both<'_>],
    at: usize,
    planned: &PlannedMove,
    per_second: u64,
    permit: &Permit<'_>,
    sent: &mut [u64],
) -> Result<u64> {
    let ((before, these), (sent_before, sent)) = (tables.split_at_mut(at), sent.split_at_mut(at));
    let mut alike = 0;
    if let (Some(both), Some(sent)) = (these.first_mut(), sent.first_mut()) {
        let mut earlier = EarlierTables { tables: before, sent: sent_before, planned };
        for range in both.ranges(planned) {
            let copied = whole(both, &range, per_second, permit, &mut earlier)?;
            *sent += copied.sent;
            alike += copied.alike;
        }
    }
    Ok(alike)
}

/// Copies a range.
fn whole(
    both: &mut Both<'_>,
    range: &IdRange,
    per_second: u64,
    permit: &Permit<'_>,
    earlier: &mut EarlierTables<'_, '_>,
) -> Result<Copied> {
    let mut pace = Pace::new(per_second, Instant::now());
    let mut copied = Copied::default();
    let mut fitting = FIRST_CHUNK;
    // How long rows are is known from the chunk before, if that one was sent.
    let mut is_length_known = false;
    // When a chunk was first sent whose locks are not had.
    let mut stuck = None;
    // Rows of such a chunk that were sent one by one, and will be found alike.
    let mut sent_alone = 0;
    let mut rest = Some(range.clone());
    while let Some(left) = rest {
        both.watch.go_on("what is copied stays, and the same copy goes on from here")?;
        both.watch.persist(|| permit.ask())?;
        let most = pace.most(fitting);
        let asked = Instant::now();
        let upto = both.watch.persist(|| nth(&mut both.from, &both.old, &left, most - 1))?;
        let last = upto.as_ref().unwrap_or(&left.last).clone();
        let chunk = IdRange { first: left.first.clone(), last };
        let mut reply = asked.elapsed();
        let before = both.watch.persist(|| before(both, &chunk))?;
        if !before.is_all && !is_length_known && most > FIRST_CHUNK {
            fitting = FIRST_CHUNK;
            rest = Some(left);
            continue;
        }
        let mut sent = SentRows::default();
        if !before.is_all {
            let began = Instant::now();
            let rest_of_patience = PATIENCE.saturating_sub(stuck.get_or_insert(began).elapsed());
            let patience = if most == 1 { rest_of_patience } else { rest_of_patience.min(FOR_LOCKS) };
            let mut sending =
                Sending { are_new: before.is_none, patience, has_parents_failed: false, sent_alone: 0 };
            let mut parents = || earlier.copy_again(per_second, permit);
            sent = match send_whole(both, &chunk, permit, &mut sending, &mut parents) {
                Err(error)
                    if error.code == Code::StoreUnavailable
                        && patience < rest_of_patience
                        && !sending.has_parents_failed
                        && !both.watch.is_stopped() =>
                {
                    // The statement may have waited for the whole time, so that nothing has been said yet.
                    both.watch.say(RowsEvent::Retries(&error));
                    copied.sent += sending.sent_alone;
                    sent_alone += sending.sent_alone;
                    fitting = (most / 8).max(1);
                    rest = Some(left);
                    continue;
                }
                sent => sent?,
            };
            reply += began.elapsed();
        }
        stuck = None;
        is_length_known = sent.rows > 0;
        let each = sent.bytes.checked_div(sent.rows).unwrap_or(0);
        fitting = CHUNK_BYTES.checked_div(each).unwrap_or(CHUNK).clamp(1, CHUNK.min(fitting * 4));
        // A row that was alike is sent again with the others of its chunk, which changes nothing.
        copied.sent += sent.rows.saturating_sub(before.alike);
        let sent_before = before.alike.min(sent_alone);
        sent_alone -= sent_before;
        copied.alike += before.alike - sent_before;
        both.progress(
            RowsTask::Copying,
            range.share(&chunk.last),
            copied.sent + copied.alike,
            pace.is_easing(),
        );
        std::thread::sleep(pace.pause(sent.rows, reply, Instant::now()));
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
    let there = both.to.number(&both.new.count(chunk))?;
    if there == 0 {
        return Ok(ThereBefore { alike: 0, is_all: false, is_none: true });
    }
    if there == both.from.number(&both.old.count(chunk))? && both.is_alike(chunk)? {
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

/// How a chunk is sent, and what came of it where it failed.
struct Sending {
    /// The new shard had none of its rows.
    are_new: bool,
    /// How long locks are waited for.
    patience: Duration,
    /// Where this is so the error is about a table that was copied before.
    has_parents_failed: bool,
    /// Rows that were sent one by one.
    sent_alone: u64,
}

/// Copies the tables again that were copied before this table; answers with how many rows were sent.
type Parents<'p> = dyn FnMut() -> Result<u64> + 'p;

/// Sends the rows of a chunk. Where another row keeps one out, all are read again; the last time one by one, so that the row is named.
fn send_whole(
    both: &mut Both<'_>,
    chunk: &IdRange,
    permit: &Permit<'_>,
    sending: &mut Sending,
    parents: &mut Parents<'_>,
) -> Result<SentRows> {
    let (watch, patience, rows) = (both.watch, sending.patience, RowsToSend::Range(chunk));
    let send_as =
        |both: &mut Both<'_>, how| permit.persist(watch, patience, || send(both, &rows, permit, how));
    // MySQL looks for each row at no cost.
    if sending.are_new && both.new.kind == ShardKind::Postgres {
        match send_as(both, HowSent::New) {
            // A program has written one of them, or none is named.
            Err(error)
                if error.code == Code::StoreRefused
                    && (both.to.take_conflict().is_some() || both.to.take_refused_commit()) => {}
            done => return done,
        }
    }
    let mut refused = None;
    for read in 1..READS {
        let error = match send_as(both, HowSent::Replace) {
            Err(error) if error.code == Code::StoreRefused => error,
            done => return done,
        };
        if both.to.take_conflict().is_none() {
            if both.to.take_refused_commit() {
                refused = Some(error);
                break;
            }
            return Err(error);
        }
        watch.say(RowsEvent::Retries(&error));
        watch.go_on("what is copied stays, and the same copy goes on from here")?;
        std::thread::sleep(BETWEEN_READS * read);
    }
    send_one_by_one(both, chunk, permit, sending, parents).map_err(|error| match refused {
        // What the commit checked may be about several rows, and the row that is refused alone may be right.
        Some(whole) if !error.message.starts_with(&whole.message) => Error::new(
            error.code,
            format!("{}; sent one by one, this row is refused first: {}", whole.message, error.message),
        ),
        _ => error,
    })
}

fn send_one_by_one(
    both: &mut Both<'_>,
    chunk: &IdRange,
    permit: &Permit<'_>,
    sending: &mut Sending,
    parents: &mut Parents<'_>,
) -> Result<SentRows> {
    let watch = both.watch;
    let all = watch.persist(|| digests(&mut both.from, &both.old, &both.old.within(chunk)))?;
    let mut sent = SentRows::default();
    for primary in all.keys() {
        let (mut passes, mut brought) = (0, 1);
        let one = loop {
            let row = RowsToSend::One(primary);
            let error = match permit.persist(watch, PATIENCE, || send(both, &row, permit, HowSent::Replace)) {
                Ok(one) => break one,
                Err(error) => named(error, &both.new, [primary, primary]),
            };
            let conflict = both.to.take_conflict().filter(|_| error.code == Code::StoreRefused);
            let Some(conflict) = conflict else { return Err(error) };
            // A pass that brought nothing will bring nothing the next time.
            if conflict != RowConflict::Parent || brought == 0 || passes == TABLES_AGAIN {
                return Err(kept_out(&error, conflict, both.wording));
            }
            brought = parents().inspect_err(|_| sending.has_parents_failed = true)?;
            passes += 1;
        };
        sent = SentRows { rows: sent.rows + one.rows, bytes: sent.bytes + one.bytes };
        sending.sent_alone = sent.rows;
    }
    Ok(sent)
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
            "{}: the new shard lacks the row that it refers to, and no table that was copied before this one has it in the range that moves; copy the table of that row as well, in front of this one, and {}; if the row is of an id that does not move, drop the foreign key in the new shard; {WITHOUT_KEY}",
            error.message,
            wording.again()
        ),
    };
    Error::new(Code::StoreRefused, what)
}
