//! What rows are compared by: digests that the servers compute, of each row and of a range.
//!
//! The digest of a row is a hash of its values' texts with commas between them; texts and bytes, which may have commas, stand there as a
//! hash of their own: SHA-256, since MySQL 9.7 has no `MD5` any more, and MD5 on PostgreSQL. These digests guard against no attacker. A range has the number of its rows, and the sum of the first 60 bits of each.

use std::collections::BTreeMap;

use crate::error::{Code, Error, Result};

use super::key::{Id, IdRange, Primary};
use super::literals::quoted;
use super::moved_table::{Class, Column, MovedTable};
use super::shard::{Cells, Shard, ShardKind};

/// All values of a row, as they are compared: hexadecimal digits.
pub type Digest = Vec<u8>;

impl MovedTable {
    fn digest_of(&self, column: &Column) -> String {
        let name = quoted(self.kind, &column.name);
        match (self.kind, column.class) {
            (ShardKind::MySql, Class::Plain) => format!("IFNULL(CONCAT({name}), '-')"),
            (ShardKind::MySql, Class::Float) => format!("IFNULL(CONCAT({name} + 0e0), '-')"),
            (ShardKind::MySql, _) => format!("IFNULL(SHA2({name}, 256), '-')"),
            (ShardKind::Postgres, Class::Bytes) => format!("coalesce(pg_catalog.md5({name}), '-')"),
            (ShardKind::Postgres, Class::Text) => {
                format!("coalesce(pg_catalog.md5({name}::pg_catalog.text), '-')")
            }
            (ShardKind::Postgres, _) => format!("coalesce({name}::pg_catalog.text, '-')"),
        }
    }

    /// The [`Digest`] of a row.
    pub fn digest(&self) -> String {
        let columns: Vec<_> = self.columns.iter().map(|column| self.digest_of(column)).collect();
        match self.kind {
            ShardKind::MySql => format!("SHA2(CONCAT_WS(',', {}), 256)", columns.join(", ")),
            ShardKind::Postgres => {
                format!("pg_catalog.md5(pg_catalog.concat_ws(',', {}))", columns.join(", "))
            }
        }
    }

    /// How many rows a range has, and their digest.
    pub fn checksum(&self, range: &IdRange) -> String {
        let digest = self.digest();
        let sum = match self.kind {
            ShardKind::MySql => format!("SUM(CAST(CONV(LEFT({digest}, 15), 16, 10) AS UNSIGNED))"),
            ShardKind::Postgres => {
                format!("sum(('x' || pg_catalog.left({digest}, 15))::pg_catalog.bit(60)::pg_catalog.int8)")
            }
        };
        format!("SELECT COUNT(*), COALESCE({sum}, 0) FROM {} WHERE {}", self.quoted, self.within(range))
    }

    /// The primary key and the digest of each row.
    pub fn digests(&self, condition: &str) -> String {
        let named = |at: &usize| self.columns.get(*at).map(|column| quoted(self.kind, &column.name));
        let columns: Vec<_> = self.primary.iter().filter_map(named).collect();
        format!("SELECT {}, {} FROM {} WHERE {condition}", columns.join(", "), self.digest(), self.quoted)
    }

    /// Deletes rows that still have all their values, where a condition holds. The server looks at the values of a row once it has locked it.
    pub fn delete_unchanged(&self, rows: &[(&Primary, &Digest)], condition: &str) -> String {
        let names: Vec<_> = self.primary_columns().map(|column| self.name_of(column)).collect();
        let literals =
            |(primary, _): &(&Primary, &Digest)| format!("({})", self.primary_literals(primary).join(", "));
        // The digests are another server's words: only hexadecimal digits go into a statement. The primary key is one of the values, so no row
        // has the digest of another one.
        let digest = |(_, digest): &(&Primary, &Digest)| {
            let digits = digest.iter().copied().filter(u8::is_ascii_hexdigit).map(char::from);
            format!("'{}'", digits.collect::<String>())
        };
        format!(
            "DELETE FROM {} WHERE ({}) IN ({}) AND {} IN ({}) AND {condition}",
            self.quoted,
            names.join(", "),
            rows.iter().map(literals).collect::<Vec<_>>().join(", "),
            self.digest(),
            rows.iter().map(digest).collect::<Vec<_>>().join(", ")
        )
    }

    /// A row of [`MovedTable::digests`].
    fn read_digest(&self, row: Cells<'_>) -> Option<(Primary, Digest)> {
        let keys = self.primary.len();
        let primary = row.get(..keys)?.iter().map(|cell| cell.map(<[u8]>::to_vec)).collect::<Option<_>>()?;
        Some((primary, (*row.get(keys)?)?.to_vec()))
    }

    /// The id of a row by its primary key.
    pub fn id_of(&self, primary: &Primary) -> Option<Id> {
        self.read_id(primary.first()?)
    }

    /// A row for people.
    pub fn shown(&self, primary: &Primary) -> String {
        let id = self.id_of(primary).map(|id| id.to_string());
        let rest = primary.iter().skip(1).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        id.into_iter().chain(rest).collect::<Vec<_>>().join("/")
    }
}

/// Count and checksum of a range.
pub fn checksum(shard: &mut Shard, table: &MovedTable, range: &IdRange) -> Result<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    shard.read(&table.checksum(range), |row| {
        found = row.iter().map(|cell| cell.unwrap_or_default().to_vec()).collect();
    })?;
    Ok(found)
}

/// The rows that a condition finds.
pub fn digests(shard: &mut Shard, table: &MovedTable, condition: &str) -> Result<BTreeMap<Primary, Digest>> {
    let (mut found, mut strange) = (BTreeMap::new(), 0_u64);
    shard.read(&table.digests(condition), |row| match table.read_digest(row) {
        Some((primary, digest)) => {
            found.insert(primary, digest);
        }
        None => strange += 1,
    })?;
    if strange > 0 {
        return Err(Error::new(
            Code::StoreRefused,
            format!(
                "{}: {strange} rows of `{}` have no digest; nothing was compared",
                shard.at(),
                table.name
            ),
        ));
    }
    Ok(found)
}
