//! Makes a connection: tries host after host, with every timeout set, and encrypted where the options say so.

use std::collections::HashMap;
use std::sync::Arc;

use mysql::{Conn, DriverError, Error, OptsBuilder};

use super::Mysql;
use super::Phase;
use super::mysql_dialect::refuses_login;
use super::mysql_error::{SILENT, broken_by, is_silent, judge_error};
use super::mysql_session::{MysqlServer, MysqlSession};
use super::settings_check::SettingsCheck;
use super::tunnel::Tunnel;
use crate::store::server::{CLOSED_EARLY, FailedTargets, ServerOptions, Target, is_closed};
use crate::store::socket::AT_LEAST;
use crate::store::sql::remote::Driver;
use crate::store::sql::{Dialect, State};
use crate::store::tls::{Mode, login_refused};
use crate::store::{Fault, FaultKind};
use crate::system::MeetingPlace;
use crate::time::Clock;

impl Driver for Mysql {
    type Connection = MysqlSession;

    const DIALECT: Dialect = Dialect::MySql;

    /// Connects to the first host that takes writes.
    fn connect(&mut self, options: &ServerOptions) -> Result<MysqlSession, Fault> {
        let mut failures = FailedTargets::default();
        let (mut replicating, mut read_only) = (None, None);
        for target in options.targets(&mut failures) {
            match self.connect_to(options, &target) {
                Ok(session) if session.server.read_only => {
                    // A replica answers questions; it is kept in case no other host does better.
                    read_only.get_or_insert(session);
                }
                Ok(session) if session.server.replicates && session.passes_over => {
                    replicating.get_or_insert(session);
                }
                Ok(session) => return Ok(session),
                Err(fault) if fault.kind == FaultKind::Unavailable => {
                    failures.note_fault(&target, &fault);
                }
                Err(fault) => return Err(fault.at(target)),
            }
        }
        replicating.or(read_only).ok_or_else(|| failures.fault())
    }
}

impl Mysql {
    fn connect_to(&self, options: &ServerOptions, target: &Target) -> Result<MysqlSession, Fault> {
        let options = &*options.signed_in()?;
        let mode = Mode::of(options, target);
        let first = match self.log_in(options, target, mode) {
            Err(NotLoggedIn { needs_tls: true, fault, is_refused }) => (fault, is_refused),
            other => return other.map_err(|failed| failed.fault),
        };
        self.log_in(options, target, Mode::Require).map_err(|second| {
            // The server's refusal is the reason, where the second try did not come as far as to one.
            let (fault, is_refused) = first;
            if is_refused && !second.is_refused { fault } else { second.fault }
        })
    }

    fn log_in(
        &self,
        options: &ServerOptions,
        target: &Target,
        mode: Mode,
    ) -> Result<MysqlSession, NotLoggedIn> {
        let builder = OptsBuilder::new()
            .user(Some(options.user.clone()))
            .pass(Some(options.password.reveal().to_owned()))
            .db_name(Some(options.database.clone()))
            .read_timeout(Some(options.read_timeout.max(AT_LEAST)))
            .write_timeout(Some(options.read_timeout.max(AT_LEAST)))
            .connect_attrs(Some(HashMap::from([("program_name", "keymill")])))
            .stmt_cache_size(0) // nothing is prepared
            .enable_cleartext_plugin(true) // the line decides where a password is sent
            .prefer_socket(false) // would connect a second time, to a file the server names
            .max_allowed_packet(Some(self.largest_packet)); // saves asking for it
        let mut line = Tunnel::open(options, target, mode, self.one_by_one)?;
        let builder = match line.meeting_place() {
            MeetingPlace::File(socket) => builder.socket(Some(socket.display().to_string())),
            MeetingPlace::Port(port) => builder.ip_or_hostname(Some("127.0.0.1")).tcp_port(*port),
        };
        let connected = Conn::new(builder);
        let connection = connected.map_err(|error| {
            let is_refused = matches!(&error, Error::MySqlError(said) if refuses_login(said.code));
            NotLoggedIn {
                // A user who may log in by TLS only is refused as for a wrong password.
                needs_tls: mode.tries_tls_next() && line.needs_tls(is_refused),
                is_refused,
                fault: not_connected(error, &mut line, options, mode),
            }
        })?;
        let protection = line.protection();
        let mut session = MysqlSession {
            connection,
            line,
            protection,
            server: MysqlServer {
                dialect: Dialect::MySql,
                version: String::new(),
                nowait: false,
                durability: Vec::new(),
                read_only: false,
                in_cluster: false,
                replicates: false,
            },
            settings_check: SettingsCheck::default(),
            state: State::new(options.durability, options.read_timeout, Clock::System.boot_ms()),
            password: options.password.clone(),
            passes_over: options.hosts.len() > 1,
            lock_wait: 1,
            read_timeout: options.read_timeout,
            code: None,
            scans: Arc::clone(&self.scans),
        };
        session.introduce(options)?;
        Ok(session)
    }
}

/// Why there is no session.
struct NotLoggedIn {
    fault: Fault,
    /// The same inside TLS may succeed.
    needs_tls: bool,
    /// The server has refused user and password, or a login without TLS.
    is_refused: bool,
}

impl From<Fault> for NotLoggedIn {
    fn from(fault: Fault) -> NotLoggedIn {
        NotLoggedIn { fault, needs_tls: false, is_refused: false }
    }
}

/// Why the driver has no connection: this end of the line knows better where it ended the login itself.
fn not_connected(error: Error, line: &mut Tunnel, options: &ServerOptions, mode: Mode) -> Fault {
    if let Some(fault) = line.fault() {
        return fault;
    }
    let error = line.late_error().unwrap_or(error);
    let fault = judge_error(&error, Phase::Ask, &options.password).fault;
    let unknown = |method: &str| {
        Fault::new(
            FaultKind::Refused,
            format!(
                "the server wants user `{}` to log in by {method}, which keymill does not know; check the user's name, or let it log in by caching_sha2_password or mysql_native_password",
                options.user
            ),
        )
    };
    match &error {
        Error::MySqlError(said) if matches!(said.code, 1045 | 1698) => {
            fault.because(login_refused(options, mode))
        }
        // For an unknown user MySQL names an arbitrary login method.
        Error::DriverError(DriverError::UnknownAuthPlugin(method)) => unknown(method),
        Error::DriverError(DriverError::OldMysqlPasswordDisabled) => unknown("mysql_old_password"),
        error if is_silent(error) && line.was_greeted() => fault.because(format!(
            "{SILENT}: its greeting came, and nothing after it within {:?}; is it overloaded, or a proxy whose server is gone?",
            options.read_timeout
        )),
        // The connection was accepted and stayed silent. A MySQL server sends the first packet; servers of other
        // protocols wait for the client's.
        error if is_silent(error) => fault.because(format!(
            "{SILENT}: no MySQL greeting came within {:?}; is it a MySQL or MariaDB server, and awake?",
            options.read_timeout
        )),
        error if broken_by(error).is_some_and(|broken| is_closed(broken.kind())) => {
            fault.and(&format!("; {CLOSED_EARLY}"))
        }
        _ => fault,
    }
}
