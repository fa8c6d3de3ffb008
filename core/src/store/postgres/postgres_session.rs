//! One connection: facts about the server, statements, and what their errors mean.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::failed::Failed;
use super::login_filter::Objection;
use super::place::Place;
use super::postgres_dialect::{self, LOCKED, Limits, MISSING_TABLE};
use super::postgres_error::{judge, not_connected, objection};
use super::postgres_wire::{PostgresWire, ServerAnswer, WireStatement};
use super::prepared::{self, Execution, Prepared};
use crate::store::model::value::{ColumnValue, Value, number, text};
use crate::store::server::{Phase, ServerOptions, Target};
use crate::store::sql::{Changed, Connection, Dialect, State, Statement, Together};
use crate::store::tls::Mode;
use crate::store::{Fault, FaultKind, Secret, tried};
use crate::time::Clock;

/// What the server said about itself when the connection was made.
#[derive(Debug, Default)]
pub(super) struct PostgresServer {
    pub(super) version: String,
    pub(super) read_only: bool,
    /// `synchronous_commit` as this role has it; empty if the server does not show it.
    pub(super) configured: String,
    /// [`postgres_dialect::WATCHED`] as they were last seen.
    pub(super) watched: [String; postgres_dialect::WATCHED.len()],
    /// The schemas of this role's `search_path`.
    pub(super) path: Vec<String>,
    /// `None` for a replica, and if this user may not read it.
    pub(super) history: Option<History>,
}

/// The identity of a server's data, and the timeline it writes: each promotion begins a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) system: String,
    pub(super) timeline: u32,
}

impl PostgresServer {
    /// `synchronous_commit` of each commit by keymill.
    fn commit_waits(&self) -> &'static str {
        postgres_dialect::commit_waits(&self.configured)
    }

    /// The standbys that a commit waits for; empty: none.
    fn standbys(&self) -> &str {
        let [.., standbys] = &self.watched;
        if matches!(self.commit_waits(), "local" | "off") { "" } else { standbys }
    }

    /// The settings that decide whether a commit survives, as `status` shows them.
    pub(super) fn durability(&self) -> Vec<String> {
        let mut lines = vec![format!("synchronous_commit={}", self.configured)];
        lines.extend(postgres_dialect::WATCHED.iter().zip(&self.watched).map(|(name, value)| {
            match value.as_str() {
                "" if *name == "synchronous_standby_names" => {
                    format!("{name}= (no standby is waited for: a failover to one may lose commits)")
                }
                value => format!("{name}={value}"),
            }
        }));
        lines
    }
}

/// Facts that outlive a connection.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    /// The schema in which this process found each table; it stays with that schema.
    pub(super) schemas: HashMap<String, String>,
    /// By table and column: the boot time until which the largest serial is not searched again, and the message until then.
    slow: HashMap<String, (u64, Fault)>,
}

/// Shared by a store and its connection.
pub(super) type Shared = Arc<Mutex<SharedState>>;

/// How long a query that exceeded the server's time limit is not repeated.
const REST_MS: u64 = 60_000;

/// A connection and what is known about it.
pub struct PostgresSession {
    pub(super) wire: PostgresWire,
    /// The schema that the URL names.
    pub(super) schema: Option<String>,
    shared: Shared,
    /// Tables that were found, by the names of their keys.
    pub(super) places: HashMap<String, Place>,
    pub(super) server: PostgresServer,
    pub(super) state: State,
    password: Secret,
    pub(super) limit: Duration,
    /// How long a statement of a shard waits for a lock, and the server for this client in a transaction.
    pub(super) waits: Option<[Duration; 2]>,
    prepared: Prepared,
    /// The SQLSTATE of the last error.
    pub(super) code: Option<String>,
}

impl fmt::Debug for PostgresSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresSession").finish_non_exhaustive()
    }
}

/// Connects and logs in. If the server asks for the password over loopback, which is not encrypted, it tries once more inside TLS.
fn log_in(options: &ServerOptions, target: &Target) -> Result<PostgresWire, Fault> {
    let mode = Mode::of(options, target);
    let failed = match PostgresWire::open(options, target, mode) {
        Ok(wire) => return Ok(wire),
        Err(failed) => failed,
    };
    if mode.tries_tls_next() && objection(&failed) == Some(Objection::Password) {
        match PostgresWire::open(options, target, Mode::Require) {
            Ok(wire) => return Ok(wire),
            // The first attempt's fault says what the server wants.
            Err(again) if objection(&again) == Some(Objection::NoTls) => {}
            Err(again) => return Err(not_connected(options, Mode::Require, again)),
        }
    }
    Err(not_connected(options, mode, failed))
}

