//! One connection's life: what the server said about itself, questions and changes, and what their errors mean. (floor 2)

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

use super::dialect::{self, HELD};
use super::error::{judge, not_connected};
use super::prepared::{self, Prepared, Way};
use super::values::{Value, number, text, typed};
use super::wire::{Failed, Said, Wire};
use crate::store::connected::Connection;
use crate::store::counter::CounterRow;
use crate::store::rows::HeldRow;
use crate::store::server::{Options, Phase, READ_ONLY, Target};
use crate::store::{Durability, Facts, Fault, FaultKind, Key, Scheme, Secret};

/// What the server said about itself when the connection was made.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) version: String,
    pub(super) durability: Vec<String>,
    pub(super) read_only: bool,
    /// Whom its commits wait for; empty: for nobody.
    pub(super) standbys: String,
    /// `None` for a replica, and where this user may not know.
    pub(super) history: Option<History>,
}

/// Which data a server has, and which of its timelines it writes: each promotion begins a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    pub(super) system: String,
    pub(super) timeline: u32,
}

/// A connection and what is known about it.
pub(crate) struct Session {
    wire: Wire,
    pub(super) server: Server,
    policy: Durability,
    password: Secret,
    pub(super) limit: Duration,
    pub(super) warnings: Vec<String>,
    prepared: Prepared,
    /// Tables whose shape has been checked.
    pub(super) checked: Vec<(Scheme, String)>,
    /// By table and name: rows whose step and time to live have been read.
    pub(super) known: HashMap<(String, String), CounterRow>,
    /// Rows that somebody held when they were last asked for, and whether one of them is asked for now.
    pub(super) held: HashSet<HeldRow>,
    pub(super) hasty: bool,
    /// Boot time of the last answer.
    pub(super) used_ms: u64,
    /// Not to be used again.
    pub(super) broken: bool,
    /// The last error was a conflict: the transaction may be begun again.
    pub(super) again: bool,
    /// The last error was a duplicate key.
    pub(super) duplicate: bool,
    /// A statement of the open transaction has failed: `COMMIT` would roll back and call that a success.
    pub(super) spoiled: bool,
}

/// What became of changes that went together.
pub(super) enum Together {
    /// All of them: the rows of each.
    All(Vec<Vec<Row>>),
    /// Nothing: somebody holds the row of this one.
    HeldAt(usize),
    /// Nothing.
    None,
}

impl Connection for Session {
    fn is_broken(&self) -> bool {
        self.broken
    }

    fn used(&mut self, now_ms: u64) {
        self.used_ms = now_ms;
    }

    fn used_ms(&self) -> u64 {
        self.used_ms
    }

    fn check_table(&mut self, key: &Key) -> Result<bool, Fault> {
        Session::check_table(self, key)
    }

    fn forget_tables(&mut self) {
        self.checked.clear();
    }

    fn create(&mut self, statement: &str) -> Result<(), Fault> {
        Session::create(self, statement)
    }

    fn writable(&mut self) -> Result<(), Fault> {
        Session::writable(self)
    }

    fn about(&self) -> (Facts, bool) {
        let facts = Facts {
            dialect: "postgresql".to_owned(),
            version: self.server.version.clone(),
            durability: self.server.durability.clone(),
            tls: self.wire.protection.words().to_owned(),
            warnings: self.warnings.clone(),
        };
        (facts, self.server.read_only)
    }

    fn held(&mut self) -> &mut HashSet<HeldRow> {
        &mut self.held
    }

    fn is_hasty(&self) -> bool {
        self.hasty
    }

    /// Each transaction says so where it begins.
    fn set_hasty(&mut self, hasty: bool) -> Result<(), Fault> {
        self.hasty = hasty;
        Ok(())
    }
}

impl Session {
    /// Connects, sets the session up and finds out who the server is.
    pub(super) fn open(options: &Options, target: &Target, now_ms: u64) -> Result<Session, Fault> {
        let options = &*options.signed_in()?;
        let wire = Wire::open(options, target).map_err(|failed| not_connected(options, target, failed))?;
        let mut session = Session {
            wire,
            server: Server::default(),
            policy: options.durability,
            password: options.password.clone(),
            limit: options.read_timeout,
            warnings: Vec::new(),
            prepared: Prepared::new(false),
            checked: Vec::new(),
            known: HashMap::new(),
            held: HashSet::new(),
            hasty: false,
            used_ms: now_ms,
            broken: false,
            again: false,
            duplicate: false,
            spoiled: false,
        };
        session.introduce()?;
        let direct = session.is_direct()?;
        session.prepared = Prepared::new(direct);
        Ok(session)
    }

