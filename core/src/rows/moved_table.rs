//! What the catalogue of a shard says about a table: its columns, its key, and what cannot be moved.

use crate::error::{Code, Error, Result};

use super::literals::text_literal;
use super::shard::{Shard, ShardKind};
use super::wording::Wording;
use crate::store::shard_session::ShardTable;

/// How a value is read, written and hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Its text has no comma: numbers and times.
    Plain,
    /// MySQL writes a `FLOAT` with too few digits.
    Float,
    /// Characters.
    Text,
    /// Bytes.
    Bytes,
}

/// A column that is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    /// The type as the server writes it, without what does not matter.
    pub kind: String,
    pub class: Class,
    /// The character set of a literal for it, on MySQL.
    pub charset: String,
    /// `GENERATED ALWAYS AS IDENTITY`: can be inserted, and never changed.
    pub is_identity: bool,
    /// PostgreSQL's type of an array of its values. Empty where no array type gives back each value as one: a composite type, `box`.
    pub array: String,
}

/// A table of a shard.
#[derive(Clone, Debug)]
pub struct MovedTable {
    pub kind: ShardKind,
    /// As it was named.
    pub name: String,
    /// Between quotes, with its schema.
    pub quoted: String,
    pub columns: Vec<Column>,
    /// The columns of the primary key. The first holds the id.
    pub primary: Vec<usize>,
    /// The key holds bytes.
    pub is_wide: bool,
}

fn refused(message: String) -> Error {
    Error::new(Code::StoreRefused, message)
}

impl MovedTable {
    /// Reads the catalogue.
    ///
    /// # Errors
    /// `STORE_REFUSED`: no such table, or one whose rows cannot be moved.
    pub fn read(shard: &mut Shard, name: &str, key: &str, wording: Wording) -> Result<MovedTable> {
        let at = shard.at();
        let found = found(shard, name)?;
        let [columns, primary] = questions(shard.kind(), name, &found);
        let answers = [texts(shard, &columns)?, texts(shard, &primary)?];
        Self::of_catalogue(shard.kind(), (&at, wording), found.quoted, (name, key), &answers)
    }

    /// The table that the answers to the two [`questions`] describe.
    ///
    /// # Errors
    /// `STORE_REFUSED`: one whose rows cannot be moved.
    pub fn of_catalogue(
        kind: ShardKind,
        (at, wording): (&str, Wording),
        quoted: String,
        (name, key): (&str, &str),
        [columns, primary]: &[Vec<Vec<String>>; 2],
    ) -> Result<MovedTable> {
        let column = match kind {
            ShardKind::MySql => mysql_column,
            ShardKind::Postgres => postgres_column,
        };
        let columns: Vec<Column> = columns.iter().map(|row| column(row)).collect();
        let primary: Vec<&str> = primary.iter().map(|row| cell(row, 0)).collect();
        let position = |name: &str| columns.iter().position(|column| column.name == name);
        let Some(at_key) = position(key) else {
            return Err(refused(format!(
                "{at}: table `{name}` has no column `{key}`; name the column of the ids with {}",
                wording.option("key")
            )));
        };
        // Without it two rows would be taken for one.
        if let Some(generated) = primary.iter().find(|name| position(name).is_none()) {
            return Err(refused(format!(
                "{at}: column `{generated}` of the primary key of `{name}` is generated, and generated columns are not copied: without it two rows would have one key"
            )));
        }
        let primary: Vec<usize> = primary.iter().filter_map(|name| position(name)).collect();
        if primary.first() != Some(&at_key) {
            let is: Vec<_> =
                primary.iter().filter_map(|at| columns.get(*at)).map(|column| column.name.as_str()).collect();
            return Err(refused(format!(
                "{at}: `{key}` is not the first column of the primary key of `{name}`, which is ({}); the ids of a range of genes are one range of the primary key only if it begins with them",
                is.join(", ")
            )));
        }
        let key_kind = columns.get(at_key).map(|column| column.kind.clone()).unwrap_or_default();
        let is_wide = is_bytes(&key_kind);
        if !is_wide && !is_number(&key_kind) {
            return Err(refused(format!(
                "{at}: `{key}` of `{name}` is {key_kind}; a key of business ids is a BIGINT, or 16 bytes (VARBINARY(16), BYTEA)"
            )));
        }
        Ok(MovedTable { kind, name: name.to_owned(), quoted, columns, primary, is_wide })
    }

