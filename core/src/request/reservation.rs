//! What a planner asks of a store and what a store answers: keys, marks, requests, ranges.

use std::fmt;
use std::sync::Arc;

use crate::serial::SerialPattern;

use super::stride::Stride;

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
    pub name: String,
    /// For serial numbers: what `key_producer` needs, and the pattern.
    pub serial: Option<SerialKey>,
    /// The step of a row, or of a table, that is created for this key where the scheme keeps one. Of a row whose programs have
    /// allocations of their own: the largest of them, 0 where no other program uses the row.
    pub step: u64,
    /// `unsafe=on`: numbers that come twice after a crash of the server are accepted.
    pub unsafe_on: bool,
    /// Which of the row's numbers are the source's own, where the scheme's rows say so.
    pub stride: Stride,
}

impl Key {
    /// A row of this table, without anything that only some schemes need.
    pub(crate) fn plain(scheme: Scheme, table: String, name: String) -> Key {
        Key {
            scheme,
            table,
            columns: Columns::default(),
            name,
            serial: None,
            step: 1,
            unsafe_on: false,
            stride: Stride::EVERY,
        }
    }

    /// What a route table is kept under.
    pub(crate) fn of_route(name: &str) -> Key {
        Key::plain(Scheme::Route, Scheme::Route.default_table().to_owned(), name.to_owned())
    }

    /// Identifies a check of the table: its name, and everything else of this key that the check depends on.
    #[must_use]
    pub fn place(&self) -> String {
        let mut place = format!("{}{}", self.table, self.columns);
        if self.scheme.is_ticket() {
            place.push_str(&format!(" step={}", self.step));
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
