//! A node whose row is where it left it reserves with one statement under every scheme; if the row has moved or was set
//! back, a transaction decides, and the attempt loses nothing.
//!
//! MariaDB is found by `KEYMILL_TEST_MYSQL` (`ci/servers/mariadb run cargo test …` sets it).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use keymill::serial::SerialPattern;
use keymill::store::mysql::MysqlStore;
use keymill::store::{
    BeginMark, Beside, Catalogue, FaultKind, Key, Left, Mark, OwnSlot, PeriodClock, Places, Release, Renewal,
    Request, RowStore, Scheme, SerialKey, SlotStore, Slots, Store, StoreIndex, Take,
};
use keymill::time::Clock;
use keymill_tests::disguise::Disguise;
use keymill_tests::{lease, mariadb, request, schemes};
use mysql::prelude::Queryable;

const DAY: u64 = 20_261_120_000_000_000;
const NEXT_DAY: u64 = 20_261_121_000_000_000;

/// Every scheme that MariaDB supports, with and without a date.
fn kept() -> impl Iterator<Item = (Scheme, bool)> {
    schemes::on_mysql().flat_map(|scheme| {
        let both = [(scheme.keeps_segments(), false), (scheme.keeps_serials(), true)];
        both.into_iter().filter(|(is_kept, _)| *is_kept).map(move |(_, serial)| (scheme, serial))
    })
}

/// A table on MariaDB, gone with the value.
struct Table(Arc<Key>);

impl Table {
    fn new(scheme: Scheme, serial: bool) -> Table {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // ordering: Relaxed — a number for each, nothing more.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let serial = serial.then(|| SerialKey {
            table: "cust".to_owned(),
            column: "id".to_owned(),
            pattern: SerialPattern::new("yyyyMMdd", "000000", "UTC").unwrap(),
            init_max: false,
        });
        let table = Table(Arc::new(schemes::key(
            scheme,
            &format!("r_{}_{count}", std::process::id()),
            "orders",
            serial,
        )));
        direct().init(&[Arc::clone(&table.0)], false).unwrap();
        table
    }

    fn asked(&self, day: u64, seen: Mark) -> Request {
        let period = if self.0.serial.is_some() { day } else { 0 };
        Request { period, period_max: period, high_water: seen, ..request(&self.0, 10) }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            mariadb::connection().query_drop(format!("DROP TABLE {}", self.0.table)).unwrap();
        }
    }
}

fn direct() -> MysqlStore {
    mariadb::store(mariadb::options())
}

#[test]
fn a_single_node_reserves_with_one_statement_under_every_scheme() {
    for (scheme, serial) in kept() {
        let table = Table::new(scheme, serial);
        let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
        let mut options = mariadb::options();
        options.hosts = vec![disguise.address()];
        let mut store = mariadb::store(options);
        let mut seen = Mark::default();
        let mut reserve = |day| {
            let got = store.reserve(&table.asked(day, seen)).unwrap();
            seen = Mark { period: got.period, next: got.hi };
            got
        };
        for _ in 0..3 {
            reserve(DAY);
        }
        drop(disguise.said());
        for round in 0..30 {
            assert_eq!(reserve(DAY).lo, 31 + round * 10, "{scheme:?}");
        }
        assert_eq!(disguise.round_trips(), 30, "{scheme:?}: {:?}", disguise.said());
        drop(disguise.said());
        if serial {
            let got = reserve(NEXT_DAY);
            assert_eq!((got.lo, got.period, disguise.round_trips()), (1, NEXT_DAY, 1), "{scheme:?}");
        }
    }
}

