//! One connection's life: what the server said about itself, questions and changes, and what their errors mean. (floor 2)

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio_postgres::error::Severity;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};
use tokio_postgres::{Client, Row};

use super::dialect::{self, HELD, Meaning};
use super::prepared::{self, Prepared, Way};
use super::wire::{Failed, Said, Values, Wire};
use crate::store::counter::{Cell, CounterRow};
use crate::store::rows::HeldRow;
use crate::store::server::{Options, Phase, READ_ONLY, Target, hide};
use crate::store::{Durability, Fault, FaultKind, Scheme, Secret};

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
pub(super) struct Session {
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

/// A value of a statement.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// `BIGINT`; 2^63, which is no number to issue but may be the next one, wraps to the lowest.
    Number(u64),
    Text(Option<String>),
}

impl From<u64> for Value {
    fn from(number: u64) -> Value {
        Value::Number(number)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(Some(text))
    }
}

impl Value {
    /// The type a placeholder is given; the server converts to the column's and refuses what does not fit.
    pub(super) fn of_type(&self) -> Type {
        match self {
            Value::Number(_) => Type::INT8,
            Value::Text(_) => Type::TEXT,
        }
    }
}

fn typed(values: &[Value]) -> Values<'_> {
    values.iter().map(|value| (value as &(dyn ToSql + Sync), value.of_type())).collect()
}

impl ToSql for Value {
    fn to_sql(
        &self,
        of: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Value::Number(number) => (*number as i64).to_sql(of, out),
            Value::Text(text) => text.to_sql(of, out),
        }
    }

    fn accepts(of: &Type) -> bool {
        [Type::INT8, Type::TEXT].contains(of)
    }

    to_sql_checked!();
}

/// A column, whatever it holds.
struct Any(Cell);

