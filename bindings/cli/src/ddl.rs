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
    let statements = statements(source, name.unwrap_or(own), dialect, variant)?;
    if json {
        return print::json(&json!({ "source": source.label(), "statements": statements }));
    }
    let lines = statements.iter().map(|statement| {
        let end = if statement.starts_with("--") { "" } else { ";" };
        format!("{statement}{end}\n")
    });
    print::text(&lines.collect::<String>())
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
    let default = match (scattered, is_text) {
        (true, _) => Variant::Clustered,
        (false, true) => Variant::Text,
        (false, false) => Variant::Nonclustered,
    };
    let text = |digits: usize| format!("VARCHAR({digits})");
    let id = if is_text { text(source.text_len()) } else { "BIGINT".to_owned() };
    let table = |quote: char, id: &str, key: &str, created: &str, end: &str| {
        let quote_in =
            |name: &str| format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}")));
        let name = name.split('.').map(quote_in).collect::<Vec<_>>().join(".");
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
    let wait = "SET SESSION tidb_scatter_region = 'table'".to_owned();
    Ok(match dialect {
        Dialect::Mysql | Dialect::Mariadb => {
            vec![table('`', &id, " PRIMARY KEY", "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)", "")]
        }
        Dialect::Postgres => {
            let id = if is_text { id } else { "bigint".to_owned() };
            vec![table('"', &id, " PRIMARY KEY", "timestamptz(3) NOT NULL DEFAULT now()", "")]
        }
        Dialect::Sqlite => {
            let id = if is_text { "TEXT" } else { "INTEGER" };
            vec![table('"', id, " PRIMARY KEY", "TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP", "")]
        }
        Dialect::Tidb => match variant.unwrap_or(default) {
            Variant::Clustered if scattered => vec![
                "-- `keymill split-sql` prints the statements that make its regions.".to_owned(),
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
