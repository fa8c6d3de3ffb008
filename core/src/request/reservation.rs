//! What a planner asks of a store and what a store answers: keys, marks, requests, ranges.

use std::fmt;
use std::sync::Arc;

use crate::error::fault::Remedy;
use crate::serial::SerialPattern;

use super::partition::Partition;
use super::reader::READER_TABLE;
use super::row_mark::{RowMark, RowStatus};
use super::stride::Stride;
use super::subject::{BankRow, Name, Subject};

pub use super::scheme::Scheme;
pub use crate::error::fault::{Fault, FaultKind};

/// The largest number keymill hands out: positive in a signed 64-bit column.
pub const MAX_NUMBER: u64 = i64::MAX as u64;

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

/// Columns whose names differ from those of the scheme's authors: `columns=cur_id:current_no,biz_type:name`.
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
        self.0.iter().find(|(of, _)| of == column).map_or(column, |(_, own)| own)
    }
}

/// Written after a place's name: ` cur_id:current_no`; empty where no column is renamed.
impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(of, own)| write!(f, " {of}:{own}"))
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
    pub name: Name,
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

    /// What the workers of a source are kept under each of which is used once.
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
        RowMark { mark, status: self.open() }
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

/// A place in a key's history: first by period, then by number. `next` is the lowest number not yet reserved; where the
/// key has a [`Stride`], the lowest that is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The period, 0 where the key has none.
    pub period: u64,
    /// The lowest number not yet reserved; 0 means that nothing has been seen.
    pub next: u64,
}

/// A request to reserve, in numbers of the row. A planner asks in its source's own count, which is the same unless the key has a
/// [`Stride`].
#[derive(Clone, Debug)]
pub struct Request {
    /// The key.
    pub key: Arc<Key>,
    /// How many numbers, at least 1. Fewer are given where fewer are left under `last`.
    pub len: u64,
    /// The highest place this process has seen; a row below it went backwards. `Mark::default()`: nothing seen.
    pub high_water: Mark,
    /// The first number of a new row (and of a new period).
    pub start: u64,
    /// The largest number that may be reserved.
    pub last: u64,
    /// The period wanted, 0 where the key has none.
    pub period: u64,
    /// The latest period of a row at which this machine's clock does not count as behind.
    pub period_max: u64,
    /// `backwards=heal`: raise a row that went backwards to `high_water`, if that is at most `max_jump` away.
    pub heal: bool,
    /// How far a healed row may be raised.
    pub max_jump: u64,
    /// How many are given at a time of the last tenth of the numbers up to `last`, and of another period than `period`; 0: `len`
    /// everywhere.
    pub single: u64,
}

/// A reserved range `[lo, hi)` and the period it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// First number.
    pub lo: u64,
    /// One past the last number.
    pub hi: u64,
    /// The period it was reserved for: the request's, or the row's where that is ahead by at most the skew.
    pub period: u64,
    /// How long its numbers may be issued, where the row has a `time_to_live`.
    pub ttl_ms: Option<u64>,
}

impl Request {
    /// So many numbers of a key without periods, for a process that has seen none of them; any number will do.
    #[must_use]
    pub fn new(key: &Arc<Key>, len: u64) -> Request {
        Request {
            key: Arc::clone(key),
            len,
            high_water: Mark::default(),
            start: 1,
            last: MAX_NUMBER,
            period: 0,
            period_max: 0,
            heal: false,
            max_jump: 0,
            single: 0,
        }
    }

    /// How many numbers a range has that begins here, if that many are left: `len`, and in the last tenth `single`. A range that
    /// begins before the last tenth does not reach into it by more. Of another period than the one asked for `single` too: how
    /// many the caller may keep ahead follows from its use of that period.
    pub(crate) fn most_from(&self, at: Mark) -> u64 {
        let len = self.len.max(1);
        if self.single == 0 {
            return len;
        }
        let before = last_tenth(self.last).saturating_sub(at.next) / self.single * self.single;
        let before = if at.period == self.period { before } else { 0 };
        len.min(before.max(self.single))
    }

    /// The largest number of a range of `len` that [`Request::most_from`] leaves whole, wherever it begins.
    #[cfg(any(feature = "redis", test))]
    pub(crate) fn last_of_whole(&self) -> u64 {
        if self.len <= self.single || self.single == 0 {
            return self.last;
        }
        // As if the last whole `single` before the tenth reached to the tenth: too low by less than one `single`.
        last_tenth(self.last).saturating_sub(self.single)
    }

