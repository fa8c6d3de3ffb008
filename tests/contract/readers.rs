//! Readers of route tables: what every store promises about them, proved against the real thing.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keymill::store::{KeepReader, Key, OwnReader, Reader, Store, StoreIndex};

use keymill_tests::{in_time, redis as redis_server};

use crate::bench::{Bench, Kind, Place, unique};

const LEASE_MS: u64 = 600_000;

/// A table of readers of its own, with its store.
struct Readers {
    bench: Bench,
    key: Arc<Key>,
}

impl Readers {
    fn new(bench: Bench) -> Readers {
        let key = Arc::new(Key { table: unique("readers"), ..Key::of_readers("shop 'orders' %") });
        let readers = Readers { bench, key };
        readers.open().init(std::slice::from_ref(&readers.key), false).expect("the table");
        readers
    }

    fn open(&self) -> Box<dyn Store> {
        self.bench.open()
    }

    fn listed(&self) -> Vec<Reader> {
        self.open().readers(&self.key).expect("the store answers").all
    }

    fn versions(&self) -> Vec<u64> {
        let mut versions: Vec<_> = self.listed().iter().map(|reader| reader.version).collect();
        versions.sort_unstable();
        versions
    }
}

fn keep(version: u64, lease_ms: u64) -> KeepReader {
    KeepReader { version, lease_ms, owner: "a 'host' %:7".into(), store: StoreIndex::ONLY }
}

fn a_reader_is_listed_with_the_version_that_it_wrote_last(readers: &Readers) {
    let (mut store, key, mut own) = (readers.open(), &readers.key, OwnReader::default());
    assert_eq!(readers.listed(), []);
    store.keep_reader(key, &mut own, &keep(3, LEASE_MS)).expect("kept");
    let first = readers.listed();
    assert_eq!((first.len(), first[0].version, first[0].owner.as_str()), (1, 3, "a 'host' %:7"));
    assert!(first[0].is_living() && first[0].left_ms <= LEASE_MS as i64, "{first:?}");
    // The same process with a new connection.
    readers.open().keep_reader(key, &mut own, &keep(4, 2 * LEASE_MS)).expect("kept");
    let second = readers.listed();
    assert_eq!((second.len(), second[0].version, second[0].member), (1, 4, first[0].member));
    assert!(second[0].left_ms > LEASE_MS as i64, "{second:?}");
    let other = Key { table: key.table.clone(), ..Key::of_readers("another") };
    assert_eq!(store.readers(&other).expect("the store answers").all, []);
}

fn a_host_whose_name_reads_like_a_place_among_stores_has_one_store(readers: &Readers) {
    let (mut store, key) = (readers.open(), &readers.key);
    let owner = "host store 2 of 3";
    let named = KeepReader { owner: owner.into(), ..keep(3, LEASE_MS) };
    store.keep_reader(key, &mut OwnReader::default(), &named).expect("kept");
    assert_eq!(readers.listed()[0].owner, owner);
    store.keep_reader(key, &mut OwnReader::default(), &keep(3, LEASE_MS)).expect("both have one store");
    let of_three = KeepReader { store: StoreIndex { stores: 3, index: 1 }, ..keep(3, LEASE_MS) };
    let refused = store.keep_reader(key, &mut OwnReader::default(), &of_three).expect_err("others have one");
    assert!(
        refused.to_string().contains("whose mill has one store, and this mill has 3 stores"),
        "{refused}"
    );
}

fn a_reader_that_ends_is_gone(readers: &Readers) {
    let (mut store, key) = (readers.open(), &readers.key);
    let (mut own, mut other) = (OwnReader::default(), OwnReader::default());
    store.remove_reader(key, &own).expect("there is nothing to remove");
    for own in [&mut own, &mut other] {
        store.keep_reader(key, own, &keep(3, LEASE_MS)).expect("kept");
    }
    assert_eq!(readers.versions(), [3, 3]);
    for _ in 0..2 {
        store.remove_reader(key, &own).expect("removed");
        assert_eq!(readers.versions(), [3]);
    }
    // A removed process that goes on has a row again.
    store.keep_reader(key, &mut own, &keep(4, LEASE_MS)).expect("kept");
    assert_eq!(readers.versions(), [3, 4]);
}

