//! How a verb gets to its rows: a live connection, which takes writes where something is written, and a table that was checked.

use std::fmt;

use crate::store::{Facts, Fault, FaultKind, Key};

use super::connection::{RowId, row_id};
use super::transaction::without_waiting;
use super::{Connection, Dialect, relation};

/// Connects to one database and keeps one connection.
pub(crate) trait Server: fmt::Debug + Send {
    /// The dialect, as far as it is known without a connection.
    fn dialect(&self) -> Dialect;

    /// The schema in the configuration, on databases with schemas.
    fn schema(&self) -> Option<&str> {
        None
    }

    /// Runs `work` with a live connection, and keeps it if it is still usable.
    ///
    /// # Errors
    /// The errors of connecting and of `work`.
    fn with<T>(&mut self, work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>) -> Result<T, Fault>;

    /// Whether the database exists. Reading does not create it.
    fn is_there(&self) -> bool {
        true
    }

    /// Whether the database can be queried now.
    fn answers(&mut self) -> bool {
        self.is_there()
    }

    /// Warnings of the connection; sends no query.
    fn warnings(&self) -> Option<Vec<String>>;

    /// Facts about the database.
    ///
    /// # Errors
    /// The errors of connecting.
    fn facts(&mut self) -> Result<Facts, Fault>;

    /// [`Store::created`].
    fn created(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// [`Store::release_idle`].
    fn release_idle(&mut self, _now_ms: u64) -> Option<u64> {
        None
    }
}

/// Runs `work` to read rows; it learns whether the table was seen in the catalogue. `None`: there is no database, or no table
/// that the first reservation creates. Reading creates neither.
pub(super) fn read<T>(
    server: &mut impl Server,
    key: &Key,
    work: impl FnOnce(&mut dyn Connection, bool) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    if !server.is_there() {
        return Ok(None);
    }
    server.with(|connection| {
        past_locked_table(connection, key, |connection| {
            let is_seen = relation::check_to_read(connection, key)?;
            is_seen.map(|is_seen| bounded(connection, |connection| work(connection, is_seen))).transpose()
        })
    })
}

/// Runs `work` to change rows of several tables, with a connection to a database that takes writes.
pub(super) fn write_several<T>(
    server: &mut impl Server,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    server.with(|connection| {
        connection.writable()?;
        work(connection)
    })
}

/// Runs `work` to change rows of one table.
pub(super) fn write<T>(
    server: &mut impl Server,
    key: &Key,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    write_several(server, |connection| {
        let answer = relation::check_to_write(connection, key).and_then(|()| work(&mut *connection));
        answer.map_err(|fault| relation::if_lost(connection, key, fault))
    })
}

/// Runs `work` on a row, or on the rows of a pool, with NOWAIT if one was locked last time, so one locked row cannot delay other sources.
pub(super) fn write_row<T>(
    server: &mut impl Server,
    key: &Key,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    write(server, key, |connection| {
        let is_in_batch = connection.state().locked_batch > 0 && key.is_counter();
        past_locked(connection, row_id(key), is_in_batch, work)
    })
}

/// Runs `work` to read a table, with NOWAIT if it was locked last time: a reader waits for no row.
pub(super) fn past_locked_table<T>(
    connection: &mut dyn Connection,
    key: &Key,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    // No row has this name.
    past_locked(connection, (key.table.clone(), String::new()), false, work)
}

/// Runs a query of `work` outside a transaction. On PostgreSQL only a transaction has a shorter limit for a lock.
pub(super) fn bounded<T>(
    connection: &mut dyn Connection,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    if connection.dialect() != Dialect::Postgres || !connection.state().nowait {
        return work(connection);
    }
    connection.begin()?;
    let answer = work(&mut *connection);
    connection.roll_back();
    answer
}

fn past_locked<T>(
    connection: &mut dyn Connection,
    locked: RowId,
    is_locked: bool,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let was_locked = is_locked || connection.state().locked.contains(&locked);
    let answer = if was_locked { without_waiting(connection, work) } else { work(&mut *connection) };
    if answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Locked) {
        connection.state().locked.insert(locked);
    } else {
        connection.state().locked.remove(&locked);
    }
    answer
}

/// Runs `work` on this many rows of one table, with NOWAIT if one of so many was locked last time.
pub(super) fn write_rows<T>(
    server: &mut impl Server,
    key: &Key,
    count: usize,
    work: impl FnOnce(&mut dyn Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    write(server, key, |connection| {
        let locked = connection.state().locked_batch;
        let answer = if locked > 0 { without_waiting(connection, work) } else { work(&mut *connection) };
        let is_locked = answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Locked);
        connection.state().locked_batch =
            if is_locked { locked.max(count) } else { locked.saturating_sub(count) };
        answer
    })
}
