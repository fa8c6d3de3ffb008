//! The databases of `ddl` and `split`, and how names stand in their statements.

use clap::ValueEnum;
use keymill::{Error, Result};

/// The database that the table is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dialect {
    Mysql,
    Mariadb,
    Tidb,
    Postgres,
    Sqlite,
}

/// How TiDB keeps the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Variant {
    /// Rows lie in the order of the ids; for scattered ids
    Clustered,
    /// Rows lie in the order of a hidden number that TiDB spreads; for ids that rise
    Nonclustered,
    /// As nonclustered, and the id is text
    Text,
    /// TiDB makes the ids itself
    AutoRandom,
}

/// The name of a table, where a dot may stand between schema and table.
pub fn named(table: &str) -> Result<&str> {
    if table.split('.').any(|part| part.trim().is_empty()) {
        return Err(Error::argument("the table's name is empty: write TABLE or SCHEMA.TABLE"));
    }
    Ok(table)
}

/// The name between quotes; a dot separates the schema from the table.
pub fn quoted(table: &str, quote: char) -> String {
    let part = |name: &str| format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}")));
    table.split('.').map(part).collect::<Vec<_>>().join(".")
}
