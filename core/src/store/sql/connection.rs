//! A connection to a database: what each database implements, and the state that this layer keeps for it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::store::model::counter::CounterRow;
use crate::store::model::rows::Digits;
use crate::store::model::value::{ColumnValue, Value};
use crate::store::{Durability, Fault, FaultKind, Key, Mark, Request, Reserved, Row, Scheme, SerialKey};

use super::Dialect;
use super::statement::{SqlTable, Statement};

/// How long a row that was locked the last time is waited for. Other reservations release it within milliseconds.
pub(crate) const NOWAIT_PATIENCE: Duration = Duration::from_millis(10);

/// A row, by its table and its name.
pub(crate) type RowId = (String, String);

pub(crate) fn row_id(key: &Key) -> RowId {
    (key.table.clone(), key.name.to_string())
}

/// The state that this layer keeps for a connection.
#[derive(Debug, Default)]
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
    /// The highest time that the server's clock has shown when a new period was compared with it, milliseconds since 1970.
    pub(crate) clock_ms: u64,
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
        State { policy, patience, used_ms, ..State::default() }
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

/// A catalogue's entry for a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Relation {
    /// The columns, each with its type as the database names it; on MySQL and MariaDB the type of a text has its collation behind it.
    pub(crate) columns: Vec<(String, String)>,
    /// The columns of unique indexes, each with its index.
    pub(crate) unique: Vec<(String, String)>,
    /// The kind of relation and its storage engine or persistence, in the database's terms.
    pub(crate) kind: String,
    pub(crate) storage: String,
    /// PostgreSQL's `oid`.
    pub(crate) oid: u64,
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

    /// The table's qualified name in SQL.
    fn place(&self, key: &Key) -> Result<String, Fault> {
        Ok(format!("`{}`", key.table))
    }

    /// The table of a key, for statements about its row.
    fn table<'k>(&self, key: &'k Key) -> Result<SqlTable<'k>, Fault> {
        Ok(SqlTable { key, dialect: self.dialect(), place: self.place(key)? })
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

    /// Whether a table of this name exists, on databases whose tables the first reservation creates.
    fn has_table(&mut self, _table: &str) -> Result<bool, Fault> {
        Ok(true)
    }

    /// Takes a table into use inside a transaction, on databases whose tables the first reservation creates; creates it by this
    /// statement where it is missing.
    fn adopt_table(&mut self, _missing: Option<&str>) -> Result<(), Fault> {
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

    /// [`Rows::largest`](crate::store::model::rows::Rows::largest).
    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault>;

    /// The schemes whose rows the server numbers, if the database has them.
    fn tickets(&mut self) -> Option<&mut dyn Tickets> {
        None
    }

    /// SQL sequences, if the database has them.
    fn sequences(&mut self) -> Option<&mut dyn Sequences> {
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

/// How a sequence counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counting {
    /// Its `INCREMENT BY`.
    pub(crate) increment: i128,
    /// It starts again at its end.
    pub(crate) cycles: bool,
    /// Its first value.
    pub(crate) start: i128,
    /// The step that it was made with, where its comment says so.
    pub(crate) made_with: Option<u64>,
    /// As a statement names it.
    pub(crate) place: String,
}

/// The database's answer to a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawn {
    /// A value of a sequence that starts at `start`.
    Value { value: u64, start: u64 },
    /// No value was drawn: the sequence is below what was seen. `next` is the value that would come.
    Behind { next: u64 },
    /// The sequence has no value left.
    RanOut,
    /// A value was drawn of a sequence that did not count as this source says: it was altered meanwhile.
    Altered,
}

/// The SQL sequences of a database.
pub(crate) trait Sequences {
    /// How the sequence of this key counts; `None`: it is missing. Refused if its values do not rise in order.
    fn counting(&mut self, key: &Key) -> Result<Option<Counting>, Fault>;

    /// The value that comes next; `None`: it is no positive number.
    fn next(&mut self, key: &Key) -> Result<Option<u64>, Fault>;

    /// Draws a value, unless the sequence is below `seen`. A sequence that was set back would otherwise rise value by value
    /// to where this process stands, and pass numbers that other nodes have issued.
    /// How the sequence counts is judged in the same statement, where the database can say so: its next value would otherwise
    /// lie inside the range of this one.
    /// With `optimizer=pooled` the value has to be so far above `seen` that its range is too.
    fn draw(&mut self, key: &Key, seen: u64) -> Result<Drawn, Fault>;

    /// Makes `used` the value that was used last; never lowers it.
    fn raise(&mut self, key: &Key, used: u64) -> Result<(), Fault>;

    /// How this database may lose values, other than by a restored backup.
    fn loser(&self) -> &'static str;
}

/// The fault for a table with other columns.
pub(crate) fn wrong(connection: &dyn Connection, key: &Key, what: &str) -> Fault {
    Fault::new(
        FaultKind::Refused,
        format!(
            "table `{}`{} is not one of scheme `{}`: {what}; name another with `table=`, if no id of this source was issued",
            key.table,
            connection.location(),
            key.scheme.name()
        ),
    )
}
