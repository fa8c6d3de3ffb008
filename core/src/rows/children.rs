//! Rows that the database itself would delete or change where the rows of a move are removed.

use crate::error::{Code, Error, Result};

use super::Wording;
use super::moved_table::{MovedTable, texts};
use super::shard::{Shard, ShardKind};
use super::sql::text_literal;

/// The foreign keys to a table that delete or change the rows of others: the table, and the column that holds the table's key, if one does.
fn question(table: &MovedTable) -> String {
    let text = |text: &str| text_literal(table.kind, text);
    match table.kind {
        ShardKind::MySql => format!(
            "SELECT IF(rc.CONSTRAINT_SCHEMA = DATABASE(), rc.TABLE_NAME, CONCAT(rc.CONSTRAINT_SCHEMA, '.', rc.TABLE_NAME)), \
             COALESCE((SELECT MAX(k.COLUMN_NAME) FROM information_schema.KEY_COLUMN_USAGE k WHERE k.CONSTRAINT_SCHEMA = rc.CONSTRAINT_SCHEMA \
             AND k.CONSTRAINT_NAME = rc.CONSTRAINT_NAME AND k.TABLE_NAME = rc.TABLE_NAME AND k.REFERENCED_COLUMN_NAME = {}), '') \
             FROM information_schema.REFERENTIAL_CONSTRAINTS rc WHERE rc.UNIQUE_CONSTRAINT_SCHEMA = DATABASE() AND rc.REFERENCED_TABLE_NAME = {} \
             AND rc.DELETE_RULE NOT IN ('RESTRICT', 'NO ACTION')",
            text(table.key()),
            text(&table.name)
        ),
        ShardKind::Postgres => format!(
            "SELECT '\"' || replace(n.nspname, '\"', '\"\"') || '\".\"' || replace(t.relname, '\"', '\"\"') || '\"', \
             COALESCE((SELECT max(own.attname::text) FROM unnest(c.conkey, c.confkey) AS pair(own, other) \
             JOIN pg_catalog.pg_attribute own ON own.attrelid = c.conrelid AND own.attnum = pair.own \
             JOIN pg_catalog.pg_attribute other ON other.attrelid = c.confrelid AND other.attnum = pair.other \
             WHERE other.attname = {}), '') \
             FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class t ON t.oid = c.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace \
             WHERE c.contype = 'f' AND c.confdeltype IN ('c', 'n', 'd') AND c.confrelid = {}::pg_catalog.regclass",
            text(table.key()),
            text(&table.quoted)
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
    for child in texts(shard, &question(table))? {
        let [name, column] = &child[..] else { continue };
        let is_of = |of: &&&MovedTable| match table.kind {
            ShardKind::MySql => of.name == *name,
            ShardKind::Postgres => of.quoted == *name,
        };
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
