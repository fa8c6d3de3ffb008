//! A database with the rows of a shard, for operators who move them: statements as they are, values as the server writes them.
//!
//! The connection is the one of the stores: the same login, TLS, timeouts and choice of the host that takes writes.

use std::time::Duration;

use super::Fault;

/// The settings of PostgreSQL that change how values are written, and as what they are read.
pub(crate) const POSTGRES_VALUES: [(&str, &str); 9] = [
    ("TimeZone", "UTC"),
    ("DateStyle", "ISO, YMD"),
    ("IntervalStyle", "postgres"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("array_nulls", "on"),
    ("lc_monetary", "C"),
    ("xmloption", "content"),
    // The name of a table as a value, `regclass`; and the expressions and types of two catalogues, which are compared.
    ("quote_all_identifiers", "off"),
];

/// The settings of MySQL: times in UTC; a zero, and a date that no calendar has, stay what they are; what does not fit is an error.
pub(crate) const MYSQL_VALUES: [(&str, &str); 2] = [
    ("time_zone", "+00:00"),
    ("sql_mode", "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES"),
];

/// The values of a row, as the server writes them; `None` is NULL.
pub type Cells<'r> = &'r [Option<&'r [u8]>];

/// A table of a shard, as the catalogue has it.
#[derive(Clone, Debug)]
pub(crate) struct ShardTable {
    /// Its name in SQL, with its schema.
    pub(crate) quoted: String,
    /// What it is, in the server's words.
    pub(crate) kind: String,
    /// PostgreSQL's `oid`.
    pub(crate) oid: u64,
}

/// Where a statement is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementPlace {
    /// By itself, or it begins a transaction.
    Alone,
    /// In the transaction that was begun.
    InTransaction,
}

/// A connection to a shard's database.
pub(crate) trait ShardSession: Send {
    /// Reads the rows of a statement, one after the other, so that memory holds one row. Answers with what it changed. In a transaction
    /// that was begun here the session's settings are as they should be.
    fn read(
        &mut self,
        sql: &str,
        place: StatementPlace,
        row: &mut dyn FnMut(Cells<'_>),
    ) -> Result<u64, Fault>;

    /// Rolls the open transaction back, also after an error.
    fn roll_back(&mut self) -> Result<(), Fault>;

    /// The table of exactly this name, as the login finds it; `None`: there is none. On PostgreSQL one of a role that the login does not
    /// belong to is refused, with its owner.
    fn table(&mut self, name: &str) -> Result<Option<ShardTable>, Fault>;

    /// How long a later statement waits for a lock, about, and the server for this client before it ends a transaction: a server that counts in
    /// seconds waits one at least.
    fn limit_waits(&mut self, for_locks: Duration, for_client: Duration) -> Result<(), Fault>;

    /// Whether it has to be made again.
    fn is_broken(&mut self) -> bool;
}
