//! Banks of counters: what every store promises about many rows at once, proved against the real thing.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use keymill::simulation::counter_key;
use keymill::store::{
    BankSpec, Fault, FaultKind, GiveBack, Key, MAX_NUMBER, Mark, Request, Reserved, RowMark, RowState,
    RowStatus, Store,
};
use keymill::{Code, EventKind, Mill};
use keymill_tests::ci::patient;
use keymill_tests::takers::until;
use keymill_tests::{assert_disjoint, in_time};
use mysql::prelude::Queryable;

use crate::bench::{Bench, Kind, Place, unique};

/// How many counters go into one batch here.
const MANY: u32 = 300;

pub(crate) fn key(bench: &Bench) -> Arc<Key> {
    Arc::new(Key::bank(&bench.table, &unique("bank")))
}

fn request(bank: &Key, index: u32, len: u64, seen: u64) -> Request {
    Request {
        high_water: Mark { period: 0, next: seen },
        ..Request::new(&counter_key(bank, 65_536, index), len)
    }
}

fn all(answers: Vec<Result<Reserved, Fault>>) -> Vec<Reserved> {
    answers.into_iter().map(|answer| answer.expect("a range")).collect()
}

fn next_of(store: &mut dyn Store, bank: &Key, index: u32) -> Option<u64> {
    store.look(&counter_key(bank, 65_536, index)).expect("the store answers").map(|row| row.mark.next)
}

fn missing_rows_are_made_and_the_others_go_on(bench: &Bench) {
    let (bank, mut store) = (key(bench), bench.open());
    let odd: Vec<_> = (0..MANY).step_by(2).map(|index| request(&bank, index, 16, 0)).collect();
    assert!(all(store.reserve_counters(&odd)).iter().all(|range| (range.lo, range.hi) == (1, 17)));
    // Steps of many lengths, for rows that exist and for some that do not.
    let len = |index: u32| 16 + u64::from(index % 40);
    let every: Vec<_> = (0..MANY).map(|index| request(&bank, index, len(index), 0)).collect();
    for (index, range) in (0..).zip(all(store.reserve_counters(&every))) {
        let lo = if index % 2 == 0 { 17 } else { 1 };
        assert_eq!((range.lo, range.hi), (lo, lo + len(index)), "counter {index}");
        assert_eq!(next_of(&mut *store, &bank, index), Some(lo + len(index)));
    }
    let keys: Vec<_> = (0..=MANY).map(|index| counter_key(&bank, 65_536, index)).collect();
    let rows = store.look_rows(&keys).expect("the store answers");
    assert_eq!((rows[0], rows[1]), (Some(RowMark::open(None, 33)), Some(RowMark::open(None, 18))));
    assert_eq!(rows[MANY as usize], None, "reading makes no row");
}

fn a_row_that_went_backwards_is_refused_and_its_neighbours_are_served(bench: &Bench) {
    let (bank, mut store) = (key(bench), bench.open());
    let first: Vec<_> = (0..20).map(|index| request(&bank, index, 16, 0)).collect();
    all(store.reserve_counters(&first));
    let again: Vec<_> = (0..21)
        .map(|index| match index {
            // It stands below, and it is gone.
            3 | 20 => request(&bank, index, 16, 900),
            _ => request(&bank, index, 16, 17),
        })
        .collect();
    for (index, answer) in (0..).zip(store.reserve_counters(&again)) {
        match index {
            3 | 20 => assert_eq!(answer.expect_err("it went backwards").kind, FaultKind::WentBackwards),
            _ => assert_eq!(answer.map(|range| (range.lo, range.hi)), Ok((17, 33)), "counter {index}"),
        }
    }
    assert_eq!(next_of(&mut *store, &bank, 3), Some(17), "it is left as it is");
    assert_eq!(next_of(&mut *store, &bank, 20), None, "it is not made again");
}

