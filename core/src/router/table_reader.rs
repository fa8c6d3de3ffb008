//! Reads the fields of a route table's text, and collects what is wrong with them.

use serde_json::{Map, Value};

use crate::document::Faults;
use crate::error::shown;

/// The largest number of a table: a number in every language, JavaScript's included.
pub(super) const LARGEST_NUMBER: u64 = (1 << 53) - 1;

/// The longest time of a table.
pub(crate) const LONGEST_TIME_MS: u64 = 7 * 86_400_000;

/// Reads a table and collects its faults.
#[derive(Default)]
pub(super) struct TableReader {
    pub(super) faults: Faults,
}

impl TableReader {
    pub(super) fn fault(&mut self, what: impl Into<String>) {
        self.faults.push(what.into());
    }

    /// Whether reading on is no use; asked before each entry of a list.
    pub(super) fn is_full(&self) -> bool {
        self.faults.is_full()
    }

    pub(super) fn unknown(&mut self, subject: &str, fields: &Map<String, Value>, known: &[&str]) {
        for field in fields.keys().filter(|field| !known.contains(&field.as_str())) {
            if self.is_full() {
                return self.faults.note_more();
            }
            self.fault(format!(
                "{subject} has an unknown field `{}`; known are {}",
                shown(field),
                known.join(", ")
            ));
        }
    }
}

pub(super) fn whole(value: &Value, most: u64) -> Option<u64> {
    value.as_u64().filter(|number| *number <= most)
}

/// A value as a message shows it.
pub(super) fn said(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{}`", shown(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a table".to_owned(),
        other => other.to_string(),
    }
}
