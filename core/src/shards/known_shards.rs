//! The columns of the tables on each shard: asked for once, and again where a statement finds that they have changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Code, Error, Result};
use crate::rows::{
    MovedTable, ShardKind, ShardTable, Wording, cell, check_kind, questions, refused_storage, text_literal,
};

use super::ShardRow;
use super::questions::{signature, with_every_row};

/// A table of a shard.
#[derive(Clone, Debug)]
pub(super) struct KnownTable {
    pub(super) table: MovedTable,
    /// What tells that it has changed: in MySQL the number of columns of `SELECT *`, in PostgreSQL [`signature`].
    pub(super) signature: String,
    /// PostgreSQL's number of it.
    pub(super) oid: u64,
    /// The server is a MariaDB.
    pub(super) is_mariadb: bool,
    /// A trigger or a rule, which may change what is written. MySQL shows it to users with the right `TRIGGER`.
    pub(super) trigger: Option<String>,
    /// It has constraints of PostgreSQL that a commit may check.
    pub(super) is_deferrable: bool,
    /// The longest statement that the server takes.
    pub(super) longest_statement: usize,
}

/// The tables of a shard, in the order in which they were named.
#[derive(Debug)]
pub(super) struct KnownShard {
    pub(super) tables: Vec<KnownTable>,
    /// Until when it may be used.
    good_until: Option<Instant>,
}

/// How long what is known of a table of MySQL is used. Only the number of its columns is compared with each write.
const GOOD: Duration = Duration::from_secs(1);

/// What is known of the shards, by their names.
#[derive(Debug, Default)]
pub(super) struct KnownShards(Mutex<HashMap<String, Arc<KnownShard>>>);

impl KnownShards {
    pub(super) fn get(&self, shard: &str) -> Option<Arc<KnownShard>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(shard).filter(|known| known.good_until.is_none_or(|end| Instant::now() < end)).cloned()
    }

    pub(super) fn set(&self, shard: &str, known: KnownShard) -> Arc<KnownShard> {
        let known = Arc::new(known);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(shard.to_owned(), Arc::clone(&known));
        known
    }

    pub(super) fn forget(&self, shard: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(shard);
    }
}

/// What the first question about a table says.
#[derive(Debug)]
struct FoundTable {
    table: ShardTable,
    row: Vec<String>,
}

/// The questions to the catalogue of a shard, one after the other.
#[derive(Debug)]
pub(super) struct Learning {
    kind: ShardKind,
    shard: String,
    known: Vec<KnownTable>,
    found: Option<FoundTable>,
    columns: Option<Vec<Vec<String>>>,
}

impl Learning {
    pub(super) fn new(kind: ShardKind, shard: &str) -> Learning {
        Learning { kind, shard: shard.to_owned(), known: Vec::new(), found: None, columns: None }
    }

    /// The next question; `None`: all is known.
    pub(super) fn question(&self, tables: &[(String, String)]) -> Option<String> {
        let (name, _) = tables.get(self.known.len())?;
        let Some(found) = &self.found else { return Some(which(self.kind, name)) };
        let [columns, primary] = questions(self.kind, name, &found.table);
        let question = if self.columns.is_none() { columns } else { primary };
        Some(with_every_row(self.kind, question))
    }

    pub(super) fn answer(&mut self, tables: &[(String, String)], rows: &[ShardRow]) -> Result<()> {
        let Some((name, key)) = tables.get(self.known.len()) else { return Ok(()) };
        let rows = texts(rows);
        let Some(found) = &self.found else {
            let row = rows.first().map(Vec::as_slice);
            let table = check_kind(self.kind, &self.shard, name, row.map(|row| found(self.kind, name, row)))?;
            let row = row.unwrap_or_default().to_vec();
            check_encoding(&self.shard, cell(&row, 9))?;
            match cell(&row, 5) {
                "" => {}
                fault => {
                    return Err(refused_storage(self.kind, &self.shard, name, &table.quoted, fault));
                }
            }
            self.found = Some(FoundTable { table, row });
            return Ok(());
        };
        let Some(columns) = self.columns.take() else {
            self.columns = Some(rows);
            return Ok(());
        };
        let table = MovedTable::of_catalogue(
            self.kind,
            (&self.shard, Wording::Program),
            found.table.quoted.clone(),
            (name, key),
            &[columns, rows],
        )?;
        self.known.push(KnownTable {
            table,
            signature: cell(&found.row, 3).to_owned(),
            oid: found.table.oid,
            is_mariadb: cell(&found.row, 4).ends_with("MariaDB"),
            trigger: Some(cell(&found.row, 6).to_owned()).filter(|name| !name.is_empty()),
            is_deferrable: cell(&found.row, 7) == "true",
            longest_statement: cell(&found.row, 8).parse().unwrap_or(usize::MAX),
        });
        self.found = None;
        Ok(())
    }