/// The store's clock is read where it was last read before a period may begin: once by a process that begins, and once a period.
#[test]
fn the_comparison_of_a_serials_period_with_the_stores_clock_costs_later_reservations_no_round_trip() {
    let now_ms = Clock::System.wall_ms();
    let clock = Some(PeriodClock { wall_ms: now_ms, skew_ms: 5_000 });
    for (scheme, _) in kept().filter(|(_, serial)| *serial) {
        let counted = |clocks: [Option<PeriodClock>; 2]| {
            let table = Table::new(scheme, true);
            let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
            let mut options = mariadb::options();
            options.hosts = vec![disguise.address()];
            let mut store = mariadb::store(options);
            let pattern = &table.0.serial.as_ref().unwrap().pattern;
            let mut seen = Mark::default();
            let mut counted = Vec::new();
            for (wall_ms, clock) in [now_ms - 86_400_000, now_ms].into_iter().zip(clocks) {
                let day = pattern.period_at(wall_ms);
                for times in [1, 30] {
                    drop(disguise.said());
                    for _ in 0..times {
                        let got = store.reserve(&Request { clock, ..table.asked(day, seen) }).unwrap();
                        assert_eq!(got.period, day);
                        seen = Mark { period: got.period, next: got.hi };
                    }
                    counted.push(disguise.round_trips());
                }
            }
            counted
        };
        let (without, with) = (counted([None, None]), counted([clock, clock]));
        let first_read_today = counted([None, clock]);
        println!("{scheme:?}: the first, 30 more, the first of the next day, 30 more");
        println!(
            "    {without:?} without the clock, {with:?} with it, {first_read_today:?} where it is read on the next day"
        );
        assert_eq!(without[1..], [30, 1, 30], "{scheme:?}");
        assert_eq!(with[1..], [30, 1, 30], "{scheme:?}");
        assert!(with[0] <= without[0] + 1, "{scheme:?}");
        assert!(first_read_today[2] <= without[2] + 4, "{scheme:?}");
        assert_eq!([first_read_today[1], first_read_today[3]], [30, 30], "{scheme:?}");
    }
}

#[test]
fn nodes_in_turn_on_one_row_leave_no_gap_and_no_overlap() {
    for (scheme, serial) in kept().filter(|(scheme, _)| !scheme.is_ticket()) {
        let table = Table::new(scheme, serial);
        let mut nodes: Vec<_> = (0..3).map(|_| (direct(), Mark::default())).collect();
        let mut expected = 1;
        for round in 0..60 {
            let (store, seen) = &mut nodes[[0, 0, 1, 2, 1][round % 5]];
            let got = store.reserve(&table.asked(DAY, *seen)).unwrap();
            assert_eq!(got.lo, expected, "{scheme:?} in round {round}");
            expected = got.hi;
            *seen = Mark { period: got.period, next: got.hi };
        }
    }
}

#[test]
fn the_fast_path_leaves_a_lowered_or_deleted_row_alone_too() {
    for (scheme, serial) in kept() {
        let table = Table::new(scheme, serial);
        let mut store = direct();
        let mut seen = Mark::default();
        for _ in 0..5 {
            let got = store.reserve(&table.asked(DAY, seen)).unwrap();
            seen = Mark { period: got.period, next: got.hi };
        }
        mariadb::connection().query_drop(format!("DELETE FROM {}", table.0.table)).unwrap();
        for _ in 0..3 {
            let fault = store.reserve(&table.asked(DAY, seen)).unwrap_err();
            assert_eq!(fault.kind, FaultKind::WentBackwards, "{scheme:?}: {fault}");
        }
        assert_eq!(store.look(&table.0).unwrap(), None, "{scheme:?}");
        if scheme.is_ticket() {
            continue; // their counter goes on by itself
        }
        let old = Mark { next: 11, ..seen };
        direct().repair(&table.0, old).unwrap();
        let fault = store.reserve(&table.asked(DAY, seen)).unwrap_err();
        assert_eq!(fault.kind, FaultKind::WentBackwards, "{scheme:?}: {fault}");
        assert_eq!(direct().look(&table.0).unwrap().unwrap().mark, old, "{scheme:?}");
    }
}

