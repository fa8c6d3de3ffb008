//! Reservations in PostgreSQL: the part that `sql` does not cover.
//!
//! A connection has a runtime of its own, which runs only while the keeper waits for an answer.
//! * A range is used only after `ReadyForQuery`, which follows the commit: rows arrive before it.
//! * A commit whose wait for a synchronous standby was cancelled counts as unknown, although the server reports success.
//! * Every wait has a limit. `postgres`, the blocking driver, has none while it reads.
//! * `nextval` alone is not durable: see `postgres_connection.rs`.

mod failed;
mod login_filter;
mod owners;
mod place;
mod postgres_connection;
mod postgres_dialect;
mod postgres_error;
mod postgres_sequences;
mod postgres_session;
#[cfg(feature = "moves")]
mod postgres_shard;
mod postgres_values;
mod postgres_wire;
mod prepared;

use std::fmt;
use std::sync::PoisonError;

pub use super::server::{ServerOptions, Tls, TlsMode};
use super::sql::remote::{Driver, Remote, RemoteConnection};
use super::sql::{Dialect, SqlStore};
use super::{Facts, Fault, FaultKind};
use crate::store::server::FailedTargets;
use crate::time::Clock;
#[cfg(feature = "moves")]
pub(crate) use postgres_dialect::meaning;
use postgres_session::{History, PostgresSession, Shared};

/// Reservations in PostgreSQL.
pub type PostgresStore = SqlStore<Remote<Postgres, PostgresSession>>;

/// Connects to a server, or among several to the server that takes writes.
#[derive(Default)]
pub struct Postgres {
    /// The history of the server to which this process wrote last.
    history: Option<History>,
    /// What this process has learnt about the server, across connections.
    shared: Shared,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgreSQL")
    }
}

impl PostgresStore {
    /// A store on this server. Nothing is connected yet.
    #[must_use]
    pub fn new(options: ServerOptions) -> PostgresStore {
        SqlStore { server: Remote::new(options, Postgres::default()) }
    }
}

impl Driver for Postgres {
    type Connection = PostgresSession;

    const DIALECT: Dialect = Dialect::Postgres;

    /// Connects to the first host that takes writes and was not replaced. A primary that comes back after a failover takes
    /// writes too, but lacks every commit since; its timeline is older. A process without a history asks every host.
    fn connect(&mut self, options: &ServerOptions) -> Result<PostgresSession, Fault> {
        let (mut failures, mut replaced) = (FailedTargets::default(), Vec::new());
        let (mut best, mut fallback): (Option<(String, PostgresSession)>, Option<PostgresSession>) =
            (None, None);
        for target in options.targets(&mut failures) {
            let session = match PostgresSession::open(options, &target, &self.shared, Clock::System.boot_ms())
            {
                Ok(session) => session,
                Err(fault) if fault.kind == FaultKind::Unavailable || best.is_some() => {
                    failures.note_fault(&target, &fault);
                    continue;
                }
                Err(fault) => return Err(fault.at(target)),
            };
            let found = session.server.history.as_ref();
            if session.server.read_only {
                // A replica answers questions; it is kept in case no other host does better.
                fallback.get_or_insert(session);
            } else if let Some((place, older)) = best.as_ref().filter(|(_, best)| best.is_before(found)) {
                replaced.push(older.replaced(place));
                best = Some((target.to_string(), session));
            } else if session
                .is_before(best.as_ref().map_or(self.history.as_ref(), |best| best.1.server.history.as_ref()))
            {
                replaced.push(session.replaced(&target));
            } else if best.is_none() {
                best = Some((target.to_string(), session));
            }
            if best.is_some() && (self.history.is_some() || options.hosts.len() < 2) {
                break;
            }
        }
        let Some((_, mut best)) = best else {
            for why in replaced {
                failures.note(why, false);
            }
            return fallback.ok_or_else(|| failures.fault());
        };
        if best.server.history.is_some() {
            self.history.clone_from(&best.server.history);
        }
        best.state.warnings.extend(replaced);
        Ok(best)
    }

    fn complete(&self, facts: &mut Facts) {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        facts.tables = shared.schemas.iter().map(|(table, schema)| format!("{schema}.{table}")).collect();
        facts.tables.sort();
    }
}

impl RemoteConnection for PostgresSession {
    /// Whether the connection is open and, if it is to be asked, the server still answers.
    fn is_alive(&mut self, idle: bool) -> bool {
        self.serves(idle)
    }

    fn about(&self) -> (Facts, bool) {
        let facts = Facts {
            dialect: Dialect::Postgres.name().to_owned(),
            version: self.server.version.clone(),
            durability: self.server.durability(),
            tls: self.wire.protection.words().to_owned(),
            warnings: self.state.warnings.clone(),
            tables: Vec::new(),
        };
        (facts, self.server.read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Secret;

    #[test]
    fn a_password_is_never_shown() {
        let options = ServerOptions { password: Secret::new("opensesame"), ..ServerOptions::default() };
        let shown = format!("{options:?} {:?}", PostgresStore::new(options.clone()));
        assert!(!shown.contains("opensesame"), "{shown}");
    }
}
