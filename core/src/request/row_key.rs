//! What a reservation is kept under.

use std::fmt;

use crate::serial::SerialPattern;

use super::partition::Partition;
use super::position::Mark;
use super::row_mark::{RowMark, RowStatus};
use super::scheme::Scheme;
use super::stride::Stride;
use super::subject::{BankRow, RowName, Subject};

/// The table of readers. Its rows are leased workers: the pool is a router, the slot a process, the mark a version.
pub(crate) const READER_TABLE: &str = "keymill_reader";

/// What a serial number's row is found by, and how its text is made.
#[derive(Clone, Debug)]
pub struct SerialKey {
    /// The business table, as given.
    pub table: String,
    /// The business column, as given.
    pub column: String,
    /// Date pattern, number pattern and zone.
    pub pattern: SerialPattern,
    /// `init=max`: a missing row starts from the largest serial found in the business table.
    pub init_max: bool,
}

/// Columns whose names differ from the scheme authors' names: `columns=cur_id:current_no,biz_type:name`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Columns(Vec<(String, String)>);

impl Columns {
    /// Pairs of the authors' name and the table's own; both identifiers, checked when the source was opened.
    #[must_use]
    pub fn new(pairs: Vec<(String, String)>) -> Columns {
        Columns(pairs)
    }

    /// The name of the column in this table.
    #[must_use]
    pub fn own<'c>(&'c self, column: &'c str) -> &'c str {
        self.0.iter().find(|(standard, _)| standard == column).map_or(column, |(_, own)| own)
    }
}

/// Written after a place's name: ` cur_id:current_no`; empty where no column is renamed.
impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(standard, own)| write!(f, " {standard}:{own}"))
    }
}

/// What a reservation is kept under.
#[derive(Clone, Debug)]
pub struct Key {
    /// How it is kept.
    pub scheme: Scheme,
    /// The table's name: an identifier, checked when the source was opened.
    pub table: String,
    /// The names of its columns, where they differ from the authors'.
    pub columns: Columns,
    /// The row's name under scheme `keymill`: `segment:orders`, `serial:CUST_INFO/CUSTID?date=…&number=…`.
    pub name: RowName,
    /// Which of its numbers the row counts, in one of several stores; `None`: all of them. Each change compares it.
    pub partition: Option<Partition>,
    /// For serial numbers: what `key_producer` needs, and the pattern.
    pub serial: Option<SerialKey>,
    /// The step of a row, or of a table, that is created for this key where the scheme keeps one. Of a row whose programs have
    /// allocations of their own: the largest of them, 0 where no other program uses the row.
    pub step: u64,
    /// `unsafe=on`: numbers that come twice after a crash of the server are accepted.
    pub unsafe_on: bool,
    /// `optimizer=pooled`: a value of its sequence owns the numbers up to it, not those from it on.
    pub is_pooled: bool,
    /// Which of the row's numbers are the source's own, where the scheme's rows say so.
    pub stride: Stride,
}

impl Key {
    /// A row of this table, without anything that only some schemes need.
    fn plain(scheme: Scheme, table: &str, subject: Subject) -> Key {
        Key {
            scheme,
            table: table.to_owned(),
            columns: Columns::default(),
            name: subject.into(),
            partition: None,
            serial: None,
            step: 1,
            unsafe_on: false,
            is_pooled: false,
            stride: Stride::EVERY,
        }
    }

    /// What the numbers of a segment are kept under.
    #[must_use]
    pub fn segment(scheme: Scheme, table: &str, name: &str) -> Key {
        Key::plain(scheme, table, Subject::Segment(name.to_owned()))
    }

    /// What the serials of a column are kept under.
    #[must_use]
    pub fn of_serials(scheme: Scheme, table: &str, serial: SerialKey) -> Key {
        let subject = Subject::Serial {
            table: serial.table.clone(),
            column: serial.column.clone(),
            date: serial.pattern.date_pattern().to_owned(),
            number: serial.pattern.number_pattern().to_owned(),
        };
        Key { serial: Some(serial), ..Key::plain(scheme, table, subject) }
    }

