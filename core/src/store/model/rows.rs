//! The verbs of [`Store`](crate::store::Store), written once over "read a row, write a row under its lock". Every store brings
//! its own [`Rows`]; `Store::transact` opens a transaction around one function of this file.
//!
//! `key_producer` keeps a text where `keymill_segment` keeps numbers; that difference ends here ([`mark_of`],
//! [`stored_at`]). The text is the date part and the padded number of the highest serial reserved, so the next number is
//! one more. `INIT` means that there is none yet. KeyFactory writes neither NULL nor the empty text, and issues nothing
//! when it finds NULL. The serials before such a row are unknown, so it is refused and does not begin at 1.

use super::counter::{Counter, CounterRow};
use super::decide::{decide, judged, misplaced, place};
use super::period_clock;
use super::sequence_value;
use crate::error::shown;
use crate::request::scheme::Kept;
use crate::store::{
    Fault, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Partition, Remedy, Request, Reserved, Row, RowMark,
    RowState, RowStatus, Scheme, SerialKey,
};

/// A row as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoredRow {
    /// `keymill_segment`: period and next number, state and partition.
    Segment(RowMark),
    /// `key_producer`: `MAXSERIALNO`, NULL included.
    Serial(Option<String>),
    /// Another program's counter.
    Counter(CounterRow),
}

impl StoredRow {
    /// The row after `old` was moved here: its step and the columns that keymill does not use stay.
    pub(crate) fn after(self, old: Option<&StoredRow>) -> StoredRow {
        match (self, old) {
            (StoredRow::Counter(new), Some(StoredRow::Counter(old))) => {
                StoredRow::Counter(CounterRow { maximum: new.maximum, version: old.version + 1, ..*old })
            }
            (new, _) => new,
        }
    }
}

/// Rows inside one open transaction.
pub(crate) trait Rows {
    /// The row of this key, locked until the transaction ends if `lock`.
    fn read(&mut self, key: &Key, lock: bool) -> Result<Option<StoredRow>, Fault>;

    /// Creates the row. `false`: another transaction has created it; roll back and begin again.
    fn insert(&mut self, key: &Key, new: &StoredRow) -> Result<bool, Fault>;

    /// Compare-and-set. `false`: the row is no longer `old`; roll back and begin again.
    fn replace(&mut self, key: &Key, old: &StoredRow, new: &StoredRow) -> Result<bool, Fault>;

    /// The store's clock, milliseconds since 1970. An earlier answer will do if it is at least `enough_ms`. `None`: the store has no
    /// clock of its own, or this login may not read it.
    fn clock_ms(&mut self, enough_ms: u64) -> Result<Option<u64>, Fault>;

    /// Of the business column's texts that are `prefix` followed by digits only, the digits of the numerically largest.
    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault>;

    /// The source that a row was imported into: what follows `record`, which ends with `>`, in the first name of this key's
    /// table that begins with it.
    fn new_owner(&mut self, key: &Key, record: &str) -> Result<Option<String>, Fault>;
}

/// How many digits a serial's number may have: `shortest` when padded, `longest` when widened.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "_sql"), allow(dead_code))] // only databases have business tables
pub(crate) struct Digits {
    pub(crate) shortest: usize,
    pub(crate) longest: usize,
}

/// Checks a table's name, which stands in SQL as it is, so it must be an identifier.
#[cfg(any(feature = "_sql", feature = "_server"))]
pub(crate) fn check_table_name(table: &str) -> Result<(), Fault> {
    if is_identifier(table) {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!("`{table}` is no table name: an identifier [A-Za-z_][A-Za-z0-9_$]* of at most 64 is needed"),
    ))
}

