//! Route tables over several stores: a change that some of them have is named, and one version with two texts is told.

use keymill::store::memory::{Memory, MemoryStore, Step};
use keymill::store::{FaultKind, Key, RouteStore, StoredTable};
use keymill_tests::wordless;

use super::{CHUNK, memories, of_memories};

fn orders() -> Key {
    Key::of_route("orders")
}

fn put(memory: &std::sync::Arc<Memory>, version: u64, text: &str) {
    let mut store = MemoryStore::new(memory.clone());
    let before = store.read_route(&orders(), 0).expect("an answer").map(|table| table.version);
    assert_eq!(store.replace_route(&orders(), before, (version, text)), Ok(true));
}

fn stored(memory: &std::sync::Arc<Memory>) -> Option<StoredTable> {
    MemoryStore::new(memory.clone()).read_route(&orders(), 0).expect("an answer")
}

#[test]
fn a_put_that_one_of_several_stores_did_not_take_names_those_that_did_and_is_repeated() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    assert_eq!(store.replace_route(&orders(), None, (8, "eight")), Ok(true));
    b.fail_next(Step::NotApplied);
    let fault = store.replace_route(&orders(), Some(8), (9, "nine")).expect_err("one of them failed");
    for part in [
        "store 2 of 2 (memory:1)",
        "stored in 1 of 2 stores (store 1 of 2 (memory:0))",
        "run the same command again",
    ] {
        assert!(wordless::says(&fault, part), "`{part}` is not in: {fault}");
    }
    assert_eq!(store.read_route(&orders(), 0), Ok(Some(StoredTable::new(9, Some("nine".to_owned())))));
    assert_eq!(store.replace_route(&orders(), Some(9), (9, "nine")), Ok(true), "the same again");
    assert_eq!((stored(&a), stored(&b)), (stored(&b), Some(StoredTable::new(9, Some("nine".to_owned())))));
    assert_eq!(store.replace_route(&orders(), Some(9), (9, "nine")), Ok(true), "a third time");
}

#[test]
fn a_put_changes_nothing_where_a_store_does_not_answer() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    b.set_down(true);
    let fault = store.replace_route(&orders(), None, (9, "nine")).expect_err("one is down");
    assert!(wordless::says(&fault, "nothing was stored"), "{fault}");
    assert_eq!(stored(&a), None);
}

#[test]
fn one_version_with_two_texts_is_told_with_both_stores_until_a_higher_one_is_stored() {
    let [a, b] = memories();
    let mut store = of_memories(&[&a, &b], CHUNK);
    put(&a, 9, "nine");
    put(&b, 9, "another nine");
    let names = |said: &str| said.contains("memory:0") && said.contains("memory:1");
    let refused = store.read_route(&orders(), 0).expect("an answer").and_then(|table| table.refused);
    assert!(refused.is_some_and(|said| names(&said)));
    let listed = store.list_routes(&orders()).expect("an answer").remove(0);
    assert_eq!((listed.0.as_str(), listed.1.refused.is_some_and(|said| names(&said))), ("orders", true));
    for text in ["nine", "another nine", "a third nine"] {
        let fault = store.replace_route(&orders(), Some(9), (9, text)).expect_err(text);
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
    }
    assert_eq!(store.replace_route(&orders(), Some(9), (10, "ten")), Ok(true));
    assert_eq!((stored(&a), stored(&b)), (stored(&b), Some(StoredTable::new(10, Some("ten".to_owned())))));
}

#[test]
fn a_store_with_an_impossible_version_hides_no_newer_table_of_another_one() {
    let [a, b] = memories();
    put(&a, 7, "seven");
    put(&b, 1 << 53, "nobody's");
    let mut store = of_memories(&[&a, &b], CHUNK);
    let fault = store.replace_route(&orders(), Some(1 << 53), (5, "five")).expect_err("7 is stored");
    assert_eq!(fault.kind, FaultKind::Refused);
    assert!(wordless::says(&fault, "store 1 of 2 (memory:0) has version 7"), "{fault}");
    assert_eq!(
        (stored(&a).map(|table| table.version), stored(&b).map(|table| table.version)),
        (Some(7), Some(1 << 53))
    );
    assert_eq!(store.replace_route(&orders(), Some(1 << 53), (8, "eight")), Ok(true));
}
