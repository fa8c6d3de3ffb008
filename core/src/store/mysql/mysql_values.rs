//! Decodes columns of an answer, and writes values into statements.

use std::fmt::Write as _;

use crate::store::model::value::{ColumnValue, Value};
use crate::store::{Fault, FaultKind};

/// The columns of a row. The text protocol does not say which of them are numbers.
pub(super) fn cells(row: &mysql::Row) -> Vec<ColumnValue> {
    let cell = |column| match row.as_ref(column) {
        Some(mysql::Value::Int(value)) => ColumnValue::Number((*value).into()),
        Some(mysql::Value::UInt(value)) => ColumnValue::Number((*value).into()),
        Some(mysql::Value::Bytes(bytes)) => ColumnValue::Raw(String::from_utf8_lossy(bytes).into_owned()),
        None | Some(mysql::Value::NULL) => ColumnValue::Null,
        Some(_) => ColumnValue::Text("no whole number".to_owned()),
    };
    (0..row.len()).map(cell).collect()
}

/// The statement with its values in its text: numbers in digits, plain texts between quotes, where a quote is doubled, and other texts
/// in hexadecimal, which no SQL mode and no character set can end. TiDB 4.0 does not read the latter.
///
/// A `?` between quotes belongs to a name or to a value that was written before.
pub(super) fn written_out(sql: &str, values: &[Value]) -> Result<String, Fault> {
    let mut out = String::with_capacity(sql.len() * 2);
    let mut values = values.iter();
    let mut quote = None;
    let mut missing = false;
    for c in sql.chars() {
        match (quote, c) {
            (None, '?') => match values.next() {
                Some(value) => write_literal(&mut out, value),
                None => missing = true,
            },
            (None, '\'' | '"' | '`') => {
                quote = Some(c);
                out.push(c);
            }
            _ => {
                quote = quote.filter(|open| *open != c);
                out.push(c);
            }
        }
    }
    if missing || values.next().is_some() {
        let what = "the statement takes another number of values; nothing was sent";
        return Err(Fault::new(FaultKind::Refused, what));
    }
    Ok(out)
}

fn write_literal(out: &mut String, value: &Value) {
    // A String takes whatever is written.
    let _ = match value {
        Value::Null => out.write_str("NULL"),
        Value::Number(number) => write!(out, "{number}"),
        // The text has the connection's character set, as in a prepared statement, whatever the column's is.
        Value::Text(text) if text.bytes().all(is_plain) => {
            write!(out, "_utf8mb4 '{}'", text.replace('\'', "''"))
        }
        Value::Text(text) => {
            out.push_str("_utf8mb4 X'");
            for byte in text.bytes() {
                let _ = write!(out, "{byte:02x}");
            }
            out.write_char('\'')
        }
    };
}

/// Whether this byte means itself between quotes, or is the quote, in every character set and SQL mode. A semicolon does too, but a
/// proxy may take it for the end of the statement.
fn is_plain(byte: u8) -> bool {
    byte == b' ' || byte.is_ascii_graphic() && !b"\\;".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_ends_its_quotes_or_its_statement() {
        let values = [Value::Number(u64::MAX), Value::from("a'; DROP \\"), Value::Null];
        let written = |sql, values: &[Value]| written_out(sql, values).ok();
        assert_eq!(
            written("UPDATE `t` SET n = ? WHERE a = ? AND b <=> ?", &values).as_deref(),
            Some(
                "UPDATE `t` SET n = 18446744073709551615 WHERE a = _utf8mb4 X'61273b2044524f50205c' AND b <=> NULL"
            )
        );
        let name = Value::from("serial:a_b/c?date=yyMM&number=00");
        assert_eq!(
            written("a = ?", &[name]).as_deref(),
            Some("a = _utf8mb4 'serial:a_b/c?date=yyMM&number=00'")
        );
        assert_eq!(written("a = ?", &["''--".into()]).as_deref(), Some("a = _utf8mb4 '''''--'"));
        for odd in ["\\", ";", "\\'", "\0", "\n", "\u{7f}", "é", "\u{bf5c}"] {
            assert!(
                written("a = ?", &[odd.into()]).is_some_and(|sql| sql.starts_with("a = _utf8mb4 X'")),
                "{odd}"
            );
        }
        let once = written("`a?` = ? AND b = '''?' AND c = ?", &["it's ?".into(), 1.into()]);
        assert_eq!(once.as_deref(), Some("`a?` = _utf8mb4 'it''s ?' AND b = '''?' AND c = 1"));
        assert_eq!(once.as_deref().and_then(|sql| written(sql, &[])), once, "nothing of it is written again");
        assert_eq!(written("a = ?", &values), None, "a value too many");
        assert_eq!(written("a = ? b = ?", &values[..1]), None, "a value too few");
    }
}
