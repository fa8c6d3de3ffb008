//! Encodes values for statements and decodes columns of rows.

use std::fmt::Write as _;

use postgres_protocol::escape::escape_literal;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use tokio_postgres::{Row, SimpleQueryRow};

use super::postgres_dialect::with_placeholders;
use crate::store::model::value::{ColumnValue, Value};

/// The type of a placeholder; the server converts to the column's type and refuses a value that does not fit.
pub(super) fn type_of(value: &Value) -> Type {
    match value {
        Value::Number(_) => Type::INT8,
        Value::Text(_) | Value::Null => Type::TEXT,
    }
}

/// Values for a statement that the driver sends, each with the type of its placeholder.
pub(super) fn typed(values: &[Value]) -> Vec<(&(dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), type_of(value))).collect()
}

/// A statement of the shared code in PostgreSQL's syntax, with its values in it, each of the type of its placeholder.
pub(super) fn written_out(sql: &str, values: &[Value]) -> String {
    let mut values = values.iter();
    with_placeholders(sql, |out| {
        // A placeholder without a value stays an error of the server.
        let Some(value) = values.next() else { return out.push('?') };
        write_literal(out, value);
        let _ = write!(out, "::pg_catalog.{}", type_of(value).name());
    })
}

/// A value as SQL, with the same meaning whatever `standard_conforming_strings` is.
pub(super) fn write_literal(out: &mut String, value: &Value) {
    match value {
        Value::Number(number) => {
            let _ = write!(out, "'{}'", number.cast_signed());
        }
        Value::Null => out.push_str("NULL"),
        Value::Text(text) => out.push_str(&escape_literal(text)),
    }
}

impl ToSql for Value {
    fn to_sql(
        &self,
        sql_type: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Number(number) => number.cast_signed().to_sql(sql_type, out),
            Value::Text(text) => text.to_sql(sql_type, out),
            Value::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(sql_type: &Type) -> bool {
        [Type::INT8, Type::TEXT].contains(sql_type)
    }

    to_sql_checked!();
}

/// The number that a NUMERIC is: its count of digits to the base 10000, the exponent of the first of them, its sign, and how many
/// decimals are shown, each in two bytes; then the digits. `None` where it is no whole number, or too large.
fn whole(raw: &[u8]) -> Option<i128> {
    let mut words = raw.chunks_exact(2).filter_map(|word| word.try_into().ok().map(i16::from_be_bytes));
    let (count, exponent, sign, _) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let digits: Vec<i16> = words.collect();
    if digits.len() != usize::try_from(count).ok()?
        || digits.len() > usize::try_from(i32::from(exponent) + 1).ok()?
    {
        return None;
    }
    let mut number = 0i128;
    for at in 0..=exponent {
        let digit = usize::try_from(at).ok().and_then(|at| digits.get(at)).copied().unwrap_or(0);
        number = number.checked_mul(10_000)?.checked_add(digit.into())?;
    }
    match sign {
        0 => Some(number),
        0x4000 => Some(-number),
        _ => None,
    }
}

/// A column of any type.
struct Any(ColumnValue);

impl<'a> FromSql<'a> for Any {
    fn from_sql(sql_type: &Type, raw: &'a [u8]) -> Result<Any, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Any(match *sql_type {
            Type::INT2 => ColumnValue::Number(i16::from_sql(sql_type, raw)?.into()),
            Type::INT4 => ColumnValue::Number(i32::from_sql(sql_type, raw)?.into()),
            Type::INT8 => ColumnValue::Number(i64::from_sql(sql_type, raw)?.into()),
            Type::NUMERIC => whole(raw)
                .map_or_else(|| ColumnValue::Text("no whole number".to_owned()), ColumnValue::Number),
            _ => match <&str>::from_sql(sql_type, raw) {
                Ok(text) => ColumnValue::Text(text.to_owned()),
                Err(_) => ColumnValue::Text(format!("a value of type {sql_type}")),
            },
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Any, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Any(ColumnValue::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// The columns of a row.
pub(super) fn cells(row: &Row) -> Vec<ColumnValue> {
    let cell = |column| {
        row.try_get::<_, Any>(column).map_or_else(|error| ColumnValue::Text(error.to_string()), |any| any.0)
    };
    (0..row.len()).map(cell).collect()
}

/// The same of a row by the simple protocol, which does not say the types.
pub(super) fn raw_cells(row: &SimpleQueryRow) -> Vec<ColumnValue> {
    let cell = |column| match row.get(column) {
        None => ColumnValue::Null,
        // 2^63 in a column without unsigned numbers; MySQL, which sends text too, has them.
        Some(text) if text.parse() == Ok(i64::MIN) => ColumnValue::Number(i64::MIN.into()),
        Some(text) => ColumnValue::Raw(text.to_owned()),
    };
    (0..row.len()).map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numeric_is_a_number_where_it_is_whole() {
        let numeric =
            |words: &[i16]| whole(&words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>());
        for (words, number) in [
            (&[0, 0, 0, 0][..], Some(0)),
            (&[1, 0, 0, 0, 50], Some(50)),
            (&[1, 1, 0, 0, 3], Some(30_000)),
            (&[2, 1, 0x4000, 0, 1, 7], Some(-10_007)),
            (&[5, 4, 0, 0, 922, 3372, 368, 5477, 5807], Some(i128::from(i64::MAX))),
            (&[1, -1, 0, 2, 5000], None),
            (&[2, 0, 0, 1, 1, 5000], None),
            (&[2, 0, 0, 0, 1], None),
            (&[0, 0, -0x4000, 0], None),
            (&[1, 100, 0, 0, 1], None),
            (&[0, 0, 0], None),
        ] {
            assert_eq!(numeric(words), number, "{words:?}");
        }
    }
}
