//! A program stands still in the middle of a write, and an operator goes on.

use std::cell::{Cell, RefCell};
use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use keymill::{
    Change, Router, RowRepair, RowsEvent, ShardConnection, ShardFailure, ShardKind, ShardRow, Shards,
    WorkError,
};

use super::databases::{Database, FIRST, MariaDb, Postgres, Stage, ask, in_time};

type Then = RefCell<Option<Box<dyn FnOnce()>>>;

thread_local! {
    /// The answer of the next commit of the old shard is lost.
    static IS_LOST: Cell<bool> = const { Cell::new(false) };
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
        // MySQL is told settings behind the verb.
        let verbs =
            ["INSERT INTO", "UPDATE `", "UPDATE \"", "DELETE FROM", "INSERT /*", "UPDATE /*", "DELETE /*"];
        let changes = verbs.iter().any(|verb| sql.contains(verb));
        if let Some(then) = (self.1 && changes).then(|| BEFORE_CHANGE.take()).flatten() {
            then();
        }
        let answer = self.0.ask(sql);
        if !self.1 && sql.ends_with("COMMIT") && IS_LOST.replace(false) {
            return Err(ShardFailure { is_broken: true, ..ShardFailure::default() });
        }
        answer
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

/// While reads go to the new shard, a read does not see what only the old one has.
fn the_work_of_the_next_write_sees_what_was_not_acknowledged<D: Database>(database: D) {
    let stage = Stage::new(database);
    let moving = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\nto = \"s2\"\npercent = 100\n";
    let router = Router::from_text(moving).expect("a table");
    let connect = |shard: usize| {
        let connect = stage.database.connect(shard);
        move || Ok::<_, WorkError>(Frozen(connect()?, shard == 1))
    };
    let shards = Shards::new(&router)
        .shard("s1", connect(0))
        .shard("s2", connect(1))
        .table("t_order", "order_id")
        .table("t_item", "item_of");
    let insert = format!("INSERT INTO t_order (order_id, note) VALUES ({FIRST}, 'paid')");
    let looks = format!("SELECT order_id FROM t_order WHERE order_id = {FIRST}");
    let error = shards.write(FIRST, |connection| {
        connection.ask(&insert)?;
        IS_LOST.set(true);
        Ok(())
    });
    let error = error.expect_err("the answer is lost").to_string();
    assert!(error.contains("the next write of this id sees whether it is there, a read may not"), "{error}");
    assert_eq!(shards.read(FIRST, |connection| Ok(connection.ask(&looks)?)).expect("a read").len(), 0);
    assert_eq!(shards.write(FIRST, |connection| Ok(connection.ask(&looks)?)).expect("a write").len(), 1);
    assert_eq!(shards.read(FIRST, |connection| Ok(connection.ask(&looks)?)).expect("a read").len(), 1);
}

#[test]
fn after_a_commit_without_an_answer_the_work_of_the_next_write_sees_whether_it_is_there() {
    the_work_of_the_next_write_sees_what_was_not_acknowledged(MariaDb::new());
    the_work_of_the_next_write_sees_what_was_not_acknowledged(Postgres::new());
}

/// A row that the new shard lacks is brought while reads go there, and its statement waits for a lock. Meanwhile a program deletes the row.
fn a_row_that_is_deleted_while_it_is_brought_stays_deleted<D: Database>(database: D) {
    let stage = Stage::new(database);
    let mill = stage.mill();
    let router = mill.router("orders").expect("a router");
    stage.start();
    let shards = stage.shards(&router).deadline(Duration::from_secs(120));
    for id in [FIRST, FIRST + 1] {
        let insert = format!("INSERT INTO t_order (order_id, note) VALUES ({id}, 'a')");
        shards.write(id, |connection| Ok(connection.ask(&insert)?)).expect("a write");
    }
    assert!(verify(&stage, RowRepair::Bring));
    in_time(|| stage.moves.next(None, Change::Apply));
    let (of_row, again) = (
        format!("FROM t_order WHERE order_id = {FIRST}"),
        format!("INSERT INTO t_order (order_id, note) VALUES ({FIRST}, 'b')"),
    );
    ask(&stage.database, 1, &format!("DELETE {of_row}"));
    let mut holder = stage.database.connect(1)().expect("a connection");
    for sql in ["BEGIN", &again] {
        holder.ask(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    let has_waited = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let repairs = scope.spawn(|| {
            let mut on_event = |event: RowsEvent<'_>| {
                // ordering: Relaxed — a flag that carries nothing else.
                has_waited.fetch_or(matches!(event, RowsEvent::Retries(_)), Ordering::Relaxed);
                ControlFlow::Continue(())
            };
            stage.moves.verify(&stage.rows, RowRepair::Bring, Change::Apply, &mut on_event).is_ok()
        });
        // ordering: Relaxed — see above.
        while !has_waited.load(Ordering::Relaxed) {
            assert!(!repairs.is_finished(), "its statement waits for the lock");
            std::thread::sleep(Duration::from_millis(5));
        }
        let delete = format!("DELETE {of_row}");
        let deletes = scope.spawn(move || shards.write(FIRST, |connection| Ok(connection.ask(&delete)?)));
        std::thread::sleep(Duration::from_millis(300));
        in_time(|| stage.moves.next(None, Change::Apply));
        holder.ask("ROLLBACK").expect("it lets go");
        deletes.join().expect("no panic").expect("an acknowledged delete");
        println!("repaired: {}", repairs.join().expect("no panic"));
    });
    for shard in [0, 1] {
        let count = ask(&stage.database, shard, &format!("SELECT COUNT(*) {of_row}"));
        assert_eq!(count, [["0"]], "shard {shard}: a deleted row is back");
    }
}

#[test]
fn a_row_that_is_deleted_while_it_is_brought_stays_deleted_on_mariadb() {
    a_row_that_is_deleted_while_it_is_brought_stays_deleted(MariaDb::new());
}

#[test]
fn a_row_that_is_deleted_while_it_is_brought_stays_deleted_on_postgresql() {
    a_row_that_is_deleted_while_it_is_brought_stays_deleted(Postgres::new());
}
