//! The row of a key in an open transaction.

use crate::store::model::row_layout::RowLayout;
use crate::store::model::rows::{Digits, Rows, StoredRow};
use crate::store::model::value::{Value, number, text};
use crate::store::{Fault, FaultKind, Key, SerialKey};

use super::sql_slots;
use super::{Connection, Dialect};

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
        let (sql, values) = self.connection.table(key)?.select(&columns.join(", "), lock)?;
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
        let (sql, values) = self.connection.table(key)?.insert(new)?;
        let made = self.change_one(&sql, &values);
        // Another transaction has just created it.
        if made.is_err() && std::mem::take(&mut self.connection.state().duplicate) { Ok(false) } else { made }
    }

    fn replace(&mut self, key: &Key, old: &StoredRow, new: &StoredRow) -> Result<bool, Fault> {
        let change = self.connection.table(key)?.replace(old, new)?;
        self.change_one(&change.sql(), &change.values())
    }

    fn clock_ms(&mut self, enough_ms: u64) -> Result<Option<u64>, Fault> {
        // SQLite runs in this process, and its clock is this machine's.
        if self.connection.dialect() == Dialect::Sqlite {
            return Ok(None);
        }
        if self.connection.state().clock_ms < enough_ms {
            let now_ms = sql_slots::now_ms(&mut *self.connection)?;
            self.connection.state().clock_ms = now_ms;
        }
        Ok(Some(self.connection.state().clock_ms))
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
    let age = connection.dialect().age(column, touched);
    let (sql, values) = connection.table(key)?.select(&age, "")?;
    let found = connection.query(&sql, &values)?;
    Ok(found.first().and_then(|row| number(row, 0)))
}
