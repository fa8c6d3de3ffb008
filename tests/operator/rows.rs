//! A range of rows is moved between two databases by a program in Rust, with no command.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use keymill::{
    Change, Code, Error, Mill, MoveOptions, MovePhase, MovedRows, Moves, Router, RowRepair, RowsEvent,
    RowsTask,
};
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, postgres};
use mysql::prelude::Queryable;

/// The range that moves: genes 32768 to 65535.
const FIRST: u64 = 32_768 << 47;
const ROWS: u64 = 9000;

/// Carries out a statement; answers with the first values of its rows.
type Client = Box<dyn FnMut(&str) -> Vec<String>>;

/// The databases of two shards.
trait Shards: Sync {
    fn urls(&self) -> [String; 2];
    /// A connection to one of them.
    fn open(&self, shard: usize) -> Client;
}

struct MariaDb(mariadb::Private);

impl MariaDb {
    fn start() -> MariaDb {
        let server = mariadb::Private::start("");
        let mut root = server.root();
        for name in ["rust_a", "rust_b"] {
            root.query_drop(format!("CREATE DATABASE {name}")).expect("a database");
            root.query_drop(format!("GRANT ALL ON {name}.* TO keymill@'%'")).expect("a grant");
        }
        // Tests look for sessions that hold or await locks.
        root.query_drop("GRANT PROCESS ON *.* TO keymill@'%'").expect("a grant");
        MariaDb(server)
    }
}

impl Shards for MariaDb {
    fn urls(&self) -> [String; 2] {
        let url = self.0.url();
        let server = url.rsplit_once('/').expect("a database").0;
        ["rust_a", "rust_b"].map(|name| format!("{server}/{name}"))
    }

    fn open(&self, shard: usize) -> Client {
        let mut connection = mariadb::connection_of(&self.urls()[shard]);
        Box::new(move |sql| {
            let rows: Vec<mysql::Row> = connection.query(sql).expect("the statement is carried out");
            rows.into_iter().map(|row| row.get(0).expect("a value")).collect()
        })
    }
}

/// Two schemas of one server.
struct Postgres([String; 2]);

