//! What the error of a driver means for a write.

use std::fmt;

use crate::store::FaultKind;
#[cfg(feature = "mysql")]
use crate::store::mysql;
#[cfg(feature = "postgres")]
use crate::store::postgres;
use crate::store::server::Phase;
use crate::store::sql::judgement::Meaning;

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

    /// What the stores make of this error; a build without the store of this kind makes nothing of it.
    fn meaning(&self, kind: ShardKind, phase: Phase) -> Option<Meaning> {
        match kind {
            #[cfg(feature = "mysql")]
            ShardKind::MySql if self.number != 0 => {
                Some(mysql::meaning(u16::try_from(self.number).ok()?, &self.message, phase))
            }
            #[cfg(feature = "postgres")]
            ShardKind::Postgres if !self.state.is_empty() => Some(postgres::meaning(&self.state, phase)),
            _ => None,
        }
    }

    /// It is not known whether the server has carried out a commit.
    pub(super) fn is_unknown_commit(&self, kind: ShardKind) -> bool {
        self.is_unknown() || matches!(self.meaning(kind, Phase::Commit), Some(Meaning::Unknown))
    }

    /// The server has rolled the transaction back at its commit, so that others go on.
    pub(super) fn is_conflict_at_commit(&self, kind: ShardKind) -> bool {
        !self.is_unknown() && matches!(self.meaning(kind, Phase::Commit), Some(Meaning::Conflict))
    }

    /// The server chose this transaction to end, so that others go on: it can be tried again.
    pub(super) fn is_conflict(&self, kind: ShardKind) -> bool {
        // A member of a cluster of MySQL that is not ready says 1047.
        matches!(self.meaning(kind, Phase::Write), Some(Meaning::Conflict | Meaning::Locked))
            || kind == ShardKind::MySql && self.number == 1047
    }

    /// The same may succeed later: the server has ended the statement or the session, has no room, or takes no writes now.
    pub(super) fn is_temporary(&self, kind: ShardKind) -> bool {
        let is_unavailable = matches!(
            self.meaning(kind, Phase::Write),
            Some(Meaning::Unknown | Meaning::Plain { kind: FaultKind::Unavailable, .. })
        );
        self.is_unknown() || self.is_conflict(kind) || is_unavailable
    }

    /// The server has no room for the rows, and will hardly have some within the deadline.
    pub(super) fn is_full(&self, kind: ShardKind) -> bool {
        match kind {
            ShardKind::MySql => [1021, 1114].contains(&self.number),
            ShardKind::Postgres => self.state == "53100",
        }
    }

    /// PostgreSQL takes no statement any more, because one of the transaction has failed.
    pub(super) fn is_of_aborted_transaction(&self, kind: ShardKind) -> bool {
        kind == ShardKind::Postgres && self.state == "25P02"
    }

    /// The client of MySQL sends nothing before the rows of an earlier statement are read.
    pub(super) fn is_of_unread_rows(&self, kind: ShardKind) -> bool {
        kind == ShardKind::MySql && self.number == 2014
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
