//! A shard fails in the middle of a copy and of a write: it is killed, a right is taken away, its disk is full, another server takes its place.
//! Each shard has a server of its own.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keymill::{Change, Code, Error, RowRepair, RowsEvent, ShardConnection, WorkError};
use keymill_tests::{mariadb, postgres};
use mysql::prelude::Queryable;

use super::databases::{Database, FIRST, MARIADB_TABLES, POSTGRES_TABLES, Stage, ask, goes_on};
use super::story::no_acknowledged_write_is_lost;
use super::writes::{insert, ours};

/// Orders of the range before it moves: several chunks.
pub const ROWS: u64 = 12_000;

/// Two servers, each of which is a shard.
trait Servers: Database {
    /// A statement of the superuser in the shard's database.
    fn root(&self, shard: usize, sql: &str);
    fn kill(&self, shard: usize);
    fn start_again(&self, shard: usize);
    /// Takes a right to `t_order` away from operators and programs, or gives it back.
    fn may(&self, shard: usize, right: &str, is_given: bool);
    /// Fills the disk on which the new shard's tables lie, and empties it.
    fn fills(&self, is_full: bool);
}

struct TwoMariaDbs {
    servers: [mariadb::Private; 2],
    kills: AtomicU32,
}

impl TwoMariaDbs {
    /// The new shard's server has further arguments.
    fn new(arguments: &str) -> TwoMariaDbs {
        let servers = [mariadb::Private::start(""), mariadb::Private::start(arguments)];
        for server in &servers {
            let mut root = server.root();
            root.query_drop("CREATE USER shop@'%' IDENTIFIED BY 'secret'").expect("a user");
            root.query_drop("GRANT ALL ON ids.* TO shop@'%'").expect("a right");
        }
        TwoMariaDbs { servers, kills: AtomicU32::new(0) }
    }
}

impl Database for TwoMariaDbs {
    type Connection = mysql::Conn;

    fn urls(&self) -> [String; 2] {
        self.servers.each_ref().map(|server| server.url())
    }

    fn connect(&self, shard: usize) -> impl Fn() -> Result<mysql::Conn, WorkError> + Send + Sync + 'static {
        let url = format!("{}?prefer_socket=false", self.urls()[shard]).replace("keymill:", "shop:");
        move || Ok(mysql::Conn::new(url.as_str())?)
    }

    fn break_one(&self) {
        killed_for_a_moment(self, &self.kills);
    }

    fn tables(&self) -> [&'static str; 2] {
        MARIADB_TABLES
    }
}

