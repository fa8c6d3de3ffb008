//! The statements of a write while its range moves, in the words of MySQL and of PostgreSQL.
//!
//! They run in sessions of the program, whose settings are unknown: values are read as bytes and written as literals that mean the same under
//! every setting. Settings that change values hold for one statement in MySQL, and until the transaction ends in PostgreSQL.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::rows::{Class, Column, Id, MovedTable, Primary, ShardKind, bits, quoted};
use crate::store::shard_session::{MYSQL_VALUES, POSTGRES_VALUES};

use super::ShardRow;
use super::known_shards::KnownTable;
use super::questions::{ALL, signature, with_every_row};

/// Values from this length on are written with fewer digits.
const LARGE: usize = 1 << 16;

/// The most bytes of an insert, unless one row has more.
const INSERT: usize = 1 << 18;

/// Locks an id. PostgreSQL also says the isolation of the transaction.
pub(super) fn lock(root: &MovedTable, id: &Id) -> String {
    match root.kind {
        ShardKind::MySql => {
            format!("SELECT '1' FROM {} WHERE {}{ALL} FOR UPDATE", root.quoted, is(root, id))
        }
        ShardKind::Postgres => {
            format!("SELECT {ISOLATION}, {}, pg_catalog.set_config('{MARK}', '{id}', true)", advisory(id, ""))
        }
    }
}

/// A setting that ends with the transaction.
const MARK: &str = "keymill.id";

const ISOLATION: &str = "pg_catalog.current_setting('transaction_isolation')";

/// The lock of an id. The new shard has another one, because two shards may be schemas of one database.
fn advisory(id: &Id, sign: &str) -> String {
    let number = match id {
        Id::Number(number) => number.to_string(),
        Id::Bytes(_) => format!("pg_catalog.hashtextextended('{id}', 0)"),
    };
    format!("pg_catalog.pg_advisory_xact_lock({sign}{number})::pg_catalog.text")
}

/// Which rows of the new shard go or change with the rows of a table.
pub(super) fn ask_taken_along(table: &MovedTable) -> String {
    with_every_row(table.kind, crate::rows::ask_taken_along(table))
}

/// Asks again whether an id has no row of the root, and waits for nobody: another writer's row may be there meanwhile.
pub(super) fn is_absent(root: &MovedTable, id: &Id) -> String {
    format!("SELECT '1' FROM {} WHERE {}{ALL} FOR UPDATE NOWAIT", root.quoted, is(root, id))
}

/// The condition that a row belongs to an id.
fn is(table: &MovedTable, id: &Id) -> String {
    let equals = equals(table.kind, true);
    format!("{} {equals} {}", table.quoted_key(), table.id(&own_form(table, id)))
}

/// PostgreSQL looks for the operators of types of its own in its own schema.
fn equals(kind: ShardKind, is_own_type: bool) -> &'static str {
    match kind {
        ShardKind::Postgres if is_own_type => "OPERATOR(pg_catalog.=)",
        _ => "=",
    }
}

/// The id as the key column of a table holds it.
fn own_form(table: &MovedTable, id: &Id) -> Id {
    match id {
        Id::Number(number) if table.is_wide => Id::Bytes(number.to_be_bytes().to_vec()),
        other => other.clone(),
    }
}

/// Types of PostgreSQL whose texts no setting changes.
const PLAIN: [&str; 11] = [
    "bigint",
    "integer",
    "smallint",
    "numeric",
    "boolean",
    "text",
    "character varying",
    "character",
    "uuid",
    "json",
    "jsonb",
];

/// A statement of MySQL or MariaDB under settings that hold for it alone, whatever the session's settings are.
fn under(is_mariadb: bool, sql: &str) -> String {
    let set = MYSQL_VALUES.map(|(name, value)| format!("{name} = '{value}'"));
    if is_mariadb {
        return format!("SET STATEMENT {} FOR {sql}", set.join(", "));
    }
    let (verb, rest) = sql.split_once(' ').unwrap_or((sql, ""));
    format!("{verb} /*+ SET_VAR({}) */ {rest}", set.join(") SET_VAR("))
}

/// Whether no setting changes the texts of a column of PostgreSQL.
fn is_plain(column: &Column) -> bool {
    PLAIN.iter().any(|kind| {
        column
            .kind
            .strip_prefix(kind)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('(') && rest.ends_with(')'))
    })
}

