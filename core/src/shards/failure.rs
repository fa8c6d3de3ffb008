//! What the error of a driver means for a write.

use std::fmt;

use super::ShardKind;

/// The error of a database, as a driver has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardFailure {
    /// The SQLSTATE; empty: the driver has none.
    pub state: String,
    /// The number of the server's error; 0: the driver has none.
    pub number: u32,
    /// The words of the driver.
    pub message: String,
    /// The connection cannot be used any more.
    pub is_broken: bool,
}

impl fmt::Display for ShardFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ShardFailure {}

impl ShardFailure {
    /// No answer of the server: it is unknown what it did.
    pub(super) fn is_unknown(&self) -> bool {
        self.is_broken
            || self.state.starts_with("08")
            || self.state.is_empty() && self.number == 0
            // MySQL's client: 2006, the server has gone away; 2013, the connection was lost; PostgreSQL: terminated by the administrator, a crash.
            || (2000..3000).contains(&self.number)
            || self.state.starts_with("57P")
    }

    /// The server chose this transaction to end, so that others go on: it can be tried again.
    pub(super) fn is_conflict(&self, kind: ShardKind) -> bool {
        match kind {
            // A deadlock, a lock that another one holds for too long or (`NOWAIT`, MySQL) at all, a row that is newer than the snapshot
            // (`innodb_snapshot_isolation`, which MariaDB has by default since 11.6), a member of a cluster that is not ready.
            ShardKind::MySql => [1213, 1205, 3572, 1020, 1047, 3101].contains(&self.number),
            ShardKind::Postgres => ["40001", "40P01", "55P03"].contains(&self.state.as_str()),
        }
    }

    /// Two rows would have one value that may be there once.
    pub(super) fn is_not_unique(&self, kind: ShardKind) -> bool {
        match kind {
            ShardKind::MySql => [1062, 1022, 1586].contains(&self.number),
            // The second is an exclusion constraint.
            ShardKind::Postgres => ["23505", "23P01"].contains(&self.state.as_str()),
        }
    }

    /// A row refers to a missing row.
    pub(super) fn is_of_parents(&self, kind: ShardKind) -> bool {
        match kind {
            ShardKind::MySql => [1451, 1452].contains(&self.number),
            ShardKind::Postgres => ["23503", "23001"].contains(&self.state.as_str()),
        }
    }

    /// There is no such savepoint.
    pub(super) fn is_of_savepoint(&self, kind: ShardKind) -> bool {
        kind == ShardKind::MySql && self.number == 1305
    }

    /// A table has other columns than before.
    pub(super) fn is_of_schema(&self, kind: ShardKind) -> bool {
        match kind {
            ShardKind::MySql => [1054, 1146, 1241, 1136, 1412].contains(&self.number),
            ShardKind::Postgres => ["42703", "42P01", "21000"].contains(&self.state.as_str()),
        }
    }
}
