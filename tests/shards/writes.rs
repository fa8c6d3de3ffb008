//! What one write does, what is refused, and what it leaves behind.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use keymill::{Code, Error, Router, ShardConnection, Shards, WorkError};
use keymill_tests::pooled;

use super::databases::{Database, FIRST, MariaDb, Postgres, Stage, ask};

pub const MOVING: &str = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\nto = \"s2\"\n";
const STAYING: &str = "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\n";

pub fn router(table: &str) -> Router {
    Router::from_text(table).expect("a table")
}

pub fn ours(error: &WorkError) -> &Error {
    error.downcast_ref::<Error>().unwrap_or_else(|| panic!("{error} is keymill's"))
}

pub fn insert<C: ShardConnection>(connection: &mut C, id: u64) -> Result<(), WorkError> {
    connection.ask(&format!("INSERT INTO t_order (order_id, note) VALUES ({id}, 'a')"))?;
    connection
        .ask(&format!("INSERT INTO t_item (item_of, n, seat) VALUES ({id}, 1, {id}), ({id}, 2, -{id})"))?;
    Ok(())
}

fn counts<D: Database>(database: &D) -> [String; 4] {
    let count =
        |shard, table: &str| ask(database, shard, &format!("SELECT COUNT(*) FROM {table}"))[0][0].clone();
    [count(0, "t_order"), count(0, "t_item"), count(1, "t_order"), count(1, "t_item")]
}

fn works<D: Database>(database: D) {
    let stage = Stage::new(database);
    let shards = stage.shards(&router(MOVING));
    let database = &stage.database;

    // A work that fails leaves nothing, and its own error comes back.
    let error = shards.write(FIRST, |connection| {
        insert(connection, FIRST)?;
        Err::<(), WorkError>("no seat is free".into())
    });
    assert_eq!(error.expect_err("the work's").to_string(), "no seat is free");
    assert_eq!(counts(database), ["0", "0", "0", "0"]);

    let seven = shards.write(FIRST, |connection| insert(connection, FIRST).map(|()| 7)).expect("a write");
    assert_eq!(seven, 7, "the work's value");
    assert_eq!(counts(database), ["1", "2", "1", "2"]);

    // Two rows exchange a value of which there is one.
    shards
        .write(FIRST, |connection| {
            for (n, seat) in [(1, "NULL".to_owned()), (2, FIRST.to_string()), (1, format!("-{FIRST}"))] {
                connection
                    .ask(&format!("UPDATE t_item SET seat = {seat} WHERE item_of = {FIRST} AND n = {n}"))?;
            }
            Ok(())
        })
        .expect("an exchange");
    let seats = |shard| ask(database, shard, "SELECT n, seat FROM t_item ORDER BY n");
    assert_eq!(seats(0), seats(1));
    assert_eq!(seats(1)[0][1], format!("-{FIRST}"));

    // A row that only the new shard has goes, and one that it lacks comes.
    ask(database, 1, "DELETE FROM t_item WHERE n = 1");
    ask(database, 1, &format!("INSERT INTO t_item (item_of, n, seat) VALUES ({FIRST}, 3, 3)"));
    shards.write(FIRST, |_| Ok(())).expect("a write that changes nothing");
    assert_eq!(seats(0), seats(1));

    // The program's session is as it was.
    shards
        .write(FIRST, |connection| {
            connection.ask(&format!("DELETE FROM t_item WHERE item_of = {FIRST}"))?;
            connection.ask(&format!("DELETE FROM t_order WHERE order_id = {FIRST}"))?;
            Ok(())
        })
        .expect("all go");
    assert_eq!(counts(database), ["0", "0", "0", "0"]);

    // A write inside another one would wait for its own lock.
    let nested = shards.write(FIRST, |_| shards.write(FIRST + 1, |_| Ok(())));
    let nested = nested.expect_err("it is refused");
    assert!(ours(&nested).message.contains("a write inside another one"), "{nested}");
    shards.write(FIRST, |connection| insert(connection, FIRST)).expect("the next one is no nested one");

    // What the new shard cannot hold is refused, and nothing is written.
    ask(database, 0, "ALTER TABLE t_order ADD COLUMN later INT");
    let refused = shards.write(FIRST, |connection| insert(connection, FIRST + 9)).expect_err("a column");
    let refused = ours(&refused);
    assert!(
        refused.code == Code::StoreRefused && refused.message.contains("column `later` of `t_order`"),
        "{refused}"
    );
    ask(database, 1, "ALTER TABLE t_order ADD COLUMN later INT");
    let all = "UPDATE t_order SET later = 5";
    shards.write(FIRST, |connection| Ok(connection.ask(all)?)).expect("both have it");
    assert_eq!(ask(database, 1, "SELECT later FROM t_order"), [["5"]]);
}

