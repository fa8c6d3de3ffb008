//! Reservations in a SQL database: everything that does not depend on the database.
//!
//! A scheme is data ([`Scheme`](crate::request::scheme::Scheme)), a database is a [`Connection`], and everything between them is
//! written once here. So a new scheme is an entry in the list of schemes, and a new database is a connection with its
//! differences.
//!
//! * [`Connection`] is what a database implements: queries, changes, `BEGIN`, `COMMIT` and `ROLLBACK`, statements that
//!   commit by themselves, its catalogue, and the meaning of its errors. It keeps its [`State`] for this layer.
//! * `statement` writes SQL from a scheme's columns, in a syntax that every connection translates: `` `name` `` and `?`.
//! * `sql_rows` reads and writes rows inside a transaction (the [`Rows`](super::model::rows::Rows) of all databases), begins a
//!   transaction again after a conflict, and creates tables.
//! * `conditional_add` is the fast path: one statement that adds to the row and commits by itself, under conditions that
//!   hold only in the common case. If it matches no row, nothing was changed and a transaction decides.
//! * `many` changes many rows of keymill's own table in one transaction.
//! * `together` sends the statements of several sources at once, without those whose rows are locked.
//! * `relation` checks once a connection that a table has the columns and keys that its scheme needs; `sequence` does so
//!   for SQL sequences, and draws from them.
//! * `sql_slots` reads and writes the rows of leased workers, `sql_routes` route tables.
//! * `store` is the one [`Store`](super::Store) over a [`Server`](store::Server), which makes connections and keeps one.
//!
//! Rules for every connection, each bought with a duplicate somewhere:
//! * After anything but a result or the database's own error a connection is not used again: after a read timeout it would
//!   return the answer of the *previous* query, the range of another key, to the next one.
//! * A range is used only after the answer to the statement that commits it. If the connection dies before that answer, the
//!   outcome is unknown: the range is never used, and the row is not read again to guess.
//! * The settings on which a commit's durability depends are judged with each reservation, in its own statements.

mod conditional_add;
pub(crate) mod dialect;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod judgement;
mod many;
mod relation;
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) mod remote;
pub(crate) mod sequence;
mod sql_routes;
pub(crate) mod sql_rows;
pub(super) mod sql_slots;
mod statement;
pub mod store;
mod together;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::model::counter::CounterRow;
use super::model::rows::Digits;
use super::model::value::{ColumnValue, Value};
use super::{Durability, Fault, FaultKind, Key, Mark, Request, Reserved, Row, Scheme, SerialKey};
pub(crate) use dialect::{Dialect, create_statement};
pub(crate) use relation::{Relation, check_table, wrong};
pub(crate) use statement::Statement;
pub use store::SqlStore;

/// A row, by its table and its name.
pub(crate) type RowId = (String, String);

pub(crate) fn row_id(key: &Key) -> RowId {
    (key.table.clone(), key.name.to_string())
}

/// The state that this layer keeps for a connection.
#[derive(Debug)]
pub(crate) struct State {
    /// What to do about settings that lose commits.
    pub(crate) policy: Durability,
    pub(crate) warnings: Vec<String>,
    /// Tables whose shape has been checked.
    pub(crate) checked: HashSet<(Scheme, String)>,
    /// The index of the unique key of each table that was checked, by place.
    pub(crate) unique: HashMap<String, String>,
    /// Rows whose step and time to live have been read, by place and name.
    pub(crate) known: HashMap<(String, String), CounterRow>,
    /// Tables whose changes are answered without their number, as MariaDB answers where a trigger fires: by place. The store
    /// keeps them for its later connections.
    pub(crate) numberless: HashSet<String>,
    /// Rows that other transactions had locked at their last request. They are requested on their own and with NOWAIT, so
    /// that one locked row does not delay the other sources.
    pub(crate) locked: HashSet<RowId>,
    /// How many rows a batch of counters had in which one was locked, less those that were written since. Until as many were, batches
    /// and counters are requested with NOWAIT: the locked one is found without waiting for it again.
    pub(crate) locked_batch: usize,
    /// NOWAIT is in effect.
    pub(crate) nowait: bool,
    /// How long a transaction is begun again after conflicts.
    pub(crate) patience: Duration,
    /// Boot time of the last answer.
    pub(crate) used_ms: u64,
    /// The connection must not be used again.
    pub(crate) broken: bool,
    /// The last error was a conflict: the transaction may be begun again.
    pub(crate) conflict: bool,
    /// The last error was a duplicate key.
    pub(crate) duplicate: bool,
    /// A statement of the open transaction has failed: `COMMIT` would roll back and call that a success.
    pub(crate) aborted: bool,
}

