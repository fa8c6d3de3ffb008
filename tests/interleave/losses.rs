//! Rows deleted in one of several stores: that store issues no numbers until an operator repairs it.

use std::path::Path;
use std::sync::Arc;

use keymill::store::interleave::Interleaved;
use keymill::store::memory::{Memory, MemoryStore, Step};
use keymill::store::sqlite::{self, SqliteStore};
use keymill::store::{Catalogue, FaultKind, Key, Mark, Request, RowStore, Scheme, Store};
use keymill_tests::{mariadb, postgres};

use super::{
    CHUNK, PAUSE_MS, assert_disjoint, at_hand, key, memories, of_memories, owner, seen, shared, stands, take,
    unique, wordless,
};

/// The schemes of other programs whose row several stores may keep together.
fn counters() -> impl Iterator<Item = Scheme> {
    shared().filter(|scheme| *scheme != Scheme::Keymill)
}

/// A way to open two stores, and to delete the source's row in the second.
struct Pair<'a> {
    key: Arc<Key>,
    open: &'a dyn Fn() -> Interleaved,
    delete: &'a dyn Fn(),
}

impl Pair<'_> {
    fn request(&self, len: u64) -> Request {
        keymill_tests::request(&self.key, len)
    }

    /// Processes take from both stores, the second one's row is deleted, and other processes take.
    fn a_deleted_row_is_never_made_again(&self) {
        let what = format!("{:?} {}", self.key.scheme, self.key.table);
        (self.open)().init(std::slice::from_ref(&self.key), false).unwrap();
        let mut ranges = take(&mut (self.open)(), &mut self.request(100), 25);
        assert!(ranges.iter().any(|(lo, _)| owner(*lo, 2) == 1), "{what}: both stores gave numbers");
        (self.delete)();
        for _ in 0..8 {
            let new = take(&mut (self.open)(), &mut self.request(100), 15);
            assert!(new.iter().all(|(lo, _)| owner(*lo, 2) == 0), "{what}: {new:?}");
            ranges.extend(new);
        }
        let mut store = (self.open)();
        let row = store.look(&self.key).unwrap().unwrap();
        assert!(row.text.contains("store 2 of 2 (b): its row is gone; `keymill repair` it"), "{}", row.text);
        let warnings = store.warnings_of(&self.key).unwrap();
        assert!(
            matches!(&warnings[..], [warning] if wordless::says(warning, "store 2 of 2 (b): its row is gone")),
            "{what}: {warnings:?}"
        );
        let mut request = seen(&self.request(100), row.mark.next);
        take(&mut store, &mut request, 3);
        let news = store.news();
        assert!(news.iter().any(|fault| fault.kind == FaultKind::WentBackwards), "{what}: {news:?}");
        store.repair(&self.key, Mark { period: 0, next: 100_000 }).unwrap();
        assert_eq!(store.warnings_of(&self.key).unwrap(), []);
        let after = take(&mut (self.open)(), &mut self.request(100), 40);
        assert!(after.iter().all(|(lo, _)| *lo >= 100_000), "{what}: {after:?}");
        assert!(after.iter().any(|(lo, _)| owner(*lo, 2) == 1), "{what}: the second store serves again");
        ranges.extend(after);
        println!("{what}: {} numbers, 0 twice", assert_disjoint(ranges));
    }
}

fn of_two(stores: [Box<dyn Store>; 2]) -> Interleaved {
    let _ = wordless::is_on();
    let stores = ["a", "b"].into_iter().zip(stores).map(|(name, store)| (name.to_owned(), store));
    Interleaved::new(stores.collect(), CHUNK)
}

fn of_memory(memory: &Arc<Memory>) -> Box<dyn Store> {
    Box::new(MemoryStore::new(Arc::clone(memory)))
}

/// A table of its own on a shared server.
fn table(scheme: Scheme) -> Arc<Key> {
    Arc::new(Key { table: unique("lost"), ..(*key(scheme, &unique("orders"))).clone() })
}

#[test]
fn a_row_deleted_in_memory_is_never_made_again() {
    for scheme in counters().chain([Scheme::Keymill]) {
        let [a, b] = memories();
        let key = key(scheme, "orders");
        Pair {
            key: Arc::clone(&key),
            open: &|| of_memories_ab(&a, &b),
            delete: &|| assert!(b.delete_row(&key)),
        }
        .a_deleted_row_is_never_made_again();
    }
}

fn of_memories_ab(a: &Arc<Memory>, b: &Arc<Memory>) -> Interleaved {
    of_two([of_memory(a), of_memory(b)])
}

