//! Rows that refer to rows of a move: those that the database itself would delete or change with them, and those that would stay behind.

use crate::error::{Code, Error, Result};

use super::Wording;
use super::moved_table::{MovedTable, texts};
use super::shard::{Shard, ShardKind};
use super::sql::text_literal;

/// The foreign keys to a table: the table that has one, the column that holds the table's key, if one does, and the foreign key's name.
/// `take_along`: those that delete or change rows with the ones to which they refer.
fn question(table: &MovedTable, take_along: bool) -> String {
    let text = |text: &str| text_literal(table.kind, text);
    match table.kind {
        ShardKind::MySql => format!(
            "SELECT IF(rc.CONSTRAINT_SCHEMA = DATABASE(), rc.TABLE_NAME, CONCAT(rc.CONSTRAINT_SCHEMA, '.', rc.TABLE_NAME)), \
             COALESCE((SELECT MAX(k.COLUMN_NAME) FROM information_schema.KEY_COLUMN_USAGE k WHERE k.CONSTRAINT_SCHEMA = rc.CONSTRAINT_SCHEMA \
             AND k.CONSTRAINT_NAME = rc.CONSTRAINT_NAME AND k.TABLE_NAME = rc.TABLE_NAME AND k.REFERENCED_COLUMN_NAME = {}), ''), rc.CONSTRAINT_NAME \
             FROM information_schema.REFERENTIAL_CONSTRAINTS rc WHERE rc.UNIQUE_CONSTRAINT_SCHEMA = DATABASE() AND rc.REFERENCED_TABLE_NAME = {} \
{}",
            text(table.key()),
            text(&table.name),
            if take_along { " AND rc.DELETE_RULE NOT IN ('RESTRICT', 'NO ACTION')" } else { "" }
        ),
        ShardKind::Postgres => format!(
            "SELECT '\"' || replace(n.nspname, '\"', '\"\"') || '\".\"' || replace(t.relname, '\"', '\"\"') || '\"', \
             COALESCE((SELECT max(own.attname::text) FROM unnest(c.conkey, c.confkey) AS pair(own, other) \
             JOIN pg_catalog.pg_attribute own ON own.attrelid = c.conrelid AND own.attnum = pair.own \
             JOIN pg_catalog.pg_attribute other ON other.attrelid = c.confrelid AND other.attnum = pair.other \
             WHERE other.attname = {}), ''), c.conname::pg_catalog.text \
             FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class t ON t.oid = c.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
             WHERE c.contype = 'f' AND c.confrelid = {}::pg_catalog.regclass AND c.conparentid = 0{}",
            text(table.key()),
            text(&table.quoted),
            if take_along { " AND c.confdeltype IN ('c', 'n', 'd')" } else { "" }
        ),
    }
}

/// Refuses a table whose rows take rows of another one with them, unless these are of the same ids and of a table that is removed first.
pub fn check_children(
    shard: &mut Shard,
    table: &MovedTable,
    before: &[&MovedTable],
    wording: Wording,
) -> Result<()> {
    for child in texts(shard, &question(table, true))? {
        let [name, column, _] = &child[..] else { continue };
        let is_of = |of: &&&MovedTable| is_named(of, name);
        if before.iter().find(is_of).is_some_and(|of| of.key() == column) {
            continue;
        }
        return Err(Error::new(
            Code::StoreRefused,
            format!(
                "{}: a row of `{}` that is removed takes rows of {name} with it (ON DELETE), which are not compared; name that table behind this one, with the column of the ids as its {}, or change its foreign key to RESTRICT",
                shard.at(),
                table.name,
                wording.option("key")
            ),
        ));
    }
    Ok(())
}

/// Whether the catalogue means this table.
fn is_named(table: &MovedTable, name: &str) -> bool {
    match table.kind {
        ShardKind::MySql => table.name == name,
        ShardKind::Postgres => table.quoted == name,
    }
}

/// Refuses a table to which rows of a table lead that is not one of `all`: they would be read without the rows to which they belong.
pub fn check_all_are_named(
    shard: &mut Shard,
    table: &MovedTable,
    all: &[MovedTable],
    wording: Wording,
) -> Result<()> {
    for child in texts(shard, &question(table, false))? {
        let [name, _, key] = &child[..] else { continue };
        if all.iter().any(|of| is_named(of, name)) {
            continue;
        }
        return Err(Error::new(
            Code::StoreRefused,
            format!(
                "{}: rows of {name} refer to rows of `{}` (`{key}`), and would stay behind; name that table too, with the column of the ids as its {}, or drop this foreign key",
                shard.at(),
                table.name,
                wording.option("key")
            ),
        ));
    }
    Ok(())
}
