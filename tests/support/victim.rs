//! Faults of a server: one trait, so that each scenario of `tests/faults/server_faults.rs` exists once for every store.

use std::any::Any;

use mysql::prelude::Queryable;

use crate::ci::Server;
use crate::{mariadb, postgres, redis};

const MISSING: &str = "table `keymill_segment` is missing; stop every program that uses it, run `";
const READ_ONLY: &str = "read-only";
const PASSWORD: &str = "check user and password";
const CROWDED: &str = "the server has too many connections";
/// Redis closes a connection that it has just accepted, so its error may be lost: `too many connections; raise maxclients`,
/// or `is `maxclients` reached?`.
const FULL: &str = "maxclients";

/// Faults of a private server, in each store's own way. If callers have to see the reason, the method returns words of the
/// error.
pub trait Victim {
    /// Runs the script of `ci/servers/`.
    fn server(&self) -> &Server;

    /// Its URL, without options.
    fn url(&self) -> String {
        self.server().url()
    }

    /// Host and port, for a proxy.
    fn address(&self) -> (String, u16);

    /// `kill -9`.
    fn kill(&self) {
        self.server().kill();
    }

    /// On the same port and data.
    fn start_again(&self) {
        self.server().start_again();
    }

    /// `SIGSTOP`: it accepts connections and answers nothing.
    fn freeze(&self) {
        self.server().ci(&["freeze"]);
    }

    /// `SIGCONT`.
    fn thaw(&self) {
        self.server().ci(&["thaw"]);
    }

    /// Refuses writes from now on, or accepts them again.
    fn read_only(&self, on: bool) -> &'static str;

    /// Changes the password of keymill's user, and disconnects that user.
    fn password(&self, password: &str) -> &'static str;

    /// Deletes keymill's table. `None`: the store has no tables, and only the rows are deleted.
    fn lose_table(&self) -> Option<&'static str>;

    /// Takes every free connection; dropping the answer frees them.
    fn crowd(&self) -> (&'static str, Box<dyn Any>);

    /// Takes a backup of its data.
    fn backup(&self) {
        self.server().ci(&["backup"]);
    }

    /// The server, with the data of the backup.
    fn restore(&self) {
        self.server().ci(&["restore"]);
    }
}

impl Victim for mariadb::Private {
    fn server(&self) -> &Server {
        self
    }

    fn address(&self) -> (String, u16) {
        mariadb::options_of(&self.url()).hosts[0].clone()
    }

    fn read_only(&self, on: bool) -> &'static str {
        let sql = format!("SET GLOBAL read_only = {}", u8::from(on));
        self.root().query_drop(sql).expect("root may set that");
        READ_ONLY
    }

    fn password(&self, password: &str) -> &'static str {
        let sql = format!("ALTER USER keymill@'%' IDENTIFIED BY '{password}'");
        self.root().query_drop(sql).expect("a password");
        self.disconnect("keymill");
        PASSWORD
    }

    fn lose_table(&self) -> Option<&'static str> {
        self.root().query_drop("DROP TABLE ids.keymill_segment").expect("root may drop");
        Some(MISSING)
    }

    fn crowd(&self) -> (&'static str, Box<dyn Any>) {
        self.root().query_drop("SET GLOBAL max_connections = 10").expect("root may set that");
        let url = format!("{}?prefer_socket=false", self.url());
        let taken: Vec<mysql::Conn> =
            std::iter::from_fn(|| mysql::Conn::new(url.as_str()).ok()).take(50).collect();
        assert!(taken.len() < 50, "there is an end to connections");
        (CROWDED, Box::new(taken))
    }
}

impl Victim for postgres::Private {
    fn server(&self) -> &Server {
        self
    }

    fn address(&self) -> (String, u16) {
        postgres::options_of(&self.url()).hosts[0].clone()
    }

    fn read_only(&self, on: bool) -> &'static str {
        let root = postgres::Sql::root(&self.url());
        root.say(&format!("ALTER SYSTEM SET default_transaction_read_only = {on}"));
        root.say("SELECT pg_reload_conf()");
        READ_ONLY
    }

    fn password(&self, password: &str) -> &'static str {
        let root = postgres::Sql::root(&self.url());
        root.say(&format!("ALTER ROLE keymill PASSWORD '{password}'"));
        root.say("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'keymill'");
        PASSWORD
    }

    fn lose_table(&self) -> Option<&'static str> {
        postgres::Sql::root(&self.url()).say("DROP TABLE keymill_segment");
        // The schema is named only where the server said it.
        Some("keymill_segment` is missing; stop every program that uses it, run `")
    }

    fn crowd(&self) -> (&'static str, Box<dyn Any>) {
        let options = postgres::options_of(&self.url());
        let root = postgres::Sql::root(&self.url());
        root.say("ALTER ROLE keymill CONNECTION LIMIT 5");
        let taken: Vec<_> = (0..4).map(|_| postgres::Sql::to(&options)).collect();
        (CROWDED, Box::new(taken))
    }
}

impl Victim for redis::Private {
    fn server(&self) -> &Server {
        self
    }

    fn address(&self) -> (String, u16) {
        redis::options_of(&self.url()).server.hosts[0].clone()
    }

    fn read_only(&self, on: bool) -> &'static str {
        // A master without replicas keeps its data.
        let master = if on { ["127.0.0.1", "1"] } else { ["NO", "ONE"] };
        self.say(&["REPLICAOF", master[0], master[1]]);
        "replica"
    }

    fn password(&self, password: &str) -> &'static str {
        self.say(&["ACL", "SETUSER", "default", "resetpass", &format!(">{password}")]);
        self.say(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        PASSWORD
    }

    fn lose_table(&self) -> Option<&'static str> {
        self.say(&["FLUSHALL"]);
        None
    }

    fn crowd(&self) -> (&'static str, Box<dyn Any>) {
        let url = self.url();
        self.say(&["CONFIG", "SET", "maxclients", "10"]);
        let client = ::redis::Client::open(url.as_str()).expect("a client");
        let taken: Vec<_> = std::iter::from_fn(|| client.get_connection().ok()).take(50).collect();
        assert!(taken.len() < 50, "there is an end to connections");
        (FULL, Box::new(taken))
    }
}
