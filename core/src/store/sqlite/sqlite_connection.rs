//! An open file as a connection of `sql`: statements, transactions, and the tables that it holds.

use rusqlite::types::{Value as Sqlite, ValueRef};
use rusqlite::{ErrorCode, params_from_iter};

use super::file::{APPLICATION_ID, FileOwner, fault, identity, log_of, owner, refuse_foreign};
use super::fork::OpenFile;
use crate::error::shown;
use crate::store::model::rows::Digits;
use crate::store::model::value::{ColumnValue, Value, text};
use crate::store::sql::{Connection, Dialect, Relation, State};
use crate::store::{Fault, FaultKind, Key, SerialKey};

impl OpenFile {
    /// Whether the path no longer leads to the open file.
    pub(super) fn moved(&self) -> bool {
        let opened = &self.opened;
        identity(&opened.path) != Some(opened.file)
            || opened.log.is_some() && identity(&log_of(&opened.real)) != opened.log
    }

    /// What a SQLite result means for the reservation. Some errors roll the transaction back.
    fn judged<T>(&mut self, result: rusqlite::Result<T>) -> Result<T, Fault> {
        result.map_err(|error| {
            self.state.aborted |= self.connection.is_autocommit();
            fault(&self.opened.path, &error)
        })
    }

    fn say(&mut self, sql: &str) -> Result<(), Fault> {
        let said = self.connection.execute_batch(sql);
        self.judged(said)
    }

    /// Marks a file as keymill's. A mark that is already set is not written again: that would dirty a page.
    fn mark(&mut self) -> Result<(), Fault> {
        let found = owner(&self.connection, None);
        if self.judged(found)? != FileOwner::Keymill {
            let marked = self.connection.pragma_update(None, "application_id", APPLICATION_ID);
            self.judged(marked)?;
        }
        Ok(())
    }
}

impl Connection for OpenFile {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn state(&mut self) -> &mut State {
        &mut self.state
    }

    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Vec<ColumnValue>>, Fault> {
        let found = self.connection.prepare_cached(sql).and_then(|mut statement| {
            let values = params_from_iter(values.iter().map(bound));
            let rows: rusqlite::Result<Vec<_>> = statement.query_map(values, |row| Ok(cells(row)))?.collect();
            rows
        });
        self.judged(found)
    }

