//! Leased workers over several stores: slot s lives in store s mod N.

use std::sync::Arc;

use keymill::store::memory::{Memory, Step};
use keymill::store::{
    Catalogue, FaultKind, Key, Left, OwnSlot, RaisePool, Release, Renewal, SlotStore, Slots, StoreIndex, Take,
};
use keymill_tests::{lease, wordless};

use crate::{CHUNK, PAUSE_MS, at_hand, memories, of_memories};

fn pool() -> Arc<Key> {
    Arc::new(Key::pool("keymill_worker", "tx"))
}

fn take(token: u64) -> Take {
    lease::take(pool(), token)
}

fn own(slot: u64, token: u64) -> OwnSlot {
    OwnSlot { key: pool(), slot, left: vec![Left { token, mark: 1_033 }], source: "".into() }
}

fn renewal(slot: u64, token: u64) -> Renewal {
    Renewal { own: own(slot, token), to: Left { token: token + 100, mark: 1_040 }, lease_ms: 60_000 }
}

fn slots_of(memory: &Arc<Memory>) -> Vec<u64> {
    let mut store = keymill::store::memory::MemoryStore::new(Arc::clone(memory));
    store.slots(&pool()).expect("the rows").slots.iter().map(|row| row.slot).collect()
}

#[test]
fn each_store_leases_the_slots_of_its_remainder() {
    let memories = memories::<3>();
    let mut stores = of_memories(&memories.each_ref(), CHUNK);
    let mut taken: Vec<_> =
        (1..=10).map(|token| stores.take_slot(&take(token)).expect("a slot").slot).collect();
    taken.sort_unstable();
    assert_eq!(taken, (0..10).collect::<Vec<_>>());
    for (at, memory) in memories.iter().enumerate() {
        assert!(slots_of(memory).iter().all(|slot| slot % 3 == at as u64), "{:?}", slots_of(memory));
    }
    assert_eq!(stores.slots(&pool()).expect("the rows").slots.len(), 10);
    assert_eq!(stores.take_slot(&take(11)).expect_err("nothing is free").kind, FaultKind::NoneFree);
}

#[test]
fn a_store_that_is_down_loses_its_own_leases_only() {
    let memories = memories::<2>();
    let mut stores = of_memories(&memories.each_ref(), CHUNK);
    // One more than a store has, so that both have some, whichever are drawn.
    let taken: Vec<_> =
        (1..=6).map(|token| (stores.take_slot(&take(token)).expect("a slot").slot, token)).collect();
    memories[1].set_down(true);
    let renewals: Vec<_> = taken.iter().map(|(slot, token)| renewal(*slot, *token)).collect();
    let renewed = stores.renew_slots(&renewals).expect("one store answers");
    for ((slot, _), mark) in taken.iter().zip(&renewed.marks) {
        assert_eq!(mark.is_ok(), slot % 2 == 0, "slot {slot}: {mark:?}");
    }
    let more = Take { slots: Slots { first: 0, last: 99 }, ..take(7) };
    let next = stores.take_slot(&more).expect("a slot of the other store");
    assert_eq!(next.slot % 2, 0);
    memories[0].set_down(true);
    assert!(stores.take_slot(&take(8)).expect_err("both are down").kind.is_outage());
}

#[test]
fn slots_are_freed_where_they_live() {
    let memories = memories::<2>();
    let mut stores = of_memories(&memories.each_ref(), CHUNK);
    let taken: Vec<_> =
        (1..=4).map(|token| (stores.take_slot(&take(token)).expect("a slot").slot, token)).collect();
    let releases = taken.iter().map(|(slot, token)| Release { own: own(*slot, *token), used: 1_001 });
    assert_eq!(stores.free_slots(&releases.collect::<Vec<_>>()).expect("freed"), [true; 4]);
    let rows = stores.slots(&pool()).expect("the rows").slots;
    assert!(rows.iter().all(|row| row.ends_at == 0 && row.mark == 1_001), "{rows:?}");
}

#[test]
fn a_pool_of_another_number_of_stores_is_refused() {
    let memories = memories::<3>();
    let [one, two, three] = memories.each_ref();
    let mut of_two = of_memories(&[one, two], CHUNK);
    for token in 1..=4 {
        of_two.take_slot(&take(token)).expect("a slot");
    }
    let mut of_three = of_memories(&[one, two, three], CHUNK);
    for token in 5..10 {
        assert_eq!(of_three.take_slot(&take(token)).expect_err("refused").kind, FaultKind::Refused);
    }
    assert!(slots_of(three).is_empty());
}

#[test]
fn a_new_pool_begins_when_every_store_answers_and_goes_on_without_one() {
    let memories = memories::<2>();
    memories[1].set_down(true);
    let (mut stores, clock) = at_hand(&memories.each_ref());
    assert!(stores.take_slot(&take(1)).expect_err("one is down").kind.is_outage());
    memories[1].set_down(false);
    clock.advance(PAUSE_MS);
    assert!(stores.take_slot(&take(2)).is_ok());
    memories[1].set_down(true);
    // Another process of the same configuration.
    let mut others = of_memories(&memories.each_ref(), CHUNK);
    assert_eq!(others.take_slot(&take(3)).expect("a slot").slot % 2, 0);
}

