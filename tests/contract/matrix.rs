//! Which store supports which scheme: the code's answer, compared with the table in `docs/schemes.md`.

use std::sync::Arc;

use keymill::serial::SerialPattern;
use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{Columns, FaultKind, Key, MAX_NUMBER, Mark, Request, Scheme, SerialKey, Store};
use keymill_tests::{mariadb, postgres, redis};

use crate::bench::unique;

fn request(scheme: Scheme, table: String) -> Request {
    let serial = (!scheme.keeps_segments()).then(|| SerialKey {
        table: "cust_info".to_owned(),
        column: "custid".to_owned(),
        pattern: SerialPattern::new("yyyyMMdd", "00000000", "UTC").unwrap(),
        init_max: false,
    });
    let period = if serial.is_some() { crate::DAY } else { 0 };
    let name = if serial.is_some() { "serial:cust_info/custid" } else { "segment:orders" }.to_owned();
    let key = Key {
        scheme,
        table,
        name,
        serial,
        step: 10,
        unsafe_on: false,
        stride: keymill::store::Stride::EVERY,
        columns: Columns::default(),
    };
    Request {
        key: Arc::new(key),
        len: 10,
        high_water: Mark::default(),
        start: 1,
        last: MAX_NUMBER,
        period,
        period_max: period,
        heal: false,
        max_jump: 0,
        single: 0,
    }
}

/// The columns of the page's table `scheme | …`, each with its cell for each scheme.
fn shown() -> Vec<(String, Vec<bool>)> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schemes.md")).unwrap();
    let table = page.split("<!-- pairs -->\n").nth(1).expect("the page has a table of pairs");
    let mut lines = table.lines().take_while(|line| line.starts_with('|'));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect()
    };
    let head = cells(lines.next().unwrap());
    let rows: Vec<_> = lines.skip(1).map(cells).collect();
    let names: Vec<_> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, Scheme::ALL.map(Scheme::name), "a line for each scheme, in order");
    let column = |at: usize| rows.iter().map(|row| row[at].starts_with("yes")).collect();
    (1..head.len()).map(|at| (head[at].clone(), column(at))).collect()
}

#[test]
fn the_pages_table_of_stores_and_schemes_matches_the_code() {
    let shown = shown();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ids.db");
    let open = |store: &str| -> Option<Box<dyn Store>> {
        match store {
            "memory" => Some(Box::new(MemoryStore::new(Memory::new()))),
            "SQLite" => Some(Box::new(SqliteStore::new(file.clone(), sqlite::SqliteOptions::default()))),
            "MariaDB" => Some(Box::new(mariadb::store(mariadb::options()))),
            "PostgreSQL" => Some(Box::new(postgres::store(postgres::options()))),
            "Redis" => Some(Box::new(redis::store(redis::options()))),
            // Schemes for which the tests have no server.
            "MySQL" | "TiDB" => None,
            other => panic!("docs/schemes.md names `{other}`, which nobody opens here"),
        }
    };
    for (name, says) in shown {
        let Some(mut store) = open(&name) else { continue };
        for (scheme, said) in Scheme::ALL.into_iter().zip(says) {
            let request = request(scheme, unique("m"));
            let keeps = store
                .init(std::slice::from_ref(&request.key), false)
                .and_then(|_| store.reserve(&request))
                .map_err(|fault| {
                    assert!(matches!(fault.kind, FaultKind::Refused | FaultKind::Unsafe), "{fault}");
                    println!("not there: {} {}: {fault}", name.to_lowercase(), scheme.name());
                })
                .is_ok();
            assert_eq!(keeps, said, "{name}, {}", scheme.name());
            if name == "MariaDB" && scheme != Scheme::Sequence {
                use mysql::prelude::Queryable;
                let table = &request.key.table;
                mariadb::connection().query_drop(format!("DROP TABLE IF EXISTS {table}")).unwrap();
            }
        }
    }
}
