//! Many rows of keymill's own table in one transaction: the counters of a bank.
//!
//! A few statements for all of them: one reads and locks the rows; one makes the missing ones; and one moves each group of rows
//! that move equally far. So hundreds of counters take as many round trips as one.
//!
//! Both statements that can wait for other transactions take the rows in the order of their names, in every process. So two
//! processes that begin the same counters wait for each other's commit at most, and never in a circle.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use crate::request::scheme::Family;
use crate::store::model::row_layout::RowLayout;
use crate::store::model::rows::{StoredRow, is_identifier};
use crate::store::model::value::{ColumnValue, Value, text};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Partition, RowMark, RowStatus, RowsWork};

use super::{Connection, transaction};

/// A group of rows smaller than this is moved together with others.
const SMALLEST_GROUP: usize = 8;

/// How many groups have a statement of their own.
const MOST_GROUPS: usize = 3;

/// How often rows are inserted, less those that another process was faster to make.
const MOST_INSERTS: usize = 4;

/// Reads these rows of one table under lock and writes what `work` decides, in one transaction.
pub(super) fn change(
    connection: &mut dyn Connection,
    keys: &[Arc<Key>],
    work: &mut RowsWork<'_>,
) -> Result<Vec<bool>, Fault> {
    let Some(first) = keys.first() else { return Ok(Vec::new()) };
    transaction::on_table(connection, first, |connection| {
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
        changes.sort_unstable_by_key(|&(at, ..)| keys.get(at).map(|key| key.name.as_str()));
        let Some(lost) = write(connection, keys, &changes)? else { return Ok(None) };
        check_written(connection, keys, changes.iter().filter(|(at, ..)| !lost.contains(at)))?;
        Ok(Some((0..keys.len()).map(|at| !lost.contains(&at)).collect()))
    })
}

/// A row as it was read; the fault of one whose columns make no sense.
type Read = Result<Option<RowMark>, Fault>;

/// Reads what was written, before the commit: the number of changed rows does not say that each stands where it shall. A trigger may have
/// changed it.
fn check_written<'c>(
    connection: &mut dyn Connection,
    keys: &[Arc<Key>],
    changes: impl Iterator<Item = &'c RowChange>,
) -> Result<(), Fault> {
    let (changed, after): (Vec<_>, Vec<_>) =
        changes.filter_map(|(at, _, after)| Some((Arc::clone(keys.get(*at)?), *after))).unzip();
    let found = read(connection, &changed, false)?;
    match changed.iter().zip(&after).zip(found).find(|((_, after), row)| *row != Ok(Some(**after))) {
        None => Ok(()),
        Some(((key, after), _)) => Err(Fault::new(
            FaultKind::Refused,
            format!(
                "its table did not keep row `{}` as it was written, at {}: a trigger changed it; nothing was changed",
                key.name, after.mark.next
            ),
        )),
    }
}

/// Reads these rows of one table, in the order of the keys.
pub(super) fn read(
    connection: &mut dyn Connection,
    keys: &[Arc<Key>],
    lock: bool,
) -> Result<Vec<Read>, Fault> {
    let Some(first) = keys.first() else { return Ok(Vec::new()) };
    let columns: Vec<_> = RowLayout::of(first).content().iter().map(|column| format!("`{column}`")).collect();
    let sql = format!(
        "SELECT `name`, {} FROM {} WHERE `name` IN ({}) ORDER BY `name`{}",
        columns.join(", "),
        place_by_name(connection, first)?,
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
        let Some(row) = found.get(key.name.as_str()) else { return Ok(None) };
        match RowLayout::of(key).decode(row.get(1..).unwrap_or_default())? {
            StoredRow::Segment(row) => Ok(Some(row)),
            _ => Err(Fault::new(FaultKind::Refused, "its table is not of scheme `keymill`")),
        }
    };
    Ok(keys.iter().map(read).collect())
}

