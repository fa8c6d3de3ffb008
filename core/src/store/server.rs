//! What every server store is told: where, as whom, how patiently, how privately. (floor 2)

use std::fmt;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use std::time::Duration;

use super::{Durability, Secret};

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

/// Which server, as whom, and how patiently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Hosts and ports; the first is the favourite, the others are tried when it does not answer or is read-only.
    pub hosts: Vec<(String, u16)>,
    /// A socket file, instead of hosts.
    pub socket: Option<PathBuf>,
    /// The user.
    pub user: String,
    /// The user's password.
    pub password: Secret,
    /// The database.
    pub database: String,
    /// How long one address may take to accept.
    pub connect_timeout: Duration,
    /// How long one answer may take. Repeated attempts at one reservation end after as long again.
    pub read_timeout: Duration,
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
            database: String::new(),
            connect_timeout: Duration::from_secs(2),
            read_timeout: Duration::from_secs(2),
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

/// One line in which the password is covered: a server may quote a statement or a URL back. Very short passwords would
/// cover every second letter and be told by that.
#[cfg_attr(not(feature = "_server"), allow(dead_code))]
pub(crate) fn hide(message: &str, password: &Secret) -> String {
    let line = message.replace(['\n', '\r'], " ");
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
