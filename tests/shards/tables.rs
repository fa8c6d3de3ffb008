//! Tables of all kinds: types, keys, triggers, and what changes them while programs run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use keymill::{Code, ShardConnection, ShardFailure, ShardKind, ShardRow, Shards, WorkError};

use super::databases::{Database, FIRST, MariaDb, Postgres, Stage, ask};
use super::writes::{MOVING, insert, ours, router};

/// Tables of other columns than the usual ones, on both shards.
fn own<D: Database>(
    database: &D,
    create: &[&str],
    tables: &[(&str, &str)],
    settings: &'static str,
) -> Shards<D::Connection> {
    for (shard, sql) in [0, 1].into_iter().flat_map(|shard| create.iter().map(move |sql| (shard, sql))) {
        ask(database, shard, sql);
    }
    let connect = |shard| {
        let connect = database.connect(shard);
        move || {
            let mut connection = connect()?;
            connection.ask(settings)?;
            Ok::<_, WorkError>(connection)
        }
    };
    let shards = Shards::new(&router(MOVING)).shard("s1", connect(0)).shard("s2", connect(1));
    tables.iter().fold(shards, |shards, (name, key)| shards.table(name, key))
}

fn works_alike<D: Database>(database: &D, shards: &Shards<D::Connection>, table: &str, work: &[String]) {
    let written = shards.write(FIRST, |connection| {
        for sql in work {
            connection.ask(sql)?;
        }
        Ok(())
    });
    written.unwrap_or_else(|error| panic!("{work:?}: {error}"));
    let rows = |shard| {
        // MySQL has no room to sort long values.
        let mut rows = ask(database, shard, &format!("SELECT * FROM {table}"));
        rows.sort();
        rows
    };
    assert_eq!(rows(0), rows(1), "{work:?}");
}

/// JDBC's `setMaxRows` and the client's option `--safe-updates` leave one in a session.
#[test]
fn the_most_rows_that_a_session_of_mariadb_is_told_do_not_cut_off_rows_nor_columns() {
    let database = MariaDb::new();
    let create = "CREATE TABLE t (id BIGINT, n INT, a INT, b INT, version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (id, n))";
    let shards = own(&database, &[create], &[("t", "id")], "SET SESSION sql_select_limit = 1");
    let insert = format!("INSERT INTO t (id, n, a, b) VALUES ({FIRST}, 1, 1, 1), ({FIRST}, 2, 2, 2)");
    works_alike(&database, &shards, "t", &[insert]);
    works_alike(&database, &shards, "t", &["UPDATE t SET b = 3".to_owned()]);
    assert_eq!(ask(&database, 1, "SELECT COUNT(*) FROM t WHERE b = 3"), [["2"]]);
}

/// A connection of a pool: it is kept when it is dropped.
struct Pooled {
    connection: Option<mysql::Conn>,
    pool: Arc<Mutex<Vec<mysql::Conn>>>,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        self.pool.lock().expect("no panic").extend(self.connection.take());
    }
}

impl ShardConnection for Pooled {
    fn kind(&self) -> ShardKind {
        ShardKind::MySql
    }

    fn ask(&mut self, sql: &str) -> Result<Vec<ShardRow>, ShardFailure> {
        self.connection.as_mut().expect("a connection").ask(sql)
    }

