//! Reservations in MySQL, MariaDB or TiDB. (floor 2)
//!
//! One connection, opened when it is first needed. Rules, each bought with a duplicate somewhere:
//! * A connection that has answered with anything but a result or an error packet is closed and never used again: after
//!   a read timeout it would hand the *previous* question's answer, another key's range, to the next one.
//! * A range is used only after the answer to the statement that commits it. A connection that dies before that answer
//!   leaves the outcome unknown; nobody reads the row again to guess.
//! * All four timeouts are set, so that a server that falls silent costs seconds and not for ever.
//! * No pool: `mysql::Pool` connects under its own lock and fails at construction while the server is down.

mod dialect;
mod schemes;
mod sequence;
mod tickets;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql::prelude::Queryable;
use mysql::{Conn, DriverError, Error, OptsBuilder, Params, SslOpts};

pub use super::Secret;
use super::counter::CounterRow;
use super::rows::{self, Rows, Transactions};
pub use super::server::{Options, Tls};
use super::server::{Target, hide};
use super::{
    Durability, Facts, Fault, FaultKind, Handover, Key, Mark, Request, Reserved, Row, Scheme, Store,
};
use crate::time::Clock;
use dialect::{Dialect, Meaning};
pub use schemes::create_table;
use schemes::{Open, text};

/// After this long without a question a connection is pinged first: firewalls and servers close idle ones.
const IDLE_MS: u64 = 30_000;

/// What the server said about itself when the connection was made.
#[derive(Debug)]
struct Server {
    dialect: Dialect,
    version: String,
    durability: Vec<String>,
    read_only: bool,
}

/// A connection and what is known about it.
struct Session {
    connection: Conn,
    server: Server,
    policy: Durability,
    password: Secret,
    warnings: Vec<String>,
    /// Tables whose shape has been checked.
    checked: Vec<(Scheme, String)>,
    /// By table and name: rows whose step and time to live have been read.
    known: HashMap<(String, String), CounterRow>,
    /// Boot time of the last answer.
    used_ms: u64,
    /// Not to be used again.
    broken: bool,
    /// The last error was a conflict: the transaction may be begun again.
    again: bool,
    /// The last error was a duplicate key.
    duplicate: bool,
}

/// What a statement that fails leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing was to be changed.
    Ask,
    /// A change inside a transaction that is not committed.
    Write,
    /// The statement whose success makes the range usable.
    Commit,
}

impl Session {
    /// A question's rows.
    fn ask(&mut self, sql: &str, values: impl Into<Params>) -> Result<Vec<mysql::Row>, Fault> {
        self.run(sql, values, Phase::Ask)
    }

    /// A change; answers with how many rows it changed.
    fn execute(&mut self, sql: &str, values: impl Into<Params>, phase: Phase) -> Result<u64, Fault> {
        self.run(sql, values, phase)?;
        Ok(self.connection.affected_rows())
    }

    fn run(&mut self, sql: &str, values: impl Into<Params>, phase: Phase) -> Result<Vec<mysql::Row>, Fault> {
        // Prepared apart: until this has been answered nothing can have been changed.
        let statement = self.connection.prep(sql).map_err(|error| self.failed(&error, Phase::Ask))?;
        // All rows are read, so that an error after the first one is not lost.
        self.connection
            .exec::<mysql::Row, _, _>(&statement, values)
            .map_err(|error| self.failed(&error, phase))
    }

    /// A statement without values, by the text protocol.
    fn say(&mut self, sql: &str, phase: Phase) -> Result<(), Fault> {
        self.connection.query_drop(sql).map_err(|error| self.failed(&error, phase))
    }

    /// What an error means, and what it does to this connection.
    fn failed(&mut self, error: &Error, phase: Phase) -> Fault {
        let judged = judge_error(error, phase, &self.password);
        self.broken |= judged.broken;
        self.again = judged.again;
        self.duplicate = judged.duplicate;
        judged.fault
    }

