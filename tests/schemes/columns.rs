//! `columns=`: tables with renamed columns, on MariaDB, PostgreSQL and SQLite.
//!
//! The servers are found by `KEYMILL_TEST_MYSQL` and `KEYMILL_TEST_POSTGRES` (`ci/servers/mariadb run ci/servers/postgres run cargo test …`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keymill::serial::SerialPattern;
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{
    Catalogue, Columns, FaultKind, GiveBack, Key, Mark, Request, RowStore, Scheme, SerialKey, Store,
};
use keymill::{Change, Mill, Source, counter_columns};
use keymill_tests::ci::patient;
use keymill_tests::{mariadb, postgres, request, schemes};
use mysql::prelude::Queryable;

type Names = &'static [(&'static str, &'static str)];

/// Possible names of the columns of other authors: SQL keywords among them, and names that two columns have exchanged.
const CHOSEN: [(Scheme, Names); 6] = [
    (
        Scheme::SequenceTable,
        &[("biz_type", "key"), ("cur_id", "current"), ("step", "order"), ("time_to_live", "ttl")],
    ),
    (
        Scheme::LeafAlloc,
        &[("biz_tag", "tag"), ("max_id", "select"), ("step", "Step_Len"), ("update_time", "at$")],
    ),
    (
        Scheme::TinyIdInfo,
        &[("max_id", "step"), ("step", "max_id"), ("version", "rev"), ("delta", "by"), ("remainder", "r")],
    ),
    (Scheme::Cosid, &[("name", "last_max_id"), ("last_max_id", "name"), ("last_fetch_time", "fetched")]),
    (Scheme::JpaTable, &[("sequence_name", "GEN_KEY"), ("next_val", "values")]),
    (
        Scheme::KeyProducer,
        &[
            ("TABLENAME", "TBL"),
            ("COLUMNNAME", "COL"),
            ("MAXSERIALNO", "where"),
            ("DATEFMT", "group"),
            ("update_time", "U"),
        ],
    ),
];

/// Every scheme with tables of other authors, with other names for its columns.
fn renamed() -> impl Iterator<Item = (Scheme, Names)> {
    Source::IMPORTS.iter().map(|scheme| {
        let chosen = CHOSEN.iter().find(|(other, _)| other == scheme).map(|(_, names)| *names);
        let keywords = || -> Names {
            let columns = schemes::columns(*scheme);
            let optional = [(columns.step, "order"), (columns.ttl, "where"), (columns.version, "table")];
            let optional = optional.into_iter().filter_map(|(column, own)| Some((column?, own)));
            Vec::leak(
                [(columns.name, "key"), (columns.maximum, "select")].into_iter().chain(optional).collect(),
            )
        };
        (*scheme, chosen.unwrap_or_else(keywords))
    })
}

fn key(scheme: Scheme, table: &str, columns: &[(&str, &str)]) -> Arc<Key> {
    let serial = (scheme == Scheme::KeyProducer).then(|| SerialKey {
        table: "cust".to_owned(),
        column: "id".to_owned(),
        pattern: SerialPattern::new("yyyyMMdd", "0000", "UTC").unwrap(),
        init_max: false,
    });
    Arc::new(Key {
        columns: Columns::new(
            columns.iter().map(|(standard, own)| ((*standard).to_owned(), (*own).to_owned())).collect(),
        ),
        ..schemes::key(scheme, table, "orders", serial)
    })
}

fn mark(key: &Key, next: u64) -> Mark {
    Mark { period: if key.serial.is_some() { 20_261_120_000_000_000 } else { 0 }, next }
}

fn asked(key: &Arc<Key>, seen: u64) -> Request {
    let period = mark(key, 0).period;
    let high_water = if seen == 0 { Mark::default() } else { mark(key, seen) };
    Request { period, period_max: period, high_water, ..request(key, 10) }
}

fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // ordering: Relaxed — a number for each, nothing more.
    format!("c_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn column_names(sql: &str) -> Vec<String> {
    mariadb::connection().query(sql).unwrap()
}

