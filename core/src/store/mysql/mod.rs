//! Reservations in MySQL, MariaDB or TiDB: the part that `sql` does not cover.
//!
//! * All four timeouts are set, so that a server that falls silent costs seconds and does not block for ever.
//! * The server's options are tested with each change (`settings_check`): they may have changed since the connection was made.
//! * No statement is prepared: a server limits prepared statements across all of its clients.
//! * No pool: `mysql::Pool` connects under its own lock and fails at construction while the server is down.

mod answers;
mod connect;
mod definers;
mod mysql_connection;
mod mysql_dialect;
mod mysql_error;
mod mysql_session;
#[cfg(feature = "moves")]
mod mysql_shard;
mod mysql_values;
mod packets;
mod settings_check;
mod tickets;
mod tunnel;

use std::fmt;

use super::Facts;
pub use super::Secret;
use super::server::Phase;
pub use super::server::{ServerOptions, Tls, TlsMode};
use super::sql::SqlStore;
use super::sql::remote::{Remote, RemoteConnection};
#[cfg(feature = "moves")]
pub(crate) use mysql_dialect::meaning;
use mysql_session::{MysqlSession, Scans};

/// Reservations in MySQL, MariaDB or TiDB.
pub type MysqlStore = SqlStore<Remote<Mysql, MysqlSession>>;

/// Makes connections to MySQL, MariaDB or TiDB.
pub struct Mysql {
    scans: Scans,
    /// The largest packet that is sent or read.
    largest_packet: usize,
    /// The server refuses a packet of several statements: values of another server stand in them as text.
    one_by_one: bool,
}

impl Default for Mysql {
    fn default() -> Mysql {
        Mysql { scans: Scans::default(), largest_packet: 1 << 24, one_by_one: false }
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MySQL")
    }
}

impl MysqlStore {
    /// A store on this server. Nothing is connected yet.
    #[must_use]
    pub fn new(options: ServerOptions) -> MysqlStore {
        SqlStore { server: Remote::new(options, Mysql::default()) }
    }
}

impl RemoteConnection for MysqlSession {
    fn is_alive(&mut self, idle: bool) -> bool {
        self.line.begin_conversation();
        !idle || self.connection.ping().is_ok()
    }

    fn about(&self) -> (Facts, bool) {
        let facts = Facts {
            dialect: self.server.dialect.name().to_owned(),
            version: self.server.version.clone(),
            durability: self.server.durability.clone(),
            tls: self.protection.words().to_owned(),
            warnings: self.state.warnings.clone(),
            tables: Vec::new(),
        };
        (facts, self.server.read_only)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        let options = ServerOptions { password: Secret::new("opensesame"), ..ServerOptions::default() };
        let shown = format!("{options:?} {:?}", MysqlStore::new(options.clone()));
        assert!(!shown.contains("opensesame"), "{shown}");
        assert_eq!(
            super::super::server::hide("near 'opensesame'\nat line 1", &options.password),
            "near '(hidden)' at line 1"
        );
        let tabbed = Secret::new("open\tsesame");
        assert_eq!(super::super::server::hide("near 'open\tsesame'", &tabbed), "near '(hidden)'");
    }
}
