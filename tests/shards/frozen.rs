//! A program stands still in the middle of a write, and an operator goes on.

use std::cell::RefCell;
use std::error::Error as StdError;
use std::ops::ControlFlow;

use keymill::{Change, RowRepair, ShardConnection, ShardFailure, ShardKind, ShardRow, Shards, WorkError};

use super::databases::{Database, FIRST, MariaDb, Postgres, Stage, ask, in_time};

type Then = RefCell<Option<Box<dyn FnOnce()>>>;

thread_local! {
    /// What happens before the next statement that writes to the new shard.
    static BEFORE_CHANGE: Then = const { RefCell::new(None) };
}

/// A connection whose program stands still before it changes a row of the new shard.
struct Frozen<C>(C, bool);

impl<C: ShardConnection> ShardConnection for Frozen<C> {
    fn kind(&self) -> ShardKind {
        self.0.kind()
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<ShardRow>, ShardFailure> {
        if self.1 && ["INSERT", "UPDATE", "DELETE"].iter().any(|verb| sql.starts_with(verb)) {
            if let Some(then) = BEFORE_CHANGE.take() {
                then();
            }
        }
        self.0.ask(sql)
    }

    fn failure(error: &(dyn StdError + 'static)) -> Option<ShardFailure> {
        C::failure(error)
    }
}

fn verify<D: Database>(stage: &Stage<D>, repair: RowRepair) -> bool {
    let mut goes_on = |_: keymill::RowsEvent<'_>| ControlFlow::Continue(());
    match stage.moves.verify(&stage.rows, repair, Change::Apply, &mut goes_on) {
        Ok(found) => found.is_alike(),
        Err(error) => {
            println!("{error}");
            false
        }
    }
}

/// An id was deleted in the old shard and is left in the new one. While a program inserts it again, an operator repairs what differs.
fn an_id_that_comes_back_is_not_deleted<D: Database>(database: D) {
    let stage = Stage::new(database);
    let mill = stage.mill();
    let router = mill.router("orders").expect("a router");
    stage.start();
    let others = stage.shards(&router);
    for id in FIRST + 1..FIRST + 9 {
        let insert = format!("INSERT INTO t_order (order_id, note) VALUES ({id}, 'other')");
        others.write(id, |connection| Ok(connection.ask(&insert)?)).expect("a write");
    }
    assert!(verify(&stage, RowRepair::Bring));
    for _ in 0..4 {
        in_time(|| stage.moves.next(None, Change::Apply));
    }
    ask(&stage.database, 1, &format!("INSERT INTO t_order (order_id, note) VALUES ({FIRST}, 'left')"));
    let connect = |shard: usize| {
        let connect = stage.database.connect(shard);
        move || Ok::<_, WorkError>(Frozen(connect()?, shard == 1))
    };
    let shards = Shards::new(&router)
        .shard("s1", connect(0))
        .shard("s2", connect(1))
        .table("t_order", "order_id")
        .table("t_item", "item_of");
    std::thread::scope(|scope| {
        let (stage, (stands, is_standing), (goes_on, may_go_on)) =
            (&stage, std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let writer = scope.spawn(move || {
            BEFORE_CHANGE.set(Some(Box::new(move || {
                stands.send(()).expect("the test");
                let _ = may_go_on.recv_timeout(std::time::Duration::from_secs(4));
            })));
            shards.write(FIRST, |connection| {
                Ok(connection
                    .ask(&format!("INSERT INTO t_order (order_id, note) VALUES ({FIRST}, 'again')"))?)
            })
        });
        is_standing.recv().expect("the program stands still");
        let is_alike = verify(stage, RowRepair::BringAndDelete);
        let _ = goes_on.send(());
        writer.join().expect("a writer").expect("a write");
        println!("alike: {is_alike}");
    });
    for shard in [0, 1] {
        assert_eq!(
            ask(&stage.database, shard, &format!("SELECT note FROM t_order WHERE order_id = {FIRST}")),
            [["again"]],
            "shard {shard} has what was acknowledged"
        );
    }
}

#[test]
fn an_id_that_comes_back_while_rows_are_repaired_is_not_deleted_on_mariadb() {
    an_id_that_comes_back_is_not_deleted(MariaDb::new());
}

#[test]
fn an_id_that_comes_back_while_rows_are_repaired_is_not_deleted_on_postgresql() {
    an_id_that_comes_back_is_not_deleted(Postgres::new());
}
