//! Reservations in a SQLite file: the default, and right for every process of one machine.
//!
//! * Write-ahead log with `synchronous=FULL`: a commit survives loss of power. `NORMAL` would not.
//! * `BEGIN IMMEDIATE … COMMIT`, and COMMIT's own result decides: `UPDATE … RETURNING` stepped once reports ranges that
//!   a full disk never stored.
//! * Waiting for the lock is our own, jittered and under one deadline: `busy_timeout` backs off further and further, and
//!   of 8 processes one was starved for 3.1 s.
//! * A file deleted or replaced under us is noticed by its inode, before an operation and after its commit.
//! * The file is never opened but by SQLite: closing any other descriptor of it would drop SQLite's POSIX locks.

mod descriptors;
mod file;
mod gate;
mod records;
mod schemes;

use std::collections::HashSet;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::rows::{self, Rows, Together};
use super::transactions::Transactions;
use super::{
    Durability, Facts, Fault, FaultKind, GiveBack, Import, Key, MOST_AT_ONCE, Mark, Request, Reserved, Row,
    Store,
};
use descriptors::Inode;
use file::{Deadline, FileSystem, Owner, commit, fault, file_system, identity, is_busy, log_of, owner, real};
use gate::OpenFile;
use records::{Open, age_of};
pub use schemes::create_table;
use schemes::{Found, create, ensure_table, found_table};

/// How a file is used.
#[derive(Clone, Debug)]
pub struct SqliteOptions {
    /// What to do about a file system that cannot be trusted.
    pub durability: Durability,
    /// How long one operation may wait for other processes in all.
    pub busy: Duration,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        SqliteOptions { durability: Durability::default(), busy: Duration::from_secs(2) }
    }
}

/// What was found when the file was opened.
#[derive(Debug, Default)]
struct Opened {
    /// The path without symbolic links, beside which SQLite keeps its other files.
    real: PathBuf,
    /// Device and inode.
    file: (u64, u64),
    /// The write-ahead log's, once there is one.
    log: Option<(u64, u64)>,
    journal: String,
    synchronous: i64,
    warnings: Vec<String>,
    /// Tables whose shape has been checked.
    checked: HashSet<String>,
}

/// One connection to a file, opened when it is first needed and again after a fault.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    options: SqliteOptions,
    slot: Option<Arc<gate::Slot>>,
    opened: Opened,
    deadline: Arc<Deadline>,
    /// Files that this store has created and not told of.
    created: Vec<String>,
    /// When this process's descriptors are to be looked at again.
    next_look: Option<Instant>,
}

impl SqliteStore {
    /// A store on this file. Nothing is opened yet; a relative path is taken from the present working folder.
    #[must_use]
    pub fn new(path: PathBuf, options: SqliteOptions) -> SqliteStore {
        // A daemon may change its working folder before the first reservation. An absolute path is also never one of
        // SQLite's special names, `:memory:` and `file:…`.
        let path = std::path::absolute(&path).unwrap_or(path);
        SqliteStore {
            path,
            slot: None,
            opened: Opened::default(),
            deadline: Arc::new(Deadline {
                origin: Instant::now(),
                wait: options.busy,
                micros: AtomicU64::new(0),
            }),
            created: Vec::new(),
            next_look: None,
            options,
        }
    }