impl Postgres {
    fn start() -> Postgres {
        let names = ["a", "b"].map(|name| format!("rust_{name}_{}", fastrand::u32(..)));
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

impl Shards for Postgres {
    fn urls(&self) -> [String; 2] {
        self.0.clone().map(|name| format!("{}?schema={name}", postgres::url()))
    }

    fn open(&self, shard: usize) -> Client {
        let sql = postgres::Sql::shared();
        sql.say(&format!("SET search_path = {}", self.0[shard]));
        Box::new(move |statement| {
            sql.rows(statement).into_iter().filter_map(|row| row.into_iter().next()).collect()
        })
    }
}

/// Asks again while readers have not followed, on a busy machine too.
fn in_time<T>(mut ask: impl FnMut() -> Result<T, Error>) -> T {
    let until = Instant::now() + Duration::from_secs(240);
    loop {
        match ask() {
            Ok(answer) => return answer,
            Err(error) if error.code == Code::NotReady && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

struct Stage {
    _folder: tempfile::TempDir,
    mill: Mill,
    moves: Moves,
    rows: MovedRows,
}

impl Stage {
    /// As many rows in the range that moves as `ROWS`, and as many that stay; both shards are written to.
    fn new(shards: &dyn Shards) -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        let mill = Mill::open(&patient(&format!("sqlite:{}/routes.keymill", folder.path().display())));
        let mill = mill.expect("a mill");
        let table = "version = 1\nsettle = \"50ms\"\n[[range]]\nupper = 65535\nshard = \"s1\"\n";
        mill.put_routes("orders", table, Change::Apply).expect("stored");
        for shard in [0, 1] {
            let mut say = shards.open(shard);
            say(
                "CREATE TABLE t_order (order_id BIGINT PRIMARY KEY, buyer BIGINT NOT NULL, version BIGINT NOT NULL)",
            );
            for first in [0, FIRST].into_iter().filter(|_| shard == 0) {
                for from in (0..ROWS).step_by(1000) {
                    let values: Vec<String> =
                        (from..from + 1000).map(|n| format!("({}, {n}, 1)", first + n)).collect();
                    say(&format!("INSERT INTO t_order VALUES {}", values.join(", ")));
                }
            }
        }
        let moves = mill.moves("orders").expect("a name");
        let plan = moves.plan(&[("s1", 1), ("s2", 1)], None).expect("a plan");
        let options = MoveOptions { watch: Duration::ZERO, ..MoveOptions::default() };
        moves.start(&plan, 1, &options, Change::Apply).expect("a range moves");
        let [from, to] = shards.urls();
        let rows = MovedRows::new(&format!("s1={from}"), &format!("s2={to}")).table("t_order", "order_id");
        Stage { _folder: folder, mill, moves, rows: rows.rows_per_second(1_000_000) }
    }
}

/// Writes new rows of the range that moves as the page says, until it is told to end; answers with their ids.
fn write(router: &Router, shards: &dyn Shards, ends: &AtomicBool) -> Vec<u64> {
    let mut say = [shards.open(0), shards.open(1)];
    let mut written = Vec::new();
    // ordering: Relaxed — a flag that carries nothing else.
    while !ends.load(Ordering::Relaxed) {
        let id = FIRST + ROWS + written.len() as u64;
        let route = in_time(|| match router.route(id) {
            Err(error) if error.code == Code::LeaseLost => Err(Error::new(Code::NotReady, error.message)),
            answer => answer,
        });
        std::thread::sleep(Duration::from_millis(1));
        let places: Vec<_> = [route.write, route.mirror].into_iter().flatten().collect();
        let mut on = |shard: &str, statement: &str| say[usize::from(shard == "s2")](statement);
        for shard in &places {
            on(shard, "BEGIN");
            on(shard, &format!("INSERT INTO t_order VALUES ({id}, 7, 1)"));
        }
        // Writes wait where there is none.
        let counts = router.is_current(&route);
        for shard in &places {
            on(shard, if counts { "COMMIT" } else { "ROLLBACK" });
        }
        if counts {
            written.push(id);
        }
    }
    written
}

fn goes_on(_: RowsEvent<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn moved_by_a_program(shards: &dyn Shards) {
    let Stage { mill, moves, rows, .. } = &Stage::new(shards);
    let (router, ends) = (mill.router("orders").expect("a router"), AtomicBool::new(false));
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&router, shards, &ends));
        let dry = moves.copy(rows, Change::DryRun, &mut goes_on).expect("a dry run");
        assert!(dry[0].sent >= ROWS, "{dry:?}");
        // The first chunk, and no more.
        let mut stop = |event: RowsEvent<'_>| match event {
            RowsEvent::Progress { .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let stopped = moves.copy(rows, Change::Apply, &mut stop).expect_err("it is stopped");
        assert_eq!(
            (stopped.code, &*stopped.message),
            (Code::NotReady, "stopped; what is copied stays, and the same copy goes on from here")
        );
        let copied = moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
        assert!(copied[0].alike > 0 && copied[0].sent + copied[0].alike >= ROWS, "{copied:?}");
        shards.open(1)(&format!("DELETE FROM t_order WHERE order_id = {FIRST}"));
        let named = moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
        let differ: Vec<_> = named.tables[0].differ.iter().map(|row| (&*row.row, row.how.words())).collect();
        assert_eq!(differ, [(&*FIRST.to_string(), "missing in the new shard")]);
        assert_eq!(named.recorded, None);
        let found = moves.verify(rows, RowRepair::Bring, Change::Apply, &mut goes_on).expect("a comparison");
        assert!(found.is_alike() && found.recorded.is_some() && found.tables[0].repaired == 1, "{found:?}");
        for percent in [5, 25, 50, 100] {
            let after = in_time(|| moves.next(None, Change::Apply));
            assert_eq!(after.moving.expect("it moves").phase, MovePhase::CutOver(percent));
        }
        let refused = moves.copy(rows, Change::Apply, &mut goes_on).expect_err("ids are cut over");
        assert_eq!(refused.code, Code::InvalidConfig, "{refused}");
        let early = in_time(|| match moves.finish(None, Change::Apply) {
            Err(error) if error.code == Code::InvalidConfig => Ok(error),
            Err(error) => Err(error),
            Ok(status) => panic!("{status:?}"),
        });
        assert!(early.message.contains("no comparison"), "{early}");
        let found = moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
        assert!(found.is_alike() && found.recorded.is_some() && found.counts, "{found:?}");
        while in_time(|| moves.finish(None, Change::Apply)).moving.is_some() {}
        // ordering: Relaxed — see `write`.
        ends.store(true, Ordering::Relaxed);
        writer.join().expect("the writer")
    });
    assert!(!written.is_empty());
    let young = moves.clean(rows, Duration::from_secs(3600), Change::Apply, &mut goes_on);
    assert_eq!(young.expect_err("it is too young").code, Code::NotReady);
    let removed = moves.clean(rows, Duration::ZERO, Change::Apply, &mut goes_on).expect("they are removed");
    assert!(removed[0].rows >= ROWS, "{removed:?}");
    let ids = |shard: usize| -> Vec<u64> {
        let found = shards.open(shard)("SELECT order_id FROM t_order ORDER BY order_id");
        found.iter().map(|id| id.parse().expect("an id")).collect()
    };
    let moved: Vec<u64> = (FIRST..FIRST + ROWS).chain(written).collect();
    assert_eq!(ids(1), moved, "every row is in the new shard, once");
    assert_eq!(ids(0), (0..ROWS).collect::<Vec<_>>(), "and the old one has those that stay");
}

#[test]
fn a_range_is_moved_by_a_program_in_rust_on_mariadb() {
    moved_by_a_program(&MariaDb::start());
}

#[test]
fn a_range_is_moved_by_a_program_in_rust_on_postgresql() {
    moved_by_a_program(&Postgres::start());
}

#[test]
fn a_program_is_refused_in_its_own_words_and_no_password_is_shown() {
    let shards = Postgres::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    let [old, new] = shards.urls();
    let named = |from: &str, to: &str| MovedRows::new(from, to).table("t_order", "order_id");
    let (s1, s2) = (format!("s1={old}"), format!("s2={new}"));
    for (rows, code, says) in [
        (MovedRows::new(&s1, &s2), Code::InvalidArgument, "the column of its ids: `table(NAME, KEY)`"),
        (
            named(&format!("s2={old}"), &s2),
            Code::InvalidArgument,
            "`from` names shard `s2`; the move is from `s1` to `s2`",
        ),
        (named(&s1, &format!("s2={old}")), Code::InvalidConfig, "are one database"),
        (named(&format!("s1={new}"), &format!("s2={old}")), Code::StoreRefused, "`to` ("),
        (named("s1=sqlite:a.db", &s2), Code::InvalidConfig, "`from`: `sqlite:a.db` is no shard"),
        (
            MovedRows::new(&s1, &s2).table("t_order", "none"),
            Code::StoreRefused,
            "has no column `none`; name the column of the ids with `key`",
        ),
    ] {
        let error = moves.copy(&rows, Change::Apply, &mut goes_on).expect_err(says);
        assert!(error.code == code && error.message.contains(says), "{says}: {error}");
        assert!(!error.message.contains("--"), "{error}");
        assert!(!format!("{rows:?}").contains("secret"), "{rows:?}");
    }
    assert_eq!(shards.open(1)("SELECT COUNT(*) FROM t_order"), ["0"], "nothing was written");
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
    finished(moves);
    for (rows, older_than, says) in [
        (named(&old, &new), Duration::ZERO, "of the last one they are 's1=URL' and 's2=URL'"),
        (named(&s1, &s2), Duration::from_secs(3600), "`older_than` says another time"),
    ] {
        let error = moves.clean(&rows, older_than, Change::Apply, &mut goes_on).expect_err(says);
        assert!(error.message.contains(says) && !error.message.contains("--"), "{error}");
    }
}

/// What deletes rows by an old table would delete acknowledged ones.
#[test]
fn a_repair_writes_nothing_once_another_operator_has_made_a_step() {
    let shards = Postgres::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
    moves.next(None, Change::Apply).expect("a step");
    let (mut old, mut new) = (shards.open(0), shards.open(1));
    // A row whose write to the new shard failed, and one that was deleted there since.
    old(&format!("INSERT INTO t_order VALUES ({}, 1, 1)", FIRST + 2 * ROWS));
    let mut other_operator = |event: RowsEvent<'_>| {
        let is_seen = moves.status().expect("a status").moving.is_none();
        if matches!(event, RowsEvent::Progress { .. }) && !is_seen {
            finished(moves);
            // An order of after the move, and one that is gone: both are in the new shard only.
            new(&format!("INSERT INTO t_order VALUES ({}, 1, 1)", FIRST + 3 * ROWS));
            new(&format!("DELETE FROM t_order WHERE order_id = {FIRST}"));
        }
        ControlFlow::Continue(())
    };
    let repaired = moves.verify(rows, RowRepair::BringAndDelete, Change::Apply, &mut other_operator);
    let refused = repaired.expect_err("the move is over");
    assert!(refused.code == Code::StoreRefused && refused.message.contains("another operator"), "{refused}");
    let is_there = |id: u64| {
        let count = format!("SELECT COUNT(*) FROM t_order WHERE order_id = {id}");
        shards.open(1)(&count) == ["1"]
    };
    assert!(is_there(FIRST + 3 * ROWS), "an acknowledged row was deleted");
    assert!(!is_there(FIRST) && !is_there(FIRST + 2 * ROWS), "a deleted row is back");
}

/// Between the step that a copy stores and its first row.
#[test]
fn a_copy_that_waits_ends_where_another_operator_cuts_over_meanwhile() {
    let shards = Postgres::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    let mut other_operator = |event: RowsEvent<'_>| {
        if let RowsEvent::Settles(settle) = event {
            std::thread::sleep(settle);
            let status = moves.status().expect("a status");
            let began = status.moving.and_then(|moving| moving.verify_from).expect("readers write to both");
            in_time(|| moves.verified(began, Change::Apply).map_err(not_yet));
            moves.next(None, Change::Apply).expect("a step");
        }
        ControlFlow::Continue(())
    };
    let refused = moves.copy(rows, Change::Apply, &mut other_operator).expect_err("ids are cut over");
    assert!(refused.code == Code::StoreRefused && refused.message.contains("another operator"), "{refused}");
    assert_eq!(shards.open(1)("SELECT COUNT(*) FROM t_order"), ["0"]);
}

