//! The differences between databases that are data: names, types, limits, DDL.

use crate::request::scheme::{Family, Kept, Touched};
use crate::store::model::rows;
use crate::store::{Fault, FaultKind, Key};

/// A database product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    MariaDb,
    MySql,
    TiDb,
    Postgres,
    Sqlite,
}

impl Dialect {
    /// As `status` shows it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Dialect::MariaDb => "mariadb",
            Dialect::MySql => "mysql",
            Dialect::TiDb => "tidb",
            Dialect::Postgres => "postgresql",
            Dialect::Sqlite => "sqlite",
        }
    }

    pub(crate) const fn family(self) -> Family {
        match self {
            Dialect::MariaDb | Dialect::MySql | Dialect::TiDb => Family::MySql,
            Dialect::Postgres => Family::Postgres,
            Dialect::Sqlite => Family::Sqlite,
        }
    }

    /// Whether one statement can reserve and commit by itself.
    ///
    /// TiDB: `LAST_INSERT_ID(expr)` may carry the value of an attempt that was rolled back (pingcap/tidb #69796), so every
    /// reservation there is an explicit transaction. SQLite: a transaction is no round trip.
    pub(crate) const fn has_conditional_add(self) -> bool {
        matches!(self, Dialect::MariaDb | Dialect::MySql | Dialect::Postgres)
    }

    /// Whether a missing table is created by the first reservation from it. On a server an administrator does that.
    pub(crate) const fn creates_tables(self) -> bool {
        matches!(self, Dialect::Sqlite)
    }

    /// Whether a failed statement leaves the rest of its transaction intact.
    pub(crate) const fn goes_on_after_errors(self) -> bool {
        matches!(self, Dialect::Sqlite)
    }

    /// How many characters a table's name may have.
    const fn longest_name(self) -> usize {
        match self.family() {
            Family::Postgres => 63,
            Family::MySql | Family::Sqlite => 64,
        }
    }

    /// The present moment in the format of this kind of column.
    pub(crate) const fn now(self, touched: Touched) -> &'static str {
        match self.family() {
            _ if !touched.in_seconds => "CURRENT_TIMESTAMP",
            Family::MySql => "UNIX_TIMESTAMP()",
            Family::Sqlite => "CAST(strftime('%s', 'now') AS INTEGER)",
            Family::Postgres => "CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) AS BIGINT)",
        }
    }

    /// The seconds since the moment in a column.
    pub(crate) fn age(self, column: &str, touched: Touched) -> String {
        let since = match self.family() {
            _ if touched.in_seconds => format!("`{column}`"),
            Family::MySql => return format!("TIMESTAMPDIFF(SECOND, `{column}`, CURRENT_TIMESTAMP)"),
            Family::Postgres => {
                return format!("CAST(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP - `{column}`) AS BIGINT)");
            }
            Family::Sqlite => format!("CAST(strftime('%s', `{column}`) AS INTEGER)"),
        };
        format!("{} - {since}", self.now(Touched { in_seconds: true, ..touched }))
    }

    /// The end of a query inside a transaction that has to see commits of others since it began.
    pub(crate) const fn as_committed(self) -> &'static str {
        match self.family() {
            Family::MySql => " FOR UPDATE",
            Family::Postgres | Family::Sqlite => "",
        }
    }

    /// Refuses schemes that this database does not support.
    pub(crate) fn check_kept(self, key: &Key) -> Result<(), Fault> {
        match (self, key.scheme.kept()) {
            (Dialect::MySql, Kept::Sequence) => {
                Err(Fault::new(FaultKind::Refused, "MySQL has no sequences; use `scheme=keymill`"))
            }
            (Dialect::MariaDb, Kept::Sequence) if !key.unsafe_on => Err(Fault::new(
                FaultKind::Unsafe,
                "MariaDB hands out values of a sequence again after a crash (MDEV-36288), so numbers would come twice; use `scheme=keymill`, with `start=` above every id of this source that was issued, or `unsafe=on` accepts that",
            )),
            _ if key.scheme.create(self.family()).is_none() => rows::check_kept_here(key),
            _ => Ok(()),
        }
    }

    /// Checks a table's name, which appears in SQL as it is. A name that is too long would be cut silently, and two tables
    /// would become one.
    pub(crate) fn check_name(self, table: &str) -> Result<(), Fault> {
        rows::check_table_name(table)?;
        if table.len() <= self.longest_name() {
            return Ok(());
        }
        Err(Fault::new(
            FaultKind::Refused,
            format!(
                "`{table}` is longer than the {} characters of a name in PostgreSQL",
                self.longest_name()
            ),
        ))
    }
}