    /// Runs with an open connection, inside the gate; throws the connection away after a fault that may be its own.
    fn with_connection<T>(
        &mut self,
        work: impl FnOnce(&mut SqliteStore, &mut Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        descriptors::in_keymill(|| self.with_connection_of_keymill(work))
    }

    fn with_connection_of_keymill<T>(
        &mut self,
        work: impl FnOnce(&mut SqliteStore, &mut Connection) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        gate::recognise_process();
        if gate::is_spoilt() {
            return Err(Fault::new(
                FaultKind::Refused,
                "this process was forked or cloned in the middle of a SQLite operation of its parent; start it with exec",
            ));
        }
        let slot = match &self.slot {
            Some(slot) => Arc::clone(slot),
            None => gate::Slot::new()
                .ok_or_else(|| Fault::new(FaultKind::Unavailable, "no memory to register fork handlers"))?,
        };
        self.slot = Some(Arc::clone(&slot));
        let pass = gate::enter();
        descriptors::install(&pass);
        self.deadline.set();
        let mut held = slot.lock(&pass);
        if let Some(open) = &*held
            && let Err(fault) = self.check_own_descriptors(open.database)
        {
            // Dropping it leaves it open.
            *held = None;
            return Err(fault);
        }
        if held.is_some()
            && self.moved()
            && let Some(stale) = held.take()
        {
            // Its log is nobody else's any more: copied back, it would overwrite what others have committed since.
            let off = rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
            let _ = stale.connection.set_db_config(off, true);
        }
        if held.is_some() {
            self.check_descriptors()?;
        }
        let mut connection = match held.take() {
            Some(connection) => connection,
            None => self.open()?,
        };
        let answer = work(self, &mut connection.connection);
        // What was committed without its locks may be reserved by another process too.
        self.check_own_descriptors(connection.database)?;
        // `Refused` and its like leave the connection as it was; after anything else the next operation starts clean.
        let broken = matches!(&answer, Err(fault) if matches!(fault.kind, FaultKind::Unknown | FaultKind::Unavailable));
        if !broken {
            *held = Some(connection);
        }
        answer
    }

    /// Whether the name no longer leads to the file that is open.
    fn moved(&self) -> bool {
        identity(&self.path) != Some(self.opened.file)
            || self.opened.log.is_some() && identity(&log_of(&self.opened.real)) != self.opened.log
    }

    fn open(&mut self) -> Result<OpenFile, Fault> {
        self.opened = Opened { real: real(&self.path), ..Opened::default() };
        if let Some(database) = identity(&self.path) {
            self.check_own_descriptors(database)?;
        }
        self.check_file_system()?;
        // Before anything is opened: closing it again would drop the other library's locks.
        self.next_look = None;
        self.check_descriptors()?;
        let is_new = identity(&self.path).is_none();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let path = &self.path;
        let at = |error: &rusqlite::Error| fault(path, error);
        let mut connection = Connection::open_with_flags(path, flags).map_err(|error| at(&error))?;
        if descriptors::shortage().is_some() && connection.is_readonly("main").map_err(|error| at(&error))? {
            // SQLite has tried again for reading alone, with a descriptor that another thread had closed meanwhile.
            return Err(file::no_descriptor(path));
        }
        let deadline = Arc::clone(&self.deadline);
        connection.busy_handler(Some(move |_| deadline.pause())).map_err(|error| at(&error))?;
        // Triggers and views of a file that somebody else wrote get no functions with effects.
        connection
            .execute_batch("PRAGMA trusted_schema=OFF; PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON")
            .map_err(|error| at(&error))?;
        self.opened.journal = loop {
            // A file of another program keeps its journal mode. SQLite does not always ask the busy handler here:
            // eight processes that open a new file at once collide.
            let word = owner(&connection, None).and_then(|owner| {
                let foreign = matches!(owner, Owner::Other(_));
                let ask = if foreign { "PRAGMA journal_mode" } else { "PRAGMA journal_mode=WAL" };
                connection.query_one(ask, [], |row| row.get(0))
            });
            match word {
                Ok(word) => break word,
                Err(error) if is_busy(&error) && self.deadline.pause() => {}
                Err(error) => return Err(at(&error)),
            }
        };
        connection.execute_batch("PRAGMA synchronous=FULL").map_err(|error| at(&error))?;
        self.opened.synchronous =
            connection.query_one("PRAGMA synchronous", [], |row| row.get(0)).map_err(|error| at(&error))?;
        self.opened.file = identity(path).ok_or_else(|| {
            Fault::new(
                FaultKind::Unavailable,
                format!("`{}` was deleted while it was opened", path.display()),
            )
        })?;
        gate::hold_locks(&self.opened.real).map_err(|error| {
            Fault::new(
                FaultKind::Unavailable,
                format!("locking `{}` for a cloned process: {error}", path.display()),
            )
        })?;
        self.check_durability()?;
        if is_new {
            self.created.push(format!(
                "created `{}`: it holds no numbers yet, so they begin at 1",
                self.path.display()
            ));
        }
        Ok(OpenFile { connection: ManuallyDrop::new(connection), database: self.opened.file })
    }

    /// Refuses a file of which the program has closed keymill's descriptors. No option accepts that: the next write would go
    /// into what the program has opened since.
    fn check_own_descriptors(&self, database: Inode) -> Result<(), Fault> {
        let Some(descriptor) = descriptors::closed(database) else { return Ok(()) };
        Err(Fault::new(
            FaultKind::Unsafe,
            format!(
                "this program closed descriptor {descriptor}, by which keymill had `{}` open, as `closefrom` and `close` in a loop \
                 do; keymill leaves the file alone for the rest of this process: restart it, open the mill after such code \
                 or let that code close the program's own descriptors only",
                self.path.display()
            ),
        ))
    }

    fn check_durability(&mut self) -> Result<(), Fault> {
        let journal = self.opened.journal.to_ascii_lowercase();
        if self.opened.synchronous < 2 || matches!(journal.as_str(), "off" | "memory") {
            let found = format!(
                "`{}` has journal_mode={journal} and synchronous={}, which lose commits",
                self.path.display(),
                self.opened.synchronous
            );
            self.judge(found)?;
        } else if journal != "wal" {
            self.opened.warnings.push(format!(
                "journal_mode is `{journal}`, not `wal`: safe, but slower and readers block writers"
            ));
        }
        Ok(())
    }

    fn check_file_system(&mut self) -> Result<(), Fault> {
        // SQLite names the log after the file: under two names there are two logs, and two truths.
        if std::fs::metadata(&self.path)
            .is_ok_and(|m| m.is_file() && std::os::unix::fs::MetadataExt::nlink(&m) > 1)
        {
            self.judge(format!(
                "`{}` has a second name (a hard link), under which another process would keep a log of its own; remove \
                 the link",
                self.path.display()
            ))?;
        }
        let folder = self.opened.real.parent().unwrap_or(Path::new("/")).to_owned();
        let path = self.path.display();
        let device = |path: &Path| identity(path).map(|(device, _)| device);
        if device(&self.opened.real).is_some_and(|file| device(&folder) != Some(file)) {
            // A container that mounts the file alone keeps the log in its own layer, where no other process sees it.
            let found = format!(
                "`{path}` is mounted by itself, and SQLite's log would lie on another file system; mount its folder"
            );
            self.judge(found)?;
        }
        let path = self.path.display();
        match file_system(&folder) {
            Some(FileSystem::Network(name)) => self.judge(format!(
                "`{path}` is on {name}, a file system of several machines, where SQLite's log and locks do not keep them \
                 apart; use a local disk or a server store"
            )),
            Some(FileSystem::Memory(name)) => self.judge(format!(
                "`{path}` is on {name}, which is lost when the machine stops, and numbers begin at 1 again; use a disk"
            )),
            Some(FileSystem::Layer(name)) => {
                self.opened.warnings.push(format!(
                    "`{path}` is on {name}, a container's own layer: it is gone with the container, and numbers begin at 1 \
                     again; use a volume"
                ));
                Ok(())
            }
            Some(FileSystem::Doubtful(name)) => {
                self.opened.warnings.push(format!(
                    "`{path}` is on {name}; keymill cannot tell whether its locks and fsync hold"
                ));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Refuses a file that something else in this process has open: the locks of two SQLite libraries in one process do not
    /// keep them apart, and each drops the other's.
    fn check_descriptors(&mut self) -> Result<(), Fault> {
        /// A look may take one part in so many of the time: a process may have thousands of descriptors.
        const SHARE: u32 = 50;
        let began = Instant::now();
        if self.next_look.is_some_and(|next| began < next) {
            return Ok(());
        }
        let found = descriptors::foreign(&self.opened.real);
        self.next_look = found.is_none().then(|| Instant::now() + began.elapsed() * SHARE);
        let Some(descriptor) = found else { return Ok(()) };
        self.judge(format!(
            "`{}` is open in this process outside keymill too (descriptor {descriptor}), as by a SQLite library of the program's \
             own (Python's sqlite3, better-sqlite3, sqlite-jdbc) or a second copy of this one; two SQLite libraries in one process drop each other's locks, \
             and the file is damaged: name a file of keymill's own that nothing else in this program opens",
            self.path.display()
        ))
    }

    /// Any way out of a transaction but `end` rolls back when it is dropped.
    fn begin<'c>(&mut self, connection: &'c mut Connection) -> Result<Transaction<'c>, Fault> {
        let transaction = Transaction::new(connection, TransactionBehavior::Immediate)
            .map_err(|error| fault(&self.path, &error))?;
        if self.opened.log.is_none() && self.opened.journal.eq_ignore_ascii_case("wal") {
            self.opened.log = identity(&log_of(&self.opened.real));
        }
        Ok(transaction)
    }

    fn end(&self, transaction: Transaction<'_>) -> Result<(), Fault> {
        commit(transaction, &self.path)?;
        if self.moved() {
            return Err(Fault::new(
                FaultKind::Unknown,
                format!("`{}` was deleted or replaced while it was written", self.path.display()),
            ));
        }
        Ok(())
    }

    /// A setting that loses commits: refused or noted, as configured.
    fn judge(&mut self, found: String) -> Result<(), Fault> {
        match self.options.durability {
            Durability::Refuse => Err(Fault::new(
                FaultKind::Unsafe,
                format!("{found}; `durability=warn` accepts the risk of duplicates"),
            )),
            Durability::Warn => {
                if !self.opened.warnings.contains(&found) {
                    self.opened.warnings.push(found);
                }
                Ok(())
            }
        }
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            // Inside the gate, so that a fork does not copy a half-closed file.
            let pass = gate::enter();
            *slot.lock(&pass) = None;
        }
    }
}

impl Transactions for SqliteStore {
    fn transact<T>(
        &mut self,
        key: &Key,
        _period: u64,
        work: impl Fn(&mut dyn Rows) -> Result<Option<T>, Fault>,
    ) -> Result<T, Fault> {
        self.with_connection(|store, connection| {
            let transaction = store.begin(connection)?;
            let path = &store.path;
            ensure_table(&transaction, key, &mut store.opened, path)?;
            let answer = work(&mut Open { transaction: &transaction, path })?.ok_or_else(rows::moved_on)?;
            store.end(transaction)?;
            Ok(answer)
        })
    }
}

impl SqliteStore {
    /// One transaction, and so one fsync, for all of them. Who is refused has written nothing and spoils it for nobody.
    fn reserve_together(&mut self, requests: &[Request]) -> Result<Together, Fault> {
        self.with_connection(|store, connection| {
            let transaction = store.begin(connection)?;
            let path = &store.path;
            let mut answers = Vec::with_capacity(requests.len());
            for request in requests {
                let reserved = ensure_table(&transaction, &request.key, &mut store.opened, path)
                    .and_then(|()| rows::reserve(&mut Open { transaction: &transaction, path }, request));
                // Where the disk or memory is full SQLite may have rolled back what came before. Alone, they are told.
                let failed = reserved.as_ref().is_err_and(|fault| fault.kind.is_outage());
                if failed || transaction.is_autocommit() {
                    return Ok(vec![None; requests.len()]);
                }
                answers.push(reserved.transpose());
            }
            store.end(transaction)?;
            Ok(answers)
        })
    }
}

impl Store for SqliteStore {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        self.reserve_in_one(request)
    }

