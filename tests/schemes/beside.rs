//! keymill on the tables of other programs: their nodes on the same row, with their own SQL; the row's own step and time to
//! live; rows that make no sense.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keymill::Holds;
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{Catalogue, FaultKind, Key, RowStore, Scheme};
use keymill_tests::rivals::{PROGRAMS, Program, program, reserve_and_give_back};
use keymill_tests::{mariadb, request, schemes};
use mysql::prelude::Queryable;

fn key(scheme: Scheme, table: &str) -> Arc<Key> {
    Arc::new(Key { step: 1000, ..Key::segment(scheme, table, "orders") })
}

/// A table of this program's on MariaDB, gone with the value.
struct Table {
    name: String,
    key: Arc<Key>,
}

impl Table {
    fn new(program: &Program) -> Table {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let name = format!("b_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let key = key(program.scheme, &name);
        mariadb::store(mariadb::options()).init(&[Arc::clone(&key)], false).unwrap();
        Table { name, key }
    }

    fn say(&self, sql: &str) {
        mariadb::connection().query_drop(sql.replace("{t}", &self.name)).unwrap();
    }

    fn make_row(&self, program: &Program) {
        self.say(&format!("INSERT INTO {{t}} ({}) VALUES ({})", program.row.0, program.row.1));
    }

    fn row(&self) -> String {
        mariadb::store(mariadb::options()).look(&self.key).unwrap().unwrap().text
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.say("DROP TABLE {t}");
        }
    }
}

/// Programs with an allocation of their own are in `jpa.rs`.
#[test]
fn every_counter_of_another_program_has_that_programs_own_statements() {
    for scheme in schemes::counters().filter(|scheme| !scheme.keeps_allocation()) {
        assert!(PROGRAMS.iter().any(|program| program.scheme == scheme), "{scheme} is missing in `PROGRAMS`");
    }
}

#[test]
fn old_nodes_and_ours_on_one_row_never_take_the_same_number() {
    const ROUNDS: usize = 150;
    for program in PROGRAMS {
        let table = Table::new(program);
        table.make_row(program);
        let mut ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for n in 0..8 {
                let table = &table;
                threads.push(scope.spawn(move || {
                    if n % 2 == 0 {
                        let mut connection = mariadb::connection();
                        return (0..ROUNDS).map(|_| (program.node)(&mut connection, &table.name)).collect();
                    }
                    let mut store = mariadb::store(mariadb::options());
                    reserve_and_give_back(&mut store, &table.key, 1 + n * 30, ROUNDS, 10)
                }));
            }
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(ranges.len(), 8 * ROUNDS);
        ranges.sort_unstable();
        for pair in ranges.windows(2) {
            // Numbers that no node took were lost: between these nodes none is.
            assert_eq!(pair[0].1, pair[1].0, "{:?}: {:?} and {:?}", program.scheme, pair[0], pair[1]);
        }
        assert_eq!(ranges[0].0, 1, "{:?}", program.scheme);
        let hi = ranges.last().unwrap().1;
        let stands = if schemes::columns(program.scheme).holds == Holds::Next { hi } else { hi - 1 };
        let found = table.row();
        assert!(found.starts_with(&format!("{}={stands}", program.maximum)), "{found}");
    }
}

#[test]
fn whole_multiples_of_the_rows_step_are_reserved_and_a_new_step_is_followed() {
    for program in PROGRAMS {
        let Some(step) = schemes::columns(program.scheme).step else { continue };
        let table = Table::new(program);
        table.make_row(program);
        let mut store = mariadb::store(mariadb::options());
        let mut taken = |len: u64| {
            let got = store.reserve(&request(&table.key, len)).unwrap();
            (got.lo, got.hi)
        };
        assert_eq!(taken(10), (1, 51));
        assert_eq!(taken(50), (51, 101));
        assert_eq!(taken(51), (101, 201));
        table.say(&format!("UPDATE {{t}} SET {step} = 7"));
        assert_eq!(taken(10), (201, 215));
        assert_eq!(taken(10), (215, 229));
    }
}

#[test]
fn the_rows_time_to_live_comes_with_the_range_and_a_new_one_is_followed() {
    let snowman = program(Scheme::SequenceTable);
    let table = Table::new(snowman);
    table.make_row(snowman);
    let mut store = mariadb::store(mariadb::options());
    for (seconds, ttl_ms) in [(60, Some(60_000)), (60, Some(60_000)), (1, Some(1000)), (0, None), (0, None)] {
        table.say(&format!("UPDATE {{t}} SET time_to_live = {seconds}"));
        assert_eq!(store.reserve(&request(&table.key, 10)).unwrap().ttl_ms, ttl_ms, "{seconds}");
    }
}

#[test]
fn numbers_that_outlived_the_rows_time_to_live_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ids.db");
    let mill = keymill::Mill::open(&format!("sqlite:{}?clock=manual", file.display())).unwrap();
    let orders = mill.source("segment:orders?scheme=sequence_table&step=10&deadline=60s").unwrap();
    assert!(orders.expires(), "the row may come to say so");
    assert!(!mill.source("segment:others?scheme=cosid").unwrap().expires());
    assert_eq!(orders.next().unwrap(), 1);
    rusqlite::Connection::open(&file)
        .unwrap()
        .execute("UPDATE sequence_table SET time_to_live = 5", [])
        .unwrap();
    // The next range is the first with the new time to live.
    assert_eq!(orders.take(19).unwrap().last(), Some(&20));
    assert_eq!(orders.next().unwrap(), 21);
    mill.advance_clock(4_000).unwrap();
    assert_eq!(orders.next().unwrap(), 22);
    mill.advance_clock(2_000).unwrap();
    let next = orders.next().unwrap();
    assert!(next > 30 && next % 10 == 1, "{next} is of a new range");
    mill.close();
}

