//! The mark of a fixed worker over several stores: it lives in store w mod N, and every store records the list.

use std::sync::Arc;

use keymill::store::memory::{Memory, MemoryStore, Silence, Step};
use keymill::store::{
    BeginMark, Beside, Catalogue, FaultKind, GiveBack, Key, Left, OwnSlot, Places, Release, RowStore, Scheme,
    SlotStore, Slots, Store, StoreIndex, Take,
};
use keymill::time::{Clock, ManualClock};
use keymill::{Code, Mill};
use keymill_tests::{lease, wordless, write_private};

use crate::{CHUNK, PAUSE_MS, at_hand, memories, of_memories};

fn places() -> Arc<Places> {
    Arc::new(Places {
        source: "tx".to_owned(),
        fixed_table: Scheme::Keymill.default_table().to_owned(),
        pool_table: Scheme::Worker.default_table().to_owned(),
        layouts: vec!["L".to_owned()],
    })
}

fn row(worker: u64) -> Arc<Key> {
    Arc::new(places().fixed_row(worker))
}

pub(crate) fn begin(worker: u64) -> BeginMark {
    BeginMark { key: row(worker), worker, places: places(), store: StoreIndex::ONLY }
}

fn alone(memory: &Arc<Memory>) -> MemoryStore {
    MemoryStore::new(Arc::clone(memory))
}

fn is_refused(store: &mut dyn Store, worker: u64, says: &str) {
    fails(store, worker, FaultKind::Refused, says);
}

fn fails(store: &mut dyn Store, worker: u64, kind: FaultKind, says: &str) {
    let fault = store.begin_mark(&begin(worker)).expect_err("it does not begin");
    assert_eq!(fault.kind, kind, "{fault}");
    assert!(wordless::says(&fault, says), "{fault}");
}

#[test]
fn a_fixed_worker_is_refused_with_another_list_or_order_of_stores() {
    let [a, b, c] = memories();
    let mut two = of_memories(&[&a, &b], CHUNK);
    for worker in [4, 5] {
        assert_eq!(two.begin_mark(&begin(worker)).expect("a mark"), 1);
        two.raise(&row(worker), Some(1), 1_000).expect("raised");
        // Again, and after a clean close.
        assert!(two.give_back(&GiveBack::new(&row(worker), 0, 900, 1_000)).expect("given back"));
        assert_eq!(of_memories(&[&a, &b], CHUNK).begin_mark(&begin(worker)).expect("a mark"), 900);
        is_refused(&mut of_memories(&[&b, &a], CHUNK), worker, "with other `stores` or another order");
        is_refused(&mut of_memories(&[&a, &b, &c], CHUNK), worker, "of 2, and this mill opens it in");
        is_refused(&mut of_memories(&[&c, &a, &b], CHUNK), worker, "of 2, and this mill opens it in");
        is_refused(&mut alone(&a), worker, "store 1 of 2, and this mill opens it in the only store");
        is_refused(&mut alone(&b), worker, "store 2 of 2, and this mill opens it in the only store");
    }
    let shown = two.look(&row(5)).expect("an answer").expect("a row");
    assert_eq!((shown.mark.period, shown.mark.next), (0, 900));
}

#[test]
fn a_fixed_worker_of_one_store_does_not_begin_at_zero_with_two() {
    let [a, b] = memories();
    for worker in [4, 5] {
        assert_eq!(alone(&a).begin_mark(&begin(worker)).expect("a mark"), 1);
        alone(&a).raise(&row(worker), Some(1), 1_000).expect("raised");
        is_refused(&mut of_memories(&[&a, &b], CHUNK), worker, "was begun in the only store");
    }
}

#[test]
fn a_new_fixed_worker_begins_when_every_store_answers_and_then_any_other_may_be_down() {
    let [a, b] = memories();
    let (mut two, clock) = at_hand(&[&a, &b]);
    b.set_down(true);
    fails(&mut two, 4, FaultKind::Unavailable, "a new worker begins when every store answers");
    b.set_down(false);
    clock.advance(PAUSE_MS);
    assert_eq!(two.begin_mark(&begin(4)).expect("a mark"), 1);
    b.set_down(true);
    assert_eq!(of_memories(&[&a, &b], CHUNK).begin_mark(&begin(4)).expect("a mark"), 1);
}