#[test]
fn a_store_that_took_the_place_of_the_only_one_with_leases_leases_none() {
    let [a, b, c] = memories();
    let one = |token| Take { slots: Slots { first: 1, last: 1 }, ..take(token) };
    of_memories(&[&a, &b], CHUNK).take_slot(&one(1)).expect("a slot of the second store");
    assert!(slots_of(&a).is_empty());
    let fault = of_memories(&[&a, &c], CHUNK).take_slot(&one(2)).expect_err("its store has no record");
    assert!(wordless::says(&fault, "it has no record of pool"), "{fault}");
    assert!(slots_of(&c).is_empty());
}

#[test]
fn a_pool_whose_beginning_was_cut_off_leases_none_while_a_store_is_down() {
    let [a, b] = memories();
    b.fail_next(Step::NotApplied);
    assert!(of_memories(&[&a, &b], CHUNK).take_slot(&take(1)).expect_err("no record").kind.is_outage());
    b.set_down(true);
    // Were one leased here, a list of `b` and a new store would know nothing of it.
    let fault = of_memories(&[&a, &b], CHUNK).take_slot(&take(2)).expect_err("it has not begun");
    assert!(fault.kind.is_outage(), "{fault}");
    assert!(slots_of(&a).is_empty());
    b.set_down(false);
    of_memories(&[&a, &b], CHUNK).take_slot(&take(3)).expect("a slot");
    b.set_down(true);
    of_memories(&[&a, &b], CHUNK).take_slot(&take(4)).expect("a slot of the other store");
}

#[test]
fn a_store_that_took_the_place_of_another_leases_no_worker_of_a_pool_that_has_begun() {
    let [a, b, c] = memories();
    let mut stores = of_memories(&[&a, &b], CHUNK);
    for token in 1..=4 {
        stores.take_slot(&take(token)).expect("a slot");
    }
    let mut replaced = of_memories(&[&a, &c], CHUNK);
    let wide = |token| Take { slots: Slots { first: 0, last: 99 }, ..take(token) };
    for token in 5..=20 {
        assert_eq!(replaced.take_slot(&wide(token)).expect("a slot").slot % 2, 0);
    }
    assert!(slots_of(&c).is_empty());
    assert_eq!(replaced.news().len(), 1, "it is told once");
    let one = Take { slots: Slots { first: 1, last: 1 }, ..take(21) };
    let fault = replaced.take_slot(&one).expect_err("its store has no record");
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(wordless::says(&fault, "it has no record of pool"), "{fault}");
    // What the message says helps.
    let raise =
        RaisePool { key: pool(), layout: one.layout.clone(), store: StoreIndex::ONLY, to: 1_002, token: 77 };
    replaced.raise_pool(&raise).expect("raised");
    let taken = replaced.take_slot(&one).expect("a slot");
    assert_eq!((taken.slot, taken.start), (1, 1_002));
}

#[test]
fn a_store_that_was_down_while_a_pool_was_compared_is_compared_before_it_leases_a_worker() {
    let [a, b, c] = memories();
    let mut stores = of_memories(&[&a, &b], CHUNK);
    for token in 1..=4 {
        stores.take_slot(&take(token)).expect("a slot");
    }
    let wide = |token| Take { slots: Slots { first: 0, last: 99 }, ..take(token) };
    // `c` took the place of `b`, and does not answer yet.
    c.set_down(true);
    let (mut replaced, clock) = at_hand(&[&a, &c]);
    assert_eq!(replaced.take_slot(&wide(5)).expect("a slot").slot % 2, 0);
    c.set_down(false);
    // While it has its pause, and after it.
    let one = |token| Take { slots: Slots { first: 1, last: 1 }, ..take(token) };
    replaced.take_slot(&one(6)).expect_err("its store has no record");
    clock.advance(PAUSE_MS);
    let _ = replaced.news();
    for token in 7..=20 {
        assert_eq!(replaced.take_slot(&wide(token)).expect("a slot").slot % 2, 0);
    }
    assert!(slots_of(&c).is_empty());
    assert_eq!(replaced.news().len(), 1, "it is told once");
    let fault = replaced.take_slot(&one(21)).expect_err("its store has no record");
    assert!(wordless::says(&fault, "it has no record of pool"), "{fault}");
}

#[test]
fn a_store_that_lost_its_rows_after_a_pool_was_compared_leases_none() {
    let [a, b] = memories();
    let empty = b.snapshot();
    let (mut stores, _) = at_hand(&[&a, &b]);
    let wide = |token| Take { slots: Slots { first: 0, last: 99 }, ..take(token) };
    for token in 1..=4 {
        stores.take_slot(&wide(token)).expect("a slot");
    }
    b.restore(&empty);
    for token in 5..=20 {
        assert_eq!(stores.take_slot(&wide(token)).expect("a slot of the other store").slot % 2, 0);
    }
    assert!(slots_of(&b).is_empty());
    let one = Take { slots: Slots { first: 1, last: 1 }, ..take(21) };
    let fault = stores.take_slot(&one).expect_err("its store has lost the record");
    assert!(wordless::says(&fault, "it has no record of pool"), "{fault}");
}

#[test]
fn a_pool_that_began_in_some_stores_only_goes_on_where_no_slot_was_leased() {
    let [a, b] = memories();
    let mut stores = of_memories(&[&a, &b], CHUNK);
    b.fail_next(Step::NotApplied);
    assert!(stores.take_slot(&take(1)).expect_err("no record").kind.is_outage());
    let mut others = of_memories(&[&a, &b], CHUNK);
    for token in 2..=8 {
        others.take_slot(&take(token)).expect("a slot");
    }
    assert!(!slots_of(&a).is_empty() && !slots_of(&b).is_empty());
}