/// Sets what changes the values of these tables, until the transaction of PostgreSQL ends. Hidden rows are an error.
fn settings(tables: &[KnownTable]) -> String {
    let all_plain = tables.iter().flat_map(|known| &known.table.columns).all(is_plain);
    let values = POSTGRES_VALUES.iter().filter(|_| !all_plain);
    let set = |(name, value): &(&str, &str)| format!("pg_catalog.set_config('{name}', '{value}', true)");
    values.chain([&("row_security", "off")]).map(set).collect::<Vec<_>>().join(", ")
}

/// The signature of all tables of a shard.
pub(super) fn signature_of_all(tables: &[KnownTable]) -> String {
    let all = tables.iter().map(|known| known.signature.parse::<i128>().unwrap_or(0));
    all.sum::<i128>().to_string()
}

fn ask_signature(tables: &[KnownTable]) -> String {
    let oids: Vec<_> = tables.iter().map(|known| known.oid.to_string()).collect();
    signature(&oids.join(", "))
}

/// What the old shard of PostgreSQL is asked after the work: which id the transaction has locked, and the tables' signature; and the settings
/// for reading them.
pub(super) fn pin_old(tables: &[KnownTable]) -> String {
    format!(
        "SELECT pg_catalog.current_setting('{MARK}', true), {}, {}",
        ask_signature(tables),
        settings(tables)
    )
}

/// MySQL's mark of the transaction in which the id was locked. What ends a transaction ends its savepoints.
pub(super) const SAVEPOINT: &str = "SAVEPOINT keymill";
pub(super) const RELEASE: &str = "RELEASE SAVEPOINT keymill";

/// Locks the id on the new shard of PostgreSQL. In MySQL the first table's rows are locked when they are read.
pub(super) fn pin_new(tables: &[KnownTable], id: &Id, lock_wait: Duration) -> String {
    format!(
        "SELECT {ISOLATION}, {}, {}, pg_catalog.set_config('standard_conforming_strings', 'on', true), pg_catalog.set_config('lock_timeout', '{}', true), {}",
        ask_signature(tables),
        settings(tables),
        lock_wait.as_millis().max(1),
        advisory(id, "-")
    )
}

/// The rows of an id, in the columns of `shape`. In MySQL a last cell says which values are NULL, in which zone they were read, and, of the side
/// that decides, in which character sets. There it is an error where the table has another number of columns than before.
pub(super) fn read(known: &KnownTable, shape: &[Column], id: &Id, decides: bool) -> String {
    let table = &known.table;
    let value = |column: &Column| {
        let name = quoted(table.kind, &column.name);
        match (table.kind, column.class) {
            (ShardKind::MySql, Class::Float) => format!("CAST({name} + 0e0 AS BINARY)"),
            // As bytes MariaDB gives what it stores, and no text.
            (ShardKind::MySql, _) if ["uuid", "inet4", "inet6"].contains(&column.kind.as_str()) => {
                format!("CONCAT({name})")
            }
            (ShardKind::MySql, _) => format!("CAST({name} AS BINARY)"),
            (ShardKind::Postgres, _) if is_plain(column) => format!("{name}::pg_catalog.text"),
            // A type can have a cast to text that says something else than its values are read as.
            (ShardKind::Postgres, _) => {
                format!("CASE pg_catalog.num_nulls({name}) WHEN 0 THEN pg_catalog.concat({name}) END")
            }
        }
    };
    let values: Vec<_> = shape.iter().map(value).collect();
    let values = values.join(", ");
    match table.kind {
        ShardKind::MySql => {
            let nulls: Vec<_> =
                shape.iter().map(|column| format!("{} IS NULL", quoted(table.kind, &column.name))).collect();
            let row = match known.signature.parse().unwrap_or(0) {
                1 => "NULL".to_owned(),
                many => format!("ROW({})", vec!["NULL"; many].join(", ")),
            };
            let charset = |column: &Column| format!(", ',', CHARSET({})", quoted(table.kind, &column.name));
            let charsets: String = with_charset(shape).filter(|_| decides).map(charset).collect();
            let count = if decides {
                format!(", CONCAT('', {row} = (SELECT * FROM {} LIMIT 0))", table.quoted)
            } else {
                String::new()
            };
            let sql = format!(
                "SELECT {values}, CONCAT({}, @@time_zone{charsets}){count} FROM {} WHERE {}{ALL} FOR UPDATE",
                nulls.join(", "),
                table.quoted,
                is(table, id)
            );
            under(known.is_mariadb, &sql)
        }
        ShardKind::Postgres => {
            // `verify --repair` deletes a row of the new shard that the old one lacks, and a program that does not know yet that the range moves changes
            // rows of the old one. They hold the row's lock, and not the id's.
            format!("SELECT {values} FROM {} WHERE {} FOR UPDATE", table.quoted, is(table, id))
        }
    }
}

