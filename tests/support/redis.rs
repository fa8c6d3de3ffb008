//! The Redis that the tests run against, and private ones for tests that hurt a server.

use std::ops::Deref;

pub use keymill::store::redis::RedisOptions;
use keymill::store::redis::RedisStore;

use crate::ci::{self, Server};

/// The URL of the shared test server: `KEYMILL_TEST_REDIS`, `redis://user:password@host:port/0`.
///
/// # Panics
/// Where the variable is missing: a test that cannot run fails and says why.
#[must_use]
pub fn url() -> String {
    ci::shared("redis", "KEYMILL_TEST_REDIS")
}

/// A URL's parts as options.
///
/// # Panics
/// Where it is not of the form above.
#[must_use]
pub fn options_of(url: &str) -> RedisOptions {
    let (place, sentinel) =
        url.split_once("?sentinel=").map_or((url, None), |(place, name)| (place, Some(name.to_owned())));
    RedisOptions { server: ci::options_of("redis", place), sentinel, wait_replicas: 0 }
}

/// Options for the shared test server.
#[must_use]
pub fn options() -> RedisOptions {
    options_of(&url())
}

/// A store of these options.
#[must_use]
pub fn store(options: RedisOptions) -> RedisStore {
    RedisStore::new(options)
}

/// A plain connection to this server, to change rows behind keymill.
///
/// # Panics
/// Where there is no server.
#[must_use]
pub fn connection_of(url: &str) -> redis::Connection {
    redis::Client::open(url).and_then(|client| client.get_connection()).expect("the test server answers")
}

/// Runs one command, given as words.
///
/// # Panics
/// Where the server refuses it.
pub fn say<T: redis::FromRedisValue>(connection: &mut redis::Connection, words: &[&str]) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query(connection).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Copies a key over another one; Redis before 6.2 has no `COPY`.
///
/// # Panics
/// Where the server refuses it.
pub fn copy(connection: &mut redis::Connection, from: &str, to: &str) {
    let dump: Vec<u8> = say(connection, &["DUMP", from]);
    redis::cmd("RESTORE")
        .arg((to, 0, dump, "REPLACE"))
        .query::<()>(connection)
        .unwrap_or_else(|error| panic!("{from} to {to}: {error}"));
}

/// The warnings about a server, without the one about its age.
#[must_use]
pub fn warnings(facts: &keymill::store::Facts) -> Vec<String> {
    facts.warnings.iter().filter(|text| !text.contains("is older than 6.2.7")).cloned().collect()
}

/// A Redis of one test, started by `ci/servers/redis` in a folder of its own and stopped with the test.
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
        Private(Server::start("redis", arguments))
    }

    /// Starts a replica of it too; its URL.
    #[must_use]
    pub fn replica(&self) -> String {
        self.ci(&["replica"])
    }

    /// Starts a replica and three Sentinels too; the URL that follows them.
    #[must_use]
    pub fn sentinels(&self) -> String {
        self.ci(&["sentinels"])
    }

    /// Sends a command without waiting, as another user: keymill's may be locked out.
    pub fn say(&self, words: &[&str]) {
        let url = self.url();
        let root = url.replace("default:secret", "root:root");
        let login = || redis::Client::open(root.as_str()).and_then(|client| client.get_connection());
        let mut connection = login().unwrap_or_else(|_| {
            let words = ["ACL", "SETUSER", "root", "on", ">root", "~*", "+@all"];
            let _: redis::Value = say(&mut connection_of(&url), &words);
            login().expect("a user just made")
        });
        let _: redis::Value = say(&mut connection, words);
    }
}
