//! The database of a shard.

use std::borrow::Cow;
use std::time::Duration;

use crate::config::{MillConfig, StoreConfig};
use crate::error::fault::{CommandLine, Remedy};
use crate::error::{Code, Error, Result, shown};
use crate::store::server::ServerOptions;
use crate::store::shard_session::{ShardSession, ShardTable, StatementPlace};
use crate::store::{Durability, Fault};

pub use crate::store::shard_session::Cells;

/// How long an answer may take unless the URL says it: a statement reads or writes many rows.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What a shard's database speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardKind {
    /// MySQL or MariaDB.
    MySql,
    /// PostgreSQL.
    Postgres,
}

/// Opens a connection.
type Connect = fn(&ServerOptions) -> std::result::Result<Box<dyn ShardSession>, Fault>;

/// A connection to a shard's database: statements as they are, values as the server writes them.
pub struct Shard {
    kind: ShardKind,
    connect: Connect,
    options: ServerOptions,
    session: Box<dyn ShardSession>,
    /// How long a statement waits for a lock, and the server for this process, on this session and on each later one.
    waits: Option<[Duration; 2]>,
    /// A transaction is open, which another session would not have.
    is_in_transaction: bool,
    /// What begins the open transaction, together with its first statement.
    begins_with: Option<&'static str>,
    /// A transaction did not end as it should have: it ends with the session.
    is_spoilt: bool,
    /// What the last refusal of a row was about.
    conflict: Option<RowConflict>,
    /// The last error has the code with which a statement ends that came too late.
    may_be_late: bool,
    /// The commit of the last transaction was refused.
    is_commit_refused: bool,
}

/// Another row that keeps out a row, or whose absence does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowConflict {
    /// It has one of the row's unique values.
    Unique,
    /// The row refers to it.
    Parent,
}

/// How a transaction begins.
#[derive(Clone, Copy, Debug)]
enum Begin {
    /// By these statements, one after the other.
    Statements(&'static [&'static str]),
    /// By these words in front of its first statement: one round trip less.
    WithFirst(&'static str),
}

impl RowConflict {
    fn of(kind: ShardKind, fault: &Fault) -> Option<RowConflict> {
        match (kind, fault.native.as_deref()?) {
            // 1242 is the error of `MovedTable::or_replace`.
            (ShardKind::MySql, "1062" | "1022" | "1586" | "1242")
            | (ShardKind::Postgres, "23505" | "23P01") => Some(RowConflict::Unique),
            (ShardKind::MySql, "1452" | "1216") | (ShardKind::Postgres, "23503") => Some(RowConflict::Parent),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shard").field("at", &self.at()).finish_non_exhaustive()
    }
}

impl Shard {
    /// Connects. `word` is the option that names the URL, for messages.
    ///
    /// # Errors
    /// `INVALID_CONFIG`: no URL of a MySQL, MariaDB or PostgreSQL database; `STORE_UNAVAILABLE`, `STORE_REFUSED`: no connection.
    pub fn open(word: &str, url: &str) -> Result<Shard> {
        let config = MillConfig::parse(url)
            .map_err(|error| Error::new(error.code, format!("{word}: {}", error.message)))?;
        let (kind, connect, options): (_, Connect, _) = match config.store {
            #[cfg(feature = "mysql")]
            StoreConfig::Mysql(options) => (
                ShardKind::MySql,
                |options| Ok(Box::new(crate::store::mysql::Mysql::open_shard(options)?)),
                options,
            ),
            #[cfg(feature = "postgres")]
            StoreConfig::Postgres(options) => (
                ShardKind::Postgres,
                |options| Ok(Box::new(crate::store::postgres::Postgres::open_shard(options)?)),
                options,
            ),
            other => {
                return Err(Error::config(format!(
                    "{word}: `{}` is no shard: rows are moved between mysql:// and postgres:// databases",
                    shown(&other.shown())
                )));
            }
        };
        let is_given = url
            .split_once('?')
            .is_some_and(|(_, query)| query.split('&').any(|pair| pair.starts_with("timeout=")));
        let options = ServerOptions {
            read_timeout: if is_given { options.read_timeout } else { TIMEOUT },
            idle_timeout: options.idle_timeout.max(TIMEOUT * 10),
            durability: Durability::Warn,
            ..options
        };
        let session = connect(&options).map_err(|fault| failed(&fault, word))?;
        Ok(Shard {
            kind,
            connect,
            options,
            session,
            waits: None,
            is_in_transaction: false,
            begins_with: None,
            is_spoilt: false,
            conflict: None,
            may_be_late: false,
            is_commit_refused: false,
        })
    }

