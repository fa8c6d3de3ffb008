//! Route tables: what every store promises about them, proved against the real thing.

use std::sync::{Arc, Barrier};

use keymill::simulation::counter_key;
use keymill::store::{FaultKind, Key, Mark, RaisePool, Scheme, Store, StoreIndex, StoredTable};
use keymill_tests::{in_time, redis as redis_server};

use crate::bench::{Bench, Kind, Place, unique};

/// A table of route tables of its own, with its store.
struct Routes {
    bench: Bench,
    key: Arc<Key>,
}

impl Routes {
    fn new(bench: Bench) -> Routes {
        let key = Arc::new(Key { table: unique("r"), ..Key::of_route("shop 'orders' %") });
        let routes = Routes { bench, key };
        routes.open().init(std::slice::from_ref(&routes.key), false).expect("the table");
        routes
    }

    fn open(&self) -> Box<dyn Store> {
        self.bench.open()
    }
}

fn stored(version: u64, text: &str) -> StoredTable {
    StoredTable::new(version, Some(text.to_owned()))
}

fn a_table_is_read_as_it_was_stored(routes: &Routes) {
    let (mut store, key) = (routes.open(), &routes.key);
    assert_eq!(store.read_route(key, 0), Ok(None));
    // As long as a table of every gene, with what SQL, Lua and a shell would take for their own.
    let text = format!("# `it's` \"a\" \\ % ? $1 \u{e9}\u{4e2d}\u{1f600}\r\n{}", "x".repeat(3 << 20));
    assert_eq!(store.replace_route(key, None, (7, &text)), Ok(true));
    assert_eq!(routes.open().read_route(key, 0), Ok(Some(stored(7, &text))));
    assert_eq!(routes.open().read_route(key, 6), Ok(Some(stored(7, &text))));
}

fn a_text_that_is_known_is_not_read_again(routes: &Routes) {
    let (mut store, key) = (routes.open(), &routes.key);
    assert_eq!(store.replace_route(key, None, (7, "seven")), Ok(true));
    assert_eq!(store.read_route(key, 7), Ok(Some(StoredTable::new(7, None))));
}

fn a_table_is_replaced_only_from_the_version_that_was_seen(routes: &Routes) {
    let (mut store, key) = (routes.open(), &routes.key);
    assert_eq!(store.replace_route(key, Some(1), (2, "two")), Ok(false), "there is none");
    assert_eq!(store.replace_route(key, None, (2, "two")), Ok(true));
    assert_eq!(store.replace_route(key, None, (3, "three")), Ok(false), "there is one");
    assert_eq!(store.replace_route(key, Some(1), (3, "three")), Ok(false));
    assert_eq!(store.read_route(key, 0), Ok(Some(stored(2, "two"))));
    assert_eq!(store.replace_route(key, Some(2), (9, "nine")), Ok(true));
    assert_eq!(store.read_route(key, 2), Ok(Some(stored(9, "nine"))));
    let named = |name: &str| Key { table: key.table.clone(), ..Key::of_route(name) };
    let other = named("another");
    assert_eq!(store.read_route(&other, 0), Ok(None));
}

fn of_eight_processes_that_change_a_table_at_once_one_does(routes: &Routes) {
    let barrier = Barrier::new(8);
    for old in [None, Some(1)] {
        let version = old.map_or(1, |old| old + 1);
        let won: usize = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..8)
                .map(|n| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let mut store = routes.open();
                        barrier.wait();
                        in_time(|| store.replace_route(&routes.key, old, (version, &format!("of {n}"))))
                            .expect("an answer")
                    })
                })
                .collect();
            writers.into_iter().map(|writer| usize::from(writer.join().expect("a writer"))).sum()
        });
        assert_eq!(won, 1, "from {old:?}");
    }
}

fn all_tables_are_listed_in_the_order_of_their_names(routes: &Routes) {
    let (mut store, key) = (routes.open(), &routes.key);
    // The database's table is empty, or was never made.
    for key in [Key::clone(key), Key { table: unique("none"), ..Key::clone(key) }] {
        assert_eq!(store.list_routes(&key), Ok(Vec::new()));
    }
    let named = |name: &str| Key { table: key.table.clone(), ..Key::of_route(name) };
    for (name, version) in [("b", 2), ("a * [x] %", 3), ("c", 1)] {
        assert_eq!(store.replace_route(&named(name), None, (version, name)), Ok(true));
    }
    let listed = routes.open().list_routes(key).expect("the store answers");
    let wanted = [("a * [x] %", 3), ("b", 2), ("c", 1)];
    assert_eq!(listed, wanted.map(|(name, version)| (name.to_owned(), stored(version, name))));
}