fn the_last_numbers_are_given_and_then_the_counter_is_exhausted(bench: &Bench) {
    let (bank, mut store) = (key(bench), bench.open());
    let near: Vec<_> =
        (0..3).map(|index| Request { start: MAX_NUMBER - 5, ..request(&bank, index, 4, 0) }).collect();
    all(store.reserve_counters(&near));
    // The other two have more than is left.
    let rest: Vec<_> = (0..3).map(|index| request(&bank, index, if index == 0 { 1 } else { 9 }, 0)).collect();
    let ranges = all(store.reserve_counters(&rest));
    assert_eq!(ranges[0].hi, MAX_NUMBER);
    assert_eq!((ranges[1].lo, ranges[1].hi, ranges[2].hi), (MAX_NUMBER - 1, 1 << 63, 1 << 63));
    let answers = store.reserve_counters(&rest);
    assert_eq!(answers[0].as_ref().map(|range| range.lo), Ok(MAX_NUMBER));
    for answer in &answers[1..] {
        assert_eq!(answer.as_ref().expect_err("none is left").kind, FaultKind::Exhausted);
    }
}

fn what_was_not_used_is_given_back_where_the_row_still_ends_there(bench: &Bench) {
    let (bank, mut store) = (key(bench), bench.open());
    let requests: Vec<_> = (0..MANY).map(|index| request(&bank, index, 1_000, 0)).collect();
    all(store.reserve_counters(&requests));
    // Another process has reserved from every fifth one since.
    let others: Vec<_> = (0..MANY).step_by(5).map(|index| request(&bank, index, 7, 0)).collect();
    all(store.reserve_counters(&others));
    let unused = |index: u32| if index < 100 { 17 } else { 10 + u64::from(index) };
    let ranges: Vec<_> = (0..MANY)
        .map(|index| GiveBack {
            key: counter_key(&bank, 65_536, index),
            period: 0,
            lo: unused(index),
            hi: 1_001,
            writer: 0,
        })
        .collect();
    let given = store.give_back_counters(&ranges).expect("the store answers");
    for (index, given) in (0..).zip(given) {
        assert_eq!(given, index % 5 != 0, "counter {index}");
        let next = if given { unused(index) } else { 1_008 };
        assert_eq!(next_of(&mut *store, &bank, index), Some(next), "counter {index}");
    }
}

fn delete_row(bench: &Bench, key: &Key) {
    match &bench.place {
        Place::Memory(memory) => assert!(memory.delete_row(key)),
        Place::Redis => {
            let mut connection = keymill_tests::redis::connection_of(&keymill_tests::redis::url());
            let deleted: u64 =
                keymill_tests::redis::say(&mut connection, &["DEL", &format!("{}:{}", key.table, key.name)]);
            assert_eq!(deleted, 1);
        }
        _ => assert_eq!(bench.tamper("DELETE FROM {t} WHERE name = ?", &[&key.name]), 1),
    }
}

fn counters_that_were_begun_anew_or_repaired_take_nothing_back_from_before(bench: &Bench) {
    const COUNTERS: u32 = 64;
    let (bank, mut store) = (key(bench), bench.open());
    let spec = BankSpec { counters: COUNTERS, is_named: true, wide: false };
    store.open_bank(&bank, spec).expect("recorded");
    let counter = |index| counter_key(&bank, COUNTERS, index);
    let ask = |index, writer| Request { writer, ..Request::new(&counter(index), 100) };
    let rest = |index, writer, lo| GiveBack { writer, ..GiveBack::new(&counter(index), 0, lo, 101) };
    let stands = |store: &mut dyn Store, index| {
        store.look(&counter(index)).expect("the store answers").map_or(0, |row| row.mark.next)
    };
    let indexes = 0..COUNTERS;
    let requests: Vec<_> = indexes.clone().map(|index| ask(index, 7)).collect();
    all(store.reserve_counters(&requests));
    // Every second one is deleted, and begun anew by another mill.
    let anew: Vec<_> = indexes.clone().step_by(2).map(|index| ask(index, 8)).collect();
    for request in &anew {
        delete_row(bench, &request.key);
    }
    assert!(all(store.reserve_counters(&anew)).iter().all(|range| (range.lo, range.hi) == (1, 101)));
    let rests: Vec<_> = indexes.clone().map(|index| rest(index, 7, 41)).collect();
    let given = store.give_back_counters(&rests).expect("the store answers");
    for (index, given) in indexes.clone().zip(given) {
        assert_eq!(given, index % 2 == 1, "counter {index}");
        let next = if given { 41 } else { 101 };
        assert_eq!(stands(&mut *store, index), next, "counter {index}");
    }
    store.repair_bank(&bank, spec, 50, false).expect("raised");
    let rests: Vec<_> =
        anew.iter().map(|request| GiveBack { key: Arc::clone(&request.key), ..rest(0, 8, 30) }).collect();
    assert_eq!(store.give_back_counters(&rests), Ok(vec![false; rests.len()]), "the operator wrote 50");
}