fn a_copy_of_a_process_gets_a_row_of_its_own(readers: &Readers) {
    let (mut store, key, mut own) = (readers.open(), &readers.key, OwnReader::default());
    store.keep_reader(key, &mut own, &keep(3, LEASE_MS)).expect("kept");
    let mut copy = own.clone();
    store.keep_reader(key, &mut own, &keep(4, LEASE_MS)).expect("kept");
    readers.open().keep_reader(key, &mut copy, &keep(3, LEASE_MS)).expect("kept");
    assert_eq!(readers.versions(), [3, 4], "the copy has not followed");
    store.remove_reader(key, &own).expect("removed");
    assert_eq!(readers.versions(), [3]);
}

fn a_row_that_is_not_renewed_ends_and_stays_until_it_is_forgotten(readers: &Readers) {
    let (mut store, key) = (readers.open(), &readers.key);
    let (mut ended, mut living) = (OwnReader::default(), OwnReader::default());
    store.keep_reader(key, &mut living, &keep(4, LEASE_MS)).expect("kept");
    store.keep_reader(key, &mut ended, &keep(3, 1)).expect("kept");
    let all = || {
        let mut all = readers.listed();
        all.sort_by_key(|reader| reader.version);
        all
    };
    let until = Instant::now() + Duration::from_secs(120);
    while all()[0].is_living() {
        assert!(Instant::now() < until, "the row does not end: {:?}", all());
    }
    let members: Vec<_> = all().iter().map(|reader| reader.member).collect();
    assert_eq!(store.forget_readers(key, &[members[1], 1]), Ok(vec![]), "the one lives, the other is none");
    assert_eq!(store.forget_readers(key, &members), Ok(vec![members[0]]));
    assert_eq!(readers.versions(), [4]);
    store.keep_reader(key, &mut ended, &keep(5, LEASE_MS)).expect("it runs after all");
    assert_eq!(readers.versions(), [4, 5]);
}

fn a_row_that_ended_a_week_ago_counts_no_longer(readers: &Readers) {
    if matches!(readers.bench.place, Place::Memory(_) | Place::Redis) {
        return;
    }
    let (mut store, key) = (readers.open(), &readers.key);
    let [mut old, mut younger] = [OwnReader::default(), OwnReader::default()];
    store.keep_reader(key, &mut old, &keep(3, LEASE_MS)).expect("kept");
    store.keep_reader(key, &mut younger, &keep(4, LEASE_MS)).expect("kept");
    for (version, days) in [(3, 8), (4, 6)] {
        let ended = format!(
            "UPDATE {} SET ends_at = ends_at - {} WHERE pool = '{}' AND mark = {version}",
            key.table,
            u64::from(days * 86_400_u32) * 1000,
            key.name.replace('\'', "''")
        );
        assert_eq!(readers.bench.tamper(&ended, &[]), 1);
    }
    assert_eq!(readers.versions(), [4]);
}

fn of_sixteen_processes_that_begin_at_once_each_has_a_row(readers: &Readers) {
    let barrier = Barrier::new(16);
    std::thread::scope(|scope| {
        for version in 1..=16 {
            let (barrier, mut store) = (&barrier, readers.open());
            scope.spawn(move || {
                let mut own = OwnReader::default();
                barrier.wait();
                for _ in 0..3 {
                    in_time(|| store.keep_reader(&readers.key, &mut own, &keep(version, LEASE_MS)))
                        .expect("kept");
                }
            });
        }
    });
    assert_eq!(readers.versions(), (1..=16).collect::<Vec<_>>());
}