    fn batch(&self) -> usize {
        MOST_AT_ONCE
    }

    fn reserve_all(&mut self, requests: &[Request]) -> Together {
        rows::told(requests, self.reserve_together(requests))
    }

    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        self.give_back_in_one(key, period, lo, hi)
    }

    /// One transaction, and so one fsync, for all of them.
    fn give_back_all(&mut self, ranges: &[GiveBack]) -> Result<Vec<bool>, Fault> {
        self.with_connection(|store, connection| {
            let transaction = store.begin(connection)?;
            let path = &store.path;
            let mut answers = Vec::with_capacity(ranges.len());
            for GiveBack { key, period, lo, hi } in ranges {
                let given = ensure_table(&transaction, key, &mut store.opened, path).and_then(|()| {
                    rows::give_back(&mut Open { transaction: &transaction, path }, key, *period, *lo, *hi)
                });
                match given {
                    Ok(given) => answers.push(given),
                    // A row that is refused was not changed, and says nothing about the others.
                    Err(fault) if !fault.kind.is_outage() && !transaction.is_autocommit() => {
                        answers.push(false);
                    }
                    Err(fault) => return Err(fault),
                }
            }
            store.end(transaction)?;
            Ok(answers)
        })
        .map_err(|fault| rows::during(&format!("giving back {} ranges", ranges.len()), fault))
    }

    fn raise(&mut self, key: &Key, expect: Option<u64>, to: u64) -> Result<u64, Fault> {
        self.raise_in_one(key, expect, to)
    }

    fn look(&mut self, key: &Key) -> Result<Option<Row>, Fault> {
        let doing = format!("looking at `{}`", key.name);
        // A look creates nothing: not the file, not the table.
        if identity(&self.path).is_none() {
            return Ok(None);
        }
        self.with_connection(|store, connection| {
            let path = &store.path;
            let transaction = connection.unchecked_transaction().map_err(|error| fault(path, &error))?;
            match found_table(&transaction, key, path)? {
                Found::Missing => Ok(None),
                Found::Right => rows::look(&mut Open { transaction: &transaction, path }, key),
                Found::Wrong(why) => Err(Fault::new(FaultKind::Refused, why)),
            }
        })
        .map_err(|fault| rows::during(&doing, fault))
    }

    fn age(&mut self, key: &Key) -> Result<Option<u64>, Fault> {
        if identity(&self.path).is_none() {
            return Ok(None);
        }
        self.with_connection(|store, connection| age_of(connection, key, &store.path))
            .map_err(|fault| rows::during(&format!("looking at `{}`", key.name), fault))
    }

    fn init(&mut self, keys: &[Arc<Key>], dry_run: bool) -> Result<Vec<String>, Fault> {
        for key in keys {
            rows::check_kept_here(key).map_err(|fault| rows::during(rows::creating(dry_run), fault))?;
        }
        let mut tables = rows::tables(keys, create_table, dry_run)?;
        // Looking creates nothing, not even the file.
        if dry_run && identity(&self.path).is_none() {
            return Ok(tables.into_iter().map(|(_, statement)| statement).collect());
        }
        self.with_connection(|store, connection| {
            let path = &store.path;
            let behaviour =
                if dry_run { TransactionBehavior::Deferred } else { TransactionBehavior::Immediate };
            let transaction = Transaction::new(connection, behaviour).map_err(|error| fault(path, &error))?;
            let mut missing = Vec::new();
            for (key, statement) in tables.drain(..) {
                match found_table(&transaction, key, path)? {
                    Found::Right => {}
                    Found::Wrong(why) => return Err(Fault::new(FaultKind::Refused, why)),
                    Found::Missing => {
                        if !dry_run {
                            create(&transaction, key, path)?;
                        }
                        missing.push(statement);
                    }
                }
            }
            commit(transaction, path)?;
            Ok(missing)
        })
        .map_err(|fault| rows::during(rows::creating(dry_run), fault))
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        self.repair_in_one(key, to)
    }

    fn import(&mut self, old: &Key, new: &Key, period: u64) -> Result<Import, Fault> {
        self.import_in_one(old, new, period)
    }

    fn new_owner(&mut self, old: &Key, new: &Key) -> Result<Option<String>, Fault> {
        // A look creates nothing.
        if identity(&self.path).is_none() {
            return Ok(None);
        }
        self.new_owner_in_one(old, new)
    }

    fn warnings(&mut self) -> Option<Vec<String>> {
        self.slot.as_ref().map(|_| self.opened.warnings.clone())
    }

    fn created(&mut self) -> Vec<String> {
        std::mem::take(&mut self.created)
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        // Asking creates nothing.
        if identity(&self.path).is_none() {
            return Ok(Facts {
                dialect: "sqlite".to_owned(),
                version: rusqlite::version().to_owned(),
                durability: Vec::new(),
                tls: String::new(),
                warnings: vec![format!(
                    "`{}` does not exist yet; the first id creates it",
                    self.path.display()
                )],
                tables: Vec::new(),
            });
        }
        self.with_connection(|store, _| {
            Ok(Facts {
                dialect: "sqlite".to_owned(),
                version: rusqlite::version().to_owned(),
                durability: vec![
                    format!("journal_mode={}", store.opened.journal),
                    format!(
                        "synchronous={}",
                        if store.opened.synchronous == 2 { "FULL" } else { "not FULL" }
                    ),
                ],
                tls: String::new(),
                warnings: store.opened.warnings.clone(),
                tables: Vec::new(),
            })
        })
        .map_err(|fault| rows::during(&format!("opening `{}`", self.path.display()), fault))
    }
}
