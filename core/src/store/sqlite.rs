//! Reservations in a SQLite file: the default, and right for every process of one machine. (floor 2)
//!
//! * Write-ahead log with `synchronous=FULL`: a commit survives loss of power. `NORMAL` would not.
//! * `BEGIN IMMEDIATE … COMMIT`, and COMMIT's own result decides: `UPDATE … RETURNING` stepped once reports ranges that
//!   a full disk never stored.
//! * Waiting for the lock is our own, jittered and under one deadline: `busy_timeout` backs off further and further, and
//!   of 8 processes one was starved for 3.1 s.
//! * A file deleted or replaced under us is noticed by its inode, before an operation and after its commit.
//! * The file is never opened but by SQLite: closing any other descriptor of it would drop SQLite's POSIX locks.

mod gate;

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::types::{Value, ValueRef};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};

use super::counter::{Cell, Counter, Tongue, segment_of};
use super::rows::{self, Digits, ProducerKey, Rows, Stored, Transactions};
use super::{
    Durability, Facts, Fault, FaultKind, Handover, Key, MAX_NUMBER, Mark, Request, Reserved, Row, Scheme,
    SerialKey, Store,
};

/// `PRAGMA application_id` of files that keymill made: "kmil".
const APPLICATION_ID: i32 = 0x6b6d_696c;

/// How a file is used.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to do about a file system that cannot be trusted.
    pub durability: Durability,
    /// How long one operation may wait for other processes in all.
    pub busy: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { durability: Durability::default(), busy: Duration::from_secs(2) }
    }
}

/// What was found when the file was opened.
#[derive(Debug, Default)]
struct Opened {
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
    options: Options,
    slot: Option<Arc<gate::Slot>>,
    opened: Opened,
    deadline: Arc<Deadline>,
}

/// When the operation in progress has waited long enough, for the busy handler.
#[derive(Debug)]
struct Deadline {
    origin: Instant,
    wait: Duration,
    micros: AtomicU64,
}

impl Deadline {
    // ordering: Relaxed throughout: SQLite calls the busy handler on the thread that set the deadline.
    fn set(&self) {
        self.micros.store((self.origin.elapsed() + self.wait).as_micros() as u64, Ordering::Relaxed);
    }

    fn waited(&self) -> Duration {
        let ends = Duration::from_micros(self.micros.load(Ordering::Relaxed));
        self.origin.elapsed().saturating_sub(ends.saturating_sub(self.wait))
    }

    fn passed(&self) -> bool {
        // ordering: Relaxed — one thread writes and reads it, SQLite's callback in between.
        self.origin.elapsed().as_micros() as u64 >= self.micros.load(Ordering::Relaxed)
    }

    /// Waits a little; `false` when there is no time left.
    fn pause(&self) -> bool {
        if self.passed() {
            return false;
        }
        // At random, so that nobody is always the last; and the opposite of a back-off: who has waited long asks more
        // often, so that newcomers do not overtake for ever.
        let longest = if self.waited() < Duration::from_millis(10) { 1100 } else { 300 };
        std::thread::sleep(Duration::from_micros(fastrand::u64(50..longest)));
        true
    }
}

