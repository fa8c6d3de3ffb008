//! A replica takes the place of a shard's server in mid-move.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use keymill::{Change, Code, RowRepair, RowsEvent, ShardConnection, WorkError};
use keymill_tests::takers::until;
use keymill_tests::{mariadb, postgres};
use mysql::prelude::Queryable;

use super::broken::{ROWS, fill, repaired};
use super::databases::{Database, FIRST, MARIADB_TABLES, POSTGRES_TABLES, Stage, ask, goes_on};
use super::story::no_acknowledged_write_is_lost;
use super::writes::insert;

/// Two servers, of which the new shard's has a replica. URLs and programs name both.
trait WithReplica: Database {
    /// The replica has rows of the new shard, and follows no more.
    fn lags(&self);
    /// The server of the new shard is killed, and the replica is still one.
    fn dies(&self);
    fn takes_over(&self);
}

/// `scheme://user:password@first,second/database` of two URLs.
fn of_both(first: &str, second: &str) -> String {
    let place = second.split_once('@').and_then(|(_, rest)| rest.split_once('/')).expect("a place").0;
    let (login, database) = first.rsplit_once('/').expect("a database");
    format!("{login},{place}/{database}")
}

struct MariaDbReplica {
    /// Of the servers below. A server that is down does not tell its own.
    urls: [String; 3],
    _old: mariadb::Private,
    new: mariadb::Private,
    replica: mariadb::Private,
}

impl MariaDbReplica {
    fn new() -> MariaDbReplica {
        let old = mariadb::Private::start("");
        let new = mariadb::Private::start("--log-bin=binlog --server-id=1");
        let replica =
            mariadb::Private::start("--log-bin=binlog --server-id=2 --log-slave-updates --read-only");
        replica.follow(&new);
        let urls = [old.url(), new.url(), replica.url()];
        MariaDbReplica { urls, _old: old, new, replica }
    }
}

impl Database for MariaDbReplica {
    type Connection = mysql::Conn;

    fn urls(&self) -> [String; 2] {
        let [old, new, replica] = &self.urls;
        [old.clone(), of_both(new, replica)]
    }

    fn connect(&self, shard: usize) -> impl Fn() -> Result<mysql::Conn, WorkError> + Send + Sync + 'static {
        let urls = if shard == 0 { &self.urls[..1] } else { &self.urls[1..] };
        let urls: Vec<_> = urls.iter().map(|url| format!("{url}?prefer_socket=false")).collect();
        move || {
            for url in &urls {
                let Ok(mut connection) = mysql::Conn::new(url.as_str()) else { continue };
                if connection.query_first("SELECT @@read_only")? == Some(0) {
                    return Ok(connection);
                }
            }
            Err("no server takes writes".into())
        }
    }

    fn break_one(&self) {}

    fn tables(&self) -> [&'static str; 2] {
        MARIADB_TABLES
    }
}

impl WithReplica for MariaDbReplica {
    fn lags(&self) {
        let mut replica = self.replica.root();
        until("the replica follows", Duration::from_secs(240), || {
            let count = replica.query_first::<u64, _>("SELECT COUNT(*) FROM ids.t_order");
            count.is_ok_and(|count| count.is_some_and(|count| count > 0))
        });
        replica.query_drop("STOP REPLICA").expect("it stops");
    }

    fn dies(&self) {
        self.new.kill();
    }

    fn takes_over(&self) {
        let mut replica = self.replica.root();
        replica.query_drop("RESET REPLICA ALL").expect("it forgets its primary");
        replica.query_drop("SET GLOBAL read_only = OFF").expect("it takes writes");
    }
}

struct PostgresReplicas {
    servers: [postgres::Private; 2],
    /// How many of the shards have failed over.
    failovers: AtomicU32,
}

impl PostgresReplicas {
    /// The new shard has a replica whose commits nobody waits for.
    fn asynchronous() -> PostgresReplicas {
        let servers = [postgres::Private::start(""), postgres::Private::start("")];
        servers[1].ci(&["replica"]);
        PostgresReplicas { servers, failovers: AtomicU32::new(2) }
    }

    /// Each shard has a replica that has every commit.
    fn synchronous() -> PostgresReplicas {
        let servers = [postgres::Private::start(""), postgres::Private::start("")];
        for server in &servers {
            server.ci(&["replica", "sync"]);
        }
        PostgresReplicas { servers, failovers: AtomicU32::new(0) }
    }
}

impl Database for PostgresReplicas {
    type Connection = ::postgres::Client;

    fn urls(&self) -> [String; 2] {
        self.servers.each_ref().map(|server| {
            // The script has the port of a server that is down, too.
            let port = |name: &str| {
                let port = std::fs::read_to_string(server.folder().join(format!("port.{name}")));
                port.ok().map(|port| format!("127.0.0.1:{}", port.trim()))
            };
            let hosts: Vec<_> = ["primary", "replica"].into_iter().filter_map(port).collect();
            format!("postgres://keymill:secret@{}/ids", hosts.join(","))
        })
    }