/// The statement that creates the table of a key; empty if the family of databases does not support its scheme.
///
/// The scheme's file has the authors' names and a step of 1000, or of 50 where the programs say theirs. This replaces them with
/// the key's; a renamed column is quoted, because it may be any word. `schema` is written on databases that have schemas. keymill's own
/// tables record which version made them.
pub(crate) fn create_statement(key: &Key, family: Family, schema: Option<&str>) -> String {
    let quote = if family == Family::Postgres { '"' } else { '`' };
    let folded = |name: &str| match family {
        Family::Postgres => name.to_ascii_lowercase(),
        Family::MySql | Family::Sqlite => name.to_owned(),
    };
    let renamed = |word: &str| {
        let column = key.scheme.renamable().into_iter().find(|column| column.eq_ignore_ascii_case(word))?;
        Some(key.columns.own(column)).filter(|own| *own != column).map(folded)
    };
    let step = if key.scheme.keeps_allocation() { "50" } else { "1000" };
    let text = key.scheme.create(family).unwrap_or_default().replace("VERSION", env!("CARGO_PKG_VERSION"));
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text.trim_end().trim_end_matches(';');
    while let Some(first) = rest.chars().next() {
        let end = |pattern: &str| rest.find(pattern).map_or(rest.len(), |at| at + pattern.len());
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let token = match first {
            '-' if rest.starts_with("--") => &rest[..end("\n")],
            '/' if rest.starts_with("/*") => &rest[..end("*/")],
            '\'' | '`' | '"' => &rest[..rest[1..].find(first).map_or(rest.len(), |at| at + 2)],
            _ if is_word(first) => &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())],
            _ => &rest[..first.len_utf8()],
        };
        rest = &rest[token.len()..];
        let name = token.trim_matches(['`', '"']);
        match first {
            '`' | '"' if name == key.scheme.default_table() => {
                if let Some(schema) = schema {
                    out.push_str(&format!(
                        "{first}{}{first}.",
                        schema.replace(first, &format!("{first}{first}"))
                    ));
                }
                out.push_str(&format!("{first}{}{first}", folded(&key.table)));
            }
            '`' | '"' => out.push_str(&format!("{first}{}{first}", renamed(name).as_deref().unwrap_or(name))),
            '\'' if key.scheme.is_ticket() => {
                out.push_str(&token.replace(&recorded_step(step), &recorded_step(key.step)));
            }
            _ if token == step && key.scheme.is_ticket() => out.push_str(&key.step.to_string()),
            _ if is_word(first) => match renamed(token) {
                Some(own) => out.push_str(&format!("{quote}{own}{quote}")),
                None => out.push_str(token),
            },
            _ => out.push_str(token),
        }
    }
    out
}

/// The comment of a sequence, or of a table of tickets, that `init` makes: an altered step is seen by it.
fn recorded_step(step: impl std::fmt::Display) -> String {
    format!("step={step}")
}

