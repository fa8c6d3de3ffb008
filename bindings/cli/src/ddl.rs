//! `ddl`: a table whose key is a source's ids, to begin with.

use keymill::scatter::Scatter;
use keymill::{Error, Kind, Result, Source};
use serde_json::json;

use crate::dialect::{Dialect, Variant, named, quoted};
use crate::{order_table, print};

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

/// What decides the columns of a table.
struct Ids {
    is_text: bool,
    /// 16 bytes.
    is_wide: bool,
    scattered: bool,
    /// An id of a key begins with the key's gene.
    by_gene: bool,
    text_len: usize,
}

impl Ids {
    fn of(source: &Source) -> Ids {
        Ids {
            is_text: source.kind() == Kind::Serial,
            is_wide: source.settings().iter().any(|(name, value)| *name == "wide" && value == "on"),
            scattered: source.layout().is_some_and(|layout| layout.scatter() != Scatter::None),
            by_gene: source.kind() == Kind::Business,
            text_len: source.text_len(),
        }
    }

    /// The type of the id's column: for texts and for numbers.
    fn column(&self, text: &str, number: &str) -> String {
        if self.is_text { text } else { number }.to_owned()
    }

    fn varchar(&self) -> String {
        format!("VARCHAR({})", self.text_len)
    }

    /// The type on MySQL, MariaDB and TiDB.
    fn mysql_column(&self) -> String {
        self.column(&self.varchar(), "BIGINT")
    }
}

fn check_variant(source: &Source, ids: &Ids, dialect: Dialect, variant: Option<Variant>) -> Result<()> {
    if variant.is_some() && dialect != Dialect::Tidb {
        return Err(Error::argument(
            "--variant is for --dialect tidb: the other databases keep rows in one way",
        ));
    }
    if ids.is_text && matches!(variant, Some(Variant::Clustered | Variant::AutoRandom)) {
        return Err(Error::argument(format!(
            "`{}` makes texts: valid are --variant nonclustered and text",
            source.label()
        )));
    }
    if ids.by_gene && matches!(variant, Some(Variant::Text | Variant::AutoRandom)) {
        return Err(Error::argument(format!(
            "ids of `{}` are numbers that begin with a gene: valid are --variant clustered and nonclustered",
            source.label()
        )));
    }
    Ok(())
}

/// `key` follows the type of the id, and `end` the columns.
fn create_table(name: &str, quote: char, id: &str, key: &str, created: &str, end: &str) -> String {
    let name = quoted(name, quote);
    format!("CREATE TABLE {name} (\n  id {id} NOT NULL{key},\n  created_at {created}\n){end}")
}

const MYSQL_CREATED: &str = "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)";

fn statements(
    source: &Source,
    name: &str,
    dialect: Dialect,
    variant: Option<Variant>,
) -> Result<Vec<String>> {
    let ids = Ids::of(source);
    check_variant(source, &ids, dialect, variant)?;
    if ids.by_gene {
        return Ok(order_table::statements(name, dialect, ids.is_wide, variant));
    }
    let table = |quote, id: &str, created| create_table(name, quote, id, " PRIMARY KEY", created, "");
    Ok(match dialect {
        Dialect::Mysql | Dialect::Mariadb => vec![table('`', &ids.mysql_column(), MYSQL_CREATED)],
        Dialect::Postgres => {
            let id = ids.column(&ids.varchar(), "bigint");
            vec![table('"', &id, "timestamptz(3) NOT NULL DEFAULT now()")]
        }
        Dialect::Sqlite => {
            let id = ids.column("TEXT", "INTEGER");
            vec![table('"', &id, "TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP")]
        }
        Dialect::Tidb => tidb_statements(&ids, name, variant),
    })
}

fn tidb_statements(ids: &Ids, name: &str, variant: Option<Variant>) -> Vec<String> {
    let default = match (ids.scattered, ids.is_text) {
        (true, _) => Variant::Clustered,
        (false, true) => Variant::Text,
        (false, false) => Variant::Nonclustered,
    };
    let table = |id: &str, how: &str, end: &str| {
        create_table(name, '`', id, &format!(" PRIMARY KEY {how}"), MYSQL_CREATED, end)
    };
    let spread = |id: &str| {
        vec![
            "-- Rows are spread; the primary key is an index of its own, which has one hot region where ids rise.".to_owned(),
            // A setting of sessions in new servers, and of the whole server before TiDB 8.
            "-- The new regions are on one server until TiDB moves them. `SET SESSION tidb_scatter_region = 'table'` before this moves them at once;\n-- a TiDB that calls this a GLOBAL variable has `SET GLOBAL tidb_scatter_region = ON`, for all sessions."
                .to_owned(),
            // 16 regions; a table of few writes needs none.
            table(id, "NONCLUSTERED", " SHARD_ROW_ID_BITS = 4 PRE_SPLIT_REGIONS = 4"),
        ]
    };
    match variant.unwrap_or(default) {
        Variant::Clustered => {
            let note = if ids.scattered {
                "-- `keymill split-sql` prints the statements that make its regions."
            } else {
                "-- These ids rise: all new rows go to one region. Open the source with scatter=1, or take another variant."
            };
            vec![note.to_owned(), table(&ids.mysql_column(), "CLUSTERED", "")]
        }
        Variant::Nonclustered => spread(&ids.mysql_column()),
        Variant::Text => spread(&ids.varchar()),
        Variant::AutoRandom => vec![
            "-- TiDB makes these ids: leave the column out of INSERT. They are not the source's, and no other database has them."
                .to_owned(),
            table("BIGINT", "CLUSTERED AUTO_RANDOM(5)", ""),
        ],
    }
}