#[test]
fn a_row_deleted_in_a_sqlite_file_is_never_made_again() {
    for scheme in counters() {
        let folder = tempfile::tempdir().unwrap();
        let key = key(scheme, "orders");
        let file = |name: &str| folder.path().join(name);
        let open = |file: &Path| -> Box<dyn Store> {
            Box::new(SqliteStore::new(file.to_owned(), sqlite::SqliteOptions::default()))
        };
        Pair {
            key: Arc::clone(&key),
            open: &|| of_two([open(&file("a.db")), open(&file("b.db"))]),
            delete: &|| {
                // The other library's locks do not matter here: no store is open.
                let connection = rusqlite::Connection::open(file("b.db")).unwrap();
                assert_eq!(connection.execute(&format!("DELETE FROM {}", key.table), []).unwrap(), 1);
            },
        }
        .a_deleted_row_is_never_made_again();
    }
}

#[test]
fn a_row_deleted_on_mariadb_is_never_made_again() {
    for scheme in counters().chain([Scheme::AutoIncrement, Scheme::Ticket]) {
        let key = table(scheme);
        let first = Memory::new();
        let other = mariadb::Private::start("");
        let of_first = || -> Box<dyn Store> {
            if scheme.is_ticket() {
                Box::new(mariadb::store(mariadb::options_of(&other.url())))
            } else {
                of_memory(&first)
            }
        };
        Pair {
            key: Arc::clone(&key),
            open: &|| of_two([of_first(), Box::new(mariadb::store(mariadb::options()))]),
            // As a restore or a clean-up does: the counter begins at 1 again too.
            delete: &|| mariadb::say(&format!("TRUNCATE TABLE `{}`", key.table)),
        }
        .a_deleted_row_is_never_made_again();
        mariadb::say(&format!("DROP TABLE `{}`", key.table));
    }
}

#[test]
fn a_row_deleted_on_postgresql_is_never_made_again() {
    for scheme in counters() {
        let key = table(scheme);
        let first = Memory::new();
        Pair {
            key: Arc::clone(&key),
            open: &|| of_two([of_memory(&first), Box::new(postgres::store(postgres::options()))]),
            delete: &|| {
                assert_eq!(postgres::Sql::shared().say(&format!("DELETE FROM \"{}\"", key.table)), 1);
            },
        }
        .a_deleted_row_is_never_made_again();
        postgres::Sql::shared().say(&format!("DROP TABLE \"{}\"", key.table));
    }
}

#[test]
fn a_sequence_that_was_dropped_and_created_again_gives_no_number() {
    let key = table(Scheme::Sequence);
    let other = postgres::Private::start("");
    let open = || {
        of_two([Box::new(postgres::store(other.options())), Box::new(postgres::store(postgres::options()))])
    };
    Pair {
        key: Arc::clone(&key),
        open: &open,
        delete: &|| {
            postgres::Sql::shared().say(&format!("DROP SEQUENCE \"{}\"", key.table));
            open().init(std::slice::from_ref(&key), false).unwrap();
        },
    }
    .a_deleted_row_is_never_made_again();
    postgres::Sql::shared().say(&format!("DROP SEQUENCE \"{}\"", key.table));
}

#[test]
fn a_row_deleted_before_its_store_gave_a_number_is_a_loss_as_well() {
    for scheme in counters() {
        let [a, b] = memories();
        let key = key(scheme, "orders");
        let first = of_memories(&[&a, &b], CHUNK).reserve(&keymill_tests::request(&key, 10)).unwrap();
        assert_eq!(owner(first.lo, 2), 0, "{scheme:?}: the first store gives the first numbers");
        assert_eq!(stands(&b, &key).map(|mark| mark.next), Some(1), "{scheme:?}: the row is there before");
        assert!(b.delete_row(&key));
        for _ in 0..8 {
            let range = of_memories(&[&a, &b], CHUNK).reserve(&keymill_tests::request(&key, 10)).unwrap();
            assert_eq!(owner(range.lo, 2), 0);
        }
        assert_eq!(stands(&b, &key), None);
    }
}

#[test]
fn a_row_deleted_under_a_mill_that_has_not_used_it_yet_is_not_made_again() {
    for scheme in counters() {
        for new in [true, false] {
            let [a, b] = memories();
            let key = key(scheme, "orders");
            // One process has numbers of both stores, another has begun and has none of the second store's.
            let mut used =
                take(&mut of_memories(&[&a, &b], CHUNK), &mut keymill_tests::request(&key, 100), 25);
            let mut store = of_memories(&[&a, &b], CHUNK);
            let mut request = keymill_tests::request(&key, 100);
            if !new {
                b.set_down(true);
                used.extend(take(&mut store, &mut request, 1));
                b.set_down(false);
            }
            assert!(b.delete_row(&key));
            used.extend(take(&mut store, &mut request, 40));
            assert_disjoint(used);
            assert_eq!(stands(&b, &key), None, "{scheme:?}");
        }
    }
}

