//! One of several stores accepts requests and never answers. What another store can serve waits for one timeout of it, once.
//!
//! Time is virtual where a test counts: a request to the silent store moves the clock on by its timeout.

use std::sync::Arc;

use keymill::store::interleave::Interleaved;
use keymill::store::memory::{Memory, MemoryStore, Silence};
use keymill::store::{
    BankSpec, BankStore, BeginMark, Catalogue, FaultKind, GiveBack, Key, Mark, Places, Release, Renewal,
    Request, RouteStore, RowStore, Scheme, SlotStore,
};
use keymill::time::{Clock, ManualClock};
use keymill_tests::lease;

use super::{CHUNK, PAUSE_MS, banks, key, marks, memories, of_memories, orders, owner, take};

/// The timeout of the silent store.
const TIMEOUT_MS: u64 = 2_000;

/// How many sources there are of a kind.
const MANY: u64 = 20;

/// A store that is well, one that may fall silent, and the clock of their clients.
struct Two {
    well: Arc<Memory>,
    other: Arc<Memory>,
    clock: Arc<ManualClock>,
}

impl Two {
    fn new() -> Two {
        let [well, other] = memories();
        Two { well, other, clock: Arc::new(ManualClock::new(0)) }
    }

    fn open(&self) -> Interleaved {
        of_memories(&[&self.well, &self.other], CHUNK).with_clock(Clock::Manual(Arc::clone(&self.clock)))
    }

    fn silence(&self) {
        self.other.set_silent(Some(Silence { clock: Arc::clone(&self.clock), timeout_ms: TIMEOUT_MS }));
    }

    /// How often the silent store is asked meanwhile.
    fn asked(&self, work: impl FnOnce()) -> u64 {
        let before = self.other.asked();
        work();
        self.other.asked() - before
    }

    /// The same for a client that has just begun.
    fn asked_by_new(&self, work: impl FnOnce(&mut Interleaved)) -> u64 {
        let mut store = self.open();
        self.asked(|| work(&mut store))
    }
}

fn segments() -> Vec<Request> {
    (0..MANY).map(|n| keymill_tests::request(&key(Scheme::Keymill, &format!("s{n}")), 100)).collect()
}

#[test]
fn segments_that_have_begun_wait_for_it_once() {
    let two = Two::new();
    for mut request in segments() {
        take(&mut two.open(), &mut request, 1);
    }
    two.silence();
    let asked = two.asked_by_new(|store| {
        for request in &mut segments() {
            take(store, request, 10);
        }
    });
    assert_eq!(asked, 1);
    // A new source needs it, and does not wait for it again.
    let asked = two.asked_by_new(|store| {
        for n in 0..MANY {
            let new = keymill_tests::request(&key(Scheme::Keymill, &format!("new{n}")), 1);
            assert_eq!(store.reserve(&new).expect_err("it is new").kind, FaultKind::Unavailable);
        }
    });
    assert_eq!(asked, 1);
}

#[test]
fn a_store_that_stays_silent_costs_a_twentieth_of_the_time_at_most() {
    let two = Two::new();
    let mut request = orders(100);
    let mut store = two.open();
    take(&mut store, &mut request, 1);
    two.silence();
    let began_ms = two.clock.boot_ms();
    let asked = two.asked(|| {
        while two.clock.boot_ms() < began_ms + 3_600_000 {
            take(&mut store, &mut request, 1);
            two.clock.advance(10);
        }
    });
    let waited_ms = asked * TIMEOUT_MS;
    assert!(waited_ms * 20 <= two.clock.boot_ms() - began_ms, "it was asked {asked} times in an hour");
    assert!(asked > 30, "it may be back: it was asked {asked} times in an hour");
    // It is back.
    two.other.set_silent(None);
    let until_ms = two.clock.boot_ms() + PAUSE_MS;
    while two.clock.boot_ms() < until_ms {
        take(&mut store, &mut request, 1);
        two.clock.advance(100);
    }
    let owners: Vec<u64> = take(&mut store, &mut request, 25).iter().map(|(lo, _)| owner(*lo, 2)).collect();
    assert!(owners.contains(&1), "{owners:?}");
}

fn counters(indexes: std::ops::Range<u32>, seen: u64) -> Vec<Request> {
    indexes.map(|index| banks::request(index, 16, seen)).collect()
}