    /// The tables must be alike: what does not fit would be changed in silence. Where `may_have_more`, the other one may have columns that
    /// this one lacks.
    pub fn check_alike(
        &self,
        here: &str,
        other: &MovedTable,
        there: &str,
        may_have_more: bool,
    ) -> Result<()> {
        let alter = "make both tables alike with ALTER TABLE, in the new shard first";
        let lacks =
            |column: &Column, table: &MovedTable| table.columns.iter().all(|has| has.name != column.name);
        for column in &self.columns {
            match other.columns.iter().find(|found| found.name == column.name) {
                None => {
                    return Err(refused(format!(
                        "column `{}` of `{}` is in {here} and not in {there}; {alter}",
                        column.name, self.name
                    )));
                }
                Some(found) if found.kind != column.kind => {
                    return Err(refused(format!(
                        "column `{}` of `{}` is {} in {here} and {} in {there}; {alter}",
                        column.name, self.name, column.kind, found.kind
                    )));
                }
                Some(_) => {}
            }
        }
        if let Some(more) = other.columns.iter().find(|more| !may_have_more && lacks(more, self)) {
            return Err(refused(format!(
                "column `{}` of `{}` is in {there} and not in {here}; {alter}",
                more.name, self.name
            )));
        }
        let names = |table: &MovedTable| -> Vec<String> {
            table.primary_columns().map(|column| column.name.clone()).collect()
        };
        if names(self) != names(other) {
            return Err(refused(format!(
                "`{}` has another primary key in {here} than in {there}; {alter}",
                self.name
            )));
        }
        Ok(())
    }

    /// The columns in the order of another table, so that both are read and hashed alike.
    pub fn in_order_of(&mut self, other: &MovedTable) {
        let old = std::mem::take(&mut self.columns);
        let find = |name: &str| old.iter().find(|column| column.name == name).cloned();
        self.columns = other.columns.iter().filter_map(|column| find(&column.name)).collect();
        self.primary.clone_from(&other.primary);
    }

    pub fn key(&self) -> &str {
        self.primary.first().and_then(|at| self.columns.get(*at)).map_or("", |column| column.name.as_str())
    }
}

fn is_number(kind: &str) -> bool {
    matches!(kind.trim_end_matches(" unsigned"), "bigint")
}

fn is_bytes(kind: &str) -> bool {
    kind == "bytea" || ["varbinary(", "binary("].iter().any(|prefix| kind.starts_with(prefix))
}

/// The rows of a question to the catalogue, as texts.
pub fn texts(shard: &mut Shard, question: &str) -> Result<Vec<Vec<String>>> {
    let mut rows = Vec::new();
    shard.read(question, |row| {
        let text = |cell: Option<&[u8]>| {
            cell.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
        };
        rows.push(row.iter().copied().map(text).collect());
    })?;
    Ok(rows)
}

pub fn cell(row: &[String], at: usize) -> &str {
    row.get(at).map_or("", String::as_str)
}

/// The table of this name.
fn found(shard: &mut Shard, name: &str) -> Result<ShardTable> {
    let at = shard.at();
    let table = shard.table(name)?;
    check_kind(shard.kind(), &at, name, table)
}

/// Refuses what is no table.
///
/// # Errors
/// `STORE_REFUSED`.
pub fn check_kind(kind: ShardKind, at: &str, name: &str, found: Option<ShardTable>) -> Result<ShardTable> {
    let kinds = match kind {
        ShardKind::MySql => ["BASE TABLE", "SYSTEM VERSIONED"],
        ShardKind::Postgres => ["r", "p"],
    };
    match found {
        Some(table) if kinds.contains(&table.kind.as_str()) => Ok(table),
        Some(table) if table.kind.len() > 1 => {
            Err(refused(format!("{at}: `{name}` is no table, but a {}", table.kind)))
        }
        Some(_) => Err(refused(format!("{at}: `{name}` is no table"))),
        None => Err(refused(format!("{at}: there is no table `{name}`"))),
    }
}

