//! Whether the rows of a table can be locked one by one, and are its own.

use crate::error::{Code, Error, Result};

use super::literals::text_literal;
use super::moved_table::{MovedTable, texts};
use super::shard::{Shard, ShardKind};

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
    Err(refused_storage(table.kind, &shard.at(), &table.name, &table.quoted, found))
}

/// The refusal of such a table: `fault` is its storage engine, or the table that inherits from it.
pub fn refused_storage(kind: ShardKind, at: &str, name: &str, quoted: &str, fault: &str) -> Error {
    let what = match kind {
        ShardKind::MySql => format!(
            "`{name}` is kept by {fault}, which locks no rows and rolls none back; ALTER TABLE {quoted} ENGINE = InnoDB"
        ),
        ShardKind::Postgres => format!(
            "`{fault}` inherits from `{name}`, whose reads have its rows too; ALTER TABLE makes them partitions, or NO INHERIT separates them"
        ),
    };
    Error::new(Code::StoreRefused, format!("{at}: {what}"))
}

/// Refuses a primary key that a commit checks: PostgreSQL finds no row by it where one is inserted or replaced.
pub fn check_key(shard: &mut Shard, table: &MovedTable) -> Result<()> {
    if table.kind != ShardKind::Postgres {
        return Ok(());
    }
    let question = format!(
        "SELECT c.relname::pg_catalog.text FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = {}::pg_catalog.regclass AND i.indisprimary AND NOT i.indimmediate",
        text_literal(table.kind, &table.quoted)
    );
    let found = texts(shard, &question)?;
    let Some(key) = found.first().and_then(|row| row.first()) else { return Ok(()) };
    Err(Error::new(
        Code::StoreRefused,
        format!(
            "{}: the primary key of `{}` (`{key}`) is DEFERRABLE, and PostgreSQL replaces no row by such a key; drop it in the new shard, and add it there without DEFERRABLE until the move is over",
            shard.at(),
            table.name
        ),
    ))
}
