//! What every server store is told: where, as whom, how patiently, how privately. (floor 2)

use std::borrow::Cow;
use std::fmt;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::printable;

use super::{Durability, Fault, FaultKind, Secret, secret_file};

/// Encryption of the connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Tls {
    /// None: for servers on this machine or a trusted network.
    #[default]
    Off,
    /// Encrypted, and the certificate has to be for the host's name, signed by a public authority or by this one.
    Verify {
        /// A PEM file with the authority's certificate.
        ca: Option<PathBuf>,
    },
}

/// The environment variable with the password of every server store whose URL names none.
pub const PASSWORD_VARIABLE: &str = "KEYMILL_PASSWORD";

/// Where a password comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PasswordSource {
    /// The configuration names none.
    #[default]
    None,
    /// The URL holds it.
    Url,
    /// [`PASSWORD_VARIABLE`], read when the mill was opened: no other process can change it later.
    Environment,
    /// `password_file=`: read at each connect, so a rotated password counts from the next connection on.
    File(PathBuf),
}

/// Which server, as whom, and how patiently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Hosts and ports; the first is the favourite, the others are tried when it does not answer or is read-only.
    pub hosts: Vec<(String, u16)>,
    /// A socket file, instead of hosts.
    pub socket: Option<PathBuf>,
    /// The user.
    pub user: String,
    /// The user's password; [`Options::signed_in`] fills it in where it stands in a file.
    pub password: Secret,
    /// Where the password comes from.
    pub password_source: PasswordSource,
    /// The database.
    pub database: String,
    /// How long one address may take to accept.
    pub connect_timeout: Duration,
    /// How long one answer may take. Repeated attempts at one reservation end after as long again.
    pub read_timeout: Duration,
    /// After this long without a statement the connection is closed; the next statement opens another one.
    pub idle_timeout: Duration,
    /// What to do about settings that lose commits.
    pub durability: Durability,
    /// Encryption.
    pub tls: Tls,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            hosts: Vec::new(),
            socket: None,
            user: String::new(),
            password: Secret::default(),
            password_source: PasswordSource::default(),
            database: String::new(),
            connect_timeout: Duration::from_secs(2),
            read_timeout: Duration::from_secs(2),
            idle_timeout: Duration::from_secs(50),
            durability: Durability::default(),
            tls: Tls::Off,
        }
    }
}

impl Options {
    /// The place without user and password: `db1:3306,db2:3306/ids`.
    #[must_use]
    pub fn shown(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let place =
            self.socket.as_ref().map_or_else(|| hosts.join(","), |socket| socket.display().to_string());
        if self.database.is_empty() { place } else { format!("{place}/{}", self.database) }
    }

    /// These options with the password as it is now. Called for each new connection: a token that rotates (a cloud's IAM,
    /// Vault) is good for minutes, and a mill lives for months.
    ///
    /// # Errors
    /// [`FaultKind::Refused`]: the password file cannot be read, or others can.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))]
    pub(crate) fn signed_in(&self) -> Result<Cow<'_, Options>, Fault> {
        let PasswordSource::File(path) = &self.password_source else { return Ok(Cow::Borrowed(self)) };
        let password = password_in(path).map_err(|why| {
            Fault::new(FaultKind::Refused, format!("the password file `{}` {why}", path.display()))
        })?;
        Ok(Cow::Owned(Options { password, ..self.clone() }))
    }

    /// Every address to try, the favourite's first; names that nobody knows go to `failures`. A driver would give up after
    /// the first address of a name, which for `localhost` is often the IPv6 one that nobody listens on.
    #[cfg_attr(not(feature = "_server"), allow(dead_code))]
    pub(crate) fn targets(&self, failures: &mut Vec<String>) -> Vec<Target> {
        if let Some(socket) = &self.socket {
            return vec![Target::Socket(socket.clone())];
        }
        let mut targets = Vec::new();
        for (host, port) in &self.hosts {
            let literal = host.trim_start_matches('[').trim_end_matches(']');
            if self.tls != Tls::Off {
                // The certificate is checked against the name.
                targets.push(Target::Tcp(literal.to_owned(), *port));
                continue;
            }
            match (literal, *port).to_socket_addrs() {
                Ok(found) => {
                    let mut addresses: Vec<_> = found.collect();
                    addresses.dedup();
                    targets.extend(addresses.iter().map(|a| Target::Tcp(a.ip().to_string(), a.port())));
                }
                Err(error) => failures.push(format!("{host}:{port}: the name is not known ({error})")),
            }
        }
        targets
    }
}

/// The password that a file holds: its only line.
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

/// One line in which the password is covered: a server may quote a statement or a URL back. Very short passwords would
/// cover every second letter and be told by that.
#[cfg_attr(not(feature = "_server"), allow(dead_code))]
pub(crate) fn hide(message: &str, password: &Secret) -> String {
    let line = printable(message.to_owned());
    if password.reveal().len() < 4 { line } else { line.replace(password.reveal(), "(hidden)") }
}

/// The system's words for why nobody took a connection, with what to look at.
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

/// What is said of a server to which nothing can be written.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const READ_ONLY: &str = "the server is read-only: a replica, or in maintenance";

/// What `status` says of such a server.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) const LOOKED_AT_READ_ONLY: &str = "the server is read-only: it can reserve nothing, and if it is a replica its rows may be older than the primary's";

/// What a statement that fails leaves behind.
#[cfg(any(feature = "mysql", feature = "postgres"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing was to be changed.
    Ask,
    /// A change inside a transaction that is not committed.
    Write,
    /// The statement whose success makes the range usable.
    Commit,
}

/// Where to connect to.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "_server"), allow(dead_code))]
pub(crate) enum Target {
    Tcp(String, u16),
    Socket(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Target::Tcp(host, port) => write!(f, "{host}:{port}"),
            Target::Socket(path) => write!(f, "{}", path.display()),
        }
    }
}
