//! Schemes `auto_increment` and `ticket` on MariaDB: each ticket owns `step` numbers; and faults of such tables.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{
    Catalogue, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Request, RowStore, Scheme, Store,
};
use keymill_tests::ci::patient;
use keymill_tests::disguise::Disguise;
use keymill_tests::{in_time, mariadb};
use mysql::prelude::Queryable;

const BOTH: [Scheme; 2] = [Scheme::AutoIncrement, Scheme::Ticket];

/// A table on MariaDB, gone with the value.
struct Table {
    scheme: Scheme,
    name: String,
}

impl Table {
    fn new(scheme: Scheme) -> Table {
        let table = Table::missing(scheme);
        open().init(&[table.key("orders")], false).unwrap();
        table
    }

    fn missing(scheme: Scheme) -> Table {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Table { scheme, name: format!("k_{}_{count}", std::process::id()) }
    }

    fn key(&self, name: &str) -> Arc<Key> {
        Arc::new(Key { step: 100, unsafe_on: true, ..Key::segment(self.scheme, &self.name, name) })
    }

    fn request(&self, name: &str) -> Request {
        keymill_tests::request(&self.key(name), 10)
    }

    fn say(&self, sql: &str) {
        mariadb::connection().query_drop(sql.replace("{t}", &self.name)).unwrap();
    }

    fn rows(&self) -> u64 {
        mariadb::connection().query_first(format!("SELECT COUNT(*) FROM {}", self.name)).unwrap().unwrap()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.say("DROP TABLE IF EXISTS {t}");
        }
    }
}

fn open() -> impl Store {
    mariadb::store(mariadb::options())
}

fn seen(request: &Request, next: u64) -> Request {
    Request { high_water: Mark { period: 0, next }, ..request.clone() }
}

#[test]
fn a_ticket_is_worth_step_numbers_whatever_is_asked_for() {
    for scheme in BOTH {
        let table = Table::new(scheme);
        let mut request = table.request("orders");
        for round in 0..5 {
            let got = open().reserve(&request).unwrap();
            assert_eq!((got.lo, got.hi), (round * 100 + 1, round * 100 + 101));
            request = Request { len: 1 + round * 200, ..seen(&request, got.hi) };
        }
        // Another name draws from the same counter.
        assert_eq!(open().reserve(&table.request("Orders")).unwrap().lo, 501);
        assert_eq!(open().look(&table.key("orders")).unwrap().unwrap().mark.next, 501);
        assert_eq!(open().look(&table.key("Orders")).unwrap().unwrap().text, "id=6 step=100");
        assert_eq!(open().look(&table.key("nobody")).unwrap(), None);
        assert!(!open().give_back(&GiveBack::new(&table.key("Orders"), 0, 550, 601)).unwrap());
    }
}