impl State {
    pub(crate) fn new(policy: Durability, patience: Duration, used_ms: u64) -> State {
        State {
            policy,
            warnings: Vec::new(),
            checked: HashSet::new(),
            unique: HashMap::new(),
            known: HashMap::new(),
            numberless: HashSet::new(),
            locked: HashSet::new(),
            locked_batch: 0,
            nowait: false,
            patience,
            used_ms,
            broken: false,
            conflict: false,
            duplicate: false,
            aborted: false,
        }
    }

    /// Clears the last errors.
    pub(crate) fn begin_attempt(&mut self) {
        (self.conflict, self.duplicate) = (false, false);
    }

    /// Handles a setting that loses commits: refuses it or notes it, as configured.
    pub(crate) fn judge(&mut self, found: String) -> Result<(), Fault> {
        match self.policy {
            Durability::Refuse => Err(Fault::new(FaultKind::Unsafe, refused_setting(&found))),
            Durability::Warn => {
                self.warn(found);
                Ok(())
            }
        }
    }

    pub(crate) fn warn(&mut self, found: String) {
        if !self.warnings.contains(&found) {
            self.warnings.push(found);
        }
    }
}

/// The message for such a setting.
pub(crate) fn refused_setting(found: &str) -> String {
    format!("{found}; change it, or `durability=warn` accepts the risk of duplicates")
}

/// The result of a statement that committed by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Changed {
    /// How many rows it changed.
    pub(crate) rows: u64,
    /// The number in its answer, if it returns one.
    pub(crate) number: Option<u64>,
}

/// The outcome of several statements in one transaction.
#[derive(Debug)]
pub(crate) enum Together {
    /// All were carried out, with these results.
    Done(Vec<Changed>),
    /// Nothing was changed: another transaction has locked the row of this statement.
    LockedAt(usize),
    /// Nothing was changed.
    Nothing,
}

/// A connection to a database.
///
/// Statements are written with `` `name` `` and `?`. Their faults say what they mean for a reservation, and the connection's
/// [`State`] what may be done next.
pub(crate) trait Connection {
    fn dialect(&self) -> Dialect;

    fn state(&mut self) -> &mut State;