    /// A setting that loses commits: refused or noted, as configured.
    fn judge(&mut self, found: String) -> Result<(), Fault> {
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

    /// One variable; `None` where this server has none of that name, or this user may not see it.
    fn variable(&mut self, name: &str) -> Result<Option<String>, Fault> {
        match self.connection.query::<mysql::Row, _>(format!("SELECT @@{name}")) {
            Ok(rows) => Ok(rows.first().and_then(|row| text(row, 0))),
            // Unknown here, or not for this user. Anything else (a node that is joining, a shutdown) is no answer.
            Err(Error::MySqlError(said)) if matches!(said.code, 1193 | 1044 | 1142 | 1143 | 1227) => Ok(None),
            Err(error) => Err(self.failed(&error, Phase::Ask)),
        }
    }

    fn check_durability(&mut self) -> Result<(), Fault> {
        let log_bin = self.variable("log_bin")?.is_some_and(|on| is_on(&on));
        for (name, safe) in self.server.dialect.durability() {
            if *name == "sync_binlog" && !log_bin {
                continue;
            }
            match self.variable(name)? {
                Some(value) => {
                    self.server.durability.push(format!("{name}={value}"));
                    if value != *safe {
                        self.judge(format!(
                            "the server has {name}={value}, which loses commits ({name}={safe} is safe)"
                        ))?;
                    }
                }
                None => self.warnings.push(format!("`{name}` cannot be read; it has to be {safe}")),
            }
        }
        Ok(())
    }
}

fn is_on(value: &str) -> bool {
    value == "1" || value.eq_ignore_ascii_case("on")
}

struct Judged {
    fault: Fault,
    broken: bool,
    again: bool,
    duplicate: bool,
}

/// Any error that is not a server's error packet breaks the connection.
fn judge_error(error: &Error, phase: Phase, password: &Secret) -> Judged {
    let broken = |kind, message| Judged {
        fault: Fault::new(kind, message),
        broken: true,
        again: false,
        duplicate: false,
    };
    let Error::MySqlError(said) = error else {
        let message = hide(&plain_words(error), password);
        return if phase == Phase::Ask {
            broken(FaultKind::Unavailable, message)
        } else {
            let unknown = format!("{message}; whether it was done is unknown, so that range is never used");
            broken(FaultKind::Unknown, unknown)
        };
    };
    let (code, message) = (said.code, hide(&said.message, password));
    match dialect::meaning(code, &said.message, phase == Phase::Commit) {
        Meaning::Again => Judged {
            fault: Fault::new(FaultKind::Unavailable, format!("error {code}: {message}")),
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
                (1146, _) => format!("{}; {advice}", missing_table(&message)),
                (_, "") => format!("error {code}: {message}"),
                _ => format!("error {code}: {message}; {advice}"),
            };
            Judged {
                fault: Fault::new(kind, message),
                broken: reconnect,
                again: false,
                duplicate: code == 1062,
            }
        }
    }
}

/// `Table 'ids.keymill_segment' doesn't exist`, as we say it.
fn missing_table(message: &str) -> String {
    let quoted = message.split('\'').nth(1);
    match quoted.and_then(|name| name.rsplit('.').next()) {
        Some(table) => format!("table `{table}` is missing"),
        None => message.to_owned(),
    }
}

/// A driver's error in words, without its debug output.
fn plain_words(error: &Error) -> String {
    let io = match error {
        Error::IoError(error) => Some(error),
        // The driver keeps the type of this one to itself, but not its source.
        Error::CodecError(error) => {
            std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>())
        }
        _ => None,
    };
    let silent = "the server did not answer in time".to_owned();
    match (io, error) {
        (Some(io), _) if is_timeout(io.kind()) => silent,
        (Some(io), _) => format!("the connection broke: {io}"),
        (_, Error::DriverError(DriverError::ConnectTimeout | DriverError::Timeout)) => silent,
        (_, Error::DriverError(DriverError::CouldNotConnect(Some((_, what, kind))))) => {
            if is_timeout(*kind) {
                silent
            } else {
                what.clone()
            }
        }
        (_, Error::DriverError(DriverError::TlsNotSupported)) => "the server offers no TLS".to_owned(),
        (_, Error::DriverError(error)) => error.to_string(),
        (_, Error::CodecError(error)) => format!("the answer is not of the MySQL protocol: {error}"),
        (_, other) => other.to_string(),
    }
}

fn is_timeout(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

/// A client of one server.
pub struct MysqlStore {
    options: Options,
    session: Option<Session>,
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore")
            .field("options", &self.options)
            .field("connected", &self.session.is_some())
            .finish()
    }
}

impl MysqlStore {
    /// A store on this server. Nothing is connected yet.
    #[must_use]
    pub fn new(options: Options) -> MysqlStore {
        MysqlStore { options, session: None }
    }

    /// Runs with a live connection and keeps it if it may be used again.
    fn with_session<T>(&mut self, work: impl FnOnce(&mut Session) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut session = self.ready()?;
        let answer = work(&mut session);
        if !session.broken {
            session.used_ms = Clock::System.boot_ms();
            self.session = Some(session);
        }
        answer
    }