/// The statement that creates a scheme's table: the only place where it stands.
#[must_use]
pub fn create_table(key: &Key) -> String {
    let table = &key.table;
    let own = |column| key.columns.in_ddl(column);
    match key.scheme {
        Scheme::Keymill => format!(
            "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             name TEXT NOT NULL PRIMARY KEY,\n  \
             period INTEGER NOT NULL DEFAULT 0,\n  \
             next INTEGER NOT NULL, -- lowest number not yet reserved; -9223372036854775808: all are\n  \
             updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP\n\
             ) WITHOUT ROWID"
        ),
        Scheme::KeyProducer => {
            let [tablename, columnname, maxserialno, datefmt, nofmt, update_time] =
                ["TABLENAME", "COLUMNNAME", "MAXSERIALNO", "DATEFMT", "NOFMT", "update_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {tablename} varchar(80) NOT NULL,\n  \
             {columnname} varchar(80) NOT NULL,\n  \
             {maxserialno} varchar(80) DEFAULT NULL,\n  \
             {datefmt} varchar(20) NOT NULL,\n  \
             {nofmt} varchar(20) NOT NULL,\n  \
             {update_time} datetime NOT NULL DEFAULT CURRENT_TIMESTAMP,\n  \
             PRIMARY KEY ({tablename}, {columnname}, {datefmt}, {nofmt})\n\
             )"
            )
        }
        // `check_kept_here` has refused them.
        Scheme::AutoIncrement | Scheme::Ticket | Scheme::Sequence => String::new(),
        // Their authors' tables, as far as SQLite has such things: what they are found by is their primary key.
        Scheme::SequenceTable => {
            let [biz_type, cur_id, step, time_to_live] =
                ["biz_type", "cur_id", "step", "time_to_live"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {biz_type} varchar(50) NOT NULL PRIMARY KEY,\n  \
             {cur_id} bigint NOT NULL, -- last number handed out\n  \
             {step} int NOT NULL,\n  \
             {time_to_live} int NOT NULL -- seconds; 0: without end\n\
             )"
            )
        }
        Scheme::LeafAlloc => {
            let [biz_tag, max_id, step, update_time] = ["biz_tag", "max_id", "step", "update_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {biz_tag} varchar(128) NOT NULL DEFAULT '' PRIMARY KEY,\n  \
             {max_id} bigint NOT NULL DEFAULT 1, -- next number to hand out\n  \
             {step} int NOT NULL,\n  \
             description varchar(256) DEFAULT NULL,\n  \
             {update_time} timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP\n\
             )"
            )
        }
        Scheme::TinyIdInfo => {
            let [biz_type, max_id, step, delta, remainder, version, update_time] =
                ["biz_type", "max_id", "step", "delta", "remainder", "version", "update_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {biz_type} varchar(63) NOT NULL DEFAULT '' PRIMARY KEY,\n  \
             begin_id bigint NOT NULL DEFAULT 0,\n  \
             {max_id} bigint NOT NULL DEFAULT 0, -- last number handed out\n  \
             {step} int DEFAULT 0,\n  \
             {delta} int NOT NULL DEFAULT 1,\n  \
             {remainder} int NOT NULL DEFAULT 0,\n  \
             create_time timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,\n  \
             {update_time} timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,\n  \
             {version} bigint NOT NULL DEFAULT 0\n\
             )"
            )
        }
        Scheme::Cosid => {
            let [name, last_max_id, last_fetch_time] = ["name", "last_max_id", "last_fetch_time"].map(own);
            format!(
                "CREATE TABLE IF NOT EXISTS \"{table}\" (\n  \
             {name} varchar(100) NOT NULL PRIMARY KEY, -- namespace.name\n  \
             {last_max_id} bigint NOT NULL DEFAULT 0, -- last number handed out\n  \
             {last_fetch_time} bigint NOT NULL\n\
             )"
            )
        }
    }
}

/// The columns a scheme reads and writes, and those that make its primary key.
fn shape(key: &Key) -> (Vec<String>, Vec<String>) {
    let (needed, primary) = match Counter::of_key(key) {
        Some(counter) => (counter.needed(), vec![counter.name.0]),
        None if key.scheme == Scheme::Keymill => (vec!["name", "period", "next", "updated_at"], vec!["name"]),
        None => {
            let own = |column| key.columns.own(column);
            let needed = ["TABLENAME", "COLUMNNAME", "MAXSERIALNO", "DATEFMT", "NOFMT", "update_time"];
            (needed.map(own).into(), ["TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"].map(own).into())
        }
    };
    // SQLite's names know no case.
    let lower = |names: Vec<&str>| names.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
    let mut primary = lower(primary);
    primary.sort_unstable();
    (lower(needed), primary)
}

/// Where SQLite keeps the write-ahead log of a file.
fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    PathBuf::from(log)
}

