//! Readers: the processes that follow a route table, each with the version that it runs.

pub(crate) use super::row_key::READER_TABLE;
use super::worker::Left;

/// What the rows of readers record of their pool.
pub(crate) const READER_LAYOUT: &str = "readers of a route table";

/// A process that follows a route table, as the store knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reader {
    /// Its number, drawn by chance.
    pub member: u64,
    /// The process, for people: host, process id.
    pub owner: String,
    /// The version of the table that it runs.
    pub version: u64,
    /// How many milliseconds are left until its row ends by the store's clock; not above 0: it has ended.
    pub left_ms: i64,
    /// How many stores its mill lists.
    pub(crate) stores: u64,
}

impl Reader {
    /// A reader, for what decides without a store.
    #[must_use]
    pub fn new(member: u64, owner: &str, version: u64, left_ms: i64) -> Reader {
        Reader { member, owner: owner.to_owned(), version, left_ms, stores: 1 }
    }

    /// Whether it may still answer for ranges that move.
    #[must_use]
    pub fn is_living(&self) -> bool {
        self.left_ms > 0
    }
}

/// The readers of a router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readers {
    /// The store's clock, milliseconds since 1970.
    pub now_ms: u64,
    /// By their numbers.
    pub all: Vec<Reader>,
}

/// The row of a reader as its process left it. Where there are several stores, each has a row.
#[derive(Clone, Debug, Default)]
pub struct OwnReader {
    /// The number that a new row gets; `None`: one that is drawn.
    pub(crate) number: Option<u64>,
    /// The number, and what the row may hold; `None` before the first request.
    pub(crate) row: Option<(u64, Vec<Left>)>,
    /// Renewals still to be made without a look at the other rows.
    pub(crate) unwatched: u64,
    /// Of several stores, the row of each.
    pub(crate) each: Vec<OwnReader>,
}
