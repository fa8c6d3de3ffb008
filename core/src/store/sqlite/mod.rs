//! Reservations in a SQLite file: the default store, for processes on one machine.
//!
//! * Write-ahead log with `synchronous=FULL`: a commit survives loss of power. `NORMAL` would not.
//! * `BEGIN IMMEDIATE … COMMIT`, and COMMIT's own result decides: `UPDATE … RETURNING` stepped once reports ranges that
//!   a full disk never stored.
//! * keymill waits for the lock itself, jittered and under one deadline: `busy_timeout` backs off further and further, and
//!   of 8 processes one was starved for 3.1 s.
//! * A deleted or replaced file is detected by its inode, before each operation and after its commit.
//! * Only SQLite opens the file: closing any other descriptor of it would drop SQLite's POSIX locks.

mod descriptors;
mod file;
mod fork;
mod sqlite_connection;

use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::sql::access::Server;
use super::sql::{self, Dialect, SqlStore, State};
use super::{Durability, Facts, Fault, FaultKind};
use crate::system::FileSystem;
use crate::system::file_rights::exposed_database;
use crate::system::files::{self, file_system, names};
use descriptors::Inode;
use file::{FileOwner, begin_wait, fault, identity, is_busy, owner, pause, real};
use fork::{OpenFile, Opened};

/// How a file is used.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// What to do about a file system that may lose commits.
    pub durability: Durability,
    /// How long one operation may wait for other processes in all.
    pub busy: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        SqliteOptions { durability: Durability::default(), busy: Duration::from_secs(2) }
    }
}

/// Reservations in a SQLite file.
pub type SqliteStore = SqlStore<SqliteFile>;

/// A file, opened when it is first needed and again after a fault.
#[derive(Debug)]
pub struct SqliteFile {
    path: PathBuf,
    options: SqliteOptions,
    connection: Option<Arc<fork::ForkSafeConnection>>,
    /// Problems found since the file was last opened.
    warnings: Vec<String>,
    /// Files that this store has created and not yet reported.
    created: Vec<String>,
    /// When to look at this process's descriptors again.
    next_look: Option<Instant>,
}

impl SqliteStore {
    /// A store on this file. Nothing is opened yet; a relative path is resolved against the current working folder.
    #[must_use]
    pub fn new(path: PathBuf, options: SqliteOptions) -> SqliteStore {
        // A daemon may change its working folder before the first reservation. An absolute path is also never one of
        // SQLite's special names, `:memory:` and `file:…`.
        let path = std::path::absolute(&path).unwrap_or(path);
        SqlStore {
            server: SqliteFile {
                path,
                connection: None,
                warnings: Vec::new(),
                created: Vec::new(),
                next_look: None,
                options,
            },
        }
    }
}

/// The statement that creates a key's table.
#[must_use]
pub fn create_table(key: &super::Key) -> String {
    sql::create_statement(key, Dialect::Sqlite.family(), None)
}

impl SqliteFile {
    /// Runs `work` with an open file, as an [`Operation`](fork::Operation); closes the file after a fault of the
    /// connection.
    fn with_file<T>(&mut self, work: impl FnOnce(&mut OpenFile) -> Result<T, Fault>) -> Result<T, Fault> {
        descriptors::in_keymill(|| self.with_file_of_keymill(work))
    }

