//! Names: those that people take for one are several in the tables of keymill's own, and one source is one however its spec is
//! spelled. Proved on every store.

use std::collections::HashSet;

use keymill::{Change, Mill, Source};
use keymill_tests::takers::persistently;

use crate::banks::url;
use crate::bench::{Bench, Kind, unique};

/// Opens a mill on the store of a bench.
fn open(bench: &Bench) -> Mill {
    Mill::open(&url(bench).unwrap_or_else(|| format!("memory:{}", bench.table))).expect("a mill")
}

/// Makes the tables, and opens the source.
fn source(mill: &Mill, spec: &str) -> Source {
    persistently(|| mill.init(&[spec], Change::Apply)).expect("the tables");
    mill.source(spec).expect("a source")
}

/// Names that differ by letter case, a blank, an accent or its form. Some collations of some servers take two of them for one.
fn names() -> [String; 8] {
    let name = unique("n");
    [
        name.clone(),
        name.to_uppercase(),
        format!("{name} "),
        format!(" {name}"),
        format!("{name}e"),
        format!("{name}\u{e9}"),
        format!("{name}e\u{301}"),
        format!("{name}\u{ff45}"),
    ]
}

fn banks_whose_names_look_alike_count_apart(bench: &Bench) {
    let mill = open(bench);
    for name in names() {
        let bank = source(&mill, &format!("business:{name}?counters=2&deadline=60s"));
        let id = persistently(|| bank.next_for(1)).expect("an id");
        assert_eq!(bank.parse(id).expect("parts").number, Some(1), "{name:?}");
    }
}

fn pools_whose_names_look_alike_lease_apart(bench: &Bench) {
    // A process each, which keeps its worker.
    let leased: Vec<(Mill, u64)> = names()
        .iter()
        .map(|name| {
            let mill = open(bench);
            // One worker: a pool that is another's has none left.
            let source = source(&mill, &format!("snowflake:{name}?slots=0-0&deadline=20s"));
            let id = persistently(|| source.next()).unwrap_or_else(|error| panic!("{name:?}: {error}"));
            (mill, source.parse(id).expect("parts").worker.expect("a worker"))
        })
        .collect();
    assert!(leased.iter().all(|(_, worker)| *worker == 0), "{leased:?}");
}

fn routers_whose_names_look_alike_have_tables_of_their_own(bench: &Bench) {
    let (mill, names) = (open(bench), names());
    let table = |at: usize| format!("version = 1\n[[range]]\nupper = 65535\nshard = \"s{at}\"\n");
    for (at, name) in names.iter().enumerate() {
        let stored = persistently(|| mill.put_routes(name, &table(at), Change::Apply));
        assert_eq!(stored.unwrap_or_else(|error| panic!("{name:?}: {error}")).before, None, "{name:?}");
    }
    for (at, name) in names.iter().enumerate() {
        let router = persistently(|| mill.router(name)).expect("a router");
        assert_eq!(router.route_key(1).expect("a route").shard, format!("s{at}"), "{name:?}");
    }
}

fn marks_of_workers_whose_names_look_alike_stand_apart(bench: &Bench) {
    let (mill, names) = (open(bench), names());
    let id = 50_000_000_000_u64 << 22;
    let flakes: Vec<Source> =
        names.iter().map(|name| source(&mill, &format!("snowflake:{name}?worker=5"))).collect();
    persistently(|| flakes[0].repair(id, Change::Apply)).expect("raised");
    for (flake, name) in flakes.iter().zip(&names).skip(1) {
        assert_eq!(persistently(|| flake.row()).expect("a look"), None, "{name:?}");
    }
}

/// A spec in two spellings: another order of options, and a letter of the name that is percent-encoded.
fn spellings(name: &str) -> [(String, String); 4] {
    let other = format!("%{:02X}{}", name.as_bytes()[0], &name[1..]);
    [
        ("segment:NAME?step=10&deadline=60s", "segment:NAME?deadline=60s&step=10"),
        ("business:NAME?counters=2&deadline=60s", "business:NAME?deadline=60s&counters=2"),
        ("snowflake:NAME?worker=5&deadline=60s", "snowflake:NAME?deadline=60s&worker=5"),
        ("snowflake:leasedNAME?slots=0-0&deadline=60s", "snowflake:leasedNAME?deadline=60s&slots=0-0"),
    ]
    .map(|(one, two)| (one.replace("NAME", name), two.replacen("NAME", &other, 1)))
}

fn one_source_in_two_spellings_is_one_source(bench: &Bench) {
    let mill = open(bench);
    for (one, two) in spellings(&unique("n")) {
        let two = if one.contains("leased") {
            two.replacen("snowflake:leased", "snowflake:%6Ceased", 1)
        } else {
            two
        };
        let (first, second) = (source(&mill, &one), source(&mill, &two));
        let next = |source: &Source| {
            let id = if one.starts_with("business") { source.next_for(1) } else { source.next() };
            id.unwrap_or_else(|error| panic!("{one} and {two}: {error}"))
        };
        let ids: Vec<u64> = (0..40).map(|turn| next(if turn % 2 == 0 { &first } else { &second })).collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{one} and {two}: {ids:?}");
    }
    // In the store too, where the first mill has given back what it did not use.
    let name = unique("n");
    let [(one, two), ..] = spellings(&name);
    let mut seen = HashSet::new();
    for spec in [&one, &two, &one] {
        // A name in memory lives as long as a mill has it open.
        let next = open(bench);
        let ids = source(&next, spec).take(25).expect("ids");
        assert!(ids.iter().all(|id| seen.insert(*id)), "{spec}: {ids:?}");
        next.close();
    }
    assert_eq!((seen.iter().min(), seen.iter().max()), (Some(&1), Some(&75)), "no other row was begun");
}

/// Defines each function as a test for each store.
macro_rules! spelled {
    ($($name:ident)*) => {
        spelled!(@ memory, Bench::memory(Kind::Segment), $($name)*);
        spelled!(@ sqlite, Bench::sqlite(Kind::Segment), $($name)*);
        spelled!(@ mariadb, Bench::mariadb(Kind::Segment), $($name)*);
        spelled!(@ tidb, Bench::tidb(Kind::Segment), $($name)*);
        spelled!(@ postgres, Bench::postgres(Kind::Segment), $($name)*);
        spelled!(@ redis, Bench::redis(Kind::Segment), $($name)*);
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

spelled! {
    banks_whose_names_look_alike_count_apart
    pools_whose_names_look_alike_lease_apart
    routers_whose_names_look_alike_have_tables_of_their_own
    marks_of_workers_whose_names_look_alike_stand_apart
    one_source_in_two_spellings_is_one_source
}
