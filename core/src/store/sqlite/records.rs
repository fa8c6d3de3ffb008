//! Rows inside an open transaction, and their age.

use std::path::Path;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::file::fault;
use crate::store::counter::{Cell, Counter, Tongue, segment_of};
use crate::store::rows::{self, Digits, ProducerKey, Rows, Stored};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Scheme, SerialKey};

/// Rows inside an open transaction.
pub(super) struct Open<'a> {
    pub(super) transaction: &'a Transaction<'a>,
    pub(super) path: &'a Path,
}

impl Open<'_> {
    fn change(&self, sql: &str, values: impl rusqlite::Params) -> Result<bool, Fault> {
        match self.transaction.prepare_cached(sql).and_then(|mut statement| statement.execute(values)) {
            Ok(1) => Ok(true),
            Ok(0) => Ok(false),
            Ok(many) => Err(Fault::new(
                FaultKind::Refused,
                format!("{many} rows of one key would change at once; the table has lost its primary key"),
            )),
            Err(error) => Err(fault(self.path, &error)),
        }
    }
}

impl Rows for Open<'_> {
    fn read(&mut self, key: &Key, _lock: bool) -> Result<Option<Stored>, Fault> {
        let table = &key.table;
        let row = match key.scheme {
            Scheme::Keymill => {
                let sql = format!("SELECT period, next FROM \"{table}\" WHERE name = ?1");
                self.transaction
                    .prepare_cached(&sql)
                    .and_then(|mut statement| {
                        statement.query_one([&key.name], |row| Ok(cells(row))).optional()
                    })
                    .map_err(|error| fault(self.path, &error))?
                    .map(|cells| from_columns(key, cells).map(Stored::Segment))
                    .transpose()?
            }
            Scheme::KeyProducer => {
                let of = ProducerKey::new(rows::serial_of(key)?)?;
                let (row, serial) = producer_row(key);
                let sql = format!("SELECT `{serial}` FROM \"{table}\" WHERE {row}");
                self.transaction
                    .prepare_cached(&sql)
                    .and_then(|mut statement| {
                        statement
                            .query_one([&of.table, &of.column, &of.date, &of.number], |row| {
                                row.get::<_, Option<String>>(0)
                            })
                            .optional()
                    })
                    .map_err(|error| fault(self.path, &error))?
                    .map(Stored::Serial)
            }
            _ => {
                let Some(counter) = Counter::of_key(key) else { return Ok(None) };
                let name = counter.row_name(key)?;
                self.transaction
                    .prepare_cached(&counter.select(table))
                    .and_then(|mut statement| statement.query_one([name], |row| Ok(cells(row))).optional())
                    .map_err(|error| fault(self.path, &error))?
                    .map(|cells| counter.row_of(key, &cells).map(Stored::Counter))
                    .transpose()?
            }
        };
        Ok(row)
    }

    fn insert(&mut self, key: &Key, new: &Stored) -> Result<bool, Fault> {
        let table = &key.table;
        match new {
            Stored::Segment(mark) => {
                let (period, next) = to_columns(*mark)?;
                let sql = format!("INSERT INTO \"{table}\" (name, period, next) VALUES (?1, ?2, ?3)");
                self.change(&sql, params![key.name, period, next])
            }
            Stored::Serial(text) => {
                let of = ProducerKey::new(rows::serial_of(key)?)?;
                let columns = ["MAXSERIALNO", "TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"];
                let columns = columns.map(|column| format!("`{}`", key.columns.own(column))).join(", ");
                let sql = format!("INSERT INTO \"{table}\" ({columns}) VALUES (?1, ?2, ?3, ?4, ?5)");
                self.change(&sql, params![text, of.table, of.column, of.date, of.number])
            }
            Stored::Counter(row) => {
                let Some(counter) = Counter::of_key(key) else { return Ok(false) };
                let mut values: Vec<Value> = vec![counter.row_name(key)?.to_owned().into()];
                values.extend(counter.insert_values(row).into_iter().map(|value| (value as i64).into()));
                self.change(&counter.insert(table, Tongue::Sqlite), rusqlite::params_from_iter(values))
            }
        }
    }

    fn replace(&mut self, key: &Key, old: &Stored, new: &Stored) -> Result<bool, Fault> {
        let table = &key.table;
        match (old, new) {
            (Stored::Segment(old), Stored::Segment(new)) => {
                let ((old_period, old_next), (period, next)) = (to_columns(*old)?, to_columns(*new)?);
                let sql = format!(
                    "UPDATE \"{table}\" SET period = ?1, next = ?2, updated_at = CURRENT_TIMESTAMP \
                     WHERE name = ?3 AND period = ?4 AND next = ?5"
                );
                self.change(&sql, params![period, next, key.name, old_period, old_next])
            }
            (Stored::Serial(old), Stored::Serial(new)) => {
                let of = ProducerKey::new(rows::serial_of(key)?)?;
                let (row, serial) = producer_row(key);
                let sql = format!(
                    "UPDATE \"{table}\" SET `{serial}` = ?5, `{}` = CURRENT_TIMESTAMP WHERE {row} AND `{serial}` IS ?6",
                    key.columns.own("update_time")
                );
                self.change(&sql, params![of.table, of.column, of.date, of.number, new, old])
            }
            (Stored::Counter(old), Stored::Counter(new)) => {
                let Some(counter) = Counter::of_key(key) else { return Ok(false) };
                // None is beyond 2^63-1: `row_of` and `row_at` have seen to that.
                let mut values: Vec<Value> = vec![(new.maximum as i64).into()];
                values.push(counter.row_name(key)?.to_owned().into());
                values.push((old.maximum as i64).into());
                values.extend(counter.version.map(|_| Value::from(old.version as i64)));
                self.change(&counter.replace(table, Tongue::Sqlite), rusqlite::params_from_iter(values))
            }
            _ => Ok(false),
        }
    }

    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault> {
        // As text, whatever the column is: a number would sort below every text, and of a blob bytes would be counted.
        let sql = format!(
            "SELECT number FROM (SELECT substr(CAST(\"{column}\" AS TEXT), ?2) AS number FROM \"{table}\" \
             WHERE CAST(\"{column}\" AS TEXT) >= ?1 AND substr(CAST(\"{column}\" AS TEXT), 1, ?2 - 1) = ?1) \
             WHERE number NOT GLOB '*[^0-9]*' AND length(number) BETWEEN ?3 AND ?4 \
             AND (length(number) = ?3 OR number NOT GLOB '0*') \
             ORDER BY length(number) DESC, number DESC LIMIT 1",
            table = serial.table,
            column = serial.column,
        );
        let values =
            params![prefix, prefix.chars().count() as i64 + 1, digits.shortest as i64, digits.longest as i64];
        self.transaction
            .query_one(&sql, values, |row| row.get::<_, String>(0))
            .optional()
            .map_err(|error| fault(self.path, &error))
    }

    fn new_owner(&mut self, key: &Key, record: &str) -> Result<Option<String>, Fault> {
        let sql =
            format!("SELECT name FROM \"{}\" WHERE name > ?1 AND name < ?2 ORDER BY name LIMIT 1", key.table);
        let name: Option<String> = self
            .transaction
            .query_one(&sql, [record, &rows::beyond(record)], |row| row.get(0))
            .optional()
            .map_err(|error| fault(self.path, &error))?;
        Ok(name.and_then(|name| name.strip_prefix(record).map(str::to_owned)))
    }
}

