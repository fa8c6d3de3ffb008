//! What a shard is asked of its tables, in front of a write and with one.

use crate::rows::ShardKind;

/// A session of MySQL may have been told how many rows an answer has at most (`sql_select_limit`). What a statement says goes before it.
pub(super) const ALL: &str = " LIMIT 18446744073709551615";

/// A question whose answer has every row.
pub(super) fn with_every_row(kind: ShardKind, question: String) -> String {
    if kind == ShardKind::MySql { question + ALL } else { question }
}

/// What tells that tables of PostgreSQL have changed: a sum of hashes of their columns, triggers and rules. It is the sum over the tables.
pub(super) fn signature(oids: &str) -> String {
    let sum = |what: &str, from: &str| {
        format!(
            "COALESCE((SELECT pg_catalog.sum(pg_catalog.hashtextextended(pg_catalog.concat_ws(' ', {what}), 0)) FROM pg_catalog.{from} IN ({oids})), 0)"
        )
    };
    format!(
        "({} + {} + {})::pg_catalog.text",
        sum(
            "a.attrelid, a.attnum, a.attname, a.atttypid, a.atttypmod, a.attidentity, a.attgenerated, a.attisdropped",
            "pg_attribute a WHERE a.attnum > 0 AND a.attrelid"
        ),
        sum("g.oid, g.tgenabled", "pg_trigger g WHERE NOT g.tgisinternal AND g.tgrelid"),
        sum("r.oid, r.ev_enabled", "pg_rewrite r WHERE r.ev_class")
    )
}