    fn with_file_of_keymill<T>(
        &mut self,
        work: impl FnOnce(&mut OpenFile) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        fork::recognise_process();
        if fork::is_unusable() {
            return Err(Fault::new(
                FaultKind::Refused,
                "this process was forked or cloned in the middle of a SQLite operation of its parent; start it with exec",
            ));
        }
        let connection = match &self.connection {
            Some(connection) => Arc::clone(connection),
            None => fork::ForkSafeConnection::new()
                .ok_or_else(|| Fault::new(FaultKind::Unavailable, "no memory to register fork handlers"))?,
        };
        self.connection = Some(Arc::clone(&connection));
        let operation = fork::begin();
        descriptors::install(&operation);
        begin_wait(self.options.busy);
        let mut kept = connection.lock(&operation);
        if let Some(file) = &*kept
            && let Err(fault) = self.check_own_descriptors(file.database())
        {
            // Dropping it leaves it open.
            *kept = None;
            return Err(fault);
        }
        if kept.as_ref().is_some_and(OpenFile::moved)
            && let Some(stale) = kept.take()
        {
            // No other process uses the log of the replaced file. Copied back, it would overwrite later commits of others.
            let off = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = stale.connection.set_db_config(off, true);
        }
        if let Some(real) = kept.as_ref().map(|file| file.opened.real.clone()) {
            self.check_descriptors(&real)?;
        }
        let mut file = match kept.take() {
            Some(file) => file,
            None => self.open()?,
        };
        let answer = work(&mut file);
        // Numbers that were committed without SQLite's locks may be reserved by another process too.
        self.check_own_descriptors(file.database())?;
        // `Refused` leaves the connection usable; after any other fault the next operation opens a new one.
        let broken = answer
            .as_ref()
            .is_err_and(|fault| matches!(fault.kind, FaultKind::Unknown | FaultKind::Unavailable));
        // SQLite opens a file for reading where it cannot be written, and the connection stays so when it can be.
        if !broken && !file.state.broken && !file::is_readonly(&file.connection) {
            *kept = Some(file);
        }
        answer
    }

    fn open(&mut self) -> Result<OpenFile, Fault> {
        self.warnings.clear();
        let real = real(&self.path);
        if let Some(database) = identity(&self.path) {
            self.check_own_descriptors(database)?;
        }
        self.check_file_system(&real)?;
        // Before anything is opened: closing it again would drop the other library's locks.
        self.next_look = None;
        self.check_descriptors(&real)?;
        let is_new = identity(&self.path).is_none();
        let path = self.path.clone();
        if is_new {
            descriptors::create(&path);
        }
        let at = |error: rusqlite::Error| fault(&path, &error);
        let connection = self.connect(&real)?;
        let journal = Self::set_journal_mode(&connection).map_err(at)?;
        connection.execute_batch("PRAGMA synchronous=FULL").map_err(at)?;
        let synchronous: i64 =
            connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(at)?;
        let file = identity(&path).ok_or_else(|| {
            Fault::new(
                FaultKind::Unavailable,
                format!("`{}` was deleted while it was opened", path.display()),
            )
        })?;
        fork::hold_locks(&real).map_err(|error| {
            Fault::new(
                FaultKind::Unavailable,
                format!("locking `{}` for a cloned process: {error}", path.display()),
            )
        })?;
        self.check_durability(&journal, synchronous)?;
        if is_new {
            self.created
                .push(format!("created `{}`: it holds no numbers yet, so they begin at 1", path.display()));
        }
        Ok(OpenFile {
            connection: ManuallyDrop::new(connection),
            opened: Opened { path, real, file, log: None, journal, synchronous },
            state: State::new(self.options.durability, Duration::ZERO, 0),
        })
    }