#[test]
fn a_bank_goes_on_with_counters_that_were_used_and_with_those_that_were_not() {
    for silent in 0..2 {
        let two = Two::new();
        let two = if silent == 0 { Two { well: two.other, other: two.well, ..two } } else { two };
        let open = |two: &Two| {
            let stores = if silent == 0 { [&two.other, &two.well] } else { [&two.well, &two.other] };
            of_memories(&stores, CHUNK).with_clock(Clock::Manual(Arc::clone(&two.clock)))
        };
        let spec = BankSpec { counters: 65_536, is_named: true, wide: false };
        let mut old = open(&two);
        old.open_bank(&banks::bank(), spec).expect("a new bank");
        for _ in 0..400 {
            banks::all(old.reserve_counters(&counters(0..100, 0)));
        }
        two.silence();
        let mut new = open(&two);
        for store in [&mut old, &mut new] {
            let asked = two.asked(|| {
                store.open_bank(&banks::bank(), spec).expect("it has begun");
                // Warm ones together, cold ones together, and cold ones one by one.
                for indexes in [0..100, 1_000..1_400, 0..100, 65_000..65_536] {
                    banks::all(store.reserve_counters(&counters(indexes, 0)));
                }
                for index in 2_000..2_050 {
                    banks::all(store.reserve_counters(&counters(index..index + 1, 0)));
                }
            });
            assert_eq!(asked, 1, "silent: {silent}");
        }
    }
}

#[test]
fn a_batch_of_counters_waits_once_where_every_store_is_silent() {
    for is_used in [true, false] {
        let two = Two::new();
        let mut store = two.open();
        let spec = BankSpec { counters: 65_536, is_named: true, wide: false };
        store.open_bank(&banks::bank(), spec).expect("a new bank");
        if is_used {
            banks::all(store.reserve_counters(&counters(0..100, 0)));
        }
        two.silence();
        two.well.set_silent(Some(Silence { clock: Arc::clone(&two.clock), timeout_ms: TIMEOUT_MS }));
        let began_ms = two.clock.boot_ms();
        for answer in store.reserve_counters(&counters(0..100, 0)) {
            assert_eq!(answer.expect_err("no store answers").kind, FaultKind::Unavailable);
        }
        let timeouts = (two.clock.boot_ms() - began_ms) / TIMEOUT_MS;
        assert!(timeouts <= 3, "used: {is_used}: {timeouts} timeouts");
        two.well.set_silent(None);
        two.clock.advance(PAUSE_MS);
        if is_used {
            banks::all(store.reserve_counters(&counters(0..100, 0)));
        }
    }
}

fn pool(n: u64) -> Arc<Key> {
    Arc::new(Key::pool("keymill_worker", &format!("tx{n}")))
}

#[test]
fn leased_workers_wait_for_it_once() {
    let two = Two::new();
    for n in 0..MANY {
        for token in 1..=2 {
            two.open().take_slot(&lease::take(pool(n), token)).expect("a slot");
        }
    }
    two.silence();
    let mut leased = Vec::new();
    let mut store = two.open();
    let asked = two.asked(|| {
        for n in 0..MANY {
            leased.push((n, store.take_slot(&lease::take(pool(n), 100 + n)).expect("a slot").slot));
        }
    });
    assert_eq!(asked, 1);
    assert!(leased.iter().all(|(_, slot)| slot % 2 == 0), "{leased:?}");
    let own = |n: u64, slot: u64| keymill::store::OwnSlot {
        key: pool(n),
        slot,
        left: vec![keymill::store::Left { token: 100 + n, mark: lease::MARK }],
        source: "".into(),
    };
    let asked = two.asked(|| {
        for &(n, slot) in &leased {
            let to = keymill::store::Left { token: 200 + n, mark: lease::MARK + 5 };
            let renewal = Renewal { own: own(n, slot), to, lease_ms: lease::LEASE_MS };
            let renewed = store.renew_slots(&[renewal]).expect("renewed");
            assert!(renewed.marks.iter().all(Result::is_ok), "{renewed:?}");
            let mut own = own(n, slot);
            own.left = vec![to];
            assert_eq!(store.free_slots(&[Release { own, used: 1_001 }]), Ok(vec![true]));
        }
    });
    assert_eq!(asked, 0);
}

