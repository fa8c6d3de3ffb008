//! Tables, rows and answers that make no sense: each is refused with its reason and a remedy, and nothing is issued. On
//! MariaDB, with a scripted server in front of it for answers that MariaDB does not give, and on SQLite. (`beside.rs` has
//! rows that operators of other programs break, `tickets.rs` and `sequences.rs` the server's own counters.)
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keymill::counter_columns;
use keymill::serial::SerialPattern;
use keymill::store::mysql::MysqlStore;
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{Catalogue, FaultKind, Key, Mark, Request, RowStore, Scheme, SerialKey, Store};
use keymill_tests::disguise::{Answer, Disguise};
use keymill_tests::{mariadb, request, schemes};
use mysql::prelude::Queryable;

/// The counters of other programs, each with its column of the maximum.
fn counters() -> impl Iterator<Item = (Scheme, &'static str)> {
    schemes::counters().map(|scheme| (scheme, schemes::columns(scheme).maximum))
}

fn key(scheme: Scheme, table: &str) -> Arc<Key> {
    let serial = (scheme == Scheme::KeyProducer).then(|| SerialKey {
        table: "cust".to_owned(),
        column: "id".to_owned(),
        pattern: SerialPattern::new("", "0000", "UTC").unwrap(),
        init_max: false,
    });
    Arc::new(schemes::key(scheme, table, "orders", serial))
}

fn seen(key: &Arc<Key>, next: u64) -> Request {
    Request { high_water: Mark { period: 0, next }, ..request(key, 10) }
}

/// A table on MariaDB, gone with the value.
struct Table(String);

