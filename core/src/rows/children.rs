//! Rows that refer to rows of a move: those that the database itself would delete or change with them, and those that would stay behind.

use crate::error::{Code, Error, Result};

use super::Wording;
use super::literals::text_literal;
use super::moved_table::{MovedTable, texts};
use super::shard::{Shard, ShardKind};

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
        // A foreign key may lead to a partition. What stands here has its schema: programs ask it too.
        ShardKind::Postgres => {
            let table_oid = format!("{}::pg_catalog.regclass", text(&table.quoted));
            format!(
                "SELECT pg_catalog.concat('\"', pg_catalog.replace(n.nspname::pg_catalog.text, '\"', '\"\"'), '\".\"', pg_catalog.replace(t.relname::pg_catalog.text, '\"', '\"\"'), '\"'), \
                 COALESCE((SELECT pg_catalog.max(own.attname::pg_catalog.text) FROM ROWS FROM (pg_catalog.unnest(c.conkey), pg_catalog.unnest(c.confkey)) AS pair(own, other) \
                 JOIN pg_catalog.pg_attribute own ON own.attrelid = c.conrelid AND own.attnum = pair.own \
                 JOIN pg_catalog.pg_attribute other ON other.attrelid = c.confrelid AND other.attnum = pair.other \
                 WHERE other.attname = {}), ''), c.conname::pg_catalog.text \
                 FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class t ON t.oid = c.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
                 WHERE c.contype = 'f' AND c.conparentid = 0 AND (c.confrelid = {table_oid} OR c.confrelid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree({table_oid}) p)){}",
                text(table.key()),
                if take_along { " AND c.confdeltype IN ('c', 'n', 'd')" } else { "" }
            )
        }
    }
}

/// What a server does to other rows when a row of a table is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenAlong {
    /// Rows of the same id, in a table that is named.
    pub(crate) takes_own: bool,
    /// A table whose rows of other ids go too, or change.
    pub(crate) others: Option<String>,
}

/// Asks for [`TakenAlong`].
pub(crate) fn ask_taken_along(table: &MovedTable) -> String {
    question(table, true)
}

/// The answer to [`ask_taken_along`], where all tables of the move are these.
pub(crate) fn taken_along<'t>(
    children: &[Vec<String>],
    named: impl Iterator<Item = &'t MovedTable> + Clone,
) -> TakenAlong {
    let mut along = TakenAlong::default();
    for child in children {
        let [name, column, ..] = &child[..] else { continue };
        if has_the_ids(named.clone(), name, column) {
            along.takes_own = true;
        } else {
            along.others = Some(name.clone());
        }
    }
    along
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
        if has_the_ids(before.iter().copied(), name, column) {
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

/// Whether a table of this name is among these, and the column, which holds the ids of the parent, holds its own.
fn has_the_ids<'t>(mut tables: impl Iterator<Item = &'t MovedTable>, name: &str, column: &str) -> bool {
    tables.any(|table| is_named(table, name) && table.key() == column)
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
        if all.iter().any(|table| is_named(table, name)) {
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
