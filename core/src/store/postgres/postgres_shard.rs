//! A session as a connection to a shard's database.

use std::borrow::Cow;
use std::slice;
use std::sync::LazyLock;
use std::time::Duration;

use super::owners::{self, RelationUse};
use super::place::Place;
use super::postgres_session::PostgresSession;
use super::postgres_wire::WireStatement;
use super::{Postgres, ServerOptions};
use crate::store::server::Phase;
use crate::store::shard_session::{Cells, POSTGRES_VALUES, ShardSession, ShardTable, StatementPlace};
use crate::store::sql::Connection;
use crate::store::sql::remote::Driver;
use crate::store::{Fault, FaultKind};

/// Before the first statement of each transaction, and in it, so that a pooler's other clients neither set nor see it: values are written so
/// that they are read as the same ones, and times in UTC. Where row security would hide rows, the server answers with an error instead.
static EXACT: LazyLock<String> = LazyLock::new(|| {
    let always =
        [("client_encoding", "UTF8"), ("standard_conforming_strings", "on"), ("row_security", "off")];
    let all = always.iter().chain(&POSTGRES_VALUES);
    all.map(|(name, value)| ["SET LOCAL ", name, " = '", value, "'; "].concat()).collect()
});

/// Why no rows are moved from such a database, nor to it.
const SUBSCRIBER: &str = "this database has a subscription: its rows may be old, and its publisher does not get the rows that are written here; name the publisher's database (if this one follows none any more: `DROP SUBSCRIPTION`)";

impl Postgres {
    /// Connects to the server of a shard that takes writes.
    pub(crate) fn open_shard(options: &ServerOptions) -> Result<PostgresSession, Fault> {
        let mut session = Postgres::default().connect(options)?;
        session.writable()?;
        let follows = "SELECT subname FROM pg_catalog.pg_subscription WHERE subdbid = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())";
        if !session.query(follows, &[])?.is_empty() {
            return Err(Fault::new(FaultKind::Refused, SUBSCRIBER));
        }
        Ok(session)
    }
}

impl ShardSession for PostgresSession {
    fn read(
        &mut self,
        sql: &str,
        place: StatementPlace,
        row: &mut dyn FnMut(Cells<'_>),
    ) -> Result<u64, Fault> {
        let waits = match self.waits.map(|waits| waits.map(|limit| limit.as_millis().max(1))) {
            // A client that reads nothing more is not idle: TCP tells it.
            Some([locks, client]) => format!(
                "SET LOCAL lock_timeout = {locks}; SET LOCAL idle_in_transaction_session_timeout = {client}; SET LOCAL tcp_user_timeout = {client}; "
            ),
            None => String::new(),
        };
        let words = match place {
            StatementPlace::Alone => Cow::Owned(format!("{}{waits}{sql}", *EXACT)),
            StatementPlace::InTransaction => Cow::Borrowed(sql),
        };
        let answer = self.wire.stream(self.limit, &words, |answer| {
            let cells: Vec<_> =
                (0..answer.len()).map(|column| answer.get(column).map(str::as_bytes)).collect();
            row(&cells);
        });
        // What is sent again changes nothing more: no outcome is unknown.
        answer.map_err(|failed| self.failed(&failed, Phase::Ask))
    }

    /// Alone in its message: after an error the server takes no statement in front of it.
    fn roll_back(&mut self) -> Result<(), Fault> {
        let answer = self.wire.send(self.limit, &WireStatement::RollBack);
        answer.map(drop).map_err(|failed| self.failed(&failed, Phase::Ask))
    }

    /// The first of the schemas in which this login looks has it, and any role may own it there: programs that name no schema use that one.
    fn table(&mut self, name: &str) -> Result<Option<ShardTable>, Fault> {
        let found = self.relations_named(name, RelationUse::Write)?;
        let path = self.schema.as_ref().map_or(self.server.path.as_slice(), slice::from_ref);
        let first = path.iter().find_map(|schema| found.iter().find(|one| one.schema == *schema));
        let Some(first) = first else { return Ok(None) };
        owners::check(name, first)?;
        let quoted = Place::quoted(&first.schema, name).quoted;
        Ok(Some(ShardTable { quoted, kind: first.kind.clone(), oid: first.oid }))
    }

    fn limit_waits(&mut self, for_locks: Duration, for_client: Duration) -> Result<(), Fault> {
        self.waits = Some([for_locks, for_client]);
        Ok(())
    }

    fn is_broken(&mut self) -> bool {
        self.state.broken
    }
}