impl SqliteStore {
    /// A store on this file. Nothing is opened yet; a relative path is taken from the present working folder.
    #[must_use]
    pub fn new(path: PathBuf, options: Options) -> SqliteStore {
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
            options,
        }
    }

    /// Runs with an open connection, inside the gate; throws the connection away after a fault that may be its own.
    fn with_connection<T>(
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
        self.deadline.set();
        let mut held = slot.lock(&pass);
        if held.is_some()
            && self.moved()
            && let Some(stale) = held.take()
        {
            // Its log is nobody else's any more: copied back, it would overwrite what others have committed since.
            let _ = stale.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
        let mut connection = match held.take() {
            Some(connection) => connection,
            None => self.open()?,
        };
        let answer = work(self, &mut connection);
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
            || self.opened.log.is_some() && identity(&log_of(&self.path)) != self.opened.log
    }

    fn open(&mut self) -> Result<Connection, Fault> {
        self.opened = Opened::default();
        self.check_file_system()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_EXRESCODE;
        let path = &self.path;
        let at = |error: &rusqlite::Error| fault(path, error);
        let mut connection = Connection::open_with_flags(path, flags).map_err(|error| at(&error))?;
        let deadline = Arc::clone(&self.deadline);
        connection.busy_handler(Some(move |_| deadline.pause())).map_err(|error| at(&error))?;
        // Triggers and views of a file that somebody else wrote get no functions with effects.
        connection
            .execute_batch("PRAGMA trusted_schema=OFF; PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON")
            .map_err(|error| at(&error))?;
        self.opened.journal = loop {
            // A file of another program keeps its journal mode. SQLite does not always ask the busy handler here:
            // eight processes that open a new file at once collide.
            let word = is_foreign(&connection).and_then(|foreign| {
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
        gate::hold_locks(path).map_err(|error| {
            Fault::new(
                FaultKind::Unavailable,
                format!("locking `{}` for a cloned process: {error}", path.display()),
            )
        })?;
        self.check_durability()?;
        Ok(connection)
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
        let folder = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        match file_system(&folder) {
            Some(FileSystem::Network(name)) => self.judge(format!(
                "`{}` is on a {name} file system, whose locks do not keep two machines apart; use a local disk or a \
                 server store",
                self.path.display()
            )),
            Some(FileSystem::Doubtful(name)) => {
                self.opened.warnings.push(format!(
                    "`{}` is on a {name} file system; keymill cannot tell whether its locks and fsync hold",
                    self.path.display()
                ));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// A setting that loses commits: refused or noted, as configured.
    fn judge(&mut self, found: String) -> Result<(), Fault> {
        match self.options.durability {
            Durability::Refuse => Err(Fault::new(
                FaultKind::Unsafe,
                format!("{found}; `durability=warn` accepts the risk of duplicates"),
            )),
            Durability::Warn => {
                self.opened.warnings.push(found);
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
            let path = &store.path;
            let transaction = Transaction::new(connection, TransactionBehavior::Immediate)
                .map_err(|error| fault(path, &error))?;
            if store.opened.log.is_none() && store.opened.journal.eq_ignore_ascii_case("wal") {
                store.opened.log = identity(&log_of(path));
            }
            ensure_table(&transaction, key, &mut store.opened, path)?;
            // Any way out but `commit` rolls back when the transaction is dropped.
            let answer = work(&mut Open { transaction: &transaction, path })?.ok_or_else(rows::moved_on)?;
            commit(transaction, path)?;
            if store.moved() {
                return Err(Fault::new(
                    FaultKind::Unknown,
                    format!("`{}` was deleted or replaced while it was written", path.display()),
                ));
            }
            Ok(answer)
        })
    }
}

impl Store for SqliteStore {
    fn reserve(&mut self, request: &Request) -> Result<Reserved, Fault> {
        self.reserve_in_one(request)
    }

    fn give_back(&mut self, key: &Key, period: u64, lo: u64, hi: u64) -> Result<bool, Fault> {
        self.give_back_in_one(key, period, lo, hi)
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
            rows::check_kept_here(key).map_err(|fault| rows::during("creating tables", fault))?;
        }
        let mut tables = rows::tables(keys, create_table)?;
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
        .map_err(|fault| rows::during("creating tables", fault))
    }

    fn repair(&mut self, key: &Key, to: Mark) -> Result<(Option<Row>, Row), Fault> {
        self.repair_in_one(key, to)
    }

    fn hand_over(&mut self, old: &Key, new: &Key, period: u64) -> Result<Handover, Fault> {
        self.hand_over_in_one(old, new, period)
    }

    fn facts(&mut self) -> Result<Facts, Fault> {
        // Asking creates nothing.
        if identity(&self.path).is_none() {
            return Ok(Facts {
                dialect: "sqlite".to_owned(),
                version: rusqlite::version().to_owned(),
                durability: Vec::new(),
                warnings: vec![format!(
                    "`{}` does not exist yet; the first id creates it",
                    self.path.display()
                )],
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
                warnings: store.opened.warnings.clone(),
            })
        })
        .map_err(|fault| rows::during(&format!("opening `{}`", self.path.display()), fault))
    }
}

/// Rows inside an open transaction.
struct Open<'a> {
    transaction: &'a Transaction<'a>,
    path: &'a Path,
}

impl Open<'_> {
    fn change(&self, sql: &str, values: impl rusqlite::Params) -> Result<bool, Fault> {
        match self.transaction.prepare_cached(sql).and_then(|mut statement| statement.execute(values)) {
            Ok(1) => Ok(true),
            Ok(0) => Ok(false),
            Ok(many) => Err(Fault::new(
                FaultKind::Refused,
                format!("{many} rows of one key would change at once; the table has lost its primary key"),
            )),
            Err(error) => Err(fault(self.path, &error)),
        }
    }
}

impl Rows for Open<'_> {
    fn read(&mut self, key: &Key, _lock: bool) -> Result<Option<Stored>, Fault> {
        let table = &key.table;
        let row = match key.scheme {
            Scheme::Keymill => {
                let sql = format!("SELECT period, next FROM \"{table}\" WHERE name = ?1");
                self.transaction
                    .prepare_cached(&sql)
                    .and_then(|mut statement| {
                        statement.query_one([&key.name], |row| Ok(cells(row))).optional()
                    })
                    .map_err(|error| fault(self.path, &error))?
                    .map(|cells| from_columns(key, cells).map(Stored::Segment))
                    .transpose()?
            }
            Scheme::KeyProducer => {
                let of = ProducerKey::new(rows::serial_of(key)?)?;
                let (row, serial) = producer_row(key);
                let sql = format!("SELECT `{serial}` FROM \"{table}\" WHERE {row}");
                self.transaction
                    .prepare_cached(&sql)
                    .and_then(|mut statement| {
                        statement
                            .query_one([&of.table, &of.column, &of.date, &of.number], |row| {
                                row.get::<_, Option<String>>(0)
                            })
                            .optional()
                    })
                    .map_err(|error| fault(self.path, &error))?
                    .map(Stored::Serial)
            }
            _ => {
                let Some(counter) = Counter::of_key(key) else { return Ok(None) };
                let name = counter.row_name(key)?;
                self.transaction
                    .prepare_cached(&counter.select(table))
                    .and_then(|mut statement| statement.query_one([name], |row| Ok(cells(row))).optional())
                    .map_err(|error| fault(self.path, &error))?
                    .map(|cells| counter.row_of(key, &cells).map(Stored::Counter))
                    .transpose()?
            }
        };
        Ok(row)
    }

    fn insert(&mut self, key: &Key, new: &Stored) -> Result<bool, Fault> {
        let table = &key.table;
        match new {
            Stored::Segment(mark) => {
                let (period, next) = to_columns(*mark)?;
                let sql = format!("INSERT INTO \"{table}\" (name, period, next) VALUES (?1, ?2, ?3)");
                self.change(&sql, params![key.name, period, next])
            }
            Stored::Serial(text) => {
                let of = ProducerKey::new(rows::serial_of(key)?)?;
                let columns = ["MAXSERIALNO", "TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"];
                let columns = columns.map(|column| format!("`{}`", key.columns.own(column))).join(", ");
                let sql = format!("INSERT INTO \"{table}\" ({columns}) VALUES (?1, ?2, ?3, ?4, ?5)");
                self.change(&sql, params![text, of.table, of.column, of.date, of.number])
            }
            Stored::Counter(row) => {
                let Some(counter) = Counter::of_key(key) else { return Ok(false) };
                let mut values: Vec<Value> = vec![counter.row_name(key)?.to_owned().into()];
                values.extend(counter.insert_values(row).into_iter().map(|value| (value as i64).into()));
                self.change(&counter.insert(table, Tongue::Sqlite), rusqlite::params_from_iter(values))
            }
        }
    }

    fn replace(&mut self, key: &Key, old: &Stored, new: &Stored) -> Result<bool, Fault> {
        let table = &key.table;
        match (old, new) {
            (Stored::Segment(old), Stored::Segment(new)) => {
                let ((old_period, old_next), (period, next)) = (to_columns(*old)?, to_columns(*new)?);
                let sql = format!(
                    "UPDATE \"{table}\" SET period = ?1, next = ?2, updated_at = CURRENT_TIMESTAMP \
                     WHERE name = ?3 AND period = ?4 AND next = ?5"
                );
                self.change(&sql, params![period, next, key.name, old_period, old_next])
            }
            (Stored::Serial(old), Stored::Serial(new)) => {
                let of = ProducerKey::new(rows::serial_of(key)?)?;
                let (row, serial) = producer_row(key);
                let sql = format!(
                    "UPDATE \"{table}\" SET `{serial}` = ?5, `{}` = CURRENT_TIMESTAMP WHERE {row} AND `{serial}` IS ?6",
                    key.columns.own("update_time")
                );
                self.change(&sql, params![of.table, of.column, of.date, of.number, new, old])
            }
            (Stored::Counter(old), Stored::Counter(new)) => {
                let Some(counter) = Counter::of_key(key) else { return Ok(false) };
                // None is beyond 2^63-1: `row_of` and `row_at` have seen to that.
                let mut values: Vec<Value> = vec![(new.maximum as i64).into()];
                values.push(counter.row_name(key)?.to_owned().into());
                values.push((old.maximum as i64).into());
                values.extend(counter.version.map(|_| Value::from(old.version as i64)));
                self.change(&counter.replace(table, Tongue::Sqlite), rusqlite::params_from_iter(values))
            }
            _ => Ok(false),
        }
    }

    fn largest(&mut self, serial: &SerialKey, prefix: &str, digits: Digits) -> Result<Option<String>, Fault> {
        // As text, whatever the column is: a number would sort below every text.
        let sql = format!(
            "SELECT number FROM (SELECT substr(\"{column}\", ?2) AS number FROM \"{table}\" \
             WHERE CAST(\"{column}\" AS TEXT) >= ?1 AND substr(\"{column}\", 1, ?2 - 1) = ?1) \
             WHERE number NOT GLOB '*[^0-9]*' AND length(number) BETWEEN ?3 AND ?4 \
             AND (length(number) = ?3 OR number NOT GLOB '0*') \
             ORDER BY length(number) DESC, number DESC LIMIT 1",
            table = serial.table,
            column = serial.column,
        );
        let values =
            params![prefix, prefix.chars().count() as i64 + 1, digits.shortest as i64, digits.longest as i64];
        self.transaction
            .query_one(&sql, values, |row| row.get::<_, String>(0))
            .optional()
            .map_err(|error| fault(self.path, &error))
    }
}

/// What a row of `key_producer` is found by, and the column of its serial. In backquotes: what stands in double quotes and
/// is no column SQLite takes for a text.
fn producer_row(key: &Key) -> (String, &str) {
    let [table, column, date, number] =
        ["TABLENAME", "COLUMNNAME", "DATEFMT", "NOFMT"].map(|column| key.columns.own(column));
    let row = format!("`{table}` = ?1 AND `{column}` = ?2 AND `{date}` = ?3 AND `{number}` = ?4");
    (row, key.columns.own("MAXSERIALNO"))
}

/// A row's columns, whatever they hold: SQLite keeps a text in a column of numbers.
fn cells(row: &rusqlite::Row<'_>) -> Vec<Cell> {
    let count = row.as_ref().column_count();
    let cell = |at| match row.get_ref(at) {
        Ok(ValueRef::Integer(number)) => Cell::Number(number.into()),
        Ok(ValueRef::Real(number)) => Cell::Other(number.to_string()),
        Ok(ValueRef::Text(text)) => Cell::Other(String::from_utf8_lossy(text).into_owned()),
        Ok(ValueRef::Blob(_)) => Cell::Other("bytes".to_owned()),
        Ok(ValueRef::Null) | Err(_) => Cell::Null,
    };
    (0..count).map(cell).collect()
}

/// SQLite has no unsigned integer; 2^63 (every number is used up) is kept as its two's complement.
fn to_columns(mark: Mark) -> Result<(i64, i64), Fault> {
    if mark.next > MAX_NUMBER + 1 || mark.period > MAX_NUMBER {
        return Err(Fault::new(
            FaultKind::Refused,
            format!("{} cannot be kept: it is beyond 2^63-1", mark.next),
        ));
    }
    Ok((mark.period as i64, mark.next as i64))
}

fn from_columns(key: &Key, mut cells: Vec<Cell>) -> Result<Mark, Fault> {
    if let Some(next @ Cell::Number(_)) = cells.get_mut(1)
        && *next == Cell::Number(i64::MIN.into())
    {
        *next = Cell::Number(i128::from(MAX_NUMBER) + 1);
    }
    segment_of(key, &cells)
}

enum Found {
    Missing,
    Right,
    Wrong(String),
}

fn found_table(transaction: &Transaction<'_>, key: &Key, path: &Path) -> Result<Found, Fault> {
    rows::check_table_name(&key.table)?;
    rows::check_kept_here(key)?;
    let at = |error: rusqlite::Error| fault(path, &error);
    let kind: Option<String> = transaction
        .prepare_cached(
            "SELECT type FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view')",
        )
        .and_then(|mut statement| statement.query_one([&key.table], |row| row.get(0)).optional())
        .map_err(at)?;
    match kind.as_deref() {
        None => return Ok(Found::Missing),
        Some("table") => {}
        Some(_) => {
            return Ok(Found::Wrong(format!(
                "`{}` in `{}` is a view, not a table",
                key.table,
                path.display()
            )));
        }
    }
    let mut statement =
        transaction.prepare_cached("SELECT lower(name), pk FROM pragma_table_info(?1)").map_err(at)?;
    let columns: Vec<(String, i64)> = statement
        .query_map([&key.table], |row| Ok((row.get(0)?, row.get(1)?)))
        .and_then(Iterator::collect)
        .map_err(at)?;
    let (needed, primary) = shape(key);
    let describe = |what: String| {
        Found::Wrong(format!(
            "table `{}` in `{}` is not one of scheme `{}`: {what}; name another with `table=`",
            key.table,
            path.display(),
            key.scheme.name()
        ))
    };
    if let Some(missing) = needed.iter().find(|needed| !columns.iter().any(|(name, _)| name == *needed)) {
        return Ok(describe(format!("column `{missing}` is missing")));
    }
    let mut found: Vec<String> =
        columns.iter().filter(|(_, pk)| *pk > 0).map(|(name, _)| name.clone()).collect();
    found.sort_unstable();
    if found != primary {
        return Ok(describe(format!("its primary key is not ({})", primary.join(", "))));
    }
    Ok(Found::Right)
}

/// Makes sure of the table, inside the transaction that is going to use it.
fn ensure_table(
    transaction: &Transaction<'_>,
    key: &Key,
    opened: &mut Opened,
    path: &Path,
) -> Result<(), Fault> {
    let place = format!("{:?} {}", key.scheme, key.place());
    let exists = opened.checked.contains(&place) && {
        transaction
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = ?1 COLLATE NOCASE AND type = 'table'")
            .and_then(|mut statement| statement.exists([&key.table]))
            .map_err(|error| fault(path, &error))?
    };
    if exists {
        return Ok(());
    }
    match found_table(transaction, key, path)? {
        Found::Right => {}
        Found::Wrong(why) => return Err(Fault::new(FaultKind::Refused, why)),
        Found::Missing => {
            let at = |error: rusqlite::Error| fault(path, &error);
            if is_foreign(transaction).map_err(at)? && !is_initialised(transaction).map_err(at)? {
                return Err(Fault::new(
                    FaultKind::Refused,
                    format!(
                        "`{}` holds tables of another program; run `keymill init` to put table `{}` beside them, or \
                         name another file",
                        path.display(),
                        key.table
                    ),
                ));
            }
            create(transaction, key, path)?;
        }
    }
    opened.checked.insert(place);
    Ok(())
}

/// Seconds since the row was changed, by this machine's clock.
fn age_of(connection: &Connection, key: &Key, path: &Path) -> Result<Option<u64>, Fault> {
    let Some((column, seconds)) = rows::touched(key) else { return Ok(None) };
    let since =
        if seconds { format!("`{column}`") } else { format!("CAST(strftime('%s', `{column}`) AS INTEGER)") };
    let sql = format!("SELECT CAST(strftime('%s', 'now') AS INTEGER) - {since} FROM \"{}\" WHERE", key.table);
    let read = |by: &str, values: &[&str]| {
        connection
            .query_row(&format!("{sql} {by}"), rusqlite::params_from_iter(values), |row| row.get(0))
            .optional()
            .map_err(|error| fault(path, &error))
    };
    let age: Option<Option<i64>> = match Counter::of_key(key) {
        Some(counter) => read(&format!("`{}` = ?1", counter.name.0), &[counter.row_name(key)?])?,
        None if key.scheme == Scheme::KeyProducer => {
            let of = ProducerKey::new(rows::serial_of(key)?)?;
            let (by, _) = producer_row(key);
            read(&by, &[&of.table, &of.column, &of.date, &of.number])?
        }
        None => read("name = ?1", &[&key.name])?,
    };
    Ok(age.flatten().and_then(|age| u64::try_from(age).ok()))
}

/// A file that another program made: it is not empty and does not bear our mark.
fn is_foreign(connection: &Connection) -> rusqlite::Result<bool> {
    let mark: i32 = connection.query_one("PRAGMA application_id", [], |row| row.get(0))?;
    if mark == APPLICATION_ID {
        return Ok(false);
    }
    let tables: i64 = connection.query_one("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(tables > 0 || mark != 0)
}

/// Whether somebody has agreed to our tables in a file of another program: `init` has made one.
fn is_initialised(connection: &Connection) -> rusqlite::Result<bool> {
    let table = Scheme::Keymill.default_table();
    connection
        .query_one("SELECT count(*) FROM sqlite_schema WHERE name = ?1", [table], |row| row.get::<_, bool>(0))
}

fn create(transaction: &Transaction<'_>, key: &Key, path: &Path) -> Result<(), Fault> {
    let at = |error: rusqlite::Error| fault(path, &error);
    if !is_foreign(transaction).map_err(at)? {
        transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(at)?;
    }
    transaction.execute_batch(&create_table(key)).map_err(at)
}

/// Commits; only its own `Ok` makes a range usable.
fn commit(transaction: Transaction<'_>, path: &Path) -> Result<(), Fault> {
    transaction.commit().map_err(|error| {
        let mut fault = fault(path, &error);
        if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
            // The commit frame may have reached the disk: it counts after a crash, or it does not.
            fault.kind = FaultKind::Unknown;
        }
        fault
    })
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed)
    )
}