/// Rows of sources and pools of leased workers, as `keymill status` lists what a store has.
fn rows_and_pools_are_listed_in_the_order_of_their_names(routes: &Routes) {
    let mut store = routes.open();
    let rows = Key { table: unique("rows"), ..Key::segment(Scheme::Keymill, "", "") };
    let pools = Key { table: unique("pools"), ..Key::pool("", "") };
    for key in [&rows, &pools] {
        assert_eq!(store.list_rows(key, 10), Ok(Vec::new()), "there is no table");
    }
    let of_table = |key: Key| Arc::new(Key { table: rows.table.clone(), ..key });
    let segment = |name| of_table(Key::segment(Scheme::Keymill, "", name));
    let bank = of_table(Key::bank("", "a/b"));
    let counter = counter_key(&bank, 4, 3);
    let keys = [segment("b"), segment("a"), bank, counter];
    store.init(&keys, false).expect("the table");
    for (key, next) in keys.iter().zip(1_u64..) {
        store.repair(key, Mark { period: 0, next }).expect("a row");
    }
    let listed = store.list_rows(&rows, 10).expect("a list");
    let listed: Vec<_> = listed.iter().map(|row| (row.name.as_str(), row.date, row.next)).collect();
    assert_eq!(
        listed,
        [("business:a%2Fb", 0, Some(3)), ("segment:a", 0, Some(2)), ("segment:b", 0, Some(1))]
    );
    assert_eq!(store.list_rows(&rows, 2).expect("a list").len(), 2);

    let pool = Arc::new(Key { table: pools.table.clone(), ..Key::pool("", "tx") });
    store.init(std::slice::from_ref(&pool), false).expect("the table");
    let (key, layout) = (pool, Arc::from("time:41@1ms epoch=2025-01-01"));
    store.raise_pool(&RaisePool { key, layout, store: StoreIndex::ONLY, to: 7, token: 1 }).expect("a pool");
    let listed = store.list_rows(&pools, 10).expect("a list");
    assert_eq!(listed.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["tx"]);
}

/// On Redis, whose tables have no columns: what an earlier build reads has its text under a name that it does not know.
fn a_table_and_an_earlier_build_refuse_each_other(routes: &Routes) {
    let (mut store, key) = (routes.open(), &routes.key);
    if !matches!(routes.bench.place, Place::Redis) {
        return;
    }
    let mut server = redis_server::connection_of(&redis_server::url());
    let at = format!("{}:{}", key.table, key.name);
    let read = ["HMGET", &at, "version", "table_text"];
    assert_eq!(store.replace_route(key, None, (7, "seven")), Ok(true));
    // It refuses a table that has a version and no text.
    let seen: [Option<String>; 2] = redis_server::say(&mut server, &read);
    assert_eq!(seen, [Some("7".to_owned()), None]);
    let _: u64 = redis_server::say(&mut server, &["DEL", &at]);
    let _: u64 = redis_server::say(&mut server, &["HSET", &at, "version", "8", "table_text", "eight"]);
    let fault = store.read_route(key, 0).expect_err("its readers are of another build");
    assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    // The list shows the others beside it.
    let other = Key { table: key.table.clone(), ..Key::of_route("zebra") };
    assert_eq!(store.replace_route(&other, None, (3, "three")), Ok(true));
    let listed = store.list_routes(key).expect("a list");
    assert_eq!(listed.last(), Some(&("zebra".to_owned(), stored(3, "three"))));
    let refused =
        listed.first().and_then(|(_, table)| table.refused.clone()).expect("the earlier build's table");
    for message in [fault.to_string(), refused] {
        for part in ["earlier build", "`table_text` in place of `text`", "route put"] {
            assert!(message.contains(part), "{message}");
        }
    }
    let seen: [Option<String>; 2] = redis_server::say(&mut server, &read);
    assert_eq!(seen, [Some("8".to_owned()), Some("eight".to_owned())], "it was left alone");
}

/// Defines each function as a test for each store.
macro_rules! routes {
    ($($name:ident)*) => {
        routes!(@ memory, Bench::memory(Kind::Segment), $($name)*);
        routes!(@ sqlite, Bench::sqlite(Kind::Segment), $($name)*);
        routes!(@ mariadb, Bench::mariadb(Kind::Segment), $($name)*);
        routes!(@ tidb, Bench::tidb(Kind::Segment), $($name)*);
        routes!(@ postgres, Bench::postgres(Kind::Segment), $($name)*);
        routes!(@ redis, Bench::redis(Kind::Segment), $($name)*);
    };
    (@ $module:ident, $bench:expr, $($name:ident)*) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $name() {
                    super::$name(&Routes::new($bench))
                }
            )*
        }
    };
}

routes! {
    a_table_is_read_as_it_was_stored
    a_text_that_is_known_is_not_read_again
    a_table_is_replaced_only_from_the_version_that_was_seen
    of_eight_processes_that_change_a_table_at_once_one_does
    all_tables_are_listed_in_the_order_of_their_names
    rows_and_pools_are_listed_in_the_order_of_their_names
    a_table_and_an_earlier_build_refuse_each_other
}