    fn failure(error: &(dyn std::error::Error + 'static)) -> Option<ShardFailure> {
        mysql::Conn::failure(error)
    }
}

#[test]
fn a_session_of_mariadb_is_given_back_as_it_was_also_when_rows_exchanged_a_value() {
    let stage = Stage::new(MariaDb::new());
    let pool: Arc<Mutex<Vec<mysql::Conn>>> = Arc::default();
    let pooled = |shard| {
        let (connect, pool) = (stage.database.connect(shard), Arc::clone(&pool));
        move || {
            let mut connection = connect()?;
            connection.ask("SET SESSION time_zone = '+09:00', sql_mode = 'ANSI_QUOTES', innodb_lock_wait_timeout = 7, sql_select_limit = 5")?;
            Ok::<_, WorkError>(Pooled { connection: Some(connection), pool: Arc::clone(&pool) })
        }
    };
    let shards = Shards::new(&router(MOVING))
        .shard("s1", pooled(0))
        .shard("s2", pooled(1))
        .table("t_order", "order_id")
        .table("t_item", "item_of");
    shards.write(FIRST, |connection| insert(connection, FIRST)).expect("a write");
    shards
        .write(FIRST, |connection| {
            for (n, seat) in [(1, "NULL".to_owned()), (2, FIRST.to_string()), (1, format!("-{FIRST}"))] {
                connection
                    .ask(&format!("UPDATE t_item SET seat = {seat} WHERE item_of = {FIRST} AND n = {n}"))?;
            }
            Ok(())
        })
        .expect("an exchange");
    let mut given_back = pool.lock().expect("no panic");
    assert!(given_back.len() >= 4);
    for connection in given_back.iter_mut() {
        let settings = "SELECT CONCAT_WS(' ', @@SESSION.time_zone, @@SESSION.sql_mode, @@SESSION.innodb_lock_wait_timeout, @@SESSION.sql_select_limit)";
        assert_eq!(
            connection.ask(settings).expect("a session"),
            [[Some(b"+09:00 ANSI_QUOTES 7 5".to_vec())]]
        );
    }
}

#[test]
fn a_column_that_gets_another_character_set_while_its_range_moves_stays_what_it_says() {
    let database = MariaDb::new();
    let create = "CREATE TABLE t (id BIGINT PRIMARY KEY, note VARCHAR(20) CHARACTER SET latin1, version BIGINT NOT NULL DEFAULT 0)";
    let shards = own(&database, &[create], &[("t", "id")], "SET @nothing = 1");
    works_alike(
        &database,
        &shards,
        "t",
        &[format!("INSERT INTO t (id, note) VALUES ({FIRST}, 'caf\u{e9}')")],
    );
    for shard in [1, 0] {
        ask(&database, shard, "ALTER TABLE t MODIFY note VARCHAR(20) CHARACTER SET utf8mb4");
    }
    works_alike(&database, &shards, "t", &["UPDATE t SET note = 'th\u{e9}'".to_owned()]);
}

#[test]
fn a_column_that_gets_a_time_zone_while_its_range_moves_stays_the_same_moment() {
    let database = MariaDb::new();
    let create =
        "CREATE TABLE t (id BIGINT PRIMARY KEY, at DATETIME NULL, version BIGINT NOT NULL DEFAULT 0)";
    let shards = own(&database, &[create], &[("t", "id")], "SET SESSION time_zone = '+09:00'");
    works_alike(
        &database,
        &shards,
        "t",
        &[format!("INSERT INTO t (id, at) VALUES ({FIRST}, '2026-11-28 12:00:00')")],
    );
    for shard in [1, 0] {
        ask(&database, shard, "ALTER TABLE t MODIFY at TIMESTAMP NULL");
    }
    let update = "UPDATE t SET at = '2026-11-28 13:00:00'";
    shards.write(FIRST, |connection| Ok(connection.ask(update)?)).expect("a write");
    let moment = |shard| ask(&database, shard, "SELECT UNIX_TIMESTAMP(at) FROM t");
    assert_eq!(moment(0), moment(1));
}

#[test]
fn a_session_of_mariadb_that_speaks_as_oracle_can_write() {
    let database = MariaDb::new();
    if database.lacks("sql_mode `ORACLE`", (10, 3)) {
        return;
    }
    let create = "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT, version BIGINT NOT NULL DEFAULT 0)";
    let shards = own(&database, &[create], &[("t", "id")], "SET SESSION sql_mode = 'ORACLE'");
    works_alike(&database, &shards, "t", &[format!("INSERT INTO t (id, n) VALUES ({FIRST}, 1)")]);
}

/// The parent's key is updated, and its children with it: the parent of before goes while a child refers to it.
#[test]
fn a_key_that_takes_its_children_along_is_written_to_both_shards() {
    fn along<D: Database>(database: &D, settings: &'static str) {
        let create = [
            "CREATE TABLE parent (id BIGINT, code VARCHAR(5), version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (id, code))",
            "CREATE TABLE child (of_id BIGINT, n INT, code VARCHAR(5), version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (of_id, n), FOREIGN KEY (of_id, code) REFERENCES parent (id, code) ON UPDATE CASCADE)",
        ];
        let shards = own(database, &create, &[("parent", "id"), ("child", "of_id")], settings);
        works_alike(
            database,
            &shards,
            "child",
            &[
                format!("INSERT INTO parent (id, code) VALUES ({FIRST}, 'a')"),
                format!("INSERT INTO child (of_id, n, code) VALUES ({FIRST}, 1, 'a')"),
            ],
        );
        works_alike(database, &shards, "child", &["UPDATE parent SET code = 'b'".to_owned()]);
        assert_eq!(ask(database, 1, "SELECT code FROM parent"), [["b"]]);
    }
    along(&MariaDb::new(), "SET @nothing = 1");
    along(&Postgres::new(), "SET application_name = 'along'");
}

/// Its parent is deleted in the new shard and inserted anew, with which the child would go.
#[test]
fn a_child_that_goes_with_its_parent_is_there_after_the_parent_was_written_anew() {
    fn anew<D: Database>(database: &D, settings: &'static str) {
        // With a text as `code` MySQL 9.7 refuses every child: it does not find the parent.
        let create = [
            "CREATE TABLE parent (id BIGINT UNIQUE, code INT, version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (id, code))",
            "CREATE TABLE child (of_id BIGINT, n INT, PRIMARY KEY (of_id, n), FOREIGN KEY (of_id) REFERENCES parent (id) ON DELETE CASCADE)",
        ];
        let shards = own(database, &create, &[("parent", "id"), ("child", "of_id")], settings);
        let insert = [
            format!("INSERT INTO parent (id, code) VALUES ({FIRST}, 1)"),
            format!("INSERT INTO child (of_id, n) VALUES ({FIRST}, 1)"),
        ];
        works_alike(database, &shards, "child", &insert);
        works_alike(database, &shards, "child", &["UPDATE parent SET code = 2".to_owned()]);
        assert_eq!(ask(database, 1, "SELECT code FROM parent"), [["2"]]);
        assert_eq!(ask(database, 1, "SELECT n FROM child"), [["1"]]);
    }
    anew(&MariaDb::new(), "SET @nothing = 1");
    anew(&Postgres::new(), "SET application_name = 'anew'");
}

#[test]
fn rows_of_other_ids_that_would_change_with_one_that_is_written_anew_refuse_the_write() {
    fn others<D: Database>(database: &D, settings: &'static str, rule: &str) {
        let gift = format!(
            "CREATE TABLE gift (id BIGINT, n INT, of_id BIGINT, PRIMARY KEY (id, n), FOREIGN KEY (of_id) REFERENCES parent (id) ON DELETE {rule})"
        );
        let create = [
            "CREATE TABLE parent (id BIGINT PRIMARY KEY)",
            "CREATE TABLE place (id BIGINT, n INT, seat INT UNIQUE, PRIMARY KEY (id, n))",
            &gift,
        ];
        let tables = [("parent", "id"), ("place", "id"), ("gift", "id")];
        let shards = own(database, &create, &tables, settings);
        let other = FIRST + 1;
        for shard in [0, 1] {
            for sql in [
                format!("INSERT INTO parent VALUES ({FIRST}), ({other})"),
                format!("INSERT INTO place VALUES ({FIRST}, 1, 1), ({FIRST}, 2, 2)"),
                format!("INSERT INTO gift VALUES ({other}, 1, {FIRST})"),
            ] {
                ask(database, shard, &sql);
            }
        }
        let exchange =
            ["SET seat = NULL WHERE n = 1", "SET seat = 1 WHERE n = 2", "SET seat = 2 WHERE n = 1"];
        let written = shards.write(FIRST, |connection| {
            for sql in exchange {
                connection.ask(&format!("UPDATE place {sql}"))?;
            }
            Ok(())
        });
        let error = written.expect_err("the gift would go");
        let error = ours(&error);
        let says = "rows of other ids in ";
        assert!(error.code == Code::StoreRefused && error.message.contains(says), "{error}");
        for shard in [0, 1] {
            let gifts = ask(database, shard, "SELECT of_id FROM gift");
            assert_eq!(gifts, [[FIRST.to_string()]], "{rule}");
            assert_eq!(ask(database, shard, "SELECT seat FROM place WHERE n = 1"), [["1"]]);
        }
    }
    others(&MariaDb::new(), "SET @nothing = 1", "SET NULL");
    others(&MariaDb::new(), "SET @nothing = 1", "CASCADE");
    others(&Postgres::new(), "SET application_name = 'others'", "SET NULL");
    others(&Postgres::new(), "SET application_name = 'others'", "CASCADE");
}

/// On MySQL and MariaDB each id that has rows has one in the first table.
#[test]
fn rows_that_only_the_new_shard_would_delete_with_others_refuse_the_write_in_postgresql() {
    let database = Postgres::new();
    let create = [
        "CREATE TABLE t (id BIGINT PRIMARY KEY)",
        "CREATE TABLE child (id BIGINT, n INT, PRIMARY KEY (id, n))",
    ];
    let shards = own(&database, &create, &[("t", "id"), ("child", "id")], "SELECT 1");
    let insert =
        [format!("INSERT INTO t VALUES ({FIRST})"), format!("INSERT INTO child VALUES ({FIRST}, 1)")];
    works_alike(&database, &shards, "child", &insert);
    ask(&database, 1, "ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES t ON DELETE CASCADE");
    refused(&database, &shards, "child", "DELETE FROM t", "their foreign keys differ");
    assert_eq!(ask(&database, 0, "SELECT COUNT(*) FROM t"), [["1"]]);
}

#[test]
fn a_generated_column_of_the_key_is_refused_in_postgresql() {
    let database = Postgres::new();
    let create = "CREATE TABLE t (id BIGINT, n INT, twice INT GENERATED ALWAYS AS (n * 2) STORED, PRIMARY KEY (id, twice))";
    let shards = own(&database, &[create], &[("t", "id")], "SELECT 1");
    let insert = format!("INSERT INTO t VALUES ({FIRST}, 1), ({FIRST}, 2)");
    refused(&database, &shards, "t", &insert, "column `twice` of the primary key of `t` is generated");
}

#[test]
fn rows_that_exchange_ranges_of_which_no_two_may_overlap_are_written_to_both_shards() {
    let database = Postgres::new();
    let create = "CREATE TABLE t (id bigint, n int, r int4range, version bigint NOT NULL DEFAULT 0, PRIMARY KEY (id, n), EXCLUDE USING gist (r WITH &&))";
    let shards = own(&database, &[create], &[("t", "id")], "SET application_name = 'ranges'");
    let insert = format!("INSERT INTO t (id, n, r) VALUES ({FIRST}, 1, '[1,5)'), ({FIRST}, 2, '[5,9)')");
    works_alike(&database, &shards, "t", &[insert]);
    let exchange = [
        "UPDATE t SET r = NULL WHERE n = 1",
        "UPDATE t SET r = '[1,5)' WHERE n = 2",
        "UPDATE t SET r = '[5,9)' WHERE n = 1",
    ];
    works_alike(&database, &shards, "t", &exchange.map(str::to_owned));
}

#[test]
fn a_shard_of_postgresql_that_quotes_all_names_is_written_to() {
    let database = Postgres::new();
    let create =
        "CREATE TABLE t (id bigint PRIMARY KEY, note text, kind regclass, version bigint NOT NULL DEFAULT 0)";
    let quotes = "SELECT set_config('quote_all_identifiers', CASE WHEN current_schema() LIKE 'shards_a%' THEN 'on' ELSE 'off' END, false)";
    let shards = own(&database, &[create], &[("t", "id")], quotes);
    let insert = format!("INSERT INTO t (id, note, kind) VALUES ({FIRST}, 'n', 'pg_class')");
    works_alike(&database, &shards, "t", &[insert]);
}

#[test]
fn keys_and_values_of_types_that_only_mariadb_has_are_written_to_both_shards() {
    let database = MariaDb::new();
    if database.lacks("INET4", (10, 10)) {
        return;
    }
    let create = "CREATE TABLE t (id BIGINT, bits BIT(20), whole BIT(64), u UUID, i INET6, j INET4, version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (id, bits))";
    let shards = own(&database, &[create], &[("t", "id")], "SET @nothing = 1");
    let row = |bits: &str| {
        format!(
            "({FIRST}, b'{bits}', 1 << 63 | 5, '123e4567-e89b-12d3-a456-426655440000', '::ffff:1.2.3.4', '1.2.3.4')"
        )
    };
    let insert =
        format!("INSERT INTO t (id, bits, whole, u, i, j) VALUES {}, {}", row("10100000"), row("111"));
    works_alike(&database, &shards, "t", &[insert]);
    works_alike(&database, &shards, "t", &["UPDATE t SET i = '::1' WHERE bits = b'111'".to_owned()]);
    works_alike(&database, &shards, "t", &["DELETE FROM t WHERE bits = b'111'".to_owned()]);
    assert_eq!(ask(&database, 1, "SELECT COUNT(*) FROM t"), [["1"]]);
}

/// A write that is refused, with these words, and leaves nothing.
fn refused<D: Database>(database: &D, shards: &Shards<D::Connection>, table: &str, sql: &str, words: &str) {
    let rows = |shard| {
        // MySQL has no room to sort long values.
        let mut rows = ask(database, shard, &format!("SELECT * FROM {table}"));
        rows.sort();
        rows
    };
    let before = [rows(0), rows(1)];
    let error = shards.write(FIRST, |connection| Ok(connection.ask(sql)?)).expect_err(words);
    let error = ours(&error);
    assert!(error.code == Code::StoreRefused && error.message.contains(words), "{error}");
    assert_eq!([rows(0), rows(1)], before);
}

/// What is known of a table of MariaDB may be of a moment ago.
fn a_moment_later() {
    std::thread::sleep(Duration::from_millis(1_100));
}

#[test]
fn what_a_trigger_of_the_new_shard_changes_is_refused_and_one_that_changes_no_moved_row_is_not() {
    fn fires<D: Database>(database: &D, settings: &'static str, [audit, changes, drop]: [&str; 3]) {
        let tables = ["CREATE TABLE t (id BIGINT PRIMARY KEY, n INT, m INT)", "CREATE TABLE audit (n INT)"];
        let shards = own(database, &tables, &[("t", "id")], settings);
        ask(database, 1, audit);
        works_alike(database, &shards, "t", &[format!("INSERT INTO t (id, n) VALUES ({FIRST}, 1)")]);
        assert_eq!(ask(database, 1, "SELECT n FROM audit"), [["1"]]);
        ask(database, 1, changes);
        a_moment_later();
        refused(database, &shards, "t", "UPDATE t SET n = 2", "changes the rows of `t`");
        ask(database, 1, drop);
        works_alike(database, &shards, "t", &["UPDATE t SET n = 3".to_owned()]);
    }
    fires(
        &MariaDb::new(),
        "SET @nothing = 1",
        [
            "CREATE TRIGGER audits AFTER INSERT ON t FOR EACH ROW INSERT INTO audit VALUES (NEW.n)",
            "CREATE TRIGGER changes BEFORE UPDATE ON t FOR EACH ROW SET NEW.m = 7",
            "DROP TRIGGER changes",
        ],
    );
    let database = Postgres::new();
    for function in [
        "CREATE FUNCTION audits() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO audit VALUES (NEW.n); RETURN NULL; END $$",
        "CREATE FUNCTION changes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.m = 7; RETURN NEW; END $$",
    ] {
        ask(&database, 1, function);
    }
    fires(
        &database,
        "SET application_name = 'triggers'",
        [
            "CREATE TRIGGER audits AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION audits()",
            "CREATE TRIGGER changes BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION changes()",
            "DROP TRIGGER changes ON t",
        ],
    );
    let create = "CREATE TABLE u (id BIGINT PRIMARY KEY, n INT)";
    let shards = own(&database, &[create], &[("u", "id")], "SELECT 1");
    ask(&database, 1, "CREATE RULE nothing AS ON INSERT TO u DO INSTEAD NOTHING");
    let insert = format!("INSERT INTO u VALUES ({FIRST}, 1)");
    refused(&database, &shards, "u", &insert, "(`nothing`) changes the rows of `u`");
}

#[test]
fn a_column_that_gets_another_type_while_its_range_moves_is_seen() {
    fn retyped<D: Database>(database: &D, settings: &'static str, [double, real]: [&str; 2], alter: &str) {
        let table = format!("CREATE TABLE t (id BIGINT PRIMARY KEY, r {double}, n INT)");
        let shards = own(database, &[&table], &[("t", "id")], settings);
        let insert = format!("INSERT INTO t (id, r) VALUES ({FIRST}, 1234567.875)");
        works_alike(database, &shards, "t", &[insert]);
        let alter = format!("ALTER TABLE t {alter} {real}");
        ask(database, 1, &alter);
        a_moment_later();
        refused(database, &shards, "t", "UPDATE t SET n = 2", "column `r` of `t`");
        ask(database, 0, &alter);
        a_moment_later();
        works_alike(database, &shards, "t", &["UPDATE t SET r = 7654321".to_owned()]);
        for shard in [0, 1] {
            assert_eq!(ask(database, shard, "SELECT COUNT(*) FROM t WHERE r = 7654321"), [["1"]]);
        }
    }
    retyped(&MariaDb::new(), "SET @nothing = 1", ["DOUBLE", "FLOAT"], "MODIFY r");
    retyped(&Postgres::new(), "SELECT 1", ["double precision", "real"], "ALTER r TYPE");
}

/// A column that is computed is not copied, and one with values may take its place.
#[test]
fn one_column_more_and_one_less_are_seen_in_postgresql() {
    let database = Postgres::new();
    let table = "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT, twice INT GENERATED ALWAYS AS (n * 2) STORED)";
    let shards = own(&database, &[table], &[("t", "id")], "SELECT 1");
    works_alike(&database, &shards, "t", &[format!("INSERT INTO t (id, n) VALUES ({FIRST}, 1)")]);
    for shard in [1, 0] {
        ask(&database, shard, "ALTER TABLE t DROP twice, ADD twice INT");
    }
    works_alike(&database, &shards, "t", &["UPDATE t SET twice = 7".to_owned()]);
}

#[test]
fn tables_whose_reads_have_rows_of_others_or_that_lock_no_rows_are_refused() {
    let insert = format!("INSERT INTO t VALUES ({FIRST}, 1)");
    let database = Postgres::new();
    let create =
        ["CREATE TABLE t (id BIGINT PRIMARY KEY, n INT)", "CREATE TABLE kept (extra TEXT) INHERITS (t)"];
    let shards = own(&database, &create, &[("t", "id")], "SELECT 1");
    refused(&database, &shards, "t", &insert, "kept` inherits from `t`");
    let database = MariaDb::new();
    let create = "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT) ENGINE = MyISAM";
    let shards = own(&database, &[create], &[("t", "id")], "SET @nothing = 1");
    refused(&database, &shards, "t", &insert, "is kept by MyISAM");
}

#[test]
fn casts_and_operators_of_the_databases_own_change_nothing_in_postgresql() {
    let database = Postgres::new();
    let create = [
        "CREATE TYPE mood AS ENUM ('a', 'b')",
        "CREATE FUNCTION mood_text(mood) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'b' $$",
        "CREATE CAST (mood AS text) WITH FUNCTION mood_text(mood) AS ASSIGNMENT",
        "CREATE TABLE t (id BIGINT PRIMARY KEY, e mood, list mood[], span int4range)",
        "CREATE FUNCTION never(bigint, bigint) RETURNS bool LANGUAGE sql AS 'SELECT false'",
        "CREATE OPERATOR = (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = never)",
    ];
    for (shard, sql) in [0, 1].into_iter().flat_map(|shard| create.iter().map(move |sql| (shard, sql))) {
        ask(&database, shard, sql);
    }
    let connect = |shard: usize| {
        let schema = ask(&database, shard, "SELECT current_schema()")[0][0].clone();
        let connect = database.connect(shard);
        move || {
            let mut connection = connect()?;
            connection.ask(&format!("SET search_path = {schema}, pg_catalog"))?;
            Ok::<_, WorkError>(connection)
        }
    };
    let shards =
        Shards::new(&router(MOVING)).shard("s1", connect(0)).shard("s2", connect(1)).table("t", "id");
    let insert = format!("INSERT INTO t VALUES ({FIRST}, 'a', '{{a,NULL,b}}', '[1,5)')");
    works_alike(&database, &shards, "t", &[insert]);
    works_alike(&database, &shards, "t", &["UPDATE t SET e = NULL".to_owned()]);
    works_alike(&database, &shards, "t", &["DELETE FROM t".to_owned()]);
    assert!(ask(&database, 1, "SELECT id FROM t").is_empty());
}

/// A commit on the new shard that fails comes after the one of the old shard.
#[test]
fn a_constraint_that_a_commit_would_check_is_checked_before_in_postgresql() {
    let database = Postgres::new();
    let create = "CREATE TABLE t (id BIGINT PRIMARY KEY, seat INT UNIQUE DEFERRABLE INITIALLY DEFERRED)";
    let shards = own(&database, &[create], &[("t", "id")], "SELECT 1");
    for (shard, seat) in [(0, 8), (1, 7)] {
        ask(&database, shard, &format!("INSERT INTO t VALUES ({}, {seat})", FIRST + 1));
    }
    let insert = format!("INSERT INTO t VALUES ({FIRST}, 7)");
    refused(&database, &shards, "t", &insert, "a row of another id has this value there");
}

#[test]
fn long_values_are_written_to_both_shards_and_longer_ones_are_refused_with_the_limit_of_mariadb() {
    let database = MariaDb::new();
    let create = "CREATE TABLE t (id BIGINT PRIMARY KEY, b LONGBLOB, c LONGTEXT CHARACTER SET utf8mb4, u MEDIUMTEXT CHARACTER SET utf16)";
    let shards = own(&database, &[create], &[("t", "id")], "SET @nothing = 1");
    let insert = format!(
        "INSERT INTO t VALUES ({FIRST}, REPEAT(X'00ff27', 3000000), REPEAT(_utf8mb4 X'c3a95c27', 100000), REPEAT(_utf8mb4 X'e4b8ad', 100000))"
    );
    works_alike(&database, &shards, "t", &[insert]);
    // Each second byte is two of the statement.
    let longest: u64 = ask(&database, 1, "SELECT @@max_allowed_packet")[0][0].parse().expect("a number");
    let longer = format!("UPDATE t SET b = REPEAT(X'00ff', {})", longest * 2 / 5);
    refused(&database, &shards, "t", &longer, "`max_allowed_packet` of shard `s2`");
}
