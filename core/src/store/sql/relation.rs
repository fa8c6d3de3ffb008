//! Checks tables against their schemes, and creates missing ones.

use std::sync::Arc;

use crate::error::shown;
use crate::request::row_key::READER_TABLE;
use crate::request::scheme::{Family, Kept};
use crate::store::model::row_layout::RowLayout;
use crate::store::model::rows;
use crate::store::{Absence, Fault, FaultKind, Key, Remedy, Scheme};

use super::{Connection, Relation, create_statement, rights, sequence, wrong};

/// Checks, once a connection, that the table has what the scheme needs. `false`: it is missing, or this user may not see
/// it; the error of the first statement says which.
pub(crate) fn check_table(connection: &mut dyn Connection, key: &Key) -> Result<bool, Fault> {
    let answer = look_at_table(connection, key);
    // On a MySQL connection that is one answer behind, every table seems to have other columns. The next attempt uses a new
    // connection.
    if connection.dialect().family() == Family::MySql
        && answer.as_ref().is_err_and(|fault| fault.kind == FaultKind::Refused)
    {
        connection.state().broken = true;
    }
    answer
}

/// The same, but keeps the connection even after a refusal: it may serve other tables.
pub(super) fn look_at_table(connection: &mut dyn Connection, key: &Key) -> Result<bool, Fault> {
    connection.dialect().check_kept(key)?;
    let checked = (key.scheme, key.place());
    if connection.state().checked.contains(&checked) {
        return Ok(true);
    }
    connection.dialect().check_name(&key.table)?;
    let is_there = match key.scheme.kept() {
        Kept::Sequence => sequence::check(connection, key)?,
        kept => match connection.relation(key)? {
            Some(found) => {
                let index = match check_shape(connection, key, &found) {
                    Ok(index) => index,
                    Err(fault) => return Err(closed_columns(connection, key).unwrap_or(fault)),
                };
                connection.state().unique.insert(key.place(), index);
                connection.check_relation(key, &found)?;
                if matches!(kept, Kept::Ticket { .. })
                    && let Some(tickets) = connection.tickets()
                {
                    tickets.check(key)?;
                }
                true
            }
            None => false,
        },
    };
    if is_there {
        connection.state().checked.insert(checked);
    }
    Ok(is_there)
}

/// Checks a table that is about to be written. A table that the first reservation creates is checked in its transaction.
pub(super) fn check_to_write(connection: &mut dyn Connection, key: &Key) -> Result<(), Fault> {
    if connection.dialect().creates_tables() {
        return connection.dialect().check_kept(key);
    }
    if !check_table(connection, key)? && key.scheme.is_sequence() {
        // On a database with schemas the message names the schema.
        connection.place(key)?;
        return Err(sequence::missing(key, ""));
    }
    Ok(())
}

/// The fault of a missing table where the database has another one of keymill's: this one may have been there too, and `init` alone would
/// begin again at the first id.
pub(super) fn if_lost(connection: &mut dyn Connection, key: &Key, fault: Fault) -> Fault {
    if fault.remedy() != Some(&Remedy::INIT)
        || key.table != key.scheme.default_table()
        || connection.state().broken
    {
        return fault;
    }
    let own = [Scheme::Keymill, Scheme::Worker, Scheme::Route].map(|scheme| (scheme, scheme.default_table()));
    let others =
        own.into_iter().chain([(Scheme::Worker, READER_TABLE)]).filter(|(_, table)| *table != key.table);
    for (scheme, table) in others {
        let other = Key { scheme, table: table.to_owned(), ..key.clone() };
        if matches!(connection.relation(&other), Ok(Some(_))) {
            return fault.instead(Remedy::InitBeside { other: other.table });
        }
    }
    fault
}

/// Checks a table that is about to be read, as [`check_table`]. `None`: it is missing, and the first reservation creates it.
pub(super) fn check_to_read(connection: &mut dyn Connection, key: &Key) -> Result<Option<bool>, Fault> {
    let creates = connection.dialect().creates_tables();
    if creates {
        // Another process may have dropped it since: then there is no row.
        connection.forget_tables();
    }
    Ok(Some(check_table(connection, key)?).filter(|is_seen| *is_seen || !creates))
}

/// Checks a table that the first reservation creates, inside its transaction, and creates it.
pub(super) fn ensure_table(connection: &mut dyn Connection, key: &Key) -> Result<(), Fault> {
    if !connection.dialect().creates_tables() {
        return Ok(());
    }
    let checked = (key.scheme, key.place());
    if connection.state().checked.contains(&checked) {
        if connection.has_table(&key.table)? {
            return Ok(());
        }
        connection.state().checked.remove(&checked);
    }
    if check_table(connection, key)? {
        return connection.adopt_table(None);
    }
    let statement = create_statement(key, connection.dialect().family(), None);
    connection.adopt_table(Some(&statement))?;
    connection.state().checked.insert(checked);
    Ok(())
}