/// Reserves; `None` if another transaction changed the row meanwhile, and this one has to begin again.
pub(crate) fn reserve(rows: &mut dyn Rows, request: &Request) -> Result<Option<Reserved>, Fault> {
    let key = &request.key;
    let stored = rows.read(key, true)?;
    let row = stored.as_ref().map_or(Ok(None), |stored| row_mark_of(key, stored))?;
    if let Some(counter) = Counter::of(key) {
        return reserve_counter(rows, request, &counter, stored.as_ref(), row);
    }
    // For a process that has seen numbers, such a row went backwards; `decide` reports it.
    if request.high_water == Mark::default() {
        not_blank(key, stored.as_ref())?;
    }
    let mut reserved = match decide(row, request) {
        Err(fault) if fault.kind == FaultKind::ClockBehind => {
            let stands = row.map_or_else(Mark::default, |row| row.mark);
            return Err(period_clock::behind(rows, request, stands, fault)?);
        }
        decided => decided?,
    };
    if row.is_none_or(|row| row.mark.period != reserved.period) {
        period_clock::check_begin(rows, request, reserved.period)?;
    }
    if row.is_none()
        && let Some(serial) = key.serial.as_ref().filter(|serial| serial.init_max)
    {
        let period = period_clock::period_of_new_row(rows, request, reserved.period)?;
        let largest = after_largest(rows, serial, period, request.last)?;
        let next = largest.map_or(reserved.lo, |next| next.max(reserved.lo));
        if (period, next) != (reserved.period, reserved.lo) {
            reserved = decide(Some(key.row_at(Mark { period, next })), request)?;
        }
    }
    let ends = key.row_at(Mark { period: reserved.period, next: reserved.hi });
    let new = stored_as(key, ends.by(request.writer))?;
    Ok(write(rows, key, stored.as_ref(), &new)?.then_some(reserved))
}

/// Refuses a row of `key_producer` that does not say whether serials were issued.
pub(crate) fn not_blank(key: &Key, stored: Option<&StoredRow>) -> Result<(), Fault> {
    let found = match stored {
        Some(StoredRow::Serial(None)) => "NULL",
        Some(StoredRow::Serial(Some(text))) if text.is_empty() => "an empty text",
        _ => return Ok(()),
    };
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "its row in `{}` holds {found} in `{}`: stop every program that uses it, then set it to the highest serial that was ever issued, or to INIT where there was none; nothing was changed",
            key.table,
            key.columns.own("MAXSERIALNO")
        ),
    ))
}

/// Reserves from another program's counter: the row itself limits how many numbers are taken and how long they live.
fn reserve_counter(
    rows: &mut dyn Rows,
    request: &Request,
    counter: &Counter<'_>,
    stored: Option<&StoredRow>,
    row_mark: Option<RowMark>,
) -> Result<Option<Reserved>, Fault> {
    let row = match stored {
        Some(StoredRow::Counter(row)) => *row,
        _ => counter.row_at(Mark { period: 0, next: request.start }, request.key.step)?,
    };
    let fitted = counter.fitted(request, &row);
    let mut reserved = decide(row_mark, &fitted)?;
    // Where no row was ever seen no other program has numbers.
    if counter.apart() > 0 && (stored.is_some() || request.high_water != Mark::default()) {
        let apart = Mark { period: 0, next: reserved.lo + counter.apart() };
        reserved = decide(Some(request.key.row_at(apart)), &fitted)?;
    }
    let reserved = Reserved { ttl_ms: Counter::ttl_ms(&row), ..reserved };
    let moved = counter.row_at(Mark { period: reserved.period, next: reserved.hi }, 1)?;
    let new = CounterRow { maximum: moved.maximum, ..row };
    Ok(write(rows, &request.key, stored, &StoredRow::Counter(new))?.then_some(reserved))
}

/// Returns the range; `false` if the row is no longer as its reservation left it.
pub(crate) fn give_back(rows: &mut dyn Rows, range: &GiveBack) -> Result<bool, Fault> {
    let key = &range.key;
    let Some(stored) = rows.read(key, true)? else { return Ok(false) };
    // Other programs' tables have no column for the writer.
    let writer = if matches!(stored, StoredRow::Segment(_)) { range.writer } else { 0 };
    let ends = range.end().by(writer);
    if !range.has_numbers() || row_mark_of(key, &stored)? != Some(ends) {
        return Ok(false);
    }
    rows.replace(key, &stored, &stored_as(key, range.begin())?)
}