#[test]
fn a_new_fixed_worker_does_not_begin_where_a_store_could_not_record_it() {
    let [a, b] = memories();
    let (mut two, clock) = at_hand(&[&a, &b]);
    b.fail_next(Step::NotApplied);
    assert!(two.begin_mark(&begin(4)).expect_err("no record").kind.is_outage());
    b.set_down(true);
    clock.advance(PAUSE_MS);
    fails(&mut two, 4, FaultKind::Unavailable, "a new worker begins when every store answers");
    b.set_down(false);
    clock.advance(PAUSE_MS);
    assert_eq!(two.begin_mark(&begin(4)).expect("a mark"), 1);
    is_refused(&mut alone(&b), 4, "store 2 of 2, and this mill opens it in the only store");
}

#[test]
fn a_fixed_worker_is_refused_in_a_store_that_took_the_place_of_its_own() {
    let [a, b, c] = memories();
    let mut two = of_memories(&[&a, &b], CHUNK);
    for worker in [4, 5] {
        assert_eq!(two.begin_mark(&begin(worker)).expect("a mark"), 1);
        two.raise(&row(worker), Some(1), 1_000).expect("raised");
    }
    let mut replaced = of_memories(&[&a, &c], CHUNK);
    is_refused(&mut replaced, 5, "it has no mark of worker 5");
    is_refused(&mut replaced, 5, "repair SOURCE --to now");
    assert_eq!(replaced.begin_mark(&begin(4)).expect("its store is there"), 1_000);
    // What the message says helps.
    replaced.repair_mark(&begin(5), 5_000, false).expect("repaired");
    assert_eq!(replaced.begin_mark(&begin(5)).expect("a mark"), 5_000);
}

#[test]
fn a_repaired_mark_stays_in_its_store() {
    let [a, b] = memories();
    let mut two = of_memories(&[&a, &b], CHUNK);
    assert_eq!(two.begin_mark(&begin(5)).expect("a mark"), 1);
    let (before, after) = two.repair_mark(&begin(5), 5_000, true).expect("would be repaired");
    assert_eq!((before.map(|row| row.mark.next), after.mark.next), (Some(1), 5_000));
    assert_eq!(two.repair_mark(&begin(5), 5_000, false).expect("repaired").1.mark.next, 5_000);
    assert_eq!(two.begin_mark(&begin(5)).expect("a mark"), 5_000);
}

#[test]
fn a_mark_is_not_repaired_under_another_list_or_order_of_stores() {
    for worker in [4, 5] {
        let [a, b, c] = memories();
        assert_eq!(of_memories(&[&a, &b], CHUNK).begin_mark(&begin(worker)).expect("a mark"), 1);
        for mut other in [
            of_memories(&[&b, &a], CHUNK),
            of_memories(&[&a, &b, &c], CHUNK),
            of_memories(&[&c, &a, &b], CHUNK),
        ] {
            for dry_run in [true, false] {
                let fault = other.repair_mark(&begin(worker), 5_000, dry_run).expect_err("another list");
                assert!(wordless::says(&fault, "of 2, and this mill opens it in"), "{fault}");
            }
        }
        assert!(alone(&a).repair_mark(&begin(worker), 5_000, false).is_err());
        // Of one store.
        let [a, b, _] = memories();
        assert_eq!(alone(&a).begin_mark(&begin(worker)).expect("a mark"), 1);
        assert!(of_memories(&[&a, &b], CHUNK).repair_mark(&begin(worker), 5_000, false).is_err());
    }
}

#[test]
fn a_worker_whose_first_touch_is_a_repair_is_recorded_by_every_store() {
    for worker in [4, 5] {
        let [a, b, c] = memories();
        of_memories(&[&a, &b], CHUNK).repair_mark(&begin(worker), 5_000, false).expect("repaired");
        assert_eq!(of_memories(&[&a, &b], CHUNK).begin_mark(&begin(worker)).expect("a mark"), 5_000);
        let mut replaced =
            if worker == 4 { of_memories(&[&c, &b], CHUNK) } else { of_memories(&[&a, &c], CHUNK) };
        is_refused(&mut replaced, worker, "it has no mark of worker");
    }
}

