//! The statements of a write while its range moves, in the words of MySQL and of PostgreSQL.
//!
//! They run in sessions of the program, whose settings are unknown: values are read as bytes and written as literals that mean the same under
//! every setting, and what changes them is set and put back.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use crate::rows::{Class, Column, Id, MovedTable, Primary, ShardKind, quoted};

use super::ShardRow;
use super::known_shards::KnownTable;

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

/// A session of MySQL may be told how many rows an answer has at most (`sql_select_limit`); what a statement says goes before it.
pub(super) const ALL: &str = " LIMIT 18446744073709551615";

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

/// Asks again whether an id has no row of the root, and waits for nobody: another writer's row may be there meanwhile.
pub(super) fn is_absent(root: &MovedTable, id: &Id) -> String {
    format!("SELECT '1' FROM {} WHERE {}{ALL} FOR UPDATE NOWAIT", root.quoted, is(root, id))
}

/// The condition that a row belongs to an id.
fn is(table: &MovedTable, id: &Id) -> String {
    format!("{} = {}", table.quoted_key(), table.id(&own_form(table, id)))
}

/// The id as the key column of a table holds it.
fn own_form(table: &MovedTable, id: &Id) -> Id {
    match id {
        Id::Number(number) if table.is_wide => Id::Bytes(number.to_be_bytes().to_vec()),
        other => other.clone(),
    }
}

/// The settings of a session that change how values are read and written.
const MODES: &str = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES";
const POSTGRES: [(&str, &str); 10] = [
    ("TimeZone", "UTC"),
    ("DateStyle", "ISO, YMD"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("standard_conforming_strings", "on"),
    ("array_nulls", "on"),
    ("lc_monetary", "C"),
    ("xmloption", "content"),
    ("row_security", "off"),
];

/// Sets what changes values: in PostgreSQL until the transaction ends, in MySQL until [`restore`].
pub(super) fn pin(kind: ShardKind, lock_wait: Duration) -> String {
    match kind {
        ShardKind::MySql => format!(
            "SET @keymill_zone = @@SESSION.time_zone, @keymill_mode = @@SESSION.sql_mode, @keymill_wait = @@SESSION.innodb_lock_wait_timeout, SESSION time_zone = '+00:00', SESSION sql_mode = '{MODES}', SESSION innodb_lock_wait_timeout = {}",
            lock_wait.as_secs().max(1)
        ),
        ShardKind::Postgres => {
            let set =
                |(name, value): &(&str, &str)| format!("pg_catalog.set_config('{name}', '{value}', true)");
            format!("SELECT {}", POSTGRES.iter().map(set).collect::<Vec<_>>().join(", "))
        }
    }
}

/// As [`pin`], on the old shard; PostgreSQL also says which id the transaction has locked.
pub(super) fn pin_old(kind: ShardKind, lock_wait: Duration) -> String {
    let pin = pin(kind, lock_wait);
    match kind {
        ShardKind::MySql => pin,
        ShardKind::Postgres => {
            let rest = pin.trim_start_matches("SELECT ");
            format!("SELECT pg_catalog.current_setting('{MARK}', true), {rest}")
        }
    }
}

/// As [`pin`] and [`lock`] of the new shard. In MySQL the first table's rows are locked when they are read.
pub(super) fn pin_and_lock(kind: ShardKind, id: &Id, lock_wait: Duration) -> String {
    let pin = pin(kind, lock_wait);
    match kind {
        ShardKind::MySql => pin,
        ShardKind::Postgres => format!(
            "SELECT {ISOLATION}, {}, pg_catalog.set_config('lock_timeout', '{}', true), {}",
            pin.trim_start_matches("SELECT "),
            lock_wait.as_millis().max(1),
            advisory(id, "-")
        ),
    }
}

/// Puts back what [`pin`] has set, after the transaction. PostgreSQL does it by itself.
pub(super) fn restore(kind: ShardKind) -> Option<&'static str> {
    (kind == ShardKind::MySql).then_some(
        "SET SESSION time_zone = @keymill_zone, SESSION sql_mode = @keymill_mode, SESSION innodb_lock_wait_timeout = @keymill_wait",
    )
}

/// The rows of an id, in the columns of `shape`; the last cells say which values are NULL, and whether the table has the columns that it had.
pub(super) fn read(known: &KnownTable, shape: &[Column], id: &Id) -> String {
    let table = &known.table;
    let value = |column: &Column| {
        let name = quoted(table.kind, &column.name);
        match (table.kind, column.class) {
            (ShardKind::MySql, Class::Float) => format!("CAST({name} + 0e0 AS BINARY)"),
            // The bytes of these are not what a literal of them says.
            (ShardKind::MySql, _) if ["uuid", "inet4", "inet6"].contains(&column.kind.as_str()) => {
                format!("CONCAT({name})")
            }
            (ShardKind::MySql, _) => format!("CAST({name} AS BINARY)"),
            (ShardKind::Postgres, _) => format!("{name}::pg_catalog.text"),
        }
    };
    let values: Vec<_> = shape.iter().map(value).collect();
    let values = values.join(", ");
    match table.kind {
        ShardKind::MySql => {
            let nulls: Vec<_> =
                shape.iter().map(|column| format!("{} IS NULL", quoted(table.kind, &column.name))).collect();
            let row = match known.all_columns {
                1 => "NULL".to_owned(),
                many => format!("ROW({})", vec!["NULL"; many].join(", ")),
            };
            let charsets: Vec<_> = shape
                .iter()
                .filter(|column| has_charset(column))
                .map(|column| format!("CHARSET({})", quoted(table.kind, &column.name)))
                .collect();
            // An error where `*` has another number of columns.
            format!(
                "SELECT {values}, CONCAT({}), CONCAT_WS(',', '', {}), CONCAT('', {row} = (SELECT * FROM {quoted} LIMIT 0)) FROM {quoted} WHERE {}{ALL} FOR UPDATE",
                nulls.join(", "),
                if charsets.is_empty() { "''".to_owned() } else { charsets.join(", ") },
                is(table, id),
                quoted = table.quoted
            )
        }
        ShardKind::Postgres => {
            let literal = crate::rows::text_literal(table.kind, &table.quoted);
            format!(
                "SELECT {values}, (SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute a WHERE a.attrelid = {literal}::pg_catalog.regclass AND a.attnum > 0 AND NOT a.attisdropped)::pg_catalog.text FROM {} WHERE {}",
                table.quoted,
                is(table, id)
            )
        }
    }
}