/// Raises a mark; `None` if another transaction changed the row meanwhile.
pub(crate) fn raise(
    rows: &mut dyn Rows,
    key: &Key,
    expect: Option<u64>,
    to: u64,
) -> Result<Option<u64>, Fault> {
    if key.scheme != Scheme::Keymill {
        let scheme = key.scheme.name();
        return Err(Fault::new(
            FaultKind::Refused,
            format!("scheme `{scheme}` keeps no marks of snowflakes; use `scheme=keymill`"),
        ));
    }
    let stored = rows.read(key, true)?;
    let found = stored.as_ref().map_or(Ok(None), |stored| row_mark_of(key, stored))?;
    if let Some(found) = found.filter(|found| found.status.partition != key.partition) {
        return Err(misplaced(key, found.status));
    }
    let before = found.map_or(0, |found| found.mark.next);
    if let Some(expect) = expect
        && expect != before
    {
        if stored.is_none() {
            let gone = format!(
                "its row is gone, and stood at {expect}: it was deleted, or a backup was restored; `keymill repair` it to a time above every id"
            );
            return Err(Fault::new(FaultKind::Taken, gone));
        }
        return Err(Fault::new(
            FaultKind::Taken,
            format!(
                "its row stands at {before}, not at {expect}: another process makes ids with this worker number, or `repair` raised it; give each process a number of its own, or leave out `worker=`, so that each leases one"
            ),
        ));
    }
    let row = found.unwrap_or_else(|| key.row_at(Mark::default()));
    // Also where the mark stands as expected: a lease that has taken the worker over does not ask the process that had it.
    if row.status.state != RowState::Open {
        return Err(Fault::new(
            FaultKind::Taken,
            "this worker is leased by now, or begun anew: give each process a worker of its own, or leave out `worker=`, so that each leases one",
        ));
    }
    if to <= before {
        return Ok(Some(before));
    }
    let new = stored_as(key, row.at(to))?;
    Ok(write(rows, key, stored.as_ref(), &new)?.then_some(before))
}

/// Raises a row to an operator's number; `None` if another transaction changed the row meanwhile.
pub(crate) fn repair(rows: &mut dyn Rows, key: &Key, to: Mark) -> Result<Option<(Option<Row>, Row)>, Fault> {
    if to.next == 0 {
        return Err(Fault::new(FaultKind::Refused, "numbers begin at 1, so 0 cannot be the next one"));
    }
    let stored = rows.read(key, true)?;
    let before = stored.as_ref().map(|stored| row_of(key, stored)).transpose()?;
    let after = repaired(key, before.as_ref(), to)?;
    let new = if stored.is_some() { stored_at(key, to)? } else { new_at(key, to)? };
    let stands = stored.as_ref().map_or(Ok(None), |stored| row_mark_of(key, stored))?;
    if stands == Some(key.row_at(to)) || write(rows, key, stored.as_ref(), &new)? {
        return Ok(Some((before, after)));
    }
    Ok(None)
}

/// Sets a row back to an operator's number in an earlier period, if its own period is later than `latest`: the only way in which a row goes
/// back. `None` as in [`repair`].
pub(crate) fn set_back(
    rows: &mut dyn Rows,
    key: &Key,
    to: Mark,
    latest: u64,
) -> Result<Option<(Option<Row>, Row)>, Fault> {
    let stored = rows.read(key, true)?;
    let stands = stored.as_ref().map_or(Ok(None), |stored| mark_of(key, stored))?.unwrap_or_default();
    period_clock::check_set_back(key, stands, to, latest)?;
    let before = stored.as_ref().map(|stored| row_of(key, stored)).transpose()?;
    let after = moved(key, before.as_ref(), to)?;
    Ok(write(rows, key, stored.as_ref(), &stored_at(key, to)?)?.then_some((before, after)))
}

