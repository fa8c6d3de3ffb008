//! Which store keeps which scheme: the stores' own answers.

use std::sync::Arc;

use keymill::serial::SerialPattern;
use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{FaultKind, Key, MAX_NUMBER, Mark, Request, Scheme, SerialKey, Store};
use keymill_tests::{mariadb, postgres, redis, schemes};

use crate::bench::unique;

fn request(scheme: Scheme, table: String) -> Request {
    let serial = (!scheme.keeps_segments()).then(|| SerialKey {
        table: "cust_info".to_owned(),
        column: "custid".to_owned(),
        pattern: SerialPattern::new("yyyyMMdd", "00000000", "UTC").unwrap(),
        init_max: false,
    });
    let period = if serial.is_some() { crate::DAY } else { 0 };
    let key = Key { step: 10, ..schemes::key(scheme, &table, "orders", serial) };
    Request {
        key: Arc::new(key),
        len: 10,
        high_water: Mark::default(),
        start: 1,
        last: MAX_NUMBER,
        period,
        period_max: period,
        clock: None,
        heal: false,
        max_jump: 0,
        single: 0,
        writer: 0,
    }
}

#[test]
fn each_store_keeps_the_schemes_that_it_is_said_to_keep() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ids.db");
    let open = |store: &str| -> Option<Box<dyn Store>> {
        match store {
            "memory" => Some(Box::new(MemoryStore::new(Memory::new()))),
            "SQLite" => Some(Box::new(SqliteStore::new(file.clone(), sqlite::SqliteOptions::default()))),
            "MariaDB" => Some(Box::new(mariadb::store(mariadb::options()))),
            "PostgreSQL" => Some(Box::new(postgres::store(postgres::options()))),
            "Redis" => Some(Box::new(redis::store(redis::options()))),
            // The tests have no server of these.
            "MySQL" | "TiDB" => None,
            other => panic!("`{other}` is opened nowhere"),
        }
    };
    for name in schemes::STORES {
        let Some(mut store) = open(name) else { continue };
        for scheme in Scheme::ALL {
            let request = request(scheme, unique("m"));
            let keeps = store
                .init(std::slice::from_ref(&request.key), false)
                .and_then(|_| store.reserve(&request))
                .map_err(|fault| {
                    assert!(matches!(fault.kind, FaultKind::Refused | FaultKind::Unsafe), "{fault}");
                    println!("not there: {} {}: {fault}", name.to_lowercase(), scheme.name());
                })
                .is_ok();
            assert_eq!(keeps, schemes::keeps(name, scheme), "{name}, {}", scheme.name());
            if name == "MariaDB" && keeps {
                use mysql::prelude::Queryable;
                let table = &request.key.table;
                mariadb::connection().query_drop(format!("DROP TABLE IF EXISTS {table}")).unwrap();
            }
        }
    }
}