    fn change(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        let changed = self
            .connection
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute(params_from_iter(values.iter().map(bound))));
        self.judged(changed).map(|rows| rows as u64)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.say("BEGIN IMMEDIATE")?;
        let opened = &mut self.opened;
        if opened.log.is_none() && opened.journal.eq_ignore_ascii_case("wal") {
            opened.log = identity(&log_of(&opened.real));
        }
        Ok(())
    }

    /// Only COMMIT's own result makes a range usable.
    fn commit(&mut self) -> Result<(), Fault> {
        if let Err(error) = self.connection.execute_batch("COMMIT") {
            let mut fault = fault(&self.opened.path, &error);
            if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
                // The commit frame may have reached the disk: it counts after a crash, or it does not.
                fault.kind = FaultKind::Unknown;
            }
            self.roll_back();
            return Err(fault);
        }
        if self.moved() {
            return Err(Fault::new(
                FaultKind::Unknown,
                format!("`{}` was deleted or replaced while it was written", self.opened.path.display()),
            ));
        }
        Ok(())
    }

    fn roll_back(&mut self) {
        if !self.connection.is_autocommit() {
            self.state.broken |= self.connection.execute_batch("ROLLBACK").is_err();
        }
    }

    fn relation(&mut self, key: &Key) -> Result<Option<Relation>, Fault> {
        let found = owner(&self.connection, Some(&key.table));
        if let FileOwner::Other(why) = self.judged(found)? {
            return Err(refuse_foreign(&self.opened.path, &why));
        }
        let of_table = [Value::from(key.table.as_str())];
        let kind = self.query(
            "SELECT type FROM sqlite_schema WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')",
            &of_table,
        )?;
        match kind.first().and_then(|row| text(row, 0)) {
            None => return Ok(None),
            Some("table") => {}
            Some(_) => {
                let path = self.opened.path.display();
                return Err(Fault::new(
                    FaultKind::Refused,
                    format!("`{}` in `{path}` is a view, not a table", key.table),
                ));
            }
        }
        let trigger = self.query(
            "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE LIMIT 1",
            &of_table,
        )?;
        if let Some(name) = trigger.first().and_then(|row| text(row, 0)) {
            let (path, name) = (self.opened.path.display(), shown(name));
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "table `{}` in `{path}` has trigger `{name}`, which can set back what keymill writes, and keymill makes none: stop every program that uses it, drop the trigger, and raise the row with `keymill repair` above every number that was issued, if you do not know what it did",
                    key.table
                ),
            ));
        }
        let columns =
            self.query("SELECT name, iif(pk > 0, 'pk', ''), type FROM pragma_table_info(?)", &of_table)?;
        let column = |row: &[ColumnValue]| text(row, 0).unwrap_or_default().to_owned();
        Ok(Some(Relation {
            columns: columns
                .iter()
                .map(|row| (column(row), text(row, 2).unwrap_or_default().to_owned()))
                .collect(),
            unique: columns
                .iter()
                .filter(|row| text(row, 1) == Some("pk"))
                .map(|row| ("pk".to_owned(), column(row)))
                .collect(),
            ..Relation::default()
        }))
    }

    fn has_table(&mut self, table: &str) -> Result<bool, Fault> {
        let is_there = "SELECT 1 FROM sqlite_schema WHERE name = ? COLLATE NOCASE AND type = 'table'";
        Ok(!self.query(is_there, &[table.into()])?.is_empty())
    }

    /// In a file that [`Connection::relation`] has found to be keymill's.
    fn adopt_table(&mut self, missing: Option<&str>) -> Result<(), Fault> {
        self.mark()?;
        missing.map_or(Ok(()), |statement| self.say(statement))
    }

    fn create(&mut self, key: &Key, statement: &str) -> Result<(), Fault> {
        self.begin()?;
        // Another process may have made a table of another shape, or another program's, meanwhile.
        let created = self.relation(key).and_then(|_| self.adopt_table(Some(statement)));
        match created {
            Ok(()) => self.commit(),
            Err(fault) => {
                self.roll_back();
                Err(fault)
            }
        }
    }

    fn location(&self) -> String {
        format!(" in `{}`", self.opened.path.display())
    }

    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault> {
        // As text, whatever the column is: a number would sort below every text, and of a blob bytes would be counted.
        let SerialKey { table, column, .. } = serial;
        let sql = format!(
            "SELECT number FROM (SELECT substr(CAST(\"{column}\" AS TEXT), ?2) AS number FROM \"{table}\" \
             WHERE CAST(\"{column}\" AS TEXT) >= ?1 AND substr(CAST(\"{column}\" AS TEXT), 1, ?2 - 1) = ?1) WHERE number NOT GLOB '*[^0-9]*' AND length(number) BETWEEN ?3 AND ?4 AND (length(number) = ?3 OR number NOT GLOB '0*') ORDER BY length(number) DESC, number DESC LIMIT 1"
        );
        let after = prefix.chars().count() as u64 + 1;
        let values =
            [prefix.into(), after.into(), (digits.shortest as u64).into(), (digits.longest as u64).into()];
        let found = self.query(&sql, &values)?;
        Ok(found.first().and_then(|row| text(row, 0)).map(str::to_owned))
    }
}

/// SQLite has no unsigned integer: 2^63 is kept as -2^63.
fn bound(value: &Value) -> Sqlite {
    match value {
        Value::Null => Sqlite::Null,
        Value::Number(number) => Sqlite::Integer(*number as i64),
        Value::Text(text) => Sqlite::Text(text.clone()),
    }
}

/// A row's columns, whatever they hold: SQLite keeps a text in a column of numbers.
fn cells(row: &rusqlite::Row<'_>) -> Vec<ColumnValue> {
    let cell = |at| match row.get_ref(at) {
        Ok(ValueRef::Integer(number)) => ColumnValue::Number(number.into()),
        Ok(ValueRef::Real(number)) => ColumnValue::Text(number.to_string()),
        Ok(ValueRef::Text(text)) => ColumnValue::Text(String::from_utf8_lossy(text).into_owned()),
        Ok(ValueRef::Blob(_)) => ColumnValue::Text("bytes".to_owned()),
        Ok(ValueRef::Null) | Err(_) => ColumnValue::Null,
    };
    (0..row.as_ref().column_count()).map(cell).collect()
}