/// All steps after a first comparison. The second one is said to be clean.
fn finished(moves: &Moves) {
    let phase = || moves.status().expect("a status").moving.map(|moving| moving.phase);
    while phase() != Some(MovePhase::CutOver(100)) {
        in_time(|| moves.next(None, Change::Apply));
    }
    let status = in_time(|| moves.begin_verify(Change::Apply));
    let began = status.moving.and_then(|moving| moving.verify_from).expect("readers have followed");
    in_time(|| moves.verified(began, Change::Apply).map_err(not_yet));
    while in_time(|| moves.finish(None, Change::Apply)).moving.is_some() {}
}

/// A comparison may be a moment too early by the store's clock.
fn not_yet(error: Error) -> Error {
    Error::new(Code::NotReady, error.message)
}

#[test]
fn a_login_for_which_the_clock_stands_still_moves_no_rows() {
    let shards = MariaDb::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    let frozen = "SET GLOBAL init_connect = 'SET timestamp = 1000000000'";
    shards.0.root().query_drop(frozen).expect("root may set that");
    let refused = moves.copy(rows, Change::Apply, &mut goes_on).expect_err("no permit would end");
    assert!(refused.code == Code::StoreUnsafe && refused.message.contains("timestamp"), "{refused}");
    shards.0.root().query_drop("SET GLOBAL init_connect = ''").expect("root may set that");
    assert_eq!(shards.open(1)("SELECT COUNT(*) FROM t_order"), ["0"]);
}

/// A bare `COMMIT` begins the next transaction there, in which later writes would wait for an end that never comes.
#[test]
fn rows_are_copied_and_repaired_whatever_completion_type_a_server_has() {
    let shards = MariaDb::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    shards.0.root().query_drop("SET GLOBAL completion_type = 'CHAIN'").expect("root may set that");
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    let mut new = shards.open(1);
    new("SET completion_type = 'NO_CHAIN'");
    for id in [FIRST + 3 * ROWS, FIRST + 3 * ROWS + 1] {
        new(&format!("INSERT INTO t_order VALUES ({id}, 1, 1)"));
    }
    new(&format!("DELETE FROM t_order WHERE order_id = {FIRST}"));
    let found =
        moves.verify(rows, RowRepair::BringAndDelete, Change::Apply, &mut goes_on).expect("a comparison");
    assert!(found.is_alike() && found.tables[0].repaired == 3, "{found:?}");
    assert_eq!(new("SELECT COUNT(*) FROM t_order"), [ROWS.to_string()]);
}

#[test]
fn a_copy_after_a_clean_comparison_needs_another_one() {
    let shards = Postgres::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    let refused = moves.next(None, Change::Apply).expect_err("nothing was compared since");
    assert!(refused.message.contains("no comparison has found both shards alike"), "{refused}");
    moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
    moves.next(None, Change::Apply).expect("a step");
}

/// A program has freed the value in the old shard, and is about to free it in the new one.
#[test]
fn a_chunk_whose_row_another_one_keeps_out_for_a_moment_is_read_again() {
    for shards in [&Postgres::start() as &dyn Shards, &MariaDb::start()] {
        let Stage { moves, rows, .. } = &Stage::new(shards);
        let mut new = shards.open(1);
        new("CREATE UNIQUE INDEX seat ON t_order (buyer)");
        new(&format!("INSERT INTO t_order VALUES ({}, 7, 1)", FIRST + 5 * ROWS));
        let mut retries = 0;
        let mut program = |event: RowsEvent<'_>| {
            if matches!(event, RowsEvent::Retries(_)) {
                retries += 1;
                if retries == 2 {
                    new(&format!("DELETE FROM t_order WHERE order_id = {}", FIRST + 5 * ROWS));
                }
            }
            ControlFlow::Continue(())
        };
        let copied = moves.copy(rows, Change::Apply, &mut program).expect("a copy");
        assert_eq!((retries, copied[0].sent), (2, ROWS));
        assert_eq!(shards.open(1)("SELECT COUNT(*) FROM t_order"), [ROWS.to_string()]);
    }
}