    /// The connection, pinged if it was idle, or a new one.
    fn ready(&mut self) -> Result<Session, Fault> {
        if let Some(mut session) = self.session.take() {
            let idle = Clock::System.boot_ms().saturating_sub(session.used_ms);
            if idle <= IDLE_MS || session.connection.ping().is_ok() {
                session.again = false;
                session.duplicate = false;
                return Ok(session);
            }
        }
        self.connect()
    }

    fn connect(&self) -> Result<Session, Fault> {
        let mut failures = Vec::new();
        let mut fallback = None;
        for target in self.options.targets(&mut failures) {
            match self.connect_to(&target) {
                Ok(session) if session.server.read_only => {
                    // A replica answers questions; it is kept in case no other host does better.
                    fallback.get_or_insert(session);
                }
                Ok(session) => return Ok(session),
                Err(fault) if fault.kind == FaultKind::Unavailable => {
                    failures.push(format!("{target}: {}", fault.message));
                }
                Err(fault) => return Err(Fault::new(fault.kind, format!("{target}: {}", fault.message))),
            }
        }
        fallback.ok_or_else(|| {
            Fault::new(FaultKind::Unavailable, format!("no connection to {}", failures.join(", nor to ")))
        })
    }

    fn connect_to(&self, target: &Target) -> Result<Session, Fault> {
        let options = &self.options;
        let read_ms = u32::try_from(options.read_timeout.as_millis()).unwrap_or(u32::MAX).max(1);
        let at_least = Duration::from_millis(1); // a timeout of zero would mean none
        let mut builder = OptsBuilder::new()
            .user(Some(options.user.clone()))
            .pass(Some(options.password.reveal().to_owned()))
            .db_name(Some(options.database.clone()))
            .tcp_connect_timeout(Some(options.connect_timeout.max(at_least)))
            .read_timeout(Some(options.read_timeout.max(at_least)))
            .write_timeout(Some(options.read_timeout.max(at_least)))
            .tcp_nodelay(true)
            .prefer_socket(false) // would connect a second time, to a file the server names
            .max_allowed_packet(Some(1 << 24)) // saves asking for it
            .ssl_opts(self.ssl()?);
        #[cfg(target_os = "linux")]
        {
            builder = builder.tcp_user_timeout_ms(Some(read_ms));
        }
        builder = match target {
            Target::Tcp(host, port) => builder.ip_or_hostname(Some(host.as_str())).tcp_port(*port),
            Target::Socket(path) => builder.socket(Some(path.display().to_string())),
        };
        let connection = Conn::new(builder).map_err(|error| {
            let mut fault = judge_error(&error, Phase::Ask, &options.password).fault;
            let tls = if options.tls == Tls::Off { " (or the server demands TLS: `tls=verify`)" } else { "" };
            match &error {
                Error::MySqlError(said) if matches!(said.code, 1045 | 1698) => {
                    fault.message = format!(
                        "the server refuses user `{}` with this password; check user and password{tls}",
                        options.user
                    );
                }
                Error::DriverError(DriverError::TlsNotSupported | DriverError::UnknownAuthPlugin(_)) => {
                    fault.kind = FaultKind::Refused;
                }
                // A certificate that is not trusted stays so: another attempt is no help.
                Error::IoError(broken) if broken.kind() == io::ErrorKind::InvalidData => {
                    fault.kind = FaultKind::Refused;
                    fault.message = format!("{broken}; name the authority's certificate: `ca=FILE.pem`");
                }
                _ => {}
            }
            fault
        })?;
        let mut session = Session {
            connection,
            server: Server {
                dialect: Dialect::MySql,
                version: String::new(),
                durability: Vec::new(),
                read_only: false,
            },
            policy: options.durability,
            password: options.password.clone(),
            warnings: Vec::new(),
            checked: Vec::new(),
            known: HashMap::new(),
            used_ms: Clock::System.boot_ms(),
            broken: false,
            again: false,
            duplicate: false,
        };
        session.introduce(options.read_timeout)?;
        Ok(session)
    }

    #[cfg(feature = "rustls")]
    fn ssl(&self) -> Result<Option<SslOpts>, Fault> {
        Ok(match &self.options.tls {
            Tls::Off => None,
            Tls::Verify { ca } => {
                if let Some(file) = ca
                    && let Err(error) = std::fs::metadata(file)
                {
                    return Err(Fault::new(
                        FaultKind::Refused,
                        format!("the authority's certificate `{}` cannot be read: {error}", file.display()),
                    ));
                }
                Some(SslOpts::default().with_root_cert_path(ca.clone()))
            }
        })
    }

