//! A store with a table of its own, and access to the table behind the store.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use keymill::serial::SerialPattern;
use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{Key, MAX_NUMBER, Mark, Request, RowMark, Scheme, SerialKey, Store, Stride};
use keymill::{CounterColumns, Holds, counter_columns};
use keymill_tests::disguise::Disguise;
use keymill_tests::{mariadb, postgres, redis, schemes};
use mysql::prelude::Queryable;

use crate::counted::Counted;

pub const DAY: u64 = 20_261_120_000_000_000;
pub const NEXT_DAY: u64 = 20_261_121_000_000_000;

/// The kind of source: a segment, or a serial number under a scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Segment,
    Serial,
    Producer,
    /// The row of another program's counter. JPA's: where no other program is left.
    Counter(Scheme),
    /// tinyid's row of every third number, as its source counts them.
    Strided,
}

impl Kind {
    pub const LEAF: Kind = Kind::Counter(Scheme::LeafAlloc);
    pub const COSID: Kind = Kind::Counter(Scheme::Cosid);
    pub const JPA: Kind = Kind::Counter(Scheme::JpaTable);

    pub fn all() -> impl Iterator<Item = Kind> {
        let own = [Kind::Segment, Kind::Serial, Kind::Producer, Kind::Strided];
        own.into_iter().chain(schemes::counters().map(Kind::Counter))
    }

    pub fn scheme(self) -> Scheme {
        match self {
            Kind::Segment | Kind::Serial => Scheme::Keymill,
            Kind::Producer => Scheme::KeyProducer,
            Kind::Counter(scheme) => scheme,
            Kind::Strided => Scheme::TinyIdInfo,
        }
    }

    pub fn is_serial(self) -> bool {
        matches!(self, Kind::Serial | Kind::Producer)
    }

    pub fn period(self) -> u64 {
        if self.is_serial() { DAY } else { 0 }
    }

    /// The columns of a table of another program's counter.
    pub fn columns(self) -> Option<&'static CounterColumns> {
        counter_columns(self.scheme())
    }

    fn holds_next(self) -> bool {
        self.columns().is_some_and(|columns| columns.holds == Holds::Next)
    }

    /// The maximum of a row whose next number is `next`.
    pub fn kept(self, next: u64) -> u64 {
        if self.holds_next() { next } else { self.stride().nth(next) - 1 }
    }

    /// The last number: a column of the next number has to hold the number after it.
    pub fn last(self) -> u64 {
        if self.holds_next() { MAX_NUMBER - 1 } else { self.stride().up_to(MAX_NUMBER) }
    }

    /// The numbers that a row owns.
    pub fn stride(self) -> Stride {
        if self == Kind::Strided { Stride::new(3, 2).unwrap() } else { Stride::EVERY }
    }

    pub fn key(self, table: &str, name: &str, init_max: bool) -> Arc<Key> {
        let serial = self.is_serial().then(|| SerialKey {
            table: name.to_owned(),
            column: "id".to_owned(),
            pattern: SerialPattern::new("yyyyMMdd", "0000", "UTC").unwrap(),
            init_max,
        });
        Arc::new(Key {
            step: schemes::step(self.scheme(), 1),
            stride: self.stride(),
            ..schemes::key(self.scheme(), table, name, serial)
        })
    }
}

/// The store of a bench.
pub enum Place {
    Memory(Arc<Memory>),
    /// The file, and the folder that lives as long as the bench.
    Sqlite(PathBuf, #[allow(dead_code)] Option<tempfile::TempDir>),
    MariaDb,
    /// The URL of a user's own TiDB, or of a MariaDB that reports TiDB's version: keymill sends both the same statements.
    TiDb(String),
    Postgres,
    Redis,
}

/// The environment variable with the URL of a user's own TiDB.
pub const TIDB: &str = "KEYMILL_TIDB_URL";

/// The TiDB's URL. Without one a line says that these tests do not run.
fn tidb() -> String {
    static DISGUISE: OnceLock<Disguise> = OnceLock::new();
    if let Ok(url) = std::env::var(TIDB) {
        return url;
    }
    let disguise = DISGUISE.get_or_init(|| {
        println!(
            "not run on a TiDB server: {TIDB} is not set; the statements for TiDB run on MariaDB instead"
        );
        Disguise::tidb(mariadb::options().hosts[0].clone())
    });
    disguise.in_front_of(&mariadb::url())
}

/// One store, with a table of its own, and access to the table behind the store.
pub struct Bench {
    pub kind: Kind,
    pub place: Place,
    pub table: String,
}

pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{prefix}_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

impl Bench {
    pub fn memory(kind: Kind) -> Bench {
        Bench { kind, place: Place::Memory(Memory::new()), table: kind.scheme().default_table().to_owned() }
    }

    pub fn sqlite(kind: Kind) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Sqlite(folder.path().join("ids.db"), Some(folder));
        Bench { kind, place, table: kind.scheme().default_table().to_owned() }
    }