#[test]
fn a_store_that_could_not_record_a_worker_does_so_when_its_mark_is_raised() {
    let [a, b, c, d] = memories();
    assert_eq!(of_memories(&[&a, &b], CHUNK).begin_mark(&begin(4)).expect("a mark"), 1);
    c.set_down(true);
    let mut replaced = of_memories(&[&a, &c], CHUNK);
    assert_eq!(replaced.begin_mark(&begin(4)).expect("its store is there"), 1);
    c.set_down(false);
    let mut stands = 1;
    let since = std::time::Instant::now();
    while alone(&c).look(&row(4)).expect("an answer").is_none() {
        assert!(since.elapsed() < std::time::Duration::from_secs(60), "it is not recorded");
        replaced.raise(&row(4), Some(stands), stands + 10).expect("raised");
        stands += 10;
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    is_refused(&mut of_memories(&[&d, &c], CHUNK), 4, "it has no mark of worker 4");
}

#[test]
fn stores_that_are_replaced_one_after_the_other_forget_no_worker() {
    let [a, b, c, d] = memories();
    assert_eq!(of_memories(&[&a, &b], CHUNK).begin_mark(&begin(4)).expect("a mark"), 1);
    // Its own store is there.
    assert_eq!(of_memories(&[&a, &c], CHUNK).begin_mark(&begin(4)).expect("a mark"), 1);
    is_refused(&mut of_memories(&[&d, &c], CHUNK), 4, "it has no mark of worker 4");
    is_refused(&mut of_memories(&[&a, &b, &d], CHUNK), 4, "of 2, and this mill opens it in");
}

/// A lease of this worker and no other, from the source's own pool or one of another name.
fn take(worker: u64, pool: &str) -> Take {
    Take {
        layout: "L epoch E".into(),
        slots: Slots { first: worker, last: worker },
        beside: Beside { places: Some(places()), passed_over: Vec::new() },
        ..lease::take(Arc::new(places().pool(pool)), 11)
    }
}

#[test]
fn a_fixed_worker_that_was_leased_begins_again_while_another_store_is_down() {
    let [a, b] = memories();
    let (mut two, clock) = at_hand(&[&a, &b]);
    assert_eq!(two.begin_mark(&begin(4)).expect("a mark"), 1);
    let taken = two.take_slot(&take(4, "tx")).expect("a slot");
    let own = OwnSlot {
        key: Arc::new(places().pool("tx")),
        slot: 4,
        left: vec![Left { token: 11, mark: taken.mark }],
        source: "tx".into(),
    };
    assert_eq!(two.free_slots(&[Release { own, used: 1_001 }]).expect("an answer"), [true]);
    // Store 1 has the row, so its worker needs no answer of store 2.
    b.set_down(true);
    clock.advance(PAUSE_MS);
    assert_eq!(two.begin_mark(&begin(4)).expect("a mark"), 1_001);
}

#[test]
fn a_worker_that_is_leased_under_one_list_of_stores_is_not_begun_under_another() {
    for worker in [4, 5] {
        let [a, b] = memories();
        alone(&a).take_slot(&take(worker, "tx")).expect("a slot");
        let begun = of_memories(&[&a, &b], CHUNK).begin_mark(&begin(worker));
        assert!(begun.is_err(), "worker {worker} of [a] is leased, and [a, b] begin with it at {begun:?}");
        let [a, b] = memories();
        of_memories(&[&a, &b], CHUNK).take_slot(&take(worker, "tx")).expect("a slot");
        let begun = alone(&a).begin_mark(&begin(worker));
        assert!(begun.is_err(), "worker {worker} of [a, b] is leased, and [a] begins with it at {begun:?}");
    }
}

#[test]
fn a_fixed_worker_of_one_list_of_stores_is_not_leased_under_another() {
    for worker in [4, 5] {
        let [a, b] = memories();
        assert_eq!(alone(&a).begin_mark(&begin(worker)).expect("a mark"), 1);
        alone(&a).raise(&row(worker), Some(1), 1_002).expect("raised");
        let taken = of_memories(&[&a, &b], CHUNK).take_slot(&take(worker, "tx"));
        assert!(taken.is_err(), "worker {worker} is in use in [a], and [a, b] lease it: {taken:?}");
    }
}

#[test]
fn another_pool_of_another_list_of_stores_does_not_lease_what_this_one_leases() {
    for worker in [4, 5] {
        let [a, b] = memories();
        alone(&a).take_slot(&take(worker, "tx")).expect("a slot");
        let mut two = of_memories(&[&a, &b], CHUNK);
        let refused = two.take_slot(&take(worker, "tx")).expect_err("another list of stores");
        assert!(wordless::says(&refused, "with other `stores` or another order"), "{refused}");
        let taken = two.take_slot(&take(worker, "another"));
        assert!(taken.is_err(), "worker {worker} is in use in [a], and [a, b] lease it: {taken:?}");
    }
}

#[test]
fn a_close_raises_every_mark_that_it_can_and_waits_for_a_silent_store_once() {
    let [a, b] = memories();
    let clock = Arc::new(ManualClock::new(0));
    let mut store = of_memories(&[&a, &b], CHUNK).with_clock(Clock::Manual(Arc::clone(&clock)));
    for worker in 0..40 {
        store.begin_mark(&begin(worker)).expect("a mark");
    }
    // The first store is back from an outage that this process has seen, and the second one falls silent.
    a.set_down(true);
    store.raise(&row(0), Some(1), 2).expect_err("it is down");
    a.set_down(false);
    b.set_silent(Some(Silence { clock, timeout_ms: 5_000 }));
    let before = b.asked();
    store.closing();
    for worker in (0..40).rev() {
        match store.raise(&row(worker), Some(1), 5_000) {
            Ok(_) => assert_eq!(worker % 2, 0),
            Err(fault) => assert!(worker % 2 == 1, "{fault}"),
        }
    }
    assert_eq!(b.asked() - before, 1);
}

/// A mill over these stores.
fn mill_over(stores: [&str; 2]) -> (Mill, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("x")).expect("a folder");
    let file = folder.path().join("keymill.toml");
    let stores =
        stores.map(|store| format!("{:?}", store.replace("{}", &folder.path().display().to_string())));
    write_private(&file, &format!("stores = [{}]\n", stores.join(", ")));
    (Mill::open(&format!("file:{}", file.display())).expect("a mill"), folder)
}