#[test]
fn a_write_makes_the_rows_of_its_id_the_same_on_both_shards_of_mariadb() {
    works(MariaDb::new());
}

#[test]
fn a_write_makes_the_rows_of_its_id_the_same_on_both_shards_of_postgresql() {
    works(Postgres::new());
}

/// A transaction of PostgreSQL in which a statement has failed is rolled back by its COMMIT, without an error.
#[test]
fn a_work_that_goes_on_after_a_failed_statement_is_not_acknowledged_on_postgresql() {
    let stage = Stage::new(Postgres::new());
    for table in [STAYING, MOVING] {
        let error = stage.shards(&router(table)).write(FIRST, |connection| {
            insert(connection, FIRST)?;
            insert(connection, FIRST).expect_err("it is there");
            Ok(())
        });
        let error = error.expect_err("nothing can be committed");
        let error = ours(&error);
        assert!(
            error.code == Code::InvalidArgument && error.message.contains("the work went on"),
            "{table}: {error}"
        );
        assert_eq!(counts(&stage.database), ["0", "0", "0", "0"]);
    }
}

#[test]
fn writes_of_one_id_come_one_after_the_other() {
    fn serial<D: Database>(database: D) {
        let stage = &Stage::new(database);
        let router = router(MOVING);
        let shards = &stage.shards(&router);
        shards.write(FIRST, |connection| insert(connection, FIRST)).expect("a write");
        let begin = &Arc::new(Barrier::new(4));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    begin.wait();
                    for _ in 0..20 {
                        let read = format!("SELECT version FROM t_order WHERE order_id = {FIRST}");
                        shards
                            .write(FIRST, |connection| {
                                let rows = connection.ask(&format!("{read} FOR UPDATE"))?;
                                let text = rows[0][0].clone().unwrap_or_default();
                                let version: u64 = String::from_utf8(text)?.parse()?;
                                connection.ask(&format!(
                                    "UPDATE t_order SET version = {} WHERE order_id = {FIRST}",
                                    version + 1
                                ))?;
                                Ok(())
                            })
                            .expect("a write");
                    }
                });
            }
        });
        for shard in [0, 1] {
            assert_eq!(ask(&stage.database, shard, "SELECT version FROM t_order"), [["80"]]);
        }
    }
    serial(MariaDb::new());
    serial(Postgres::new());
}

#[test]
fn without_a_move_one_connection_is_opened_and_the_tables_are_not_asked_for() {
    let database = MariaDb::new();
    let opened = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&opened);
    let connect = database.connect(0);
    let shards = Shards::new(&router(STAYING)).table("no_such_table", "id").shard("s1", move || {
        // ordering: Relaxed — a count.
        counts.fetch_add(1, Ordering::Relaxed);
        connect()
    });
    let one = shards.write(FIRST, |connection| Ok(connection.ask("SELECT 1")?)).expect("a write");
    assert_eq!(one, [[Some(b"1".to_vec())]]);
    // ordering: Relaxed — a count.
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}

#[test]
fn a_range_that_pauses_is_waited_for_until_the_deadline() {
    let paused =
        "version = 1\n[[range]]\nupper = 65535\nshard = \"s1\"\nto = \"s2\"\npercent = 100\npaused = true\n";
    let database = MariaDb::new();
    let router = router(paused);
    let shards = Shards::new(&router)
        .table("t_order", "order_id")
        .shard("s1", database.connect(0))
        .shard("s2", database.connect(1))
        .deadline(Duration::from_millis(300));
    let began = Instant::now();
    let error = shards.write(FIRST, |_| Ok(())).expect_err("it pauses");
    let error = ours(&error);
    assert!(error.code == Code::NotReady && error.retry_after().is_some(), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(300));
    let from =
        shards.read(FIRST, |connection| Ok(connection.ask("SELECT DATABASE()")?)).expect("reads go on");
    assert_eq!(from, [[Some(b"b".to_vec())]]);
    let shards = shards.deadline(Duration::from_secs(60));
    std::thread::scope(|scope| {
        let writer =
            scope.spawn(|| shards.write(FIRST, |connection| Ok(connection.ask("SELECT DATABASE()")?)));
        std::thread::sleep(Duration::from_millis(100));
        router.load("version = 2\n[[range]]\nupper = 65535\nshard = \"s2\"\n").expect("a table");
        let written = writer.join().expect("a thread").expect("a write");
        assert_eq!(written, [[Some(b"b".to_vec())]]);
    });
}