    /// The request in numbers of the row. (`start` and `last` come from the options, which are ids.)
    #[must_use]
    pub fn of_the_row(self) -> Request {
        let stride = self.key.stride;
        let Mark { period, next } = self.high_water;
        Request {
            // Of that many consecutive numbers `len` are the source's own, wherever they begin.
            len: self.len.saturating_mul(stride.delta()),
            high_water: Mark { period, next: stride.nth(next) },
            max_jump: self.max_jump.saturating_mul(stride.delta()),
            ..self
        }
    }
}

/// The first number of the last tenth of the numbers 1 to `last`.
pub(crate) fn last_tenth(last: u64) -> u64 {
    last.saturating_sub(last / 10).saturating_add(1)
}

impl Reserved {
    /// A range of the row, in the source's count.
    #[must_use]
    pub fn of_the_source(self, stride: Stride) -> Reserved {
        Reserved { lo: stride.counted(self.lo), hi: stride.counted(self.hi), ..self }
    }

    /// The end of the range, where the next one may begin; refuses a range, in the source's count, that is not wholly above `seen`, the
    /// highest place that this process has seen: the store went back, and none of its numbers may be issued. `name` is what was
    /// reserved for, `row` the row that `repair` finds.
    pub(crate) fn above(
        self,
        seen: Mark,
        stride: Stride,
        name: impl FnOnce() -> String,
        row: &str,
    ) -> Result<Mark, Fault> {
        let [lo, hi] = [self.lo, self.hi].map(|next| Mark { period: self.period, next });
        if lo >= seen && hi > lo {
            return Ok(hi);
        }
        let [first, end, last] = [lo.next, hi.next, seen.next.saturating_sub(1)].map(|n| stride.nth(n));
        Err(Fault::new(
            FaultKind::WentBackwards,
            format!(
                "reserving for `{}`: the store answered with {first}..{end}, but numbers up to {last} were reserved before",
                name()
            ),
        )
        .with_remedy(Remedy::Repair { first: "", row: Some(row.to_owned()), above: "every number issued" }))
    }
}

/// What may be given back of unused ranges `[lo, hi)` that rise: the topmost ones that meet, if they end where the last reservation
/// ends.
pub(crate) fn unused_end(ranges: &[(u64, u64)], end: u64) -> Option<(u64, u64)> {
    let (&(mut lo, hi), below) = ranges.split_last().filter(|((_, hi), _)| *hi == end)?;
    for &(first, last) in below.iter().rev() {
        if last != lo {
            break;
        }
        lo = first;
    }
    Some((lo, hi))
}

/// The unused end of a reservation, which a clean close returns: `[lo, hi)` of `period`, in numbers of the row.
#[derive(Clone, Debug)]
pub struct GiveBack {
    /// The key.
    pub key: Arc<Key>,
    /// The period it was reserved for.
    pub period: u64,
    /// First number.
    pub lo: u64,
    /// One past the last number; where the row ends if no other process has reserved since.
    pub hi: u64,
}

impl GiveBack {
    /// How many numbers of the source these are.
    #[must_use]
    pub fn count(&self) -> u64 {
        let stride = self.key.stride;
        stride.counted(self.hi).saturating_sub(stride.counted(self.lo))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_unused_ranges_the_topmost_that_meet_are_given_back_if_nothing_was_reserved_behind_them() {
        assert_eq!(unused_end(&[], 10), None);
        assert_eq!(unused_end(&[(5, 9)], 10), None, "another range was reserved behind it, and is used");
        assert_eq!(unused_end(&[(5, 10)], 10), Some((5, 10)));
        assert_eq!(unused_end(&[(1, 3), (3, 6), (6, 10)], 10), Some((1, 10)));
        assert_eq!(unused_end(&[(1, 3), (4, 6), (6, 10)], 10), Some((4, 10)), "number 3 is used");
    }

    #[test]
    fn a_range_is_taken_over_only_wholly_above_everything_that_was_seen() {
        let seen = Mark { period: 7, next: 100 };
        let answer = |period, lo, hi| {
            let range = Reserved { lo, hi, period, ttl_ms: None };
            range
                .above(seen, Stride::EVERY, || "orders".to_owned(), "segment:orders")
                .map_err(|f| f.to_string())
        };
        assert_eq!(answer(7, 100, 110), Ok(Mark { period: 7, next: 110 }));
        assert_eq!(answer(8, 1, 11), Ok(Mark { period: 8, next: 11 }), "a later period begins anew");
        for (period, lo, hi) in [(7, 99, 110), (7, 1, 100), (6, 500, 510), (7, 100, 100), (7, 110, 105)] {
            let refused = answer(period, lo, hi).expect_err("numbers that were seen, or none");
            let what = format!("for `orders`: the store answered with {lo}..{hi}, but numbers up to 99 were");
            assert!(refused.contains(&what) && refused.contains("repair 'segment:orders'"), "{refused}");
        }
    }
}
