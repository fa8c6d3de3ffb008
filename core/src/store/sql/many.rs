//! Many rows of keymill's own table in one transaction: the counters of a bank.
//!
//! A few statements for all of them: one reads and locks the rows, in the order of their names in every process; one makes the
//! missing ones; and one moves each group of rows that move equally far. So hundreds of counters take as many round trips as
//! one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::request::scheme::Family;
use crate::store::model::row_layout::RowLayout;
use crate::store::model::rows::StoredRow;
use crate::store::model::value::{ColumnValue, Value, text};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, RowsWork};

use super::{Connection, sql_rows};

/// A group of rows smaller than this is moved together with others.
const SMALLEST_GROUP: usize = 8;

/// How many groups have a statement of their own.
const MOST_GROUPS: usize = 3;

/// Reads these rows of one table under lock and writes what `work` decides, in one transaction.
pub(super) fn change(
    connection: &mut dyn Connection,
    keys: &[Arc<Key>],
    work: &mut RowsWork<'_>,
) -> Result<Vec<bool>, Fault> {
    let Some(first) = keys.first() else { return Ok(Vec::new()) };
    sql_rows::transact_on(connection, first, |connection| {
        let found = read(connection, keys, true)?;
        let mut changes = Vec::new();
        for (at, row) in found.into_iter().enumerate() {
            let before = row.as_ref().ok().copied().flatten();
            if let Some(after) = work.run(at, row)
                && Some(after) != before
            {
                changes.push((at, before, after));
            }
        }
        let written = write(connection, keys, &changes)?;
        Ok(written.then(|| vec![true; keys.len()]))
    })
}

/// A row as it was read; the fault of one whose columns make no sense.
type Read = Result<Option<Mark>, Fault>;

/// Reads these rows of one table, in the order of the keys.
pub(super) fn read(
    connection: &mut dyn Connection,
    keys: &[Arc<Key>],
    lock: bool,
) -> Result<Vec<Read>, Fault> {
    let Some(first) = keys.first() else { return Ok(Vec::new()) };
    // With many names a server may prefer to read the whole table, and would lock rows of other sources.
    let index = if connection.dialect().family() == Family::MySql { " FORCE INDEX (PRIMARY)" } else { "" };
    let sql = format!(
        "SELECT `name`, `period`, `next` FROM {}{index} WHERE `name` IN ({}) ORDER BY `name`{}",
        connection.place(first)?,
        marks(keys.len()),
        if lock { connection.for_update() } else { "" },
    );
    let names: Vec<Value> = keys.iter().map(|key| key.name.as_str().into()).collect();
    let mut found: BTreeMap<String, Vec<ColumnValue>> = BTreeMap::new();
    for row in connection.query(&sql, &names)? {
        if let Some(name) = text(&row, 0) {
            found.insert(name.to_owned(), row);
        }
    }
    let read = |key: &Arc<Key>| -> Read {
        let Some(row) = found.get(&key.name) else { return Ok(None) };
        match RowLayout::of(key).decode(row.get(1..).unwrap_or_default())? {
            StoredRow::Segment(mark) => Ok(Some(mark)),
            _ => Err(Fault::new(FaultKind::Refused, "its table is not of scheme `keymill`")),
        }
    };
    Ok(keys.iter().map(read).collect())
}

/// `?, ?, ?`
fn marks(count: usize) -> String {
    let mut marks = "?, ".repeat(count);
    marks.truncate(marks.len().saturating_sub(2));
    marks
}

/// A row's index, and where it stood and shall stand.
type RowChange = (usize, Option<Mark>, Mark);

/// Makes and moves rows that this transaction has locked. `false`: another transaction was faster.
fn write(connection: &mut dyn Connection, keys: &[Arc<Key>], changes: &[RowChange]) -> Result<bool, Fault> {
    let Some(first) = keys.first() else { return Ok(true) };
    let place = connection.place(first)?;
    let (layout, dialect) = (RowLayout::of(first), connection.dialect());
    let touched = layout.touched_on(dialect.family()).map(|(column, touched)| (column, dialect.now(touched)));
    let name = |at: usize| -> Value { keys.get(at).map_or("", |key| key.name.as_str()).into() };

    let missing: Vec<_> = changes.iter().filter(|(_, before, _)| before.is_none()).collect();
    if !missing.is_empty() {
        let (column, now) = touched.map_or((String::new(), String::new()), |(column, now)| {
            (format!(", `{column}`"), format!(", {now}"))
        });
        let one = format!("(?, ?, ?{now}), ");
        let rows = one.repeat(missing.len());
        let sql = format!(
            "INSERT INTO {place} (`name`, `period`, `next`{column}) VALUES {}",
            rows.trim_end_matches(", ")
        );
        let values: Vec<Value> = missing
            .iter()
            .flat_map(|(at, _, after)| [name(*at), after.period.into(), after.next.into()])
            .collect();
        match connection.change(&sql, &values) {
            Ok(made) if made == missing.len() as u64 => {}
            Ok(_) => return Ok(false),
            Err(_) if std::mem::take(&mut connection.state().duplicate) => return Ok(false),
            Err(fault) => return Err(fault),
        }
    }

    let set = touched.map_or(String::new(), |(column, now)| format!(", `{column}` = {now}"));
    // Rows that move equally far, to one period.
    let mut groups: BTreeMap<(u64, i128), Vec<&RowChange>> = BTreeMap::new();
    for change in changes {
        let (_, Some(before), after) = change else { continue };
        let distance = i128::from(after.next) - i128::from(before.next);
        // 2^63 is beyond a signed column: such a row is written with the others below.
        let distance = if after.next > MAX_NUMBER { i128::MAX } else { distance };
        groups.entry((after.period, distance)).or_default().push(change);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    let mut others: BTreeMap<u64, Vec<&RowChange>> = BTreeMap::new();
    for (at, ((period, distance), rows)) in groups.into_iter().enumerate() {
        let far = u64::try_from(distance.unsigned_abs());
        let Some(far) = far.ok().filter(|_| at < MOST_GROUPS && rows.len() >= SMALLEST_GROUP) else {
            others.entry(period).or_default().extend(rows);
            continue;
        };
        let sign = if distance < 0 { '-' } else { '+' };
        let sql = format!(
            "UPDATE {place} SET `period` = ?, `next` = `next` {sign} ?{set} WHERE `name` IN ({})",
            marks(rows.len())
        );
        let values: Vec<Value> =
            [period.into(), far.into()].into_iter().chain(rows.iter().map(|(at, ..)| name(*at))).collect();
        if connection.change(&sql, &values)? != rows.len() as u64 {
            return Ok(false);
        }
    }
    for (period, rows) in others {
        let sql = format!(
            "UPDATE {place} SET `period` = ?, `next` = CASE `name` {}ELSE `next` END{set} WHERE `name` IN ({})",
            "WHEN ? THEN ? ".repeat(rows.len()),
            marks(rows.len())
        );
        let each = rows.iter().flat_map(|(at, _, after)| [name(*at), after.next.into()]);
        let values: Vec<Value> =
            std::iter::once(period.into()).chain(each).chain(rows.iter().map(|(at, ..)| name(*at))).collect();
        if connection.change(&sql, &values)? != rows.len() as u64 {
            return Ok(false);
        }
    }
    Ok(true)
}