    /// What the mark of a fixed worker is kept under; `fields` are the widths of the snowflake's ids.
    #[must_use]
    pub fn mark(table: &str, source: &str, fields: &str, worker: u64) -> Key {
        let subject = Subject::Mark { source: source.to_owned(), fields: fields.to_owned(), worker };
        Key::plain(Scheme::Keymill, table, subject)
    }

    /// What the record of a bank is kept under.
    #[must_use]
    pub fn bank(table: &str, name: &str) -> Key {
        Key::plain(Scheme::Keymill, table, Subject::Bank { bank: name.into(), row: BankRow::Record })
    }

    /// What a pool of leased workers is kept under.
    #[must_use]
    pub fn pool(table: &str, name: &str) -> Key {
        Key::plain(Scheme::Worker, table, Subject::Pool(name.to_owned()))
    }

    /// The name under which a source's disposable workers are kept.
    #[must_use]
    pub fn node(table: &str, source: &str) -> Key {
        Key::plain(Scheme::WorkerNode, table, Subject::Node(source.to_owned()))
    }

    /// What the partition of another program's row is kept under.
    pub(crate) fn partition_record(row: String) -> Key {
        Key::plain(Scheme::Keymill, Scheme::Keymill.default_table(), Subject::Partition(row))
    }

    /// What a route table is kept under.
    #[must_use]
    pub fn of_route(name: &str) -> Key {
        Key::plain(Scheme::Route, Scheme::Route.default_table(), Subject::Route(name.to_owned()))
    }

    /// What the readers of a router are kept under.
    #[must_use]
    pub fn of_readers(router: &str) -> Key {
        Key::plain(Scheme::Worker, READER_TABLE, Subject::Readers(router.to_owned()))
    }

    /// The status of a row of this key that gives numbers.
    #[must_use]
    pub fn open(&self) -> RowStatus {
        RowStatus::open(self.partition)
    }

    /// An open row of this key at a mark.
    #[must_use]
    pub fn row_at(&self, mark: Mark) -> RowMark {
        RowMark { mark, status: self.open(), writer: 0 }
    }

    /// The name as another program's table has it.
    pub(crate) fn own_name(&self) -> &str {
        match self.name.subject() {
            Subject::Segment(name) => name,
            _ => &self.name,
        }
    }

    /// Whether the row is a counter of a bank.
    pub(crate) fn is_counter(&self) -> bool {
        matches!(self.name.subject(), Subject::Bank { row: BankRow::Counter { .. }, .. })
    }

    /// Whether the row says something of a whole bank: it is no counter.
    pub(crate) fn is_of_bank(&self) -> bool {
        matches!(self.name.subject(), Subject::Bank { .. }) && !self.is_counter()
    }

    /// The worker whose mark the row is.
    pub(crate) fn worker(&self) -> Option<u64> {
        match self.name.subject() {
            Subject::Mark { worker, .. } => Some(*worker),
            _ => None,
        }
    }

    /// What a value of another program's sequence is worth, as a spec says it.
    pub(crate) const fn optimizer(&self) -> &'static str {
        match self.step {
            1 => "none",
            _ if self.is_pooled => "pooled",
            _ => "pooled-lo",
        }
    }

    /// A pool of readers of a route table.
    pub(crate) fn is_of_readers(&self) -> bool {
        matches!(self.name.subject(), Subject::Readers(_))
    }

    /// Whether two keys read the values of one sequence differently.
    pub(crate) fn contradicts(&self, other: &Key) -> bool {
        let is_one = self.scheme.is_shared_sequence() && self.scheme == other.scheme;
        is_one && self.is_pooled != other.is_pooled && self.table.eq_ignore_ascii_case(&other.table)
    }

    /// Identifies a check of the table: its name, and everything else of this key that the check depends on.
    #[must_use]
    pub fn place(&self) -> String {
        let mut place = format!("{}{}", self.table, self.columns);
        if self.scheme.is_ticket() {
            place.push_str(&format!(" step={}{}", self.step, if self.is_pooled { " pooled" } else { "" }));
        }
        if !self.stride.is_every() {
            place.push_str(&format!(" delta={} remainder={}", self.stride.delta(), self.stride.remainder()));
        }
        place
    }
}