/// The server's refusal to read the whole table: to a login with rights on some columns only, MySQL's catalogue shows no others.
fn closed_columns(connection: &mut dyn Connection, key: &Key) -> Option<Fault> {
    if connection.dialect().family() != Family::MySql {
        return None;
    }
    let place = connection.place(key).ok()?;
    let read = connection.query(&format!("SELECT * FROM {place} LIMIT 0"), &[]);
    read.err().filter(|fault| fault.absence() == Some(Absence::Forbidden))
}

/// Refuses a table without a column or a unique key that its scheme needs; answers with the index of the key.
fn check_shape(connection: &dyn Connection, key: &Key, found: &Relation) -> Result<String, Fault> {
    let (layout, family) = (RowLayout::of(key), connection.dialect().family());
    // PostgreSQL's names are folded, and a quoted name differs. The other databases' names have no case.
    let folded = |name: &str| match family {
        Family::MySql => name.to_owned(),
        Family::Postgres | Family::Sqlite => name.to_ascii_lowercase(),
    };
    let same = |a: &str, b: &str| if family == Family::Postgres { a == b } else { a.eq_ignore_ascii_case(b) };
    let has = |wanted: &str| found.columns.iter().any(|(column, _)| same(column, wanted));
    if let Some(renamed) = key.scheme.renamed().filter(|renamed| !has(renamed.now) && has(renamed.before)) {
        let place = format!("table `{}`{}", key.table, connection.location());
        let has = format!("it has a column `{}` in place of `{}`", renamed.before, renamed.now);
        return Err(rows::of_earlier_build(&place, &has));
    }
    for (name, narrowest) in layout.needed(family) {
        let name = folded(name);
        let Some((_, of_type)) = found.columns.iter().find(|(column, _)| same(column, &name)) else {
            return Err(wrong(connection, key, &missing_column(key, &name)));
        };
        let is_own = !key.scheme.is_of_another_program();
        if let Some(unfit) = unfit(family, &name, of_type, narrowest.is_some()).filter(|_| is_own) {
            let declared = declared(&create_statement(key, family, None), &name);
            let what = format!("column `{name}` is `{}`, {unfit}; it has to be {declared}", shown(of_type));
            return Err(wrong(connection, key, &what));
        }
        // SQLite's columns hold every number.
        let is_wide = |narrowest: &&str| {
            same(of_type, narrowest) || *narrowest == "bigint" && holds_every_bigint(of_type)
        };
        if let Some(narrowest) = narrowest.filter(|narrowest| family != Family::Sqlite && !is_wide(narrowest))
        {
            let what =
                format!("column `{name}` is `{}`, too narrow for `{narrowest}`, alter it", shown(of_type));
            return Err(wrong(connection, key, &what));
        }
    }
    // Without a unique key the first two users of a name would each make a row.
    let unique: Vec<String> = layout.unique().into_iter().map(folded).collect();
    let covers = |index: &String| {
        let mut columns = found.unique.iter().filter(|(other, _)| other == index);
        columns.all(|(_, column)| unique.iter().any(|name| same(name, column)))
    };
    match found.unique.iter().find(|(index, _)| covers(index)) {
        Some((index, _)) => Ok(index.clone()),
        None => Err(wrong(connection, key, &format!("it has no primary key ({})", unique.join(", ")))),
    }
}

/// Why a column of keymill's own table does not keep or compare what keymill writes, although it is wide enough.
fn unfit(family: Family, name: &str, of_type: &str, is_number: bool) -> Option<&'static str> {
    let declared = of_type.to_ascii_uppercase();
    let has = |words: &[&str]| words.iter().any(|word| declared.contains(word));
    match family {
        // The words of a state are compared by the statement that changes the row.
        Family::MySql => (name == "state" && declared.ends_with("_CI"))
            .then_some("which takes words in another letter case for the same"),
        // SQLite's rules of affinity, in their order.
        Family::Sqlite if !is_number || has(&["INT"]) => None,
        Family::Sqlite if has(&["CHAR", "CLOB", "TEXT"]) => Some("which keeps numbers as text"),
        Family::Sqlite => has(&["REAL", "FLOA", "DOUB"]).then_some("which keeps numbers as fractions"),
        Family::Postgres => None,
    }
}

/// What the statement that creates a table says of a column.
fn declared(statement: &str, name: &str) -> String {
    let lines = || statement.lines().map(str::trim);
    let is_wanted = |line: &&str| {
        line.split_whitespace().next().is_some_and(|word| word.trim_matches(['`', '"']) == name)
    };
    let line = lines().find(is_wanted).unwrap_or_default();
    let line = line.split(" -- ").next().unwrap_or_default().split(" COMMENT ").next().unwrap_or_default();
    format!("`{}`", line.trim_end_matches(',').replace(['`', '"'], ""))
}

/// Whether a column is a decimal of 19 digits or more, none of them a fraction's.
fn holds_every_bigint(of_type: &str) -> bool {
    let digits = of_type.strip_prefix("decimal(").or_else(|| of_type.strip_prefix("numeric("));
    let digits = digits.and_then(|digits| digits.strip_suffix(",0)")?.parse::<u32>().ok());
    of_type == "numeric" || digits.is_some_and(|digits| digits >= 19)
}