/// The statement of a copy whose connection to the old shard was lost may reach the new one behind the comparison.
#[test]
fn a_comparison_beside_which_rows_are_copied_does_not_count() {
    let shards = Postgres::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    let mut has_copied = false;
    let mut other_operator = |event: RowsEvent<'_>| {
        if matches!(event, RowsEvent::Progress { .. }) && !has_copied {
            has_copied = true;
            let mut settles = 0;
            let mut counts = |event: RowsEvent<'_>| {
                settles += u32::from(matches!(event, RowsEvent::Settles(_)));
                ControlFlow::Continue(())
            };
            moves.copy(rows, Change::Apply, &mut counts).expect("another copy");
            assert_eq!(settles, 0, "all readers have written to both shards for long");
        }
        ControlFlow::Continue(())
    };
    let refused = moves.verify(rows, RowRepair::Named, Change::Apply, &mut other_operator);
    let refused = refused.expect_err("a copy began beside it");
    assert!(has_copied && refused.message.contains("it counts if it begins at"), "{refused}");
    moves.next(None, Change::Apply).expect_err("no comparison was recorded");
}

/// A column that comes on both shards during a comparison has values that nobody compared.
#[test]
fn a_comparison_beside_which_a_column_comes_is_not_recorded() {
    for shards in [&Postgres::start() as &dyn Shards, &MariaDb::start()] {
        let Stage { moves, rows, .. } = &Stage::new(shards);
        moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
        let mut chunks = 0;
        let mut application = |event: RowsEvent<'_>| {
            chunks += u32::from(matches!(event, RowsEvent::Progress { .. }));
            if chunks == 2 {
                chunks += 1;
                for shard in [0, 1] {
                    shards.open(shard)(&format!("ALTER TABLE t_order ADD COLUMN note INT DEFAULT {shard}"));
                }
            }
            ControlFlow::Continue(())
        };
        let refused = moves.verify(rows, RowRepair::Named, Change::Apply, &mut application);
        let refused = refused.expect_err("a column was not compared");
        assert!(refused.message.contains("the columns of `t_order` have changed"), "{refused}");
        moves.next(None, Change::Apply).expect_err("nothing was recorded");
        let found = moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
        assert!(!found.is_alike(), "each shard has another default");
    }
}

/// Two databases of one server, of which the second has settings that change how values are written and read.
struct Databases([String; 2]);

impl Databases {
    fn start() -> Databases {
        Databases::start_as("")
    }

    fn start_as(options: &str) -> Databases {
        let names = ["a", "b"].map(|name| format!("rows_{name}_{}", fastrand::u32(..)));
        let root = postgres::Sql::root(&postgres::url());
        for name in &names {
            root.say(&format!("CREATE DATABASE {name} OWNER keymill {options}"));
        }
        for setting in [
            "array_nulls = off",
            "DateStyle = 'German'",
            "IntervalStyle = 'iso_8601'",
            "extra_float_digits = -15",
            "standard_conforming_strings = off",
            "TimeZone = 'Asia/Tokyo'",
            "bytea_output = 'escape'",
            "quote_all_identifiers = on",
        ] {
            root.say(&format!("ALTER DATABASE {} SET {setting}", names[1]));
        }
        Databases(names)
    }

    fn root(&self, shard: usize) -> postgres::Sql {
        postgres::Sql::root(&self.urls()[shard])
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ =
                postgres::Sql::root(&postgres::url()).try_say(&format!("DROP DATABASE {name} WITH (FORCE)"));
        }
    }
}

impl Shards for Databases {
    fn urls(&self) -> [String; 2] {
        let url = postgres::url();
        let server = url.rsplit_once('/').expect("a database").0;
        self.0.clone().map(|name| format!("{server}/{name}"))
    }

    fn open(&self, shard: usize) -> Client {
        let sql = postgres::Sql::to(&postgres::options_of(&self.urls()[shard]));
        Box::new(move |statement| {
            sql.rows(statement).into_iter().filter_map(|row| row.into_iter().next()).collect()
        })
    }
}

#[test]
fn settings_of_a_database_that_change_values_change_none_that_is_copied() {
    let shards = Databases::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    for shard in [0, 1] {
        shards.open(shard)(
            "ALTER TABLE t_order ADD COLUMN arr TEXT[], ADD COLUMN at TIMESTAMPTZ, ADD COLUMN iv INTERVAL, ADD COLUMN d FLOAT8, ADD COLUMN b BYTEA, ADD COLUMN t TEXT, ADD COLUMN u UUID",
        );
    }
    shards.open(0)(&format!(
        "UPDATE t_order SET arr = ARRAY['a', NULL, 'NULL'], at = '2026-03-04 05:06:07.8+00', iv = '-1 mon 2 days -03:04:05', d = 0.1 + 0.2, b = '\\x005c27', t = 'back\\slash' WHERE order_id = {FIRST}"
    ));
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    let found = moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
    assert!(found.is_alike(), "{found:?}");
    let values = [0, 1].map(|shard| {
        let mut say = shards.open(shard);
        say("SET extra_float_digits = 3; SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET IntervalStyle = 'postgres'; SET bytea_output = 'hex'");
        say(&format!("SELECT ROW(arr, array_position(arr, NULL), at, iv, d, b, t)::text FROM t_order WHERE order_id = {FIRST}"))
    });
    assert_eq!(values[0], values[1]);
    assert!(values[0][0].contains(",2,"), "the second one is NULL: {values:?}");
}

/// Its rows are its publisher's, of a moment ago.
#[test]
fn a_database_that_has_a_subscription_is_no_shard() {
    let shards = Databases::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    for shard in [0, 1] {
        let root = shards.root(shard);
        root.say("CREATE SUBSCRIPTION follows CONNECTION 'dbname=none' PUBLICATION p WITH (connect = false, slot_name = NONE)");
        let refused = moves.copy(rows, Change::Apply, &mut goes_on).expect_err("it follows another one");
        assert!(
            refused.code == Code::StoreRefused
                && refused.message.contains("this database has a subscription"),
            "{refused}"
        );
        root.say("DROP SUBSCRIPTION follows");
    }
    moves.copy(rows, Change::Apply, &mut goes_on).expect("it follows none any more");
}

