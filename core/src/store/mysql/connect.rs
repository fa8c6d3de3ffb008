//! How a connection is made: host after host, every timeout set, encrypted if asked for. (floor 2)

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::Duration;

use mysql::{Conn, DriverError, Error, OptsBuilder, SslOpts};

use super::Phase;
use super::dialect::Dialect;
use super::error::{SILENT, broken_by, judge_error};
use super::session::{Server, Session};
use super::{MysqlStore, Tls};
use crate::store::server::Target;
use crate::store::{Fault, FaultKind};
use crate::time::Clock;

impl MysqlStore {
    pub(super) fn connect(&self) -> Result<Session, Fault> {
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
        let options = &*self.options.signed_in()?;
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
                Error::DriverError(DriverError::TlsNotSupported) => fault.kind = FaultKind::Refused,
                // MySQL also names some way or other to log in for a user it does not know.
                Error::DriverError(DriverError::UnknownAuthPlugin(way)) => {
                    fault = Fault::new(
                        FaultKind::Refused,
                        format!(
                            "the server wants user `{}` to log in by {way}, which is not known here; check the user's name, or \
                             let it log in by caching_sha2_password or mysql_native_password",
                            options.user
                        ),
                    );
                }
                // Taken, and then nothing: a MySQL server speaks first, the servers of other protocols wait to be spoken to.
                _ if fault.message == SILENT => {
                    let limit = options.read_timeout;
                    fault.message = format!(
                        "{SILENT}: no MySQL greeting came within {limit:?}; is it a MySQL or MariaDB server, and awake?"
                    );
                }
                #[cfg(feature = "rustls")]
                Error::TlsError(_) => {
                    let says = "no encryption with what `ca=` names: it has to be a PEM file with the authority's certificate";
                    fault = Fault::new(FaultKind::Refused, says);
                }
                _ => {}
            }
            // A certificate that is not believed stays so: another attempt is no help.
            if let Some(broken) =
                broken_by(&error).filter(|broken| broken.kind() == io::ErrorKind::InvalidData)
            {
                let said = broken.to_string();
                let advice = if said.contains("not valid for any names") {
                    "it names no host, as those that MySQL makes by itself do not: give the server one with the host as its \
                     subjectAltName"
                } else if said.contains("not valid for name") {
                    "write the host as the certificate has it"
                } else {
                    "name its authority's certificate: `ca=FILE.pem`"
                };
                fault.kind = FaultKind::Refused;
                fault.message = format!("{said}; {advice}");
            }
            fault
        })?;
        let mut session = Session {
            connection,
            server: Server {
                dialect: Dialect::MySql,
                version: String::new(),
                nowait: false,
                durability: Vec::new(),
                read_only: false,
            },
            policy: options.durability,
            password: options.password.clone(),
            warnings: Vec::new(),
            checked: Vec::new(),
            known: HashMap::new(),
            held: HashSet::new(),
            lock_wait: 1,
            hasty: false,
            used_ms: Clock::System.boot_ms(),
            broken: false,
            again: false,
            duplicate: false,
        };
        session.introduce(options)?;
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
            Tls::Verify { .. } => Err(Fault::new(
                FaultKind::Refused,
                "this build of keymill has no TLS; build it with feature `rustls`, or use `tls=off`",
            )),
        }
    }
}