/// The row that `repair` would leave for `before`.
pub(crate) fn repaired(key: &Key, before: Option<&Row>, to: Mark) -> Result<Row, Fault> {
    // One of several stores takes over a row that one store has begun.
    let adopts = |row: &Row| key.partition.is_some() && row.status == RowStatus::default();
    match before {
        Some(row) if adopts(row) => {}
        Some(row) if row.status != key.open() => return Err(misplaced(key, row.status)),
        before => not_lower(before, to)?,
    }
    // Nothing is written then.
    if let Some(row) = before.filter(|row| row.row_mark() == key.row_at(to)) {
        return Ok(row.clone());
    }
    // One above the last number: all of them are reserved.
    if let Some(last) = Counter::of(key).map(|counter| counter.last()).filter(|last| to.next > *last + 1) {
        let table = &key.table;
        return Err(Fault::new(
            FaultKind::Refused,
            format!("{} cannot be the next number: the last one of a row in `{table}` is {last}", to.next),
        ));
    }
    moved(key, before, to)
}

/// The row `before`, moved to `to`: its other columns stay.
pub(crate) fn moved(key: &Key, before: Option<&Row>, to: Mark) -> Result<Row, Fault> {
    if let (true, Some(row)) = (key.scheme.is_shared_sequence(), before) {
        return Ok(sequence_value::moved(key, row, to));
    }
    if key.scheme.is_ticket() {
        // Whole tickets: the next number follows the first ticket that ends at or above `to`.
        let ticket = to.next.saturating_sub(1).div_ceil(key.step);
        return Ok(ticket_row(key, ticket));
    }
    match (Counter::of(key), before.and_then(|before| before.counter)) {
        (Some(counter), Some(before)) => row_of(key, &StoredRow::Counter(counter.moved(&before, to)?)),
        _ => row_of(key, &new_at(key, to)?),
    }
}

/// The row of a scheme whose counter the server increments, after this many increments.
pub(crate) fn ticket_row(key: &Key, ticket: u64) -> Row {
    let next = ticket.saturating_mul(key.step).saturating_add(1).min(MAX_NUMBER + 1);
    let text = match key.scheme.kept() {
        Kept::Sequence => format!("next value={next}"),
        _ => format!("id={ticket} step={}", key.step),
    };
    Row::at(next, text)
}

/// The step in this row, if its table has a column for it.
pub(crate) fn step_of(key: &Key, row: &Row) -> Option<u64> {
    Counter::of(key)?.step().and(row.counter).map(|counter| counter.step)
}

/// Refuses to lower a row.
pub(crate) fn not_lower(before: Option<&Row>, to: Mark) -> Result<(), Fault> {
    if let Some(row) = before
        && row.mark > to
    {
        return Err(Fault::new(
            FaultKind::Refused,
            format!(
                "its row stands at {}, above {}, and repair never lowers a row; a program that runs may return numbers to it when it ends, so stop every program that uses it, then repair it again",
                place(row.mark),
                place(to)
            ),
        ));
    }
    Ok(())
}

/// Reads a row for display.
pub(crate) fn look(rows: &mut dyn Rows, key: &Key) -> Result<Option<Row>, Fault> {
    rows.read(key, false)?.map(|stored| row_of(key, &stored)).transpose()
}

fn write(rows: &mut dyn Rows, key: &Key, old: Option<&StoredRow>, new: &StoredRow) -> Result<bool, Fault> {
    match old {
        None => rows.insert(key, new),
        Some(old) => rows.replace(key, old, new),
    }
}

/// The number after the largest serial of this period in the business table.
fn after_largest(
    rows: &mut dyn Rows,
    serial: &SerialKey,
    period: u64,
    last: u64,
) -> Result<Option<u64>, Fault> {
    for name in [&serial.table, &serial.column] {
        if !is_identifier(name) {
            return Err(Fault::new(
                FaultKind::Refused,
                format!(
                    "`init=max` reads `{name}`, which is not an identifier ([A-Za-z_][A-Za-z0-9_$]*, at most 64)"
                ),
            ));
        }
    }
    let shortest = serial.pattern.width() as usize;
    let digits = Digits { shortest, longest: shortest.max(last.to_string().len()) };
    let prefix = serial.pattern.prefix(period);
    let Some(found) = rows.largest(serial, prefix.as_str(), digits)? else { return Ok(None) };
    match found.parse::<u64>() {
        Ok(number) if number <= MAX_NUMBER => Ok(Some(number + 1)),
        _ => Err(Fault::new(
            FaultKind::Refused,
            format!(
                "`{}`.`{}` holds `{}{}`, a number beyond 2^63-1; nothing was changed",
                serial.table,
                serial.column,
                prefix.as_str(),
                shown(&found)
            ),
        )),
    }
}