#[test]
fn a_write_in_which_a_step_comes_is_done_again_on_the_shard_that_decides_now() {
    fn again<D: Database>(database: D) {
        let stage = Stage::new(database);
        for (table, next, both) in [
            // The move is finished meanwhile, or has begun, or has gone back.
            (MOVING, "version = 2\n[[range]]\nupper = 65535\nshard = \"s2\"\n", ["0", "0", "1", "2"]),
            (STAYING, &*MOVING.replace("version = 1", "version = 2"), ["1", "2", "2", "4"]),
            (MOVING, &*STAYING.replace("version = 1", "version = 2"), ["2", "4", "2", "4"]),
            // A step that moves reads only is none.
            (
                MOVING,
                &*MOVING.replace("version = 1", "version = 2\n").replace("to =", "percent = 50\nto ="),
                ["3", "6", "3", "6"],
            ),
        ] {
            let router = router(table);
            let mut runs = 0;
            let id = FIRST + router.version() + fastrand::u64(1..1 << 30);
            let written = stage.shards(&router).write(id, |connection| {
                insert(connection, id)?;
                runs += 1;
                router.load(next)?;
                Ok(())
            });
            written.expect("a write");
            assert_eq!(runs, if next.contains("percent") { 1 } else { 2 }, "{next}");
            assert_eq!(counts(&stage.database), both, "{next}");
        }
    }
    again(MariaDb::new());
    again(Postgres::new());
}

#[test]
fn what_is_not_there_is_named() {
    let database = MariaDb::new();
    let moving = router(MOVING);
    let shards = |moving: &Router| Shards::new(moving).shard("s1", database.connect(0));
    for (shards, code, says) in [
        (shards(&moving), Code::InvalidConfig, "no table is named"),
        (shards(&moving).table("t", "id").table("t", "id"), Code::InvalidConfig, "table `t` is named twice"),
        (shards(&moving).table("none", "id"), Code::StoreRefused, "there is no table `none`"),
        (
            shards(&router(&STAYING.replace("s1", "s9"))).table("t", "id"),
            Code::InvalidConfig,
            "names shard `s9`, for which there is no connection",
        ),
    ] {
        let error = shards.write(FIRST, |_| Ok(())).expect_err(says);
        let error = ours(&error);
        assert!(error.code == code && error.message.contains(says), "{says}: {error}");
    }
    ask(&database, 0, "CREATE TABLE t (id BIGINT PRIMARY KEY, version BIGINT NOT NULL)");
    let error = shards(&moving).table("t", "id").write(FIRST, |_| Ok(())).expect_err("no second shard");
    assert!(error.to_string().contains("names shard `s2`"), "{error}");
}

#[test]
fn a_transaction_of_postgresql_that_is_not_read_committed_is_refused() {
    let stage = Stage::new(Postgres::new());
    let connect = stage.database.connect(0);
    let shards = stage.shards(&router(MOVING)).shard("s1", move || {
        let mut client = connect()?;
        client.batch_execute("SET default_transaction_isolation = 'repeatable read'")?;
        Ok::<_, WorkError>(client)
    });
    let error = shards.write(FIRST, |connection| insert(connection, FIRST)).expect_err("the isolation");
    let error = ours(&error);
    assert!(error.code == Code::InvalidConfig && error.message.contains("`repeatable read`"), "{error}");
    assert_eq!(counts(&stage.database), ["0", "0", "0", "0"]);
}

