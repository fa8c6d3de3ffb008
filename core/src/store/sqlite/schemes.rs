//! The tables of SQLite: their DDL, their shape, and how they come to be.

use std::path::Path;

use rusqlite::{OptionalExtension, Transaction};

use super::Opened;
use super::file::{APPLICATION_ID, Owner, fault, owner, refuse_foreign};
use crate::store::counter::Counter;
use crate::store::rows;
use crate::store::{Fault, FaultKind, Key, Scheme};

/// The statement that creates a scheme's table: the only place where it stands.
#[must_use]
pub fn create_table(key: &Key) -> String {
    let table = &key.table;
    let own = |column| key.columns.in_ddl(column);
    match key.scheme {
        Scheme::Keymill => format!(
            "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             name TEXT NOT NULL PRIMARY KEY,\n  \
             period INTEGER NOT NULL DEFAULT 0,\n  \
             next INTEGER NOT NULL, -- lowest number not yet reserved; -9223372036854775808: all are\n  \
             updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP\n\
             ) WITHOUT ROWID"
        ),
        Scheme::KeyProducer => {
            let [tablename, columnname, maxserialno, datefmt, nofmt, update_time] =
                ["TABLENAME", "COLUMNNAME", "MAXSERIALNO", "DATEFMT", "NOFMT", "update_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {tablename} varchar(80) NOT NULL,\n  \
             {columnname} varchar(80) NOT NULL,\n  \
             {maxserialno} varchar(80) DEFAULT NULL,\n  \
             {datefmt} varchar(20) NOT NULL,\n  \
             {nofmt} varchar(20) NOT NULL,\n  \
             {update_time} datetime NOT NULL DEFAULT CURRENT_TIMESTAMP,\n  \
             PRIMARY KEY ({tablename}, {columnname}, {datefmt}, {nofmt})\n\
             )"
            )
        }
        // `check_kept_here` has refused them.
        Scheme::AutoIncrement | Scheme::Ticket | Scheme::Sequence => String::new(),
        // Their authors' tables, as far as SQLite has such things: what they are found by is their primary key.
        Scheme::SequenceTable => {
            let [biz_type, cur_id, step, time_to_live] =
                ["biz_type", "cur_id", "step", "time_to_live"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {biz_type} varchar(50) NOT NULL PRIMARY KEY,\n  \
             {cur_id} bigint NOT NULL, -- last number handed out\n  \
             {step} int NOT NULL,\n  \
             {time_to_live} int NOT NULL -- seconds; 0: without end\n\
             )"
            )
        }
        Scheme::LeafAlloc => {
            let [biz_tag, max_id, step, update_time] = ["biz_tag", "max_id", "step", "update_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {biz_tag} varchar(128) NOT NULL DEFAULT '' PRIMARY KEY,\n  \
             {max_id} bigint NOT NULL DEFAULT 1, -- next number to hand out\n  \
             {step} int NOT NULL,\n  \
             description varchar(256) DEFAULT NULL,\n  \
             {update_time} timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP\n\
             )"
            )
        }
        Scheme::TinyIdInfo => {
            let [biz_type, max_id, step, delta, remainder, version, update_time] =
                ["biz_type", "max_id", "step", "delta", "remainder", "version", "update_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {biz_type} varchar(63) NOT NULL DEFAULT '' PRIMARY KEY,\n  \
             begin_id bigint NOT NULL DEFAULT 0,\n  \
             {max_id} bigint NOT NULL DEFAULT 0, -- last number handed out\n  \
             {step} int DEFAULT 0,\n  \
             {delta} int NOT NULL DEFAULT 1,\n  \
             {remainder} int NOT NULL DEFAULT 0,\n  \
             create_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,\n  \
             {update_time} timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,\n  \
             {version} bigint NOT NULL DEFAULT 0\n\
             )"
            )
        }
        Scheme::Cosid => {
            let [name, last_max_id, last_fetch_time] = ["name", "last_max_id", "last_fetch_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {name} varchar(100) NOT NULL PRIMARY KEY, -- namespace.name\n  \
             {last_max_id} bigint NOT NULL DEFAULT 0, -- last number handed out\n  \
             {last_fetch_time} bigint NOT NULL\n\
             )"
            )
        }
    }
}