/// The step that a comment records.
pub(crate) fn step_of(comment: &str) -> Option<u64> {
    comment.strip_prefix(&recorded_step(""))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;
    use crate::store::Scheme;

    fn key(spec: &str) -> std::sync::Arc<Key> {
        MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec").key
    }

    /// A spec of this scheme.
    fn spec(scheme: Scheme) -> String {
        let source = if scheme.keeps_segments() { "segment:orders" } else { "serial:x/y" };
        let allocation = if scheme.keeps_allocation() { "&allocation=50" } else { "" };
        format!("{source}?scheme={}{allocation}", scheme.name())
    }

    const FAMILIES: [Family; 3] = [Family::MySql, Family::Postgres, Family::Sqlite];

    #[test]
    fn a_file_is_the_statement_of_a_source_without_options() {
        for scheme in Scheme::ALL {
            let key = key(&spec(scheme));
            for family in FAMILIES {
                let file = scheme.create(family).unwrap_or_default();
                // PostgreSQL folds names that have no quotes, so keymill writes all of its tables' names in lower case.
                assert_eq!(
                    create_statement(&key, family, None),
                    file.replace("VERSION", env!("CARGO_PKG_VERSION")).trim_end().trim_end_matches(';'),
                    "the {family:?} file of {scheme}"
                );
            }
        }
    }

    /// A shorter column would cut a name or refuse it; a longer one holds names that keymill refuses.
    #[test]
    fn the_column_of_the_name_is_as_wide_as_the_scheme_says() {
        for scheme in Scheme::ALL {
            let Some(columns) = scheme.counter() else { continue };
            let declared = format!("{} varchar({}) ", columns.name, columns.name_width);
            for family in FAMILIES {
                let file = scheme.create(family).unwrap_or_default();
                let plain = file.replace('`', "").to_lowercase();
                let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(
                    plain.contains(&declared),
                    "`{declared}` is not in the {family:?} statement:\n{file}"
                );
            }
        }
    }

    /// A column that nothing sets would say for ever that the row was changed when it was made.
    #[test]
    fn the_time_of_a_change_is_set_by_the_table_or_by_keymills_statements() {
        for scheme in Scheme::ALL {
            let Some(touched) = scheme.touched() else { continue };
            for family in FAMILIES {
                // Tables of KeyFactory on PostgreSQL may lack the column, and no statement names it there.
                if (scheme, family) == (Scheme::KeyProducer, Family::Postgres) {
                    continue;
                }
                let file = scheme.create(family).unwrap_or_default();
                let by_table =
                    file.lines().any(|line| line.contains(touched.column) && line.contains("ON UPDATE"));
                assert!(
                    by_table || touched.set_on.contains(&family),
                    "{scheme}, {family:?}: {}",
                    touched.column
                );
            }
        }
    }

    /// The shape of a table is checked against the scheme, also when it was just made.
    #[cfg(feature = "sqlite")]
    #[test]
    fn a_table_that_sqlite_makes_from_the_file_has_the_shape_of_its_scheme() -> std::io::Result<()> {
        use crate::store::Catalogue as _;
        use crate::store::sqlite::{SqliteOptions, SqliteStore};

        let folder = tempfile::tempdir()?;
        for scheme in Scheme::ALL.into_iter().filter(|scheme| scheme.create(Family::Sqlite).is_some()) {
            let mut store = SqliteStore::new(folder.path().join("ids.db"), SqliteOptions::default());
            let made = store.init(&[key(&spec(scheme))], false);
            made.unwrap_or_else(|fault| panic!("ddl/{scheme}.sqlite.sql: {fault}"));
        }
        Ok(())
    }

    #[test]
    fn every_renamed_column_the_table_and_the_step_take_their_place() {
        for scheme in Scheme::ALL.into_iter().filter(|scheme| !scheme.renamable().is_empty()) {
            let columns: Vec<_> =
                scheme.renamable().iter().map(|column| format!("{column}:Own_{column}")).collect();
            let key = key(&format!("{}&table=Shop&columns={}", spec(scheme), columns.join(",")));
            for family in FAMILIES {
                let sql = create_statement(&key, family, None);
                let fold = |name: &str| {
                    if family == Family::Postgres { name.to_lowercase() } else { name.to_owned() }
                };
                assert!(sql.contains(&fold("Shop")), "{sql}");
                for column in scheme.renamable().into_iter().chain([scheme.default_table()]) {
                    let own = if column == scheme.default_table() {
                        "Shop".to_owned()
                    } else {
                        format!("Own_{column}")
                    };
                    let own = fold(&own);
                    assert!(
                        [format!("`{own}`"), format!("\"{own}\"")].iter().any(|own| sql.contains(own)),
                        "{sql}"
                    );
                    // Comments keep the authors' names of columns.
                    let lines = sql.lines().filter_map(|line| line.split("--").next());
                    let words: String = lines.flat_map(|line| line.split('\'').step_by(2)).collect();
                    let mut words = words.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                    assert!(words.all(|word| word != column), "{column}: {sql}");
                }
            }
        }
        let tickets = create_statement(&key("segment:x?scheme=ticket&step=77"), Family::MySql, None);
        assert!(tickets.contains("DEFAULT 77") && tickets.contains("= 77)") && !tickets.contains("1000"));
        let placed = create_statement(&key("segment:x"), Family::Postgres, Some("My \"Own\""));
        assert!(placed.contains("EXISTS \"My \"\"Own\"\"\".\"keymill_segment\" ("), "{placed}");
    }
}