/// An id that has no row cannot be locked there.
#[test]
fn a_write_of_a_missing_id_deletes_no_row_that_another_program_inserts_meanwhile_on_mariadb() {
    let stage = Stage::new(MariaDb::new());
    let router = &router(MOVING);
    let (first, second) = (stage.database.connect(0), stage.database.connect(1));
    let other = Arc::new(stage.shards(router));
    let inserts = Arc::new(AtomicUsize::new(0));
    let shards = stage
        .shards(router)
        .shard("s1", move || {
            let mut connection = first()?;
            connection.ask("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")?;
            Ok::<_, WorkError>(connection)
        })
        .shard("s2", move || {
            // ordering: Relaxed — a count.
            if inserts.fetch_add(1, Ordering::Relaxed) == 0 {
                let other = Arc::clone(&other);
                let inserts = move || other.write(FIRST, |connection| insert(connection, FIRST));
                std::thread::spawn(inserts).join().expect("a thread")?;
            }
            second()
        });
    let delete = format!("DELETE FROM t_order WHERE order_id = {FIRST} AND version = 7");
    shards.write(FIRST, |connection| Ok(connection.ask(&delete)?)).expect("a write");
    assert_eq!(counts(&stage.database), ["1", "2", "1", "2"]);
}

/// MariaDB refuses to lock a row that is newer than the snapshot, by default since 11.6.
#[test]
fn a_write_of_a_row_that_is_newer_than_its_snapshot_is_done_again_on_mariadb() {
    let database = MariaDb::new();
    if database.lacks("innodb_snapshot_isolation", (10, 11)) {
        return;
    }
    let stage = Stage::new(database);
    let connect = stage.database.connect(0);
    let shards = stage.shards(&router(MOVING)).shard("s1", move || {
        let mut connection = connect()?;
        connection.ask("SET SESSION innodb_snapshot_isolation = ON")?;
        connection.ask("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        Ok::<_, WorkError>(connection)
    });
    shards.write(FIRST, |connection| insert(connection, FIRST)).expect("a write");
    let mut runs = 0;
    let written = shards.write(FIRST, |connection| {
        connection.ask("SELECT COUNT(*) FROM t_item")?;
        runs += 1;
        if runs == 1 {
            ask(&stage.database, 0, "UPDATE t_item SET name = 'new' WHERE n = 1");
        }
        Ok(())
    });
    written.expect("a write");
    assert_eq!(runs, 2, "it is done again");
    assert_eq!(ask(&stage.database, 1, "SELECT name FROM t_item WHERE n = 1"), [["new"]]);
}

#[test]
fn a_work_that_ends_its_transaction_is_refused_on_postgresql() {
    let stage = Stage::new(Postgres::new());
    let shards = stage.shards(&router(MOVING));
    for end in ["COMMIT", "ROLLBACK"] {
        let error = shards.write(FIRST, |connection| Ok(connection.ask(&format!("{end}; BEGIN"))?));
        let error = error.expect_err("the lock is gone");
        let error = ours(&error);
        assert!(
            error.code == Code::InvalidArgument && error.message.contains("has ended its transaction"),
            "{error}"
        );
    }
}

#[test]
fn a_connection_whose_work_panics_does_not_go_back_to_its_pool() {
    let stage = Stage::new(Postgres::new());
    let shards = Shards::new(&router(STAYING))
        .shard("s1", pooled::pool(stage.database.connect(0)))
        .table("t_order", "order_id")
        .table("t_item", "item_of");
    let panics = std::panic::AssertUnwindSafe(|| {
        shards.write(FIRST, |connection| {
            insert(connection, FIRST)?;
            assert_eq!(0, 1, "of the work");
            Ok(())
        })
    });
    std::panic::catch_unwind(panics).expect_err("the work's panic");
    shards.write(FIRST + 1, |connection| insert(connection, FIRST + 1)).expect("the next write");
    assert_eq!(ask(&stage.database, 0, "SELECT order_id FROM t_order"), [[(FIRST + 1).to_string()]]);
}

/// Locks end with a transaction, and savepoints too.
#[test]
fn a_work_that_ends_its_transaction_is_refused_on_mariadb() {
    let stage = Stage::new(MariaDb::new());
    let shards = stage.shards(&router(MOVING));
    shards.write(FIRST, |connection| insert(connection, FIRST)).expect("a write");
    for end in ["COMMIT", "ROLLBACK", "START TRANSACTION", "CREATE TABLE other (id INT)"] {
        let error = shards.write(FIRST, |connection| {
            connection.ask(end)?;
            connection.ask("UPDATE t_order SET note = 'b'")?;
            Ok(())
        });
        let error = error.expect_err("the lock is gone");
        let error = ours(&error);
        assert!(
            error.code == Code::InvalidArgument && error.message.contains("has ended its transaction"),
            "{end}: {error}"
        );
    }
    let undone = shards.write(FIRST, |connection| {
        connection.ask("SAVEPOINT one")?;
        connection.ask("UPDATE t_order SET note = 'c'")?;
        connection.ask("ROLLBACK TO SAVEPOINT one")?;
        Ok(())
    });
    undone.expect("its own savepoints are its own");
}

#[test]
fn ids_of_16_bytes_are_written_to_both_shards() {
    fn wide<D: Database>(database: D, bytes: &str, literal: fn(&str) -> String) {
        let stage = Stage::new(database);
        for shard in [0, 1] {
            ask(
                &stage.database,
                shard,
                &format!(
                    "CREATE TABLE wide (id {bytes} PRIMARY KEY, n INT, version BIGINT NOT NULL DEFAULT 0)"
                ),
            );
        }
        let router = router(MOVING);
        let shards = Shards::new(&router)
            .shard("s1", stage.database.connect(0))
            .shard("s2", stage.database.connect(1))
            .table("wide", "id");
        let id = (u128::from(FIRST) << 64) + 77;
        let key = literal(&format!("{id:032x}"));
        for n in [1, 2] {
            shards
                .write_wide(id, |connection| {
                    connection.ask(&format!("DELETE FROM wide WHERE id = {key}"))?;
                    Ok(connection.ask(&format!("INSERT INTO wide (id, n) VALUES ({key}, {n})"))?)
                })
                .expect("a write");
            for shard in [0, 1] {
                assert_eq!(ask(&stage.database, shard, "SELECT n FROM wide"), [[n.to_string()]]);
            }
        }
        // An id of 64 bits in the same column.
        let key = literal(&format!("{FIRST:016x}"));
        shards
            .write(FIRST, |connection| {
                Ok(connection.ask(&format!("INSERT INTO wide (id, n) VALUES ({key}, 3)"))?)
            })
            .expect("a write");
        assert_eq!(ask(&stage.database, 1, "SELECT COUNT(*) FROM wide"), [["2"]]);
    }
    wide(MariaDb::new(), "VARBINARY(16)", |digits| format!("X'{digits}'"));
    wide(Postgres::new(), "BYTEA", |digits| format!("'\\x{digits}'::bytea"));
}

#[test]
fn a_shard_that_is_away_is_tried_again_and_then_said() {
    let stage = Stage::new(MariaDb::new());
    let tries = Arc::new(AtomicUsize::new(0));
    let opened = Arc::clone(&tries);
    let away = move || {
        // ordering: Relaxed — a count.
        opened.fetch_add(1, Ordering::Relaxed);
        Err::<mysql::Conn, _>(WorkError::from("nobody is there"))
    };
    let moving = router(MOVING);
    let shards = stage.shards(&moving).shard("s2", away).deadline(Duration::from_millis(600));
    let error = shards.write(FIRST, |connection| insert(connection, FIRST)).expect_err("it is away");
    let error = ours(&error);
    assert!(
        error.code == Code::StoreUnavailable && error.message.contains("shard `s2`: nobody is there"),
        "{error}"
    );
    assert_eq!(counts(&stage.database), ["0", "0", "0", "0"]);
    // ordering: Relaxed — a count.
    assert!((2..30).contains(&tries.load(Ordering::Relaxed)), "not all the time: {tries:?}");
}

#[test]
fn rows_without_a_root_are_refused_on_mariadb() {
    let stage = Stage::new(MariaDb::new());
    let shards = stage.shards(&router(MOVING));
    for shard in [0, 1] {
        ask(&stage.database, shard, "ALTER TABLE t_item DROP FOREIGN KEY t_item_ibfk_1");
    }
    let error = shards.write(FIRST, |connection| {
        Ok(connection.ask(&format!("INSERT INTO t_item (item_of, n, seat) VALUES ({FIRST}, 1, 1)"))?)
    });
    let error = error.expect_err("no root");
    assert!(ours(&error).message.contains("and none in `t_order`"), "{error}");
    assert_eq!(counts(&stage.database), ["0", "0", "0", "0"]);
}