#[test]
fn sixteen_connections_never_draw_the_same_ticket_and_deadlocks_are_drawn_again() {
    const ROUNDS: usize = 60;
    for scheme in BOTH {
        let table = Table::new(scheme);
        let together = Barrier::new(16);
        let mut ranges: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    let (table, together) = (&table, &together);
                    scope.spawn(move || {
                        let mut store = open();
                        let mut request = table.request("orders");
                        together.wait();
                        let mut ranges = Vec::new();
                        while ranges.len() < ROUNDS {
                            match store.reserve(&request) {
                                Ok(got) => {
                                    request = seen(&request, got.hi);
                                    ranges.push((got.lo, got.hi));
                                }
                                // On a busy machine a process may sleep with the row locked.
                                Err(fault) => assert!(
                                    matches!(
                                        fault.kind,
                                        FaultKind::Unavailable | FaultKind::Locked | FaultKind::Conflict
                                    ),
                                    "{fault}"
                                ),
                            }
                        }
                        ranges
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        ranges.sort_unstable();
        assert_eq!(ranges.len(), 16 * ROUNDS);
        for pair in ranges.windows(2) {
            assert!(pair[0].1 <= pair[1].0, "{:?} and {:?} overlap", pair[0], pair[1]);
        }
        // One row a name; or the tickets since the last purge.
        let most = if scheme == Scheme::Ticket { 1 } else { 16 * ROUNDS as u64 / 4 };
        assert!(table.rows() <= most, "{:?} leaves {} rows", scheme, table.rows());
    }
}

#[test]
fn a_table_that_was_emptied_or_set_back_is_refused_and_never_counted_up_to_the_mark() {
    for scheme in BOTH {
        for breaks in ["TRUNCATE {t}", "DELETE FROM {t}", "UPDATE {t} SET id = 1 WHERE id > 3"] {
            let table = Table::new(scheme);
            let mut store = open();
            let request = table.request("orders");
            if scheme == Scheme::AutoIncrement && breaks.starts_with("UPDATE") {
                continue; // its older rows are there
            }
            let mut hi = 0;
            for _ in 0..5 {
                hi = store.reserve(&request).unwrap().hi;
            }
            table.say(breaks);
            for _ in 0..20 {
                let fault = store.reserve(&seen(&request, hi)).unwrap_err();
                assert_eq!(fault.kind, FaultKind::WentBackwards, "{fault}");
                assert!(
                    fault.to_string().contains("keymill repair 'segment:orders' --to N --yes"),
                    "{fault}"
                );
            }
            assert!(table.rows() <= 1);
            let (_, after) = store.repair(&table.key("orders"), Mark { period: 0, next: hi }).unwrap();
            assert!(after.mark.next >= hi);
            assert!(store.reserve(&seen(&request, hi)).unwrap().lo >= hi);
        }
    }
}

#[test]
fn a_dry_run_of_repair_shows_the_row_that_would_be_written() {
    for scheme in BOTH {
        let table = Table::new(scheme);
        let mill = keymill::Mill::open(&patient(&mariadb::url())).unwrap();
        let spec =
            format!("segment:orders?scheme={}&table={}&step=100&deadline=60s", scheme.name(), table.name);
        let orders = mill.source(&spec).unwrap();
        orders.next().unwrap();
        let shown = orders.repair(950, keymill::Change::DryRun).unwrap();
        let written = orders.repair(950, keymill::Change::Apply).unwrap();
        assert_eq!((&shown.after, written.after.mark.next), (&written.after, 1001), "{scheme:?}");
        mill.close();
    }
}

#[test]
fn repair_raises_the_counter_and_never_lowers_it() {
    for scheme in BOTH {
        let table = Table::new(scheme);
        let mut store = open();
        let key = table.key("orders");
        let (before, after) = store.repair(&key, Mark { period: 0, next: 950 }).unwrap();
        assert_eq!((before, after.mark.next), (None, 1001));
        assert_eq!(store.reserve(&table.request("orders")).unwrap().lo, 1001);
        let fault = store.repair(&key, Mark { period: 0, next: 1100 }).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        // Another name is higher: the next ticket of the counter is above both.
        store.repair(&table.key("others"), Mark { period: 0, next: 50_001 }).unwrap();
        let (_, after) = store.repair(&key, Mark { period: 0, next: 2001 }).unwrap();
        assert_eq!(after.mark.next, 50_101);
        assert_eq!(store.look(&key).unwrap().unwrap(), after);
        assert_eq!(store.reserve(&table.request("orders")).unwrap().lo, 50_101);
        assert_eq!(store.repair(&key, Mark::default()).unwrap_err().kind, FaultKind::Refused);
    }
}

#[test]
fn another_step_than_the_tables_is_refused() {
    for scheme in BOTH {
        let table = Table::new(scheme);
        open().reserve(&table.request("orders")).unwrap();
        let mut request = table.request("orders");
        request.key = Arc::new(Key { step: 50, ..(*request.key).clone() });
        for answer in [
            open().reserve(&request).map(drop),
            open().init(&[Arc::clone(&request.key)], false).map(drop),
            open().look(&request.key).map(drop),
            open().repair(&request.key, Mark { period: 0, next: 10_000 }).map(drop),
        ] {
            let fault = answer.unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(fault.to_string().contains("use `step=100`"), "{fault}");
        }
        // With a connection that has checked the table for the right step.
        let mut store = open();
        store.reserve(&table.request("orders")).unwrap();
        assert_eq!(store.reserve(&request).unwrap_err().kind, FaultKind::Refused);
        // A connection that checked the table before it was changed: the table's own constraint refuses.
        let mut store = open();
        store.reserve(&table.request("orders")).unwrap();
        let inserted = format!("INSERT INTO {} (stub, step) VALUES ('x', 50)", table.name);
        assert!(mariadb::connection().query_drop(inserted).is_err());
        assert_eq!(store.reserve(&table.request("orders")).unwrap().lo % 100, 1);
    }
}

/// A ticket of the new step would own numbers that a ticket of the old one owned.
#[test]
fn a_step_of_tickets_that_was_made_smaller_is_refused_for_every_source_until_it_is_put_back() {
    for scheme in BOTH {
        for without_comment in ["", "COMMENT = ''"] {
            let table = Table::new(scheme);
            let mut store = open();
            let mut next = 0;
            for _ in 0..3 {
                next = store.reserve(&seen(&table.request("orders"), next)).unwrap().hi;
            }
            let mut connection = mariadb::connection();
            let name = &table.name;
            // The old rows may stay, where the server does not look at them.
            let (check, unenforced) = if mariadb::is_mysql(&mut connection) {
                (format!("{name}_chk_1"), "NOT ENFORCED")
            } else {
                connection.query_drop("SET check_constraint_checks = 0").unwrap();
                ("CONSTRAINT_1".to_owned(), "")
            };
            let alter = format!(
                "ALTER TABLE {name} DROP CONSTRAINT {check}, ALTER step SET DEFAULT 50, \
                 ADD CONSTRAINT {check} CHECK (step = 50) {unenforced}"
            );
            connection.query_drop(alter).unwrap();
            if without_comment.is_empty() {
                table.say("UPDATE {t} SET step = 50");
            } else {
                table.say(&format!("ALTER TABLE {{t}} {without_comment}"));
            }
            for step in [100, 50] {
                let mut request = table.request("orders");
                request.key = Arc::new(Key { step, ..(*request.key).clone() });
                let fault = open().reserve(&request).unwrap_err();
                assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
                let says = fault.to_string();
                assert!(says.contains("Put 100 back") && !says.contains("use `step"), "{says}");
            }
            table.say(&format!("ALTER TABLE {{t}} DROP CONSTRAINT {check}"));
            table.say("UPDATE {t} SET step = 100");
            table.say("ALTER TABLE {t} ALTER step SET DEFAULT 100, ADD CHECK (step = 100)");
            assert!(open().reserve(&seen(&table.request("orders"), next)).unwrap().lo >= next);
        }
    }
}

#[test]
fn the_last_number_is_issued_and_nothing_wraps() {
    for scheme in BOTH {
        let table = Table::new(scheme);
        let mut store = open();
        let request = table.request("orders");
        store.repair(&request.key, Mark { period: 0, next: MAX_NUMBER - 6 }).unwrap();
        let got = store.reserve(&request).unwrap();
        assert_eq!((got.lo % 100, got.hi), (1, MAX_NUMBER + 1), "seven are left of the last ticket");
        for high_water in [0, got.hi] {
            let fault = store.reserve(&seen(&request, high_water)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Exhausted, "{fault}");
        }
        let short = Request { last: 950, ..table.request("orders") };
        let fault = store.reserve(&short).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Exhausted, "{fault}");
    }
}

#[test]
fn a_missing_table_and_one_of_another_shape_are_refused_with_what_to_do() {
    for scheme in BOTH {
        let table = Table::missing(scheme);
        let fault = open().reserve(&table.request("orders")).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Refused);
        let says = format!(
            "reserving 10 for `segment:orders` failed: table `{}` is missing; run `keymill init`",
            table.name
        );
        assert_eq!(fault.to_string(), says);
        for (columns, says) in [
            (
                "id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, stub CHAR(1) UNIQUE",
                "column `step` is missing",
            ),
            ("id INT AUTO_INCREMENT PRIMARY KEY, stub CHAR(1) UNIQUE, step INT", "too narrow for `bigint`"),
            (
                "id BIGINT PRIMARY KEY, stub VARBINARY(99) UNIQUE, step INT DEFAULT 100",
                "`id` is not AUTO_INCREMENT",
            ),
            ("id BIGINT AUTO_INCREMENT PRIMARY KEY, stub VARBINARY(99) UNIQUE, step INT", "worth step="),
        ] {
            table.say(&format!("CREATE TABLE {{t}} ({columns})"));
            let fault = open().reserve(&table.request("orders")).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(fault.to_string().contains(says), "{fault}");
            table.say("DROP TABLE {t}");
        }
    }
}

