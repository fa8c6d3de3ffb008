//! Encodes values for statements and decodes columns of rows.

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};

use super::wire::Values;
use crate::store::model::value::{Cell, Value};

/// The type of a placeholder; the server converts to the column's type and refuses a value that does not fit.
pub(super) fn type_of(value: &Value) -> Type {
    match value {
        Value::Number(_) => Type::INT8,
        Value::Text(_) | Value::Null => Type::TEXT,
    }
}

pub(super) fn typed(values: &[Value]) -> Values<'_> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), type_of(value))).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        of: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Number(number) => number.cast_signed().to_sql(of, out),
            Value::Text(text) => text.to_sql(of, out),
            Value::Null => Ok(IsNull::Yes),
        }
    }

    fn accepts(of: &Type) -> bool {
        [Type::INT8, Type::TEXT].contains(of)
    }

    to_sql_checked!();
}

/// A column of any type.
struct Any(Cell);

impl<'a> FromSql<'a> for Any {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Any, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Any(match *of {
            Type::INT2 => Cell::Number(i16::from_sql(of, raw)?.into()),
            Type::INT4 => Cell::Number(i32::from_sql(of, raw)?.into()),
            Type::INT8 => Cell::Number(i64::from_sql(of, raw)?.into()),
            _ => match <&str>::from_sql(of, raw) {
                Ok(text) => Cell::Text(text.to_owned()),
                Err(_) => Cell::Text(format!("a value of type {of}")),
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

/// The columns of a row.
pub(super) fn cells(row: &Row) -> Vec<Cell> {
    let cell = |column| {
        row.try_get::<_, Any>(column).map_or_else(|error| Cell::Text(error.to_string()), |any| any.0)
    };
    (0..row.len()).map(cell).collect()
}