/// What a row of `key_producer` is found by, and the column of its serial. In backquotes: what stands in double quotes and
/// is no column SQLite takes for a text.
fn producer_row(key: &Key) -> (String, &str) {
    let [table, column, date, number] =
        ["TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"].map(|column| key.columns.own(column));
    let row = format!("`{table}` = ?1 AND `{column}` = ?2 AND `{date}` = ?3 AND `{number}` = ?4");
    (row, key.columns.own("MAXSERIALNO"))
}

/// A row's columns, whatever they hold: SQLite keeps a text in a column of numbers.
fn cells(row: &rusqlite::Row<'_>) -> Vec<Cell> {
    let count = row.as_ref().column_count();
    let cell = |at| match row.get_ref(at) {
        Ok(ValueRef::Integer(number)) => Cell::Number(number.into()),
        Ok(ValueRef::Real(number)) => Cell::Other(number.to_string()),
        Ok(ValueRef::Text(text)) => Cell::Other(String::from_utf8_lossy(text).into_owned()),
        Ok(ValueRef::Blob(_)) => Cell::Other("bytes".to_owned()),
        Ok(ValueRef::Null) | Err(_) => Cell::Null,
    };
    (0..count).map(cell).collect()
}

/// SQLite has no unsigned integer; 2^63 (every number is used up) is kept as its two's complement.
fn to_columns(mark: Mark) -> Result<(i64, i64), Fault> {
    if mark.next > MAX_NUMBER + 1 || mark.period > MAX_NUMBER {
        return Err(Fault::new(
            FaultKind::Refused,
            format!("{} cannot be kept: it is beyond 2^63-1", mark.next),
        ));
    }
    Ok((mark.period as i64, mark.next as i64))
}

fn from_columns(key: &Key, mut cells: Vec<Cell>) -> Result<Mark, Fault> {
    if let Some(next @ Cell::Number(_)) = cells.get_mut(1)
        && *next == Cell::Number(i64::MIN.into())
    {
        *next = Cell::Number(i128::from(MAX_NUMBER) + 1);
    }
    segment_of(key, &cells)
}

/// Seconds since the row was changed, by this machine's clock.
pub(super) fn age_of(connection: &Connection, key: &Key, path: &Path) -> Result<Option<u64>, Fault> {
    let Some((column, seconds)) = rows::touched(key) else { return Ok(None) };
    let since =
        if seconds { format!("`{column}`") } else { format!("CAST(strftime('%s', `{column}`) AS INTEGER)") };
    let sql = format!("SELECT CAST(strftime('%s', 'now') AS INTEGER) - {since} FROM \"{}\" WHERE", key.table);
    let read = |by: &str, values: &[&str]| {
        connection
            .query_row(&format!("{sql} {by}"), rusqlite::params_from_iter(values), |row| row.get(0))
            .optional()
            .map_err(|error| fault(path, &error))
    };
    let age: Option<Option<i64>> = match Counter::of_key(key) {
        Some(counter) => read(&format!("`{}` = ?1", counter.name.0), &[counter.row_name(key)?])?,
        None if key.scheme == Scheme::KeyProducer => {
            let of = ProducerKey::new(rows::serial_of(key)?)?;
            let (by, _) = producer_row(key);
            read(&by, &[&of.table, &of.column, &of.date, &of.number])?
        }
        None => read("name = ?1", &[&key.name])?,
    };
    Ok(age.flatten().and_then(|age| u64::try_from(age).ok()))
}