impl Servers for TwoMariaDbs {
    fn root(&self, shard: usize, sql: &str) {
        let mut root = self.servers[shard].root();
        root.query_drop("USE ids").expect("a database");
        root.query_drop(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    fn kill(&self, shard: usize) {
        self.servers[shard].kill();
    }

    fn start_again(&self, shard: usize) {
        self.servers[shard].start_again();
    }

    /// A session keeps what it may do in its database, and looks again at what it may do to a table.
    fn may(&self, shard: usize, right: &str, is_given: bool) {
        for user in ["keymill", "shop"] {
            self.root(shard, &format!("REVOKE ALL PRIVILEGES, GRANT OPTION FROM {user}@'%'"));
            for one in ["SELECT", "INSERT", "UPDATE", "DELETE"] {
                for table in ["t_order", "t_item"] {
                    if is_given || one != right || table != "t_order" {
                        self.root(shard, &format!("GRANT {one} ON ids.{table} TO {user}@'%'"));
                    }
                }
            }
        }
    }

    fn fills(&self, is_full: bool) {
        if !is_full {
            // A larger disk: nothing can be dropped where there is no room for the log of it.
            self.servers[1].kill();
            return self.servers[1]
                .start_again_with("--innodb-data-file-path=ibdata1:12M:autoextend:max:200M");
        }
        self.root(1, "CREATE TABLE filler (bytes LONGBLOB)");
        let mut root = self.servers[1].root();
        for bytes in [500_000, 50_000, 5000] {
            let insert = format!("INSERT INTO ids.filler VALUES (REPEAT('x', {bytes}))");
            let full = loop {
                if let Err(error) = root.query_drop(&insert) {
                    break error;
                }
            };
            assert!(full.to_string().contains("is full"), "{full}");
        }
    }
}

struct TwoPostgres {
    servers: [postgres::Private; 2],
    kills: AtomicU32,
}

impl TwoPostgres {
    fn new() -> TwoPostgres {
        let servers = [postgres::Private::start(""), postgres::Private::start("")];
        TwoPostgres { servers, kills: AtomicU32::new(0) }
    }

    /// The new shard's tables lie on a file system of 24 MiB.
    fn small() -> TwoPostgres {
        let new = postgres::Private::prepare("");
        std::fs::create_dir_all(new.folder()).expect("a folder");
        std::fs::write(new.folder().join("small"), "24M").expect("a file");
        new.start_again();
        let place = Path::new(&new.ci(&["socket"])).join("small");
        let root = postgres::Sql::root(&new.url());
        root.say(&format!("CREATE TABLESPACE small LOCATION '{}'", place.display()));
        root.say(
            "GRANT CREATE ON TABLESPACE small TO keymill; ALTER ROLE keymill SET default_tablespace = small",
        );
        TwoPostgres { servers: [postgres::Private::start(""), new], kills: AtomicU32::new(0) }
    }
}

impl Database for TwoPostgres {
    type Connection = ::postgres::Client;

    fn urls(&self) -> [String; 2] {
        self.servers.each_ref().map(|server| server.url())
    }

    fn connect(
        &self,
        shard: usize,
    ) -> impl Fn() -> Result<::postgres::Client, WorkError> + Send + Sync + 'static {
        let url = self.urls()[shard].clone();
        move || Ok(::postgres::Client::connect(&url, ::postgres::NoTls)?)
    }

    fn break_one(&self) {
        killed_for_a_moment(self, &self.kills);
    }

    fn tables(&self) -> [&'static str; 2] {
        POSTGRES_TABLES
    }
}

impl Servers for TwoPostgres {
    fn root(&self, shard: usize, sql: &str) {
        postgres::Sql::root(&self.urls()[shard]).say(sql);
    }

    fn kill(&self, shard: usize) {
        self.servers[shard].kill();
    }

    fn start_again(&self, shard: usize) {
        self.servers[shard].start_again();
    }

    fn may(&self, shard: usize, right: &str, is_given: bool) {
        let verb =
            if is_given { "GRANT {} ON t_order TO keymill" } else { "REVOKE {} ON t_order FROM keymill" };
        self.root(shard, &verb.replace("{}", right));
    }

