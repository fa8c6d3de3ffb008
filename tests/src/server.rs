//! The MariaDB that the tests run against, and private ones for tests that hurt a server.

use std::path::{Path, PathBuf};
use std::process::Command;

use keymill::store::mysql::{MysqlStore, Options, Secret};

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

impl Drop for Private {
    fn drop(&mut self) {
        self.ci("stop");
    }
}