fn processes_that_reserve_from_the_same_counters_at_once_share_no_number(bench: &Bench) {
    let bank = key(bench);
    let (processes, rounds) = (4, 6);
    let barrier = Barrier::new(processes);
    let taken: Vec<(u32, u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processes)
            .map(|_| {
                scope.spawn(|| {
                    let mut store = bench.open();
                    let mut taken = Vec::new();
                    let mut seen = vec![0; MANY as usize];
                    barrier.wait();
                    for _ in 0..rounds {
                        let requests: Vec<_> =
                            (0..MANY).map(|index| request(&bank, index, 16, seen[index as usize])).collect();
                        for (index, answer) in (0..).zip(store.reserve_counters(&requests)) {
                            match answer {
                                Ok(range) => {
                                    assert!(range.lo >= seen[index as usize]);
                                    seen[index as usize] = range.hi;
                                    taken.push((index, range.lo, range.hi));
                                }
                                // Another process was faster: such a counter is asked for again.
                                Err(fault) => assert_eq!(fault.kind, FaultKind::Conflict, "{fault}"),
                            }
                        }
                    }
                    taken
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a process")).collect()
    });
    let ranges = |index| {
        taken
            .iter()
            .filter(move |(counter, ..)| *counter == index)
            .map(|(_, lo, hi)| (*lo, *hi))
            .collect::<Vec<_>>()
    };
    assert!(taken.len() >= MANY as usize * rounds, "{} ranges", taken.len());
    for index in 0..MANY {
        assert_disjoint(ranges(index));
    }
}

fn a_bank_is_recorded_once_and_another_number_of_counters_is_refused(bench: &Bench) {
    let bank = key(bench);
    let barrier = Barrier::new(8);
    let won: Vec<u32> = std::thread::scope(|scope| {
        let open = |bits: u32| {
            let (bank, barrier) = (&bank, &barrier);
            move || {
                let mut store = bench.open();
                barrier.wait();
                let opened = in_time(|| store.open_bank(bank, with(1 << bits)));
                opened
                    .map(|open| assert_eq!((open.counters, open.floor), (1 << bits, 0)))
                    .is_ok()
                    .then_some(bits)
            }
        };
        let threads: Vec<_> = (0..8).map(|n| scope.spawn(open(n % 2))).collect();
        threads.into_iter().filter_map(|thread| thread.join().expect("a process")).collect()
    });
    assert_eq!(won.len(), 4, "all of one C, and none of the other: {won:?}");
    assert!(won.iter().all(|bits| bits == &won[0]));
    let refused = bench.open().open_bank(&bank, with(1 << (1 - won[0]))).expect_err("another C");
    assert_eq!(refused.kind, FaultKind::Refused);
    assert!(refused.to_string().contains(&format!("counters={}", 1 << won[0])), "{refused}");
    let unnamed = BankSpec { is_named: false, ..with(1 << (1 - won[0])) };
    let opened = bench.open().open_bank(&bank, unnamed).expect("the recorded C");
    assert_eq!(opened.counters, 1 << won[0], "a source that names no C has the recorded one");
}

/// Its process has read the row and knows where it stood. The reservation itself compares the row's state, in the store, alone and in a
/// batch; and so does what gives numbers back.
fn a_counter_that_was_closed_meanwhile_gives_nothing(bench: &Bench) {
    let (bank, mut store) = (key(bench), bench.open());
    store.open_bank(&bank, with(4)).expect("the bank");
    let ask = |index, seen| Request {
        high_water: Mark { period: 0, next: seen },
        ..Request::new(&counter_key(&bank, 4, index), 16)
    };
    let first: Vec<_> = all(store.reserve_counters(&[0, 1, 2].map(|index| ask(index, 0))));
    assert_eq!(all(store.reserve_counters(&[ask(0, 17)]))[0].lo, 17, "alone, as a reservation in use");
    bench.open().change_counters(&bank, 8, false).expect("closed");
    let rows = |store: &mut dyn Store| [0, 1, 2, 3].map(|index| store.look(&counter_key(&bank, 4, index)));
    let before = rows(&mut *store);
    for row in &before {
        let row = row
            .as_ref()
            .expect("an answer")
            .as_ref()
            .expect("a row, also of the counter that was never used");
        assert_eq!(row.status, RowStatus { state: RowState::Closed, partition: None });
    }
    let late = [ask(0, 33), ask(1, 17), ask(2, 0), ask(3, 0)];
    for answer in late.iter().flat_map(|one| store.reserve_counters(std::slice::from_ref(one))) {
        assert_eq!(answer.expect_err("it was closed").kind, FaultKind::Closed);
    }
    for answer in late.iter().map(|one| store.reserve(one)) {
        assert_eq!(answer.expect_err("it was closed").kind, FaultKind::Closed);
    }
    for answer in store.reserve_counters(&late) {
        assert_eq!(answer.expect_err("it was closed").kind, FaultKind::Closed);
    }
    let unused =
        GiveBack { key: counter_key(&bank, 4, 1), period: 0, lo: first[1].lo, hi: first[1].hi, writer: 0 };
    assert_eq!(store.give_back_counters(std::slice::from_ref(&unused)), Ok(vec![false]));
    assert_eq!(store.give_back(&unused), Ok(false));
    assert_eq!(rows(&mut *store), before, "nothing was changed");
}

fn with(counters: u32) -> BankSpec {
    BankSpec { counters, is_named: true, wide: false }
}

/// Where a mill finds the store of a bench; `None`: it is this process's memory.
pub(crate) fn url(bench: &Bench) -> Option<String> {
    Some(patient(&match &bench.place {
        Place::Memory(_) => return None,
        Place::Sqlite(path, _) => format!("sqlite:{}", path.display()),
        Place::MariaDb => keymill_tests::mariadb::url(),
        Place::TiDb(url) => url.clone(),
        Place::Postgres => keymill_tests::postgres::url(),
        Place::Redis => keymill_tests::redis::url(),
    }))
}

fn every_counter_of_the_largest_bank_gives_its_first_id_and_gives_back_the_rest(bench: &Bench) {
    let Some(url) = url(bench) else { return };
    let spec = format!("business:{}?counters=65536&deadline=60s&table={}", unique("big"), bench.table);
    for round in 1..=2 {
        let mill = Mill::open(&url).expect("a mill");
        let bank = mill.source(&spec).expect("a bank");
        let genes = || (0..=u16::MAX).map(keymill::Gene::from);
        let began = Instant::now();
        let mut lacking: Vec<_> = genes().collect();
        while !lacking.is_empty() {
            lacking.retain(|gene| match bank.try_next_of(*gene) {
                Ok(id) => {
                    // On a busy machine an answer may come too late, and a close gives back for a few seconds only: then the
                    // counter goes on behind the step that was lost.
                    let number = bank.parse(id).expect("an id").number.expect("a number");
                    assert!(number == round || number > round && number % 16 == 1, "{gene}: {number}");
                    false
                }
                Err(error) => {
                    assert_eq!(error.code, Code::NotReady, "{error}");
                    true
                }
            });
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let first = began.elapsed();
        let trips = mill.latency().trips;
        assert!(trips <= 1_100, "{trips} conversations with the store");
        let began = Instant::now();
        mill.close();
        println!("{round}: first ids {first:?} in {trips} conversations, close {:?}", began.elapsed());
    }
}

/// Runs statements in one session of a bench's database.
fn session(bench: &Bench) -> Box<dyn FnMut(&str)> {
    match bench.place {
        Place::Postgres => {
            let sql = keymill_tests::postgres::Sql::shared();
            Box::new(move |statement| drop(sql.try_say(statement).expect("a statement")))
        }
        _ => {
            let mut connection = keymill_tests::mariadb::connection();
            Box::new(move |statement| connection.query_drop(statement).expect("a statement"))
        }
    }
}

/// Whether a session waits for a lock in a statement that names the bank; in PostgreSQL, whose statements name its rows in values, its
/// table.
fn is_held_up(bench: &Bench, bank: &Key) -> bool {
    if let Place::Postgres = bench.place {
        let waits = "FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query";
        let found = keymill_tests::postgres::Sql::shared()
            .rows(&format!("SELECT 1 {waits} LIKE '%{}%'", bench.table));
        return !found.is_empty();
    }
    let found: Option<u64> = keymill_tests::mariadb::connection()
        .query_first(format!(
            "SELECT 1 FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND INFO LIKE '%{}%' LIMIT 1",
            bank.name
        ))
        .expect("the processes");
    found.is_some()
}

/// Another process makes rows in the order of their names, as every process does: neither waits for the other in a circle. The rows
/// that it was faster to make fail none of the others, and the batch does not begin again.
fn rows_are_made_in_one_order_and_a_lost_one_fails_no_other(bench: &Bench) {
    let (bank, mut store) = (key(bench), bench.open());
    let mut requests: Vec<_> = (0..MANY).map(|index| request(&bank, index, 16, 0)).collect();
    // The last name comes first.
    requests.sort_by(|a, b| b.key.name.cmp(&a.key.name));
    let (last, first) = (requests[0].key.name.clone(), requests[requests.len() - 1].key.name.clone());
    let mut other = session(bench);
    let make =
        |name: &str| format!("INSERT INTO {} (name, date, next) VALUES ('{name}', 0, 500)", bench.table);
    other("BEGIN");
    other(&make(&first));
    let answers = std::thread::scope(|scope| {
        let reserved = scope.spawn(|| store.reserve_counters(&requests));
        until("the batch waits", Duration::from_secs(60), || is_held_up(bench, &bank));
        other(&make(&last));
        other("COMMIT");
        reserved.join().expect("it does not panic")
    });
    let mut lost = Vec::new();
    for (request, answer) in requests.iter().zip(answers) {
        let is_theirs = [&first, &last].contains(&&request.key.name);
        match answer {
            Ok(range) => assert_eq!(range.lo, if is_theirs { 500 } else { 1 }, "{}", request.key.name),
            Err(fault) => {
                assert!(is_theirs && fault.kind == FaultKind::Conflict, "{fault}");
                lost.push(request.clone());
            }
        }
    }
    // MariaDB waits for rows that are being made when it reads them, PostgreSQL when it makes them.
    assert_eq!(lost.len(), if matches!(bench.place, Place::Postgres) { 2 } else { 0 });
    assert!(all(store.reserve_counters(&lost)).iter().all(|range| (range.lo, range.hi) == (500, 516)));
}

#[test]
fn on_mariadb_rows_are_made_in_one_order_and_a_lost_one_fails_no_other() {
    rows_are_made_in_one_order_and_a_lost_one_fails_no_other(&Bench::mariadb(Kind::Segment));
}

#[test]
fn on_postgres_rows_are_made_in_one_order_and_a_lost_one_fails_no_other() {
    rows_are_made_in_one_order_and_a_lost_one_fails_no_other(&Bench::postgres(Kind::Segment));
}

/// Processes that move the same few rows all the time, on a server that is well: every call gets its id, and nothing is taken for a
/// failure.
fn mills_that_use_the_same_counters_meet_no_failure(bench: &Bench) {
    let Some(url) = url(bench) else { return };
    let spec = format!(
        "business:{}?counters=16&min_step=1&max_step=1&deadline=100s&table={}",
        unique("same"),
        bench.table
    );
    let (mills, callers, rounds) = (4, 8, 25);
    let ids: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..mills)
            .map(|_| {
                scope.spawn(|| {
                    let mill = Mill::open(&url).expect("a mill");
                    let bank = mill.source(&spec).expect("a bank");
                    let take = || -> Vec<u64> {
                        (0..rounds).map(|_| bank.next_of(fastrand::u16(..).into()).expect("an id")).collect()
                    };
                    let ids: Vec<u64> = std::thread::scope(|scope| {
                        let callers: Vec<_> = (0..callers).map(|_| scope.spawn(take)).collect();
                        callers.into_iter().flat_map(|caller| caller.join().expect("a caller")).collect()
                    });
                    let failed =
                        mill.events().into_iter().find(|event| event.kind == EventKind::RefillFailed);
                    assert!(failed.is_none(), "{}", failed.map(|event| event.message).unwrap_or_default());
                    ids
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a mill")).collect()
    });
    let distinct: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!((distinct.len(), ids.len()), (mills * callers * rounds, mills * callers * rounds));
}

/// A table without a primary key, whose unique key has a name of its own.
#[test]
fn the_rows_of_a_table_whose_unique_key_has_another_name_are_found_by_it() {
    let bench = Bench { kind: Kind::Segment, place: Place::MariaDb, table: unique("t") };
    bench.tamper(
        "CREATE TABLE {t} (`name` VARBINARY(512) NOT NULL, `date` BIGINT UNSIGNED NOT NULL \
         DEFAULT 0, `next` BIGINT UNSIGNED NOT NULL, `state` VARBINARY(16) NOT NULL DEFAULT 'open', `stores` BIGINT UNSIGNED NOT NULL \
         DEFAULT 1, `store` BIGINT UNSIGNED NOT NULL DEFAULT 1, `chunk` BIGINT UNSIGNED NOT NULL DEFAULT 0, `writer` BIGINT UNSIGNED NOT NULL DEFAULT 0, `updated_at` DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP, UNIQUE KEY `by name` (`name`))",
        &[],
    );
    missing_rows_are_made_and_the_others_go_on(&bench);
    bench.tamper("ALTER TABLE {t} DROP KEY `by name`, ADD UNIQUE KEY `by_name` (`name`)", &[]);
    let (bank, mut store) = (key(&bench), bench.open());
    let requests: Vec<_> = (0..MANY).map(|index| request(&bank, index, 16, 0)).collect();
    assert!(all(store.reserve_counters(&requests)).iter().all(|range| range.lo == 1));
    // Its name changes under a connection that knows it.
    bench.tamper("ALTER TABLE {t} DROP KEY `by_name`, ADD UNIQUE KEY `named` (`name`)", &[]);
    let lo = in_time(|| store.reserve_counters(&requests).into_iter().collect::<Result<Vec<_>, _>>())
        .expect("ranges");
    assert!(lo.iter().all(|range| range.lo == 17));
}

/// A trigger of this user's own is accepted, and may leave a row elsewhere than where it was written.
#[test]
fn a_batch_whose_rows_a_trigger_changes_gives_no_number() {
    let bench = Bench::mariadb(Kind::Segment);
    let (bank, mut store) = (key(&bench), bench.open());
    let requests: Vec<_> = (0..MANY).map(|index| request(&bank, index, 16, 0)).collect();
    all(store.reserve_counters(&requests));
    for event in ["INSERT", "UPDATE"] {
        let name = unique("trigger");
        bench.tamper(
            &format!("CREATE TRIGGER {name} BEFORE {event} ON {{t}} FOR EACH ROW SET NEW.`next` = 2"),
            &[],
        );
        let requests: Vec<_> = match event {
            "INSERT" => (MANY..2 * MANY).map(|index| request(&bank, index, 16, 0)).collect(),
            _ => requests.clone(),
        };
        for answer in bench.open().reserve_counters(&requests) {
            answer.expect_err("its row would give the same numbers again");
        }
        bench.tamper(&format!("DROP TRIGGER {name}"), &[]);
    }
    all(store.reserve_counters(&requests));
}

/// Defines each function as a test for each store.
macro_rules! banks {
    ($($name:ident)*) => {
        banks!(@ memory, Bench::memory(Kind::Segment), $($name)*);
        banks!(@ sqlite, Bench::sqlite(Kind::Segment), $($name)*);
        banks!(@ mariadb, Bench::mariadb(Kind::Segment), $($name)*);
        banks!(@ tidb, Bench::tidb(Kind::Segment), $($name)*);
        banks!(@ postgres, Bench::postgres(Kind::Segment), $($name)*);
        banks!(@ redis, Bench::redis(Kind::Segment), $($name)*);
    };
    (@ $module:ident, $bench:expr, $($name:ident)*) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $name() {
                    super::$name(&$bench)
                }
            )*
        }
    };
}

banks! {
    missing_rows_are_made_and_the_others_go_on
    a_row_that_went_backwards_is_refused_and_its_neighbours_are_served
    the_last_numbers_are_given_and_then_the_counter_is_exhausted
    what_was_not_used_is_given_back_where_the_row_still_ends_there
    counters_that_were_begun_anew_or_repaired_take_nothing_back_from_before
    processes_that_reserve_from_the_same_counters_at_once_share_no_number
    a_bank_is_recorded_once_and_another_number_of_counters_is_refused
    a_counter_that_was_closed_meanwhile_gives_nothing
    every_counter_of_the_largest_bank_gives_its_first_id_and_gives_back_the_rest
    mills_that_use_the_same_counters_meet_no_failure
}
