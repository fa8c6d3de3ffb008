//! What a column of an answer holds, and how a value stands in a statement.

use std::fmt::Write as _;

use mysql::Value;

use crate::store::counter::Cell;

/// A number column; `None` for NULL and for what is negative.
pub(super) fn number(row: &mysql::Row, column: usize) -> Option<u64> {
    match row.as_ref(column)? {
        Value::Int(value) => u64::try_from(*value).ok(),
        Value::UInt(value) => Some(*value),
        Value::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

/// A column, whatever it holds.
pub(super) fn cell(row: &mysql::Row, column: usize) -> Cell {
    match row.as_ref(column) {
        Some(Value::Int(value)) => Cell::Number((*value).into()),
        Some(Value::UInt(value)) => Cell::Number((*value).into()),
        None | Some(Value::NULL) => Cell::Null,
        Some(Value::Bytes(bytes)) => {
            let text = String::from_utf8_lossy(bytes);
            text.parse().map_or_else(|_| Cell::Other(text.clone().into_owned()), Cell::Number)
        }
        Some(_) => Cell::Other("no whole number".to_owned()),
    }
}

/// A text column, or a number as text; `None` for NULL and for what is not UTF-8.
pub(super) fn text(row: &mysql::Row, column: usize) -> Option<String> {
    match row.as_ref(column)? {
        Value::Bytes(text) => String::from_utf8(text.clone()).ok(),
        Value::Int(value) => Some(value.to_string()),
        Value::UInt(value) => Some(value.to_string()),
        _ => None,
    }
}

/// The statement with its values in the text, numbers in digits, and everything else in hexadecimal, which no quote and no SQL
/// mode can end; `None` for a value that has no place there.
pub(super) fn spelled(sql: &str, values: &[Value]) -> Option<String> {
    let mut parts = sql.split('?');
    let mut out = parts.next()?.to_owned();
    let mut values = values.iter();
    for part in parts {
        match values.next()? {
            Value::NULL => out.push_str("NULL"),
            Value::Int(number) => out.push_str(&number.to_string()),
            Value::UInt(number) => out.push_str(&number.to_string()),
            // As a prepared statement has it: text of the connection's character set, whatever the column's is.
            Value::Bytes(bytes) => {
                out.push_str("_utf8mb4 X'");
                for byte in bytes {
                    let _ = write!(out, "{byte:02x}");
                }
                out.push('\'');
            }
            _ => return None,
        }
        out.push_str(part);
    }
    values.next().is_none().then_some(out)
}
