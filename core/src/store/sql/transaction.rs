//! Transactions and statements that commit by themselves, each tried again while other transactions are faster.

use std::time::{Duration, Instant};

use crate::store::model::rows::{self, Rows};
use crate::store::{Fault, FaultKind, Key};

use super::sql_rows::OpenRows;
use super::{Changed, Connection, Dialect, NOWAIT_PATIENCE, Statement, Tickets, relation};

/// Pauses between attempts double up to this many times the first one: to about 20 ms.
const LONGEST_PAUSE: u64 = 20;

/// How long rows that other transactions have locked are passed over one after the other, once the first was found.
pub(super) const PAST_LOCKED_FOR: Duration = Duration::from_millis(500);

/// One transaction on the row of a key. It begins again after a conflict, and if `work` answers `None` because another
/// transaction was faster.
pub(super) fn on_row<T>(
    connection: &mut dyn Connection,
    key: &Key,
    mut work: impl FnMut(&mut dyn Rows) -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    on_table(connection, key, |connection| work(&mut OpenRows { connection }))
}

/// One transaction on the table of a key, as [`on_row`] on its row.
pub(super) fn on_table<T>(
    connection: &mut dyn Connection,
    key: &Key,
    mut work: impl FnMut(&mut dyn Connection) -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    patiently(connection, |connection| attempt(connection, key, &mut work))
}

/// A statement that commits by itself. `None`: only a transaction can decide, and nothing was changed.
pub(super) fn commit_alone(
    connection: &mut dyn Connection,
    change: &Statement,
) -> Result<Option<Changed>, Fault> {
    if connection.state().nowait && !connection.commits_alone_without_waiting() {
        return Ok(None);
    }
    patiently(connection, |connection| {
        let answer = connection.commit_alone(change);
        let state = connection.state();
        match answer {
            // Other clients of a pooler may have set a stricter isolation level; a transaction sets its own, and repeats.
            Err(fault)
                if state.conflict
                    && !state.broken
                    && fault.kind != FaultKind::Locked
                    && connection.dialect() == Dialect::Postgres =>
            {
                Ok(Some(None))
            }
            answer => answer.map(|changed| Some(Some(changed))),
        }
    })
}

/// Draws or raises a ticket; repeats if another node has drawn the ticket.
pub(super) fn on_tickets<T>(
    connection: &mut dyn Connection,
    key: &Key,
    mut work: impl FnMut(&mut dyn Tickets) -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    patiently(connection, |connection| match connection.tickets() {
        Some(tickets) => work(tickets),
        // `check_kept` has refused the key on a database without tickets.
        None => rows::check_kept_here(key).map(|()| None),
    })
}

/// One attempt: begin, work, commit. `None`: another transaction was faster, and nothing was changed.
fn attempt<T>(
    connection: &mut dyn Connection,
    key: &Key,
    work: &mut impl FnMut(&mut dyn Connection) -> Result<Option<T>, Fault>,
) -> Result<Option<T>, Fault> {
    connection.begin()?;
    connection.state().aborted = false;
    let answer = relation::ensure_table(connection, key).and_then(|()| work(&mut *connection));
    match answer {
        Ok(Some(done)) if !connection.state().aborted => match connection.commit() {
            Ok(()) => Ok(Some(done)),
            Err(fault) => {
                let state = connection.state();
                // An optimistic transaction, or a deferred unique constraint, detects the other transaction at its commit.
                state.conflict |= state.duplicate;
                Err(fault)
            }
        },
        other => {
            connection.roll_back();
            other.map(|_| None)
        }
    }
}

/// Repeats `work` while other transactions are faster (`None`, or a conflict), with growing, jittered pauses, as long as an
/// answer may take. In a cluster whose nodes conflict at the commit this is normal, and no outage.
fn patiently<T>(
    connection: &mut dyn Connection,
    mut work: impl FnMut(&mut dyn Connection) -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    let (nowait, dialect) = (connection.state().nowait, connection.dialect());
    let longest = connection.state().patience;
    let patience = if nowait { NOWAIT_PATIENCE.min(longest) } else { longest };
    // One lock wait is enough: the other sources wait too. A server that waits for no lock is asked again, and TiDB's error
    // about a lock may be a conflict.
    let one_wait = dialect == Dialect::Postgres || !nowait && dialect != Dialect::TiDb;
    let began = Instant::now();
    let mut attempts = 0;
    loop {
        connection.state().begin_attempt();
        let answer = work(&mut *connection);
        let state = connection.state();
        let conflict = match answer {
            Ok(Some(done)) => return Ok(done),
            Ok(None) if state.broken => return Err(rolled_back_badly()),
            Ok(None) => None,
            Err(fault) if fault.kind == FaultKind::Locked && one_wait => return Err(fault),
            Err(fault) if state.conflict && !state.broken => Some(fault),
            Err(fault) => return Err(fault),
        };
        attempts += 1;
        let spent = began.elapsed();
        if spent >= patience {
            let mut fault = conflict.unwrap_or_else(rows::moved_on);
            if attempts > 1 {
                fault = fault.and(&format!(" ({attempts} attempts in {} ms)", spent.as_millis()));
            }
            return Err(fault);
        }
        std::thread::sleep(Duration::from_micros(fastrand::u64(200..2000) * attempts.min(LONGEST_PAUSE)));
    }
}

/// A transaction that changed nothing could not be rolled back, so its connection is not used again.
fn rolled_back_badly() -> Fault {
    Fault::new(
        FaultKind::Unavailable,
        "another process was faster, and the connection broke before the next attempt; nothing was changed",
    )
}

/// Runs `work` with NOWAIT.
pub(super) fn without_waiting<T>(
    connection: &mut dyn Connection,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    connection.set_nowait(true)?;
    let answer = work(&mut *connection);
    if !connection.state().broken && connection.set_nowait(false).is_err() {
        connection.state().broken = true;
    }
    answer
}
