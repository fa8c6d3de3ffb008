//! The options that all server stores share: address, user, timeouts, TLS.

use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::printable;

use super::resolve::LookUpError;
pub use super::resolve::Resolver;
use super::time_budget;
use super::{Durability, Fault, FaultKind, Secret, secret_file};

/// `tls=`: encryption of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Not given: as `off` for a socket file, `prefer` for every address except loopback. A connection to a loopback
    /// address is not encrypted, unless a SQL database asks for the password itself: then the login is tried again inside TLS.
    #[default]
    Default,
    /// No encryption; a password is sent in whatever form the server wants.
    Off,
    /// Encrypted if the server supports it; the server's identity is not verified.
    Prefer,
    /// Encrypted or refused; the server's identity is not verified.
    Require,
    /// Encrypted, and the server's certificate has to be by an authority of `ca`, for whatever host.
    VerifyCa,
    /// Encrypted, and the server's certificate has to be for the host as it is written.
    Verify,
}

/// What [`TlsMode::VerifyCa`] lacks without `ca`.
pub(crate) const NEEDS_CA: &str =
    "tls=verify-ca compares no host, so it needs the authority that signed for this server; add ca=FILE.pem";

/// Encryption of the connection, and the certificates of both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// What is encrypted and verified.
    pub mode: TlsMode,
    /// A PEM file: only these authorities are trusted. `None`: the authorities of the operating system.
    pub ca: Option<PathBuf>,
    /// A PEM file with the certificate that is shown to the server, and the chain up to its authority.
    pub cert: Option<PathBuf>,
    /// A PEM file with its private key.
    pub key: Option<PathBuf>,
}

impl Tls {
    /// This mode, without files.
    #[must_use]
    pub fn new(mode: TlsMode) -> Tls {
        Tls { mode, ..Tls::default() }
    }

    /// Verified by these authorities.
    #[must_use]
    pub fn verify(ca: Option<PathBuf>) -> Tls {
        Tls { ca, ..Tls::new(TlsMode::Verify) }
    }
}

/// The environment variable with the password of every server store whose URL names a user and no password.
pub const PASSWORD_VARIABLE: &str = "KEYMILL_PASSWORD";

/// The origin of a password.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PasswordSource {
    /// The configuration has none.
    #[default]
    None,
    /// The URL holds it.
    Url,
    /// [`PASSWORD_VARIABLE`], read when the mill was opened: no other process can change it later.
    Environment,
    /// `password_file=`: read at each connect, so that a rotated password is used from the next connection on.
    File(PathBuf),
}

/// The server, the user and the timeouts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Hosts and ports; the first is preferred, the others are tried when it does not answer or is read-only.
    pub hosts: Vec<(String, u16)>,
    /// A socket file, instead of hosts.
    pub socket: Option<PathBuf>,
    /// The user.
    pub user: String,
    /// The user's password; `signed_in` reads it from a password file.
    pub password: Secret,
    /// The origin of the password.
    pub password_source: PasswordSource,
    /// The database.
    pub database: String,
    /// The schema of the tables, on PostgreSQL; without it the `search_path` decides.
    pub schema: Option<String>,
    /// How long one address may take to accept a connection.
    pub connect_timeout: Duration,
    /// How long one answer may take. Repeated attempts at one reservation end after as long again.
    pub read_timeout: Duration,
    /// After this long without a statement the connection is closed; the next statement opens another one.
    pub idle_timeout: Duration,
    /// What to do about settings that lose commits.
    pub durability: Durability,
    /// Encryption.
    pub tls: Tls,
    /// Finds the hosts' addresses.
    pub resolver: Resolver,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            hosts: Vec::new(),
            socket: None,
            user: String::new(),
            password: Secret::default(),
            password_source: PasswordSource::default(),
            database: String::new(),
            schema: None,
            connect_timeout: Duration::from_secs(2),
            read_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(50),
            durability: Durability::default(),
            tls: Tls::default(),
            resolver: Resolver::default(),
        }
    }
}