    fn connect(
        &self,
        shard: usize,
    ) -> impl Fn() -> Result<::postgres::Client, WorkError> + Send + Sync + 'static {
        let url = format!("{}?target_session_attrs=read-write", self.urls()[shard]);
        move || Ok(::postgres::Client::connect(&url, ::postgres::NoTls)?)
    }

    /// Each shard fails over once.
    fn break_one(&self) {
        std::thread::sleep(Duration::from_secs(3));
        // ordering: Relaxed — a count of one thread.
        let shard = self.failovers.fetch_add(1, Ordering::Relaxed) as usize;
        if let Some(server) = self.servers.get(shard) {
            server.kill();
            server.ci(&["promote"]);
        }
    }

    fn tables(&self) -> [&'static str; 2] {
        POSTGRES_TABLES
    }
}

impl WithReplica for PostgresReplicas {
    fn lags(&self) {
        let replica = postgres::Sql::root(&self.servers[1].ci(&["url", "replica"]));
        until("the replica follows", Duration::from_secs(240), || {
            replica.rows("SELECT count(*) > 0 FROM t_order") == [["t"]]
        });
        self.servers[1].ci(&["kill", "replica"]);
    }

    fn dies(&self) {
        self.servers[1].kill();
        self.servers[1].ci(&["start", "replica"]);
    }

    fn takes_over(&self) {
        self.servers[1].ci(&["promote"]);
    }
}

/// A copy is stopped by the failover, and the replica lacks rows that were copied.
fn the_next_copy_brings_what_a_replica_lacks<D: WithReplica>(database: D) {
    let stage = Stage::new(database);
    fill(&stage.database);
    stage.start();
    let mut chunks = 0;
    let mut on_event = |event: RowsEvent<'_>| {
        match event {
            RowsEvent::Progress { .. } => {
                chunks += 1;
                match chunks {
                    1 => stage.database.lags(),
                    2 => stage.database.dies(),
                    _ => {}
                }
            }
            RowsEvent::Retries(_) => return ControlFlow::Break(()),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let stopped =
        stage.moves.copy(&stage.rows, Change::Apply, &mut on_event).expect_err("the server is gone");
    println!("{stopped}");
    assert_eq!(stopped.code, Code::StoreUnavailable, "{stopped}");
    // Typed again too early.
    let early = stage.moves.copy(&stage.rows, Change::Apply, &mut goes_on).expect_err("none takes writes");
    println!("{early}");
    assert!(!early.message.contains('\n') && !early.message.contains("secret"), "{early}");
    stage.database.takes_over();
    let copied = stage.moves.copy(&stage.rows, Change::Apply, &mut goes_on).expect("the same copy");
    println!("{copied:?}");
    assert_eq!(copied[0].sent + copied[0].alike, ROWS, "{copied:?}");
    assert!(copied[0].sent > 0 && copied[0].alike > 0, "{copied:?}");
    assert_eq!(repaired(&stage, RowRepair::Named), 0);
}

#[test]
fn a_copy_that_a_failover_of_the_new_shard_stopped_is_made_again_on_mariadb() {
    the_next_copy_brings_what_a_replica_lacks(MariaDbReplica::new());
}

#[test]
fn a_copy_that_a_failover_of_the_new_shard_stopped_is_made_again_on_postgresql() {
    the_next_copy_brings_what_a_replica_lacks(PostgresReplicas::asynchronous());
}

/// What the replica lacks the old shard has: it decides until the move is finished.
fn a_comparison_after_a_failover_brings_acknowledged_writes<D: WithReplica>(database: D) {
    let stage = Stage::new(database);
    stage.start();
    let mill = stage.mill();
    let router = mill.router("orders").expect("a router");
    let shards = stage.shards(&router).deadline(Duration::from_secs(60));
    shards.write(FIRST, |connection| insert(connection, FIRST)).expect("a write");
    assert_eq!(repaired(&stage, RowRepair::Named), 0);
    stage.database.lags();
    shards.write(FIRST + 1, |connection| insert(connection, FIRST + 1)).expect("an acknowledged write");
    stage.database.dies();
    let count = format!("SELECT COUNT(*) FROM t_order WHERE order_id = {}", FIRST + 1);
    stage.database.takes_over();
    let is_there = |shard| ask(&stage.database, shard, &count) == [["1"]];
    assert!(is_there(0) && !is_there(1), "the replica lacks it");
    assert_eq!(repaired(&stage, RowRepair::Bring), 3);
    assert!(is_there(1), "an order and two items are brought");
    shards
        .write(FIRST + 1, |connection| {
            Ok(connection.ask(&format!("UPDATE t_order SET note = 'b' WHERE order_id = {}", FIRST + 1))?)
        })
        .expect("the next write");
}

#[test]
fn acknowledged_writes_that_a_promoted_replica_lacks_are_in_the_old_shard_and_brought_on_mariadb() {
    a_comparison_after_a_failover_brings_acknowledged_writes(MariaDbReplica::new());
}

#[test]
fn acknowledged_writes_that_a_promoted_replica_lacks_are_in_the_old_shard_and_brought_on_postgresql() {
    a_comparison_after_a_failover_brings_acknowledged_writes(PostgresReplicas::asynchronous());
}

#[test]
fn no_acknowledged_write_is_lost_where_both_shards_fail_over_to_replicas_that_have_every_commit_on_postgresql()
 {
    no_acknowledged_write_is_lost(PostgresReplicas::synchronous(), true);
}
