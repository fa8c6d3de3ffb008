//! What goes into a statement and what comes back in a column.

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};

use super::wire::Values;
use crate::store::counter::Cell;

/// A value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// `BIGINT`; 2^63, which is no number to issue but may be the next one, wraps to the lowest.
    Number(u64),
    Text(Option<String>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(Some(text))
    }
}

impl Value {
    /// The type a placeholder is given; the server converts to the column's and refuses what does not fit.
    pub(super) fn of_type(&self) -> Type {
        match self {
            Value::Number(_) => Type::INT8,
            Value::Text(_) => Type::TEXT,
        }
    }
}

pub(super) fn typed(values: &[Value]) -> Values<'_> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), value.of_type())).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        of: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Number(number) => (*number as i64).to_sql(of, out),
            Value::Text(text) => text.to_sql(of, out),
        }
    }

    fn accepts(of: &Type) -> bool {
        [Type::INT8, Type::TEXT].contains(of)
    }

    to_sql_checked!();
}

/// A column, whatever it holds.
struct Any(Cell);

impl<'a> FromSql<'a> for Any {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Any, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Any(match *of {
            Type::INT2 => Cell::Number(i16::from_sql(of, raw)?.into()),
            Type::INT4 => Cell::Number(i32::from_sql(of, raw)?.into()),
            Type::INT8 => Cell::Number(i64::from_sql(of, raw)?.into()),
            _ => match <&str>::from_sql(of, raw) {
                Ok(text) => Cell::Other(text.to_owned()),
                Err(_) => Cell::Other(format!("a value of type {of}")),
            },
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Any, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Any(Cell::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A row's column.
pub(super) fn cell(row: &Row, column: usize) -> Cell {
    row.try_get::<_, Any>(column).map_or_else(|error| Cell::Other(error.to_string()), |any| any.0)
}

/// A text column; `None` for anything else.
pub(super) fn text(row: &Row, column: usize) -> Option<String> {
    match cell(row, column) {
        Cell::Other(text) => Some(text),
        _ => None,
    }
}

/// A number column as [`Value::Number`] writes it; `None` for NULL and for what is negative.
pub(super) fn number(row: &Row, column: usize) -> Option<u64> {
    match cell(row, column) {
        Cell::Number(number) if number == i128::from(i64::MIN) => Some(1 << 63),
        Cell::Number(number) => u64::try_from(number).ok(),
        _ => None,
    }
}