/// The columns whose literals say their character set. MySQL's JSON always has the same one, and calls it `binary`.
fn with_charset(shape: &[Column]) -> impl Iterator<Item = &Column> {
    shape.iter().filter(|column| column.class == Class::Text && column.kind != "json")
}

/// What is wrong with an answer to [`read`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// A value is longer than the server sends, or it reads values in another zone.
    Settings,
    /// A text is of another character set than before.
    Charset,
}

/// Takes the last cells from the rows of [`read`].
pub(super) fn values(
    kind: ShardKind,
    shape: &[Column],
    decides: bool,
    rows: Vec<ShardRow>,
) -> Result<Vec<ShardRow>, Unread> {
    // Servers have two names for one of them.
    let unaliased = |charsets: &str| charsets.replace("utf8mb3", "utf8");
    let charset = |column: &Column| format!(",{}", column.charset);
    let charsets = unaliased(&with_charset(shape).filter(|_| decides).map(charset).collect::<String>());
    let row = |mut row: ShardRow| {
        let checks = row.split_off(shape.len().min(row.len()));
        let said = checks.first().and_then(Option::as_deref).unwrap_or_default();
        let nulls = row.iter().map(|cell| b'0' + u8::from(cell.is_none()));
        let seen: Vec<u8> = nulls.chain(*b"+00:00").collect();
        match said.strip_prefix(seen.as_slice()) {
            _ if kind == ShardKind::Postgres => Ok(row),
            None => Err(Unread::Settings),
            Some(are) if unaliased(&String::from_utf8_lossy(are)) != charsets => Err(Unread::Charset),
            Some(_) => Ok(row),
        }
    };
    rows.into_iter().map(row).collect()
}

/// The rows of one table on both shards, in the same columns.
pub(super) struct Sides<'r> {
    pub(super) old: &'r [ShardRow],
    pub(super) new: &'r [ShardRow],
}

/// The statements that make the rows of the new shard what they are on the old one.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) deletes: Vec<String>,
    pub(super) updates: Vec<String>,
    pub(super) inserts: Vec<String>,
}

impl Changes {
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        self.deletes.iter().chain(&self.updates).chain(&self.inserts)
    }

    /// A row may be deleted to be inserted anew.
    pub(super) fn writes_anew(&self) -> bool {
        !self.deletes.is_empty() && !self.inserts.is_empty()
    }
}

/// The statements that make the rows of the new shard what they are on the old one.
pub(super) fn changes(known: &KnownTable, shape: &[Column], sides: &Sides<'_>, replaces: bool) -> Changes {
    let table = &known.table;
    let primary: Vec<usize> = table
        .primary
        .iter()
        .filter_map(|at| table.columns.get(*at))
        .filter_map(|key| shape.iter().position(|column| column.name == key.name))
        .collect();
    let key = |row: &ShardRow| -> Primary {
        primary.iter().map(|at| row.get(*at).cloned().flatten().unwrap_or_default()).collect()
    };
    let old: BTreeMap<_, _> = sides.old.iter().map(|row| (key(row), row)).collect();
    let new: BTreeMap<_, _> = sides.new.iter().map(|row| (key(row), row)).collect();
    let statements = Statements { table, shape, primary: &primary };
    // A column that is GENERATED ALWAYS takes no other value.
    let is_fixed = |is: &ShardRow, row: &ShardRow| {
        let mut cells = shape.iter().enumerate().filter(|(_, column)| column.is_identity);
        cells.any(|(at, _)| is.get(at) != row.get(at))
    };
    let (mut gone, mut updates, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (key, row) in &new {
        if replaces || old.get(key).is_none_or(|is| is_fixed(is, row)) {
            gone.push(key);
        }
    }
    for (key, row) in &old {
        match new.get(key) {
            Some(is) if !replaces && is == row => {}
            Some(is) if !replaces && !is_fixed(is, row) => updates.push(statements.update(key, row)),
            _ => missing.push(*row),
        }
    }
    let said = |all: Vec<String>| match table.kind {
        ShardKind::MySql => all.iter().map(|sql| under(known.is_mariadb, sql)).collect(),
        ShardKind::Postgres => all,
    };
    Changes {
        deletes: said(gone.chunks(500).map(|keys| statements.delete(keys)).collect()),
        updates: said(updates),
        inserts: said(statements.inserts(&missing)),
    }
}

struct Statements<'t> {
    table: &'t MovedTable,
    shape: &'t [Column],
    primary: &'t [usize],
}

