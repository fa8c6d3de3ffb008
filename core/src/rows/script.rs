//! The statements that would be sent, for people who send them by other means.

use std::fmt::Write as _;

use super::Both;
use super::key::IdRange;
use super::moved_table::MovedTable;

/// What is on a line of its own behind the statement's values.
fn head(both: &Both<'_>, what: &str) -> String {
    let Both { from, to, old, .. } = both;
    format!("-- {what} of {}: the old shard is {}, the new one {}\n", old.quoted, from.at(), to.at())
}

fn on(shard: &str, statement: &str) -> String {
    format!("-- on the {shard} shard\n{statement};\n")
}

/// The values of an insert, as places for them.
fn insert(table: &MovedTable) -> String {
    let places = vec!["?"; table.columns.len()].join(", ");
    format!("{}({places}){}", table.insert(), table.unless_newer(">"))
}

/// A copy.
pub fn of_copy(both: &Both<'_>, ranges: &[IdRange]) -> String {
    let mut text = head(both, "Copy");
    for range in ranges {
        text.push_str(&on("old", &format!("{} ORDER BY {}", both.old.select(range), both.old.quoted_key())));
    }
    text.push_str(&on("new", &insert(&both.new)));
    text
}

/// A comparison.
pub fn of_verify(both: &Both<'_>, ranges: &[IdRange]) -> String {
    let mut text = head(both, "Comparison");
    for range in ranges {
        for (shard, table) in [("old", &both.old), ("new", &both.new)] {
            text.push_str(&on(shard, &table.checksum(range)));
        }
    }
    let _ = writeln!(text, "-- where those differ, row by row:");
    for range in ranges {
        for (shard, table) in [("old", &both.old), ("new", &both.new)] {
            text.push_str(&on(shard, &table.digests(&table.within(range))));
        }
    }
    text
}

/// What removes rows that the new shard has.
pub fn of_clean(both: &Both<'_>, ranges: &[IdRange]) -> String {
    let mut text = head(both, "Removal");
    text.push_str("-- only rows that the new shard has: compare them first with these\n");
    for range in ranges {
        for (shard, table) in [("old", &both.old), ("new", &both.new)] {
            text.push_str(&on(shard, &table.digests(&table.within(range))));
        }
        text.push_str(&on("old", &both.old.delete_within(range)));
    }
    text
}
