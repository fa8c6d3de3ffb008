//! What is reserved and not used: the bound that the configuration's page states, and what processes that end lose.

use keymill::{Change, Handle, Mill, Source};

/// What a process keeps ahead of a source with the default options at so many ids a second.
fn bound(rate: u64) -> u64 {
    rate * 30 * 6 / 5 + 2 * 1_000
}

/// One id, by the handle if there is one.
fn next(source: &Source, handle: &mut Option<Handle>) -> u64 {
    handle.as_mut().map_or_else(|| source.next(), Handle::next).expect("an id")
}

#[test]
fn what_is_reserved_and_not_used_stays_under_the_bound_whatever_hands_the_ids_out() {
    for (rate, each_ms, ids) in [(1, 1_000, 1), (10, 100, 1), (1_000, 10, 10)] {
        for (options, by_handle) in [("", false), ("", true), ("&order=thread", false)] {
            let mill = Mill::open("memory:?clock=manual").expect("a mill");
            let source = mill.source(&format!("segment:orders?deadline=60s{options}")).expect("a source");
            let mut handle = by_handle.then(|| source.handle());
            let mut used = 0;
            for _ in 0..70_000 / each_ms {
                mill.advance_clock(each_ms).expect("a manual clock");
                for _ in 0..ids {
                    next(&source, &mut handle);
                }
                used += ids;
                let ahead = source.stats().expect("figures").reserved - used;
                assert!(
                    ahead < bound(rate),
                    "{rate}/s{options}, handle {by_handle}: {ahead} ahead after {used}"
                );
            }
        }
    }
}

/// The mills of one file, each as a process has one.
struct Shop {
    folder: tempfile::TempDir,
}

impl Shop {
    fn new() -> Shop {
        let shop = Shop { folder: tempfile::tempdir().expect("a folder") };
        let mill = shop.mill();
        mill.init(&[], Change::Apply).expect("tables");
        shop
    }

    fn mill(&self) -> Mill {
        let file = self.folder.path().join("keymill.db");
        Mill::open(&format!("sqlite:{}", file.display())).expect("a mill")
    }

    /// Takes 300 ids in a burst, and returns the source.
    fn burst(mill: &Mill, options: &str, by_handle: bool) -> (Source, Option<Handle>) {
        let source = mill.source(&format!("segment:orders?deadline=60s{options}")).expect("a source");
        let mut handle = by_handle.then(|| source.handle());
        for _ in 0..300 {
            next(&source, &mut handle);
        }
        (source, handle)
    }

    /// The first number that no process has reserved.
    fn row(&self) -> u64 {
        let mill = self.mill();
        mill.source("segment:orders?deadline=60s").expect("a source").next().expect("an id")
    }
}

const WAYS: [(&str, bool); 3] = [("", false), ("", true), ("&order=thread", false)];

#[test]
fn processes_that_take_300_ids_each_and_end_one_after_the_other_lose_none() {
    for (options, by_handle) in WAYS {
        let shop = Shop::new();
        for _ in 0..20 {
            let mill = shop.mill();
            drop(Shop::burst(&mill, options, by_handle).1);
            mill.close();
        }
        assert_eq!(shop.row(), 6_001, "{options} by handle {by_handle}");
    }
}
