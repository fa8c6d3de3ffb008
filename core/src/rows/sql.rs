//! The statements that move rows, in the words of MySQL and of PostgreSQL.

use super::key::{Id, IdRange, Primary};
use super::literals::{quoted, write_literal};
use super::moved_table::{Class, Column, MovedTable};
use super::shard::{Cells, ShardKind};

/// The value of a column of bits, as a number: MariaDB compares such a column with nothing else.
pub fn bits(kind: ShardKind, column: &Column, bytes: &[u8]) -> Option<String> {
    let is_bits = kind == ShardKind::MySql && column.kind.starts_with("bit(");
    is_bits.then(|| bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)).to_string())
}

impl MovedTable {
    pub fn name_of(&self, column: &Column) -> String {
        quoted(self.kind, &column.name)
    }

    fn names(&self) -> String {
        self.columns.iter().map(|column| self.name_of(column)).collect::<Vec<_>>().join(", ")
    }

    pub fn quoted_key(&self) -> String {
        quoted(self.kind, self.key())
    }

    /// An id in SQL.
    pub fn id(&self, id: &Id) -> String {
        match (id, self.kind) {
            (Id::Number(number), _) => number.to_string(),
            (Id::Bytes(_), ShardKind::MySql) => format!("X'{}'", &id.to_string()[2..]),
            (Id::Bytes(_), ShardKind::Postgres) => format!("'\\x{}'::pg_catalog.bytea", &id.to_string()[2..]),
        }
    }

    /// The condition of a range on the key.
    pub fn within(&self, range: &IdRange) -> String {
        format!("{} BETWEEN {} AND {}", self.quoted_key(), self.id(&range.first), self.id(&range.last))
    }

    /// The id of a row, as this column holds it.
    pub fn read_id(&self, bytes: &[u8]) -> Option<Id> {
        match (self.is_wide, self.kind) {
            (false, _) => std::str::from_utf8(bytes).ok()?.parse().ok().map(Id::Number),
            (true, ShardKind::MySql) => Some(Id::Bytes(bytes.to_vec())),
            (true, ShardKind::Postgres) => {
                let digits = std::str::from_utf8(bytes).ok()?.strip_prefix("\\x")?;
                let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
                (0..digits.len()).step_by(2).map(byte).collect::<Option<_>>().map(Id::Bytes)
            }
        }
    }

    /// The id of the row that is so many rows behind the first of the range.
    pub fn nth(&self, range: &IdRange, behind: u64) -> String {
        let key = self.quoted_key();
        format!(
            "SELECT {key} FROM {} WHERE {} ORDER BY {key} LIMIT 1 OFFSET {behind}",
            self.quoted,
            self.within(range)
        )
    }

    pub fn count(&self, range: &IdRange) -> String {
        format!("SELECT COUNT(*) FROM {} WHERE {}", self.quoted, self.within(range))
    }

    /// The values of a row.
    fn values(&self) -> String {
        let value = |column: &Column| {
            let name = self.name_of(column);
            if self.kind == ShardKind::MySql && column.class == Class::Float {
                format!("{name} + 0e0")
            } else {
                name
            }
        };
        self.columns.iter().map(value).collect::<Vec<_>>().join(", ")
    }

    pub fn select_where(&self, condition: &str) -> String {
        format!("SELECT {} FROM {} WHERE {condition}", self.values(), self.quoted)
    }

    /// The rows of a condition with all their values, which stay as they are until the transaction ends.
    pub fn select_locked(&self, condition: &str) -> String {
        // `FOR SHARE` is unknown to MariaDB.
        let lock = if self.kind == ShardKind::MySql { "LOCK IN SHARE MODE" } else { "FOR SHARE" };
        format!("{} {lock}", self.select_where(condition))
    }

