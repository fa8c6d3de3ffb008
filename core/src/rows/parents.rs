//! The order in which rows are copied: those to which foreign keys lead come first.

use crate::error::{Code, Error, Result};

use super::literals::text_literal;
use super::moved_table::{MovedTable, texts};
use super::shard::{Shard, ShardKind};

/// The foreign keys of a table: the table to which each leads, and its name.
fn question(table: &MovedTable) -> String {
    match table.kind {
        ShardKind::MySql => format!(
            "SELECT REFERENCED_TABLE_NAME, CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS \
             WHERE CONSTRAINT_SCHEMA = DATABASE() AND UNIQUE_CONSTRAINT_SCHEMA = DATABASE() AND TABLE_NAME = {}",
            text_literal(table.kind, &table.name)
        ),
        ShardKind::Postgres => format!(
            "SELECT '\"' || replace(n.nspname, '\"', '\"\"') || '\".\"' || replace(t.relname, '\"', '\"\"') || '\"', c.conname::pg_catalog.text \
             FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class t ON t.oid = c.confrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
             WHERE c.contype = 'f' AND c.conrelid = {}::pg_catalog.regclass",
            text_literal(table.kind, &table.quoted)
        ),
    }
}

/// Refuses a table of the new shard whose rows refer to rows that are copied later.
pub fn check_parents(shard: &mut Shard, table: &MovedTable, later: &[&MovedTable]) -> Result<()> {
    for parent in texts(shard, &question(table))? {
        let [name, key] = &parent[..] else { continue };
        let is_parent = |candidate: &&MovedTable| match table.kind {
            ShardKind::MySql => candidate.name == *name,
            ShardKind::Postgres => candidate.quoted == *name,
        };
        let what = if is_parent(&table) {
            format!(
                "`{}` refers to itself (`{key}`), and a row may be copied before the one that it refers to; drop this foreign key in the new shard, and add it again after the move",
                table.name
            )
        } else if let Some(parent) = later.iter().copied().find(is_parent) {
            format!(
                "rows of `{}` refer to rows of `{}` (`{key}`), which would be copied later; name that table first",
                table.name, parent.name
            )
        } else {
            continue;
        };
        return Err(Error::new(Code::StoreRefused, format!("{}: {what}", shard.at())));
    }
    Ok(())
}