#[test]
fn a_lease_of_the_store_that_was_silent_is_renewed_before_it_ends() {
    let two = Two::new();
    let mut store = two.open();
    let only = |slot, token| keymill::store::Take {
        slots: keymill::store::Slots { first: slot, last: slot },
        ..lease::take(pool(0), token)
    };
    two.other.set_clock(Clock::Manual(Arc::clone(&two.clock)));
    let lease_ms = 30_000;
    store.take_slot(&keymill::store::Take { lease_ms, ..only(1, 7) }).expect("a slot of the other store");
    let began_ms = two.clock.boot_ms();
    two.silence();
    let own = keymill::store::OwnSlot {
        key: pool(0),
        slot: 1,
        left: vec![keymill::store::Left { token: 7, mark: lease::MARK }],
        source: "".into(),
    };
    let renewal = Renewal { own, to: keymill::store::Left { token: 8, mark: lease::MARK + 5 }, lease_ms };
    // It answers again when two thirds of the lease are over. The keeper asks for it every second.
    let mut renewed = Err(keymill::store::Fault::new(FaultKind::Unavailable, "not asked"));
    while renewed.is_err() && two.clock.boot_ms() < began_ms + lease_ms {
        if two.clock.boot_ms() > began_ms + lease_ms * 2 / 3 {
            two.other.set_silent(None);
        }
        renewed = store.renew_slots(std::slice::from_ref(&renewal)).and_then(|mut done| done.marks.remove(0));
        two.clock.advance(1_000);
    }
    assert!(renewed.is_ok(), "{renewed:?}");
}

fn fixed(worker: u64) -> BeginMark {
    marks::begin(worker)
}

#[test]
fn fixed_workers_that_have_begun_in_the_other_store_wait_for_it_once() {
    let two = Two::new();
    for worker in (0..MANY).map(|n| 2 * n) {
        two.open().begin_mark(&fixed(worker)).expect("a mark");
    }
    two.silence();
    let asked = two.asked_by_new(|store| {
        for worker in (0..MANY).map(|n| 2 * n) {
            assert_eq!(store.begin_mark(&fixed(worker)).expect("its store answers"), 1);
            store.clock_ms(&fixed(worker).key).expect("a time");
            store.raise(&fixed(worker).key, Some(1), 1_000).expect("raised");
            store.raise(&fixed(worker).key, Some(1_000), 2_000).expect("raised");
            assert!(
                store.give_back(&GiveBack::new(&fixed(worker).key, 0, 1_500, 2_000)).expect("given back")
            );
        }
    });
    assert_eq!(asked, 1);
    // Workers of the silent store, and new ones, are told at once after that, and what needs only the other store goes on.
    let asked = two.asked_by_new(|store| {
        for n in 0..MANY {
            store.begin_mark(&fixed(2 * n + 1)).expect_err("its store is silent");
            store.begin_mark(&fixed(1_000 + 2 * n)).expect_err("it is new");
        }
    });
    assert_eq!(asked, 1);
}

fn route(n: u64) -> Key {
    Key::of_route(&format!("r{n}"))
}

#[test]
fn route_tables_wait_for_it_once() {
    let two = Two::new();
    for n in 0..MANY {
        assert_eq!(two.open().replace_route(&route(n), None, (3, "three")), Ok(true));
    }
    two.silence();
    let asked = two.asked_by_new(|store| {
        for n in 0..MANY {
            let found = store.read_route(&route(n), 0).expect("an answer").expect("a table");
            assert_eq!(found.version, 3);
            assert_eq!(store.list_routes(&route(n)).expect("an answer").len() as u64, MANY);
        }
    });
    assert_eq!(asked, 1);
}

