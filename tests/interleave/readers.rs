//! Readers of route tables over several stores: each process has a row in every store that answers, and one is enough.

use std::sync::Arc;

use keymill::store::memory::{Memory, MemoryStore, Step};
use keymill::store::{FaultKind, KeepReader, Key, OwnReader, Reader, ReaderStore, StoreIndex};

use super::{CHUNK, at_hand, memories, of_memories, wordless};

fn orders() -> Arc<Key> {
    Arc::new(Key::of_readers("orders"))
}

fn keep(version: u64) -> KeepReader {
    KeepReader { version, lease_ms: 60_000, owner: "host:7".into(), store: StoreIndex::ONLY }
}

fn listed(memory: &Arc<Memory>) -> Vec<Reader> {
    MemoryStore::new(memory.clone()).all_readers(&orders()).expect("the store answers").all
}

fn versions(readers: &[Reader]) -> Vec<u64> {
    readers.iter().map(|reader| reader.version).collect()
}

#[test]
fn a_reader_has_a_row_in_each_store_and_is_listed_once() {
    let [a, b] = memories();
    let (mut store, mut own) = (of_memories(&[&a, &b], CHUNK), OwnReader::default());
    store.keep_reader(&orders(), &mut own, &keep(3)).expect("kept");
    store.keep_reader(&orders(), &mut own, &keep(4)).expect("kept");
    assert_eq!((versions(&listed(&a)), versions(&listed(&b))), (vec![4], vec![4]));
    assert_eq!(versions(&store.readers(&orders()).expect("both answer").all), [4]);
    store.remove_reader(&orders(), &own).expect("removed");
    assert_eq!((listed(&a), listed(&b)), (vec![], vec![]));
}

#[test]
fn a_store_that_is_down_costs_no_lease_and_no_step_is_decided_without_it() {
    let [a, b] = memories();
    let ((mut store, clock), mut own) = (at_hand(&[&a, &b]), OwnReader::default());
    store.keep_reader(&orders(), &mut own, &keep(3)).expect("kept");
    b.set_down(true);
    store.keep_reader(&orders(), &mut own, &keep(4)).expect("one row is enough");
    assert_eq!(versions(&listed(&a)), [4]);
    store.readers(&orders()).expect_err("the other store may know more");
    b.set_down(false);
    clock.advance(600_000);
    store.keep_reader(&orders(), &mut own, &keep(4)).expect("kept");
    assert_eq!(
        (versions(&listed(&a)), versions(&listed(&b))),
        (vec![4], vec![4]),
        "the row of before is renewed"
    );
    a.set_down(true);
    b.set_down(true);
    clock.advance(600_000);
    store.keep_reader(&orders(), &mut own, &keep(5)).expect_err("no store answers");
}

#[test]
fn a_reader_that_one_store_knows_counts_and_a_lost_answer_leaves_one_row() {
    let [a, b] = memories();
    let ((mut store, clock), mut own) = (at_hand(&[&a, &b]), OwnReader::default());
    let mut alone = OwnReader::default();
    let of_b = KeepReader { store: StoreIndex { stores: 2, index: 1 }, ..keep(2) };
    MemoryStore::new(b.clone()).keep_reader(&orders(), &mut alone, &of_b).expect("kept");
    for version in [3, 4] {
        a.fail_next(Step::Lost);
        store.keep_reader(&orders(), &mut own, &keep(version)).expect("the other store answers");
        clock.advance(600_000);
    }
    assert_eq!(a.clear_script(), 0, "both answers were lost");
    store.keep_reader(&orders(), &mut own, &keep(5)).expect("kept");
    assert_eq!((versions(&listed(&a)), listed(&b).len()), (vec![5], 2));
    let mut all = versions(&store.readers(&orders()).expect("both answer").all);
    all.sort_unstable();
    assert_eq!(all, [2, 5], "each store has one row of it");
}

/// A step that is stored in one store only is not seen by a process that has lost that store, and readers that have lost it are not
/// waited for.
#[test]
fn a_mill_with_one_of_the_stores_neither_follows_nor_changes_the_table_while_readers_list_all() {
    let [a, b] = memories();
    let (mut store, mut own) = (of_memories(&[&a, &b], CHUNK), OwnReader::default());
    store.keep_reader(&orders(), &mut own, &keep(3)).expect("kept");
    let reader = store.readers(&orders()).expect("both answer").all.remove(0);
    assert_eq!(reader.owner, "host:7", "its place in the list is not for people");
    for memory in [&a, &b] {
        let mut one = MemoryStore::new(memory.clone());
        let refused =
            one.keep_reader(&orders(), &mut OwnReader::default(), &keep(3)).expect_err("one of two");
        for fault in [refused, one.readers(&orders()).expect_err("one of two")] {
            assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
            let says = "`host:7`, whose mill has 2 stores, and this mill has one store";
            assert!(wordless::says(&fault, says), "{fault}");
        }
    }
    store.remove_reader(&orders(), &own).expect("removed");
    let mut one = MemoryStore::new(a.clone());
    one.keep_reader(&orders(), &mut OwnReader::default(), &keep(3)).expect("the others have ended");
    for fault in [
        store.readers(&orders()).expect_err("two instead of one"),
        store.keep_reader(&orders(), &mut OwnReader::default(), &keep(3)).expect_err("two instead of one"),
    ] {
        assert_eq!(fault.kind, FaultKind::Refused, "{fault}");
        assert!(wordless::says(&fault, "has one store, and this mill has 2 stores"), "{fault}");
    }
    assert_eq!(listed(&b), []);
}