#[test]
fn a_clean_removes_nothing_once_the_range_moves_back() {
    let shards = Postgres::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
    finished(moves);
    let mut removed_before = None;
    let mut other_operator = |event: RowsEvent<'_>| {
        if matches!(event, RowsEvent::Progress { task: RowsTask::Removing, .. }) && removed_before.is_none() {
            let plan = moves.plan(&[("s1", 1)], None).expect("a plan");
            let options = MoveOptions { watch: Duration::ZERO, ..MoveOptions::default() };
            moves.start(&plan, 1, &options, Change::Apply).expect("the range moves back");
            removed_before = Some(shards.open(0)("SELECT COUNT(*) FROM t_order"));
        }
        ControlFlow::Continue(())
    };
    let rows = rows.clone().rows_per_second(1_000);
    let refused = moves.clean(&rows, Duration::ZERO, Change::Apply, &mut other_operator);
    let refused = refused.expect_err("the range moves back");
    assert!(refused.code == Code::StoreRefused && refused.message.contains("another operator"), "{refused}");
    assert_eq!(Some(shards.open(0)("SELECT COUNT(*) FROM t_order")), removed_before);
}

/// The row was looked at, and its statement waits for a program that changes it.
#[test]
fn a_row_of_the_old_shard_that_is_changed_while_it_would_be_removed_stays() {
    for shards in [&Postgres::start() as &dyn Shards, &MariaDb::start()] {
        let Stage { moves, rows, .. } = &Stage::new(shards);
        moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
        moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
        finished(moves);
        let mut program = shards.open(0);
        program("BEGIN");
        program(&format!("UPDATE t_order SET buyer = buyer + 1 WHERE order_id = {}", FIRST + 2));
        let waited = AtomicBool::new(false);
        let removed = std::thread::scope(|scope| {
            let clean = scope.spawn(|| {
                let mut on_event = |event: RowsEvent<'_>| {
                    // ordering: Relaxed — a flag that carries nothing else.
                    waited.fetch_or(matches!(event, RowsEvent::Retries(_)), Ordering::Relaxed);
                    ControlFlow::Continue(())
                };
                moves.clean(rows, Duration::ZERO, Change::Apply, &mut on_event)
            });
            // ordering: Relaxed — see above.
            while !waited.load(Ordering::Relaxed) {
                assert!(!clean.is_finished(), "it waits for the lock");
                std::thread::sleep(Duration::from_millis(5));
            }
            program("COMMIT");
            clean.join().expect("no panic")
        });
        let refused = removed.expect_err("a row is left");
        assert!(refused.message.contains("1 rows of `t_order` are left in the old shard"), "{refused}");
        let left = program(&format!("SELECT order_id FROM t_order WHERE order_id >= {FIRST}"));
        assert_eq!(left, [(FIRST + 2).to_string()]);
    }
}

/// A process that is stopped between its look at the move and its write wakes at any time: the database refuses the write then.
/// Gives the table another `settle`.
fn settle(mill: &Mill, time: &str) {
    let table = mill.route_table("orders").expect("a table");
    let version = mill.moves("orders").and_then(|moves| moves.status()).expect("a status").version;
    let other = table
        .replace("settle = \"50ms\"", &format!("settle = \"{time}\""))
        .replace(&format!("version = {version}"), &format!("version = {}", version + 1));
    mill.put_routes("orders", &other, Change::Apply).expect("stored");
}

#[test]
fn a_write_that_comes_later_than_settle_changes_nothing() {
    for shards in [&Postgres::start() as &dyn Shards, &MariaDb::start()] {
        let Stage { mill, moves, rows, .. } = &Stage::new(shards);
        settle(mill, "0ms");
        let refused = moves.copy(rows, Change::Apply, &mut goes_on).expect_err("every statement is late");
        assert!(refused.message.contains("a longer `settle` is needed"), "{refused}");
        assert_eq!(shards.open(1)("SELECT COUNT(*) FROM t_order"), ["0"]);
    }
}

#[test]
fn a_copy_ends_where_another_operator_has_cut_over_meanwhile() {
    let shards = Postgres::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    let mut chunks = 0;
    let mut other_operator = |event: RowsEvent<'_>| {
        if matches!(event, RowsEvent::Progress { .. }) {
            chunks += 1;
            if chunks == 1 {
                let status = moves.status().expect("a status");
                let began =
                    status.moving.and_then(|moving| moving.verify_from).expect("readers write to both");
                moves.verified(began, Change::Apply).expect("recorded");
                moves.next(None, Change::Apply).expect("a step");
            }
        }
        ControlFlow::Continue(())
    };
    let refused = moves.copy(rows, Change::Apply, &mut other_operator).expect_err("ids are cut over");
    assert_eq!(chunks, 1, "no chunk is copied behind the step");
    assert!(refused.code == Code::StoreRefused && refused.message.contains("another operator"), "{refused}");
}

/// A server may end the session that holds the locks of the old shard, and a program then deletes a row that a statement waits for.
#[test]
fn a_copy_whose_locks_have_gone_brings_no_deleted_row_back() {
    const WAITS: [&str; 2] = [
        "SELECT COUNT(*) FROM pg_catalog.pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO%' || pg_catalog.current_schema() || '%t_order%'",
        "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Update' AND info LIKE 'INSERT INTO%t_order%'",
    ];
    const HOLDERS: [&str; 2] = [
        "SELECT pid::text FROM pg_catalog.pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%' || pg_catalog.current_schema() || '%t_order%FOR SHARE'",
        "SELECT trx_mysql_thread_id FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id WHERE db = DATABASE()",
    ];
    let words = WAITS.into_iter().zip(HOLDERS).zip(["SELECT pg_terminate_backend", "KILL"]);
    for (shards, ((waits, holders), end)) in
        [&Postgres::start() as &dyn Shards, &MariaDb::start()].into_iter().zip(words)
    {
        let Stage { mill, moves, rows, .. } = &Stage::new(shards);
        settle(mill, "8s");
        let [mut old, mut new, mut program] = [0, 1, 1].map(|shard| shards.open(shard));
        let id = FIRST + 2;
        new(&format!("INSERT INTO t_order VALUES ({id}, 1, 1)"));
        program("BEGIN");
        let delete = format!("DELETE FROM t_order WHERE order_id = {id}");
        program(&delete);
        std::thread::scope(|scope| {
            let copy = scope.spawn(|| moves.copy(rows, Change::Apply, &mut goes_on));
            while new(waits) == ["0"] {
                assert!(!copy.is_finished(), "it waits for the lock");
                std::thread::sleep(Duration::from_millis(10));
            }
            let holders = old(holders);
            assert!(!holders.is_empty(), "a session has locks");
            for holder in holders {
                old(&format!("{end} ({holder})"));
            }
            old(&delete);
            program("COMMIT");
            copy.join().expect("no panic").expect("it is sent again");
        });
        assert_eq!(new(&format!("SELECT COUNT(*) FROM t_order WHERE order_id = {id}")), ["0"]);
        let found = moves.verify(rows, RowRepair::Named, Change::DryRun, &mut goes_on);
        assert!(found.expect("a comparison").is_alike());
    }
}

