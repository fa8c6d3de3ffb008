//! Two databases of one server, as the shards `s1` and `s2`, and what a program does there.

use std::ops::ControlFlow;
use std::time::Duration;

use keymill::{
    Change, Code, Error, Mill, MoveOptions, MovedRows, Moves, Router, RowsEvent, ShardConnection, Shards,
    WorkError,
};
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, postgres};
use mysql::prelude::Queryable;

/// The first id of the range that moves: genes 32768 to 65535.
pub const FIRST: u64 = 32_768 << 47;

/// An order, and its items.
pub const MARIADB_TABLES: [&str; 2] = [
    "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, note VARCHAR(40) CHARACTER SET latin1, amount DECIMAL(20,6), ratio FLOAT, at TIMESTAMP(6) NULL, bytes VARBINARY(20), kind ENUM('a', 'é') CHARACTER SET utf8mb4, twice DECIMAL(21,6) AS (amount * 2), version BIGINT NOT NULL DEFAULT 0)",
    "CREATE TABLE t_item (item_of BIGINT, n BIGINT, seat BIGINT UNIQUE, name VARCHAR(40) CHARACTER SET utf8mb4, version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (item_of, n), FOREIGN KEY (item_of) REFERENCES t_order (order_id))",
];

pub const POSTGRES_TABLES: [&str; 2] = [
    "CREATE TABLE t_order (order_id bigint PRIMARY KEY, note varchar(40), amount numeric(20,6), ratio real, at timestamptz, bytes bytea, kind text[], twice numeric(21,6) GENERATED ALWAYS AS (amount * 2) STORED, version bigint NOT NULL DEFAULT 0)",
    "CREATE TABLE t_item (item_of bigint REFERENCES t_order, n bigint, seat bigint UNIQUE, name varchar(40), version bigint NOT NULL DEFAULT 0, PRIMARY KEY (item_of, n))",
];

/// Two shards.
pub trait Database: Sync {
    type Connection: ShardConnection + Send + 'static;

    /// Their URLs for operators.
    fn urls(&self) -> [String; 2];

    /// How a program connects to one of them. Its sessions have settings of their own.
    fn connect(
        &self,
        shard: usize,
    ) -> impl Fn() -> Result<Self::Connection, WorkError> + Send + Sync + 'static;

    /// Ends a connection of a program in the middle of what it does.
    fn break_one(&self);

    /// The tables of an order and its items.
    fn tables(&self) -> [&'static str; 2];
}

pub struct MariaDb(mariadb::Private);

impl MariaDb {
    pub fn new() -> MariaDb {
        let server = mariadb::Private::start("");
        let mut root = server.root();
        root.query_drop("CREATE USER shop@'%' IDENTIFIED BY 'secret'").expect("a user");
        for name in ["a", "b"] {
            root.query_drop(format!("CREATE DATABASE {name}")).expect("a database");
            root.query_drop(format!("GRANT ALL ON {name}.* TO keymill@'%', shop@'%'")).expect("a grant");
        }
        MariaDb(server)
    }

    /// Whether the server lacks what MariaDB has since a version.
    pub fn lacks(&self, what: &str, since: (u32, u32)) -> bool {
        mariadb::lacks(what, since, &mut self.0.root())
    }
}

impl Database for MariaDb {
    type Connection = mysql::Conn;

    fn urls(&self) -> [String; 2] {
        let url = self.0.url();
        let server = url.rsplit_once('/').expect("a database").0;
        ["a", "b"].map(|name| format!("{server}/{name}"))
    }

    fn connect(&self, shard: usize) -> impl Fn() -> Result<mysql::Conn, WorkError> + Send + Sync + 'static {
        // The operator's connections are not those of the programs, of which some are broken.
        let url = format!("{}?prefer_socket=false", self.urls()[shard]).replace("keymill:", "shop:");
        move || {
            let mut connection = mysql::Conn::new(url.as_str())?;
            let zone = ["+00:00", "-03:30", "+09:00"][fastrand::usize(..3)];
            let mode = ["", "ANSI_QUOTES,NO_BACKSLASH_ESCAPES", "STRICT_TRANS_TABLES"][fastrand::usize(..3)];
            let isolation = ["READ COMMITTED", "REPEATABLE READ"][fastrand::usize(..2)];
            connection
                .query_drop(format!("SET SESSION time_zone = '{zone}', SESSION sql_mode = '{mode}'"))?;
            connection.query_drop(format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}"))?;
            connection.query_drop("SET SESSION innodb_lock_wait_timeout = 5")?;
            Ok(connection)
        }
    }

    fn break_one(&self) {
        let mut root = self.0.root();
        let programs =
            "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'shop' ORDER BY RAND() LIMIT 1";
        let found: Vec<u64> = root.query(programs).expect("the sessions");
        for id in found {
            let _ = root.query_drop(format!("KILL {id}"));
        }
    }

    fn tables(&self) -> [&'static str; 2] {
        MARIADB_TABLES
    }
}

