//! Tests for the store in memory alone: scripts, snapshots, names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keymill::store::memory::{Memory, Step};
use keymill::store::{FaultKind, Request};

use crate::bench::*;
use crate::kind;

#[test]
fn scripted_outcomes_happen_in_order() {
    let bench = Bench::memory(Kind::Segment);
    let Place::Memory(memory) = &bench.place else { unreachable!() };
    let mut store = bench.open();
    let request = bench.request("orders", 10);
    memory.script([
        Step::Lost,
        Step::NotApplied,
        Step::Cut,
        Step::Refused("no".to_owned()),
        Step::Frozen(Duration::from_millis(20)),
        Step::Lost,
        Step::Ack,
    ]);
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unknown);
    assert_eq!(bench.stands_at("orders"), Some(11), "applied all the same");
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unavailable);
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unknown);
    assert_eq!(kind(store.reserve(&request)), FaultKind::Refused);
    assert_eq!(bench.stands_at("orders"), Some(11));
    let frozen = Instant::now();
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unknown);
    assert!(frozen.elapsed() >= Duration::from_millis(20));
    assert_eq!(store.reserve(&request).unwrap().lo, 21);
    let backup = memory.snapshot();
    assert_eq!(store.reserve(&request).unwrap().lo, 31);
    memory.restore(&backup);
    let seen = Request { high_water: bench.mark(41), ..request.clone() };
    assert_eq!(kind(store.reserve(&seen)), FaultKind::WentBackwards);
    memory.set_down(true);
    assert_eq!(kind(store.reserve(&request)), FaultKind::Unavailable);
    memory.set_down(false);
    assert_eq!(store.reserve(&request).unwrap().lo, 31);
}

#[test]
fn a_named_memory_is_shared_while_a_handle_of_it_exists() {
    let name = unique("memory");
    let first = Memory::named(&name);
    assert!(Arc::ptr_eq(&first, &Memory::named(&name)));
    assert!(!Arc::ptr_eq(&first, &Memory::named(&unique("memory"))));
}
