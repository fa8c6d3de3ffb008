//! Route tables in a database: a row for each, changed by compare-and-set of its version.

use crate::store::model::value::{ColumnValue, Value, number, text};
use crate::store::{Fault, FaultKind, Key, StoredTable};

use super::{Connection, rights, sql_listing, transaction};

/// Reads a table; its text only where its version is not `known`.
pub(super) fn read(
    connection: &mut dyn Connection,
    key: &Key,
    known: u64,
) -> Result<Option<StoredTable>, Fault> {
    let place = connection.place(key)?;
    let sql = format!("SELECT `version` FROM {place} WHERE `name` = ?");
    let found = connection.query(&sql, &[key.name.as_str().into()])?;
    let Some(row) = found.first() else { return Ok(None) };
    if number(row, 0) == Some(known) {
        return Ok(Some(StoredTable::new(known, None)));
    }
    // Both at once, so that they belong together.
    let sql = format!("SELECT `version`, `table_text` FROM {place} WHERE `name` = ?");
    let found = connection.query(&sql, &[key.name.as_str().into()])?;
    let Some(row) = found.first() else { return Ok(None) };
    decode(key, row).map(Some)
}

/// The table in a row of `version` and `table_text`.
fn decode(key: &Key, row: &[ColumnValue]) -> Result<StoredTable, Fault> {
    match (number(row, 0), text(row, 1)) {
        (Some(version), Some(text)) => Ok(StoredTable::new(version, Some(text.to_owned()))),
        _ => Err(Fault::new(
            FaultKind::Refused,
            format!(
                "its row in `{}` has no whole number in `version`, or no text in `table_text`; mend it: a `version` above every one that was stored, and the table as TOML or JSON",
                key.table
            ),
        )),
    }
}

/// Reads all tables. A row that cannot be read stands in the list with its fault. A database without `keymill_route` has none.
pub(super) fn list(connection: &mut dyn Connection, key: &Key) -> Result<Vec<(String, StoredTable)>, Fault> {
    let found = sql_listing::query_table(connection, key, rights::READ, |place| {
        format!("SELECT `version`, `table_text`, `name` FROM {place} ORDER BY `name`")
    })?;
    let stored = |row: &Vec<_>| {
        let table = decode(key, row).unwrap_or_else(|fault| StoredTable::unreadable(&fault));
        Some((text(row, 2)?.to_owned(), table))
    };
    Ok(found.iter().filter_map(stored).collect())
}

/// Replaces a table whose version is `old`, or adds one. `false`: it has another version by now, and nothing was changed.
pub(super) fn replace(
    connection: &mut dyn Connection,
    key: &Key,
    old: Option<u64>,
    (version, table_text): (u64, &str),
) -> Result<bool, Fault> {
    transaction::on_table(connection, key, |connection| {
        let place = connection.place(key)?;
        let name = Value::from(key.name.as_str());
        let sql = format!("SELECT `version` FROM {place} WHERE `name` = ?{}", connection.for_update());
        let found = connection.query(&sql, std::slice::from_ref(&name))?;
        if found.first().and_then(|row| number(row, 0)) != old {
            return Ok(Some(false));
        }
        if old == Some(version) {
            // MySQL counts a row only where something changes.
            return Ok(Some(true));
        }
        if let Some(old) = old {
            let sql = format!(
                "UPDATE {place} SET `version` = ?, `table_text` = ? WHERE `name` = ? AND `version` = ?"
            );
            let values = [version.into(), table_text.into(), name, old.into()];
            return Ok((connection.change(&sql, &values)? == 1).then_some(true));
        }
        let sql = format!("INSERT INTO {place} (`name`, `version`, `table_text`) VALUES (?, ?, ?)");
        let made = connection.change(&sql, &[name, version.into(), table_text.into()]);
        // Another process has just added it: the next attempt finds it.
        if made.is_err() && std::mem::take(&mut connection.state().duplicate) {
            return Ok(None);
        }
        Ok((made? == 1).then_some(true))
    })
}
