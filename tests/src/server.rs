//! The MariaDB that the tests run against, and private ones for tests that hurt a server.

use std::path::{Path, PathBuf};
use std::process::Command;

use keymill::store::mysql::{MysqlStore, Options, Secret};
use mysql::prelude::Queryable;

/// Where the shared test server is: `KEYMILL_TEST_MYSQL`, `mysql://user:password@host:port/database`.
///
/// # Panics
/// Where the variable is missing: a test that cannot run fails and says why.
#[must_use]
pub fn url() -> String {
    std::env::var("KEYMILL_TEST_MYSQL").unwrap_or_else(|_| {
        panic!(
            "KEYMILL_TEST_MYSQL is not set; run `ci/mariadb run cargo test -p keymill-tests --test contract`"
        )
    })
}

/// A URL's parts as options.
///
/// # Panics
/// Where it is not of the form above.
#[must_use]
pub fn options_of(url: &str) -> Options {
    let parts = || {
        let (user, rest) = url.strip_prefix("mysql://")?.split_once(':')?;
        let (password, rest) = rest.split_once('@')?;
        let (hosts, database) = rest.split_once('/')?;
        let place = |host: &str| {
            let (host, port) = host.split_once(':')?;
            Some((host.to_owned(), port.parse().ok()?))
        };
        Some(Options {
            hosts: hosts.split(',').map(place).collect::<Option<_>>()?,
            user: user.to_owned(),
            password: Secret::new(password),
            database: database.to_owned(),
            ..Options::default()
        })
    };
    parts().unwrap_or_else(|| panic!("`{url}` is not mysql://user:password@host:port,…/database"))
}

/// Options for the shared test server.
#[must_use]
pub fn options() -> Options {
    options_of(&url())
}

/// A store of these options.
#[must_use]
pub fn store(options: Options) -> MysqlStore {
    MysqlStore::new(options)
}

/// A plain connection to the shared test server, to tamper with.
///
/// # Panics
/// Where there is no server.
#[must_use]
pub fn connection() -> mysql::Conn {
    connection_of(&url())
}

/// A plain connection to this server.
///
/// # Panics
/// Where there is no server.
#[must_use]
pub fn connection_of(url: &str) -> mysql::Conn {
    // The test binary opens many connections at once; a socket file would be as good, but the driver may not know it.
    mysql::Conn::new(format!("{url}?prefer_socket=false").as_str()).expect("the test server answers")
}

/// One statement on the shared test server.
///
/// # Panics
/// Where it fails.
pub fn say(sql: &str) {
    use mysql::prelude::Queryable;
    connection().query_drop(sql).expect("the statement is carried out");
}

/// A MariaDB of one test, started by `ci/mariadb` in a folder of its own and stopped with the test.
#[derive(Debug)]
pub struct Private {
    folder: tempfile::TempDir,
    arguments: String,
}

impl Private {
    /// Starts one with these further arguments.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start(arguments: &str) -> Private {
        let folder = tempfile::tempdir().expect("a folder for a server");
        let server = Private { folder, arguments: arguments.to_owned() };
        server.ci("start");
        server
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.ci("url")
    }

    /// `kill -9`.
    pub fn kill(&self) {
        self.ci("kill");
    }

    /// Starts it again on the same port and data.
    pub fn start_again(&self) {
        self.ci("start");
    }

    /// Its socket file.
    ///
    /// # Panics
    /// Where it was never started.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        let data =
            std::fs::read_to_string(self.folder.path().join("mariadb/data")).expect("a server's folder");
        Path::new(data.trim()).join("sock")
    }

    /// Starts it again with these arguments besides.
    pub fn start_again_with(&self, more: &str) {
        self.ci_with("start", &format!("{} {more}", self.arguments));
    }

    /// A connection that may do everything.
    #[must_use]
    pub fn root(&self) -> mysql::Conn {
        connection_of(&self.url().replace("keymill:secret", "root:"))
    }

    /// `ci/mariadb VERB`.
    ///
    /// # Panics
    /// Where that fails.
    pub fn ci(&self, verb: &str) -> String {
        self.ci_with(verb, &self.arguments)
    }

    fn ci_with(&self, verb: &str, arguments: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/mariadb");
        let output = Command::new(&script)
            .arg(verb)
            .env("KEYMILL_CI_DIR", self.folder.path())
            .env("KEYMILL_CI_MARIADB_ARGS", arguments)
            .output()
            .expect("ci/mariadb can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

/// What a scenario does to a server of its own, in each store's own way. Where a caller is to be told why, the method
/// answers with words that the error holds.
pub trait Victim {
    /// Where it is, without options.
    fn url(&self) -> String;

    /// Host and port, for a proxy.
    fn address(&self) -> (String, u16);

    /// `kill -9`.
    fn kill(&self);

    /// On the same port and data.
    fn start_again(&self);

    /// `SIGSTOP`: it is there and answers nothing.
    fn freeze(&self);

    /// `SIGCONT`.
    fn thaw(&self);

    /// No writes from now on, or writes again.
    fn read_only(&self, on: bool) -> &'static str;

    /// Another password for keymill's user; who is connected is thrown out.
    fn password(&self, password: &str) -> &'static str;

    /// What keymill keeps its rows in is gone.
    fn lose_table(&self) -> &'static str;

    /// Takes every connection there is; frees them with what it answers.
    fn crowd(&self) -> (&'static str, Box<dyn std::any::Any>);

    /// Remembers its data as they are now.
    fn backup(&self);

    /// A server with the data of the backup.
    fn restore(&self);
}

impl Victim for Private {
    fn url(&self) -> String {
        self.url()
    }

    fn address(&self) -> (String, u16) {
        options_of(&self.url()).hosts[0].clone()
    }

    fn kill(&self) {
        self.kill();
    }

    fn start_again(&self) {
        self.start_again();
    }

    fn freeze(&self) {
        self.ci("freeze");
    }

    fn thaw(&self) {
        self.ci("thaw");
    }

    fn read_only(&self, on: bool) -> &'static str {
        let sql = format!("SET GLOBAL read_only = {}", u8::from(on));
        self.root().query_drop(sql).expect("root may set that");
        "read-only"
    }

    fn password(&self, password: &str) -> &'static str {
        let mut root = self.root();
        root.query_drop(format!("ALTER USER keymill@'%' IDENTIFIED BY '{password}'")).expect("a password");
        root.query_drop("KILL USER keymill").expect("root may kill");
        "check user and password"
    }

    fn lose_table(&self) -> &'static str {
        self.root().query_drop("DROP TABLE ids.keymill_segment").expect("root may drop");
        "table `keymill_segment` is missing; run `keymill init"
    }

    fn crowd(&self) -> (&'static str, Box<dyn std::any::Any>) {
        self.root().query_drop("SET GLOBAL max_connections = 10").expect("root may set that");
        let url = format!("{}?prefer_socket=false", self.url());
        let taken: Vec<mysql::Conn> =
            std::iter::from_fn(|| mysql::Conn::new(url.as_str()).ok()).take(50).collect();
        assert!(taken.len() < 50, "there is an end to connections");
        ("the server has too many connections", Box::new(taken))
    }

    fn backup(&self) {
        self.ci("backup");
    }

    fn restore(&self) {
        self.ci("restore");
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.ci("stop");
    }
}