    #[cfg(not(feature = "rustls"))]
    fn ssl(&self) -> Result<Option<SslOpts>, Fault> {
        match &self.options.tls {
            Tls::Off => Ok(None),
            _ => Err(Fault::new(
                FaultKind::Refused,
                "this build of keymill has no TLS; build it with feature `rustls`, or use `tls=off`",
            )),
        }
    }
}

impl Session {
    /// Finds out who the server is, sets the session up, and checks what decides whether a commit survives.
    fn introduce(&mut self, read_timeout: Duration) -> Result<(), Fault> {
        self.server.version = self.variable("version")?.unwrap_or_default();
        self.server.dialect = Dialect::of(&self.server.version);
        let statement_binlog = self.variable("log_bin")?.is_some_and(|on| is_on(&on))
            && self.variable("binlog_format")?.is_some_and(|format| format.eq_ignore_ascii_case("statement"));
        let lock_wait = (read_timeout.as_secs() / 2).max(1);
        for setting in self.server.dialect.session(lock_wait, statement_binlog) {
            self.say(&setting, Phase::Ask)?;
        }
        // MariaDB 12 has more words for it than `ON`.
        self.server.read_only =
            self.variable("read_only")?.is_some_and(|word| word != "0" && !word.eq_ignore_ascii_case("off"));
        self.check_durability()
    }

    /// Refuses to write to a replica, and forgets it: the next attempt may find another server.
    fn writable(&mut self) -> Result<(), Fault> {
        if self.server.read_only {
            self.broken = true;
            return Err(Fault::new(
                FaultKind::Unavailable,
                "the server is read-only: a replica, or in maintenance",
            ));
        }
        Ok(())
    }

    /// One try: begin, work, commit. `None`: somebody else was faster, nothing was changed.
    fn attempt<T>(
        &mut self,
        work: impl Fn(&mut dyn Rows) -> Result<Option<T>, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.again = false;
        self.duplicate = false;
        self.say(self.server.dialect.begin(), Phase::Ask)?;
        let answer = work(&mut Open { session: self });
        match answer {
            Ok(Some(done)) => match self.say("COMMIT", Phase::Commit) {
                Ok(()) => Ok(Some(done)),
                Err(fault) => {
                    // An optimistic transaction finds the other row here.
                    self.again |= self.duplicate;
                    self.roll_back();
                    Err(fault)
                }
            },
            Ok(None) => {
                self.roll_back();
                Ok(None)
            }
            Err(fault) => {
                self.roll_back();
                Err(fault)
            }
        }
    }

    /// Rolls back; a connection that cannot do that is not used again (the server rolls back when it closes).
    fn roll_back(&mut self) {
        if !self.broken && self.connection.query_drop("ROLLBACK").is_err() {
            self.broken = true;
        }
    }
}

impl Transactions for MysqlStore {
    fn transact<T>(
        &mut self,
        key: &Key,
        _period: u64,
        work: impl Fn(&mut dyn Rows) -> Result<Option<T>, Fault>,
    ) -> Result<T, Fault> {
        let patience = self.options.read_timeout;
        self.with_session(|session| {
            session.writable()?;
            session.check_table(key)?;
            let until = Instant::now() + patience;
            let mut conflict = rows::moved_on();
            for attempt in 0..rows::ATTEMPTS {
                if attempt > 0 {
                    if Instant::now() >= until {
                        break;
                    }
                    std::thread::sleep(Duration::from_micros(fastrand::u64(200..2000) * u64::from(attempt)));
                }
                match session.attempt(&work) {
                    Ok(Some(done)) => return Ok(done),
                    Ok(None) => {}
                    Err(fault) if session.again && !session.broken => conflict = fault,
                    Err(fault) => return Err(fault),
                }
            }
            Err(conflict)
        })
    }
}

