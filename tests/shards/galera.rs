//! A shard is a Galera cluster, of which one member is named.
//!
//! `KEYMILL_TEST_GALERA` names the cluster, and `ci/servers/galera run` sets it; the tests use its database by turns.

use std::ops::ControlFlow;

use keymill::{Change, Code, RowsEvent, WorkError};
use keymill_tests::mariadb;
use mysql::prelude::Queryable;

use super::broken::{ROWS, fill};
use super::databases::{Database, MARIADB_TABLES, Stage, goes_on};
use super::story::no_acknowledged_write_is_lost;

struct Galera {
    alone: mariadb::Private,
    /// Which shard the cluster is.
    cluster: usize,
}

/// The URL of a member of the cluster.
fn member(number: usize) -> String {
    let url = std::env::var("KEYMILL_TEST_GALERA").expect("run it by `ci/servers/galera run`");
    let (login, rest) = url.split_once('@').expect("a login");
    let (hosts, database) = rest.split_once('/').expect("a database");
    let host = hosts.split(',').nth(number).expect("three members");
    format!("{login}@{host}/{database}")
}

impl Galera {
    fn new(cluster: usize) -> Galera {
        let mut connection = mariadb::connection_of(&member(0));
        connection.query_drop("DROP TABLE IF EXISTS t_item, t_order").expect("a test of before left them");
        Galera { alone: mariadb::Private::start(""), cluster }
    }
}

impl Database for Galera {
    type Connection = mysql::Conn;

    fn urls(&self) -> [String; 2] {
        let mut urls = [self.alone.url(), self.alone.url()];
        urls[self.cluster] = member(0);
        urls
    }

    fn connect(&self, shard: usize) -> impl Fn() -> Result<mysql::Conn, WorkError> + Send + Sync + 'static {
        let url = format!("{}?prefer_socket=false", self.urls()[shard]);
        move || Ok(mysql::Conn::new(url.as_str())?)
    }

    fn break_one(&self) {}

    fn tables(&self) -> [&'static str; 2] {
        MARIADB_TABLES
    }
}

#[test]
fn no_acknowledged_write_is_lost_where_the_old_shard_is_a_cluster() {
    no_acknowledged_write_is_lost(Galera::new(0), false);
}

#[test]
fn no_acknowledged_write_is_lost_where_the_new_shard_is_a_cluster() {
    no_acknowledged_write_is_lost(Galera::new(1), false);
}

/// Two members have the same database, and neither sees the other's locks.
#[test]
fn two_members_of_one_cluster_are_one_database() {
    struct Members;
    impl Database for Members {
        type Connection = mysql::Conn;

        fn urls(&self) -> [String; 2] {
            [member(0), member(1)]
        }

        fn connect(
            &self,
            shard: usize,
        ) -> impl Fn() -> Result<mysql::Conn, WorkError> + Send + Sync + 'static {
            let url = format!("{}?prefer_socket=false", member(shard));
            move || Ok(mysql::Conn::new(url.as_str())?)
        }

        fn break_one(&self) {}

        fn tables(&self) -> [&'static str; 2] {
            MARIADB_TABLES.map(|_| "DO 0")
        }
    }
    let _ = Galera::new(0);
    for table in MARIADB_TABLES {
        mariadb::connection_of(&member(0)).query_drop(table).expect("a table");
    }
    let stage = Stage::new(Members);
    stage.start();
    let refused = stage.moves.copy(&stage.rows, Change::Apply, &mut goes_on).expect_err("one database");
    assert!(refused.code == Code::InvalidConfig && refused.message.contains("are one database"), "{refused}");
}

/// The member is named, so another one does not take its place: the copy ends, and goes on when the member is back.
#[test]
fn a_copy_to_a_member_that_is_killed_goes_on_when_it_is_back() {
    let stage = Stage::new(Galera::new(1));
    fill(&stage.database);
    stage.start();
    let script = |words: &[&str]| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../ci/servers/galera");
        assert!(std::process::Command::new(script).args(words).status().expect("a script").success());
    };
    let mut is_killed = false;
    let mut on_event = |event: RowsEvent<'_>| match event {
        RowsEvent::Progress { .. } if !is_killed => {
            is_killed = true;
            script(&["kill", "1"]);
            ControlFlow::Continue(())
        }
        RowsEvent::Retries(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let stopped = stage.moves.copy(&stage.rows, Change::Apply, &mut on_event).expect_err("it is gone");
    println!("{stopped}");
    assert_eq!(stopped.code, Code::StoreUnavailable, "{stopped}");
    script(&["start-node", "1"]);
    let copied = stage.moves.copy(&stage.rows, Change::Apply, &mut goes_on).expect("the same copy");
    assert!(copied[0].alike > 0 && copied[0].sent + copied[0].alike == ROWS, "{copied:?}");
}
