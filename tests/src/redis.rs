//! The Redis that the tests run against, and private ones for tests that hurt a server.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use keymill::store::Secret;
use keymill::store::redis::{Options, RedisStore};
use keymill::store::server;

/// Where the shared test server is: `KEYMILL_TEST_REDIS`, `redis://user:password@host:port/0`.
///
/// # Panics
/// Where the variable is missing: a test that cannot run fails and says why.
#[must_use]
pub fn url() -> String {
    std::env::var("KEYMILL_TEST_REDIS").unwrap_or_else(|_| {
        panic!(
            "KEYMILL_TEST_REDIS is not set; run `ci/redis run cargo test -p keymill-tests --test contract`"
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
        let (user, rest) = url.strip_prefix("redis://")?.split_once(':')?;
        let (password, rest) = rest.split_once('@')?;
        let (hosts, rest) = rest.split_once('/')?;
        let (database, sentinel) =
            rest.split_once("?sentinel=").map_or((rest, None), |(d, s)| (d, Some(s.to_owned())));
        let hosts = hosts.split(',').map(|place| {
            let (host, port) = place.split_once(':')?;
            Some((host.to_owned(), port.parse().ok()?))
        });
        Some(Options {
            server: server::Options {
                hosts: hosts.collect::<Option<_>>()?,
                user: user.to_owned(),
                password: Secret::new(password),
                database: database.to_owned(),
                ..server::Options::default()
            },
            sentinel,
            wait_replicas: 0,
        })
    };
    parts().unwrap_or_else(|| panic!("`{url}` is not redis://user:password@host:port/0"))
}

/// Options for the shared test server.
#[must_use]
pub fn options() -> Options {
    options_of(&url())
}

/// A store of these options.
#[must_use]
pub fn store(options: Options) -> RedisStore {
    RedisStore::new(options)
}

/// A plain connection to this server, to tamper with.
///
/// # Panics
/// Where there is no server.
#[must_use]
pub fn connection_of(url: &str) -> redis::Connection {
    redis::Client::open(url).and_then(|client| client.get_connection()).expect("the test server answers")
}

/// One command, by words.
///
/// # Panics
/// Where the server refuses it.
pub fn say<T: redis::FromRedisValue>(connection: &mut redis::Connection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query(connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Raises its flag when it goes, so that the threads of a test end with it when it panics.
#[derive(Debug)]
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        // ordering: Relaxed — a flag, nothing hangs on it.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A Redis of one test, started by `ci/redis` in a folder of its own and stopped with the test.
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

    /// Starts a replica of it too; its URL.
    #[must_use]
    pub fn replica(&self) -> String {
        self.ci("replica")
    }

    /// Starts a replica and three Sentinels too; the URL that follows them.
    #[must_use]
    pub fn sentinels(&self) -> String {
        self.ci("sentinels")
    }

    /// `kill -9`.
    pub fn kill(&self) {
        self.ci("kill");
    }

    /// Starts it again on the same port and data.
    pub fn start_again(&self) {
        self.ci("start");
    }

    fn ci(&self, verb: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/redis");
        let output = Command::new(&script)
            .arg(verb)
            .env("KEYMILL_CI_DIR", self.folder.path())
            .env("KEYMILL_CI_REDIS_ARGS", &self.arguments)
            .output()
            .expect("ci/redis can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        self.ci("stop");
    }
}
