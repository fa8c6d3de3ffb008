//! Commands for a replica, whose rows may be older than the primary's: `status` reports it, `repair` refuses before it
//! shows anything. Each test has its own servers; `ci/servers/mariadb`, `ci/servers/postgres` and `ci/servers/redis` start
//! them.

use keymill::{Change, Code, Mill};
use keymill_tests::ci::patient;
use keymill_tests::takers::persistently;
use keymill_tests::{mariadb, postgres, redis};
use mysql::prelude::Queryable;

#[track_caller]
fn is_looked_at_and_not_repaired(place: &str, says: &str, warns: &str) {
    let mill = Mill::open(&patient(place)).unwrap();
    let orders = mill.source("segment:orders").unwrap();
    assert!(orders.status().unwrap().row.is_some_and(|row| row.mark.next > 5));
    let facts = mill.facts().unwrap();
    assert!(facts.warnings.iter().any(|warning| warning.contains(warns)), "{facts:?}");
    for change in [Change::DryRun, Change::Apply] {
        let error = orders.repair(500_000, change).unwrap_err();
        assert_eq!(error.code, Code::StoreUnavailable, "{error}");
        assert!(error.message.contains(says), "{error}");
    }
    mill.close();
}

/// A row on the primary whose process has ended: its numbers in memory are lost.
fn begin(primary: &str) {
    let mill = Mill::open(primary).unwrap();
    persistently(|| mill.init(&["segment:orders"], Change::Apply)).unwrap();
    mill.source("segment:orders?deadline=60s").unwrap().take(5).unwrap();
    mill.close();
}

const OLDER: &str = "its rows may be older";

#[test]
fn a_postgresql_replica_is_looked_at_and_not_repaired() {
    let primary = postgres::Private::start("");
    begin(&primary.url());
    // A base backup: it has the row.
    primary.ci(&["replica"]);
    is_looked_at_and_not_repaired(
        &primary.ci(&["url", "replica"]),
        "the server is read-only: a replica",
        OLDER,
    );
}

#[test]
fn a_mariadb_that_is_read_only_is_looked_at_and_not_repaired() {
    let server = mariadb::Private::start("");
    begin(&server.url());
    server.root().query_drop("SET GLOBAL read_only = 1").unwrap();
    is_looked_at_and_not_repaired(&server.url(), "the server is read-only: a replica", OLDER);
}

#[test]
fn a_redis_replica_is_looked_at_and_not_repaired() {
    let primary = redis::Private::start("");
    begin(&primary.url());
    let replica = primary.replica();
    is_looked_at_and_not_repaired(&replica, "the server is a replica, which reserves nothing", OLDER);
}

#[test]
fn several_stores_are_not_repaired_while_one_of_them_is_read_only() {
    let server = mariadb::Private::start("");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("keymill.toml");
    let file = format!("sqlite:{}", folder.path().join("ids.db").display());
    keymill_tests::write_private(&config, &format!("stores = [{file:?}, {:?}]", server.url()));
    let config = format!("file:{}", config.display());
    begin(&config);
    server.root().query_drop("SET GLOBAL read_only = 1").unwrap();
    let mill = Mill::open(&config).unwrap();
    let orders = mill.source("segment:orders").unwrap();
    for change in [Change::DryRun, Change::Apply] {
        let error = orders.repair(90_000_000, change).unwrap_err();
        assert!(error.message.contains("the server is read-only"), "{error}");
    }
    mill.close();
}