    /// Opens the file in SQLite, and prepares the connection for any file.
    ///
    /// Processes that open it by one name share one log: on Windows SQLite takes a link's name for the file's own, with a log beside the link.
    fn connect(&self, real: &Path) -> Result<Connection, Fault> {
        let at = |error: rusqlite::Error| fault(&self.path, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let mut connection = Connection::open_with_flags(real, flags).map_err(at)?;
        let is_readonly = file::is_readonly(&connection);
        if descriptors::shortage().is_some() && is_readonly {
            // SQLite fell back to a read-only connection because another thread closed its descriptor meanwhile.
            return Err(file::no_descriptor(&self.path));
        }
        if is_readonly && files::was_held(&self.path) {
            return Err(file::held(&self.path));
        }
        connection.busy_handler(Some(|_| pause())).map_err(at)?;
        // Triggers and views of another program's file may not call functions with side effects.
        connection
            .execute_batch("PRAGMA trusted_schema=OFF; PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON")
            .map_err(at)?;
        Ok(connection)
    }

    /// Turns the write-ahead log on; answers with the journal mode that the file has then.
    fn set_journal_mode(connection: &Connection) -> rusqlite::Result<String> {
        loop {
            // A file of another program keeps its journal mode. SQLite does not always ask the busy handler here:
            // eight processes that open a new file at once collide.
            let word = owner(connection, None).and_then(|owner| {
                let foreign = matches!(owner, FileOwner::Other(_));
                let ask = if foreign { "PRAGMA journal_mode" } else { "PRAGMA journal_mode=WAL" };
                connection.query_row(ask, [], |row| row.get(0))
            });
            match word {
                Err(error) if is_busy(&error) && pause() => {}
                word => return word,
            }
        }
    }

    /// Refuses a file whose descriptors the program has closed. No option accepts that: the next write would go
    /// into what the program has opened since.
    fn check_own_descriptors(&self, database: Inode) -> Result<(), Fault> {
        let Some(descriptor) = descriptors::closed(database) else { return Ok(()) };
        Err(Fault::new(
            FaultKind::Unsafe,
            format!(
                "this program closed descriptor {descriptor}, with which keymill had `{}` open, as `closefrom` or a loop of `close` does; keymill does not use the file any more in this process: restart it, open the mill after such code or let that code close the program's own descriptors only",
                self.path.display()
            ),
        ))
    }

    fn check_durability(&mut self, journal: &str, synchronous: i64) -> Result<(), Fault> {
        let (journal, path) = (journal.to_ascii_lowercase(), self.path.display());
        if synchronous < 2 || matches!(journal.as_str(), "off" | "memory") {
            let found = format!(
                "`{path}` has journal_mode={journal} and synchronous={synchronous}, which lose commits"
            );
            self.judge(found)?;
        } else if journal != "wal" {
            self.warnings.push(format!(
                "journal_mode is `{journal}`, not `wal`: safe, but slower and readers block writers"
            ));
        }
        Ok(())
    }

    /// Refuses a file beside a link to an application's file: in the folder of each other link another file would begin at 1.
    fn check_beside_link(&mut self) -> Result<(), Fault> {
        let Some(beside) = self.path.to_str().and_then(|path| path.strip_suffix(".keymill")) else {
            return Ok(());
        };
        if !std::fs::symlink_metadata(beside).is_ok_and(|metadata| metadata.is_symlink()) {
            return Ok(());
        }
        let to = std::fs::canonicalize(beside).unwrap_or_else(|_| PathBuf::from("FILE"));
        self.judge(format!(
            "`{beside}` is a symbolic link, and `{}` would not follow it: processes that reach the file by another name would begin at 1 again; stop every program that uses it, then use `sqlite:{}.keymill`, to which this file is moved if no file is there",
            self.path.display(),
            to.display()
        ))
    }

    fn check_file_system(&mut self, real: &Path) -> Result<(), Fault> {
        let path = self.path.display().to_string();
        // SQLite names the log after the file: two names would have two logs, and their readers would see different data.
        if names(&self.path) > 1 {
            self.judge(format!(
                "`{path}` has a second name (a hard link), under which another process would keep a log of its own; stop every program that uses it, then remove the name that has no `-wal` beside it"
            ))?;
        }
        self.check_beside_link()?;
        let folder = real.parent().unwrap_or(Path::new("/")).to_owned();
        let device = |path: &Path| identity(path).map(|(device, _)| device);
        if device(real).is_some_and(|file| device(&folder) != Some(file)) {
            // A container that mounts the file alone keeps the log in its own layer, where no other process sees it.
            self.judge(format!(
                "`{path}` is mounted by itself, and SQLite's log would lie on another file system; stop every program that uses it, then copy the log `{path}-wal`, if there is one, beside the file and mount its folder"
            ))?;
        }
        match file_system(&folder) {
            Some(FileSystem::Network(name)) => self.judge(format!(
                "`{path}` is on {name}, a file system of several machines, where SQLite's log and locks do not keep them apart; stop every program that uses it, then copy the file (with `{path}-wal`, if there is one) to a local disk"
            )),
            Some(FileSystem::Memory(name)) => self.judge(format!(
                "`{path}` is on {name}, which is lost when the machine stops, and numbers begin at 1 again; stop every program that uses it, copy the file to a disk, and use it there"
            )),
            Some(FileSystem::Layer(name)) => {
                self.warnings.push(format!(
                    "`{path}` is on {name}, a container's own layer: it is gone with the container, and numbers begin at 1 again; stop every program that uses it, copy the file to a volume, and use it there"
                ));
                Ok(())
            }
            Some(FileSystem::Doubtful(name)) => {
                self.warnings.push(format!(
                    "`{path}` is on {name}; keymill cannot tell whether its locks and fsync hold"
                ));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Refuses a file that something else in this process has open: the locks of two SQLite libraries in one process do not
    /// keep them apart, and each drops the other's.
    fn check_descriptors(&mut self, real: &Path) -> Result<(), Fault> {
        /// The largest share of the time that these scans may take (one part in so many): a process may have thousands of
        /// descriptors.
        const SHARE: u32 = 50;
        let began = Instant::now();
        if self.next_look.is_some_and(|next| began < next) {
            return Ok(());
        }
        let found = descriptors::foreign(real);
        self.next_look = found.is_none().then(|| Instant::now() + began.elapsed() * SHARE);
        let Some(descriptor) = found else { return Ok(()) };
        self.judge(format!(
            "`{}` is open in this process outside keymill too (descriptor {descriptor}), as by a SQLite library of the program's own (Python's sqlite3, better-sqlite3, sqlite-jdbc) or a second copy of this one; two SQLite libraries in one process drop each other's locks, and the file is damaged: name a file of keymill's own that nothing else in this program opens",
            self.path.display()
        ))
    }

    /// A setting that loses commits: refused or noted, as configured.
    fn judge(&mut self, found: String) -> Result<(), Fault> {
        match self.options.durability {
            Durability::Refuse => Err(Fault::new(
                FaultKind::Unsafe,
                format!("{found}; `durability=warn` accepts the risk of duplicates"),
            )),
            Durability::Warn => {
                if !self.warnings.contains(&found) {
                    self.warnings.push(found);
                }
                Ok(())
            }
        }
    }
}

impl Drop for SqliteFile {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            // As an operation, so that a fork does not copy a half-closed file.
            let operation = fork::begin();
            *connection.lock(&operation) = None;
        }
    }
}

impl Server for SqliteFile {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    fn with<T>(
        &mut self,
        work: impl FnOnce(&mut dyn sql::Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.with_file(|file| work(file))
    }

    fn is_there(&self) -> bool {
        identity(&self.path).is_some()
    }

    fn warnings(&self) -> Option<Vec<String>> {
        self.connection.as_ref().map(|_| self.warnings.clone())
    }

    fn created(&mut self) -> Vec<String> {
        std::mem::take(&mut self.created)
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        let mut facts = Facts {
            dialect: self.dialect().name().to_owned(),
            version: rusqlite::version().to_owned(),
            ..Facts::default()
        };
        if !self.is_there() {
            facts.warnings =
                vec![format!("`{}` does not exist yet; the first id creates it", self.path.display())];
            return Ok(facts);
        }
        let doing = format!("opening `{}`", self.path.display());
        let settings = self.with_file(|OpenFile { opened, .. }| {
            let synchronous = if opened.synchronous == 2 { "FULL" } else { "not FULL" };
            Ok(vec![format!("journal_mode={}", opened.journal), format!("synchronous={synchronous}")])
        });
        facts.durability = settings.map_err(|fault| fault.with_context(&doing))?;
        facts.warnings.clone_from(&self.warnings);
        if let Some(exposed) = exposed_database(&real(&self.path)) {
            facts.warnings.push(format!("`{}` {exposed}", self.path.display()));
        }
        Ok(facts)
    }
}