/// Whether a name may stand in SQL between quotes: `[A-Za-z_][A-Za-z0-9_$]{0,63}`.
pub(crate) fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'$')
        && name.len() <= 64
}

/// The serial's part of a `key_producer` key.
pub(crate) fn serial_of(key: &Key) -> Result<&SerialKey, Fault> {
    key.serial.as_ref().ok_or_else(|| {
        Fault::new(
            FaultKind::Refused,
            "scheme `key_producer` keeps serial numbers only; use `scheme=keymill`",
        )
    })
}

/// Refuses a text that a column of three-byte utf8 cannot hold, as most authors made them. The server would cut a wider
/// character, or scan the whole table without finding the row.
pub(crate) fn check_three_bytes(key: &Key, text: &str) -> Result<(), Fault> {
    let Some(wide) = text.chars().find(|c| *c > '\u{ffff}') else { return Ok(()) };
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "`{wide}` cannot be kept in `{}`, whose text is three-byte utf8; use `scheme=keymill`",
            key.table
        ),
    ))
}

/// What identifies a row of `key_producer`: names upper-cased as Java's `toUpperCase` does, patterns as they are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ProducerKey {
    pub(crate) table: String,
    pub(crate) column: String,
    pub(crate) date: String,
    pub(crate) number: String,
}

impl ProducerKey {
    /// The row's key, checked against the table's widths: a server without strict mode would cut it silently, and two
    /// sources would share a row.
    pub(crate) fn new(serial: &SerialKey) -> Result<ProducerKey, Fault> {
        let key = ProducerKey {
            table: serial.table.to_uppercase(),
            column: serial.column.to_uppercase(),
            date: serial.pattern.date_pattern().to_owned(),
            number: serial.pattern.number_pattern().to_owned(),
        };
        let parts = [
            ("TABLENAME", &key.table, 80),
            ("COLUMNNAME", &key.column, 80),
            ("DATEFMT", &key.date, 20),
            ("NOFMT", &key.number, 20),
        ];
        for (column, text, most) in parts {
            if text.chars().count() > most {
                return Err(Fault::new(
                    FaultKind::Refused,
                    format!(
                        "`{text}` is longer than the {most} characters of `{column}`; use `scheme=keymill`"
                    ),
                ));
            }
        }
        Ok(key)
    }
}

/// The mark of a stored row that is open and of the key's partition; refuses any other. `None` as in [`row_mark_of`].
pub(crate) fn mark_of(key: &Key, stored: &StoredRow) -> Result<Option<Mark>, Fault> {
    row_mark_of(key, stored)?.map(|row| judged(key, row)).transpose()
}

/// Where a stored row stands; `None` if it does not say: `INIT`, and the values that [`not_blank`] refuses.
pub(crate) fn row_mark_of(key: &Key, stored: &StoredRow) -> Result<Option<RowMark>, Fault> {
    let text = match stored {
        StoredRow::Segment(row) => return Ok(Some(*row)),
        StoredRow::Counter(row) => {
            let Some(counter) = Counter::of(key) else { return Ok(None) };
            counter.check_stride(row)?;
            return Ok(Some(key.row_at(counter.mark(row))));
        }
        StoredRow::Serial(text) => text.as_deref().unwrap_or_default(),
    };
    if text.is_empty() || text == "INIT" {
        return Ok(None);
    }
    let pattern = &serial_of(key)?.pattern;
    match pattern.split(text) {
        Some((period, number)) if number <= MAX_NUMBER => {
            Ok(Some(key.row_at(Mark { period, next: number + 1 })))
        }
        _ => Err(Fault::new(
            FaultKind::Refused,
            format!(
                "its row in `{}` holds `{}`, which is no serial number of date pattern `{}` and number pattern `{}`; give the source the patterns that it was written with, or stop every program that uses it, then mend the row; nothing was changed",
                key.table,
                shown(text),
                pattern.date_pattern(),
                pattern.number_pattern()
            ),
        )),
    }
}