/// The table of a key, whose rows are found by the index of its unique key. With many names MySQL may prefer to read the whole
/// table, and would lock rows of other sources.
fn place_by_name(connection: &mut dyn Connection, key: &Key) -> Result<String, Fault> {
    let mut place = connection.place(key)?;
    if connection.dialect().family() == Family::MySql
        && let Some(index) = connection.state().unique.get(&key.place())
        && is_identifier(index)
    {
        place.push_str(&format!(" FORCE INDEX (`{index}`)"));
    }
    Ok(place)
}

/// `?, ?, ?`
fn marks(count: usize) -> String {
    let mut marks = "?, ".repeat(count);
    marks.truncate(marks.len().saturating_sub(2));
    marks
}

/// What one statement sets in all its rows: period, status and writer.
type SetAlike = (u64, RowStatus, u64);

/// A row's index, and where it stood and shall stand.
type RowChange = (usize, Option<RowMark>, RowMark);

/// Makes rows and moves those that this transaction has locked, in the order of `changes`. Answers with the rows that another
/// transaction was faster to make; `None`: it was faster, and this transaction begins again.
fn write(
    connection: &mut dyn Connection,
    keys: &[Arc<Key>],
    changes: &[RowChange],
) -> Result<Option<HashSet<usize>>, Fault> {
    let Some(first) = keys.first() else { return Ok(Some(HashSet::new())) };
    let missing = changes.iter().filter(|(_, before, _)| before.is_none()).collect();
    let Some(lost) = make(connection, keys, missing)? else { return Ok(None) };
    let (layout, dialect) = (RowLayout::of(first), connection.dialect());
    let touched = layout.touched_on(dialect.family()).map(|(column, touched)| (column, dialect.now(touched)));
    let name = |at: usize| -> Value { keys.get(at).map_or("", |key| key.name.as_str()).into() };

    let place = place_by_name(connection, first)?;
    let set = touched.map_or(String::new(), |(column, now)| format!(", `{column}` = {now}"));
    // Rows that move equally far, to one period, status and writer.
    let mut groups: BTreeMap<(SetAlike, i128), Vec<&RowChange>> = BTreeMap::new();
    for change in changes {
        let (_, Some(before), after) = change else { continue };
        let distance = i128::from(after.mark.next) - i128::from(before.mark.next);
        // 2^63 is beyond a signed column: such a row is written with the others below.
        let distance = if after.mark.next > MAX_NUMBER { i128::MAX } else { distance };
        groups.entry(((after.mark.period, after.status, after.writer), distance)).or_default().push(change);
    }
    // The assignments of all columns but the position, with their values.
    let others_of = |row: RowMark| -> (String, Vec<Value>) {
        let mut columns = layout.encode(&StoredRow::Segment(row));
        columns.retain(|(column, _)| *column != layout.position());
        columns.into_iter().map(|(column, value)| (format!("`{column}` = ?, "), value)).unzip()
    };
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, rows)| std::cmp::Reverse(rows.len()));
    let mut others: BTreeMap<SetAlike, Vec<&RowChange>> = BTreeMap::new();
    for (at, ((kind, distance), rows)) in groups.into_iter().enumerate() {
        let far = u64::try_from(distance.unsigned_abs());
        let Some(far) = far.ok().filter(|_| at < MOST_GROUPS && rows.len() >= SMALLEST_GROUP) else {
            others.entry(kind).or_default().extend(rows);
            continue;
        };
        let sign = if distance < 0 { '-' } else { '+' };
        let (assigned, mut values) = rows.first().map(|(.., after)| others_of(*after)).unwrap_or_default();
        let sql = format!(
            "UPDATE {place} SET {assigned}`next` = `next` {sign} ?{set} WHERE `name` IN ({})",
            marks(rows.len())
        );
        values.push(far.into());
        values.extend(rows.iter().map(|(at, ..)| name(*at)));
        if connection.change(&sql, &values)? != rows.len() as u64 {
            return Ok(None);
        }
    }
    for rows in others.into_values() {
        let (assigned, mut values) = rows.first().map(|(.., after)| others_of(*after)).unwrap_or_default();
        let sql = format!(
            "UPDATE {place} SET {assigned}`next` = CASE `name` {}ELSE `next` END{set} WHERE `name` IN ({})",
            "WHEN ? THEN ? ".repeat(rows.len()),
            marks(rows.len())
        );
        values.extend(rows.iter().flat_map(|(at, _, after)| [name(*at), after.mark.next.into()]));
        values.extend(rows.iter().map(|(at, ..)| name(*at)));
        if connection.change(&sql, &values)? != rows.len() as u64 {
            return Ok(None);
        }
    }
    Ok(Some(lost))
}