/// What is wrong with an answer to [`read`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The table has other columns than before.
    Schema,
    /// A value is longer than the server sends.
    TooLong,
}

/// Takes the last cells from the rows of [`read`].
pub(super) fn values(
    known: &KnownTable,
    shape: &[Column],
    rows: Vec<ShardRow>,
) -> Result<Vec<ShardRow>, Unread> {
    let charsets = charsets(shape);
    rows.into_iter()
        .map(|mut row| {
            let checks = row.split_off(shape.len().min(row.len()));
            match known.table.kind {
                ShardKind::MySql => {
                    let said = checks.first().and_then(Option::as_deref).unwrap_or_default();
                    let seen: Vec<u8> = row.iter().map(|cell| b'0' + u8::from(cell.is_none())).collect();
                    let are = checks.get(1).and_then(Option::as_deref).unwrap_or_default();
                    // The bytes of a text are written with the character set in which they were read.
                    if unaliased(&String::from_utf8_lossy(are)) != charsets {
                        return Err(Unread::Schema);
                    }
                    if said == seen { Ok(row) } else { Err(Unread::TooLong) }
                }
                ShardKind::Postgres => {
                    let said = checks.first().and_then(Option::as_deref).unwrap_or_default();
                    if said == known.all_columns.to_string().as_bytes() {
                        Ok(row)
                    } else {
                        Err(Unread::Schema)
                    }
                }
            }
        })
        .collect()
}

/// The character sets of the texts, as [`read`] says them.
fn charsets(shape: &[Column]) -> String {
    let texts = shape.iter().filter(|column| has_charset(column));
    let all: Vec<_> = texts.map(|column| column.charset.as_str()).collect();
    unaliased(&format!(",{}", all.join(",")))
}

/// MySQL's JSON is always of one character set, and calls it `binary`.
fn has_charset(column: &Column) -> bool {
    column.class == Class::Text && column.kind != "json"
}

/// Servers have two names for one character set.
fn unaliased(charsets: &str) -> String {
    charsets.replace("utf8mb3", "utf8")
}

/// The rows of one table on both shards, in the same columns.
pub(super) struct Sides<'r> {
    pub(super) old: &'r [ShardRow],
    pub(super) new: &'r [ShardRow],
}

/// The statements that make the rows of the new shard what they are on the old one: first those that take rows away, then those that write.
pub(super) fn changes(
    table: &MovedTable,
    shape: &[Column],
    sides: &Sides<'_>,
    replaces: bool,
) -> [Vec<String>; 2] {
    let primary: Vec<usize> = table
        .primary
        .iter()
        .filter_map(|at| table.columns.get(*at))
        .filter_map(|key| shape.iter().position(|column| column.name == key.name))
        .collect();
    let by_key = |rows: &[ShardRow]| -> BTreeMap<Primary, ShardRow> {
        let key = |row: &ShardRow| {
            primary.iter().map(|at| row.get(*at).cloned().flatten().unwrap_or_default()).collect()
        };
        rows.iter().map(|row| (key(row), row.clone())).collect()
    };
    let (old, new) = (by_key(sides.old), by_key(sides.new));
    let statements = Statements { table, shape, primary: &primary };
    // A column that is GENERATED ALWAYS takes no other value.
    let is_fixed = |is: &ShardRow, row: &ShardRow| {
        let mut cells = shape.iter().enumerate().filter(|(_, column)| column.is_identity);
        cells.any(|(at, _)| is.get(at) != row.get(at))
    };
    let (mut gone, mut writes, mut missing) = (Vec::new(), Vec::new(), Vec::new());
    for (key, row) in &new {
        if replaces || old.get(key).is_none_or(|is| is_fixed(is, row)) {
            gone.push(key);
        }
    }
    for (key, row) in &old {
        match new.get(key) {
            Some(is) if !replaces && is == row => {}
            Some(is) if !replaces && !is_fixed(is, row) => writes.push(statements.update(key, row)),
            _ => missing.push(row),
        }
    }
    let deletes = gone.chunks(500).map(|keys| statements.delete(keys)).collect();
    writes.extend(statements.inserts(&missing));
    [deletes, writes]
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
            // MariaDB compares a `BIT` with a number.
            if self.table.kind == ShardKind::MySql && column.kind.starts_with("bit(") {
                return bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)).to_string();
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
            let name = self.shape.get(*at).map(|column| self.name(column)).unwrap_or_default();
            format!("{name} = {}", self.literal(*at, bytes))
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
