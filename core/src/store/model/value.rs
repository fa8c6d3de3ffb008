//! Values of statements and columns of answers, for every database.

/// A value in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    /// At most 2^63. A database without unsigned integers keeps 2^63, which is a next number and never issued, as -2^63.
    Number(u64),
    Text(String),
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Value {
        text.map_or(Value::Null, Value::Text)
    }
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ColumnValue {
    Null,
    Number(i128),
    /// A text, or a description of a value that is neither a number nor a text.
    Text(String),
    /// A number or a text, from a protocol that sends both as text: MySQL's, and PostgreSQL's on a shared connection.
    Raw(String),
}

impl ColumnValue {
    /// A text; `None` for anything else.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            ColumnValue::Text(text) | ColumnValue::Raw(text) => Some(text),
            ColumnValue::Null | ColumnValue::Number(_) => None,
        }
    }

    /// A whole number that is not negative; `None` for anything else.
    pub(crate) fn number(&self) -> Option<u64> {
        self.whole().and_then(|number| u64::try_from(number).ok())
    }

    /// A whole number; `None` for anything else. A decimal is whole where its fraction is 0.
    pub(crate) fn whole(&self) -> Option<i128> {
        match self {
            ColumnValue::Number(number) => Some(*number),
            ColumnValue::Raw(text) => match text.split_once('.') {
                Some((whole, fraction)) if fraction.bytes().all(|digit| digit == b'0') => whole.parse().ok(),
                _ => text.parse().ok(),
            },
            ColumnValue::Null | ColumnValue::Text(_) => None,
        }
    }
}

/// The text of a column of an answer's row.
pub(crate) fn text(row: &[ColumnValue], column: usize) -> Option<&str> {
    row.get(column)?.text()
}

/// The number of a column of an answer's row.
pub(crate) fn number(row: &[ColumnValue], column: usize) -> Option<u64> {
    row.get(column)?.number()
}