#[test]
fn two_schemes_on_one_table_are_refused() {
    for (scheme, other) in [(BOTH[0], BOTH[1]), (BOTH[1], BOTH[0])] {
        let table = Table::new(scheme);
        let mut request = table.request("orders");
        open().reserve(&request).unwrap();
        for other in [other, Scheme::Keymill, Scheme::Cosid, Scheme::SequenceTable, Scheme::Sequence] {
            request.key = Arc::new(Key { scheme: other, ..(*table.key("orders")).clone() });
            let fault = open().reserve(&request).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{other:?}: {fault}");
            let no_sequences = other.is_sequence() && fault.to_string().contains("has no sequences");
            assert!(fault.to_string().contains("with `table=`") || no_sequences, "{other:?}: {fault}");
        }
        assert_eq!(table.rows(), 1);
    }
}

#[test]
fn servers_that_share_the_numbers_by_offset_draw_apart() {
    let table = Table::new(Scheme::Ticket);
    let mut other = mariadb::connection();
    other.query_drop("SET SESSION auto_increment_increment = 2, auto_increment_offset = 2").unwrap();
    other
        .query_drop(format!("REPLACE INTO {} (stub, step) VALUES ('segment:orders', 100)", table.name))
        .unwrap();
    assert_eq!(other.last_insert_id(), 2);
    let got = open().reserve(&table.request("orders")).unwrap();
    assert!(got.lo >= 201 && got.lo % 100 == 1, "{got:?}");
}