    /// Runs a query; answers with its rows.
    fn query(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Vec<ColumnValue>>, Fault>;

    /// Makes a change inside a transaction; answers with how many rows it changed.
    fn change(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault>;

    /// Carries out an `INSERT` of several rows inside a transaction, but for those whose key another transaction has taken; answers
    /// with the `name` of each row that it made. `None`: this database cannot, and nothing was done.
    fn make_some(
        &mut self,
        _insert: &str,
        _values: &[Value],
    ) -> Result<Option<Vec<Vec<ColumnValue>>>, Fault> {
        Ok(None)
    }

    fn begin(&mut self) -> Result<(), Fault>;

    /// Commits. After a failure the transaction was rolled back, or its outcome is unknown and the connection is not used
    /// again.
    fn commit(&mut self) -> Result<(), Fault>;

    /// Rolls back. A connection that cannot do that is not used again; the database rolls back when it closes.
    fn roll_back(&mut self);

    /// Makes a change that commits by itself.
    fn commit_alone(&mut self, change: &Statement) -> Result<Changed, Fault> {
        self.begin()?;
        match self.change(&change.sql(), &change.values()) {
            Ok(rows) => self.commit().map(|()| Changed { rows, number: None }),
            Err(fault) => {
                self.roll_back();
                Err(fault)
            }
        }
    }

    /// Makes several changes in one transaction, sent at once.
    fn commit_together(&mut self, _changes: &[&Statement]) -> Result<Together, Fault> {
        Ok(Together::Nothing)
    }

    /// Switches NOWAIT on or off: whether statements wait for rows that other transactions have locked.
    fn set_nowait(&mut self, nowait: bool) -> Result<(), Fault> {
        self.state().nowait = nowait;
        Ok(())
    }

    /// Whether a statement that commits by itself can avoid waiting for a locked row while NOWAIT is on.
    fn commits_alone_without_waiting(&self) -> bool {
        true
    }

    /// The end of a query for a row that is going to be changed.
    fn for_update(&self) -> &'static str {
        ""
    }

    /// The end of a query for a row that is not going to be changed, and that no other transaction may change before the commit.
    fn for_share(&self) -> &'static str {
        ""
    }

    /// The end of a change that commits by itself and returns this column.
    fn ends_with(&self, _column: &str) -> String {
        String::new()
    }

    /// The table's qualified name in SQL.
    fn place(&self, key: &Key) -> Result<String, Fault> {
        Ok(format!("`{}`", key.table))
    }

    /// Refuses if the database takes no writes.
    fn writable(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// The catalogue's entry for the table of this key; `None`: there is none, or this user may not see it.
    fn relation(&mut self, key: &Key) -> Result<Option<Relation>, Fault>;

    /// Refuses a table with the right columns that may lose rows, or whose statements change other tables.
    fn check_relation(&mut self, _key: &Key, _found: &Relation) -> Result<(), Fault> {
        Ok(())
    }

    /// Checks a table that the first reservation creates, inside its transaction.
    fn ensure_table(&mut self, _key: &Key) -> Result<(), Fault> {
        Ok(())
    }

    /// The schema in which a missing table is created, on databases with schemas.
    fn schema_to_create_in(&self, _table: &str) -> Option<String> {
        None
    }

    /// Creates a table or a sequence.
    fn create(&mut self, key: &Key, statement: &str) -> Result<(), Fault>;

    /// Forgets which tables were checked.
    fn forget_tables(&mut self) {
        self.state().checked.clear();
    }

    /// The table's location, for messages about its columns.
    fn location(&self) -> String {
        String::new()
    }

    /// [`Rows::largest`](super::model::rows::Rows::largest).
    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault>;

    /// The schemes whose rows the server numbers, if the database has them.
    fn tickets(&mut self) -> Option<&mut dyn Tickets> {
        None
    }

    /// SQL sequences, if the database has them.
    fn sequences(&mut self) -> Option<&mut dyn sequence::Sequences> {
        None
    }
}

/// Ranges numbered by an AUTO_INCREMENT column.
pub(crate) trait Tickets {
    /// Refuses a table whose step is not the source's.
    fn check(&mut self, key: &Key) -> Result<(), Fault>;

    /// Draws a ticket; `None`: another node drew one at the same time, and nothing was drawn.
    fn draw(&mut self, request: &Request) -> Result<Option<Reserved>, Fault>;

    /// Makes a row of uid-generator's `WORKER_NODE`; answers with its number.
    fn make_node(&mut self, key: &Key, host: &str, process: &str) -> Result<u64, Fault>;

    /// The newest ticket of this name.
    fn newest(&mut self, key: &Key) -> Result<Option<Row>, Fault>;

    /// Draws the ticket that ends at or above `to`; `None`: another node has drawn that ticket.
    fn raise(&mut self, key: &Key, to: Mark) -> Result<Option<(Option<Row>, Row)>, Fault>;
}
