//! What a row of keymill's tables is about. The name of the row derives from it and is never taken apart again.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What a row is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The numbers of the segment of this name. Another program's table has the name alone.
    Segment(String),
    /// The serials of a column, by their patterns. Two spellings of a column make the same texts, so they share a row.
    Serial {
        /// The business table.
        table: String,
        /// The business column.
        column: String,
        /// The date pattern.
        date: String,
        /// The number pattern.
        number: String,
    },
    /// The mark of a fixed worker.
    Mark {
        /// The snowflake's name.
        source: String,
        /// The widths of its ids, in their first spelling.
        fields: String,
        /// The worker.
        worker: u64,
    },
    /// A row of the bank of this name.
    Bank {
        /// The name of the source of business ids.
        bank: Arc<str>,
        /// Which of its rows.
        row: BankRow,
    },
    /// The partition of a row of another program's table in one of several stores: scheme, table, name and renamed columns.
    Partition(String),
    /// The import of another program's row into a source.
    Import {
        /// The old row, up to the `>` that ends it.
        record: String,
        /// The name of the source's row.
        owner: String,
    },
    /// The leased workers of the pool of this name.
    Pool(String),
    /// The workers of this source; each is used once.
    Node(String),
    /// The readers of the router of this name.
    Readers(String),
    /// The table of the router of this name.
    Route(String),
}

/// A row of a bank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BankRow {
    /// How many counters the bank has.
    Record,
    /// Where counters without a row begin.
    Floor,
    /// One of `counters`, from 0. The number of counters is part of the name, so processes that disagree about it share no row.
    Counter {
        /// How many counters the bank has.
        counters: u32,
        /// Which one this is.
        index: u32,
    },
    /// Every one of so many counters has its row in each of several stores.
    Complete {
        /// How many counters the bank has.
        counters: u32,
    },
}

/// The characters that are percent-encoded inside a bank's name, so that no name looks like another bank's counter.
const RESERVED: &AsciiSet = &CONTROLS.add(b'%').add(b'?').add(b'&').add(b'=').add(b'/');

/// As the row is named.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Segment(name) => write!(f, "segment:{name}"),
            Subject::Serial { table, column, date, number } => {
                let (table, column) = (table.to_uppercase(), column.to_uppercase());
                write!(f, "serial:{table}/{column}?date={date}&number={number}")
            }
            Subject::Mark { source, fields, worker } => {
                write!(f, "snowflake:{source}?fields={fields}&worker={worker}")
            }
            Subject::Bank { bank, row } => {
                write!(f, "business:{}", utf8_percent_encode(bank, RESERVED))?;
                match row {
                    BankRow::Record => Ok(()),
                    BankRow::Floor => f.write_str("/floor"),
                    BankRow::Counter { counters, index } => write!(f, "/{counters}/{index}"),
                    BankRow::Complete { counters } => write!(f, "/{counters}/complete"),
                }
            }
            Subject::Partition(row) => write!(f, "interleave:{row}"),
            Subject::Import { record, owner } => write!(f, "{record}{owner}"),
            Subject::Node(source) => write!(f, "snowflake:{source}"),
            Subject::Pool(name) | Subject::Readers(name) | Subject::Route(name) => f.write_str(name),
        }
    }
}

/// The name of a row, with what the row is about. Names are equal where their texts are.
#[derive(Clone, Debug)]
pub struct RowName {
    text: String,
    subject: Subject,
}

impl RowName {
    /// What the row is about.
    #[must_use]
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl From<Subject> for RowName {
    fn from(subject: Subject) -> RowName {
        RowName { text: subject.to_string(), subject }
    }
}

impl Deref for RowName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl Borrow<str> for RowName {
    fn borrow(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for RowName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for RowName {
    fn eq(&self, other: &RowName) -> bool {
        self.text == other.text
    }
}

impl Eq for RowName {}

impl Hash for RowName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bank(name: &str, row: BankRow) -> String {
        Subject::Bank { bank: name.into(), row }.to_string()
    }

    #[test]
    fn no_name_gives_a_record_that_is_another_banks_counter() {
        assert_eq!(bank("order", BankRow::Record), "business:order");
        assert_eq!(bank("order/4/1", BankRow::Record), "business:order%2F4%2F1");
        assert_eq!(bank("a%2Fb", BankRow::Record), "business:a%252Fb");
        assert_eq!(bank("order", BankRow::Counter { counters: 4, index: 1 }), "business:order/4/1");
    }

    #[test]
    fn two_spellings_of_a_column_share_a_row() {
        let serial = |table: &str, column: &str| Subject::Serial {
            table: table.to_owned(),
            column: column.to_owned(),
            date: "yyyyMMdd".to_owned(),
            number: "00".to_owned(),
        };
        assert_eq!(serial("cust", "Id").to_string(), "serial:CUST/ID?date=yyyyMMdd&number=00");
        assert_eq!(RowName::from(serial("cust", "Id")), RowName::from(serial("CUST", "id")));
    }
}