/// What SQLite said, as a fault of ours.
fn fault(path: &Path, error: &rusqlite::Error) -> Fault {
    let file = path.display();
    let Some(code) = error.sqlite_error_code() else {
        return Fault::new(FaultKind::Refused, format!("`{file}`: {error}"));
    };
    let folder = path.parent().unwrap_or(Path::new("/"));
    match code {
        _ if is_busy(error) => Fault::new(
            FaultKind::Unavailable,
            format!("`{file}` stayed locked by other processes for too long"),
        ),
        ErrorCode::DiskFull => Fault::new(
            FaultKind::Unavailable,
            format!("the disk of `{file}` is full; make room, nothing was reserved"),
        ),
        ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Fault::new(
            FaultKind::Refused,
            format!("`{file}` cannot be written; make the file and its folder writable for this user"),
        ),
        ErrorCode::CannotOpen if !folder.is_dir() => Fault::new(
            FaultKind::Refused,
            format!("`{file}` cannot be opened: there is no folder `{}`; create it", folder.display()),
        ),
        ErrorCode::CannotOpen => Fault::new(
            FaultKind::Refused,
            format!(
                "`{file}` cannot be opened; make the file and its folder readable and writable for this user"
            ),
        ),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Fault::new(
            FaultKind::Refused,
            format!(
                "`{file}` is damaged or not a SQLite file ({error}); restore it, then run `keymill repair` with the \
                 highest number issued"
            ),
        ),
        ErrorCode::SystemIoFailure => {
            Fault::new(FaultKind::Unavailable, format!("reading or writing `{file}` failed: {error}"))
        }
        _ => Fault::new(FaultKind::Refused, format!("`{file}`: {error}")),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

enum FileSystem {
    /// Between machines.
    Network(&'static str),
    /// Could be anything.
    Doubtful(&'static str),
}

#[cfg(target_os = "linux")]
fn file_system(folder: &Path) -> Option<FileSystem> {
    use std::os::unix::ffi::OsStrExt;
    let folder = std::ffi::CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut found = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: `folder` ends with NUL and `found` is a statfs to be written; both outlive the call.
    if unsafe { libc::statfs(folder.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: zero is a valid value of every field, and the call has succeeded.
    let kind = unsafe { found.assume_init() }.f_type;
    // The numbers of statfs(2); 32 bits wide whatever the field's type.
    match kind as u32 {
        0x6969 => Some(FileSystem::Network("NFS")),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some(FileSystem::Network("SMB")),
        0x5346_414f => Some(FileSystem::Network("AFS")),
        0x00c3_6400 => Some(FileSystem::Network("Ceph")),
        0x0102_1997 => Some(FileSystem::Doubtful("9p")),
        0x6573_5546 => Some(FileSystem::Doubtful("FUSE")),
        _ => None,
    }
}

#[cfg(not(target_os = "linux"))]
fn file_system(_folder: &Path) -> Option<FileSystem> {
    None
}