/// Makes rows that were missing. One row that another process was faster to make fails none of the others: a transaction that began
/// again for it would meet the next one, and with a few processes hardly end. Answers as [`write`].
fn make(
    connection: &mut dyn Connection,
    keys: &[Arc<Key>],
    mut missing: Vec<&RowChange>,
) -> Result<Option<HashSet<usize>>, Fault> {
    let mut lost = HashSet::new();
    let Some(first) = keys.first() else { return Ok(Some(lost)) };
    let (place, layout, dialect) = (connection.place(first)?, RowLayout::of(first), connection.dialect());
    let touched = layout.touched_on(dialect.family()).map(|(column, touched)| (column, dialect.now(touched)));
    let (column, now) = touched.map_or((String::new(), String::new()), |(column, now)| {
        (format!(", `{column}`"), format!(", {now}"))
    });
    // Its status is the same in almost every row, and written out: hundreds of values less.
    let one = |RowMark { status, writer, .. }: RowMark| {
        let [stores, store, chunk] = Partition::columns(status.partition);
        format!("(?, ?, ?, '{}', {stores}, {store}, {chunk}, {writer}{now})", status.state.word())
    };
    let name_at = |at: usize| keys.get(at).map_or("", |key| key.name.as_str());
    for _ in 0..MOST_INSERTS {
        if missing.is_empty() {
            return Ok(Some(lost));
        }
        let rows: Vec<_> = missing.iter().map(|(.., after)| one(*after)).collect();
        let sql = format!(
            "INSERT INTO {place} (`name`, `date`, `next`, `state`, `stores`, `store`, `chunk`, `writer`{column}) VALUES {}",
            rows.join(", ")
        );
        let values: Vec<Value> = missing
            .iter()
            .flat_map(|(at, _, after)| {
                [name_at(*at).into(), after.mark.period.into(), after.mark.next.into()]
            })
            .collect();
        if let Some(made) = connection.make_some(&sql, &values)? {
            let mut made: HashSet<&str> = made.iter().filter_map(|row| text(row, 0)).collect();
            lost.extend(missing.iter().map(|(at, ..)| *at).filter(|at| !made.remove(name_at(*at))));
            return Ok(Some(lost));
        }
        match connection.change(&sql, &values) {
            Ok(made) if made == missing.len() as u64 => return Ok(Some(lost)),
            Ok(_) => return Ok(None),
            Err(_) if std::mem::take(&mut connection.state().duplicate) => {}
            Err(fault) => return Err(fault),
        }
        // The statement alone was undone. The rows that were in its way are committed.
        let of_missing: Vec<_> = missing.iter().filter_map(|(at, ..)| keys.get(*at).cloned()).collect();
        let found = read(connection, &of_missing, false)?;
        let (there, gone): (Vec<_>, Vec<_>) =
            missing.into_iter().zip(found).partition(|(_, row)| !matches!(row, Ok(None)));
        if there.is_empty() {
            return Ok(None);
        }
        lost.extend(there.into_iter().map(|((at, ..), _)| *at));
        missing = gone.into_iter().map(|(change, _)| change).collect();
    }
    lost.extend(missing.into_iter().map(|(at, ..)| *at));
    Ok(Some(lost))
}
