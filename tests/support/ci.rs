//! The servers that the scripts of `ci/servers` start: one that all tests share, and private ones for tests that hurt a server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use keymill::store::Secret;
use keymill::store::server::ServerOptions;

/// Whether `ci/test --all` runs, which sets `KEYMILL_ALL`.
#[must_use]
pub fn is_full_run() -> bool {
    std::env::var_os("KEYMILL_ALL").is_some()
}

/// The URL of the shared server of `ci/servers/SCRIPT`, in this variable: `scheme://user:password@host:port/database`.
///
/// # Panics
/// Where the variable is missing: a test that cannot run fails and says why.
#[must_use]
pub fn shared(script: &str, variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set; run `ci/servers/{script} run cargo test -p keymill-tests --test contract`"
        )
    })
}

/// The time limit of an answer in tests of other behaviour: a shared disk is slow, and a locked row is waited for half as
/// long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A store's URL with long timeouts, for mills in tests of other behaviour: the defaults are two seconds, and a busy machine
/// may need more. An operator's call waits thirty seconds for the store, so these are shorter. A call's own patience is the
/// `deadline` of its source.
#[must_use]
pub fn patient(url: &str) -> String {
    let glue = if url.contains('?') { '&' } else { '?' };
    match url.split_once(':') {
        Some(("memory", _)) => url.to_owned(),
        Some(("sqlite", _)) => format!("{url}{glue}busy=5s"),
        _ => format!("{url}{glue}timeout=25s&connect_timeout=25s"),
    }
}

/// A URL's parts as options, with long timeouts.
///
/// # Panics
/// Where it is not `SCHEME://user:password@host:port,…/database`.
#[must_use]
pub fn options_of(scheme: &str, url: &str) -> ServerOptions {
    let parts = || {
        let (user, rest) = url.strip_prefix(scheme)?.strip_prefix("://")?.split_once(':')?;
        let (password, rest) = rest.split_once('@')?;
        let (hosts, database) = rest.split_once('/')?;
        let place = |host: &str| {
            let (host, port) = host.split_once(':')?;
            Some((host.to_owned(), port.parse().ok()?))
        };
        Some(ServerOptions {
            hosts: hosts.split(',').map(place).collect::<Option<_>>()?,
            user: user.to_owned(),
            password: Secret::new(password),
            database: database.to_owned(),
            connect_timeout: PATIENCE,
            read_timeout: PATIENCE,
            ..ServerOptions::default()
        })
    };
    parts().unwrap_or_else(|| panic!("`{url}` is not {scheme}://user:password@host:port,…/database"))
}

/// A server of one test, kept by `ci/servers/SCRIPT` in a folder of its own and stopped with the test.
#[derive(Debug)]
pub struct Server {
    folder: tempfile::TempDir,
    script: &'static str,
    arguments: String,
}

impl Server {
    /// A server that is not started yet: its folder may get a `tls` folder first.
    ///
    /// # Panics
    /// Where there is no place for it.
    #[must_use]
    pub fn prepare(script: &'static str, arguments: &str) -> Server {
        let folder = tempfile::tempdir().expect("a folder for a server");
        Server { folder, script, arguments: arguments.to_owned() }
    }

    /// Starts one with these further arguments.
    ///
    /// # Panics
    /// Where it does not start.
    #[must_use]
    pub fn start(script: &'static str, arguments: &str) -> Server {
        let server = Server::prepare(script, arguments);
        server.ci(&["start"]);
        server
    }

    /// The folder in which the script keeps the server.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.folder.path().join(self.script)
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        self.ci(&["url"])
    }

    /// `kill -9`, of all its processes at one blow.
    pub fn kill(&self) {
        self.ci(&["kill"]);
    }

    /// Starts it again on the same port and data.
    pub fn start_again(&self) {
        self.ci(&["start"]);
    }

    /// Starts it again with these further arguments.
    pub fn start_again_with(&self, more: &str) {
        self.ci_with(&["start"], &format!("{} {more}", self.arguments));
    }

    /// Runs `ci/servers/SCRIPT WORDS…`; answers with its output.
    ///
    /// # Panics
    /// Where that fails.
    pub fn ci(&self, words: &[&str]) -> String {
        self.ci_with(words, &self.arguments)
    }

    fn ci_with(&self, words: &[&str], arguments: &str) -> String {
        self.try_ci_with(words, arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts it again on the same port and data, if its data let it.
    ///
    /// # Errors
    /// What the script says.
    pub fn try_start_again(&self) -> Result<(), String> {
        self.try_ci_with(&["start"], &self.arguments).map(drop)
    }

    /// The lines in which the server says that it ended by itself, in all its runs.
    #[must_use]
    pub fn own_crashes(&self) -> Vec<String> {
        let log = std::fs::read(self.folder().join("log")).unwrap_or_default();
        let of_itself = |line: &&str| line.contains("Failing assertion") || line.contains(" got signal ");
        String::from_utf8_lossy(&log).lines().filter(of_itself).map(str::to_owned).collect()
    }

    fn try_ci_with(&self, words: &[&str], arguments: &str) -> Result<String, String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ci/servers").join(self.script);
        let output = Command::new(&script)
            .args(words)
            .env("KEYMILL_CI_DIR", self.folder.path())
            .env(format!("KEYMILL_CI_{}_ARGS", self.script.to_uppercase()), arguments)
            .output()
            .unwrap_or_else(|error| panic!("ci/servers/{} cannot be run: {error}", self.script));
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ci(&["stop"]);
    }
}
