//! The order in which rows are copied: those to which foreign keys lead come first.

use crate::error::{Code, Error, Result};

use super::literals::text_literal;
use super::moved_table::{MovedTable, texts};
use super::shard::{Shard, ShardKind};

/// What a foreign key did that is dropped in the new shard. A write carries over what it does to the rows of its own id only.
pub const WITHOUT_KEY: &str = "if it deletes or changes rows of other ids (ON DELETE, ON UPDATE), programs have to do that themselves until the move is over, in a write of each of these ids";

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

/// Whether a foreign key leads to the table.
fn leads_to(table: &MovedTable, key: &[String]) -> bool {
    let name = match table.kind {
        ShardKind::MySql => &table.name,
        ShardKind::Postgres => &table.quoted,
    };
    key.first() == Some(name)
}

/// Whether foreign keys lead from a table to another one, also through tables that are copied later.
fn lead(shard: &mut Shard, from: &MovedTable, to: &MovedTable, later: &[&MovedTable]) -> Result<bool> {
    let (mut open, mut left) = (vec![from], later.to_vec());
    while let Some(table) = open.pop() {
        let keys = texts(shard, &question(table))?;
        if keys.iter().any(|key| leads_to(to, key)) {
            return Ok(true);
        }
        let is_next = |candidate: &&MovedTable| keys.iter().any(|key| leads_to(candidate, key));
        open.extend(left.iter().copied().filter(is_next));
        left.retain(|candidate| !is_next(candidate));
    }
    Ok(false)
}

/// Refuses a table of the new shard whose rows refer to rows that are copied later.
pub fn check_parents(shard: &mut Shard, table: &MovedTable, later: &[&MovedTable]) -> Result<()> {
    let drop =
        format!("drop this foreign key in the new shard, and add it again after the move; {WITHOUT_KEY}");
    for key in texts(shard, &question(table))? {
        let Some(name) = key.get(1) else { continue };
        let what = if leads_to(table, &key) {
            format!(
                "`{}` refers to itself (`{name}`), and a row may be copied before the row that it refers to; {drop}",
                table.name
            )
        } else if let Some(parent) = later.iter().copied().find(|candidate| leads_to(candidate, &key)) {
            let refers = format!(
                "rows of `{}` refer to rows of `{}` (`{name}`), which would be copied later",
                table.name, parent.name
            );
            if lead(shard, parent, table, later)? {
                format!("{refers}, and foreign keys lead from there back to `{}`; {drop}", table.name)
            } else {
                format!("{refers}; name that table first")
            }
        } else {
            continue;
        };
        return Err(Error::new(Code::StoreRefused, format!("{}: {what}", shard.at())));
    }
    Ok(())
}
