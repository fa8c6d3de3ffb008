//! The PostgreSQL that the tests run against, and private ones for tests that hurt a server.

use std::ops::Deref;

use keymill::store::Secret;
use keymill::store::postgres::{PostgresStore, ServerOptions};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

use crate::authority::Authority;
use crate::ci::{self, Server};

/// The URL of the shared test server: `KEYMILL_TEST_POSTGRES`, `postgres://user:password@host:port/database`.
///
/// # Panics
/// Where the variable is missing: a test that cannot run fails and says why.
#[must_use]
pub fn url() -> String {
    ci::shared("postgres", "KEYMILL_TEST_POSTGRES")
}

/// A URL's parts as options.
///
/// # Panics
/// Where it is not of the form above.
#[must_use]
pub fn options_of(url: &str) -> ServerOptions {
    ci::options_of("postgres", url)
}

/// Options for the shared test server.
#[must_use]
pub fn options() -> ServerOptions {
    options_of(&url())
}

/// A store of these options.
#[must_use]
pub fn store(options: ServerOptions) -> PostgresStore {
    PostgresStore::new(options)
}

/// A plain connection, to change rows behind keymill.
pub struct Sql {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl std::fmt::Debug for Sql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sql").finish_non_exhaustive()
    }
}

impl Sql {
    /// To the shared test server.
    #[must_use]
    pub fn shared() -> Sql {
        Sql::to(&options())
    }

    /// To this server as its superuser.
    #[must_use]
    pub fn root(url: &str) -> Sql {
        Sql::to(&ServerOptions {
            user: "postgres".to_owned(),
            password: Secret::new("root"),
            ..options_of(url)
        })
    }

    /// # Panics
    /// Where there is no server.
    #[must_use]
    pub fn to(options: &ServerOptions) -> Sql {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut config = Config::new();
        config.user(&options.user).password(options.password.reveal()).dbname(&options.database);
        let (host, port) = options.hosts[0].clone();
        let client = runtime.block_on(async move {
            let stream = tokio::net::TcpStream::connect((host, port)).await.expect("the test server answers");
            let (client, connection) =
                config.connect_raw(stream, NoTls).await.expect("the test server lets us in");
            tokio::spawn(connection);
            client
        });
        Sql { client, runtime }
    }

    /// Statements by the simple protocol; the texts of their rows, and how many rows the last one changed.
    ///
    /// # Errors
    /// The server's.
    pub fn try_say(&self, sql: &str) -> Result<(Vec<Vec<String>>, u64), tokio_postgres::Error> {
        let messages = self.runtime.block_on(self.client.simple_query(sql))?;
        let (mut rows, mut changed) = (Vec::new(), 0);
        for message in messages {
            match message {
                SimpleQueryMessage::Row(row) => {
                    rows.push((0..row.len()).map(|at| row.get(at).unwrap_or("NULL").to_owned()).collect());
                }
                SimpleQueryMessage::CommandComplete(count) => changed = count,
                _ => {}
            }
        }
        Ok((rows, changed))
    }

    /// # Panics
    /// On an error.
    #[must_use]
    pub fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        self.try_say(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).0
    }

    /// # Panics
    /// On an error.
    pub fn say(&self, sql: &str) -> u64 {
        self.try_say(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}")).1
    }

    /// The major version: 15.
    ///
    /// # Panics
    /// On an error.
    #[must_use]
    pub fn version(&self) -> u32 {
        let number = &self.rows("SHOW server_version_num")[0][0];
        number.parse::<u32>().expect("a number") / 10_000
    }

    /// Ends every session of keymill, and waits until they are gone; answers with how many there were.
    ///
    /// # Panics
    /// On an error.
    pub fn end_sessions(&self) -> usize {
        // `pg_terminate_backend` waits by itself from PostgreSQL 14 on.
        let ended = self.rows(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'keymill'",
        );
        let pids: Vec<_> = ended.iter().map(|row| row[0].as_str()).collect();
        let left = format!("SELECT FROM pg_stat_activity WHERE pid = ANY ('{{{}}}')", pids.join(","));
        while self.say(&left) != 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        ended.len()
    }

    /// With a literal for each `?`.
    ///
    /// # Panics
    /// On an error.
    pub fn say_with(&self, sql: &str, values: &[&str]) -> u64 {
        let mut parts = sql.split('?');
        let mut whole = parts.next().unwrap_or_default().to_owned();
        for (part, value) in parts.zip(values) {
            whole.push_str(&format!("'{}'", value.replace('\'', "''")));
            whole.push_str(part);
        }
        self.say(&whole)
    }
}

/// A PostgreSQL of one test, with a replica if the test asks for one, started by `ci/servers/postgres` in a folder of its
/// own and stopped with the test.
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
        Private(Server::start("postgres", arguments))
    }

    /// A server that is not started yet: its folder may get `tls/server.crt` and `tls/server.key` first.
    ///
    /// # Panics
    /// Where there is no place for it.
    #[must_use]
    pub fn prepare(arguments: &str) -> Private {
        Private(Server::prepare("postgres", arguments))
    }

    /// Starts one with the certificate of an authority, whose files stand in its folder.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn encrypted() -> (Private, Authority) {
        let server = Private::prepare("");
        let folder = server.folder().join("tls");
        std::fs::create_dir_all(&folder).expect("a folder");
        let authority = Authority::at(folder.clone(), "subjectAltName=DNS:localhost");
        std::fs::copy(authority.file("server.pem"), folder.join("server.crt")).expect("a certificate");
        server.start_again();
        (server, authority)
    }

    /// Starts a PgBouncer in front of it, in transaction mode and with one connection to the server unless these settings
    /// say otherwise; answers with its URL.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn pooler(&self, settings: &[&str]) -> ServerOptions {
        let words: Vec<_> = std::iter::once("pooler").chain(settings.iter().copied()).collect();
        options_of(&self.ci(&words))
    }

    /// The pooler's URL.
    #[must_use]
    pub fn options(&self) -> ServerOptions {
        options_of(&self.url())
    }
}