/// A statement may wait for one lock after the other until the move is over: what it wrote is not committed then.
#[test]
fn a_chunk_during_which_another_operator_makes_a_step_is_not_committed() {
    const WAITS: [&str; 2] = [
        "SELECT COUNT(*) FROM pg_catalog.pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO%' || pg_catalog.current_schema() || '%t_order%'",
        "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Update' AND info LIKE 'INSERT INTO%t_order%'",
    ];
    for (shards, waits) in [&Postgres::start() as &dyn Shards, &MariaDb::start()].into_iter().zip(WAITS) {
        let Stage { mill, moves, rows, .. } = &Stage::new(shards);
        settle(mill, "8s");
        let [mut new, mut program] = [1, 1].map(|shard| shards.open(shard));
        let id = FIRST + 2;
        new(&format!("INSERT INTO t_order VALUES ({id}, 1, 1)"));
        program("BEGIN");
        program(&format!("SELECT order_id FROM t_order WHERE order_id = {id} FOR UPDATE"));
        let copied = std::thread::scope(|scope| {
            let copy = scope.spawn(|| moves.copy(rows, Change::Apply, &mut goes_on));
            while new(waits) == ["0"] {
                assert!(!copy.is_finished(), "it waits for the lock");
                std::thread::sleep(Duration::from_millis(10));
            }
            moves.begin_verify(Change::Apply).expect("a step");
            program("ROLLBACK");
            copy.join().expect("no panic")
        });
        let refused = copied.expect_err("another version is there");
        assert!(refused.message.contains("another operator"), "{refused}");
        assert_eq!(new("SELECT COUNT(*) FROM t_order"), ["1"], "nothing of the chunk is there");
    }
}

/// A statement that waits for a lock has begun, and would be carried out when the lock is free.
#[test]
fn a_copy_that_waits_for_a_lock_writes_nothing_once_the_move_is_over() {
    const WAITS: [&str; 2] = [
        "SELECT COUNT(*) FROM pg_catalog.pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%INSERT INTO%t_order%'",
        "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Update' AND info LIKE 'INSERT INTO%t_order%'",
    ];
    for (shards, waits) in [&Postgres::start() as &dyn Shards, &MariaDb::start()].into_iter().zip(WAITS) {
        let Stage { mill, moves, rows, .. } = &Stage::new(shards);
        // Half of it is a number of seconds, in which MariaDB counts.
        settle(mill, "4s");
        moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
        let [mut old, mut new, mut program] = [0, 1, 1].map(|shard| shards.open(shard));
        // A chunk that differs is sent again as a whole.
        new(&format!("DELETE FROM t_order WHERE order_id = {}", FIRST + 4));
        program("BEGIN");
        program(&format!("SELECT order_id FROM t_order WHERE order_id = {} FOR UPDATE", FIRST + 2));
        let waited = AtomicBool::new(false);
        let copied = std::thread::scope(|scope| {
            let copy = scope.spawn(|| {
                let mut on_event = |event: RowsEvent<'_>| {
                    // ordering: Relaxed — a flag that carries nothing else.
                    waited.fetch_or(matches!(event, RowsEvent::Retries(_)), Ordering::Relaxed);
                    ControlFlow::Continue(())
                };
                moves.copy(rows, Change::Apply, &mut on_event)
            });
            // ordering: Relaxed — see above.
            while new(waits) == ["0"] && !waited.load(Ordering::Relaxed) {
                assert!(!copy.is_finished(), "it waits for the lock");
                std::thread::sleep(Duration::from_millis(10));
            }
            for say in [&mut old, &mut new] {
                say(&format!("DELETE FROM t_order WHERE order_id = {}", FIRST + 10));
            }
            let found = moves.verify(rows, RowRepair::Bring, Change::Apply, &mut goes_on);
            assert!(found.expect("a comparison").is_alike());
            finished(moves);
            program("ROLLBACK");
            copy.join().expect("no panic")
        });
        let found = new(&format!("SELECT COUNT(*) FROM t_order WHERE order_id = {}", FIRST + 10));
        assert_eq!(found, ["0"], "a deleted row is back");
        let refused = copied.expect_err("the move is over");
        assert!(refused.message.contains("another operator"), "{refused}");
    }
}

/// A reader of another process reads the table once a second, and a comparison of few rows is over before.
#[test]
fn a_comparison_that_is_over_before_readers_follow_waits_for_them_and_is_recorded() {
    let shards = Postgres::start();
    let Stage { _folder: folder, moves, rows, .. } = &Stage::new(&shards);
    let program = Mill::open(&patient(&format!("sqlite:{}/routes.keymill", folder.path().display())));
    let program = program.expect("a mill");
    let _router = program.router("orders").expect("a router");
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    for _ in 0..3 {
        let found = moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on);
        assert!(found.expect("a comparison").recorded.is_some());
    }
}