/// Encodes an open row of a key at a mark.
pub(crate) fn stored_at(key: &Key, mark: Mark) -> Result<StoredRow, Fault> {
    stored_as(key, key.row_at(mark))
}

/// Encodes where a row stands. Other programs' tables have no columns for its status.
pub(crate) fn stored_as(key: &Key, row: RowMark) -> Result<StoredRow, Fault> {
    let mark = row.mark;
    if mark.next > MAX_NUMBER + 1 || mark.period > MAX_NUMBER {
        let beyond = if mark.period > MAX_NUMBER { mark.period } else { mark.next };
        return Err(Fault::new(FaultKind::Refused, format!("{beyond} is beyond 2^63-1")));
    }
    if let Some(counter) = Counter::of(key) {
        // A step of 1 rounds nothing; an existing row keeps its own.
        return counter.row_at(mark, 1).map(StoredRow::Counter);
    }
    if !matches!(key.scheme.kept(), Kept::Serial) {
        return Ok(StoredRow::Segment(row));
    }
    let pattern = &serial_of(key)?.pattern;
    let number = mark.next.saturating_sub(1);
    let text = pattern.text(mark.period, number);
    // A text that reads back differently would move the next reservation elsewhere.
    if pattern.split(&text) != Some((mark.period, number)) || text.len() > 80 {
        return Err(Fault::new(
            FaultKind::Refused,
            format!("`{text}` cannot be kept in `MAXSERIALNO`: it does not read back, or is longer than 80"),
        ));
    }
    Ok(StoredRow::Serial(Some(text)))
}

/// A new row at a position, with the step of its key if the table keeps one.
fn new_at(key: &Key, mark: Mark) -> Result<StoredRow, Fault> {
    match Counter::of(key) {
        Some(counter) => counter.row_at(mark, key.step).map(StoredRow::Counter),
        None => stored_at(key, mark),
    }
}

/// A stored row, with its text for display.
pub(crate) fn row_of(key: &Key, stored: &StoredRow) -> Result<Row, Fault> {
    let row = row_mark_of(key, stored)?.unwrap_or_else(|| key.row_at(Mark::default()));
    let mut counter = None;
    let text = match stored {
        StoredRow::Segment(row) => segment_text(*row),
        StoredRow::Serial(Some(text)) => format!("{}={text}", key.columns.own("MAXSERIALNO")),
        StoredRow::Serial(None) => format!("{} is NULL", key.columns.own("MAXSERIALNO")),
        StoredRow::Counter(row) => {
            counter = Some(*row);
            Counter::of(key).map_or_else(String::new, |counter| counter.describe(row))
        }
    };
    Ok(Row { mark: row.mark, status: row.status, writer: row.writer, text, counter })
}

/// The columns of a row of `keymill_segment`, but for those that say nothing.
pub(crate) fn segment_text(row: RowMark) -> String {
    let Mark { period, next } = row.mark;
    let mut text = String::new();
    if period != 0 {
        text.push_str(&format!("date={period} "));
    }
    text.push_str(&format!("next={next}"));
    if row.status.state != RowState::Open {
        text.push_str(&format!(" state={}", row.status.state.word()));
    }
    if let Some(partition) = row.status.partition {
        text.push_str(&format!(", {partition}"));
    }
    text
}

/// Why a table, or a row of Redis, is refused that an earlier build made. `found`: how that is known.
#[cfg(any(feature = "_sql", feature = "redis"))]
pub(crate) fn of_earlier_build(place: &str, found: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "{place} was made by an earlier build of keymill ({found}); nothing was changed. Stop every program that uses it, of this build too, and start none before the last step: note where each source stands with `keymill status SOURCE` of that build, rename it, run `keymill init SOURCE` and, for each source, `keymill repair SOURCE --to N --yes` with N above every id that was ever issued"
        ),
    )
}

