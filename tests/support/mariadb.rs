//! The MariaDB that the tests run against, and private ones for tests that hurt a server.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use keymill::store::mysql::{MysqlStore, ServerOptions};
use mysql::prelude::Queryable;

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
    connection().query_drop(sql).expect("the statement is carried out");
}

/// The version that this server reports.
///
/// # Panics
/// Where it does not answer.
#[must_use]
pub fn version(connection: &mut mysql::Conn) -> String {
    connection.query_first("SELECT VERSION()").expect("a version").expect("a version")
}

/// Whether the server is MySQL: `ci/servers/mariadb --version mysql-…` starts one.
///
/// # Panics
/// Where it does not answer.
#[must_use]
pub fn is_mysql(connection: &mut mysql::Conn) -> bool {
    !version(connection).contains("MariaDB")
}

/// Whether the server is MySQL, which lacks what a test needs. A line says that the test does not run.
///
/// # Panics
/// Where it does not answer.
#[must_use]
pub fn is_mysql_without(what: &str, connection: &mut mysql::Conn) -> bool {
    let lacks = is_mysql(connection);
    if lacks {
        println!("not run: MySQL {} has no {what}", version(connection));
    }
    lacks
}

/// Whether the server is a MariaDB before this version.
fn is_before(connection: &mut mysql::Conn, since: (u32, u32)) -> bool {
    let version = version(connection);
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    version.contains("MariaDB") && (numbers.next(), numbers.next()) < (Some(since.0), Some(since.1))
}

/// Whether the server is a MariaDB before 10.6.
///
/// # Panics
/// Where it does not answer.
#[must_use]
pub fn is_before_10_6(connection: &mut mysql::Conn) -> bool {
    is_before(connection, (10, 6))
}

/// Whether the server lacks what MariaDB has since a version, and MySQL never. A line says that the test does not run.
///
/// # Panics
/// Where it does not answer.
#[must_use]
pub fn lacks(what: &str, since: (u32, u32), connection: &mut mysql::Conn) -> bool {
    let is_old = is_before(connection, since);
    if is_old {
        println!("not run: MariaDB {} has no {what}", version(connection));
    }
    is_old || is_mysql_without(what, connection)
}

/// Whether the shared server ends a wait for a locked row up to two seconds late, as MariaDB before 10.6 does. A line says that a test
/// of the time limits does not run.
///
/// # Panics
/// Where it does not answer.
#[must_use]
pub fn ends_waits_late() -> bool {
    let mut connection = connection();
    let late = is_before_10_6(&mut connection);
    if late {
        let version = version(&mut connection);
        println!("not run: MariaDB {version} ends a wait for a locked row up to two seconds late");
    }
    late
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

    /// Ends every connection of this user.
    ///
    /// # Panics
    /// Where that fails.
    pub fn disconnect(&self, user: &str) {
        let mut root = self.root();
        let sql = format!("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{user}'");
        for id in root.query::<u64, _>(sql).expect("a list") {
            match root.query_drop(format!("KILL {id}")) {
                // The connection has ended meanwhile.
                Err(mysql::Error::MySqlError(error)) if error.code == 1094 => {}
                killed => killed.expect("root may kill"),
            }
        }
    }

    /// Makes this server a replica of `primary`. Both begin with an empty binary log.
    ///
    /// # Panics
    /// Where that fails.
    pub fn follow(&self, primary: &Private) {
        let port = options_of(&primary.url()).hosts[0].1;
        let (mut source, mut replica) = (primary.root(), self.root());
        let (reset, change) = if is_mysql(&mut replica) {
            let change = format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'follower', \
                 SOURCE_PASSWORD = 'follow', SOURCE_CONNECT_RETRY = 1, GET_SOURCE_PUBLIC_KEY = 1"
            );
            ("RESET BINARY LOGS AND GTIDS", change)
        } else {
            let change = format!(
                "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'follower', \
                 MASTER_PASSWORD = 'follow', MASTER_CONNECT_RETRY = 1, MASTER_USE_GTID = slave_pos"
            );
            ("RESET MASTER", change)
        };
        source.query_drop(reset).expect("root may reset");
        source.query_drop("CREATE USER follower@'%' IDENTIFIED BY 'follow'").expect("a user");
        source.query_drop("GRANT REPLICATION SLAVE ON *.* TO follower@'%'").expect("a right");
        replica.query_drop(reset).expect("root may reset");
        replica.query_drop(change).expect("a replica");
        replica.query_drop("START REPLICA").expect("it follows");
    }

    /// What `SHOW REPLICA STATUS` says in these columns, by MySQL's names.
    ///
    /// # Panics
    /// Where this server is no replica.
    #[must_use]
    pub fn replica_status<const N: usize>(&self, columns: [&str; N]) -> [String; N] {
        let mut root = self.root();
        let status = root.query_first::<mysql::Row, _>("SHOW REPLICA STATUS").expect("a status");
        let status = status.expect("it is a replica");
        let is_mysql = is_mysql(&mut root);
        columns.map(|column| {
            let of_mariadb = column.replace("Replica", "Slave").replace("Source", "Master");
            let column = if is_mysql { column } else { &of_mariadb };
            status.get::<Option<String>, _>(column).flatten().unwrap_or_default()
        })
    }
}
