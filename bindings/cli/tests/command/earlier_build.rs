//! "A table of an earlier build" in docs/operations/tables.md, step by step, after ids were taken: those that come then are above every one
//! of them.

use std::path::PathBuf;
use std::time::SystemTime;

use keymill::snowflake::layout::rfc3339;

use crate::common::Home;
use crate::restore::{Server, patiently};

const PAGE: &str = include_str!("../../../../docs/operations/tables.md");

const SEGMENT: &str = "segment:orders";
const SERIAL: &str = "serial:cust_info/custid?number=000000&scheme=keymill&zone=UTC";
const BUSINESS: &str = "business:order?counters=4";
const LEASED: &str = "snowflake:tx";
const FIXED: &str = "snowflake:fx?worker=5";
const SOURCES: [&str; 5] = [SEGMENT, SERIAL, BUSINESS, LEASED, FIXED];

/// The tables as the builds before 0.2.0 made them.
const OLD_OF_MYSQL: [&str; 2] = [
    "CREATE TABLE `keymill_segment` (`name` VARBINARY(512) NOT NULL, `period` BIGINT UNSIGNED NOT NULL DEFAULT 0, \
     `next` BIGINT UNSIGNED NOT NULL COMMENT 'lowest number not yet reserved', \
     `updated_at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, PRIMARY KEY (`name`)) ENGINE=InnoDB",
    "CREATE TABLE `{worker}` (`pool` VARBINARY(512) NOT NULL, `slot` BIGINT UNSIGNED NOT NULL, `token` BIGINT UNSIGNED NOT NULL, \
     `mark` BIGINT UNSIGNED NOT NULL, `ends_at` BIGINT UNSIGNED NOT NULL, `owner` VARBINARY(255) NOT NULL, \
     `layout` VARBINARY(512) NOT NULL, PRIMARY KEY (`pool`, `slot`)) ENGINE=InnoDB",
];
const OLD_OF_SQLITE: [&str; 2] = [
    "CREATE TABLE \"keymill_segment\" (name TEXT NOT NULL PRIMARY KEY, period INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL, \
     updated_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) WITHOUT ROWID",
    "CREATE TABLE \"{worker}\" (pool TEXT NOT NULL, slot INTEGER NOT NULL, token INTEGER NOT NULL, mark INTEGER NOT NULL, \
     ends_at INTEGER NOT NULL, owner TEXT NOT NULL, layout TEXT NOT NULL, PRIMARY KEY (pool, slot)) WITHOUT ROWID",
];

enum Store {
    MariaDb(Server),
    Sqlite(PathBuf),
}

impl Store {
    fn url(&self) -> String {
        match self {
            Store::MariaDb(server) => server.url(),
            Store::Sqlite(path) => format!("sqlite:{}", path.display()),
        }
    }

    fn say(&self, sql: &str) {
        match self {
            Store::MariaDb(server) => drop(server.say(sql)),
            Store::Sqlite(path) => {
                rusqlite::Connection::open(path)
                    .unwrap()
                    .execute_batch(sql)
                    .unwrap_or_else(|e| panic!("{sql}: {e}"));
            }
        }
    }

    /// Puts the tables and their rows as an earlier build had them. The marks of workers lie a while ahead, as after a process was killed.
    fn make_of_earlier_build(&self) {
        let [segment, worker] = match self {
            Store::MariaDb(_) => OLD_OF_MYSQL,
            Store::Sqlite(_) => OLD_OF_SQLITE,
        };
        self.say("ALTER TABLE keymill_segment RENAME TO new_segment; ALTER TABLE keymill_worker RENAME TO new_worker");
        for statement in [
            segment,
            "INSERT INTO keymill_segment (name, period, next) SELECT name, date, next FROM new_segment",
            &worker.replace("{worker}", "keymill_worker"),
            &worker.replace("{worker}", "keymill_reader"),
            "INSERT INTO keymill_worker (pool, slot, token, mark, ends_at, owner, layout) \
             SELECT pool, slot, token, mark + 2000, 0, process, layout FROM new_worker WHERE state = 'leased'",
            "INSERT INTO keymill_worker (pool, slot, token, mark, ends_at, owner, layout) \
             SELECT pool, slot, token, mark, 0, process, layout FROM new_worker WHERE state = 'pool'",
            "DROP TABLE new_segment",
            "DROP TABLE new_worker",
        ] {
            self.say(statement);
        }
    }
}

fn follow_the_page(store: &Store) {
    let home = Home::new();
    let url = store.url();
    let run = |args: &[&str]| patiently(&home, &[&["--mill", &url][..], args].concat());
    let take = |spec: &str| -> Vec<String> {
        let key: &[&str] = if spec == BUSINESS { &["--key-text", "a"] } else { &[] };
        run(&[&["take", spec, "30"][..], key].concat()).done().lines().map(str::to_owned).collect()
    };
    run(&[&["init"][..], &SOURCES].concat()).done();
    let old: Vec<Vec<String>> = SOURCES.iter().map(|spec| take(spec)).collect();
    store.make_of_earlier_build();

    // Each of them is refused, and `init` too.
    for spec in SOURCES {
        for verb in ["next", "init", "status"] {
            let key: &[&str] = if spec == BUSINESS && verb == "next" { &["--key-text", "a"] } else { &[] };
            let ran = run(&[&[verb, spec][..], key].concat());
            assert!(format!("{}{}", ran.out, ran.err).contains("earlier build"), "{verb} {spec}: {ran:?}");
        }
    }
    assert!(run(&["init"]).refused("STORE_REFUSED").contains("earlier build"));

    // Steps 3 to 5.
    let rename = "ALTER TABLE keymill_segment RENAME TO keymill_segment_old";
    assert!(PAGE.contains(&format!("`{rename}`")), "the page has another statement");
    for table in ["segment", "worker", "reader"] {
        store.say(&rename.replace("segment", table));
    }
    run(&[&["init"][..], &SOURCES].concat()).done();
    run(&["init"]).done();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
    let time = rfc3339(now + 2_500);
    for (spec, number) in SOURCES.into_iter().zip(["5001", "5001", "5001", &time, &time]) {
        assert!(run(&["repair", spec, "--to", number, "--yes"]).done().contains("written: yes"), "{spec}");
    }

    // Step 6. Each kind rises: a serial as text, the others as numbers; of a business id the number is its low part.
    let number = |spec: &str, id: &String| match spec {
        SERIAL => id[id.len() - 6..].parse().unwrap(),
        BUSINESS => id.parse::<u64>().unwrap() & ((1 << 47) - 1),
        _ => id.parse::<u64>().unwrap(),
    };
    for (spec, old) in SOURCES.into_iter().zip(&old) {
        let highest = old.iter().map(|id| number(spec, id)).max().unwrap();
        // A worker's mark lay 2 s ahead of its last id, and ids up to there may have been issued.
        let highest = if [LEASED, FIXED].contains(&spec) { highest + (2_000 << 22) } else { highest };
        for id in take(spec) {
            assert!(number(spec, &id) > highest, "{spec}: {id} after {highest}");
        }
    }
}

#[test]
fn a_table_of_an_earlier_build_in_sqlite_is_followed_by_ids_above_every_old_one() {
    let folder = tempfile::tempdir().unwrap();
    follow_the_page(&Store::Sqlite(folder.path().join("ids.db")));
}

#[test]
fn a_table_of_an_earlier_build_on_mariadb_is_followed_by_ids_above_every_old_one() {
    follow_the_page(&Store::MariaDb(Server::mariadb("earlier_build")));
}