/// A new source of each kind, which begins when every store answers.
const NEW_SOURCES: [&str; 5] = [
    "segment:orders?deadline=2s",
    "snowflake:fixed4?worker=4&deadline=2s",
    "snowflake:fixed5?worker=5&deadline=2s",
    "snowflake:leased?deadline=2s",
    "business:bank?counters=2&deadline=2s",
];

#[test]
fn a_new_source_of_every_kind_waits_for_the_store_that_is_down_and_names_no_other_source() {
    let (mill, _folder) = mill_over(["sqlite:{}/a.db", "mysql://nobody@127.0.0.1:1/nowhere?tls=off"]);
    for spec in NEW_SOURCES {
        let source = mill.source(spec).expect("a source");
        let since = std::time::Instant::now();
        let error = if spec.starts_with("business") { source.next_for(1) } else { source.next() };
        let error = error.expect_err("a store is down");
        assert_eq!(error.code, Code::StoreUnavailable, "{spec}: {error}");
        assert!(since.elapsed() >= std::time::Duration::from_millis(300), "{spec} has not waited: {error}");
        if wordless::is_on() {
            continue;
        }
        assert!(error.message.contains("store 2 of 2"), "{spec}: {error}");
        for other in NEW_SOURCES.iter().filter(|other| **other != spec) {
            let name = other.split([':', '?']).nth(1).expect("a name");
            assert!(!error.message.contains(name), "{spec} blames `{name}`: {error}");
        }
    }
}

#[test]
fn a_store_that_is_listed_under_two_names_gives_no_source_of_any_kind_a_first_id() {
    for stores in [["sqlite:{}/a.db", "sqlite:{}/x/../a.db"], ["sqlite:{}/x/../a.db", "sqlite:{}/a.db"]] {
        let (mill, folder) = mill_over(stores);
        for spec in NEW_SOURCES {
            let source = mill.source(spec).expect("a source");
            let first = if spec.starts_with("business") { source.next_for(1) } else { source.next() };
            let error = first.expect_err(spec);
            assert_eq!(error.code, Code::StoreRefused, "{spec}: {error}");
        }
        mill.close();
        // No id was given, so the worker begins where the list is right.
        let alone = Mill::open(&format!("sqlite:{}/a.db", folder.path().display())).expect("a mill");
        for worker in [4, 5] {
            alone
                .source(&format!("snowflake:fixed{worker}?worker={worker}"))
                .expect("a source")
                .next()
                .expect("an id");
        }
    }
}