    /// The condition of these ids.
    pub fn one_of<'i>(&self, ids: impl IntoIterator<Item = &'i Id>) -> String {
        let ids: Vec<_> = ids.into_iter().map(|id| self.id(id)).collect();
        format!("{} IN ({})", self.quoted_key(), ids.join(", "))
    }

    /// The primary key of a row of [`MovedTable::select_where`].
    pub fn primary_of(&self, row: Cells<'_>) -> Option<Vec<Vec<u8>>> {
        self.primary.iter().map(|at| row.get(*at).copied().flatten().map(<[u8]>::to_vec)).collect()
    }

    /// Locks the row of this primary key, and answers with its key.
    pub fn lock_row(&self, primary: &[Vec<u8>]) -> String {
        format!("SELECT {} FROM {} WHERE {} FOR UPDATE", self.quoted_key(), self.quoted, self.is_row(primary))
    }

    /// How many rows have this primary key.
    pub fn count_row(&self, primary: &[Vec<u8>]) -> String {
        format!("SELECT COUNT(*) FROM {} WHERE {}", self.quoted, self.is_row(primary))
    }

    pub fn primary_columns(&self) -> impl Iterator<Item = &Column> {
        self.primary.iter().filter_map(|at| self.columns.get(*at))
    }

    /// The values of a primary key, in the order of its columns.
    pub fn primary_literals(&self, primary: &[Vec<u8>]) -> Vec<String> {
        let literal = |(column, bytes): (&Column, &Vec<u8>)| {
            if let Some(id) = self.read_id(bytes).filter(|_| column.name == self.key()) {
                return self.id(&id);
            }
            if let Some(number) = bits(self.kind, column, bytes) {
                return number;
            }
            let mut literal = String::new();
            write_literal(&mut literal, self.kind, &column.charset, bytes);
            literal
        };
        self.primary_columns().zip(primary).map(literal).collect()
    }

    /// The condition of a primary key.
    pub fn is_row(&self, primary: &[Vec<u8>]) -> String {
        let columns = self.primary_columns().zip(self.primary_literals(primary));
        let is = |(column, literal)| format!("{} = {literal}", self.name_of(column));
        columns.map(is).collect::<Vec<_>>().join(" AND ")
    }

    /// Deletes a row where a condition holds.
    pub fn delete(&self, primary: &Primary, condition: &str) -> String {
        format!("DELETE FROM {} WHERE {} AND {condition}", self.quoted, self.is_row(primary))
    }

    /// The beginning of an insert.
    pub fn insert(&self) -> String {
        let own = if self.kind == ShardKind::MySql { "" } else { " OVERRIDING SYSTEM VALUE" };
        format!("INSERT INTO {} ({}){own} ", self.quoted, self.names())
    }

    /// The end of an insert: a row that is there already is replaced. It is an error where another row has one of its unique values.
    pub fn or_replace(&self) -> String {
        // Values of a key may be alike and have other texts: letters, 1.0 and 1.00, an interval of 1 day and of 24 hours. An id has one text.
        let is_fixed =
            |(at, column): &(usize, &Column)| column.is_identity || self.primary.first() == Some(at);
        let others = || {
            let others = self.columns.iter().enumerate().filter(|one| !is_fixed(one));
            others.map(|(_, column)| self.name_of(column))
        };
        let keys = || self.primary_columns().map(|column| self.name_of(column));
        match self.kind {
            // MySQL gets here by any unique key.
            ShardKind::MySql => {
                let same: Vec<String> =
                    keys().map(|key| format!("VALUES({key}) = {}.{key}", self.quoted)).collect();
                let (same, key) = (same.join(" AND "), self.quoted_key());
                let [one, two] = if self.is_wide { ["X'01'", "X'02'"] } else { ["1", "2"] };
                // A subquery of two rows is an error where it is evaluated.
                let only_same = format!(
                    "{key} = IF({same}, {}.{key}, (SELECT {one} UNION ALL SELECT {two}))",
                    self.quoted
                );
                let sets = others().map(|name| format!("{name} = VALUES({name})"));
                let sets: Vec<_> = [only_same].into_iter().chain(sets).collect();
                format!(" ON DUPLICATE KEY UPDATE {}", sets.join(", "))
            }
            ShardKind::Postgres => {
                let keys: Vec<_> = keys().collect();
                let sets: Vec<_> = others().map(|name| format!("{name} = EXCLUDED.{name}")).collect();
                let then = if sets.is_empty() {
                    "NOTHING".to_owned()
                } else {
                    format!("UPDATE SET {}", sets.join(", "))
                };
                format!(" ON CONFLICT ({}) DO {then}", keys.join(", "))
            }
        }
    }
}