impl Table {
    fn new() -> Table {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        Table(format!("n_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)))
    }

    fn of(scheme: Scheme) -> (Table, Arc<Key>) {
        let table = Table::new();
        let key = key(scheme, &table.0);
        mariadb().init(&[Arc::clone(&key)], false).unwrap();
        (table, key)
    }

    fn say(&self, sql: &str) {
        mariadb::connection().query_drop(sql.replace("{t}", &self.0)).unwrap();
    }

    fn all(&self) -> String {
        let rows = mariadb::connection().query::<mysql::Row, _>(format!("SELECT * FROM {}", self.0));
        format!("{:?}", rows.unwrap())
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.say("DROP TABLE IF EXISTS {t}");
        }
    }
}

fn mariadb() -> MysqlStore {
    mariadb::store(mariadb::options())
}

fn behind(disguise: &Disguise) -> MysqlStore {
    let mut options = mariadb::options();
    options.hosts = vec![disguise.address()];
    mariadb::store(options)
}

/// Asserts a refusal with these words.
fn refused(store: &mut dyn Store, key: &Arc<Key>, says: &[&str]) {
    let fault = store.reserve(&request(key, 10)).expect_err(&format!("{key:?} is refused"));
    assert_eq!(fault.kind, FaultKind::Refused, "{:?}: {fault}", key.scheme);
    for part in says {
        assert!(fault.to_string().contains(part), "{:?}: `{part}` is not in: {fault}", key.scheme);
    }
}

#[test]
fn two_schemes_on_one_table_are_refused_on_mariadb() {
    for made_for in schemes::on_mysql() {
        let (table, own) = Table::of(made_for);
        let mut store = mariadb();
        store.reserve(&request(&own, 10)).unwrap();
        let before = table.all();
        for other in schemes::on_mysql().filter(|other| *other != made_for) {
            let key = key(other, &table.0);
            // With a connection that has checked the table for its own scheme, and with one that has not.
            for store in [&mut store, &mut mariadb()] {
                refused(store, &key, &["of scheme `", "name another with `table=`"]);
                assert_eq!(store.init(&[Arc::clone(&key)], false).unwrap_err().kind, FaultKind::Refused);
            }
        }
        assert_eq!(table.all(), before);
    }
}

#[test]
fn two_schemes_on_one_table_are_refused_on_sqlite() {
    let tables = schemes::in_rows();
    for made_for in tables.clone() {
        let folder = tempfile::tempdir().unwrap();
        let open = || SqliteStore::new(folder.path().join("ids.db"), sqlite::SqliteOptions::default());
        let mut store = open();
        store.reserve(&request(&key(made_for, "t"), 10)).unwrap();
        for other in tables.clone().filter(|other| *other != made_for) {
            for store in [&mut store, &mut open()] {
                refused(store, &key(other, "t"), &["is not one of scheme", "name another with `table=`"]);
            }
        }
        assert_eq!(store.look(&key(made_for, "t")).unwrap().map(|row| row.mark.next), Some(11));
    }
}

/// Columns of the application, or of an earlier keymill.
#[test]
fn unused_columns_are_left_alone() {
    for scheme in schemes::on_mysql().filter(|scheme| *scheme != Scheme::Ticket) {
        let (table, key) = Table::of(scheme);
        table.say(
            "ALTER TABLE `{t}` ADD `owner` INT NOT NULL DEFAULT 1, ADD `owner_index` INT NOT NULL DEFAULT 0",
        );
        mariadb().reserve(&request(&key, 10)).unwrap_or_else(|fault| panic!("{scheme:?}: {fault}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ids.db");
    let open = || SqliteStore::new(file.clone(), sqlite::SqliteOptions::default());
    let key = key(Scheme::Keymill, "keymill_segment");
    open().init(&[Arc::clone(&key)], false).unwrap();
    tamper(&file, "ALTER TABLE keymill_segment ADD owner INTEGER NOT NULL DEFAULT 1");
    assert_eq!(open().reserve(&request(&key, 10)).unwrap().lo, 1);
}

#[test]
fn a_column_that_is_too_narrow_is_refused_on_mariadb() {
    let own = [
        (Scheme::Keymill, "next"),
        (Scheme::Keymill, "date"),
        (Scheme::Keymill, "chunk"),
        (Scheme::AutoIncrement, "id"),
        (Scheme::Ticket, "id"),
    ];
    for (scheme, column) in own.into_iter().chain(counters()) {
        for narrow in ["INT", "MEDIUMINT UNSIGNED"] {
            let (table, key) = Table::of(scheme);
            let more = if scheme.is_ticket() { "AUTO_INCREMENT" } else { "" };
            table.say(&format!("ALTER TABLE {{t}} MODIFY {column} {narrow} NOT NULL {more}"));
            let found = narrow.split(' ').next().unwrap().to_lowercase();
            refused(
                &mut mariadb(),
                &key,
                &[&format!("column `{column}` is `{found}`, too narrow for `bigint`")],
            );
        }
    }
    // The text of a serial does not fit when it is written.
    let (table, key) = Table::of(Scheme::KeyProducer);
    table.say("ALTER TABLE {t} MODIFY MAXSERIALNO VARCHAR(3)");
    refused(&mut mariadb(), &key, &["a column is too narrow"]);
    assert_eq!(table.all(), "[]");
}

#[test]
fn a_signed_column_at_its_end_says_so_and_wraps_nothing() {
    // Some applications make `next` a plain BIGINT, which cannot hold 2^63.
    let (table, key) = Table::of(Scheme::Keymill);
    table.say("ALTER TABLE {t} MODIFY next BIGINT NOT NULL");
    let mut store = mariadb();
    store.reserve(&request(&key, 10)).unwrap();
    table.say("UPDATE {t} SET next = 9223372036854775800");
    let before = table.all();
    for store in [&mut store, &mut mariadb()] {
        refused(store, &key, &["a column is too narrow"]);
    }
    assert_eq!(table.all(), before);
    let few = Request { len: 3, ..request(&key, 3) };
    assert_eq!(mariadb().reserve(&few).unwrap().hi, 9_223_372_036_854_775_803);
}

#[test]
fn a_row_of_keymills_own_that_makes_no_sense_is_refused_on_mariadb() {
    for (value, column, says) in [
        ("-1", "next", "holds -1 in `next`"),
        ("NULL", "next", "holds NULL in `next`"),
        ("0", "next", "0 is the next number"),
        ("-9223372036854775808", "next", "in `next`"),
        ("-3", "date", "holds -3 in `date`"),
        ("NULL", "date", "holds NULL in `date`"),
        ("7", "date", "period 7"),
        ("'shut'", "state", "holds `shut` in `state`"),
        ("'Open'", "state", "holds `Open` in `state`"),
        ("'leased'", "state", "in state `leased`"),
        ("2", "stores", "stores=2 store=1 chunk=0"),
        ("2", "store", "stores=1 store=2 chunk=0"),
        ("7", "chunk", "stores=1 store=1 chunk=7"),
    ] {
        let (table, key) = Table::of(Scheme::Keymill);
        table.say("ALTER TABLE {t} MODIFY next BIGINT NULL, MODIFY date BIGINT NULL");
        let mut store = mariadb();
        store.reserve(&request(&key, 10)).unwrap();
        table.say(&format!("UPDATE {{t}} SET {column} = {value}"));
        let before = table.all();
        for store in [&mut store, &mut mariadb()] {
            refused(store, &key, &[says]);
        }
        assert_eq!(table.all(), before);
    }
}

/// Runs one statement on a SQLite file, without the store.
fn tamper(file: &Path, sql: &str) {
    rusqlite::Connection::open(file).unwrap().execute(sql, []).unwrap();
}

#[test]
fn a_row_that_makes_no_sense_is_refused_on_sqlite() {
    let broken = |scheme: Scheme, maximum: &str| {
        let mut broken: Vec<(String, String, String)> = ["-1", "NULL", "'many'", "0.5", "x'00ff'", "'12abc'"]
            .into_iter()
            .map(|value| {
                (maximum.to_owned(), value.to_owned(), format!("in `{maximum}`, where a whole number"))
            })
            .collect();
        let columns = counter_columns(scheme);
        if let Some(step) = columns.and_then(|columns| columns.step) {
            broken.extend(
                ["0", "-5", "NULL", "'few'"]
                    .map(|value| (step.to_owned(), value.into(), format!("in `{step}`, where"))),
            );
        }
        if let Some(ttl) = columns.and_then(|columns| columns.ttl) {
            broken.push((ttl.to_owned(), "-1".into(), format!("holds -1 in `{ttl}`")));
        }
        if scheme == Scheme::TinyIdInfo {
            for (column, value, says) in [
                ("delta", "2", "write `delta=2&remainder=0`"),
                ("delta", "0", "holds 0 in `delta`"),
                ("remainder", "1", "remainder=1"),
                ("version", "NULL", "holds NULL in `version`"),
            ] {
                broken.push((column.into(), value.into(), says.into()));
            }
        }
        broken
    };
    for (scheme, maximum) in counters().chain([(Scheme::Keymill, "next")]) {
        for (column, value, says) in broken(scheme, maximum) {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("ids.db");
            let key = key(scheme, "t");
            let mut store = SqliteStore::new(file.clone(), sqlite::SqliteOptions::default());
            // A table with fewer constraints than the author's.
            store.init(&[Arc::clone(&key)], false).unwrap();
            let ddl: String = rusqlite::Connection::open(&file)
                .unwrap()
                .query_one("SELECT sql FROM sqlite_schema WHERE name = 't'", [], |row| row.get(0))
                .unwrap();
            tamper(&file, "DROP TABLE t");
            let loose = ddl.replace(" NOT NULL", "").replace("WITHOUT ROWID", "");
            tamper(&file, &loose);
            store.reserve(&request(&key, 10)).unwrap();
            tamper(&file, &format!("UPDATE t SET {column} = {value}"));
            let again = &mut SqliteStore::new(file.clone(), sqlite::SqliteOptions::default());
            for store in [&mut store, again] {
                refused(store, &key, &[&says, "nothing was changed"]);
            }
            let left = format!("SELECT {column} IS {value} FROM t");
            let left: bool =
                rusqlite::Connection::open(&file).unwrap().query_one(&left, [], |row| row.get(0)).unwrap();
            assert!(left, "{scheme:?}: {column} = {value} was left alone");
        }
    }
}

#[test]
fn an_ok_of_impossible_numbers_is_an_unknown_outcome_and_no_range() {
    // The last: after an answer without a number the table's rows are changed in transactions.
    let odd =
        [Answer::Ok(1, u64::MAX), Answer::Ok(1, 5), Answer::Ok(2, 20), Answer::Ok(7, 7), Answer::Ok(1, 0)];
    for scheme in schemes::counters().chain([Scheme::Keymill]) {
        let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
        let (table, key) = Table::of(scheme);
        let mut store = behind(&disguise);
        store.reserve(&request(&key, 10)).unwrap();
        let mut next = store.reserve(&request(&key, 10)).unwrap().hi;
        for answer in &odd {
            let before = table.all();
            disguise.answer("LAST_INSERT_ID", 1, answer.clone());
            let fault = store.reserve(&seen(&key, next)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Unknown, "{scheme:?}: {answer:?}: {fault}");
            assert!(fault.to_string().contains("the server answered with"), "{fault}");
            assert_eq!((table.all(), disguise.to_come()), (before, 0));
            // Two, because the new connection does not know the row yet.
            for _ in 0..2 {
                let got = store.reserve(&seen(&key, next)).unwrap();
                assert_eq!(got.lo, next, "{scheme:?}: nothing was lost, and nothing used");
                next = got.hi;
            }
        }
    }
}

#[test]
fn a_ticket_of_impossible_numbers_is_no_range() {
    for scheme in [Scheme::AutoIncrement, Scheme::Ticket] {
        for answer in
            [Answer::Ok(1, 0), Answer::Ok(0, 9), Answer::Ok(1, u64::MAX), Answer::Ok(3, 9), Answer::Ok(9, 9)]
        {
            let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
            let (_table, key) = Table::of(scheme);
            let mut store = behind(&disguise);
            let next = store.reserve(&request(&key, 10)).unwrap().hi;
            disguise.answer("INTO", u32::MAX, answer.clone());
            let fault = store.reserve(&seen(&key, next)).unwrap_err();
            assert!(
                matches!(
                    fault.kind,
                    FaultKind::Refused
                        | FaultKind::Unknown
                        | FaultKind::Exhausted
                        | FaultKind::Unavailable
                        | FaultKind::Conflict
                ),
                "{scheme:?}: {answer:?}: {fault}"
            );
            assert!(!fault.to_string().is_empty());
        }
    }
}

#[test]
fn rows_that_no_table_of_ours_could_hold_are_refused() {
    for (scheme, maximum) in counters() {
        for nonsense in ["'many'", "NULL", "-1", "1.5", "99999999999999999999", "x'ff00'", "''"] {
            let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
            let (_table, key) = Table::of(scheme);
            behind(&disguise).reserve(&request(&key, 10)).unwrap();
            disguise.instead(&format!("SELECT `{maximum}`"), &format!("SELECT {nonsense}"));
            refused(&mut behind(&disguise), &key, &[&format!("in `{maximum}`"), "nothing was changed"]);
        }
    }
    let words = "SELECT `date`, `next`, `state`, `stores`, `store`, `chunk`, `writer`";
    for (nonsense, says) in [
        ("SELECT 0, 'x', 'open', 1, 1, 0, 0", "holds `x` in `next`"),
        ("SELECT NULL, 5, 'open', 1, 1, 0, 0", "holds NULL in `date`"),
        ("SELECT 0", "holds NULL in `next`"),
        ("SELECT 0, 18446744073709551615, 'open', 1, 1, 0, 0", "in `next`"),
        ("SELECT 0, 5", "holds NULL in `state`"),
        ("SELECT 0, 5, 7, 1, 1, 0, 0", "holds `7` in `state`"),
        ("SELECT 0, 5, 'open', 3, 4, 1000, 0", "stores=3 store=4 chunk=1000"),
        ("SELECT 0, 5, 'open', 1, 1", "holds NULL in `chunk`"),
        ("SELECT 0, 5, 'open', 1, 1, 0", "holds NULL in `writer`"),
    ] {
        let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
        let (_table, key) = Table::of(Scheme::Keymill);
        behind(&disguise).reserve(&request(&key, 10)).unwrap();
        disguise.instead(words, nonsense);
        // Without the fast path, which does not read the row.
        let request = Request { period_max: 1, period: 1, ..request(&key, 10) };
        let fault = behind(&disguise).reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        assert!(fault.to_string().contains(says), "{fault}");
    }
}

#[test]
fn a_server_that_hangs_up_or_talks_nonsense_at_any_statement_gives_no_range() {
    for scheme in schemes::on_mysql() {
        let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
        let (_table, key) = Table::of(scheme);
        let mut store = behind(&disguise);
        let period = 0;
        let mut next = store.reserve(&request(&key, 10)).unwrap().hi;
        for statement in 0..14 {
            for answer in [Answer::Cut, Answer::DoneAndCut, Answer::Refused(65_000, "???")] {
                // The statements of a new connection's first reservation, one after the other.
                let mut store = behind(&disguise);
                disguise.answer_after("", statement, 1, answer.clone());
                match store.reserve(&Request { period, ..seen(&key, next) }) {
                    Ok(got) => {
                        assert!(got.lo >= next);
                        next = got.hi;
                    }
                    Err(fault) => assert!(
                        matches!(
                            fault.kind,
                            FaultKind::Unknown | FaultKind::Unavailable | FaultKind::Refused
                        ),
                        "{scheme:?}: {answer:?} at {statement}: {fault}"
                    ),
                }
                disguise.nothing_more();
                let got = mariadb().reserve(&seen(&key, next)).unwrap();
                assert!(got.lo >= next, "{scheme:?}: {answer:?} at {statement}");
                next = got.hi;
            }
        }
    }
}

#[test]
fn a_mysql_in_offline_mode_is_an_outage_and_the_next_host_serves() {
    let (_table, key) = Table::of(Scheme::Keymill);
    let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
    let offline = Answer::Refused(3032, "The server is currently in offline mode");
    disguise.answer("@@version", u32::MAX, offline);
    let fault = behind(&disguise).reserve(&request(&key, 10)).expect_err("nobody else is asked");
    assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
    assert!(fault.to_string().contains("offline_mode = OFF"), "{fault}");
    let mut options = mariadb::options();
    options.hosts.insert(0, disguise.address());
    assert_eq!(mariadb::store(options).reserve(&request(&key, 10)).expect("of the second host").lo, 1);
}