fn missing_column(key: &Key, name: &str) -> String {
    let renamed = if key.scheme.renamable().is_empty() {
        ""
    } else {
        " (if it is called otherwise, say so with `columns=`)"
    };
    format!("column `{name}` is missing{renamed}")
}

/// The tables that these keys need, each once: one of its keys and the statement that creates it.
pub(super) fn tables(
    keys: &[Arc<Key>],
    family: Family,
    schema: Option<&str>,
) -> Result<Vec<(Arc<Key>, String)>, Fault> {
    let mut tables: Vec<(Arc<Key>, String)> = Vec::new();
    for key in keys {
        if key.scheme.create(family).is_none() {
            rows::check_kept_here(key)?;
        }
        rows::check_table_name(&key.table)?;
        let statement = create_statement(key, family, schema);
        if tables.iter().all(|(_, known)| *known != statement) {
            tables.push((Arc::clone(key), statement));
        }
    }
    Ok(tables)
}

/// Creates the missing ones of these tables; answers with the statements.
pub(super) fn create_missing(
    connection: &mut dyn Connection,
    tables: Vec<(Arc<Key>, String)>,
    dry_run: bool,
) -> Result<Vec<String>, Fault> {
    // A table may have been dropped a moment ago: that is what `init` is for.
    connection.forget_tables();
    let mut missing = Vec::new();
    // A user without the right to create may run `init` if all tables exist.
    for (key, statement) in tables {
        if !check_table(connection, &key)? {
            let schema = connection.schema_to_create_in(&key.table);
            let family = connection.dialect().family();
            let placed = schema.map(|schema| create_statement(&key, family, Some(&schema)));
            missing.push((key, placed.unwrap_or(statement)));
        }
    }
    if !dry_run && !missing.is_empty() {
        connection.writable()?;
        for (key, statement) in &missing {
            connection.create(key, statement).map_err(|fault| rights::of_creating(fault, key))?;
            check_table(connection, key)?;
        }
    }
    Ok(missing.into_iter().map(|(_, statement)| statement).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MillConfig;

    fn key(spec: &str) -> Arc<Key> {
        MillConfig::parse("mysql://app@db/ids").and_then(|mill| mill.spec(spec)).expect("a spec").key
    }

    #[test]
    fn each_table_is_made_once_and_only_under_a_name_that_is_an_identifier() {
        let keys = ["segment:a", "segment:b", "segment:c?table=other"].map(key);
        let made = tables(&keys, Family::MySql, None).expect("tables");
        let made: Vec<_> = made.iter().map(|(key, statement)| (key.name.as_str(), statement)).collect();
        assert!(made.len() == 2 && made[0].0 == "segment:a" && made[1].0 == "segment:c", "{made:?}");
        assert!(made[0].1.contains("EXISTS `keymill_segment` (") && made[1].1.contains("EXISTS `other` ("));
        let odd = [Arc::new(Key { table: "a b".to_owned(), ..Key::clone(&keys[0]) })];
        let refused = tables(&odd, Family::MySql, None).expect_err("it is refused");
        assert!(refused.to_string().contains("`a b` is no table name"), "{refused}");
        assert!(rows::check_table_name("a_b").is_ok());
    }

    #[test]
    fn a_decimal_of_nineteen_digits_without_a_fraction_is_wide_enough() {
        for wide in ["decimal(38,0)", "numeric(19,0)", "numeric"] {
            assert!(holds_every_bigint(wide), "{wide}");
        }
        for narrow in
            ["decimal(18,0)", "decimal(38,2)", "decimal(10)", "int", "double", "numeric(,0)", "text"]
        {
            assert!(!holds_every_bigint(narrow), "{narrow}");
        }
    }

    #[test]
    fn a_refused_column_is_shown_as_its_table_is_created() {
        for (family, wanted) in [
            (Family::MySql, "`state VARBINARY(16) NOT NULL DEFAULT 'open'`"),
            (Family::Sqlite, "`state TEXT NOT NULL DEFAULT 'open'`"),
        ] {
            assert_eq!(declared(&create_statement(&key("segment:a"), family, None), "state"), wanted);
        }
        let sqlite = |of_type, is_number| unfit(Family::Sqlite, "next", of_type, is_number).is_some();
        for unfit in ["REAL", "double precision", "FLOAT", "TEXT", "varchar(9)", "CLOB"] {
            assert!(sqlite(unfit, true) && !sqlite(unfit, false), "{unfit}");
        }
        for fit in ["INTEGER", "bigint", "", "BLOB", "NUMERIC", "DECIMAL(19,0)", "CHARINT"] {
            assert!(!sqlite(fit, true), "{fit}");
        }
    }

    #[test]
    fn a_missing_column_may_have_another_name_where_the_scheme_is_another_programs() {
        assert!(missing_column(&key("segment:orders"), "next").ends_with("is missing"));
        assert!(missing_column(&key("segment:orders?scheme=cosid"), "name").contains("columns="));
    }
}