/// Rows of a login that may write the table and is no reader: of no state, of no place among stores, a slot that is the pool's.
fn plant(readers: &Readers) {
    let key = &readers.key;
    if matches!(readers.bench.place, Place::Redis) {
        let mut server = redis_server::connection_of(&redis_server::url());
        let at = format!("{}:{}", key.table, key.name);
        for [field, kept] in [
            ["77", "x"],
            ["077", "1 2 3 leased 1 1 a b"],
            ["+77", "1 2 3 leased 1 1 a b"],
            ["78", "1 2 3 lent 0 0 a b"],
            ["no slot", "x"],
            ["floor", "x"],
            ["layout", "x"],
            ["record", "x"],
        ] {
            let _: u64 = redis_server::say(&mut server, &["HSET", &at, field, kept]);
        }
        return;
    }
    let name = key.name.replace('\'', "''");
    // A row that ended days ago goes with the next process that begins.
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis() - 10_000;
    let long = "x".repeat(if matches!(readers.bench.place, Place::Postgres) { 5 << 20 } else { 200 });
    for [slot, state, stores, store] in [
        ["77", "lent", "1", "1"],
        ["78", "leased", "0", "7"],
        ["79", "pool", "1", "1"],
        ["9000000000000000000", "leased", "1", "1"],
    ] {
        let sql = format!(
            "INSERT INTO {} (pool, slot, token, mark, ends_at, state, source, process, layout, stores, store) \
             VALUES ('{name}', {slot}, 1, 0, {ended}, '{state}', '', '{long}', '', {stores}, {store})",
            key.table
        );
        assert_eq!(readers.bench.tamper(&sql, &[]), 1);
    }
    // The columns of MariaDB have no sign. No process writes a negative number.
    if matches!(readers.bench.place, Place::MariaDb | Place::TiDb(_)) {
        return;
    }
    for (at, numbers) in ["-1, 1, 0, 9", "80, -1, 0, 9", "81, 1, -1, 9", "82, 1, 0, -1"].iter().enumerate() {
        let sql = format!(
            "INSERT INTO {} (pool, slot, token, mark, ends_at, state, source, process, layout, stores, store) \
             VALUES ('{name}', {numbers}, 'leased', '', 'negative {at}', '', 1, 1)",
            key.table
        );
        assert_eq!(readers.bench.tamper(&sql, &[]), 1);
    }
    let record =
        format!("UPDATE {} SET token = -1, mark = -1 WHERE pool = '{name}' AND layout <> ''", key.table);
    assert_eq!(readers.bench.tamper(&record, &[]), 1);
}

fn a_row_that_no_process_wrote_stops_no_reader_and_is_listed(readers: &Readers) {
    if matches!(readers.bench.place, Place::Memory(_)) {
        return;
    }
    let (mut store, key, mut own) = (readers.open(), &readers.key, OwnReader::default());
    store.keep_reader(key, &mut own, &keep(4, LEASE_MS)).expect("kept");
    plant(readers);
    store.keep_reader(key, &mut own, &keep(5, LEASE_MS)).expect("it is renewed beside them");
    readers.open().keep_reader(key, &mut OwnReader::default(), &keep(6, LEASE_MS)).expect("a new process");
    let listed = readers.listed();
    for member in [77, 78] {
        let planted =
            listed.iter().find(|reader| reader.member == member).expect("a step waits for it, and names it");
        assert!(!planted.is_living() && planted.owner.len() < 1_000, "{}", planted.owner.len());
    }
    let mut living: Vec<u64> =
        listed.iter().filter(|reader| reader.is_living()).map(|reader| reader.version).collect();
    living.sort_unstable();
    assert_eq!(living, [5, 6]);
    // What is listed can be deleted as the page says, and is not listed again.
    assert_eq!(readers.open().forget_readers(key, &[77, 78]).expect("they are deleted"), [77, 78]);
    assert!(readers.listed().iter().all(|reader| ![77, 78].contains(&reader.member)));
}

