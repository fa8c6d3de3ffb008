//! PgBouncer in transaction mode stands in front of a shard: each transaction may have another session.

use std::ops::ControlFlow;
use std::time::Duration;

use keymill::{Change, Code, RowRepair, RowsEvent, WorkError};
use keymill_tests::postgres;

use super::broken::{ROWS, fill, repaired};
use super::databases::{Database, FIRST, POSTGRES_TABLES, Stage, ask, goes_on};
use super::story::no_acknowledged_write_is_lost;
use super::writes::{insert, ours};

struct Pooled {
    servers: [postgres::Private; 2],
    /// The pooler, and which shard is behind it.
    pooler: String,
    shard: usize,
}

impl Pooled {
    fn new(shard: usize, settings: &[&str]) -> Pooled {
        let servers = [postgres::Private::start(""), postgres::Private::start("")];
        let words: Vec<_> = ["pooler"].iter().chain(settings).copied().collect();
        let pooler = servers[shard].ci(&words);
        Pooled { servers, pooler, shard }
    }
}

impl Database for Pooled {
    type Connection = ::postgres::Client;

    fn urls(&self) -> [String; 2] {
        let mut urls = self.servers.each_ref().map(|server| server.url());
        urls[self.shard].clone_from(&self.pooler);
        urls
    }

    fn connect(
        &self,
        shard: usize,
    ) -> impl Fn() -> Result<::postgres::Client, WorkError> + Send + Sync + 'static {
        let url = self.urls()[shard].clone();
        move || Ok(::postgres::Client::connect(&url, ::postgres::NoTls)?)
    }

    fn break_one(&self) {}

    fn tables(&self) -> [&'static str; 2] {
        POSTGRES_TABLES
    }
}

const MANY: [&str; 2] = ["default_pool_size=20", "max_client_conn=200"];

#[test]
fn no_acknowledged_write_is_lost_behind_a_pooler_that_shares_sessions() {
    for shard in [0, 1] {
        no_acknowledged_write_is_lost(Pooled::new(shard, &MANY), false);
    }
}

/// One session behind the pooler, which other clients have left with settings of theirs.
#[test]
fn rows_are_copied_and_repaired_through_one_session_that_others_use_too() {
    for shard in [0, 1] {
        let stage = Stage::new(Pooled::new(shard, &[]));
        fill(&stage.database);
        stage.start();
        let settings = "SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET search_path = nowhere; SET lock_timeout = 1; SET bytea_output = escape; SET extra_float_digits = -4";
        ask(&stage.database, shard, settings);
        let copied = stage.moves.copy(&stage.rows, Change::Apply, &mut goes_on).expect("a copy");
        assert_eq!(copied[0].sent, ROWS);
        ask(&stage.database, shard, "RESET ALL");
        ask(&stage.database, 1, &format!("DELETE FROM t_order WHERE order_id < {}", FIRST + 1010));
        ask(&stage.database, 1, &format!("INSERT INTO t_order (order_id) VALUES ({FIRST})"));
        assert_eq!(repaired(&stage, RowRepair::BringAndDelete), 11);
    }
}

/// A pooler that gives each statement another session holds no transaction: neither the two of a chunk nor those of a write.
#[test]
fn a_pooler_in_statement_mode_is_named_where_a_transaction_is_needed() {
    for shard in [0, 1] {
        let stage = Stage::new(Pooled::new(shard, &MANY));
        fill(&stage.database);
        stage.start();
        let database = &stage.database;
        database.servers[shard].ci(&["pooler", MANY[0], MANY[1], "pool_mode=statement"]);
        let mut no_more = |event: RowsEvent<'_>| match event {
            RowsEvent::Retries(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let copied = stage.moves.copy(&stage.rows, Change::Apply, &mut no_more);
        let refused = copied.expect_err("no transaction");
        assert!(refused.message.contains("use its transaction or session mode"), "{refused}");
        let mill = stage.mill();
        let router = mill.router("orders").expect("a router");
        let shards = stage.shards(&router).deadline(Duration::from_secs(3));
        let error = shards.write(FIRST, |connection| insert(connection, FIRST)).expect_err("no transaction");
        assert_eq!(ours(&error).code, Code::StoreUnavailable, "{error}");
        for server in &database.servers {
            let rows = postgres::Sql::to(&server.options()).rows("SELECT count(*) FROM t_item");
            assert_eq!(rows, [["0"]], "nothing was written");
        }
    }
}