#[test]
fn what_status_asks_waits_for_it_once() {
    let two = Two::new();
    let spec = BankSpec { counters: 16, is_named: true, wide: false };
    two.open().open_bank(&banks::bank(), spec).expect("a new bank");
    two.open().take_slot(&lease::take(pool(0), 1)).expect("a slot");
    for mut request in segments() {
        take(&mut two.open(), &mut request, 1);
    }
    two.silence();
    let asked = two.asked_by_new(|store| {
        for request in segments() {
            assert!(store.look(&request.key).expect("an answer").is_some());
            assert_eq!(
                store.warnings_of(&request.key).expect("an answer").len(),
                1,
                "the silent one is told"
            );
            assert!(store.slots(&pool(0)).expect("an answer").record.is_some());
            store.facts().expect("an answer");
            assert!(store.look_bank(&banks::bank(), 1).expect("an answer").is_some());
            assert_eq!(store.look(&banks::bank()).expect("an answer").map(|row| row.mark.period), Some(0));
        }
    });
    assert_eq!(asked, 1);
}

#[test]
fn what_is_given_back_waits_for_it_once() {
    let two = Two::new();
    let mut store = two.open();
    let mut given = Vec::new();
    for request in &mut segments() {
        let ranges = take(&mut store, request, 1);
        given.push(GiveBack {
            key: Arc::clone(&request.key),
            period: 0,
            lo: ranges[0].1 - 50,
            hi: ranges[0].1,
            writer: 0,
        });
    }
    let requests = counters(0..20, 0);
    let of_bank: Vec<_> = requests
        .iter()
        .zip(banks::all(store.reserve_counters(&requests)))
        .map(|(request, (_, hi))| GiveBack {
            key: Arc::clone(&request.key),
            period: 0,
            lo: hi - 5,
            hi,
            writer: 0,
        })
        .collect();
    two.silence();
    let asked = two.asked(|| {
        let mut all = Vec::new();
        for range in &given {
            all.extend(store.give_back_all(std::slice::from_ref(range)).expect("the other store answers"));
        }
        let first = owner(1, 2);
        assert_eq!(first, 0);
        assert!(all.iter().all(|given| *given), "new sources begin in the first store: {all:?}");
        let banks = store.give_back_counters(&of_bank).expect("the other store answers");
        assert!(banks.iter().all(|given| *given), "{banks:?}");
    });
    assert_eq!(asked, 0);
    // Numbers of the silent store are lost, and those of the other are given back.
    let of_silent =
        |n: u64| GiveBack::new(&key(Scheme::Keymill, &format!("s{n}")), 0, CHUNK + 1, CHUNK + 101);
    let asked = two.asked(|| {
        for n in 0..MANY {
            assert_eq!(store.give_back_all(&[of_silent(n)]), Ok(vec![false]));
        }
    });
    assert_eq!(asked, 1);
}

#[test]
fn the_last_marks_of_a_close_wait_for_it_once_whatever_its_pause() {
    let two = Two::new();
    let mut store = two.open();
    for worker in 0..2 * MANY {
        store.begin_mark(&fixed(worker)).expect("a mark");
    }
    two.silence();
    store.raise(&fixed(1).key, Some(1), 1_000).expect_err("its store is silent");
    two.clock.advance(1);
    store.closing();
    let asked = two.asked(|| {
        for n in 0..MANY {
            store.raise(&fixed(2 * n + 1).key, Some(1), 1_000).expect_err("its store is silent");
            store.raise(&fixed(2 * n).key, Some(1), 1_000).expect("the other store answers");
        }
    });
    assert_eq!(asked, 1);
}

#[test]
fn what_needs_every_store_asks_it_again_each_time() {
    let two = Two::new();
    let request = orders(1);
    take(&mut two.open(), &mut request.clone(), 1);
    assert_eq!(two.open().replace_route(&route(0), None, (3, "three")), Ok(true));
    two.silence();
    let asked = two.asked_by_new(|store| {
        for _ in 0..3 {
            store.repair(&request.key, Mark { period: 0, next: 50_000 }).expect_err("it is silent");
        }
    });
    assert_eq!(asked, 3);
    two.other.set_silent(None);
    let mut store = two.open();
    two.silence();
    store.replace_route(&route(0), Some(3), (4, "four")).expect_err("it is silent");
    two.other.set_silent(None);
    // An operator does not wait for a pause.
    assert_eq!(store.replace_route(&route(0), Some(3), (4, "four")), Ok(true));
    store.repair(&request.key, Mark { period: 0, next: 50_000 }).expect("it answers again");
    let places: &Places = &fixed(1).places;
    assert_eq!(places.source, "tx");
    assert!(MemoryStore::new(Arc::clone(&two.other)).look(&request.key).expect("an answer").is_some());
}
