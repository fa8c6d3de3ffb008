//! Counters whose refill was refused: when they are asked for again, and what becomes of their neighbours.

use super::tests::Stage;
use super::{BankAnswer, BankAsk};
use crate::error::Code;
use crate::gene::Gene;
use crate::planner::Batch;
use crate::store::{BankStore, Fault, FaultKind};

/// What becomes of the background refill of a counter that this answer failed, without a caller that lacks numbers.
fn asked_again_after(fault: &Fault, is_bank_used: bool) -> bool {
    let mut stage = Stage::new("business:b?counters=4");
    stage.numbers(0, 1);
    let asked = |stage: &mut Stage| match stage.keeper.poll(stage.now(), 1) {
        Some(Batch::Bank(slot, BankAsk::Reserve { indexes, .. })) => Some((slot, indexes)),
        None => None,
        other => panic!("{other:?}"),
    };
    let (slot, indexes) = loop {
        stage.bank.try_take(Gene::from(0), 1, 1).expect("a number in memory");
        if let Some(asked) = asked(&mut stage) {
            break asked;
        }
    };
    assert!(stage.bank.holds(0).left > 0, "no caller lacks one");
    let answers = indexes.iter().map(|_| Err(fault.clone())).collect();
    stage.keeper.complete_bank(slot, BankAnswer::Reserved(indexes, answers), stage.now());
    for _ in 0..600 {
        stage.clock.advance(100);
        if is_bank_used {
            // Another counter wakes the keeper.
            let _ = stage.bank.try_take(Gene::from(u16::MAX), 1, 1);
        } else if stage.keeper.wake_at(stage.now()).is_none() {
            return false;
        }
        if let Some((slot, indexes)) = asked(&mut stage) {
            if indexes.contains(&0) {
                return true;
            }
            let answers = indexes.iter().map(|_| Err(Fault::new(FaultKind::Conflict, "x"))).collect();
            stage.keeper.complete_bank(slot, BankAnswer::Reserved(indexes, answers), stage.now());
        }
    }
    false
}

#[test]
fn a_refill_that_failed_is_asked_for_again_before_its_counter_is_dry() {
    let down = Fault::new(FaultKind::Unavailable, "down");
    let locked = Fault::new(FaultKind::Locked, "held");
    let each = [("outage", down.clone()), ("outage of one store", down.of_one_store()), ("locked", locked)];
    for is_bank_used in [true, false] {
        let each = each.each_ref().map(|(name, fault)| (*name, asked_again_after(fault, is_bank_used)));
        assert_eq!(
            each,
            [("outage", true), ("outage of one store", true), ("locked", true)],
            "{is_bank_used}"
        );
    }
}

#[test]
fn a_row_whose_changes_are_always_undone_is_found_and_rests_and_its_neighbours_are_served() {
    let mut stage = Stage::new("business:order?counters=64");
    let genes: Vec<u16> = (0..64).map(|index| index * 1_024).collect();
    stage.numbers(0, 1);
    for gene in &genes {
        while stage.bank.try_take(Gene::from(*gene), 1, 1).is_ok() {}
    }
    // A batch that has this row fails as a whole.
    let stuck = 5;
    let mut asked = 0;
    for _ in 0..200 {
        let Some(Batch::Bank(slot, ask)) = stage.keeper.poll(stage.now(), 1) else { break };
        let BankAsk::Reserve { indexes, requests } = ask else { panic!("{ask:?}") };
        asked += 1;
        let answers = if indexes.contains(&stuck) {
            indexes.iter().map(|_| Err(Fault::new(FaultKind::Conflict, "undone"))).collect()
        } else {
            stage.store.reserve_counters(&requests)
        };
        stage.keeper.complete_bank(slot, BankAnswer::Reserved(indexes, answers), stage.now());
    }
    assert!(asked < 100, "it is asked for without rest: {asked}");
    for (index, gene) in (0..).zip(&genes) {
        assert_eq!(stage.bank.try_take(Gene::from(*gene), 1, 1).is_ok(), index != stuck, "counter {index}");
    }
    let refused = stage.bank.try_take(Gene::from(genes[stuck as usize]), 1, 1).expect_err("it rests");
    assert_eq!(refused.code, Code::StoreUnavailable, "{refused}");
}

#[test]
fn a_counter_that_is_asked_for_alone_has_its_turn_beside_one_that_never_rests() {
    let mut stage = Stage::new("business:order?counters=64");
    let (hot, locked) = (0, 40);
    let drain = |stage: &Stage, index: u16| {
        while stage.bank.try_take(Gene::from(index * 1_024), 1, 1).is_ok() {}
    };
    let asked = |stage: &mut Stage| match stage.keeper.poll(stage.now(), 1) {
        Some(Batch::Bank(slot, BankAsk::Reserve { indexes, requests })) => (slot, indexes, requests),
        other => panic!("{other:?}"),
    };
    stage.next(0).expect("a number");
    stage.next(locked * 1_024).expect("a number");
    drain(&stage, locked);
    let (slot, indexes, _) = asked(&mut stage);
    assert_eq!(indexes, [u32::from(locked)]);
    let held = Fault::new(FaultKind::Locked, "held");
    stage.keeper.complete_bank(slot, BankAnswer::Reserved(indexes, vec![Err(held)]), stage.now());
    // The row is free again.
    stage.clock.advance(2_000);
    for _ in 0..4 {
        drain(&stage, hot);
        drain(&stage, locked);
        let (slot, indexes, requests) = asked(&mut stage);
        let answers = stage.store.reserve_counters(&requests);
        stage.keeper.complete_bank(slot, BankAnswer::Reserved(indexes.clone(), answers), stage.now());
        if indexes.contains(&u32::from(locked)) {
            return;
        }
    }
    panic!("its callers wait for as long as the other counter is used");
}
