//! Tests for MariaDB alone: rights, lost answers, broken connections, old nodes beside keymill.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use keymill::store::memory::Memory;
use keymill::store::mysql::ServerOptions;
use keymill::store::{Catalogue, Durability, FaultKind, Mark, RowStore};
use keymill_tests::mariadb;
use keymill_tests::takers::until;
use mysql::prelude::Queryable;

use crate::bench::*;
use crate::{assert_disjoint, kind, reserve_many};

#[test]
fn a_missing_table_names_the_command() {
    for kind in Kind::all() {
        let bench = Bench::mariadb(kind);
        bench.tamper("DROP TABLE {t}", &[]);
        let mut store = bench.open();
        let request = bench.request("orders", 2000);
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        assert_eq!(
            fault.to_string(),
            format!(
                "reserving 2000 for `{}` failed: table `{}` is missing; run `keymill init`",
                request.key.name, bench.table
            )
        );
        // The same connection continues once the table exists.
        assert_eq!(store.init(&[bench.key("orders")], true).unwrap().len(), 1);
        assert_eq!(self::kind(store.reserve(&request)), FaultKind::Refused);
        store.init(&[bench.key("orders"), bench.key("invoices")], false).unwrap();
        store.init(&[bench.key("orders")], false).unwrap();
        assert_eq!(store.reserve(&request).unwrap().lo, 1);
    }
}

#[test]
fn a_state_that_is_compared_without_case_is_refused_with_what_its_column_must_be() {
    let bench = Bench::mariadb(Kind::Segment);
    let request = bench.request("orders", 10);
    bench.open().reserve(&request).unwrap();
    let column =
        "MODIFY state VARCHAR(16) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL DEFAULT 'open'";
    bench.tamper(&format!("ALTER TABLE {{t}} {column}"), &[]);
    let mut store = bench.open();
    for answer in [store.reserve(&request).map(drop), store.init(&[bench.key("orders")], false).map(drop)] {
        let fault = answer.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        for part in ["column `state`", "utf8mb4_general_ci", "`state VARBINARY(16) NOT NULL DEFAULT 'open'`"]
        {
            assert!(fault.to_string().contains(part), "{fault}");
        }
    }
    // As the message says. Texts that differ by case are kept too.
    bench.tamper("ALTER TABLE {t} MODIFY state VARBINARY(16) NOT NULL DEFAULT 'open'", &[]);
    assert_eq!(bench.open().reserve(&request).unwrap().lo, 11);
    bench.tamper("ALTER TABLE {t} MODIFY state VARCHAR(16) COLLATE utf8mb4_bin NOT NULL DEFAULT 'open'", &[]);
    assert_eq!(bench.open().reserve(&request).unwrap().lo, 21);
}

#[test]
fn a_wrong_password_or_right_is_refused_and_never_shown() {
    let mut options = mariadb::options();
    options.password = keymill::store::mysql::Secret::new("wrong-horse-battery");
    let bench = Bench::mariadb(Kind::Segment);
    let mut store = mariadb::store(options.clone());
    let fault = store.reserve(&bench.request("orders", 1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    let shown = format!("{fault} {fault:?} {options:?} {store:?}");
    assert!(!shown.contains("wrong-horse"), "{shown}");
    assert!(fault.to_string().contains("check user and password"), "{fault}");
    let mut options = mariadb::options();
    options.database = "mysql".to_owned();
    let fault = mariadb::store(options).reserve(&bench.request("orders", 1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(fault.to_string().contains("grant"), "{fault}");
    let mut options = mariadb::options();
    options.hosts = vec![("127.0.0.1".to_owned(), 1), ("no-such-host.invalid".to_owned(), 3306)];
    let fault = mariadb::store(options).reserve(&bench.request("orders", 1)).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
}

#[test]
fn a_connection_ended_by_the_server_is_replaced() {
    let bench = Bench::mariadb(Kind::Serial);
    // The server's limit is half of it; the other half is for a busy machine.
    let read_timeout = Duration::from_secs(20);
    let mut store = mariadb::store(ServerOptions { read_timeout, ..mariadb::options() });
    let request = bench.request("orders", 10);
    store.reserve(&request).unwrap();
    let mut tamper = mariadb::connection();
    // The server sends its answer before it shows that it sleeps.
    until("the connection is idle", Duration::from_secs(60), || {
        let idle: Vec<u64> = tamper
            .exec(
                "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'keymill' AND COMMAND = 'Sleep' AND ID <> \
                 CONNECTION_ID() AND DB = 'ids'",
                (),
            )
            .unwrap();
        !idle.is_empty()
    });
    // Its id is one of many; a transaction on the row finds it.
    tamper.query_drop("START TRANSACTION").unwrap();
    tamper
        .exec_drop(
            format!("SELECT next FROM {} WHERE name = ? FOR UPDATE", bench.table),
            (request.key.name.as_str(),),
        )
        .unwrap();
    let fault = store.reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Locked, "{fault}");
    assert!(fault.to_string().contains("1205"), "the lock wait ends in the server's own answer: {fault}");
    tamper.query_drop("ROLLBACK").unwrap();
    assert_eq!(store.reserve(&request).unwrap().lo, 11);
}

#[test]
fn settings_that_lose_commits_are_refused_or_warned_about() {
    let private = mariadb::Private::start("--innodb-flush-log-at-trx-commit=2");
    let mut options = mariadb::options_of(&private.url());
    let bench =
        Bench { kind: Kind::Segment, place: Place::Memory(Memory::new()), table: "keymill_segment".into() };
    let request = bench.request("orders", 10);
    let fault = mariadb::store(options.clone()).reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsafe);
    assert!(fault.to_string().contains("innodb_flush_log_at_trx_commit=2"), "{fault}");
    options.durability = Durability::Warn;
    let mut store = mariadb::store(options.clone());
    store.init(&[Arc::clone(&request.key)], false).unwrap();
    assert_eq!(store.reserve(&request).unwrap().lo, 1);
    let facts = store.facts().unwrap();
    let expected = if facts.version.contains("MariaDB") { "mariadb" } else { "mysql" };
    assert_eq!((facts.dialect.as_str(), facts.warnings.len()), (expected, 1), "{facts:?}");
    // A replica: queries are answered, reservations are not; afterwards it may be the primary.
    let mut root = mariadb::connection_of(&private.url().replace("keymill:secret", "root:"));
    root.query_drop("SET GLOBAL innodb_flush_log_at_trx_commit = 1, read_only = 1").unwrap();
    let mut replica = mariadb::store(options);
    assert_eq!(replica.look(&request.key).unwrap().unwrap().mark.next, 11);
    for store in [&mut replica, &mut store] {
        let fault = store.reserve(&request).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Unavailable);
        assert!(fault.to_string().contains("read-only"), "{fault}");
    }
    root.query_drop("SET GLOBAL read_only = 0").unwrap();
    assert_eq!(replica.reserve(&request).unwrap().lo, 11);
    root.query_drop(format!("ALTER TABLE {} ENGINE = MyISAM", bench.table)).unwrap();
    let fault = mariadb::store(mariadb::options_of(&private.url())).reserve(&request).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Unsafe);
    assert!(fault.to_string().contains("MyISAM"), "{fault}");
}

