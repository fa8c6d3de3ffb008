//! The MariaDB that the tests run against, and private ones for tests that hurt a server.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use keymill::store::mysql::{MysqlStore, ServerOptions};

use crate::authority::Authority;
use crate::ci::{self, Server};

/// The URL of the shared test server: `KEYMILL_TEST_MYSQL`, `mysql://user:password@host:port/database`.
///
/// # Panics
/// Where the variable is missing: a test that cannot run fails and says why.
#[must_use]
pub fn url() -> String {
    ci::shared("mariadb", "KEYMILL_TEST_MYSQL")
}

/// A URL's parts as options.
///
/// # Panics
/// Where it is not of the form above.
#[must_use]
pub fn options_of(url: &str) -> ServerOptions {
    ci::options_of("mysql", url)
}

/// Options for the shared test server.
#[must_use]
pub fn options() -> ServerOptions {
    options_of(&url())
}

/// A store of these options.
#[must_use]
pub fn store(options: ServerOptions) -> MysqlStore {
    MysqlStore::new(options)
}

/// A plain connection to the shared test server, to change rows behind keymill.
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
    // The test binary opens many connections at once. The driver may not find the server's socket file.
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

/// A MariaDB of one test, started by `ci/servers/mariadb` in a folder of its own and stopped with the test.
#[derive(Debug)]
pub struct Private(Server);

impl Deref for Private {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl Private {
    /// Starts one with these further arguments.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start(arguments: &str) -> Private {
        Private(Server::start("mariadb", arguments))
    }

    /// Starts one with this authority's certificate, and further arguments.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn encrypted(authority: &Authority, arguments: &str) -> Private {
        let file = |name: &str| authority.file(name).display().to_string();
        let (ca, cert, key) = (file("ca.pem"), file("server.pem"), file("server.key"));
        Private::start(&format!("--ssl-ca={ca} --ssl-cert={cert} --ssl-key={key} {arguments}"))
    }

    /// Its socket file.
    ///
    /// # Panics
    /// Where it was never started.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        let data = std::fs::read_to_string(self.folder().join("data")).expect("a server's folder");
        Path::new(data.trim()).join("sock")
    }

    /// A connection that may do everything.
    #[must_use]
    pub fn root(&self) -> mysql::Conn {
        connection_of(&self.url().replace("keymill:secret", "root:"))
    }
}
