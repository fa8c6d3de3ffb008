//! Reservations in one statement that commits by itself.
//!
//! The statement adds to the row, under conditions that hold only in the common case: the row exists, is open and of this
//! partition, is not below what this process has seen, is not near its end, and has the step and the time to live that were
//! last read. If it matches no row, nothing was changed, and a transaction decides.
//!
//! A serial's date may end, so its statement is a compare-and-set: the row stands exactly where this process left it.

use crate::request::scheme::{Family, Kept};
use crate::store::model::counter::{Counter, CounterRow};
use crate::store::model::decide::decide;
use crate::store::model::period_clock::is_reached;
use crate::store::model::row_layout::RowLayout;
use crate::store::model::rows::{StoredRow, stored_as};
use crate::store::model::value::Value;
use crate::store::{Fault, FaultKind, GiveBack, MAX_NUMBER, Mark, Request, Reserved};

use super::sql_rows::known_row;
use super::{Changed, Connection, Dialect, Statement};

/// A statement that reserves, and the expected answer.
pub(super) struct ConditionalAdd {
    pub(super) statement: Statement,
    expected: Expected,
}

enum Expected {
    /// One row, and this range was reserved.
    Exactly(Reserved),
    /// One row whose position was from `from.0` to `from.1`, raised by `len`. The number in the answer is the position before
    /// or, with `after`, afterwards. `counter`: another program's row, as it was last read.
    Added { from: (u64, u64), len: u64, after: bool, counter: Option<CounterRow> },
}

impl Expected {
    /// The range that was reserved if one row was changed and the answer holds this number; `None` if the number is not as
    /// expected.
    fn range(&self, request: &Request, number: Option<u64>) -> Option<Reserved> {
        let (from, len, after, counter) = match self {
            Expected::Exactly(reserved) => return Some(*reserved),
            Expected::Added { from, len, after, counter } => (from, *len, *after, counter),
        };
        let before = if after { number?.checked_sub(len)? } else { number? };
        if !(from.0..=from.1).contains(&before) {
            return None;
        }
        match counter {
            Some(known) => Counter::of(&request.key)?.added(before, len, known),
            // `before` is at most `last + 1 - len`, so this is at most 2^63.
            None => Some(Reserved { lo: before, hi: before + len, period: request.period, ttl_ms: None }),
        }
    }
}

/// The statement for this request; `None` where only a transaction can decide.
pub(super) fn prepare(
    connection: &mut dyn Connection,
    request: &Request,
) -> Result<Option<ConditionalAdd>, Fault> {
    let key = &*request.key;
    if !connection.dialect().has_conditional_add() || request.len == 0 {
        return Ok(None);
    }
    let adds = Counter::of(key).is_some() || is_plain(request);
    if adds && connection.state().numberless.contains(&key.place()) {
        return Ok(None);
    }
    match (Counter::of(key), key.scheme.kept()) {
        (Some(counter), _) => {
            let known = connection.state().known.get(&known_row(key)).copied();
            let Some(known) = known else { return Ok(None) };
            let Some((len, from)) = counter.addition(request, &known) else { return Ok(None) };
            let relied_on = RowLayout::of(key).relied_on(&known);
            add(connection, request, len, from, Some(known), relied_on)
        }
        (None, Kept::Segment) if is_plain(request) => {
            let last = request.last.min(MAX_NUMBER);
            let Some(highest) = last.checked_sub(request.len).map(|below| below + 1) else { return Ok(None) };
            let from = (request.high_water.next.max(1), highest);
            let relied_on = RowLayout::of(key).relied_on_in(request.period);
            add(connection, request, request.len, from, None, relied_on)
        }
        (None, Kept::Segment | Kept::Serial) => {
            let clock_ms = connection.state().clock_ms;
            compare_and_set(connection, request, clock_ms)
        }
        (
            None,
            Kept::Counter(_) | Kept::Ticket { .. } | Kept::Sequence | Kept::Worker | Kept::Node | Kept::Route,
        ) => Ok(None),
    }
}

/// Whether the request is for a segment, in the period of the numbers that this process has seen.
fn is_plain(request: &Request) -> bool {
    let seen = request.high_water;
    request.key.serial.is_none() && (seen == Mark::default() || seen.period == request.period)
}

fn add(
    connection: &dyn Connection,
    request: &Request,
    len: u64,
    (lowest, highest): (u64, u64),
    counter: Option<CounterRow>,
    relied_on: Vec<(&str, Value)>,
) -> Result<Option<ConditionalAdd>, Fault> {
    let key = &*request.key;
    let position = RowLayout::of(key).position();
    // MySQL returns the number in the OK packet, which no proxy can mix up with another session's. A segment's position may
    // become 2^63, so its number is the position before.
    let (addition, after, highest) = match (connection.dialect().family(), counter) {
        (Family::MySql, None) => (format!("LAST_INSERT_ID(`{position}`) + ?"), false, highest),
        (Family::MySql, Some(_)) => (format!("LAST_INSERT_ID(`{position}` + ?)"), true, highest),
        // A sum of 2^63 is beyond a signed column.
        _ => (format!("`{position}` + ?"), true, highest.min(MAX_NUMBER.saturating_sub(len))),
    };
    if lowest > highest {
        return Ok(None);
    }
    let from = (lowest, highest);
    let statement = connection.table(key)?.add(&addition, len, from, relied_on, request.writer)?;
    Ok(Some(ConditionalAdd { statement, expected: Expected::Added { from, len, after, counter } }))
}