/// Servers of MariaDB that are in no cluster all call it by the same empty name.
#[test]
fn databases_of_one_name_on_two_servers_are_two() {
    let shards = MariaDb::start();
    let Stage { moves, .. } = &Stage::new(&shards);
    let other = mariadb::Private::start("");
    let mut root = other.root();
    for sql in [
        "CREATE DATABASE rust_a",
        "GRANT ALL ON rust_a.* TO keymill@'%'",
        "CREATE TABLE rust_a.t_order (order_id BIGINT PRIMARY KEY, buyer BIGINT NOT NULL, version BIGINT NOT NULL)",
    ] {
        root.query_drop(sql).expect("a table");
    }
    let [from, _] = shards.urls();
    let to = other.url().replace("/ids", "/rust_a");
    let rows = MovedRows::new(&format!("s1={from}"), &format!("s2={to}")).table("t_order", "order_id");
    let copied = moves.copy(&rows, Change::Apply, &mut goes_on).expect("a copy");
    assert_eq!(copied[0].sent, ROWS);
}

/// A replica that lags, or whose programs write to it: neither has the rows of its primary.
#[test]
fn a_replica_is_no_shard_whether_it_follows_or_has_stopped() {
    let shards = MariaDb::start();
    let Stage { moves, .. } = &Stage::new(&shards);
    let replica = mariadb::Private::start("--log-bin=binlog --server-id=2 --log-slave-updates");
    let primary = mariadb::Private::start("--log-bin=binlog --server-id=1");
    replica.follow(&primary);
    let [from, to] = shards.urls();
    let of_replica = replica.url();
    let sees_replication = if mariadb::is_mysql(&mut replica.root()) {
        "GRANT SELECT ON performance_schema.replication_connection_configuration TO keymill@'%'"
    } else {
        "GRANT REPLICATION CLIENT, SLAVE MONITOR ON *.* TO keymill@'%'"
    };
    replica.root().query_drop(sees_replication).expect("a grant");
    for stops in [false, true] {
        if stops {
            replica.root().query_drop("STOP REPLICA").expect("root may stop it");
        }
        for (from, to) in [(&of_replica, &to), (&from, &of_replica)] {
            let rows =
                MovedRows::new(&format!("s1={from}"), &format!("s2={to}")).table("t_order", "order_id");
            let refused = moves.copy(&rows, Change::Apply, &mut goes_on).expect_err("a replica");
            assert!(
                refused.code == Code::StoreRefused && refused.message.contains("name the primary"),
                "{refused}"
            );
        }
    }
}

/// Servers that know nothing of each other, with the databases that an installation gives them.
struct Apart([mariadb::Private; 2]);

impl Shards for Apart {
    fn urls(&self) -> [String; 2] {
        self.0.each_ref().map(|server| server.url())
    }

    fn open(&self, shard: usize) -> Client {
        let mut connection = mariadb::connection_of(&self.urls()[shard]);
        Box::new(move |sql| {
            let rows: Vec<mysql::Row> = connection.query(sql).expect("the statement is carried out");
            rows.into_iter().map(|row| row.get(0).expect("a value")).collect()
        })
    }
}

#[test]
fn databases_of_one_name_on_two_servers_are_two_shards() {
    let shards = Apart(["", ""].map(mariadb::Private::start));
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    let found = moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
    assert!(found.is_alike() && found.recorded.is_some(), "{found:?}");
}

/// A program has deleted an order with its items in the new shard, and is about to insert it there again, or its items were read just before.
#[test]
fn a_chunk_whose_rows_refer_to_one_that_comes_a_moment_later_is_read_again() {
    for shards in [&Postgres::start() as &dyn Shards, &MariaDb::start()] {
        let Stage { moves, rows, .. } = &Stage::new(shards);
        for shard in [0, 1] {
            shards.open(shard)(
                "CREATE TABLE t_item (item_of BIGINT, n BIGINT, PRIMARY KEY (item_of, n), FOREIGN KEY (item_of) REFERENCES t_order (order_id))",
            );
        }
        shards.open(0)(&format!("INSERT INTO t_item VALUES ({FIRST}, 1)"));
        let mut new = shards.open(1);
        let (mut is_away, mut retries) = (false, 0);
        let mut program = |event: RowsEvent<'_>| {
            match event {
                RowsEvent::Progress { table: "t_order", .. } if !is_away => {
                    is_away = true;
                    new(&format!("DELETE FROM t_order WHERE order_id = {FIRST}"));
                }
                RowsEvent::Retries(_) => {
                    retries += 1;
                    if retries == 2 {
                        new(&format!("INSERT INTO t_order VALUES ({FIRST}, 0, 1)"));
                    }
                }
                _ => {}
            }
            ControlFlow::Continue(())
        };
        let rows = rows.clone().table("t_item", "item_of");
        let copied = moves.copy(&rows, Change::Apply, &mut program).expect("a copy");
        assert_eq!((retries, copied[1].sent), (2, 1));
        assert_eq!(shards.open(1)("SELECT n FROM t_item"), ["1"]);
    }
}

/// As programs do that write a few rows all the time: at every moment one of two rows is locked.
#[test]
fn rows_of_which_one_is_locked_at_any_moment_are_copied_one_by_one() {
    for shards in [&Postgres::start() as &dyn Shards, &MariaDb::start()] {
        let Stage { moves, rows, .. } = &Stage::new(shards);
        let mut programs = [0, 1].map(|row| (shards.open(0), FIRST + row));
        let lock = move |(program, row): &mut (Client, u64)| {
            program("BEGIN");
            program(&format!("SELECT version FROM t_order WHERE order_id = {row} FOR UPDATE"));
        };
        lock(&mut programs[0]);
        let (mut holder, mut retries) = (0, 0);
        let mut program = |event: RowsEvent<'_>| {
            if matches!(event, RowsEvent::Retries(_)) {
                retries += 1;
                let before = holder;
                holder = 1 - before;
                lock(&mut programs[holder]);
                (programs[before].0)("ROLLBACK");
            }
            ControlFlow::Continue(())
        };
        let copied = moves.copy(rows, Change::Apply, &mut program).expect("a copy");
        assert_eq!(copied[0].sent, ROWS);
        assert!(retries >= 2, "{retries}");
    }
}