    /// What it speaks.
    #[must_use]
    pub fn kind(&self) -> ShardKind {
        self.kind
    }

    /// Its address, without user and password.
    #[must_use]
    pub fn at(&self) -> String {
        self.options.shown()
    }

    /// The table of exactly this name, as the login finds it.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`: the connection failed. `STORE_REFUSED`: the table is of another role.
    pub fn table(&mut self, name: &str) -> Result<Option<ShardTable>> {
        self.connected()?.table(name).map_err(|fault| failed(&fault, &self.options.shown()))
    }

    /// From now on a statement waits no longer for a lock, and the server in a transaction no longer for this process, but for a second at
    /// least on MySQL and MariaDB, which count in seconds. A process that stands still holds its locks no longer than that.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`: the connection failed, and it may help to try again. `STORE_REFUSED`.
    pub fn limit_waits(&mut self, for_locks: Duration, for_client: Duration) -> Result<()> {
        let waits = [for_locks, for_client];
        if self.waits == Some(waits) {
            return Ok(());
        }
        self.set_waits(waits)?;
        self.waits = Some(waits);
        Ok(())
    }

    fn set_waits(&mut self, [for_locks, for_client]: [Duration; 2]) -> Result<()> {
        let limited = self.session.limit_waits(for_locks, for_client);
        limited.map_err(|fault| failed(&fault, &self.options.shown()))
    }