/// A login that follows tables may write any number of rows.
fn more_rows_than_are_read_stop_no_reader_and_are_named_with_what_deletes_them(readers: &Readers) {
    if matches!(readers.bench.place, Place::Memory(_) | Place::Redis) {
        return;
    }
    let (mut store, key, mut own) = (readers.open(), &readers.key, OwnReader::default());
    store.keep_reader(key, &mut own, &keep(4, LEASE_MS)).expect("kept");
    let name = key.name.replace('\'', "''");
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_millis() - 60_000;
    for part in 0..21 {
        let rows = (0..1_000).map(|row| {
            format!(
                "('{name}', {}, 1, 0, {ended}, 'leased', '', 'planted', '', 1, 1)",
                1_000_000 + part * 1_000 + row
            )
        });
        let sql = format!(
            "INSERT INTO {} (pool, slot, token, mark, ends_at, state, source, process, layout, stores, store) VALUES {}",
            key.table,
            rows.collect::<Vec<_>>().join(", ")
        );
        assert_eq!(readers.bench.tamper(&sql, &[]), 1_000);
    }
    store.keep_reader(key, &mut own, &keep(5, LEASE_MS)).expect("it is renewed beside them");
    let highest =
        readers.open().keep_reader(key, &mut OwnReader::default(), &keep(6, LEASE_MS)).expect("a new one");
    assert_eq!(highest, 5, "the living ones are read first");
    let fault = readers.open().readers(key).expect_err("no step knows which processes they are");
    let message = fault.to_string();
    let (_, statement) = message.split_once(": `").expect("a statement");
    let statement = statement.trim_end_matches('`');
    assert!(readers.bench.tamper(statement, &[]) >= 21_000, "{statement}");
    assert_eq!(readers.versions(), [5, 6]);
}

/// Defines each function as a test for each store.
macro_rules! readers {
    ($($name:ident)*) => {
        readers!(@ memory, Bench::memory(Kind::Segment), $($name)*);
        readers!(@ sqlite, Bench::sqlite(Kind::Segment), $($name)*);
        readers!(@ mariadb, Bench::mariadb(Kind::Segment), $($name)*);
        readers!(@ tidb, Bench::tidb(Kind::Segment), $($name)*);
        readers!(@ postgres, Bench::postgres(Kind::Segment), $($name)*);
        readers!(@ redis, Bench::redis(Kind::Segment), $($name)*);
    };
    (@ $module:ident, $bench:expr, $($name:ident)*) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $name() {
                    super::$name(&Readers::new($bench))
                }
            )*
        }
    };
}

readers! {
    a_reader_is_listed_with_the_version_that_it_wrote_last
    a_host_whose_name_reads_like_a_place_among_stores_has_one_store
    a_reader_that_ends_is_gone
    a_copy_of_a_process_gets_a_row_of_its_own
    a_row_that_is_not_renewed_ends_and_stays_until_it_is_forgotten
    a_row_that_ended_a_week_ago_counts_no_longer
    of_sixteen_processes_that_begin_at_once_each_has_a_row
    a_row_that_no_process_wrote_stops_no_reader_and_is_listed
    more_rows_than_are_read_stop_no_reader_and_are_named_with_what_deletes_them
}

/// The statement that the page has for a reader whose row ends too late.
fn a_row_is_deleted_by_the_statement_of_the_page(bench: Bench) {
    let page = include_str!("../../docs/moving-a-shard.md");
    let statement = page.split("delete its row: `").nth(1).and_then(|rest| rest.split('`').next());
    let readers = Readers::new(bench);
    let (mut store, key) = (readers.open(), &readers.key);
    let (mut gone, mut stays) = (OwnReader::default(), OwnReader::default());
    store.keep_reader(key, &mut stays, &keep(4, LEASE_MS)).expect("kept");
    store.keep_reader(key, &mut gone, &keep(3, LEASE_MS)).expect("kept");
    let member = readers.listed().iter().find(|reader| reader.version == 3).expect("listed").member;
    let sql = statement
        .expect("it is on the page")
        .replace("keymill_reader", &key.table)
        .replace("orders", &key.name.replace('\'', "''"))
        .replace("= N", &format!("= {member}"));
    assert_eq!(readers.bench.tamper(&sql, &[]), 1, "{sql}");
    assert_eq!(readers.versions(), [4]);
}

#[test]
fn a_row_is_deleted_by_the_statement_of_the_page_on_mariadb() {
    a_row_is_deleted_by_the_statement_of_the_page(Bench::mariadb(Kind::Segment));
}

#[test]
fn a_row_is_deleted_by_the_statement_of_the_page_on_postgresql() {
    a_row_is_deleted_by_the_statement_of_the_page(Bench::postgres(Kind::Segment));
}

#[test]
fn a_row_is_deleted_by_the_statement_of_the_page_on_sqlite() {
    a_row_is_deleted_by_the_statement_of_the_page(Bench::sqlite(Kind::Segment));
}