impl<'a> FromSql<'a> for Any {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Any, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Any(match *of {
            Type::INT2 => Cell::Number(i16::from_sql(of, raw)?.into()),
            Type::INT4 => Cell::Number(i32::from_sql(of, raw)?.into()),
            Type::INT8 => Cell::Number(i64::from_sql(of, raw)?.into()),
            _ => match <&str>::from_sql(of, raw) {
                Ok(text) => Cell::Other(text.to_owned()),
                Err(_) => Cell::Other(format!("a value of type {of}")),
            },
        }))
    }

    fn from_sql_null(_: &Type) -> Result<Any, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Any(Cell::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// A row's column.
pub(super) fn cell(row: &Row, column: usize) -> Cell {
    row.try_get::<_, Any>(column).map_or_else(|error| Cell::Other(error.to_string()), |any| any.0)
}

/// A text column; `None` for anything else.
pub(super) fn text(row: &Row, column: usize) -> Option<String> {
    match cell(row, column) {
        Cell::Other(text) => Some(text),
        _ => None,
    }
}

/// A number column as [`Value::Number`] writes it; `None` for NULL and for what is negative.
pub(super) fn number(row: &Row, column: usize) -> Option<u64> {
    match cell(row, column) {
        Cell::Number(number) if number == i128::from(i64::MIN) => Some(1 << 63),
        Cell::Number(number) => u64::try_from(number).ok(),
        _ => None,
    }
}

impl Session {
    /// Connects, sets the session up and finds out who the server is.
    pub(super) fn open(options: &Options, target: &Target, now_ms: u64) -> Result<Session, Fault> {
        let wire = Wire::open(options, target).map_err(|failed| not_connected(options, failed))?;
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

/// A server that took longer than `timeout`.
const SILENT: &str = "the server did not answer in time";

struct Judged {
    fault: Fault,
    broken: bool,
    again: bool,
    duplicate: bool,
}

/// Any error that is not the server's own breaks the connection.
fn judge(failed: &Failed, phase: Phase, password: &Secret) -> Judged {
    let broken = |kind, message| Judged {
        fault: Fault::new(kind, message),
        broken: true,
        again: false,
        duplicate: false,
    };
    let said = match failed {
        Failed::Postgres(error) => error.as_db_error(),
        _ => None,
    };
    let Some(said) = said else {
        let message = hide(&plain_words(failed), password);
        return if phase == Phase::Ask {
            broken(FaultKind::Unavailable, message)
        } else {
            let unknown = format!("{message}; whether it was done is unknown, so that range is never used");
            broken(FaultKind::Unknown, unknown)
        };
    };
    let (code, message) = (said.code().code(), hide(said.message(), password));
    match dialect::meaning(code, phase == Phase::Commit) {
        Meaning::Again => Judged {
            fault: if code == HELD {
                let found =
                    format!("error {code}: {message} (another transaction holds its row: let it end)");
                Fault::new(FaultKind::Held, found)
            } else {
                Fault::new(FaultKind::Unavailable, format!("error {code}: {message}"))
            },
            broken: false,
            again: true,
            duplicate: false,
        },
        Meaning::Unknown => broken(
            FaultKind::Unknown,
            format!("error {code}: {message}; whether it was done is unknown, so that range is never used"),
        ),
        Meaning::Plain { kind, reconnect, advice } => {
            let message = match (code, advice) {
                ("42P01", _) => format!("{}; {advice}", missing_table(&message)),
                (_, "") => format!("error {code}: {message}"),
                _ => format!("error {code}: {message}; {advice}"),
            };
            // What ends a session says so itself, whatever its code.
            let ends = said.parsed_severity() != Some(Severity::Error);
            Judged {
                fault: Fault::new(kind, message),
                broken: reconnect || ends,
                again: false,
                duplicate: code == "23505",
            }
        }
    }
}

/// `relation "keymill_segment" does not exist`, in whatever language, as we say it.
fn missing_table(message: &str) -> String {
    match message.split('"').nth(1) {
        Some(table) => format!("table `{table}` is missing"),
        None => message.to_owned(),
    }
}

/// A connection that was not made.
fn not_connected(options: &Options, failed: Failed) -> Fault {
    let failed = match failed {
        Failed::Fault(fault) => return fault,
        other => other,
    };
    let mut fault = judge(&failed, Phase::Ask, &options.password).fault;
    if matches!(failed, Failed::Silent) {
        let limit = options.read_timeout;
        fault.message = format!(
            "{SILENT}: no PostgreSQL greeting came within {limit:?}; is it a PostgreSQL server, and awake?"
        );
    }
    let Failed::Postgres(error) = &failed else { return fault };
    let source = std::error::Error::source(error);
    match (error.as_db_error(), source.and_then(|source| source.downcast_ref::<io::Error>())) {
        (Some(said), _) if matches!(said.code().code(), "28P01" | "28000") => {
            let tls = if options.tls == crate::store::server::Tls::Off {
                " (or the server demands TLS: `tls=verify`)"
            } else {
                ""
            };
            fault.message = format!(
                "the server refuses user `{}` with this password; check user and password{tls}",
                options.user
            );
        }
        // A certificate that is not trusted stays so: another attempt is no help.
        (None, Some(broken)) if broken.kind() == io::ErrorKind::InvalidData => {
            fault.kind = FaultKind::Refused;
            fault.message = format!("{broken}; name the authority's certificate: `ca=FILE.pem`");
        }
        (Some(_), _) | (None, Some(_)) => {}
        (None, None) if error.is_closed() => {}
        // TLS that is not offered, a way to log in that is not spoken.
        (None, None) => {
            fault.kind = FaultKind::Refused;
            fault.message.push_str(match source.map(ToString::to_string).as_deref() {
                Some("server does not support TLS") => {
                    ": turn it on there, or leave `tls=verify` out, and nothing is encrypted"
                }
                None if error.to_string().contains("unexpected message") => "; is it a PostgreSQL server?",
                _ => "",
            });
        }
    }
    fault
}

/// A driver's error in words, without its debug output.
fn plain_words(failed: &Failed) -> String {
    match failed {
        Failed::Fault(fault) => fault.message.clone(),
        Failed::Silent => SILENT.to_owned(),
        Failed::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            format!(
                "{SILENT}: nobody takes the connection; is the address right, and no firewall in between?"
            )
        }
        Failed::Io(error) => error.to_string(),
        Failed::Postgres(error) if error.is_closed() => "the connection broke".to_owned(),
        Failed::Postgres(error) => match std::error::Error::source(error) {
            Some(source) if source.is::<io::Error>() => format!("the connection broke: {source}"),
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_table_is_named_with_the_command() {
        for said in ["relation \"keymill_segment\" does not exist", "Relation »x« gibt es nicht"] {
            let shown = missing_table(said);
            assert!(shown == "table `keymill_segment` is missing" || shown == said, "{shown}");
        }
    }

    #[test]
    fn silence_breaks_the_connection() {
        for (phase, kind) in [
            (Phase::Ask, FaultKind::Unavailable),
            (Phase::Write, FaultKind::Unknown),
            (Phase::Commit, FaultKind::Unknown),
        ] {
            let judged = judge(&Failed::Silent, phase, &Secret::default());
            assert!(judged.broken);
            assert_eq!(judged.fault.kind, kind);
        }
    }

    #[test]
    fn the_number_after_the_last_is_kept() {
        assert_eq!((1u64 << 63) as i64, i64::MIN);
    }
}