/// What the catalogue is asked about a table: its columns, and the columns of its primary key.
pub fn questions(kind: ShardKind, name: &str, table: &ShardTable) -> [String; 2] {
    match kind {
        ShardKind::MySql => {
            let named = format!(
                "TABLE_SCHEMA = DATABASE() AND TABLE_NAME = {}",
                text_literal(ShardKind::MySql, name)
            );
            [
                format!(
                    "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COALESCE(CHARACTER_SET_NAME, ''), COALESCE(COLLATION_NAME, ''), IS_NULLABLE FROM information_schema.COLUMNS WHERE {named} AND COALESCE(GENERATION_EXPRESSION, '') = '' ORDER BY ORDINAL_POSITION"
                ),
                format!(
                    "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE {named} AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX"
                ),
            ]
        }
        ShardKind::Postgres => {
            let oid = table.oid;
            [
                format!(
                    "SELECT a.attname::pg_catalog.text, CASE WHEN t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace THEN pg_catalog.format_type(a.atttypid, a.atttypmod) ELSE t.typname || ' ' || a.atttypmod END, CASE WHEN a.attnotnull THEN 't' ELSE '' END, a.attidentity::pg_catalog.text, t.typcategory::pg_catalog.text, t.typname::pg_catalog.text, CASE WHEN t.typcategory <> 'A' AND t.typtype IN ('b', 'e', 'r', 'm') AND t.typdelim = ',' AND t.typarray <> 0 THEN pg_catalog.format_type(a.atttypid, -1) || '[]' ELSE '' END FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum"
                ),
                format!(
                    "SELECT a.attname::pg_catalog.text FROM pg_catalog.pg_index i CROSS JOIN LATERAL pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY k(attnum, at) JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE i.indrelid = {oid} AND i.indisprimary AND k.at <= i.indnkeyatts ORDER BY k.at"
                ),
            ]
        }
    }
}

fn mysql_column(row: &[String]) -> Column {
    let (data_type, charset) = (cell(row, 1).to_ascii_lowercase(), cell(row, 3));
    let mut kind = cell(row, 2).to_ascii_lowercase();
    if data_type.ends_with("int") {
        // Later servers have no width of integers.
        if let (Some(open), Some(close)) = (kind.find('('), kind.find(')')) {
            kind.replace_range(open..=close, "");
        }
        kind = kind.replace(" zerofill", "");
    } else if !charset.is_empty() {
        // The collation orders a key.
        kind = format!("{kind} collate {}", cell(row, 4));
    }
    let class = match data_type.as_str() {
        "float" => Class::Float,
        "json" => Class::Text,
        "bit" | "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "vector" => {
            Class::Bytes
        }
        "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring"
        | "multipolygon" | "geometrycollection" | "geomcollection" => Class::Bytes,
        _ if !charset.is_empty() => Class::Text,
        _ => Class::Plain,
    };
    let charset = match class {
        Class::Bytes => "",
        Class::Text if charset.is_empty() => "utf8mb4",
        Class::Text => charset,
        Class::Plain | Class::Float => "latin1",
    };
    Column {
        name: cell(row, 0).to_owned(),
        kind,
        class,
        charset: charset.to_owned(),
        is_identity: false,
        array: String::new(),
    }
}

fn postgres_column(row: &[String]) -> Column {
    let kind = cell(row, 1).to_owned();
    let class = match (cell(row, 4), cell(row, 5)) {
        (_, "bytea") => Class::Bytes,
        // It is written with commas.
        (_, "money") => Class::Text,
        ("N" | "B" | "D" | "T", _) => Class::Plain,
        _ => Class::Text,
    };
    Column {
        name: cell(row, 0).to_owned(),
        kind,
        class,
        charset: String::new(),
        is_identity: cell(row, 3) == "a",
        array: cell(row, 6).to_owned(),
    }
}