#[test]
fn what_was_answered_survives_a_killed_server() {
    let private = mariadb::Private::start("");
    let options = mariadb::options_of(&private.url());
    let bench =
        Bench { kind: Kind::Segment, place: Place::Memory(Memory::new()), table: "keymill_segment".into() };
    let mut store = mariadb::store(options);
    let mut request = bench.request("orders", 10);
    store.init(&[Arc::clone(&request.key)], false).unwrap();
    let mut ranges = Vec::new();
    for _ in 0..3 {
        for _ in 0..40 {
            let got = store.reserve(&request).unwrap();
            // The process has seen nothing: a high water would hide a loss, and another process would not have it.
            ranges.push((got.lo, got.hi));
        }
        private.kill();
        let fault = store.reserve(&request).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Unknown | FaultKind::Unavailable), "{fault}");
        assert_eq!(kind(store.reserve(&request)), FaultKind::Unavailable);
        private.start_again();
    }
    request.high_water = Mark { period: 0, next: ranges[ranges.len() - 1].1 };
    ranges.push(store.reserve(&request).map(|got| (got.lo, got.hi)).unwrap());
    assert_eq!(ranges.len(), 121);
    assert_disjoint(ranges);
}

/// A refill as KeyFactory's `getSerialNoFromDB` does it, without its faults: `FOR UPDATE`, then compare-and-set.
fn old_node(connection: &mut mysql::Conn, table: &str, len: u64) -> Option<(u64, u64)> {
    let row = "TABLENAME = 'CUST' AND COLUMNNAME = 'ID' AND DATEFMT = 'yyyyMMdd' AND NOFMT = '0000'";
    let mut refill = || -> mysql::Result<Option<(u64, u64)>> {
        connection.query_drop("START TRANSACTION")?;
        let sql = format!("SELECT MAXSERIALNO FROM {table} WHERE {row} FOR UPDATE");
        let Some(old) = connection.query_first::<Option<String>, _>(sql)? else {
            connection.query_drop(format!(
                "INSERT INTO {table} VALUES ('CUST','ID','INIT','yyyyMMdd','0000',NOW())"
            ))?;
            connection.query_drop("COMMIT")?;
            return Ok(None);
        };
        let old = old.unwrap_or_default();
        let number = old.get(8..).and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        let new = format!("20261120{:04}", number + len);
        let sql = format!("UPDATE {table} SET MAXSERIALNO = ? WHERE {row} AND MAXSERIALNO = ?");
        connection.exec_drop(sql, (new, old))?;
        let updated = connection.affected_rows() == 1;
        connection.query_drop("COMMIT")?;
        Ok(updated.then_some((number + 1, number + len + 1)))
    };
    refill().unwrap_or_else(|_deadlock| {
        connection.query_drop("ROLLBACK").unwrap();
        None
    })
}

#[test]
fn old_key_factory_nodes_on_the_same_row_never_overlap_with_ours() {
    let bench = Bench::mariadb(Kind::Producer);
    let together = Barrier::new(8);
    let ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|n| {
                let (bench, together) = (&bench, &together);
                scope.spawn(move || {
                    together.wait();
                    if n % 2 == 0 {
                        return reserve_many(bench.open().as_mut(), &bench.request("cust", 5), 50);
                    }
                    let mut connection = mariadb::connection();
                    let mut ranges = Vec::new();
                    while ranges.len() < 50 {
                        ranges.extend(old_node(&mut connection, &bench.table, 5));
                    }
                    ranges
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(ranges.len(), 400);
    assert_disjoint(ranges);
    assert_eq!(bench.stands_at("cust"), Some(2001));
}