    /// A busy server may not answer in time.
    fn make_tables(&self) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while let Err(fault) = self.open().init(&[self.key("x")], false) {
            assert!(fault.kind.is_outage() && std::time::Instant::now() < until, "{fault}");
        }
    }

    pub fn mariadb(kind: Kind) -> Bench {
        let bench = Bench { kind, place: Place::MariaDb, table: unique("t") };
        bench.make_tables();
        bench
    }

    pub fn postgres(kind: Kind) -> Bench {
        let bench = Bench { kind, place: Place::Postgres, table: unique("t") };
        bench.make_tables();
        bench
    }

    /// With the statements for TiDB.
    pub fn tidb(kind: Kind) -> Bench {
        let bench = Bench { kind, place: Place::TiDb(tidb()), table: unique("t") };
        bench.make_tables();
        bench
    }

    pub fn redis(kind: Kind) -> Bench {
        Bench { kind, place: Place::Redis, table: unique("t") }
    }

    pub fn is_mysql(&self) -> bool {
        matches!(self.place, Place::MariaDb | Place::TiDb(_))
    }

    /// Directly on the database.
    fn connection(&self) -> mysql::Conn {
        match std::env::var(TIDB) {
            Ok(url) if matches!(self.place, Place::TiDb(_)) => mariadb::connection_of(&url),
            _ => mariadb::connection(),
        }
    }

    pub fn key(&self, name: &str) -> Arc<Key> {
        self.kind.key(&self.table, name, false)
    }

    pub fn open(&self) -> Box<dyn Store> {
        self.counting(self.open_bare())
    }

    /// The store as a source of this kind sees it.
    pub fn counting(&self, store: Box<dyn Store>) -> Box<dyn Store> {
        if self.kind == Kind::Strided { Box::new(Counted(store)) } else { store }
    }

    fn open_bare(&self) -> Box<dyn Store> {
        match &self.place {
            Place::Memory(memory) => Box::new(MemoryStore::new(Arc::clone(memory))),
            Place::Sqlite(path, _) => {
                // Sixteen writers wait for sixteen flushes of a disk that may be slow.
                let options = sqlite::SqliteOptions { busy: Duration::from_secs(60), ..Default::default() };
                Box::new(SqliteStore::new(path.clone(), options))
            }
            Place::MariaDb => Box::new(mariadb::store(mariadb::options())),
            Place::TiDb(url) => Box::new(mariadb::store(mariadb::options_of(url))),
            Place::Postgres => Box::new(postgres::store(postgres::options())),
            Place::Redis => Box::new(redis::store(redis::options())),
        }
    }

    pub fn request(&self, name: &str, len: u64) -> Request {
        let period = self.kind.period();
        Request {
            key: self.key(name),
            len,
            high_water: Mark::default(),
            start: 1,
            last: MAX_NUMBER,
            period,
            period_max: period,
            clock: None,
            heal: false,
            max_jump: 0,
            single: 0,
            writer: 0,
        }
    }

    pub fn mark(&self, next: u64) -> Mark {
        Mark { period: self.kind.period(), next }
    }

    pub fn stands_at(&self, name: &str) -> Option<u64> {
        self.open().look(&self.key(name)).unwrap().map(|row| row.mark.next)
    }

    /// Runs one statement on the database itself; `{t}` is the table.
    pub fn tamper(&self, sql: &str, values: &[&str]) -> u64 {
        let sql = sql.replace("{t}", &self.table);
        match &self.place {
            Place::Memory(_) | Place::Redis => unreachable!("it has no SQL"),
            Place::Sqlite(path, _) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.execute(&sql, rusqlite::params_from_iter(values)).unwrap() as u64
            }
            Place::MariaDb | Place::TiDb(_) => {
                let mut connection = self.connection();
                connection.exec_drop(&sql, values.to_vec()).unwrap();
                connection.affected_rows()
            }
            Place::Postgres => postgres::Sql::shared().say_with(&sql, values),
        }
    }

    /// Why the database refuses a statement; `None`: it carried it out.
    pub fn refusal(&self, sql: &str) -> Option<String> {
        match &self.place {
            Place::Memory(_) | Place::Redis => unreachable!("it has no SQL"),
            Place::Sqlite(path, _) => {
                let connection = rusqlite::Connection::open(path).unwrap();
                connection.execute_batch(sql).err().map(|error| error.to_string())
            }
            Place::MariaDb | Place::TiDb(_) => {
                self.connection().query_drop(sql).err().map(|error| error.to_string())
            }
            Place::Postgres => {
                let refused = postgres::Sql::shared().try_say(sql).err()?;
                Some(refused.as_db_error().map_or_else(|| refused.to_string(), ToString::to_string))
            }
        }
    }

    pub fn set_row(&self, name: &str, mark: Mark) {
        let key = self.key(name);
        if let Place::Memory(memory) = &self.place {
            let next = self.kind.stride().nth(mark.next);
            return memory.set_row(&key, Mark { next, ..mark }).unwrap();
        }
        let changed = match &key.serial {
            None if self.kind != Kind::Segment => self.set_maximum(name, self.kind.kept(mark.next)),
            Some(serial) if self.kind == Kind::Producer => self.tamper(
                "UPDATE {t} SET MAXSERIALNO = ? WHERE TABLENAME = ?",
                &[&serial.pattern.text(mark.period, mark.next - 1), &serial.table.to_uppercase()],
            ),
            _ => return self.set_row_mark(name, key.row_at(mark)),
        };
        assert_eq!(changed, 1, "there is a row to set");
    }

    /// The same for a row of keymill's own table, with its status.
    pub fn set_row_mark(&self, name: &str, RowMark { mark, status, writer }: RowMark) {
        let key = self.key(name);
        if let Place::Memory(memory) = &self.place {
            return memory.set_row_mark(&key, RowMark { mark, status, writer }).unwrap();
        }
        let (stores, index, chunk) =
            status.partition.map_or((1, 0, 0), |part| (part.stores, part.index, part.chunk));
        let [period, next, stores, store, chunk] =
            [mark.period, mark.next, stores, index + 1, chunk].map(|number| number.to_string());
        let (state, writer) = (status.state.word(), writer.to_string());
        if matches!(self.place, Place::Redis) {
            let of_mark = ["date", &period, "next", &next, "state", state];
            let of_store = ["stores", &stores, "store", &store, "chunk", &chunk, "writer", &writer];
            let new: u64 = self.redis_say("HSET", name, &[&of_mark[..], &of_store].concat());
            return assert_eq!(new, 0, "there is a row to set");
        }
        let changed = self.tamper(
            "UPDATE {t} SET date = ?, next = ?, state = ?, stores = ?, store = ?, chunk = ?, writer = ? WHERE name = ?",
            &[&period, &next, state, &stores, &store, &chunk, &writer, key.name.as_str()],
        );
        assert_eq!(changed, 1, "there is a row to set");
    }

    /// Directly on the database, on another program's table.
    pub fn set_maximum(&self, name: &str, maximum: u64) -> u64 {
        let CounterColumns { name: by, maximum: column, .. } = self.kind.columns().unwrap();
        let sql = format!("UPDATE {{t}} SET {column} = ? WHERE {by} = ?");
        // As a number: SQLite would keep a text.
        match &self.place {
            Place::Sqlite(path, _) => {
                let sql = sql.replace("{t}", &self.table);
                let values = rusqlite::params![maximum as i64, name];
                rusqlite::Connection::open(path).unwrap().execute(&sql, values).unwrap() as u64
            }
            _ => self.tamper(&sql, &[&maximum.to_string(), name]),
        }
    }

    /// Whether the row of this name, which ends in a space, is stored under the name without it. For MySQL and MariaDB.
    pub fn pads(&self, name: &str) -> bool {
        let Some(CounterColumns { name: by, .. }) = self.kind.columns() else { return true };
        // `LIKE` compares the space under every collation.
        let sql = format!("SELECT COUNT(*) FROM {} WHERE {by} LIKE ?", self.table);
        self.connection().exec_first(sql, (name,)).unwrap() == Some(0)
    }

    /// Runs one command on a row's key, directly on the server.
    pub fn redis_say<T: ::redis::FromRedisValue>(&self, command: &str, name: &str, words: &[&str]) -> T {
        let at = format!("{}:{}", self.table, self.key(name).name);
        let words: Vec<_> = [command, &at].iter().chain(words).copied().collect();
        redis::say(&mut redis::connection_of(&redis::url()), &words)
    }

    pub fn set_text(&self, name: &str, text: Option<&str>) {
        if let Place::Memory(memory) = &self.place {
            return memory.set_text(&self.key(name), text).unwrap();
        }
        let name = name.to_uppercase();
        match text {
            Some(text) => self.tamper("UPDATE {t} SET MAXSERIALNO = ? WHERE TABLENAME = ?", &[text, &name]),
            None => self.tamper("UPDATE {t} SET MAXSERIALNO = NULL WHERE TABLENAME = ?", &[&name]),
        };
    }

    pub fn delete_row(&self, name: &str) {
        let key = self.key(name);
        match (&self.place, self.kind) {
            (Place::Memory(memory), _) => assert!(memory.delete_row(&key)),
            (Place::Redis, _) => assert_eq!(self.redis_say::<u64>("DEL", name, &[]), 1),
            (_, Kind::Producer) => {
                assert_eq!(self.tamper("DELETE FROM {t} WHERE TABLENAME = ?", &[&name.to_uppercase()]), 1);
            }
            (_, kind) => {
                let (column, name) =
                    kind.columns().map_or(("name", key.name.as_str()), |columns| (columns.name, name));
                assert_eq!(self.tamper(&format!("DELETE FROM {{t}} WHERE {column} = ?"), &[name]), 1);
            }
        }
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if (self.is_mysql() || matches!(self.place, Place::Postgres)) && !std::thread::panicking() {
            self.tamper("DROP TABLE IF EXISTS {t}", &[]);
        }
    }
}
