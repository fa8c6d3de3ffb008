//! Runs the real binary in a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

/// The path of the command: cargo's build, unless `KEYMILL_TEST_COMMAND` names a package's.
pub static BINARY: LazyLock<String> = LazyLock::new(|| {
    std::env::var("KEYMILL_TEST_COMMAND").unwrap_or_else(|_| env!("CARGO_BIN_EXE_keymill").to_owned())
});

/// Options of a URL for tests that run a command once: on a busy machine a login or an answer may take longer than the usual deadline.
pub const PATIENT: &str = "connect_timeout=30s&timeout=30s";

/// This machine's clock, milliseconds since 1970.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

/// A temporary working folder.
pub struct Home {
    folder: tempfile::TempDir,
}

/// What a run left behind.
#[derive(Debug)]
pub struct Ran {
    pub out: String,
    pub err: String,
    pub code: Option<i32>,
}

impl Ran {
    /// Ended well, with nothing to say beside the answer.
    #[track_caller]
    pub fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    #[track_caller]
    pub fn ids(self) -> Vec<u64> {
        self.done().lines().map(|line| line.parse().unwrap_or_else(|_| panic!("{line:?} is no id"))).collect()
    }

    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let out = self.done();
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
    }

    /// Refused with this code: exit 1, the first line says why, nothing on standard output.
    #[track_caller]
    pub fn refused(self, code: &str) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        let first = self.err.lines().next().unwrap_or_default();
        let message = first.strip_prefix(&format!("keymill: {code}: "));
        message.unwrap_or_else(|| panic!("not `keymill: {code}: …`: {self:?}")).to_owned()
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Ran {
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    }
}

impl Home {
    pub fn new() -> Home {
        Home { folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(BINARY.as_str());
        command.args(args).current_dir(self.path()).env_remove("KEYMILL_CONFIG").stdin(Stdio::null());
        command
    }

    /// What the command answers once the store has answered it: on a busy machine that may take longer than the deadline. A run that
    /// has printed ids is not repeated: those would be missing.
    pub fn run(&self, args: &[&str]) -> Ran {
        let give_up = Instant::now() + Duration::from_secs(120);
        loop {
            let ran = Ran::from(self.command(args).output().unwrap());
            let is_late = ran.out.is_empty() && ran.err.starts_with("keymill: DEADLINE: ");
            if !is_late || Instant::now() > give_up {
                return ran;
            }
        }
    }

    /// A shell line; `$K` is the binary.
    pub fn shell(&self, line: &str) -> Ran {
        let mut command = Command::new("bash");
        command
            .args(["-c", line])
            .current_dir(self.path())
            .env("K", BINARY.as_str())
            .env_remove("KEYMILL_CONFIG");
        command.output().unwrap().into()
    }
}

/// A line that says a test could not be run, so that a run that skips is not taken for one that passes.
pub fn skipped(what: &str) {
    eprintln!("SKIPPED: {what}");
}

pub fn is_root() -> bool {
    // SAFETY: no arguments, no memory.
    unsafe { libc::geteuid() == 0 }
}