impl Statements<'_> {
    fn name(&self, column: &Column) -> String {
        quoted(self.table.kind, &column.name)
    }

    fn literal(&self, at: usize, bytes: &[u8]) -> String {
        let mut out = String::new();
        if let Some(column) = self.shape.get(at) {
            if let Some(number) = bits(self.table.kind, column, bytes) {
                return number;
            }
            write_literal(&mut out, self.table.kind, &column.charset, bytes);
        }
        out
    }

    fn delete(&self, keys: &[&Primary]) -> String {
        let row = |key: &&Primary| format!("({})", self.is_row(key));
        let rows: Vec<_> = keys.iter().map(row).collect();
        format!("DELETE FROM {} WHERE {}", self.table.quoted, rows.join(" OR "))
    }

    fn is_row(&self, key: &Primary) -> String {
        let is = |(at, bytes): (&usize, &Vec<u8>)| {
            let column = self.shape.get(*at);
            let name = column.map(|column| self.name(column)).unwrap_or_default();
            let is_own = column.is_some_and(is_plain);
            format!("{name} {} {}", equals(self.table.kind, is_own), self.literal(*at, bytes))
        };
        self.primary.iter().zip(key).map(is).collect::<Vec<_>>().join(" AND ")
    }

    fn update(&self, key: &Primary, row: &ShardRow) -> String {
        let mut sets = Vec::new();
        for (at, (column, cell)) in self.shape.iter().zip(row).enumerate() {
            if self.primary.contains(&at) || column.is_identity {
                continue;
            }
            let value = cell.as_deref().map_or_else(|| "NULL".to_owned(), |bytes| self.literal(at, bytes));
            sets.push(format!("{} = {value}", self.name(column)));
        }
        format!("UPDATE {} SET {} WHERE {}", self.table.quoted, sets.join(", "), self.is_row(key))
    }

    fn inserts(&self, rows: &[&ShardRow]) -> Vec<String> {
        let names: Vec<_> = self.shape.iter().map(|column| self.name(column)).collect();
        let own = if self.table.kind == ShardKind::MySql { "" } else { " OVERRIDING SYSTEM VALUE" };
        let head = format!("INSERT INTO {} ({}){own} VALUES ", self.table.quoted, names.join(", "));
        let (mut all, mut insert) = (Vec::new(), String::new());
        for row in rows {
            insert.push_str(if insert.is_empty() { &head } else { ", " });
            let values: Vec<_> = row
                .iter()
                .enumerate()
                .map(|(at, cell)| {
                    cell.as_deref().map_or_else(|| "NULL".to_owned(), |bytes| self.literal(at, bytes))
                })
                .collect();
            let _ = write!(insert, "({})", values.join(", "));
            if insert.len() > INSERT {
                all.push(std::mem::take(&mut insert));
            }
        }
        all.extend((!insert.is_empty()).then_some(insert));
        all
    }
}

/// Writes a value as it was read. The text of a statement is in the character set of the session, so MySQL gets letters of ASCII only.
fn write_literal(out: &mut String, kind: ShardKind, charset: &str, bytes: &[u8]) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != b'\'' && *byte != b'\\';
    match (kind, std::str::from_utf8(bytes)) {
        (ShardKind::Postgres, text) => {
            let text = text.unwrap_or_default().replace('\'', "''");
            let _ = write!(out, "'{text}'");
        }
        // The digits of bytes would make it twice as long, and a statement has a greatest length.
        (ShardKind::MySql, _) if bytes.len() >= LARGE => {
            let digits = BASE64_STANDARD.encode(bytes);
            let _ = match charset {
                "" => write!(out, "FROM_BASE64('{digits}')"),
                _ => write!(out, "CONVERT(FROM_BASE64('{digits}') USING {charset})"),
            };
        }
        (ShardKind::MySql, text) => {
            if !charset.is_empty() {
                let _ = write!(out, "_{charset} ");
            }
            match text {
                Ok(text) if bytes.iter().all(is_plain) && is_ascii_like(charset) => {
                    let _ = write!(out, "'{text}'");
                }
                _ => {
                    out.push_str("X'");
                    for byte in bytes {
                        let _ = write!(out, "{byte:02x}");
                    }
                    out.push('\'');
                }
            }
        }
    }
}

/// Whether the letters of ASCII are the same bytes in this character set.
fn is_ascii_like(charset: &str) -> bool {
    !["utf16", "utf16le", "utf32", "ucs2"].contains(&charset)
}
