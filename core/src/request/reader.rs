//! Readers: the processes that follow a route table, each with the version that it runs.

pub(crate) use super::row_key::READER_TABLE;
use super::worker::{Left, lasts};

/// What the rows of readers record of their pool.
pub(crate) const READER_LAYOUT: &str = "readers of a route table";

/// The largest version of a route table. It leaves room: no version that anyone reaches is the last.
pub(crate) const LARGEST_VERSION: u64 = 1 << 52;

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

    /// Whether it may still answer for ranges that move. A row that [cannot be true](Reader::fault) does not say so.
    #[must_use]
    pub fn is_living(&self) -> bool {
        lasts(self.left_ms.into()) && self.fault().is_none()
    }

    /// Why its row cannot be true: no reader writes such a one by a right clock. The process that wrote it may run all the same. A row
    /// that has ended says no more, whatever is in it.
    #[must_use]
    pub fn fault(&self) -> Option<&'static str> {
        if self.left_ms <= 0 {
            None
        } else if self.version > LARGEST_VERSION {
            Some("no table has such a version")
        } else if !lasts(self.left_ms.into()) {
            Some("no row lasts so long: the store's clock was ahead, or another program wrote it")
        } else {
            None
        }
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

impl Readers {
    /// The highest version that a living reader runs; 0 without one.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.all.iter().filter(|reader| reader.is_living()).map(|reader| reader.version).max().unwrap_or(0)
    }
}

/// The row of a reader as its process left it. Where there are several stores, each has a row.
#[derive(Clone, Debug, Default)]
pub struct OwnReader {
    /// The number that a new row gets; `None`: a number that is drawn.
    pub(crate) number: Option<u64>,
    /// The number, and what the row may hold; `None` before the first request.
    pub(crate) row: Option<(u64, Vec<Left>)>,
    /// Renewals still to be made without a look at the other rows.
    pub(crate) unwatched: u64,
    /// Of several stores, the row of each.
    pub(crate) each: Vec<OwnReader>,
}

impl OwnReader {
    /// The next renewal looks at the rows of all readers.
    pub(crate) fn watch(&mut self) {
        self.unwatched = 0;
        self.each.iter_mut().for_each(OwnReader::watch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_has_ended_is_ended_whatever_its_version() {
        let reader = |version, left_ms| Reader::new(1, "host:7", version, left_ms);
        for left_ms in [0, -1, -1_795_732_384_000, i64::MIN] {
            let ended = reader(u64::MAX, left_ms);
            assert_eq!((ended.fault(), ended.is_living()), (None, false), "{left_ms}");
        }
        let untrue = reader(LARGEST_VERSION + 1, 1);
        assert_eq!((untrue.fault().is_some(), untrue.is_living()), (true, false));
        assert_eq!(reader(LARGEST_VERSION, 1).fault(), None);
        // The longest lease, and the store's clock stepped back by ten minutes.
        let longest = 3_600_000 + 600_000;
        assert!(reader(1, longest).is_living());
        let untrue = reader(1, longest + 1);
        assert_eq!((untrue.fault().is_some(), untrue.is_living()), (true, false));
    }
}