/// The columns a scheme reads and writes, and those that make its primary key.
fn shape(key: &Key) -> (Vec<String>, Vec<String>) {
    let (needed, primary) = match Counter::of_key(key) {
        Some(counter) => (counter.needed(), vec![counter.name.0]),
        None if key.scheme == Scheme::Keymill => (vec!["name", "period", "next", "updated_at"], vec!["name"]),
        None => {
            let own = |column| key.columns.own(column);
            let needed = ["TABLENAME", "COLUMNNAME", "MAXSERIALNO", "DATEFMT", "NOFMT", "update_time"];
            (needed.map(own).into(), ["TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"].map(own).into())
        }
    };
    // SQLite's names know no case.
    let lower = |names: Vec<&str>| names.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
    let mut primary = lower(primary);
    primary.sort_unstable();
    (lower(needed), primary)
}

pub(super) enum Found {
    Missing,
    Right,
    Wrong(String),
}

pub(super) fn found_table(transaction: &Transaction<'_>, key: &Key, path: &Path) -> Result<Found, Fault> {
    rows::check_table_name(&key.table)?;
    rows::check_kept_here(key)?;
    let at = |error: rusqlite::Error| fault(path, &error);
    if let Owner::Other(why) = owner(transaction, Some(&key.table)).map_err(at)? {
        return Err(refuse_foreign(path, &why));
    }
    let kind: Option<String> = transaction
        .prepare_cached(
            "SELECT type FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')",
        )
        .and_then(|mut statement| statement.query_one([&key.table], |row| row.get(0)).optional())
        .map_err(at)?;
    match kind.as_deref() {
        None => return Ok(Found::Missing),
        Some("table") => {}
        Some(_) => {
            return Ok(Found::Wrong(format!(
                "`{}` in `{}` is a view, not a table",
                key.table,
                path.display()
            )));
        }
    }
    let mut statement =
        transaction.prepare_cached("SELECT lower(name), pk FROM pragma_table_info(?1)").map_err(at)?;
    let columns: Vec<(String, i64)> = statement
        .query_map([&key.table], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(at)?;
    let (needed, primary) = shape(key);
    let describe = |what: String| {
        Found::Wrong(format!(
            "table `{}` in `{}` is not one of scheme `{}`: {what}; name another with `table=`",
            key.table,
            path.display(),
            key.scheme.name()
        ))
    };
    if let Some(missing) = needed.iter().find(|needed| !columns.iter().any(|(name, _)| name == *needed)) {
        return Ok(describe(rows::missing_column(key, missing)));
    }
    let mut found: Vec<String> =
        columns.iter().filter(|(_, pk)| *pk > 0).map(|(name, _)| name.clone()).collect();
    found.sort_unstable();
    if found != primary {
        return Ok(describe(format!("its primary key is not ({})", primary.join(", "))));
    }
    Ok(Found::Right)
}

/// Makes sure of the table, inside the transaction that is going to use it.
pub(super) fn ensure_table(
    transaction: &Transaction<'_>,
    key: &Key,
    opened: &mut Opened,
    path: &Path,
) -> Result<(), Fault> {
    let place = format!("{:?} {}", key.scheme, key.place());
    let exists = opened.checked.contains(&place) && {
        transaction
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type = 'table'")
            .and_then(|mut statement| statement.exists([&key.table]))
            .map_err(|error| fault(path, &error))?
    };
    if exists {
        return Ok(());
    }
    match found_table(transaction, key, path)? {
        Found::Right => mark(transaction, path)?,
        Found::Wrong(why) => return Err(Fault::new(FaultKind::Refused, why)),
        Found::Missing => create(transaction, key, path)?,
    }
    opened.checked.insert(place);
    Ok(())
}

/// Creates a table of ours in a file that [`found_table`] has found to be ours.
pub(super) fn create(transaction: &Transaction<'_>, key: &Key, path: &Path) -> Result<(), Fault> {
    mark(transaction, path)?;
    transaction.execute_batch(&create_table(key)).map_err(|error| fault(path, &error))
}

/// Marks a file of ours. A mark that is there already is not written again: that would dirty a page.
fn mark(transaction: &Transaction<'_>, path: &Path) -> Result<(), Fault> {
    let at = |error: rusqlite::Error| fault(path, &error);
    if owner(transaction, None).map_err(at)? != Owner::Keymill {
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(at)?;
    }
    Ok(())
}