/// Two schemas of one database: the ids' locks on both sides are of one space.
pub struct Postgres([String; 2]);

impl Postgres {
    pub fn new() -> Postgres {
        let names = ["a", "b"].map(|name| format!("shards_{name}_{}", fastrand::u32(..)));
        for name in &names {
            postgres::Sql::shared().say(&format!("CREATE SCHEMA {name}"));
        }
        Postgres(names)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = postgres::Sql::shared().try_say(&format!("DROP SCHEMA {name} CASCADE"));
        }
    }
}

impl Database for Postgres {
    type Connection = ::postgres::Client;

    fn urls(&self) -> [String; 2] {
        self.0.clone().map(|name| format!("{}?schema={name}", postgres::url()))
    }

    fn connect(
        &self,
        shard: usize,
    ) -> impl Fn() -> Result<::postgres::Client, WorkError> + Send + Sync + 'static {
        let (url, schema) = (postgres::url(), self.0[shard].clone());
        move || {
            let mut client = ::postgres::Client::connect(&url, ::postgres::NoTls)?;
            let zone = ["UTC", "America/St_Johns", "Asia/Tokyo"][fastrand::usize(..3)];
            let style = ["ISO, DMY", "German", "SQL, MDY"][fastrand::usize(..3)];
            client.batch_execute(&format!(
                "SET application_name = '{schema}'; SET search_path = {schema}; SET TimeZone = '{zone}'; SET DateStyle = '{style}'; SET extra_float_digits = -4; SET bytea_output = escape"
            ))?;
            Ok(client)
        }
    }

    fn break_one(&self) {
        let name = &self.0[fastrand::usize(..2)];
        let _ = postgres::Sql::shared().rows(&format!(
            "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE application_name = '{name}' ORDER BY random() LIMIT 1) one"
        ));
    }

    fn tables(&self) -> [&'static str; 2] {
        POSTGRES_TABLES
    }
}

/// What a statement says in one of the shards.
pub fn ask<D: Database>(database: &D, shard: usize, sql: &str) -> Vec<Vec<String>> {
    let mut connection = database.connect(shard)().expect("a connection");
    let rows = connection.ask(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let text = |cell: Option<Vec<u8>>| {
        cell.map_or_else(|| "NULL".to_owned(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    rows.into_iter().map(|row| row.into_iter().map(text).collect()).collect()
}

pub fn goes_on(_: RowsEvent<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Asks again while readers have not followed, on a busy machine too.
pub fn in_time<T>(mut ask: impl FnMut() -> Result<T, Error>) -> T {
    let until = std::time::Instant::now() + Duration::from_secs(240);
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(error) if error.code == Code::NotReady && std::time::Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// A route table of the two shards, whose second half may move, and the shards' tables.
pub struct Stage<D> {
    folder: tempfile::TempDir,
    pub database: D,
    _mill: Mill,
    pub moves: Moves,
    pub rows: MovedRows,
}

impl<D: Database> Stage<D> {
    pub fn new(database: D) -> Stage<D> {
        Stage::settling(database, "200ms")
    }

    /// A statement of a copy waits for a lock for half of `settle`.
    pub fn settling(database: D, settle: &str) -> Stage<D> {
        let folder = tempfile::tempdir().expect("a folder");
        let mill = Mill::open(&patient(&format!("sqlite:{}/routes.keymill", folder.path().display())));
        let mill = mill.expect("a mill");
        let table = format!("version = 1\nsettle = \"{settle}\"\n[[range]]\nupper = 65535\nshard = \"s1\"\n");
        mill.put_routes("orders", &table, Change::Apply).expect("stored");
        for shard in [0, 1] {
            for table in database.tables() {
                ask(&database, shard, table);
            }
        }
        let moves = mill.moves("orders").expect("a name");
        let [from, to] = database.urls();
        let rows = MovedRows::new(&format!("s1={from}"), &format!("s2={to}"))
            .table("t_order", "order_id")
            .table("t_item", "item_of")
            .rows_per_second(1_000_000);
        Stage { folder, database, _mill: mill, moves, rows }
    }

    /// A mill of another program.
    pub fn mill(&self) -> Mill {
        let url = patient(&format!("sqlite:{}/routes.keymill", self.folder.path().display()));
        Mill::open(&url).expect("a mill")
    }

    pub fn start(&self) {
        let plan = self.moves.plan(&[("s1", 1), ("s2", 1)], None).expect("a plan");
        let options = MoveOptions { watch: Duration::ZERO, ..MoveOptions::default() };
        self.moves.start(&plan, 1, &options, Change::Apply).expect("a range moves");
    }

    pub fn shards(&self, router: &Router) -> Shards<D::Connection> {
        Shards::new(router)
            .shard("s1", self.database.connect(0))
            .shard("s2", self.database.connect(1))
            .table("t_order", "order_id")
            .table("t_item", "item_of")
    }
}
