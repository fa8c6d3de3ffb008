//! Sends rows to the new shard while the old one has them locked: no program deletes or changes one before the new shard has it.

use crate::error::{Code, Error, Result};

use super::insert::{Added, Insert};
use super::key::{IdRange, Primary};
use super::moved_table::MovedTable;
use super::permit::Permit;
use super::shard::Shard;
use super::{Both, Wording, no_id, too_long};

/// Bytes of an insert, unless one row has more.
const INSERT: usize = 1 << 20;

/// Which rows are sent.
#[derive(Clone, Copy)]
pub(super) enum RowsToSend<'r> {
    /// Those whose ids are in a range.
    Range(&'r IdRange),
    /// The one with this primary key.
    One(&'r Primary),
}

/// How rows are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HowSent {
    /// The new shard had none of them a moment ago.
    New,
    /// They replace those that are there.
    Replace,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SentRows {
    pub(super) rows: u64,
    pub(super) bytes: u64,
}

/// Sends rows in one transaction. Sent again, they change nothing more.
pub(super) fn send(
    both: &mut Both<'_>,
    rows: &RowsToSend<'_>,
    permit: &Permit<'_>,
    how: HowSent,
) -> Result<SentRows> {
    let Both { from, to, old, new, longest, wording, watch } = both;
    permit.limit_locks(from)?;
    permit.limit_writes(to)?;
    let send = |to: &mut Shard| {
        from.with_locks(|from| {
            let may_commit = || permit.ask();
            to.write_locked(from, may_commit, |from, to| {
                send_locked((from, old), (to, new), rows, permit, (*longest, how, *wording))
            })
        })
    };
    permit.in_time(to, watch, send, |_| false)
}

fn send_locked(
    (from, old): (&mut Shard, &MovedTable),
    (to, new): (&mut Shard, &MovedTable),
    rows: &RowsToSend<'_>,
    permit: &Permit<'_>,
    (longest, how, wording): (usize, HowSent, Wording),
) -> Result<SentRows> {
    let (mut count, mut bytes) = (0, 0);
    let mut insert =
        if how == HowSent::New { Insert::new(new, longest) } else { Insert::or_replace(new, longest) };
    let mut failed = None;
    // The first and the last row of the insert.
    let mut span = None;
    let from_at = from.at();
    let mut flush = |insert: &mut Insert<'_>, span: &mut Option<[Primary; 2]>| {
        bytes += insert.len() as u64;
        // An error of the permit is about no row.
        let until = match permit.until(to) {
            Ok(until) => until,
            Err(error) => return Some(error),
        };
        let error = to.write(&insert.statement(&until)).err();
        insert.clear();
        match (error, span.take(), rows) {
            (Some(error), Some([first, last]), RowsToSend::Range(_)) => {
                Some(named(error, new, [&first, &last]))
            }
            (error, ..) => error,
        }
    };
    let condition = match rows {
        RowsToSend::Range(range) => old.within(range),
        RowsToSend::One(primary) => old.is_row(primary),
    };
    from.read(&old.select_locked(&condition), |row| {
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
        if let Some(primary) = old.primary_of(row) {
            let first = span.take().map_or_else(|| primary.clone(), |[first, _]| first);
            span = Some([first, primary]);
        }
        count += 1;
        if insert.len() >= INSERT {
            failed = flush(&mut insert, &mut span);
        }
    })
    .map_err(|error| within(error, old, rows))?;
    if failed.is_none() && !insert.is_empty() {
        failed = flush(&mut insert, &mut span);
    }
    failed.map_or(Ok(SentRows { rows: count, bytes }), Err)
}

/// An error of an insert, with the rows that were in it.
pub(super) fn named(error: Error, table: &MovedTable, [first, last]: [&Primary; 2]) -> Error {
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
fn within(error: Error, table: &MovedTable, rows: &RowsToSend<'_>) -> Error {
    match rows {
        RowsToSend::Range(IdRange { first, last }) if error.code == Code::StoreRefused => {
            let name = &table.name;
            Error::new(error.code, format!("{} (a row of `{name}` from {first} to {last})", error.message))
        }
        _ => error,
    }
}
