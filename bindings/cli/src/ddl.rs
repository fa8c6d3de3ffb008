//! `ddl`: a table whose key is a source's ids, to begin with.

use clap::ValueEnum;
use keymill::scatter::Scatter;
use keymill::{Error, Kind, Result, Source};
use serde_json::json;

use crate::print;

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

/// Prints the statements.
pub fn table(
    source: &Source,
    name: Option<&str>,
    dialect: Dialect,
    variant: Option<Variant>,
    json: bool,
) -> Result<()> {
    let own = source.label().split_once(':').map_or("", |(_, name)| name.split('/').next().unwrap_or(name));
    let statements = statements(source, named(name.unwrap_or(own))?, dialect, variant)?;
    if json {
        return print::json(&json!({ "source": source.label(), "statements": statements }));
    }
    let lines = statements.iter().map(|statement| {
        let end = if statement.starts_with("--") { "" } else { ";" };
        format!("{statement}{end}\n")
    });
    print::text(&lines.collect::<String>())
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

fn statements(
    source: &Source,
    name: &str,
    dialect: Dialect,
    variant: Option<Variant>,
) -> Result<Vec<String>> {
    if variant.is_some() && dialect != Dialect::Tidb {
        return Err(Error::argument(
            "--variant is for --dialect tidb: the other databases keep rows in one way",
        ));
    }
    let is_text = source.kind() == Kind::Serial;
    if is_text && matches!(variant, Some(Variant::Clustered | Variant::AutoRandom)) {
        return Err(Error::argument(format!(
            "`{}` makes texts: valid are --variant nonclustered and text",
            source.label()
        )));
    }
    let scattered = source.layout().is_some_and(|layout| layout.scatter() != Scatter::None);
    // An id of a key begins with the key's gene, so ids of one moment are spread.
    let by_gene = source.kind() == Kind::Business;
    let is_wide = source.settings().iter().any(|(name, value)| *name == "wide" && value == "on");
    if is_wide && matches!(variant, Some(Variant::Text | Variant::AutoRandom)) {
        return Err(Error::argument(format!(
            "ids of `{}` have 128 bits, 16 bytes: valid are --variant clustered and nonclustered",
            source.label()
        )));
    }
    let default = match (scattered || by_gene, is_text) {
        (true, _) => Variant::Clustered,
        (false, true) => Variant::Text,
        (false, false) => Variant::Nonclustered,
    };
    let text = |digits: usize| format!("VARCHAR({digits})");
    let id = match (is_text, is_wide) {
        (true, _) => text(source.text_len()),
        (false, true) => "VARBINARY(16)".to_owned(),
        (false, false) => "BIGINT".to_owned(),
    };
    let table = |quote: char, id: &str, key: &str, created: &str, end: &str| {
        let name = quoted(name, quote);
        format!("CREATE TABLE {name} (\n  id {id} NOT NULL{key},\n  created_at {created}\n){end}")
    };
    let on_tidb = |id: &str, how: &str, end: &str| {
        table(
            '`',
            id,
            &format!(" PRIMARY KEY {how}"),
            "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)",
            end,
        )
    };
    // 16 regions; a table of few writes needs none.
    let shards = " SHARD_ROW_ID_BITS = 4 PRE_SPLIT_REGIONS = 4";
    // A setting of sessions in new servers, and of the whole server before TiDB 8.
    let wait = "-- The new regions are on one server until TiDB moves them. `SET SESSION tidb_scatter_region = 'table'` before this moves them at once;\n-- a TiDB that calls this a GLOBAL variable has `SET GLOBAL tidb_scatter_region = ON`, for all sessions."
        .to_owned();
    Ok(match dialect {
        Dialect::Mysql | Dialect::Mariadb => {
            vec![table('`', &id, " PRIMARY KEY", "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", "")]
        }
        Dialect::Postgres => {
            let id = match (is_text, is_wide) {
                (true, _) => id,
                (false, true) => "bytea".to_owned(),
                (false, false) => "bigint".to_owned(),
            };
            vec![table('"', &id, " PRIMARY KEY", "timestamptz(3) NOT NULL DEFAULT now()", "")]
        }
        Dialect::Sqlite => {
            let id = match (is_text, is_wide) {
                (true, _) => "TEXT",
                (false, true) => "BLOB",
                (false, false) => "INTEGER",
            };
            vec![table('"', id, " PRIMARY KEY", "TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP", "")]
        }
        Dialect::Tidb => match variant.unwrap_or(default) {
            Variant::Clustered if scattered => vec![
                "-- `keymill split-sql` prints the statements that make its regions.".to_owned(),
                on_tidb(&id, "CLUSTERED", ""),
            ],
            Variant::Clustered if by_gene => vec![
                "-- An id begins with the gene of its key: rows of one key are neighbours, those of different keys are spread.".to_owned(),
                on_tidb(&id, "CLUSTERED", ""),
            ],
            Variant::Clustered => vec![
                "-- These ids rise: all new rows go to one region. Open the source with scatter=1, or take another variant.".to_owned(),
                on_tidb(&id, "CLUSTERED", ""),
            ],
            Variant::Nonclustered => vec![
                "-- Rows are spread; the primary key is an index of its own, which has one hot region where ids rise.".to_owned(),
                wait,
                on_tidb(&id, "NONCLUSTERED", shards),
            ],
            Variant::Text => vec![
                "-- Rows are spread; the primary key is an index of its own, which has one hot region where ids rise.".to_owned(),
                wait,
                on_tidb(&text(source.text_len()), "NONCLUSTERED", shards),
            ],
            Variant::AutoRandom => vec![
                "-- TiDB makes these ids: leave the column out of INSERT. They are not the source's, and no other database has them."
                    .to_owned(),
                on_tidb("BIGINT", "CLUSTERED AUTO_RANDOM(5)", ""),
            ],
        },
    })
}