impl PostgresSession {
    /// Connects, sets the session up and identifies the server.
    pub(super) fn open(
        options: &ServerOptions,
        target: &Target,
        shared: &Shared,
        now_ms: u64,
    ) -> Result<PostgresSession, Fault> {
        let options = &*options.signed_in()?;
        let wire = log_in(options, target)?;
        let mut session = PostgresSession {
            wire,
            schema: options.schema.clone(),
            shared: Arc::clone(shared),
            places: HashMap::new(),
            server: PostgresServer::default(),
            state: State::new(options.durability, options.read_timeout, now_ms),
            password: options.password.clone(),
            limit: options.read_timeout,
            waits: None,
            prepared: Prepared::new(false),
            code: None,
        };
        if session.is_direct()? {
            let pinned = session.wire.pin(session.limit, &postgres_dialect::session(session.limits()));
            pinned.map_err(|failed| session.failed(&failed, Phase::Ask))?;
        }
        session.prepared = Prepared::new(session.wire.is_pinned());
        session.introduce()?;
        Ok(session)
    }

    /// Whether no pooler shares the connection: the server sees the same two ends as this process. A pooler has a connection of
    /// its own to the server, and hands it to other clients.
    fn is_direct(&mut self) -> Result<bool, Fault> {
        let Some((ours, theirs)) = self.wire.ends() else { return Ok(false) };
        match self.query(postgres_dialect::ENDS, &[]) {
            Ok(rows) => Ok(rows.first().is_some_and(|row| {
                let end = |at| {
                    let port = number(row, at + 1).and_then(|port| u16::try_from(port).ok());
                    let host = text(row, at).and_then(|host| host.parse::<IpAddr>().ok());
                    host.zip(port).map(|(host, port)| SocketAddr::new(host.to_canonical(), port))
                };
                let canonical = |end: SocketAddr| Some(SocketAddr::new(end.ip().to_canonical(), end.port()));
                (end(0), end(2)) == (canonical(ours), canonical(theirs))
            })),
            // Some servers that speak PostgreSQL's protocol do not have these functions.
            Err(fault) if fault.kind == FaultKind::Refused && !self.state.broken => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    fn introduce(&mut self) -> Result<(), Fault> {
        let about = self.query(postgres_dialect::ABOUT, &[])?;
        let said = |column| about.first().and_then(|row| text(row, column)).unwrap_or_default().to_owned();
        let (recovery, read_only) = (said(1), said(2));
        self.server.version = said(0);
        if let Some(lacks) = tried::lacks_statements(&self.server.version) {
            self.state.broken = true;
            return Err(Fault::new(FaultKind::Refused, lacks));
        }
        let old = tried::too_old(Dialect::Postgres.name(), &self.server.version);
        self.state.warnings.extend(old.or_else(|| tried::is_another(&said(7))));
        self.server.read_only = recovery == "true" || read_only == "on";
        self.server.configured = said(3);
        self.server.watched = [said(4), said(5), said(6)];
        let [fsync, full_page_writes, standbys] = self.server.watched.clone();
        for (name, value) in [
            ("synchronous_commit", &self.server.configured.clone()),
            ("fsync", &fsync),
            ("full_page_writes", &full_page_writes),
        ] {
            if let Some(found) = postgres_dialect::unsafe_setting(name, value) {
                self.state.judge(found)?;
            }
        }
        if self.server.configured == "local" && !standbys.is_empty() {
            self.state.warnings.push(format!(
                "the server has synchronous_commit=local, so commits do not wait for `{standbys}`, and a failover loses some"
            ));
        }
        if !self.server.read_only {
            self.server.history = self.history()?;
        }
        let path = self.query(postgres_dialect::PATH, &[])?;
        let usual = |schema: &String| !schema.starts_with("pg_");
        self.server.path =
            path.iter().filter_map(|row| text(row, 0).map(str::to_owned)).filter(usual).collect();
        Ok(())
    }

    pub(super) fn limits(&self) -> Limits {
        Limits::new(self.limit)
    }

    /// Checks the settings under which a commit was made: they may have changed since the connection was made. If they lose
    /// commits, the answer of that statement is not used.
    fn check_watched(&mut self, settings: [String; postgres_dialect::WATCHED.len()]) -> Result<(), Fault> {
        if settings == self.server.watched {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.server.watched, settings.clone());
        for ((name, value), before) in postgres_dialect::WATCHED.iter().zip(&settings).zip(&before) {
            if value == before {
                continue;
            }
            if let Some(found) = postgres_dialect::unsafe_setting(name, value) {
                self.state.judge(found).inspect_err(|_| self.state.broken = true)?;
            } else if *name == "synchronous_standby_names" && value.is_empty() {
                self.state.warnings.push(format!(
                    "synchronous_standby_names was `{before}` and is empty now: commits wait for no standby any more"
                ));
            }
        }
        Ok(())
    }

    /// Columns that set `synchronous_commit`, see [`postgres_dialect::pinned`], and the condition of a statement that commits by
    /// itself.
    pub(super) fn pinned(&self) -> String {
        postgres_dialect::pinned(self.server.commit_waits())
    }

    /// The text of a change that commits by itself, or with others: its answer has its number and the columns of
    /// [`PostgresSession::pinned`].
    pub(super) fn committing(&self, change: &Statement) -> String {
        let (sql, number) = (change.sql(), &change.numbered);
        format!("{sql}{} RETURNING `{number}`, {}", self.own_limits(), self.pinned())
    }

    /// A further condition of a statement that commits by itself.
    pub(super) fn own_limits(&self) -> String {
        if self.wire.is_pinned() { String::new() } else { postgres_dialect::own_limits(self.limits()) }
    }

    /// Checks the columns of [`PostgresSession::pinned`], from this column on.
    pub(super) fn check_watched_row(&mut self, row: &[ColumnValue], first: usize) -> Result<(), Fault> {
        let said = |at| text(row, first + 1 + at).unwrap_or_default().to_owned();
        self.check_watched([said(0), said(1), said(2)])
    }

    /// Begins a transaction that waits for a locked row this long.
    pub(super) fn open_transaction(&mut self, wait: Duration) -> Result<(), Fault> {
        let begun = postgres_dialect::begun(self.limits(), wait, self.server.commit_waits());
        self.wire.unreplicated();
        let answer = self.wire.send(self.limit, &WireStatement::Begin(&begun));
        let answer = answer.map_err(|failed| self.failed(&failed, Phase::Ask))?;
        match answer.rows.first() {
            Some(row) => self.check_watched_row(row, 0),
            None => Ok(()),
        }
    }

    fn shared(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers that the server ended the search for the largest serial of this column.
    pub(super) fn search_timed_out(&mut self, column: String, remedy: &str) -> Fault {
        let fault = Fault::new(
            FaultKind::Unavailable,
            format!(
                "`init=max` looked for the largest serial in `{column}` for three quarters of `timeout`, and the server ended it: {remedy}; else raise `timeout`. It is not looked for again for {} s",
                REST_MS / 1000
            ),
        );
        self.shared().slow.insert(column, (Clock::System.boot_ms() + REST_MS, fault.clone()));
        fault
    }

    /// The message of the last such search, if it was recent.
    pub(super) fn recent_timeout(&self, column: &str) -> Option<Fault> {
        let mut shared = self.shared();
        let (until, fault) = shared.slow.get(column)?;
        if *until > Clock::System.boot_ms() {
            return Some(fault.clone());
        }
        shared.slow.remove(column);
        None
    }

    /// The schema of this table, from the URL or because this process has found it there.
    pub(super) fn known_schema(&self, table: &str) -> Option<String> {
        self.schema.clone().or_else(|| self.shared().schemas.get(&table.to_ascii_lowercase()).cloned())
    }

    /// Remembers where this table was found: this process stays with it.
    pub(super) fn remember_place(&mut self, table: &str, place: Place) {
        let schema = place.schema.clone();
        self.shared().schemas.entry(table.to_ascii_lowercase()).or_insert(schema);
        self.places.insert(table.to_owned(), place);
    }

    fn history(&mut self) -> Result<Option<History>, Fault> {
        match self.query(postgres_dialect::HISTORY, &[]) {
            Ok(rows) => Ok(rows.first().and_then(|row| {
                let timeline = u32::from_str_radix(text(row, 1)?, 16).ok()?;
                Some(History { system: text(row, 0)?.to_owned(), timeline })
            })),
            // This user may not read it, or this server does not have it.
            Err(fault) if fault.kind == FaultKind::Refused && !self.state.broken => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// The rows of a statement, read to `ReadyForQuery`: it comes after the commit.
    ///
    /// Statements that commit by themselves are frequent and are prepared, see `prepared.rs`; all others are sent as text
    /// with their values, in one message.
    pub(super) fn run(
        &mut self,
        sql: &str,
        values: &[Value],
        phase: Phase,
    ) -> Result<Vec<Vec<ColumnValue>>, Fault> {
        self.wire.unreplicated();
        let execution =
            if phase == Phase::Commit { self.prepared.execution(sql, values) } else { Execution::Plain };
        let answer = match self.by_name(sql, values, execution) {
            Some(answer) => answer,
            None => self.wire.send(self.limit, &WireStatement::Question(sql, values)),
        };
        let answer = answer.map_err(|failed| self.failed(&failed, phase))?;
        self.replicated(phase)?;
        Ok(answer.rows)
    }

    /// Prepares the statement if it is due; answers whether it is prepared.
    fn is_named(&mut self, sql: &str, values: &[Value], execution: &Execution) -> Result<bool, Failed> {
        let limit = self.limit;
        let prepared = match execution {
            Execution::Plain => return Ok(false),
            Execution::Kept | Execution::Name { prepare: None, .. } => return Ok(true),
            Execution::Keep => {
                let made = self.wire.prepare(limit, sql, values);
                made.map(|statement| self.prepared.keep(sql, statement))
            }
            Execution::Name { prepare: Some(prepare), .. } => {
                self.wire.send(limit, &WireStatement::Words(prepare)).map(|_| ())
            }
        };
        match prepared {
            Ok(()) => Ok(true),
            // The plain statement gets the same error, unless the name caused it.
            Err(failed) if failed.code().is_some() => {
                self.prepared.give_up();
                Ok(false)
            }
            Err(failed) => Err(failed),
        }
    }

    /// The answer to a prepared statement. `None`: it is not prepared any more, and nothing was changed.
    fn by_name(
        &mut self,
        sql: &str,
        values: &[Value],
        execution: Execution,
    ) -> Option<Result<ServerAnswer, Failed>> {
        let limit = self.limit;
        match self.is_named(sql, values, &execution) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(failed) => return Some(Err(failed)),
        }
        let answer = match execution {
            Execution::Name { execute, .. } => self.wire.send(limit, &WireStatement::Words(&execute)),
            _ => self.wire.send(limit, &WireStatement::Kept(self.prepared.kept(sql)?.clone(), values)),
        };
        match &answer {
            Err(failed) if failed.code().is_some_and(prepared::is_refused) => {
                self.prepared.give_up();
                None
            }
            _ => Some(answer),
        }
    }

    /// Sends several changes at once, as one transaction. If one of them fails, nothing was changed. Each waits at most
    /// `wait` for a locked row: the other sources wait too.
    pub(super) fn run_together(&mut self, changes: &[&Statement], wait: Duration) -> Result<Together, Fault> {
        let begun = postgres_dialect::begun(self.limits(), wait, self.server.commit_waits());
        let changes: Vec<_> =
            changes.iter().map(|change| (self.committing(change), change.values())).collect();
        // How each change is sent that has a name.
        let mut names = Vec::with_capacity(changes.len());
        for (sql, values) in &changes {
            let execution = self.prepared.execution(sql, values);
            let named =
                self.is_named(sql, values, &execution).map_err(|failed| self.failed(&failed, Phase::Ask))?;
            names.push(named.then_some(execution));
        }
        let mut statements = vec![WireStatement::Begin(&begun)];
        for ((sql, values), name) in changes.iter().zip(&names) {
            statements.push(match (name, self.prepared.kept(sql)) {
                (Some(Execution::Name { execute, .. }), _) => WireStatement::Words(execute),
                (Some(_), Some(statement)) => WireStatement::Kept(statement.clone(), values),
                _ => WireStatement::Question(sql, values),
            });
        }
        statements.push(WireStatement::Commit);
        self.wire.unreplicated();
        let answers = self
            .wire
            .send_all(self.limit, &statements)
            .map_err(|failed| self.failed(&failed, Phase::Commit))?;
        // After a failed statement `COMMIT` rolls back and reports success.
        let mut found = Vec::with_capacity(answers.len());
        for (at, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(answer) => found.push(answer.rows),
                Err(failed) => {
                    let fault = self.failed(&failed, Phase::Commit);
                    if failed.code().is_some_and(prepared::is_refused) {
                        self.prepared.give_up();
                    }
                    // An error before the commit rolls everything back. (If `BEGIN` itself failed, the other statements
                    // were carried out without a transaction, and committed by none.)
                    let undone = failed.is_said() && at + 1 < statements.len() || self.state.conflict;
                    let is_locked = fault.kind == FaultKind::Locked && !self.state.broken;
                    return match at.checked_sub(1).filter(|_| is_locked) {
                        _ if !undone => Err(fault),
                        Some(change) => Ok(Together::LockedAt(change)),
                        None => Ok(Together::Nothing),
                    };
                }
            }
        }
        // `COMMIT` has no rows.
        found.pop();
        self.replicated(Phase::Commit)?;
        let mut found = found.into_iter();
        if let Some(row) = found.next().as_ref().and_then(|rows| rows.first()) {
            self.check_watched_row(row, 0)?;
        }
        let done: Result<_, Fault> = found.map(|rows| self.changed(&rows)).collect();
        done.map(Together::Done)
    }

    /// The effect of a change with the columns of [`PostgresSession::pinned`].
    pub(super) fn changed(&mut self, found: &[Vec<ColumnValue>]) -> Result<Changed, Fault> {
        if let [row, ..] = found {
            self.check_watched_row(row, 1)?;
        }
        let number = found.first().and_then(|row| number(row, 0));
        Ok(Changed { rows: found.len() as u64, number })
    }

    /// How many rows a change changed, inside a transaction.
    pub(super) fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        let answer = self.wire.send(self.limit, &WireStatement::Change(sql, values));
        answer.map(|answer| answer.changed).map_err(|failed| self.failed(&failed, Phase::Write))
    }

    /// Statements without rows.
    pub(super) fn say(&mut self, statement: &WireStatement<'_>, phase: Phase) -> Result<(), Fault> {
        self.wire.unreplicated();
        let answer = self.wire.send(self.limit, statement);
        answer.map_err(|failed| self.failed(&failed, phase))?;
        self.replicated(phase)
    }

    /// A commit that no synchronous standby confirmed may be lost in a failover: its wait was cancelled.
    fn replicated(&mut self, phase: Phase) -> Result<(), Fault> {
        if !self.wire.unreplicated() || phase != Phase::Commit {
            return Ok(());
        }
        self.state.broken = true;
        Err(Fault::new(
            FaultKind::Unknown,
            "the commit was let go before its synchronous standby had it; a failover would lose it, so that range is never used",
        ))
    }

    /// Whether this server has the same data as one with this history, but lacks a promotion of that history.
    pub(super) fn is_before(&self, other: Option<&History>) -> bool {
        match (&self.server.history, other) {
            (Some(own), Some(other)) => own.system == other.system && own.timeline < other.timeline,
            _ => false,
        }
    }

    /// Error text for such a server.
    pub(super) fn replaced(&self, place: &impl fmt::Display) -> String {
        let timeline = self.server.history.as_ref().map_or(0, |history| history.timeline);
        format!(
            "{place}: it was replaced in a failover (its timeline is {timeline}, there is a later one) and takes writes all the same; stop it, or let it follow the new primary"
        )
    }

    /// Whether the connection is open and, with `asked`, the server still answers.
    pub(super) fn serves(&self, asked: bool) -> bool {
        !self.wire.is_closed() && (!asked || self.wire.answers(self.limit))
    }

    /// What an error means, and how it changes this connection.
    pub(super) fn failed(&mut self, failed: &Failed, phase: Phase) -> Fault {
        let mut judged = judge(failed, phase, &self.password);
        // A commit that waits for a standby stays silent, and holds the row's lock meanwhile.
        let waits = match failed {
            Failed::Silent => phase == Phase::Commit,
            other => other.code() == Some(LOCKED),
        };
        if waits && !self.server.standbys().is_empty() {
            judged.fault = judged.fault.and(&format!(
                "; commits wait for `{}` (synchronous_standby_names): if that standby is gone, start it again or take it out of the setting",
                self.server.standbys()
            ));
        }
        if failed.code() == Some(MISSING_TABLE) {
            // A table that replaces it may have another shape.
            self.state.checked.clear();
        }
        self.code = failed.code().map(str::to_owned);
        self.state.aborted = true;
        self.state.note(judged)
    }
}