#[test]
fn stores_without_auto_increment_say_so() {
    let folder = tempfile::tempdir().unwrap();
    for scheme in BOTH {
        let table = std::mem::ManuallyDrop::new(Table::missing(scheme));
        let file = folder.path().join("ids.db");
        let stores: [Box<dyn Store>; 2] = [
            Box::new(MemoryStore::new(Memory::new())),
            Box::new(SqliteStore::new(file, sqlite::SqliteOptions::default())),
        ];
        for mut store in stores {
            let fault = store.reserve(&table.request("orders")).unwrap_err();
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            assert!(fault.to_string().contains("use `scheme=keymill`"), "{fault}");
        }
    }
}

#[test]
fn a_mill_takes_ids_from_tickets() {
    for scheme in BOTH {
        let table = std::mem::ManuallyDrop::new(Table::missing(scheme));
        let spec =
            format!("segment:orders?scheme={}&table={}&step=100&deadline=60s", scheme.name(), table.name);
        let mill = keymill::Mill::open(&patient(&mariadb::url())).unwrap();
        mill.init(&[&spec], keymill::Change::Apply).unwrap();
        let orders = mill.source(&spec).unwrap();
        let mut ids = orders.take(1050).unwrap();
        ids.push(orders.next().unwrap());
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((ids[0], ids[1050]), (1, 1051));
        mill.close();
        table.say("DROP TABLE {t}");
    }
}

#[test]
fn a_single_node_draws_with_one_statement_and_two_in_turn_lower_nothing() {
    for scheme in BOTH {
        let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
        let table = Table::new(scheme);
        let mut options = mariadb::options();
        options.hosts = vec![disguise.address()];
        let mut store = mariadb::store(options);
        let request = table.request("orders");
        let mut next = store.reserve(&request).unwrap().hi;
        drop(disguise.said());
        for _ in 0..50 {
            next = store.reserve(&seen(&request, next)).unwrap().hi;
        }
        assert_eq!(disguise.round_trips(), 50, "{:?}", disguise.said());
        // Another node in between: the row is not where this node left it.
        let mut other = open();
        let mut theirs = other.reserve(&request).unwrap().hi;
        for _ in 0..20 {
            let got = store.reserve(&seen(&request, next)).unwrap();
            assert!(got.lo >= theirs, "{got:?}");
            next = got.hi;
            let got = other.reserve(&seen(&request, theirs)).unwrap();
            assert!(got.lo >= next, "{got:?}");
            theirs = got.hi;
        }
        // A row that an operator has raised is left alone.
        table.say("UPDATE {t} SET id = 1000000 ORDER BY id DESC LIMIT 1");
        let fault = match store.reserve(&seen(&request, theirs)) {
            Ok(got) => {
                assert!(got.lo > 100_000_000 || scheme == Scheme::AutoIncrement, "{got:?}");
                continue;
            }
            Err(fault) => fault,
        };
        assert_eq!(fault.kind, FaultKind::Unavailable, "{fault}");
        assert_eq!(store.look(&request.key).unwrap().unwrap().text, "id=1000000 step=100");
    }
}

/// Waits until eight threads are here, or until one of them has failed: then the others go on.
fn meet(come: &AtomicU32, round: u64) {
    let give_up = Instant::now() + Duration::from_millis(200);
    // ordering: Relaxed — only the count matters.
    come.fetch_add(1, Ordering::Relaxed);
    // ordering: Relaxed — as above.
    while u64::from(come.load(Ordering::Relaxed)) < 8 * round && Instant::now() < give_up {
        std::thread::yield_now();
    }
}

#[test]
fn tickets_that_are_raised_while_others_draw_are_never_lowered() {
    for scheme in BOTH {
        let table = Table::new(scheme);
        let start = AtomicU32::new(0);
        let drawn: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..8)
                .map(|client| {
                    let (table, start) = (&table, &start);
                    // Two sources of one table.
                    let request = table.request(["a", "b"][client % 2]);
                    scope.spawn(move || {
                        let mut store = open();
                        let (mut drawn, mut high) = (Vec::new(), 0);
                        for round in 1..=60_u64 {
                            meet(start, round);
                            // As several stores behind one source do when a chunk begins.
                            let to = Mark { period: 0, next: round * 20_000 + 1 };
                            match in_time(|| store.repair(&request.key, to)) {
                                Err(fault) if fault.kind != FaultKind::Refused => return Err(fault),
                                _ => {}
                            }
                            for _ in 0..3 {
                                let range = in_time(|| store.reserve(&seen(&request, high)))?;
                                high = range.hi;
                                drawn.push((range.lo, range.hi));
                            }
                        }
                        Ok(drawn)
                    })
                })
                .collect();
            clients.into_iter().flat_map(|client| client.join().unwrap().unwrap()).collect()
        });
        let mut drawn = drawn;
        drawn.sort_unstable();
        assert!(drawn.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{scheme:?}: a ticket twice");
    }
}