    fn fills(&self, is_full: bool) {
        let root = postgres::Sql::root(&self.urls()[1]);
        if !is_full {
            root.say("DROP TABLE filler");
            return;
        }
        root.say("CREATE TABLE filler (bytes text) TABLESPACE small; ALTER TABLE filler ALTER bytes SET STORAGE PLAIN");
        let full = loop {
            if let Err(error) = root.try_say("INSERT INTO filler SELECT repeat('x', 8000)") {
                break format!("{error:?}");
            }
        };
        assert!(full.contains("No space left"), "{full}");
    }
}

/// Orders of before the move, in the old shard only.
pub fn fill<D: Database>(database: &D) {
    for from in (0..ROWS).step_by(1000) {
        let values: Vec<String> = (from..from + 1000)
            .map(|n| format!("({}, 'an order of before', {n}.5)", FIRST + 1000 + n))
            .collect();
        ask(
            database,
            0,
            &format!("INSERT INTO t_order (order_id, note, amount) VALUES {}", values.join(", ")),
        );
    }
}

pub fn repaired<D: Database>(stage: &Stage<D>, repair: RowRepair) -> u64 {
    let found = stage.moves.verify(&stage.rows, repair, Change::Apply, &mut goes_on).expect("a comparison");
    assert!(found.is_alike(), "{found:?}");
    found.tables.iter().map(|table| table.repaired).sum()
}

/// A copy in which something happens behind the first chunk, and which is not tried again; then what has happened is mended, and the same copy
/// is made. Answers with the error of the first one.
fn copied_again<D: Database>(stage: &Stage<D>, happens: impl FnOnce(), mended: impl FnOnce()) -> Error {
    let mut happens = Some(happens);
    let mut on_event = |event: RowsEvent<'_>| match event {
        RowsEvent::Progress { .. } => {
            if let Some(happens) = happens.take() {
                happens();
            }
            ControlFlow::Continue(())
        }
        RowsEvent::Retries(error) => {
            // Ids are reserved, and no rows.
            assert!(!error.message.contains("reserved"), "{error}");
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    let copied = stage.moves.copy(&stage.rows, Change::Apply, &mut on_event);
    let error = copied.expect_err("the copy ends");
    println!("{error}");
    assert!(!error.message.contains('\n') && !error.message.contains("secret"), "{error}");
    mended();
    let copied = stage.moves.copy(&stage.rows, Change::Apply, &mut goes_on).expect("the same copy goes on");
    assert_eq!(copied[0].sent + copied[0].alike, ROWS, "{copied:?}");
    assert!(copied[0].alike > 0, "it goes on where it was: {copied:?}");
    assert_eq!(repaired(stage, RowRepair::Named), 0);
    error
}

/// A write that is refused, and made again when what has happened is mended. Nothing of the first one is there.
fn written_again<D: Database>(stage: &Stage<D>, happens: impl FnOnce(), mended: impl FnOnce()) -> Error {
    let mill = stage.mill();
    let router = mill.router("orders").expect("a router");
    let shards = stage.shards(&router).deadline(Duration::from_secs(20));
    shards.write(FIRST, |connection| insert(connection, FIRST)).expect("a write");
    happens();
    let error =
        shards.write(FIRST + 1, |connection| insert(connection, FIRST + 1)).expect_err("it is refused");
    println!("{error}");
    mended();
    let count = format!("SELECT COUNT(*) FROM t_order WHERE order_id = {}", FIRST + 1);
    for shard in [0, 1] {
        assert_eq!(ask(&stage.database, shard, &count), [["0"]], "nothing was written");
    }
    let shards = shards.deadline(Duration::from_secs(60));
    shards.write(FIRST + 1, |connection| insert(connection, FIRST + 1)).expect("the same write");
    for shard in [0, 1] {
        assert_eq!(ask(&stage.database, shard, &count), [["1"]]);
    }
    let error = ours(&error);
    assert!(!error.message.contains('\n'), "{error}");
    Error::new(error.code, error.message.clone())
}

fn a_killed_shard_is_waited_for<S: Servers>(database: S) {
    let stage = Stage::new(database);
    fill(&stage.database);
    stage.start();
    let database = &stage.database;
    for shard in [1, 0] {
        let error = copied_again(&stage, || database.kill(shard), || database.start_again(shard));
        assert_eq!(error.code, Code::StoreUnavailable, "{error}");
        ask(database, 1, "DELETE FROM t_order");
    }
    // The command waits for a minute.
    let mut is_killed = false;
    let mut retries = 0;
    let mut on_event = |event: RowsEvent<'_>| {
        match event {
            RowsEvent::Progress { .. } if !is_killed => {
                is_killed = true;
                database.kill(1);
            }
            RowsEvent::Retries(_) => {
                retries += 1;
                if retries == 3 {
                    database.start_again(1);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    };
    stage.moves.copy(&stage.rows, Change::Apply, &mut on_event).expect("it goes on by itself");
    assert!(retries >= 3);
    assert_eq!(repaired(&stage, RowRepair::Named), 0);
}

#[test]
fn a_copy_whose_shard_is_killed_waits_or_goes_on_when_it_is_typed_again_on_mariadb() {
    a_killed_shard_is_waited_for(TwoMariaDbs::new(""));
}

#[test]
fn a_copy_whose_shard_is_killed_waits_or_goes_on_when_it_is_typed_again_on_postgresql() {
    a_killed_shard_is_waited_for(TwoPostgres::new());
}

/// Kills one of the servers by turns, and starts it again.
fn killed_for_a_moment<S: Servers>(servers: &S, kills: &AtomicU32) {
    // So that something is written in between.
    std::thread::sleep(Duration::from_secs(3));
    // ordering: Relaxed — a count of one thread.
    let shard = kills.fetch_add(1, Ordering::Relaxed) as usize % 2;
    servers.kill(shard);
    std::thread::sleep(Duration::from_millis(300));
    servers.start_again(shard);
}

#[test]
fn no_acknowledged_write_is_lost_where_the_servers_are_killed_by_turns_on_mariadb() {
    no_acknowledged_write_is_lost(TwoMariaDbs::new(""), true);
}

#[test]
fn no_acknowledged_write_is_lost_where_the_servers_are_killed_by_turns_on_postgresql() {
    no_acknowledged_write_is_lost(TwoPostgres::new(), true);
}

/// A right of the tables is taken away in mid-copy and in mid-write.
fn a_right_that_is_taken_away_is_named<S: Servers>(database: S) {
    let stage = Stage::new(database);
    fill(&stage.database);
    let database = &stage.database;
    for shard in [0, 1] {
        database.may(shard, "INSERT", true);
    }
    stage.start();
    for (shard, right) in [(1, "INSERT"), (0, "SELECT")] {
        let error =
            copied_again(&stage, || database.may(shard, right, false), || database.may(shard, right, true));
        let words = error.message.to_lowercase();
        assert!(
            error.code == Code::StoreRefused && words.contains("t_order") && words.contains("denied"),
            "{shard} {right}: {error}"
        );
        ask(database, 1, "DELETE FROM t_order");
    }
    let error =
        written_again(&stage, || database.may(1, "INSERT", false), || database.may(1, "INSERT", true));
    assert!(error.code == Code::StoreRefused && error.message.contains("nothing was written"), "{error}");
    assert!(error.message.contains("shard `s2`") && error.message.contains("denied"), "{error}");
}

#[test]
fn a_right_that_is_taken_away_in_the_middle_is_named_and_nothing_is_written_on_mariadb() {
    a_right_that_is_taken_away_is_named(TwoMariaDbs::new(""));
}

#[test]
fn a_right_that_is_taken_away_in_the_middle_is_named_and_nothing_is_written_on_postgresql() {
    a_right_that_is_taken_away_is_named(TwoPostgres::new());
}

fn a_full_disk_is_named<S: Servers>(database: S) {
    let stage = Stage::new(database);
    fill(&stage.database);
    stage.start();
    let database = &stage.database;
    let mill = stage.mill();
    let router = mill.router("orders").expect("a router");
    let shards = stage.shards(&router).deadline(Duration::from_secs(20));
    let items: Vec<String> =
        (0..5000).map(|n| format!("({FIRST}, {n}, 'an item of a large order')")).collect();
    let work = |connection: &mut S::Connection| {
        connection.ask(&format!("INSERT INTO t_order (order_id) VALUES ({FIRST})"))?;
        connection.ask(&format!("INSERT INTO t_item (item_of, n, name) VALUES {}", items.join(", ")))?;
        Ok(())
    };
    let happens = || {
        database.fills(true);
        let refused = shards.write(FIRST, work).expect_err("the disk is full");
        println!("{refused}");
        let refused = ours(&refused);
        assert!(refused.message.contains("shard `s2`") && refused.message.contains("nothing was written"));
        for shard in [0, 1] {
            assert_eq!(ask(database, shard, "SELECT COUNT(*) FROM t_item"), [["0"]]);
        }
    };
    let error = copied_again(&stage, happens, || database.fills(false));
    let words = error.message.to_lowercase();
    assert!(words.contains("full") && words.contains("make room"), "{error}");
    shards.write(FIRST, work).expect("the same write");
    assert_eq!(repaired(&stage, RowRepair::Named), 0);
}

/// The system tablespace ends at 32 MiB, and has all tables.
#[test]
fn a_full_disk_of_the_new_shard_is_named_and_the_same_copy_goes_on_on_mariadb() {
    let version = mariadb::version(&mut mariadb::Private::start("").root());
    if version.starts_with("11.") {
        println!("not run: MariaDB {version} ends by itself where its tablespace is full");
        return;
    }
    a_full_disk_is_named(TwoMariaDbs::new(
        "--innodb-file-per-table=OFF --innodb-data-file-path=ibdata1:12M:autoextend:max:32M",
    ));
}

#[test]
fn a_full_disk_of_the_new_shard_is_named_and_the_same_copy_goes_on_on_postgresql() {
    a_full_disk_is_named(TwoPostgres::small());
}
