//! Whether the rows of a table can be locked one by one, and are its own.

use crate::error::{Code, Error, Result};

use super::moved_table::{MovedTable, texts};
use super::shard::{Shard, ShardKind};
use super::sql::text_literal;

/// Refuses a table of a storage engine that locks no rows, and one whose reads have rows of other tables.
pub fn check_storage(shard: &mut Shard, table: &MovedTable) -> Result<()> {
    let question = match table.kind {
        ShardKind::MySql => format!(
            "SELECT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = {} AND ENGINE <> 'InnoDB'",
            text_literal(table.kind, &table.name)
        ),
        ShardKind::Postgres => format!(
            "SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = {}::pg_catalog.regclass AND NOT c.relispartition LIMIT 1",
            text_literal(table.kind, &table.quoted)
        ),
    };
    let found = texts(shard, &question)?;
    let Some(found) = found.first().and_then(|row| row.first()) else { return Ok(()) };
    let what = match table.kind {
        ShardKind::MySql => format!(
            "`{}` is kept by {found}, which locks no rows and rolls none back; ALTER TABLE {} ENGINE = InnoDB",
            table.name, table.quoted
        ),
        ShardKind::Postgres => format!(
            "`{found}` inherits from `{}`, and its rows would be copied into this one; ALTER TABLE makes them partitions, or NO INHERIT separates them",
            table.name
        ),
    };
    Err(Error::new(Code::StoreRefused, format!("{}: {what}", shard.at())))
}
