//! The columns of a key's row: which identify it, which hold its position, and how they are decoded.

use super::counter::{Counter, CounterRow};
use super::rows::{self, ProducerKey, StoredRow, serial_of};
use super::value::{ColumnValue, Value};
use crate::error::shown;
use crate::request::scheme::{Family, Holds, Kept, Touched};
use crate::store::{Fault, FaultKind, Key, MAX_NUMBER, Mark, Partition, RowMark, RowStatus};

/// What to do about a row that cannot be read. A program that goes on issues what it reserved before, above whatever is written now.
const MEND: &str = "stop every program that uses it, then mend the row";
const LOWEST_FREE: &str =
    "stop every program that uses it, then set it to the lowest number that was never issued";
const HIGHEST_ISSUED: &str =
    "stop every program that uses it, then set it to the highest number that was ever issued";

/// A column that a table must have, with the type it needs where a narrower one would cut or wrap.
pub(crate) type Needed<'k> = (&'k str, Option<&'static str>);

/// The columns of a key's row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowLayout<'k> {
    pub(crate) key: &'k Key,
}

impl<'k> RowLayout<'k> {
    pub(crate) fn of(key: &'k Key) -> RowLayout<'k> {
        RowLayout { key }
    }

    fn own(self, columns: Vec<&'static str>) -> Vec<&'k str> {
        columns.into_iter().map(|column| self.key.columns.own(column)).collect()
    }

    fn counter(self) -> Option<Counter<'k>> {
        Counter::of(self.key)
    }

    /// The columns that identify the row, with their values.
    pub(crate) fn identity(self) -> Result<Vec<(&'k str, Value)>, Fault> {
        let values: Vec<Value> = match (self.counter(), self.key.scheme.kept()) {
            (Some(counter), _) => vec![counter.row_name()?.into()],
            (None, Kept::Serial) => {
                let producer = ProducerKey::new(serial_of(self.key)?)?;
                [producer.table, producer.column, producer.date, producer.number].map(Value::Text).into()
            }
            (None, _) => vec![self.key.name.as_str().into()],
        };
        Ok(self.own(self.key.scheme.identity()).into_iter().zip(values).collect())
    }

    /// The columns that no two rows may have in common.
    pub(crate) fn unique(self) -> Vec<&'k str> {
        self.own(self.key.scheme.identity())
    }