/// Runs every verb that touches the row.
fn works(store: &mut dyn Store, key: &Arc<Key>, columns: &[(&str, &str)]) {
    assert_eq!(store.look(key).unwrap(), None);
    let first = store.reserve(&asked(key, 0)).unwrap();
    let second = store.reserve(&asked(key, first.hi)).unwrap();
    assert_eq!((first.lo, first.hi, second.hi), (1, 11, 21), "{key:?}");
    assert!(store.give_back(&GiveBack::new(key, first.period, 15, 21)).unwrap());
    let third = store.reserve(&asked(key, 15)).unwrap();
    assert_eq!(third.lo, 15, "{key:?}");
    let row = store.look(key).unwrap().unwrap();
    assert_eq!(row.mark.next, 25);
    let maximum = counter_columns(key.scheme).map(|columns| columns.maximum);
    if let Some((_, own)) = columns.iter().find(|(standard, _)| Some(*standard) == maximum) {
        assert!(row.text.starts_with(&format!("{own}=2")), "{}", row.text);
    }
    store.repair(key, mark(key, 101)).unwrap();
    let fault = store.reserve(&asked(key, 500)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::WentBackwards, "{fault}");
    assert_eq!(store.reserve(&asked(key, 25)).unwrap().lo, 101);
}

#[test]
fn a_table_of_renamed_columns_is_made_and_used_on_mariadb() {
    for (scheme, columns) in renamed() {
        let table = unique();
        let key = key(scheme, &table, columns);
        let mut store = mariadb::store(mariadb::options());
        store.init(&[Arc::clone(&key)], false).unwrap();
        let made = column_names(&format!(
            "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'"
        ));
        for (_, own) in columns {
            assert!(made.iter().any(|column| column == own), "{own} is not of {made:?}");
        }
        works(&mut store, &key, columns);
        // The author's names do not exist in this table: refused, with the first missing one.
        let authors = self::key(scheme, &table, &[]);
        for store in [&mut store, &mut mariadb::store(mariadb::options())] {
            let answer = store.reserve(&asked(&authors, 0));
            if matches!(scheme, Scheme::Cosid | Scheme::TinyIdInfo) {
                continue; // the same names in another order: see below
            }
            let fault = answer.unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(
                fault.to_string().contains("is missing (if it is called otherwise, say so with `columns=`)"),
                "{fault}"
            );
        }
        mariadb::connection().query_drop(format!("DROP TABLE {table}")).unwrap();
    }
}

#[test]
fn a_table_of_renamed_columns_is_made_and_used_on_sqlite() {
    for (scheme, columns) in renamed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ids.db");
        let mut store = SqliteStore::new(file.clone(), sqlite::SqliteOptions::default());
        let key = key(scheme, "t", columns);
        works(&mut store, &key, columns);
        let connection = rusqlite::Connection::open(&file).unwrap();
        let mut statement = connection.prepare("SELECT name FROM pragma_table_info('t')").unwrap();
        let made: Vec<String> =
            statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        for (_, own) in columns {
            assert!(made.iter().any(|column| column == own), "{own} is not of {made:?}");
        }
        let answer = store.reserve(&asked(&self::key(scheme, "t", &[]), 0));
        if !matches!(scheme, Scheme::Cosid | Scheme::TinyIdInfo) {
            assert_eq!(answer.unwrap_err().kind, FaultKind::Refused);
        }
    }
}

#[test]
fn a_table_of_renamed_columns_is_made_and_used_on_postgresql() {
    for (scheme, columns) in renamed() {
        let table = unique();
        let key = key(scheme, &table, columns);
        let mut store = postgres::store(postgres::options());
        store.init(&[Arc::clone(&key)], false).unwrap();
        works(&mut store, &key, columns);
        if !matches!(scheme, Scheme::Cosid | Scheme::TinyIdInfo) {
            let authors = self::key(scheme, &table, &[]);
            for store in [&mut store, &mut postgres::store(postgres::options())] {
                let fault = store.reserve(&asked(&authors, 0)).unwrap_err();
                assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
                assert!(
                    fault
                        .to_string()
                        .contains("is missing (if it is called otherwise, say so with `columns=`)"),
                    "{fault}"
                );
            }
        }
        postgres::Sql::shared().say(&format!("DROP TABLE {table}"));
    }
}