/// A process that begins where it began before asks as much as one that knows of no other place.
#[test]
fn a_leased_worker_that_stays_where_it_is_costs_no_question_and_a_fixed_one_that_of_its_pool() {
    let (fixed, leased) = (Table::new(Scheme::Keymill, false), Table::new(Scheme::Worker, false));
    let row = Arc::new(Key::mark(&fixed.0.table, "tx", "L", 1));
    let pool = Arc::new(Key::pool(&leased.0.table, "tx"));
    let places = Arc::new(Places {
        source: "tx".to_owned(),
        fixed_table: row.table.clone(),
        pool_table: pool.table.clone(),
        layouts: vec!["L".to_owned()],
    });
    let take = |beside: Beside, token| Take {
        layout: "L epoch E".into(),
        slots: Slots { first: 0, last: 0 },
        beside,
        ..lease::take(pool.clone(), token)
    };
    let beside = || Beside { places: Some(places.clone()), passed_over: Vec::new() };
    let counted = |work: &mut dyn FnMut(&mut dyn Store)| {
        let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
        let mut options = mariadb::options();
        options.hosts = vec![disguise.address()];
        let mut store = mariadb::store(options);
        work(&mut store);
        (disguise.round_trips(), disguise.said())
    };
    let taken = |beside: &dyn Fn() -> Beside, token| {
        let counted = counted(&mut |store| {
            store.take_slot(&take(beside(), token)).unwrap();
        });
        let mut store = direct();
        let mark = store.slots(&pool).unwrap().slots[0].mark;
        let source = if beside().places.is_some() { "tx" } else { "" };
        let own =
            OwnSlot { key: pool.clone(), slot: 0, left: vec![Left { token, mark }], source: source.into() };
        assert_eq!(store.free_slots(&[Release { own, used: 1_001 }]).unwrap(), [true]);
        counted
    };
    taken(&beside, 11);
    let (before, (after, said)) = (taken(&Beside::default, 12).0, taken(&beside, 13));
    assert!(after > before, "the row was last taken by a process that knows no places: {said:?}");
    let (after, said) = taken(&beside, 14);
    assert_eq!(after, before, "{said:?}");

    direct().begin_mark(&begin(&row, &places)).unwrap();
    let (before, _) = counted(&mut |store| {
        store.raise(&row, None, 0).unwrap();
    });
    let (after, said) = counted(&mut |store| {
        store.begin_mark(&begin(&row, &places)).unwrap();
    });
    // Its table is judged first.
    let of_pool = said.iter().filter(|statement| statement.contains("`pool` =")).count();
    assert_eq!(of_pool, 1, "{said:?}");
    assert!(after <= before + 5, "{said:?}");
    println!("a slot: {}, a fixed worker: {after}", taken(&beside, 15).0);
}

/// A mill with many leased workers renews them in statements of 64.
#[test]
fn a_thousand_leases_are_renewed_in_at_most_twenty_statements() {
    const LEASES: u64 = 1_000;
    let table = Table::new(Scheme::Worker, false);
    let pool = Arc::new(Key::pool(&table.0.table, "tx"));
    let slots = Slots { first: 0, last: LEASES - 1 };
    let mut store = direct();
    let taken: Vec<_> = (1..=LEASES)
        .map(|token| {
            let take = Take { layout: "L".into(), slots, ..lease::take(pool.clone(), token) };
            (token, store.take_slot(&take).expect("a slot"))
        })
        .collect();
    let renewals: Vec<_> = taken
        .iter()
        .map(|(token, taken)| Renewal {
            own: OwnSlot {
                key: pool.clone(),
                slot: taken.slot,
                left: vec![Left { token: *token, mark: taken.mark }],
                source: "".into(),
            },
            to: Left { token: 5_000, mark: taken.mark + 10 },
            lease_ms: 30_000,
        })
        .collect();
    let disguise = Disguise::plain(mariadb::options().hosts[0].clone());
    let mut options = mariadb::options();
    options.hosts = vec![disguise.address()];
    let mut store = mariadb::store(options);
    store.slots(&pool).expect("a connection and a table that was judged");
    drop(disguise.said());
    let before = disguise.round_trips();
    let renewed = store.renew_slots(&renewals).expect("renewed");
    assert!(renewed.marks.iter().all(Result::is_ok), "{:?}", renewed.marks.iter().find(|mark| mark.is_err()));
    let (round_trips, said) = (disguise.round_trips() - before, disguise.said());
    assert!(round_trips <= 20, "{round_trips} round trips: {:?}", &said[..said.len().min(4)]);
    let rows = direct().slots(&pool).expect("the rows").slots;
    assert_eq!(rows.iter().filter(|row| row.token == 5_000).count() as u64, LEASES);
    println!("{LEASES} leases renewed in {round_trips} round trips");
}

fn begin(row: &Arc<Key>, places: &Arc<Places>) -> BeginMark {
    BeginMark { key: row.clone(), worker: 1, places: places.clone(), store: StoreIndex::ONLY }
}