    /// Passes each row of a statement to `row`; answers with how many rows a change changed.
    ///
    /// # Errors
    /// `STORE_UNAVAILABLE`: the connection, a lock or the server failed, and it may help to try again. `STORE_REFUSED`.
    pub fn read(&mut self, sql: &str, mut row: impl FnMut(Cells<'_>)) -> Result<u64> {
        self.connected()?;
        let (place, sql) = match self.begins_with.take() {
            Some(begin) => (StatementPlace::Alone, Cow::Owned(format!("{begin}; {sql}"))),
            None if self.is_in_transaction => (StatementPlace::InTransaction, Cow::Borrowed(sql)),
            None => (StatementPlace::Alone, Cow::Borrowed(sql)),
        };
        self.session.read(&sql, place, &mut row).map_err(|fault| {
            self.conflict = RowConflict::of(self.kind, &fault);
            // A subquery of two rows, and a division by 0: see `Until`.
            self.may_be_late = matches!(fault.native.as_deref(), Some("1242" | "22012"));
            failed(&fault, &self.options.shown())
        })
    }

    /// Whether the last transaction was refused by its commit, once. Such an error names none of its rows.
    pub fn take_refused_commit(&mut self) -> bool {
        std::mem::take(&mut self.is_commit_refused)
    }

    /// The number that a statement answers with; 0 where it answers with none.
    ///
    /// # Errors
    /// As [`Shard::read`].
    pub fn number(&mut self, sql: &str) -> Result<u64> {
        let mut found = 0;
        self.read(sql, |row| {
            let text = row.first().copied().flatten().and_then(|bytes| std::str::from_utf8(bytes).ok());
            found = text.and_then(|text| text.parse().ok()).unwrap_or(0);
        })?;
        Ok(found)
    }

    /// Whether the last error of [`Shard::read`] has the code with which a statement ends that came too late, once.
    pub fn take_lateness(&mut self) -> bool {
        std::mem::take(&mut self.may_be_late)
    }

    /// What the last error of [`Shard::read`] was about, once.
    pub fn take_conflict(&mut self) -> Option<RowConflict> {
        self.conflict.take()
    }

    /// Does the work in a transaction, which is rolled back where the work fails. Locking reads of it lock the rows that they find, and no gaps.
    ///
    /// # Errors
    /// The errors of the work. `STORE_UNAVAILABLE`: the connection broke, and the locks went with it.
    pub fn transaction<T>(&mut self, work: impl FnOnce(&mut Shard) -> Result<T>) -> Result<T> {
        self.run_transaction(self.begin_locking(), true, work)
    }

    /// Does work that only locks rows. The transaction is rolled back, because a commit would wait for the disk.
    ///
    /// # Errors
    /// As for [`Shard::transaction`].
    pub fn with_locks<T>(&mut self, work: impl FnOnce(&mut Shard) -> Result<T>) -> Result<T> {
        self.run_transaction(self.begin_locking(), false, work)
    }

    /// Carries out a statement that writes, in the open transaction or in one of its own. A server goes on with a statement that waits for a lock
    /// when its sender is killed, and the locks of the other shard are gone by then. So the commit is a message of its own: a killed sender sends
    /// none.
    ///
    /// # Errors
    /// As [`Shard::read`].
    pub fn write(&mut self, sql: &str) -> Result<u64> {
        if self.is_in_transaction {
            return self.read(sql, |_| {});
        }
        self.run_transaction(self.begin_writing(), true, |shard| shard.read(sql, |_| {}))
    }

    /// Does work that writes here what `locked` has locked. It is committed only if those locks are there when all is written, and `may_commit`
    /// says yes then. Where the locks have gone, a program may have deleted a row while a statement here waited for it, and the row would be
    /// back. And a statement may have waited for one lock after the other until the move was over. A program that changes a row that is there
    /// waits for what is written here; a `DELETE` of a row that is inserted here does not, on PostgreSQL, before the commit.
    ///
    /// # Errors
    /// The errors of the work, of `may_commit`, and of [`Shard::transaction`].
    pub fn write_locked<T>(
        &mut self,
        locked: &mut Shard,
        may_commit: impl FnOnce() -> Result<()>,
        work: impl FnOnce(&mut Shard, &mut Shard) -> Result<T>,
    ) -> Result<T> {
        self.run_transaction(self.begin_writing(), true, |shard| {
            let done = work(locked, shard)?;
            locked.read("SELECT 1", |_| {})?;
            may_commit()?;
            Ok(done)
        })
    }

    /// In the isolation of the session: a binary log of statements takes no other writes.
    fn begin_writing(&self) -> Begin {
        match self.kind {
            ShardKind::MySql => Begin::Statements(&["START TRANSACTION"]),
            ShardKind::Postgres => Begin::WithFirst("BEGIN"),
        }
    }

    /// Begins a transaction whose locking reads lock the rows that they find, and no gaps.
    fn begin_locking(&self) -> Begin {
        match self.kind {
            ShardKind::MySql => {
                Begin::Statements(&["SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"])
            }
            ShardKind::Postgres => Begin::WithFirst("BEGIN ISOLATION LEVEL READ COMMITTED"),
        }
    }

    fn run_transaction<T>(
        &mut self,
        begin: Begin,
        commits: bool,
        work: impl FnOnce(&mut Shard) -> Result<T>,
    ) -> Result<T> {
        match begin {
            Begin::Statements(all) => {
                for statement in all {
                    self.read(statement, |_| {})?;
                }
            }
            Begin::WithFirst(words) => self.begins_with = Some(words),
        }
        self.is_in_transaction = true;
        let done = work(self);
        let ended = if self.begins_with.take().is_some() {
            // Nothing was sent.
            Ok(())
        } else if commits && done.is_ok() {
            // A commit that checks constraints late has a conflict of its own.
            self.read("COMMIT", |_| {}).map(drop)
        } else {
            self.roll_back()
        };
        self.is_in_transaction = false;
        self.is_spoilt = ended.is_err();
        self.is_commit_refused =
            commits && done.is_ok() && matches!(&ended, Err(error) if error.code == Code::StoreRefused);
        let done = done?;
        ended?;
        Ok(done)
    }

    fn roll_back(&mut self) -> Result<()> {
        self.connected()?.roll_back().map_err(|fault| failed(&fault, &self.options.shown()))
    }

    /// The session, made again where it is broken.
    fn connected(&mut self) -> Result<&mut dyn ShardSession> {
        let is_over = self.is_spoilt || self.session.is_broken();
        if is_over && self.is_in_transaction && self.begins_with.is_none() {
            return Err(Error::new(
                Code::StoreUnavailable,
                format!("{}: the connection broke, and the locks went with it", self.at()),
            ));
        }
        if is_over {
            self.session =
                (self.connect)(&self.options).map_err(|fault| failed(&fault, &self.options.shown()))?;
            self.is_spoilt = false;
            if let Some(waits) = self.waits {
                self.set_waits(waits)?;
            }
        }
        Ok(&mut *self.session)
    }
}

/// What a mill needs of its tables is no advice about tables that move.
const RIGHTS: &str = "grant this user SELECT, INSERT, UPDATE and DELETE on the tables of the move (PostgreSQL: and USAGE on their schema)";

fn failed(fault: &Fault, place: &str) -> Error {
    let says = |fault: &Fault| {
        Error::new(fault.kind.code(), format!("{place}: {}", fault.message(CommandLine::BARE)))
    };
    match fault.native.as_deref() {
        Some("1044" | "1142" | "1143" | "42501") => says(&fault.clone().instead(Remedy::Text(RIGHTS))),
        Some("1146" | "42P01") => {
            says(&fault.clone().because("a table of the move, or of a trigger, is not there"))
        }
        _ => says(fault),
    }
}