    pub(super) fn known(self) -> KnownShard {
        let good_until = (self.kind == ShardKind::MySql).then(|| Instant::now() + GOOD);
        KnownShard { tables: self.known, good_until }
    }
}

/// Refuses PostgreSQL's encoding of bytes that may be no letters: a driver makes other letters of them, or none.
fn check_encoding(at: &str, encoding: &str) -> Result<()> {
    if encoding != "SQL_ASCII" {
        return Ok(());
    }
    Err(Error::new(
        Code::StoreRefused,
        format!(
            "shard `{at}` has the encoding SQL_ASCII: the server does not know the letters of its texts, and drivers may change their bytes; keymill does not write to such a database while a range of it moves"
        ),
    ))
}

pub(super) fn texts(rows: &[ShardRow]) -> Vec<Vec<String>> {
    let text = |cell: &Option<Vec<u8>>| {
        cell.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    };
    rows.iter().map(|row| row.iter().map(text).collect()).collect()
}

/// Which table a program means by this name: its schema, what it is, its `oid`, its signature, which server this is, why its storage cannot be
/// used, a trigger, whether a commit may check constraints, the longest statement, and PostgreSQL's encoding. There the names of types in the answers to
/// the next questions are without quotes, whatever the session has set. MariaDB alone runs what stands in `/*M!`.
fn which(kind: ShardKind, name: &str) -> String {
    let literal = text_literal(kind, name);
    match kind {
        ShardKind::MySql => format!(
            "SELECT t.TABLE_SCHEMA, t.TABLE_TYPE, '0', \
             (SELECT CAST(COUNT(*) AS CHAR) FROM information_schema.COLUMNS c WHERE c.TABLE_SCHEMA = DATABASE() AND c.TABLE_NAME = {literal} AND c.EXTRA NOT LIKE '%INVISIBLE%'), \
             CONCAT('MySQL' /*M! , ' or MariaDB' */), IF(t.ENGINE = 'InnoDB', '', t.ENGINE), \
             (SELECT MIN(g.TRIGGER_NAME) FROM information_schema.TRIGGERS g WHERE g.EVENT_OBJECT_SCHEMA = DATABASE() AND g.EVENT_OBJECT_TABLE = {literal}), \
             'false', CAST(@@max_allowed_packet AS CHAR) \
             FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = {literal}"
        ),
        ShardKind::Postgres => format!(
            "SELECT n.nspname::pg_catalog.text, c.relkind::pg_catalog.text, c.oid::pg_catalog.text, {}, '', \
             (SELECT pg_catalog.min(i.inhrelid::pg_catalog.regclass::pg_catalog.text) FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class h ON h.oid = i.inhrelid WHERE i.inhparent = c.oid AND NOT h.relispartition), \
             COALESCE((SELECT pg_catalog.min(g.tgname::pg_catalog.text) FROM pg_catalog.pg_trigger g WHERE g.tgrelid = c.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'), \
             (SELECT pg_catalog.min(r.rulename::pg_catalog.text) FROM pg_catalog.pg_rewrite r WHERE r.ev_class = c.oid)), \
             EXISTS (SELECT 1 FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid AND k.condeferrable)::pg_catalog.text, '', \
             pg_catalog.current_setting('server_encoding'), pg_catalog.set_config('quote_all_identifiers', 'off', true) \
             FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = pg_catalog.to_regclass(pg_catalog.quote_ident({literal}))",
            signature("c.oid")
        ),
    }
}

fn found(kind: ShardKind, name: &str, row: &[String]) -> ShardTable {
    ShardTable {
        quoted: format!("{}.{}", crate::rows::quoted(kind, cell(row, 0)), crate::rows::quoted(kind, name)),
        kind: cell(row, 1).to_owned(),
        oid: cell(row, 2).parse().unwrap_or(0),
    }
}