#[test]
fn a_new_row_gets_the_sources_own_step() {
    for program in PROGRAMS {
        let table = Table::new(program);
        let got = mariadb::store(mariadb::options()).reserve(&request(&table.key, 10)).unwrap();
        let found = table.row();
        let columns = schemes::columns(program.scheme);
        if let Some(step) = columns.step {
            assert_eq!((got.lo, got.hi), (1, 1001), "{found}");
            assert!(found.contains(&format!(" {step}=1000")), "{found}");
        } else {
            let stands = if columns.holds == Holds::Next { 11 } else { 10 };
            assert_eq!((got.lo, got.hi, found), (1, 11, format!("{}={stands}", program.maximum)));
        }
    }
}

/// The statement that breaks the row, and the text of the refusal.
fn broken_rows(program: &Program) -> Vec<(String, String)> {
    let Program { maximum, by, .. } = program;
    let columns = schemes::columns(program.scheme);
    let set =
        |column: &str, value: &str| format!("UPDATE {{t}} SET {column} = {value} WHERE {by} = 'orders'");
    let mut all = vec![
        (set(maximum, "-1"), format!("holds -1 in `{maximum}`")),
        (set(maximum, "NULL"), format!("holds NULL in `{maximum}`")),
    ];
    if let Some(step) = columns.step {
        for value in ["0", "-5", "NULL"] {
            all.push((set(step, value), format!("holds {value} in `{step}`")));
        }
    }
    if let Some(ttl) = columns.ttl {
        all.push((set(ttl, "-1"), format!("holds -1 in `{ttl}`")));
    }
    if program.scheme == Scheme::TinyIdInfo {
        all.push((set("delta", "2"), "delta=2".to_owned()));
        all.push((set("delta", "0"), "holds 0 in `delta`".to_owned()));
        all.push((set("remainder", "1"), "remainder=1".to_owned()));
    }
    all
}

#[test]
fn a_row_that_makes_no_sense_is_refused_with_the_column_and_left_alone() {
    for program in PROGRAMS {
        let table = Table::new(program);
        // As in applications with fewer constraints than the author's table.
        table.say(&format!("ALTER TABLE {{t}} MODIFY {} BIGINT NULL", program.maximum));
        if let Some(step) = schemes::columns(program.scheme).step {
            table.say(&format!("ALTER TABLE {{t}} MODIFY {step} INT NULL"));
        }
        for (breaks, says) in broken_rows(program) {
            table.make_row(program);
            let mut store = mariadb::store(mariadb::options());
            store.reserve(&request(&table.key, 10)).unwrap();
            store.reserve(&request(&table.key, 10)).unwrap();
            table.say(&breaks);
            let all =
                || mariadb::connection().query::<mysql::Row, _>(format!("SELECT * FROM {}", table.name));
            let before = format!("{:?}", all().unwrap());
            // With a connection that knows the row, and with one that does not.
            for store in [&mut store, &mut mariadb::store(mariadb::options())] {
                let fault = store.reserve(&request(&table.key, 10)).unwrap_err();
                assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
                assert!(
                    fault.to_string().contains(&says) && fault.to_string().contains(&table.name),
                    "{fault}"
                );
                assert!(fault.to_string().contains("nothing was changed"), "{fault}");
            }
            assert_eq!(format!("{:?}", all().unwrap()), before);
            table.say("DELETE FROM {t}");
        }
    }
}

#[test]
fn a_text_where_a_number_should_be_is_refused_on_sqlite() {
    for program in PROGRAMS {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ids.db");
        let key = key(program.scheme, "t");
        let mut store = SqliteStore::new(file.clone(), sqlite::SqliteOptions::default());
        store.reserve(&request(&key, 10)).unwrap();
        let other = rusqlite::Connection::open(&file).unwrap();
        for (value, says) in [("'many'", "holds `many`"), ("-7", "holds -7"), ("0.5", "holds `0.5`")] {
            other.execute(&format!("UPDATE t SET {} = {value}", program.maximum), []).unwrap();
            let fault = store.reserve(&request(&key, 10)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(
                fault.to_string().contains(says) && fault.to_string().contains(program.maximum),
                "{fault}"
            );
        }
    }
}

#[test]
fn a_column_that_is_too_narrow_or_no_number_is_refused() {
    for program in PROGRAMS {
        for narrow in ["INT", "VARCHAR(20)"] {
            let table = Table::new(program);
            table.say(&format!("ALTER TABLE {{t}} MODIFY {} {narrow} NOT NULL", program.maximum));
            let fault = mariadb::store(mariadb::options()).reserve(&request(&table.key, 10)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(fault.to_string().contains("too narrow for `bigint`"), "{fault}");
        }
        // No unique key separates two rows of one name.
        let table = Table::new(program);
        let unique = format!(
            "SELECT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{}' \
             AND COLUMN_NAME = '{}' AND NON_UNIQUE = 0",
            table.name, program.by
        );
        let unique: String = mariadb::connection().query_first(unique).unwrap().unwrap();
        table.say(&format!("ALTER TABLE {{t}} DROP INDEX `{unique}`"));
        let fault = mariadb::store(mariadb::options()).reserve(&request(&table.key, 10)).unwrap_err();
        assert!(fault.to_string().contains(&format!("it has no primary key ({})", program.by)), "{fault}");
    }
}
