//! A value that another program wrote may be long. No message quotes it whole, whatever column or field it stands in.

use std::collections::BTreeMap;

use keymill::{Change, Mill};
use keymill_tests::redis;

const LONG: usize = 100_000;

/// A message has room for the value's beginning, its length, the row's name, and the advice.
const LONGEST_MESSAGE: usize = 2_000;

const SPECS: [&str; 7] = [
    "segment:orders",
    "snowflake:fixed?worker=3",
    "snowflake:leased",
    "business:bank?counters=2",
    "serial:t/c?date=&number=000000",
    "segment:counted?scheme=cosid",
    "segment:old?scheme=leaf_alloc",
];

/// What a program and an operator ask of a mill: the messages of its refusals, and its warnings.
fn messages(url: &str, specs: &[&str]) -> Vec<String> {
    let mill = Mill::open(url).expect("a mill");
    let mut said = Vec::new();
    let mut refused = |answer: keymill::Result<Vec<String>>| match answer {
        Ok(warnings) => said.extend(warnings),
        Err(error) => said.push(error.message),
    };
    for spec in specs {
        let opened = mill.source(&format!("{spec}{}deadline=2s", if spec.contains('?') { '&' } else { '?' }));
        let source = opened.expect("a source");
        let id = if spec.starts_with("business") { source.next_for(7) } else { source.next() };
        refused(id.map(|_| Vec::new()));
        refused(source.status().map(|status| status.warnings));
        refused(source.repair(900, Change::DryRun).map(|_| Vec::new()));
        refused(source.heat().map(|_| Vec::new()));
    }
    refused(mill.init(specs, Change::DryRun));
    refused(mill.router("shop").map(|_| Vec::new()));
    refused(mill.stored_routers().map(|_| Vec::new()));
    refused(mill.facts().map(|facts| facts.warnings));
    refused(mill.moves("shop").and_then(|moves| moves.status()).map(|_| Vec::new()));
    mill.close();
    said
}

#[track_caller]
fn assert_short(place: &str, messages: &[String]) -> usize {
    for message in messages {
        let shown: String = message.chars().take(600).collect();
        assert!(message.len() <= LONGEST_MESSAGE, "{place}: {} bytes: {shown}", message.len());
    }
    messages.iter().filter(|message| message.contains("100000 bytes)")).count()
}

const ROUTES: &str = "version = 1\n[[range]]\nupper = 65535\nshard = \"one\"\n";

#[test]
fn a_long_value_in_any_column_of_sqlite_is_quoted_by_its_beginning() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ids.db");
    let url = format!("sqlite:{}", path.display());
    let mill = Mill::open(&url).expect("a mill");
    mill.init(&SPECS, Change::Apply).expect("tables");
    mill.put_routes("shop", ROUTES, Change::Apply).expect("a table");
    mill.close();
    let db = rusqlite::Connection::open(&path).expect("the file opens");
    db.execute_batch("INSERT INTO leaf_alloc (biz_tag, max_id, step) VALUES ('old', 1, 100)").expect("a row");
    messages(&url, &SPECS);
    let columns: Vec<(String, String)> = db
        .prepare("SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c WHERE m.type = 'table'")
        .and_then(|mut found| found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect())
        .expect("columns");
    assert!(columns.len() > 30, "{columns:?}");
    let mut quoted = 0;
    for (table, column) in columns {
        for unit in ["x", "7", "é", "`"] {
            let value = unit.repeat(LONG / unit.len());
            db.execute_batch(&format!("CREATE TABLE keymill_kept AS SELECT * FROM {table}")).expect("a copy");
            db.execute_batch("PRAGMA ignore_check_constraints = on").expect("no checks");
            // A unique column takes one such value.
            db.execute(&format!("UPDATE OR IGNORE {table} SET {column} = ?"), [value]).expect("a value");
            quoted += assert_short(&format!("{table}.{column}"), &messages(&url, &SPECS));
            db.execute_batch(&format!(
                "DELETE FROM {table}; INSERT INTO {table} SELECT * FROM keymill_kept; DROP TABLE keymill_kept"
            ))
            .expect("as it was");
        }
    }
    assert!(quoted > 10, "only {quoted} messages quote such a value: the test plants nothing");
}

#[test]
fn a_long_value_in_any_field_of_redis_is_quoted_by_its_beginning() {
    let server = redis::Private::start("");
    let url = server.url();
    let specs = &SPECS[..4];
    let mill = Mill::open(&url).expect("a mill");
    mill.put_routes("shop", ROUTES, Change::Apply).expect("a table");
    mill.close();
    messages(&url, specs);
    let mut plain = redis::connection_of(&url);
    let keys: Vec<String> = redis::say(&mut plain, &["KEYS", "keymill*"]);
    assert!(keys.len() > 5, "{keys:?}");
    let mut quoted = 0;
    for key in keys {
        let kept: BTreeMap<String, String> = redis::say(&mut plain, &["HGETALL", &key]);
        let odd = "f".repeat(LONG);
        for field in kept.keys().chain([&odd]) {
            for unit in ["x", "7", "é", "` "] {
                let value = unit.repeat(LONG / unit.len());
                let _: i64 = redis::say(&mut plain, &["HSET", &key, field, &value]);
                quoted += assert_short(&format!("{key} {field:.20}"), &messages(&url, specs));
                let _: i64 = redis::say(&mut plain, &["DEL", &key]);
                for (field, value) in &kept {
                    let _: i64 = redis::say(&mut plain, &["HSET", &key, field, value]);
                }
            }
        }
    }
    assert!(quoted > 10, "only {quoted} messages quote such a value: the test plants nothing");
}