/// Writes that were not acknowledged: the commit of the new shard was lost with its connection, after the rows' tables were copied.
#[test]
fn rows_whose_parents_were_written_to_the_old_shard_only_while_they_were_copied_are_copied_with_them() {
    for shards in [&Postgres::start() as &dyn Shards, &MariaDb::start()] {
        let Stage { moves, rows, .. } = &Stage::new(shards);
        for shard in [0, 1] {
            let mut say = shards.open(shard);
            say(
                "CREATE TABLE t_item (item_of BIGINT, n BIGINT, PRIMARY KEY (item_of, n), FOREIGN KEY (item_of) REFERENCES t_order (order_id))",
            );
            say(
                "CREATE TABLE t_part (part_of BIGINT, n BIGINT, PRIMARY KEY (part_of, n), FOREIGN KEY (part_of, n) REFERENCES t_item (item_of, n))",
            );
        }
        let mut old = shards.open(0);
        old(&format!("INSERT INTO t_item VALUES ({FIRST}, 1)"));
        old(&format!("INSERT INTO t_part VALUES ({FIRST}, 1)"));
        let (mut order, mut passes) = (FIRST + 900_000, BTreeMap::new());
        let mut program = |event: RowsEvent<'_>| {
            if let RowsEvent::Progress { table, share: 1.0, .. } = event {
                let pass = passes.entry(table.to_owned()).or_insert(0);
                *pass += 1;
                // A part whose parents' tables were copied, and an item after the orders were copied again.
                if matches!((table, *pass), ("t_item", 1) | ("t_order", 2)) {
                    order += 1;
                    old(&format!("INSERT INTO t_order VALUES ({order}, 0, 1)"));
                    old(&format!("INSERT INTO t_item VALUES ({order}, 2)"));
                    if table == "t_item" {
                        old(&format!("INSERT INTO t_part VALUES ({order}, 2)"));
                    }
                }
            }
            ControlFlow::Continue(())
        };
        let rows = rows.clone().table("t_item", "item_of").table("t_part", "part_of");
        let copied = moves.copy(&rows, Change::Apply, &mut program).expect("a copy");
        assert_eq!((copied[0].sent, copied[1].sent, copied[2].sent), (ROWS + 2, 3, 2), "{passes:?}");
        let found = moves.verify(&rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
        assert!(found.is_alike() && found.recorded.is_some(), "{found:?}");
    }
}

/// Each pass over the tables in front of it may take hours.
#[test]
fn a_row_whose_parent_neither_shard_has_is_named_after_one_more_pass_over_the_tables_in_front() {
    let shards = Postgres::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    for shard in [0, 1] {
        let mut say = shards.open(shard);
        say("CREATE TABLE t_buyer (id BIGINT PRIMARY KEY)");
        say("CREATE TABLE t_item (item_of BIGINT PRIMARY KEY, buyer BIGINT REFERENCES t_buyer (id))");
    }
    let mut old = shards.open(0);
    old("INSERT INTO t_buyer VALUES (1)");
    old(&format!("INSERT INTO t_item VALUES ({FIRST}, 1)"));
    let mut passes = 0;
    let mut program = |event: RowsEvent<'_>| {
        if matches!(event, RowsEvent::Progress { table: "t_order", share: 1.0, .. }) {
            passes += 1;
        }
        ControlFlow::Continue(())
    };
    let rows = rows.clone().table("t_item", "item_of");
    let refused = moves.copy(&rows, Change::Apply, &mut program).expect_err("its parent is not there");
    assert!(
        refused.code == Code::StoreRefused && refused.message.contains("lacks the row that it refers to"),
        "{refused}"
    );
    assert_eq!(passes, 2);
}

/// The server takes any bytes for text there, and converts none.
#[test]
fn a_text_of_a_database_without_an_encoding_is_copied_byte_by_byte_or_its_row_is_named() {
    let shards = Databases::start_as("ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0");
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    for shard in [0, 1] {
        shards.open(shard)("ALTER TABLE t_order ADD COLUMN note TEXT");
    }
    let set = |bytes: &str| {
        shards.root(0).say(&format!(
            "UPDATE t_order SET note = convert_from('\\x{bytes}'::bytea, 'SQL_ASCII') WHERE order_id = {FIRST}"
        ));
    };
    // UTF-8, and Latin-1.
    set("636166c3a9");
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
    let found = moves.verify(rows, RowRepair::Named, Change::Apply, &mut goes_on).expect("a comparison");
    assert!(found.is_alike(), "{found:?}");
    set("636166e9");
    let refused = moves.copy(rows, Change::Apply, &mut goes_on).expect_err("no text of any encoding");
    assert!(
        refused.code == Code::StoreRefused
            && refused.message.contains(&format!("a row of `t_order` from {FIRST} to ")),
        "{refused}"
    );
    set("636166c3a9");
    moves.copy(rows, Change::Apply, &mut goes_on).expect("a copy");
}

/// A statement that waits for a lock is not answered any more.
#[test]
fn a_connection_that_breaks_in_the_middle_of_a_copy_says_nothing_of_ids() {
    let shards = MariaDb::start();
    let Stage { moves, rows, .. } = &Stage::new(&shards);
    let mut holder = shards.open(1);
    holder("BEGIN");
    holder(&format!("INSERT INTO t_order VALUES ({}, 1, 1)", FIRST + 2));
    let said = std::sync::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| {
            let mut on_event = |event: RowsEvent<'_>| {
                if let RowsEvent::Retries(error) = event {
                    said.lock().expect("no panic").push(error.message.clone());
                }
                ControlFlow::Continue(())
            };
            moves.copy(rows, Change::Apply, &mut on_event)
        });
        let mut root = shards.0.root();
        let until = Instant::now() + Duration::from_secs(240);
        let broken = |said: &Vec<String>| said.iter().any(|one| !one.contains("Lock wait"));
        while !broken(&said.lock().expect("no panic")) {
            assert!(Instant::now() < until && !copy.is_finished(), "it waits for the lock");
            let waits =
                "SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'INSERT INTO%t_order%'";
            for id in root.query::<u64, _>(waits).expect("the sessions") {
                let _ = root.query_drop(format!("KILL {id}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        holder("ROLLBACK");
        copy.join().expect("no panic").expect("it goes on");
    });
    let said = said.into_inner().expect("no panic");
    assert!(said.iter().all(|one| !one.contains("reserved")), "{said:?}");
}