    /// The columns to read, for [`decode`](RowLayout::decode).
    pub(crate) fn content(self) -> Vec<&'k str> {
        self.own(self.key.scheme.content())
    }

    /// The column that holds the position.
    pub(crate) fn position(self) -> &'k str {
        match self.key.scheme.kept() {
            Kept::Segment => "next",
            _ => self.content().first().copied().unwrap_or_default(),
        }
    }

    /// The column that counts the changes, which every change adds 1 to.
    pub(crate) fn version(self) -> Option<&'k str> {
        self.counter()?.version()
    }

    /// The column that holds the time of the last change.
    pub(crate) fn touched(self) -> Option<(&'k str, Touched)> {
        self.key.scheme.touched().map(|touched| (self.key.columns.own(touched.column), touched))
    }

    /// The same, on families of databases whose statements have to set it.
    pub(crate) fn touched_on(self, family: Family) -> Option<(&'k str, Touched)> {
        self.touched().filter(|(_, touched)| touched.set_on.contains(&family))
    }

    /// The columns that the statements on this family of databases name.
    pub(crate) fn needed(self, family: Family) -> Vec<Needed<'k>> {
        let scheme = self.key.scheme;
        let narrowest = |column: &str| match (scheme.kept(), column) {
            (Kept::Segment, "date" | "next" | "stores" | "store" | "chunk" | "writer")
            | (Kept::Ticket { .. }, "id")
            | (Kept::Worker, "slot" | "token" | "mark" | "ends_at" | "stores" | "store")
            | (Kept::Route, "version") => Some("bigint"),
            (Kept::Ticket { .. }, "step") => Some("int"),
            (Kept::Counter(columns), _) if column == columns.maximum => Some("bigint"),
            _ => None,
        };
        let mut columns = scheme.identity();
        let others =
            scheme.content().into_iter().chain(self.touched_on(family).map(|(_, touched)| touched.column));
        columns.extend(others.filter(|column| !scheme.identity().contains(column)));
        columns.into_iter().map(|column| (self.key.columns.own(column), narrowest(column))).collect()
    }

    /// Decodes a row from its cells, in the order of [`content`](RowLayout::content); refuses cells that make no sense.
    pub(crate) fn decode(self, cells: &[ColumnValue]) -> Result<StoredRow, Fault> {
        match (self.counter(), self.key.scheme.kept()) {
            (Some(counter), _) => self.decode_counter(&counter, cells).map(StoredRow::Counter),
            (None, Kept::Serial) => match cells.first() {
                Some(ColumnValue::Null) | None => Ok(StoredRow::Serial(None)),
                Some(cell) => {
                    cell.text().map(|text| StoredRow::Serial(Some(text.to_owned()))).ok_or_else(|| {
                        let column = self.position();
                        Fault::new(
                            FaultKind::Refused,
                            format!("its `{column}` is no text; nothing was changed"),
                        )
                    })
                }
            },
            (None, _) => self.decode_segment(cells).map(StoredRow::Segment),
        }
    }

    fn decode_segment(self, cells: &[ColumnValue]) -> Result<RowMark, Fault> {
        let number = |column: &str, at: usize| self.whole(column, cells.get(at), (0, MAX_NUMBER), MEND);
        let period = number("date", 0)?;
        // A database without unsigned integers keeps 2^63 as -2^63.
        let next = match cells.get(1) {
            Some(ColumnValue::Number(number)) if *number == i128::from(i64::MIN) => {
                Some(ColumnValue::Number(i128::from(MAX_NUMBER) + 1))
            }
            other => other.cloned(),
        };
        let remedy = LOWEST_FREE;
        // `decide` rejects 0: it knows whether a number was ever issued.
        let next = self.whole("next", next.as_ref(), (0, MAX_NUMBER + 1), remedy)?;
        let state = rows::state_of(&self.row(), cells.get(2).and_then(ColumnValue::text))?;
        let columns = [number("stores", 3)?, number("store", 4)?, number("chunk", 5)?];
        let partition = rows::partition_of(&self.row(), columns)?;
        let writer = number("writer", 6)?;
        Ok(RowMark { mark: Mark { period, next }, status: RowStatus { state, partition }, writer })
    }

    fn decode_counter(self, counter: &Counter<'_>, cells: &[ColumnValue]) -> Result<CounterRow, Fault> {
        let columns = self.content();
        let value = |column: &str, least: u64| -> Result<u64, Fault> {
            let cell = columns.iter().position(|name| *name == column).and_then(|at| cells.get(at));
            let remedy = match self.key.scheme.counter().map(|columns| columns.holds) {
                _ if column != counter.maximum() => MEND,
                Some(Holds::Next) => LOWEST_FREE,
                _ => HIGHEST_ISSUED,
            };
            self.whole(column, cell, (least, MAX_NUMBER), remedy)
        };
        Ok(CounterRow {
            stride: match counter.stride() {
                Some((delta, remainder)) => (value(delta, 1)?, value(remainder, 0)?),
                None => (1, 0),
            },
            maximum: value(counter.maximum(), 0)?,
            step: counter.step().map_or(Ok(1), |column| value(column, 1))?,
            ttl_s: counter.ttl().map_or(Ok(0), |column| value(column, 0))?,
            version: counter.version().map_or(Ok(0), |column| value(column, 0))?,
        })
    }

    /// The number in a column; refuses anything but a number from `least` to `most`, and says what to do.
    fn whole(
        self,
        column: &str,
        cell: Option<&ColumnValue>,
        (least, most): (u64, u64),
        remedy: &str,
    ) -> Result<u64, Fault> {
        let number = cell.and_then(ColumnValue::whole);
        if let Some(number) = number.and_then(|number| u64::try_from(number).ok())
            && (least..=most).contains(&number)
        {
            return Ok(number);
        }
        let found = match (number, cell.and_then(ColumnValue::text)) {
            (Some(number), _) => number.to_string(),
            (None, Some(text)) => format!("`{}`", shown(text)),
            (None, None) => "NULL".to_owned(),
        };
        Err(Fault::new(
            FaultKind::Refused,
            format!(
                "{} holds {found} in `{column}`, where a whole number from {least} to {most} is needed; {remedy}; nothing was changed",
                self.row()
            ),
        ))
    }

    /// The row, for messages.
    fn row(self) -> String {
        format!("its row in `{}`", self.key.table)
    }

    /// The columns of a new row other than those that identify it.
    pub(crate) fn encode(self, new: &StoredRow) -> Vec<(&'k str, Value)> {
        let values: Vec<Value> = match (new, self.counter()) {
            (StoredRow::Segment(RowMark { mark, status, writer }), _) => {
                let [stores, store, chunk] = Partition::columns(status.partition);
                let (period, next, state) =
                    (mark.period.into(), mark.next.into(), status.state.word().into());
                vec![period, next, state, stores.into(), store.into(), chunk.into(), (*writer).into()]
            }
            (StoredRow::Serial(text), _) => vec![text.clone().into()],
            (StoredRow::Counter(row), Some(counter)) => {
                let mut values = vec![(counter.maximum(), row.maximum)];
                values.extend(counter.step().map(|column| (column, row.step)));
                values.extend(counter.ttl().map(|column| (column, row.ttl_s)));
                if let Some((delta, remainder)) = counter.stride() {
                    values.extend([(delta, row.stride.0), (remainder, row.stride.1)]);
                }
                return values.into_iter().map(|(column, value)| (column, value.into())).collect();
            }
            (StoredRow::Counter(_), None) => Vec::new(),
        };
        self.content().into_iter().zip(values).collect()
    }

    /// The columns that a change of `old` compares: any other writer changes at least one of them.
    pub(crate) fn compared(self, old: &StoredRow) -> Vec<(&'k str, Value)> {
        match (old, self.counter()) {
            (StoredRow::Counter(row), Some(counter)) => {
                let version = counter.version().map(|column| (column, row.version.into()));
                std::iter::once((counter.maximum(), row.maximum.into())).chain(version).collect()
            }
            _ => self.encode(old),
        }
    }

    /// The columns that a change to `new` sets.
    pub(crate) fn changed(self, new: &StoredRow) -> Vec<(&'k str, Value)> {
        match (new, self.counter()) {
            (StoredRow::Counter(row), Some(counter)) => vec![(counter.maximum(), row.maximum.into())],
            _ => self.encode(new),
        }
    }

    /// The column that names the mill that reserved last.
    pub(crate) fn writer(self) -> Option<&'static str> {
        matches!(self.key.scheme.kept(), Kept::Segment).then_some("writer")
    }

    /// The columns on which an addition to a segment in this period relies: all but the position and the writer.
    pub(crate) fn relied_on_in(self, period: u64) -> Vec<(&'k str, Value)> {
        let mut columns = self.encode(&StoredRow::Segment(self.key.row_at(Mark { period, next: 0 })));
        columns.retain(|(column, _)| *column != self.position() && Some(*column) != self.writer());
        columns
    }

    /// The columns, as last read, on which an addition to a counter relies.
    pub(crate) fn relied_on(self, known: &CounterRow) -> Vec<(&'k str, Value)> {
        let Some(counter) = self.counter() else { return Vec::new() };
        let mut columns = vec![(counter.step(), known.step), (counter.ttl(), known.ttl_s)];
        if let Some((delta, remainder)) = counter.stride() {
            let own = self.key.stride;
            columns.extend([(Some(delta), own.delta()), (Some(remainder), own.remainder())]);
        }
        columns.into_iter().filter_map(|(column, value)| Some((column?, value.into()))).collect()
    }
}
