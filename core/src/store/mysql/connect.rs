//! Makes a connection: tries host after host, with every timeout set, and encrypted where the options say so.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use mysql::{Conn, DriverError, Error, OptsBuilder};

use super::Mysql;
use super::Phase;
use super::error::{SILENT, is_silent, judge_error};
use super::guard::Guard;
use super::session::{Server, Session};
use super::tunnel::Tunnel;
use crate::store::server::{ServerOptions, Target, login_refused};
use crate::store::sql::remote::Driver;
use crate::store::sql::{Dialect, State};
use crate::store::tls::{Mode, Protection};
use crate::store::{Fault, FaultKind};
use crate::time::Clock;

impl Driver for Mysql {
    type Connection = Session;

    const DIALECT: Dialect = Dialect::MySql;

    /// Connects to the first host that takes writes.
    fn connect(&mut self, options: &ServerOptions) -> Result<Session, Fault> {
        let mut failures = Vec::new();
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
                    failures.push(format!("{target}: {fault}"));
                }
                Err(fault) => return Err(fault.at(target)),
            }
        }
        replicating.or(read_only).ok_or_else(|| {
            Fault::new(FaultKind::Unavailable, format!("no connection to {}", failures.join(", nor to ")))
        })
    }
}

impl Mysql {
    fn connect_to(&self, options: &ServerOptions, target: &Target) -> Result<Session, Fault> {
        let options = &*options.signed_in()?;
        let mode = Mode::of(options, target);
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
            .connect_attrs(Some(HashMap::from([("program_name", "keymill")])))
            .stmt_cache_size(0) // nothing is prepared
            .prefer_socket(false) // would connect a second time, to a file the server names
            .max_allowed_packet(Some(1 << 24)); // saves asking for it
        #[cfg(target_os = "linux")]
        {
            builder = builder.tcp_user_timeout_ms(Some(read_ms));
        }
        let mut line = Line::to(target, mode, options)?;
        builder = line.lead(builder, target);
        let connected = Conn::new(builder);
        let connection = connected.map_err(|error| {
            if let Some(fault) = line.fault() {
                return fault;
            }
            let fault = judge_error(&error, Phase::Ask, &options.password).fault;
            match &error {
                Error::MySqlError(said) if matches!(said.code, 1045 | 1698) => {
                    fault.because(login_refused(options, mode))
                }
                // For an unknown user MySQL names an arbitrary login method.
                Error::DriverError(DriverError::UnknownAuthPlugin(way)) => Fault::new(
                    FaultKind::Refused,
                    format!(
                        "the server wants user `{}` to log in by {way}, which is not known here; check the user's name, or let \
                         it log in by caching_sha2_password or mysql_native_password",
                        options.user
                    ),
                ),
                // The connection was accepted and stayed silent. A MySQL server sends the first packet; servers of other
                // protocols wait for the client's.
                error if is_silent(error) => fault.because(format!(
                    "{SILENT}: no MySQL greeting came within {:?}; is it a MySQL or MariaDB server, and awake?",
                    options.read_timeout
                )),
                _ => fault,
            }
        })?;
        let protection = line.protection();
        let mut session = Session {
            connection,
            line,
            protection,
            server: Server {
                dialect: Dialect::MySql,
                version: String::new(),
                nowait: false,
                durability: Vec::new(),
                read_only: false,
                in_cluster: false,
                replicates: false,
            },
            guard: Guard::default(),
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

/// What the driver is connected to.
#[derive(Debug)]
pub(super) enum Line {
    /// The server.
    Plain,
    /// A thread that encrypts.
    Tunnel(Tunnel),
}

impl Line {
    fn to(target: &Target, mode: Mode, options: &ServerOptions) -> Result<Line, Fault> {
        match mode {
            Mode::Off => Ok(Line::Plain),
            _ => Tunnel::open(options, target, mode).map(Line::Tunnel),
        }
    }

    /// Sets the driver's target.
    fn lead(&self, builder: OptsBuilder, target: &Target) -> OptsBuilder {
        match (self, target) {
            (Line::Tunnel(tunnel), _) => builder.socket(Some(tunnel.socket())),
            (Line::Plain, Target::Tcp { address, .. }) => {
                builder.ip_or_hostname(Some(address.ip().to_string())).tcp_port(address.port())
            }
            (Line::Plain, Target::Socket(path)) => builder.socket(Some(path.display().to_string())),
        }
    }

    /// What this end refused, read after the driver has failed.
    fn fault(&mut self) -> Option<Fault> {
        match self {
            Line::Plain => None,
            Line::Tunnel(tunnel) => tunnel.fault(),
        }
    }

    /// Called once the driver is connected.
    fn protection(&mut self) -> Protection {
        match self {
            Line::Plain => Protection::None,
            Line::Tunnel(tunnel) => {
                tunnel.taken();
                tunnel.protection()
            }
        }
    }
}