impl ServerOptions {
    /// The address without user and password: `db1:3306,db2:3306/ids`.
    #[must_use]
    pub fn shown(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let place =
            self.socket.as_ref().map_or_else(|| hosts.join(","), |socket| socket.display().to_string());
        if self.database.is_empty() { place } else { format!("{place}/{}", self.database) }
    }

    /// These options with the present password. Called for each new connection: a rotating token (a cloud's IAM, Vault) is
    /// valid for minutes, and a mill lives for months.
    ///
    /// # Errors
    /// [`FaultKind::Refused`]: the password file cannot be read, or other users can read it.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))]
    pub(crate) fn signed_in(&self) -> Result<Cow<'_, ServerOptions>, Fault> {
        let PasswordSource::File(path) = &self.password_source else { return Ok(Cow::Borrowed(self)) };
        let password = password_in(path).map_err(|why| {
            Fault::new(FaultKind::Refused, format!("the password file `{}` {why}", path.display()))
        })?;
        Ok(Cow::Owned(ServerOptions { password, ..self.clone() }))
    }

    /// How long a connection may take to be made, at least a millisecond: zero would mean without a limit.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))]
    pub(crate) fn time_to_connect(&self) -> Duration {
        let limit = self.connect_timeout;
        let end = time_budget::end_of_exchange(limit, time_budget::budget(limit));
        end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
    }

    /// Every address to try, the preferred host's first; unresolved names go to `failures`. A driver would give up after
    /// the first address of a name, which for `localhost` is often an IPv6 address without a listener.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))]
    pub(crate) fn targets(&self, failures: &mut FailedTargets) -> Vec<Target> {
        match &self.socket {
            Some(socket) => vec![Target::Socket(socket.clone())],
            None => self.targets_at(&self.hosts, failures),
        }
    }

    /// The same for hosts outside the configuration.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))]
    pub(crate) fn targets_at(&self, hosts: &[(String, u16)], failures: &mut FailedTargets) -> Vec<Target> {
        let names: Vec<_> =
            hosts.iter().map(|(host, _)| host.trim_start_matches('[').trim_end_matches(']')).collect();
        let found = self.resolver.look_up(&names, self.time_to_connect());
        let mut targets = Vec::new();
        for (((_, port), name), found) in hosts.iter().zip(names).zip(found) {
            match found {
                Ok(addresses) => targets.extend(addresses.into_iter().map(|address| Target::Tcp {
                    host: name.to_owned(),
                    address: SocketAddr::new(address, *port),
                })),
                Err(LookUpError { is_unknown, why }) => {
                    failures.note(format!("{name}:{port}: {why}"), is_unknown);
                }
            }
        }
        targets
    }
}