impl Store for MysqlStore {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        if request.key.scheme == Scheme::Sequence {
            return self.draw_value(request).map_err(|fault| rows::during(&rows::reserving(request), fault));
        }
        if request.key.scheme.is_ticket() {
            return self.draw(request).map_err(|fault| rows::during(&rows::reserving(request), fault));
        }
        let fast = self.with_session(|session| {
            session.writable()?;
            session.check_table(&request.key)?;
            match session.reserve_fast(request) {
                // The transaction repeats it, with a pause.
                Err(_) if session.again && !session.broken => Ok(None),
                other => other,
            }
        });
        match fast {
            Ok(Some(reserved)) => Ok(reserved),
            Ok(None) => self.reserve_in_one(request),
            Err(fault) => Err(rows::during(&rows::reserving(request), fault)),
        }
    }

    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        if key.scheme.is_ticket() {
            return Ok(false); // a ticket once drawn is never drawn again
        }
        self.give_back_in_one(key, period, lo, hi)
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.raise_in_one(key, expect, to)
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        self.with_session(|session| {
            session.check_table(key)?;
            if key.scheme == Scheme::Sequence {
                return session.sequence_row(key);
            }
            if key.scheme.is_ticket() {
                return session.last_ticket(key);
            }
            rows::look(&mut Open { session }, key)
        })
        .map_err(|fault| rows::during(&format!("looking at `{}`", key.name), fault))
    }

    fn age(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        self.with_session(|session| Open { session }.age(key))
            .map_err(|fault| rows::during(&format!("looking at `{}`", key.name), fault))
    }

    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        let mut tables = rows::tables(keys, create_table)?;
        if dry_run {
            match self.ready() {
                Ok(session) => self.session = Some(session),
                // The statements are wanted before there is a server, a user or a database.
                Err(_) => return Ok(tables.into_iter().map(|(_, statement)| statement).collect()),
            }
        }
        self.with_session(|session| {
            // A user without the right to create may well run `init` on tables that are there.
            let mut missing = Vec::new();
            for (key, statement) in tables.drain(..) {
                if !session.check_table(key)? {
                    missing.push((key, statement));
                }
            }
            if !dry_run && !missing.is_empty() {
                session.writable()?;
                for (key, statement) in &missing {
                    session.say(statement, Phase::Write)?;
                    session.check_table(key)?;
                }
            }
            Ok(missing.into_iter().map(|(_, statement)| statement).collect())
        })
        .map_err(|fault| rows::during("creating tables", fault))
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        if key.scheme.is_ticket() {
            let raised = match key.scheme {
                Scheme::Sequence => self.raise_sequence(key, to),
                _ => self.raise_tickets(key, to),
            };
            return raised.map_err(|fault| rows::during(&format!("repairing `{}`", key.name), fault));
        }
        self.repair_in_one(key, to)
    }

    fn hand_over(&mut self, old: &Key, new: &Key, period: u64) -> Result<Handover, Fault> {
        self.hand_over_in_one(old, new, period)
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        // Asking is safe where reserving is not: an operator wants to see what is wrong.
        let durability = std::mem::replace(&mut self.options.durability, Durability::Warn);
        let facts = self.told_facts();
        if durability != Durability::Warn {
            self.options.durability = durability;
            self.session = None;
        }
        facts
    }
}

impl MysqlStore {
    fn told_facts(&mut self) -> Result<Facts, Fault> {
        self.with_session(|session| {
            let mut warnings = session.warnings.clone();
            if session.server.read_only {
                warnings.push("the server is read-only: it can reserve nothing".to_owned());
            }
            Ok(Facts {
                dialect: session.server.dialect.name().to_owned(),
                version: session.server.version.clone(),
                durability: session.server.durability.clone(),
                warnings,
            })
        })
        .map_err(|fault| rows::during("asking the server about itself", fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let options = Options { password: Secret::new("opensesame"), ..Options::default() };
        let shown = format!("{options:?} {:?}", MysqlStore::new(options.clone()));
        assert!(!shown.contains("opensesame"), "{shown}");
        assert_eq!(hide("near 'opensesame'\nat line 1", &options.password), "near '(hidden)' at line 1");
    }

    #[test]
    fn a_missing_table_is_named_with_the_command() {
        assert_eq!(
            missing_table("Table 'ids.keymill_segment' doesn't exist"),
            "table `keymill_segment` is missing"
        );
    }

    #[test]
    fn anything_but_an_error_packet_breaks_the_connection() {
        let cut = Error::IoError(io::ErrorKind::ConnectionReset.into());
        for (phase, kind) in [
            (Phase::Ask, FaultKind::Unavailable),
            (Phase::Write, FaultKind::Unknown),
            (Phase::Commit, FaultKind::Unknown),
        ] {
            let judged = judge_error(&cut, phase, &Secret::default());
            assert!(judged.broken);
            assert_eq!(judged.fault.kind, kind);
        }
    }
}
