//! Names of tables and sequences, as PostgreSQL takes them.

use crate::store::{Fault, FaultKind, rows};

/// A table's name stands in SQL as it is; a longer one would be cut in silence, and two tables be one.
pub(super) fn check_name(table: &str) -> Result<(), Fault> {
    rows::check_table_name(table)?;
    if table.len() < 64 {
        return Ok(());
    }
    Err(Fault::new(
        FaultKind::Refused,
        format!("`{table}` is longer than the 63 characters of a name in PostgreSQL"),
    ))
}