/// The password in a file: its only line.
#[cfg_attr(not(feature = "_server"), allow(dead_code))]
fn password_in(path: &Path) -> Result<Secret, String> {
    let file = secret_file::read(path, 64 << 10).map_err(|error| format!("cannot be read: {error}"))?;
    let line = file.text.strip_suffix('\n').unwrap_or(&file.text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.is_empty() {
        return Err("is empty; write the password into it, on one line".to_owned());
    }
    if line.contains(['\n', '\r', '\0']) {
        return Err("has more than one line, or a NUL character; write only the password into it".to_owned());
    }
    match file.exposed {
        Some(exposed) => Err(exposed),
        None => Ok(Secret::new(line)),
    }
}

/// One line without the password: a server may quote a statement or a URL. A very short password is not replaced: that
/// would cover every second letter, and so reveal it.
#[cfg_attr(not(feature = "_server"), allow(dead_code))]
pub(crate) fn hide(message: &str, password: &Secret) -> String {
    let password = password.reveal();
    // Before control characters are replaced: the password may hold some.
    let hidden = if password.len() < 4 { message.to_owned() } else { message.replace(password, "(hidden)") };
    printable(hidden)
}

/// Whether the test of an idle connection that began then has ended because the server did not answer. The kernel may end a wait a
/// little early.
#[cfg(feature = "_server")]
pub(crate) fn was_silent(began: std::time::Instant, limit: Duration) -> bool {
    began.elapsed() >= limit.mul_f64(0.9)
}

/// The fault of a server that was silent then: nothing was asked of it.
#[cfg(feature = "_server")]
pub(crate) fn silent_when_idle(options: &ServerOptions) -> Fault {
    let cause = format!(
        "{} did not answer within {:?} on a connection that was idle",
        options.shown(),
        options.read_timeout
    );
    Fault::new(FaultKind::Unavailable, cause)
}

/// The system's error for a refused connection, with what to check.
#[cfg(feature = "_server")]
pub(crate) fn unreached(kind: std::io::ErrorKind, words: &str) -> Option<String> {
    use std::io::ErrorKind::{ConnectionRefused, NotFound};
    let advice = match kind {
        ConnectionRefused => {
            "nothing listens there: is the server started, and are its host and its port right?"
        }
        NotFound => "is the server started, and is this its socket file?",
        _ => return None,
    };
    Some(format!("{words}; {advice}"))
}

/// Error text for a port that ends each connection before a login, behind the text of the connection's end.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const CLOSED_EARLY: &str = "the port accepts connections and closes them before the login is over: a proxy does that where no server is behind it, and so does a server that is starting, ending or full";

/// Whether the other end has closed the connection.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn is_closed(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// The fault of an attempt to connect that failed so, where the system itself knows that there is no server.
#[cfg(feature = "_server")]
pub(crate) fn not_dialled(error: &std::io::Error, words: String) -> Fault {
    use std::io::ErrorKind;
    let fault = Fault::new(FaultKind::Unavailable, words);
    match error.kind() {
        ErrorKind::ConnectionRefused
        | ErrorKind::NotFound
        | ErrorKind::AddrNotAvailable
        | ErrorKind::NetworkUnreachable
        | ErrorKind::HostUnreachable => fault.of_unreached_server(),
        _ => fault,
    }
}

/// Why none of a server's addresses has a connection.
#[derive(Debug, Default)]
pub(crate) struct FailedTargets {
    whys: Vec<String>,
    /// At one of the addresses there may be a server.
    is_reached: bool,
}

#[cfg_attr(not(feature = "_server"), allow(dead_code))]
impl FailedTargets {
    /// No connection for this reason. `is_unreached`: it was refused, or the host's name is not known.
    pub(crate) fn note(&mut self, why: String, is_unreached: bool) {
        self.whys.push(why);
        self.is_reached |= !is_unreached;
    }

    /// No connection to this address.
    pub(crate) fn note_fault(&mut self, target: &Target, fault: &Fault) {
        self.note(format!("{target}: {fault}"), fault.is_unreached());
    }

    /// The reasons, with these words between them.
    pub(crate) fn joined(&self, words: &str) -> String {
        self.whys.join(words)
    }

    /// The fault of a server without a connection.
    pub(crate) fn fault(&self) -> Fault {
        self.of_reach(format!("no connection to {}", self.joined(", nor to ")))
    }

    /// A fault with this cause, which says whether there may be a server.
    pub(crate) fn of_reach(&self, cause: String) -> Fault {
        let fault = Fault::new(FaultKind::Unavailable, cause);
        if self.is_reached { fault } else { fault.of_unreached_server() }
    }
}

/// Error text for a read-only server.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const READ_ONLY: &str =
    "the server is read-only: a replica, in maintenance, or by a setting of this login";

/// Warning text of `status` for a read-only server.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const READ_ONLY_FOR_STATUS: &str = "the server is read-only: it can reserve nothing, and if it is a replica its rows may be older than the primary's";

/// What a failed statement leaves behind.
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A query: nothing was to be changed.
    Ask,
    /// A table was to be created.
    Create,
    /// A change inside a transaction that is not committed.
    Write,
    /// The statement whose success makes the range usable.
    Commit,
}

/// An address to connect to.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "_server"), allow(dead_code))]
pub(crate) enum Target {
    /// The host as written, for which a certificate has to be, and one of its addresses.
    Tcp {
        host: String,
        address: SocketAddr,
    },
    Socket(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp { host, address } if host.parse() == Ok(address.ip()) => write!(f, "{address}"),
            Target::Tcp { host, address } => write!(f, "{host}:{} ({})", address.port(), address.ip()),
            Target::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}
