//! Lists of what a table has, for people.

use crate::request::scheme::{Family, Kept};
use crate::store::model::value::{ColumnValue, number, text};
use crate::store::{Fault, FaultKind, Key, ListedRow, Remedy};

use super::relation::check_table;
use super::{Connection, access, rights};

/// What to do where a table is refused that the catalogue does not show.
const UNSEEN: Remedy = Remedy::Text(
    "grant this user SELECT on the table to list its rows; without it the server does not say whether there is one",
);

/// Answers a query of a whole table, which `query` makes of the table's name. A database without the table answers with no row.
pub(super) fn query_table(
    connection: &mut dyn Connection,
    key: &Key,
    right: &'static str,
    query: impl FnOnce(&str) -> String,
) -> Result<Vec<Vec<ColumnValue>>, Fault> {
    connection.forget_tables();
    let is_seen = check_table(connection, key)?;
    // MySQL's catalogue shows no table to a user without rights on it: only reading it tells a refused table from a missing one.
    if !is_seen && connection.dialect().family() != Family::MySql {
        return Ok(Vec::new());
    }
    let sql = query(&connection.place(key)?);
    match access::bounded(connection, |connection| connection.query(&sql, &[])) {
        Err(fault) if fault.remedy() == Some(&Remedy::INIT) => Ok(Vec::new()),
        Err(fault) if fault.kind == FaultKind::Refused && !is_seen => Err(fault.instead(UNSEEN)),
        found => found.map_err(|fault| rights::advised(fault, right)),
    }
}

/// The rows of a table of sources, or the pools of a table of leased workers.
pub(super) fn list(connection: &mut dyn Connection, key: &Key, most: usize) -> Result<Vec<ListedRow>, Fault> {
    let is_pools = matches!(key.scheme.kept(), Kept::Worker);
    let found = query_table(connection, key, rights::READ, |place| {
        if is_pools {
            format!("SELECT DISTINCT `pool` FROM {place} ORDER BY `pool` LIMIT {most}")
        } else {
            // The names of banks have no `/` of their own: the other rows of a bank are left out.
            format!(
                "SELECT `name`, `date`, `next` FROM {place} WHERE `name` NOT LIKE 'business:%/%' ORDER BY `name` LIMIT {most}"
            )
        }
    })?;
    let listed = |row: &Vec<ColumnValue>| {
        Some(ListedRow {
            name: text(row, 0)?.to_owned(),
            date: number(row, 1).unwrap_or_default(),
            next: number(row, 2),
        })
    };
    Ok(found.iter().filter_map(listed).collect())
}