#[test]
fn a_crash_at_any_step_of_the_beginning_blocks_no_process_and_repeats_no_number() {
    for scheme in counters().chain([Scheme::Keymill]) {
        for start in [1, 4001] {
            for after in 0..5 {
                for step in [Step::Lost, Step::Cut, Step::NotApplied] {
                    let all = memories::<3>();
                    let open = || of_memories(&[&all[0], &all[1], &all[2]], CHUNK);
                    let key = key(scheme, "orders");
                    let request = Request { start, ..keymill_tests::request(&key, 100) };
                    // The process ends at its n-th write to a store: later writes do not happen.
                    for memory in &all {
                        memory.script((0..after).map(|_| Step::Ack).chain([step.clone()]));
                    }
                    let mut ranges: Vec<(u64, u64)> =
                        open().reserve(&request).map(|got| (got.lo, got.hi)).into_iter().collect();
                    // The other processes run without a script.
                    for memory in &all {
                        memory.clear_script();
                    }
                    for _ in 0..4 {
                        ranges.extend(take(&mut open(), &mut request.clone(), 40));
                    }
                    assert!(ranges.iter().all(|(lo, _)| *lo >= start), "{scheme:?} {after} {step:?}");
                    let owners: std::collections::BTreeSet<u64> =
                        ranges.iter().map(|(lo, _)| owner(*lo, 3)).collect();
                    assert_eq!(owners.len(), 3, "{scheme:?} {start} {after} {step:?}: every store serves");
                    assert_disjoint(ranges);
                }
            }
        }
    }
}

#[test]
fn a_store_whose_row_was_never_made_by_an_older_keymill_is_left_out_until_it_is_repaired() {
    let [a, b] = memories();
    let key = key(Scheme::LeafAlloc, "orders");
    let mut ranges = take(&mut of_memories(&[&a, &b], CHUNK), &mut keymill_tests::request(&key, 100), 3);
    // Older versions made only the record, and the row with the first number.
    assert!(b.delete_row(&key));
    ranges.extend(take(&mut of_memories(&[&a, &b], CHUNK), &mut keymill_tests::request(&key, 100), 30));
    assert!(ranges.iter().all(|(lo, _)| owner(*lo, 2) == 0));
    let highest = ranges.iter().map(|(_, hi)| *hi).max().unwrap();
    let mut store = of_memories(&[&a, &b], CHUNK);
    store.repair(&key, Mark { period: 0, next: highest }).unwrap();
    ranges.extend(take(&mut store, &mut keymill_tests::request(&key, 100), 40));
    assert!(ranges.iter().any(|(lo, _)| owner(*lo, 2) == 1));
    assert_disjoint(ranges);
}

#[test]
fn a_store_that_fails_while_a_source_begins_is_not_taken_for_one_that_lost_its_row() {
    for scheme in super::shared() {
        for at in 0..2 {
            let all: [Arc<Memory>; 3] = memories();
            let stores = [&all[0], &all[1], &all[2]];
            let request = keymill_tests::request(&key(scheme, "orders"), 100);
            let late = &all[at + 1];
            late.script([Step::NotApplied]);
            of_memories(&stores, CHUNK).reserve(&request).expect_err("it failed meanwhile");
            late.set_down(true);
            let (mut store, clock) = at_hand(&stores);
            let refused = store.reserve(&request).expect_err("a new source needs every store");
            assert_eq!(refused.kind, FaultKind::Unavailable, "{refused}");
            late.set_down(false);
            clock.advance(PAUSE_MS);
            let mut request = request;
            let ranges = take(&mut store, &mut request, 40);
            assert!(ranges.iter().any(|(lo, _)| owner(*lo, 3) == at as u64 + 1), "it serves: {ranges:?}");
            assert!(store.warnings_of(&request.key).expect("an answer").is_empty());
        }
    }
}

#[test]
fn a_deleted_row_is_not_made_again_by_a_process_with_a_higher_start() {
    for start in [CHUNK, CHUNK + 1, CHUNK + 200, CHUNK + 500] {
        for scheme in [Scheme::Keymill].into_iter().chain(counters().take(1)) {
            let [a, b] = memories();
            let key = key(scheme, "orders");
            let request = keymill_tests::request(&key, 100);
            let mut ranges = take(&mut of_memories(&[&a, &b], CHUNK), &mut request.clone(), 3);
            // The second store gives numbers while the first is away.
            a.set_down(true);
            ranges.extend(take(&mut of_memories(&[&a, &b], CHUNK), &mut request.clone(), 6));
            a.set_down(false);
            assert!(b.delete_row(&key));
            let higher = Request { start, ..request };
            // Each process begins with a store drawn at random.
            for _ in 0..6 {
                ranges.extend(take(&mut of_memories(&[&a, &b], CHUNK), &mut higher.clone(), 1));
            }
            assert_disjoint(ranges);
        }
    }
}