#[test]
fn swapped_column_names_are_detected_by_their_types() {
    // CosId's maximum is a number and its name a text; swapped, neither fits.
    let columns = CHOSEN.iter().find(|(scheme, _)| *scheme == Scheme::Cosid).unwrap().1;
    let table = unique();
    let mut store = mariadb::store(mariadb::options());
    store.init(&[key(Scheme::Cosid, &table, columns)], false).unwrap();
    let fault = store.reserve(&asked(&key(Scheme::Cosid, &table, &[]), 0)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    mariadb::connection().query_drop(format!("DROP TABLE {table}")).unwrap();
}

#[test]
fn two_sources_of_one_mill_may_call_one_tables_columns_differently_only_where_both_are_there() {
    let table = unique();
    mariadb::connection()
        .query_drop(format!(
            "CREATE TABLE {table} (biz_type VARCHAR(50) PRIMARY KEY, cur_id BIGINT NOT NULL, other_id BIGINT NOT NULL \
             DEFAULT 500, step INT NOT NULL, time_to_live INT NOT NULL)"
        ))
        .unwrap();
    let mill = Mill::open(&patient(&mariadb::url())).unwrap();
    let spec = |name: &str, columns: &str| {
        format!("segment:{name}?scheme=sequence_table&table={table}&step=10&deadline=60s{columns}")
    };
    mariadb::connection()
        .query_drop(format!("INSERT INTO {table} VALUES ('a', 0, 700, 10, 0), ('b', 0, 700, 10, 0)"))
        .unwrap();
    // Each counts in its own column, also right after a request for the other.
    let (a, b) =
        (mill.source(&spec("a", "")).unwrap(), mill.source(&spec("b", "&columns=cur_id:other_id")).unwrap());
    for n in 1..=30 {
        assert_eq!((a.next().unwrap(), b.next().unwrap()), (n, 700 + n));
    }
    let missing = mill.source(&spec("c", "&columns=cur_id:nowhere")).unwrap();
    let error = missing.next().unwrap_err();
    assert_eq!(error.code.name(), "STORE_REFUSED");
    assert!(error.message.contains("column `nowhere` is missing"), "{}", error.message);
    mill.close();
    mariadb::connection().query_drop(format!("DROP TABLE {table}")).unwrap();
}

#[test]
fn a_serials_table_may_be_renamed_in_its_spec() {
    let table = unique();
    let columns = "maxserialno:highest,TABLENAME:t";
    let spec = format!("serial:cust/id?table={table}&number=000&deadline=60s&columns={columns}");
    for url in [mariadb::url(), "sqlite:".to_owned()] {
        let folder = tempfile::tempdir().unwrap();
        let url =
            if url == "sqlite:" { format!("sqlite:{}", folder.path().join("i.db").display()) } else { url };
        let mill = Mill::open(&patient(&url)).unwrap();
        mill.init(&[&spec], Change::Apply).unwrap();
        let source = mill.source(&spec).unwrap();
        let text = source.next_text().unwrap();
        assert!(text.ends_with("001"), "{text}");
        mill.close();
    }
    let highest: String = mariadb::connection()
        .query_first(format!("SELECT highest FROM {table} WHERE t = 'CUST'"))
        .unwrap()
        .unwrap();
    assert!(highest.len() == 11, "{highest}");
    mariadb::connection().query_drop(format!("DROP TABLE {table}")).unwrap();
}

#[test]
fn two_columns_of_one_row_are_two_sources_of_one_mill() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ids.db");
    rusqlite::Connection::open(&file)
        .unwrap()
        .execute_batch(
            "CREATE TABLE sequence_table (biz_type VARCHAR(50) PRIMARY KEY, cur_id BIGINT NOT NULL, other_id BIGINT NOT NULL, \
             step INT NOT NULL, time_to_live INT NOT NULL); INSERT INTO sequence_table VALUES ('a', 0, 700, 10, 0)",
        )
        .unwrap();
    let mill = Mill::open(&format!("sqlite:{}", file.display())).unwrap();
    let spec = "segment:a?scheme=sequence_table&step=10&deadline=60s";
    let one = mill.source(spec).unwrap();
    let other = mill.source(&format!("{spec}&columns=cur_id:other_id")).unwrap();
    for n in 1..=30 {
        assert_eq!((one.next().unwrap(), other.next().unwrap()), (n, 700 + n));
    }
    mill.close();
}