/// The state that this word of a row says.
#[cfg(any(feature = "_sql", feature = "redis"))]
pub(crate) fn state_of(row: &str, word: Option<&str>) -> Result<RowState, Fault> {
    word.and_then(RowState::of_word).ok_or_else(|| {
        let found = word.map_or_else(|| "NULL".to_owned(), |word| format!("`{}`", shown(word)));
        let words = RowState::ALL.map(|state| format!("`{}`", state.word())).join(", ");
        Fault::new(
            FaultKind::Refused,
            format!(
                "{row} holds {found} in `state`, which is none of {words}; stop every program that uses it, then mend the row: the mark of a fixed worker or the counter of a bank gets back the word that it had, every other row gets `open`; nothing was changed"
            ),
        )
    })
}

/// The partition that these columns of a row say.
#[cfg(any(feature = "_sql", feature = "redis"))]
pub(crate) fn partition_of(row: &str, columns: [u64; 3]) -> Result<Option<Partition>, Fault> {
    Partition::of_columns(columns).map_err(|_| {
        let [stores, store, chunk] = columns;
        Fault::new(FaultKind::Refused,
            format!(
                "{row} says stores={stores} store={store} chunk={chunk}, which names no store of a mill (one store is 1, 1, 0; else `store` is at most `stores`, and `chunk` at least 1); stop every program that uses it, then mend the row: it has what the mill with these `stores` has; nothing was changed"
            ),
        )
    })
}

/// Refuses AUTO_INCREMENT and sequences, which only servers have.
pub(crate) fn check_kept_here(key: &Key) -> Result<(), Fault> {
    if !key.scheme.is_ticket() {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!(
            "scheme `{}` is counted by a {} server; use `scheme=keymill` on this store",
            key.scheme.name(),
            if key.scheme.is_sequence() { "PostgreSQL or TiDB" } else { "MySQL, MariaDB or TiDB" }
        ),
    ))
}

/// The context of a message: `reserving 2000 for `segment:orders``.
pub(crate) fn reserving(request: &Request) -> String {
    // Only the source's own numbers are counted.
    let len = request.len.div_ceil(request.key.stride.delta());
    format!("reserving {len} for `{}`", request.key.name)
}

/// The fault of a missing table, when this process has seen numbers of it: `init` alone would begin again at the first.
#[cfg(feature = "_sql")]
pub(crate) fn if_seen(request: &Request, fault: Fault) -> Fault {
    let seen = request.high_water.next;
    let is_missing = matches!(fault.remedy(), Some(Remedy::Init { first: "" } | Remedy::InitBeside { .. }));
    if seen == 0 || !is_missing {
        return fault;
    }
    fault.instead(Remedy::InitAgain { row: request.key.name.to_string(), seen: request.seen_of_period() })
}

/// The context of a message about many rows.
pub(crate) fn looking(keys: &[std::sync::Arc<Key>]) -> String {
    let name = keys.first().map_or("", |key| key.name.as_str());
    format!("looking at {} rows from `{name}` on", keys.len())
}

/// The context of `init`'s messages.
pub(crate) const fn creating(dry_run: bool) -> &'static str {
    if dry_run { "looking for tables" } else { "creating tables" }
}

/// The answers to a batch; `None` if a request has to be sent on its own and nothing was changed for it.
#[cfg(any(feature = "_sql", feature = "_server"))]
pub(crate) type Answers = Vec<Option<Result<Reserved, Fault>>>;

/// The answers to a batch, each fault with its context. A fault of the whole batch answers every request.
#[cfg(any(feature = "_sql", feature = "_server"))]
pub(crate) fn in_context(requests: &[Request], answers: Result<Answers, Fault>) -> Answers {
    let answers = answers.unwrap_or_else(|fault| requests.iter().map(|_| Some(Err(fault.clone()))).collect());
    let in_context = |(request, answer): (&Request, Option<Result<Reserved, Fault>>)| {
        answer.map(|range| range.map_err(|fault| fault.with_context(&reserving(request))))
    };
    requests.iter().zip(answers).map(in_context).collect()
}

/// The fault after other processes changed the row at each attempt. The store itself is well.
pub(crate) fn moved_on() -> Fault {
    Fault::new(
        FaultKind::Conflict,
        "other processes moved its row each time; a larger step means fewer reservations",
    )
}

/// Why a repair would fail, found without running it.
pub(crate) fn would_fail(key: &Key, fault: Fault) -> Fault {
    fault.at(format_args!("repairing `{}` would fail", key.name))
}
