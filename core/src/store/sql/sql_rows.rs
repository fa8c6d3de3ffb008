//! Rows inside a transaction, and the transaction around them.

use std::time::{Duration, Instant};

use crate::request::scheme::{Family, Kept};
use crate::store::model::row_layout::RowLayout;
use crate::store::model::rows::{self, Digits, Rows, StoredRow};
use crate::store::model::value::{Value, number, text};
use crate::store::{Fault, FaultKind, Key, SerialKey};

use super::dialect::NOWAIT_PATIENCE;
use super::{Connection, Dialect, check_table, statement};

/// Pauses between attempts double up to this many times the first one: to about 20 ms.
const LONGEST_PAUSE: u64 = 20;

/// The columns that identify the row of a key, with their values.
pub(super) fn identity(dialect: Dialect, key: &Key) -> Result<Vec<(&str, Value)>, Fault> {
    let identity = RowLayout::of(key).identity()?;
    if dialect.family() == Family::MySql && matches!(key.scheme.kept(), Kept::Serial) {
        for (_, value) in &identity {
            if let Value::Text(text) = value {
                rows::check_three_bytes(key, text)?;
            }
        }
    }
    Ok(identity)
}

/// One transaction on the row of a key. It begins again after a conflict, and if `work` answers `None` because another
/// transaction was faster.
pub(super) fn transact<T>(
    connection: &mut dyn Connection,
    key: &Key,
    mut work: impl FnMut(&mut dyn Rows) -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    transact_on(connection, key, |connection| work(&mut OpenRows { connection }))
}

/// One transaction on the table of a key, as [`transact`] on its row.
pub(super) fn transact_on<T>(
    connection: &mut dyn Connection,
    key: &Key,
    mut work: impl FnMut(&mut dyn Connection) -> Result<Option<T>, Fault>,
) -> Result<T, Fault> {
    if !connection.dialect().creates_tables() {
        check_table(connection, key)?;
    }
    patiently(connection, |connection| attempt(connection, key, &mut work))
}

/// One attempt: begin, work, commit. `None`: another transaction was faster, and nothing was changed.
fn attempt<T>(
    connection: &mut dyn Connection,
    key: &Key,
    work: &mut impl FnMut(&mut dyn Connection) -> Result<Option<T>, Fault>,
) -> Result<Option<T>, Fault> {
    connection.state().begin_attempt();
    connection.begin()?;
    connection.state().aborted = false;
    let answer = connection.ensure_table(key).and_then(|()| work(&mut *connection));
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
pub(super) fn patiently<T>(
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

/// Rows of an open transaction.
pub(super) struct OpenRows<'c> {
    pub(super) connection: &'c mut dyn Connection,
}

impl OpenRows<'_> {
    fn change_one(&mut self, sql: &str, values: &[Value]) -> Result<bool, Fault> {
        match self.connection.change(sql, values)? {
            0 => Ok(false),
            1 => Ok(true),
            many => Err(Fault::new(
                FaultKind::Refused,
                format!("{many} rows of one key would change at once; the table has lost its primary key"),
            )),
        }
    }
}

impl Rows for OpenRows<'_> {
    fn read(&mut self, key: &Key, lock: bool) -> Result<Option<StoredRow>, Fault> {
        let layout = RowLayout::of(key);
        let columns: Vec<_> = layout.content().iter().map(|column| format!("`{column}`")).collect();
        let lock = if lock { self.connection.for_update() } else { "" };
        let (sql, values) = statement::select(self.connection, key, &columns.join(", "), lock)?;
        let found = self.connection.query(&sql, &values)?;
        let known = &mut self.connection.state().known;
        known.remove(&known_row(key));
        let Some(row) = found.first() else { return Ok(None) };
        let stored = layout.decode(row)?;
        if let StoredRow::Counter(row) = stored {
            known.insert(known_row(key), row);
        }
        Ok(Some(stored))
    }

    fn insert(&mut self, key: &Key, new: &StoredRow) -> Result<bool, Fault> {
        let (sql, values) = statement::insert(self.connection, key, new)?;
        let made = self.change_one(&sql, &values);
        // Another transaction has just created it.
        if made.is_err() && std::mem::take(&mut self.connection.state().duplicate) { Ok(false) } else { made }
    }

    fn replace(&mut self, key: &Key, old: &StoredRow, new: &StoredRow) -> Result<bool, Fault> {
        let change = statement::replace(self.connection, key, old, new)?;
        self.change_one(&change.sql(), &change.values())
    }

    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault> {
        self.connection.largest(serial, prefix, digits)
    }

    fn new_owner(&mut self, key: &Key, record: &str) -> Result<Option<String>, Fault> {
        let sql = format!(
            "SELECT `name` FROM {} WHERE `name` > ? AND `name` < ? ORDER BY `name` LIMIT 1{}",
            self.connection.place(key)?,
            self.connection.dialect().as_committed()
        );
        // The upper bound of names that begin with this record: `>` becomes `?`.
        let beyond = format!("{}?", record.strip_suffix('>').unwrap_or(record));
        let found = self.connection.query(&sql, &[record.into(), beyond.into()])?;
        let name = found.first().and_then(|row| text(row, 0));
        Ok(name.and_then(|name| name.strip_prefix(record)).map(str::to_owned))
    }
}

/// The identity of a key's row in [`State::known`](super::State::known). Two sources of one row may have different names.
pub(super) fn known_row(key: &Key) -> (String, String) {
    (key.place(), key.name.to_string())
}

/// How many seconds ago the row was changed, by the database's clock; `None` if no column records it.
pub(super) fn age(connection: &mut dyn Connection, key: &Key) -> Result<Option<u64>, Fault> {
    let Some((column, touched)) = RowLayout::of(key).touched() else { return Ok(None) };
    if !check_table(connection, key)? {
        return Ok(None);
    }
    let age = connection.dialect().age(column, touched);
    let (sql, values) = statement::select(connection, key, &age, "")?;
    let found = connection.query(&sql, &values)?;
    Ok(found.first().and_then(|row| number(row, 0)))
}

/// The pattern of texts that begin with `prefix`, for `LIKE … ESCAPE '|'`.
pub(crate) fn like(prefix: &str) -> String {
    let mut like = String::with_capacity(prefix.len() + 1);
    for c in prefix.chars() {
        if matches!(c, '|' | '%' | '_') {
            like.push('|');
        }
        like.push(c);
    }
    like.push('%');
    like
}