/// For a serial, or a segment in a new period: the row is exactly where this process left it. `None` if it is not, or if
/// the caller needs a report about it, or where the row would move to a period that the server's clock, which has shown `clock_ms`, has not
/// reached yet: the transaction asks for its clock.
fn compare_and_set(
    connection: &dyn Connection,
    request: &Request,
    clock_ms: u64,
) -> Result<Option<ConditionalAdd>, Fault> {
    let (key, seen) = (&*request.key, request.high_water);
    if seen.next == 0 {
        return Ok(None);
    }
    let Ok(reserved) = decide(Some(key.row_at(seen)), request) else { return Ok(None) };
    // SQLite has no clock of its own.
    let is_compared = reserved.period != seen.period && connection.dialect() != Dialect::Sqlite;
    if is_compared && !is_reached(request, reserved.period, clock_ms) {
        return Ok(None);
    }
    let after = Mark { period: reserved.period, next: reserved.hi };
    let stored = |mark| stored_as(key, key.row_at(mark).by(request.writer));
    let (Ok(old), Ok(new)) = (stored(seen), stored(after)) else { return Ok(None) };
    let statement = connection.table(key)?.replace(&old, &new)?;
    Ok(Some(ConditionalAdd { statement, expected: Expected::Exactly(reserved) }))
}

/// Interprets the answer to a statement; `None` if it matched no row and changed nothing.
pub(super) fn interpret(
    connection: &mut dyn Connection,
    request: &Request,
    add: &ConditionalAdd,
    changed: Changed,
) -> Result<Option<Reserved>, Fault> {
    if changed.rows == 0 {
        return Ok(None);
    }
    if let (1, Some(reserved)) = (changed.rows, add.expected.range(request, changed.number)) {
        return Ok(Some(reserved));
    }
    // A position is never 0 after an addition, nor is it before one of keymill's own: a trigger has fired, or the answer belongs
    // to another question. So the connection is not used again, and the next one changes rows of this table in transactions.
    if (changed.rows, changed.number) == (1, Some(0)) {
        connection.state().numberless.insert(request.key.place());
    }
    connection.state().broken = true;
    let (lowest, highest) = match add.expected {
        Expected::Exactly(reserved) => (reserved.lo, reserved.lo),
        Expected::Added { from, .. } => from,
    };
    let number = changed.number.map_or_else(|| "no number".to_owned(), |number| number.to_string());
    Err(Fault::new(
        FaultKind::Unknown,
        format!(
            "the server answered with {} rows and {number}, not one row from {} to {}; that range is never used",
            changed.rows, lowest, highest
        ),
    ))
}

/// The statement that returns a range if the row is still as its reservation left it; `None` if only a transaction can do it.
pub(super) fn prepare_give_back(
    connection: &dyn Connection,
    range: &GiveBack,
) -> Result<Option<Statement>, Fault> {
    let key = &*range.key;
    let is_segment = matches!(key.scheme.kept(), Kept::Segment) && key.serial.is_none();
    if !connection.dialect().has_conditional_add() || !is_segment || !range.has_numbers() {
        return Ok(None);
    }
    let [end, begin] = [range.end(), range.begin()].map(StoredRow::Segment);
    connection.table(key)?.replace(&end, &begin).map(Some)
}

/// Whether the range was returned.
pub(super) fn given_back(connection: &mut dyn Connection, changed: Changed) -> Result<bool, Fault> {
    match changed.rows {
        0 => Ok(false),
        1 => Ok(true),
        many => {
            connection.state().broken = true;
            let what = format!("{many} rows of one key changed at once; the table has lost its primary key");
            Err(Fault::new(FaultKind::Refused, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;

    fn request(spec: &str, seen: u64) -> Request {
        let mill = MillConfig::parse("mysql://app@db/ids").expect("a mill");
        let key = mill.spec(spec).expect("a spec").key;
        Request { high_water: Mark { period: 0, next: seen }, ..Request::new(&key, 200) }
    }

    #[test]
    fn only_a_number_that_is_expected_is_a_range() {
        let known = CounterRow { maximum: 5, step: 200, ttl_s: 3, version: 0, stride: (1, 0) };
        for (spec, seen, maximum, range) in [
            ("segment:orders?scheme=cosid", 101, 300, Some((101, 301))),
            ("segment:orders?scheme=leaf_alloc", 100, 300, Some((100, 300))),
            ("segment:orders?scheme=cosid", 101, 299, None),
            ("segment:orders?scheme=cosid", 101, 199, None),
            ("segment:orders?scheme=cosid", 101, MAX_NUMBER, Some((MAX_NUMBER - 199, MAX_NUMBER + 1))),
        ] {
            let request = request(spec, seen);
            let counter = Counter::of(&request.key).expect("a counter");
            let (len, from) = counter.addition(&request, &known).expect("a statement");
            let expected = Expected::Added { from, len, after: true, counter: Some(known) };
            let reserved = expected.range(&request, Some(maximum));
            assert_eq!(reserved.map(|reserved| (reserved.lo, reserved.hi)), range, "{spec} {maximum}");
            assert_eq!(expected.range(&request, None), None);
        }
        let request = request("segment:orders", 101);
        let expected = Expected::Added { from: (101, 900), len: 200, after: false, counter: None };
        let range =
            |number| expected.range(&request, Some(number)).map(|reserved| (reserved.lo, reserved.hi));
        assert_eq!((range(100), range(101)), (None, Some((101, 301))));
        assert_eq!((range(900), range(901)), (Some((900, 1100)), None));
    }
}