    /// Whether nobody stands between: the server sees the very connection that we have, with both its ends. A pooler has one of
    /// its own to the server, and hands it to another client as it likes.
    fn is_direct(&mut self) -> Result<bool, Fault> {
        let Some((ours, theirs)) = self.wire.ends() else { return Ok(false) };
        match self.ask(dialect::ENDS, &[]) {
            Ok(rows) => Ok(rows.first().is_some_and(|row| {
                let end = |at| {
                    let port = number(row, at + 1).and_then(|port| u16::try_from(port).ok());
                    let host = text(row, at).and_then(|host| host.parse::<IpAddr>().ok());
                    host.zip(port).map(|(host, port)| SocketAddr::new(host.to_canonical(), port))
                };
                let canonical = |end: SocketAddr| Some(SocketAddr::new(end.ip().to_canonical(), end.port()));
                (end(0), end(2)) == (canonical(ours), canonical(theirs))
            })),
            // Not known to what speaks PostgreSQL here.
            Err(fault) if fault.kind == FaultKind::Refused && !self.broken => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    fn introduce(&mut self) -> Result<(), Fault> {
        self.say(&dialect::session(self.limit), Phase::Ask)?;
        let about = self.ask(dialect::ABOUT, &[])?;
        let said = |column| about.first().and_then(|row| text(row, column)).unwrap_or_default();
        let (recovery, read_only, standbys) = (said(1), said(2), said(6));
        self.server.version = said(0);
        self.server.read_only = recovery == "true" || read_only == "on";
        for (at, name) in dialect::DURABILITY.into_iter().enumerate() {
            let value = said(3 + at);
            self.server.durability.push(format!("{name}={value}"));
            if let Some(found) = dialect::unsafe_setting(name, &value) {
                self.judge(found)?;
            }
        }
        if !self.server.read_only {
            self.server.history = self.history()?;
        }
        let local = said(3) == "local";
        if !matches!(said(3).as_str(), "local" | "off") {
            self.server.standbys.clone_from(&standbys);
        }
        self.server.durability.push(match standbys.as_str() {
            "" => "synchronous_standby_names= (no standby is waited for: a failover to one may lose commits)"
                .to_owned(),
            names => format!("synchronous_standby_names={names}"),
        });
        if local && !standbys.is_empty() {
            self.warnings.push(format!(
                "the server has synchronous_commit=local, so commits do not wait for `{standbys}`, and a failover loses some"
            ));
        }
        Ok(())
    }

    fn history(&mut self) -> Result<Option<History>, Fault> {
        match self.ask(dialect::HISTORY, &[]) {
            Ok(rows) => Ok(rows.first().and_then(|row| {
                let timeline = u32::from_str_radix(&text(row, 1)?, 16).ok()?;
                Some(History { system: text(row, 0)?, timeline })
            })),
            // Not for this user, or not known to this server.
            Err(fault) if fault.kind == FaultKind::Refused && !self.broken => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// A question's rows.
    pub(super) fn ask(&mut self, sql: &str, values: &[Value]) -> Result<Vec<Row>, Fault> {
        self.run(sql, values, Phase::Ask)
    }

    /// A statement's rows, read to the last: the server's word that it is done comes after its commit.
    ///
    /// Those that commit by themselves are the many, and are prepared, see `prepared.rs`; the text of all others goes with their
    /// values, in one message.
    pub(super) fn run(&mut self, sql: &str, values: &[Value], phase: Phase) -> Result<Vec<Row>, Fault> {
        self.wire.unreplicated();
        let way = if phase == Phase::Commit { self.prepared.way(sql, values) } else { Way::Plain };
        let answer = match self.by_name(sql, values, way) {
            Some(answer) => answer,
            None => {
                let (words, values) = (dialect::translated(sql), typed(values));
                self.wire.ask(self.limit, |client| client.query_typed(&words, &values))
            }
        };
        let rows = answer.map_err(|failed| self.failed(&failed, phase))?;
        self.replicated(phase)?;
        Ok(rows)
    }

    /// Whether a statement has a name, which is given to it now if it is new.
    fn is_named(&mut self, sql: &str, values: &[Value], way: &Way) -> Result<bool, Failed> {
        let limit = self.limit;
        let prepared = match way {
            Way::Plain => return Ok(false),
            Way::Kept | Way::Name { prepare: None, .. } => return Ok(true),
            Way::Keep => {
                let words = dialect::translated(sql);
                let types: Vec<_> = values.iter().map(Value::of_type).collect();
                let made = self.wire.ask(limit, |client| client.prepare_typed(&words, &types));
                made.map(|statement| self.prepared.keep(sql, statement))
            }
            Way::Name { prepare: Some(prepare), .. } => {
                self.wire.ask(limit, |client| client.batch_execute(prepare))
            }
        };
        match prepared {
            Ok(()) => Ok(true),
            // The plain statement is told the same, if it is not the name's fault.
            Err(failed) if failed.code().is_some() => {
                self.prepared.give_up();
                Ok(false)
            }
            Err(failed) => Err(failed),
        }
    }

    /// The answer to a statement that has a name. `None`: it has none or has lost it, and nothing was changed.
    fn by_name(&mut self, sql: &str, values: &[Value], way: Way) -> Option<Result<Vec<Row>, Failed>> {
        let limit = self.limit;
        match self.is_named(sql, values, &way) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(failed) => return Some(Err(failed)),
        }
        let answer = match way {
            Way::Name { execute, .. } => self.wire.ask(limit, |client| client.query_typed(&execute, &[])),
            _ => {
                let statement = self.prepared.kept(sql)?;
                let values: Vec<_> = values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                self.wire.ask(limit, |client| client.query(statement, &values))
            }
        };
        match &answer {
            Err(failed) if failed.code().is_some_and(prepared::is_refused) => {
                self.prepared.give_up();
                None
            }
            _ => Some(answer),
        }
    }

    /// Changes that go to the server in one go and are one transaction, and the rows of each. Where one of them
    /// failed nothing was changed. No row is waited for longer than this: who holds it up holds up all the others.
    pub(super) fn run_all(
        &mut self,
        changes: &[(&str, &[Value])],
        wait: Duration,
    ) -> Result<Together, Fault> {
        let plain = |words: &str| Said::Plain(words.to_owned(), Vec::new());
        let mut statements = vec![plain("BEGIN"), plain(&dialect::hasty(wait))];
        for (sql, values) in changes {
            let way = self.prepared.way(sql, values);
            let named =
                self.is_named(sql, values, &way).map_err(|failed| self.failed(&failed, Phase::Ask))?;
            statements.push(match (way, self.prepared.kept(sql)) {
                (Way::Name { execute, .. }, _) if named => Said::Plain(execute, Vec::new()),
                (_, Some(statement)) if named => {
                    let values = values.iter().map(|value| value as &(dyn ToSql + Sync));
                    Said::Kept(statement.clone(), values.collect())
                }
                _ => Said::Plain(dialect::translated(sql), typed(values)),
            });
        }
        statements.push(plain("COMMIT"));
        self.wire.unreplicated();
        let answers = self
            .wire
            .ask_all(self.limit, &statements)
            .map_err(|failed| self.failed(&failed, Phase::Commit))?;
        // A statement that failed has spoiled the transaction: then `COMMIT` rolls back and calls that a success.
        let mut found = Vec::with_capacity(answers.len());
        for (at, answer) in answers.into_iter().enumerate() {
            match answer {
                Ok(rows) => found.push(rows),
                Err(failed) => {
                    let fault = self.failed(&failed, Phase::Commit);
                    if failed.code().is_some_and(prepared::is_refused) {
                        self.prepared.give_up();
                    }
                    // The server's own word on what came before the commit is as good as a rollback. (Were it `BEGIN` that
                    // failed, the others would have been carried out for nobody.)
                    let undone = failed.is_said() && at + 1 < statements.len() || self.again;
                    let held = at.checked_sub(2).filter(|_| fault.kind == FaultKind::Held && !self.broken);
                    return match held {
                        _ if !undone => Err(fault),
                        Some(change) => Ok(Together::HeldAt(change)),
                        None => Ok(Together::None),
                    };
                }
            }
        }
        // Those of `BEGIN`, of the setting, and of `COMMIT`, are none.
        found.pop();
        self.replicated(Phase::Commit)?;
        Ok(Together::All(found.into_iter().skip(2).collect()))
    }

    /// How many rows a change changed, inside a transaction.
    pub(super) fn change(&mut self, sql: &str, values: &[Value]) -> Result<u64, Fault> {
        let (words, values) = (dialect::translated(sql), typed(values));
        let answer = self.wire.ask(self.limit, |client| client.execute_typed(&words, &values));
        answer.map_err(|failed| self.failed(&failed, Phase::Write))
    }

    /// Statements without values, by the simple protocol.
    pub(super) fn say(&mut self, sql: &str, phase: Phase) -> Result<(), Fault> {
        let words = dialect::translated(sql);
        self.wire.unreplicated();
        let answer = self.wire.ask(self.limit, |client| client.batch_execute(&words));
        answer.map_err(|failed| self.failed(&failed, phase))?;
        self.replicated(phase)
    }

    /// A commit that a synchronous standby did not confirm may be gone after a failover: somebody cancelled its wait.
    fn replicated(&mut self, phase: Phase) -> Result<(), Fault> {
        if !self.wire.unreplicated() || phase != Phase::Commit {
            return Ok(());
        }
        self.broken = true;
        Err(Fault::new(
            FaultKind::Unknown,
            "the commit was let go before its synchronous standby had it; a failover would lose it, so that range is never \
             used",
        ))
    }

    /// Whether this server has the same data as one with this history, before a promotion that the other has behind it.
    pub(super) fn is_before(&self, other: Option<&History>) -> bool {
        match (&self.server.history, other) {
            (Some(own), Some(other)) => own.system == other.system && own.timeline < other.timeline,
            _ => false,
        }
    }

    /// What is said of such a server.
    pub(super) fn replaced(&self, place: &impl fmt::Display) -> String {
        let timeline = self.server.history.as_ref().map_or(0, |history| history.timeline);
        format!(
            "{place}: it was replaced in a failover (its timeline is {timeline}, there is a later one) and takes writes all \
             the same; stop it, or let it follow the new primary"
        )
    }

    /// Whether the server has not hung up, and still answers if it is to be asked.
    pub(super) fn is_alive(&self, asked: bool) -> bool {
        !self.wire.is_closed() && (!asked || self.wire.ask(self.limit, Client::check_connection).is_ok())
    }

    /// What an error means, and what it does to this connection.
    pub(super) fn failed(&mut self, failed: &Failed, phase: Phase) -> Fault {
        let mut judged = judge(failed, phase, &self.password);
        // Such a commit is silent itself, and keeps the row's lock from those who come after it.
        let waits = match failed {
            Failed::Silent => phase == Phase::Commit,
            other => other.code() == Some(HELD),
        };
        if waits && !self.server.standbys.is_empty() {
            judged.fault.message.push_str(&format!(
                "; commits wait for `{}` (synchronous_standby_names): if that standby is gone, start it again or take it out of \
                 the setting",
                self.server.standbys
            ));
        }
        self.broken |= judged.broken;
        self.again = judged.again;
        self.duplicate = judged.duplicate;
        self.spoiled = true;
        judged.fault
    }

    /// A setting that loses commits: refused or noted, as configured.
    pub(super) fn judge(&mut self, found: String) -> Result<(), Fault> {
        match self.policy {
            Durability::Refuse => Err(Fault::new(
                FaultKind::Unsafe,
                format!("{found}; change it, or `durability=warn` accepts the risk of duplicates"),
            )),
            Durability::Warn => {
                if !self.warnings.contains(&found) {
                    self.warnings.push(found);
                }
                Ok(())
            }
        }
    }

    /// Refuses to write to a replica, and forgets it: the next attempt may find another server.
    pub(super) fn writable(&mut self) -> Result<(), Fault> {
        if self.server.read_only {
            self.broken = true;
            return Err(Fault::new(FaultKind::Unavailable, READ_ONLY));
        }
        Ok(())
    }
}
