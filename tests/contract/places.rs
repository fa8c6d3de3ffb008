//! A worker that changes its place: a fixed one is leased, a leased one is given, its source gets another pool. Ids never come twice,
//! and a place that is still in use is not taken away.

use std::collections::HashSet;
use std::sync::Arc;

use keymill::store::{
    BeginMark, Beside, FaultKind, Key, Left, OwnSlot, Places, RaisePool, Release, Renewal, Slots, Store,
    StoreIndex, Take, Taken, noted,
};
use keymill::{Change, Mill};
use keymill_tests::lease::{self, LEASE_MS, MARK, PRESENT};

use crate::bench::{Bench, Kind, Place, unique};

/// The places of one source, in tables of their own, on one store.
struct Moves {
    bench: Bench,
    places: Arc<Places>,
}

impl Moves {
    fn new(bench: Bench) -> Moves {
        let source = "tx 'orders' %";
        let layouts = ["time:41@1ms,worker:2,seq:2", "time:41@1ms,dc-worker:1+1,seq:2"].map(str::to_owned);
        let places = Arc::new(Places {
            source: source.to_owned(),
            fixed_table: bench.table.clone(),
            pool_table: unique("w"),
            layouts: layouts.to_vec(),
        });
        let moves = Moves { bench, places };
        let keys = [moves.pool(source), moves.fixed(0)];
        moves.open().init(&keys, false).expect("the tables");
        moves
    }

    fn open(&self) -> Box<dyn Store> {
        self.bench.open()
    }

    fn pool(&self, name: &str) -> Arc<Key> {
        Arc::new(Key::pool(&self.places.pool_table, name))
    }

    /// The row of a fixed worker.
    fn fixed(&self, worker: u64) -> Arc<Key> {
        Arc::new(self.places.fixed_row(worker))
    }

    fn begin(&self, worker: u64) -> BeginMark {
        BeginMark { key: self.fixed(worker), worker, places: self.places.clone(), store: StoreIndex::ONLY }
    }

    fn take(&self, pool: &str, last: u64, token: u64) -> Take {
        Take {
            layout: "time:41@1ms,worker:2,seq:2 epoch E".into(),
            slots: Slots { first: 0, last },
            beside: Beside { places: Some(self.places.clone()), passed_over: Vec::new() },
            ..lease::take(self.pool(pool), token)
        }
    }

    fn own(&self) -> &str {
        &self.places.source
    }

    /// Gives a slot back as a clean close does.
    fn free(&self, store: &mut dyn Store, pool: &str, token: u64, taken: Taken, used: u64) {
        let own = self.slot(pool, token, taken);
        let freed = store.free_slots(&[Release { own, used }]).expect("an answer");
        assert_eq!(freed, [true]);
    }

    fn slot(&self, pool: &str, token: u64, taken: Taken) -> OwnSlot {
        OwnSlot {
            key: self.pool(pool),
            slot: taken.slot,
            left: vec![Left { token, mark: taken.mark }],
            owner: noted(&format!("host:{token}"), self.own()).into(),
        }
    }
}

fn a_fixed_worker_does_not_begin_while_another_process_leases_it_and_then_begins_at_its_mark(moves: &Moves) {
    let (mut one, mut two) = (moves.open(), moves.open());
    let taken = one.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    assert_eq!((taken.slot, taken.start, taken.mark), (0, 0, MARK));
    for _ in 0..2 {
        let fault = two.begin_mark(&moves.begin(0)).expect_err("a lease");
        assert_eq!(fault.kind, FaultKind::NoneFree, "{fault}");
        assert!(fault.to_string().contains("`host:11` leases it"), "{fault}");
    }
    assert_eq!(two.begin_mark(&moves.begin(1)).expect("another worker"), 1);
    moves.free(&mut *one, moves.own(), 11, taken, 1_002);
    assert_eq!(two.begin_mark(&moves.begin(0)).expect("a mark"), 1_002);
    // It is current: no question more, and the same answer.
    assert_eq!(two.begin_mark(&moves.begin(0)).expect("a mark"), 1_002);
    assert_eq!(two.raise(&moves.fixed(0), Some(1_002), 1_020).expect("raised"), 1_002);
    // The process that leased it is told, should it come back.
    let own = moves.slot(moves.own(), 11, Taken { mark: 1_002, ..taken });
    let renewed = one
        .renew_slots(&[Renewal { own, to: Left { token: 12, mark: 1_050 }, lease_ms: LEASE_MS }])
        .expect("an answer");
    assert_eq!(renewed.marks[0].as_ref().expect_err("told").kind, FaultKind::Taken);
}

fn a_lease_passes_over_a_fixed_worker_in_use_and_ends_one_that_is_not(moves: &Moves) {
    let (mut one, mut two) = (moves.open(), moves.open());
    assert_eq!(one.begin_mark(&moves.begin(0)).expect("a mark"), 1);
    one.raise(&moves.fixed(0), Some(1), PRESENT + 2).expect("raised");
    let other = two.take_slot(&moves.take(moves.own(), 3, 11)).expect("a slot");
    assert_ne!(other.slot, 0);
    let fault = two.take_slot(&moves.take(moves.own(), 0, 12)).expect_err("the only slot");
    assert_eq!(fault.kind, FaultKind::NoneFree, "{fault}");
    assert!(fault.to_string().contains("0 is passed over: the fixed worker of"), "{fault}");
    // A moment later.
    let later = Take { present: PRESENT + 2, latest_mark: PRESENT + 5, ..moves.take(moves.own(), 0, 13) };
    let taken = two.take_slot(&later).expect("a slot");
    assert_eq!((taken.slot, taken.start), (0, PRESENT + 3));
    let told = one.raise(&moves.fixed(0), Some(PRESENT + 2), PRESENT + 9).expect_err("told");
    assert_eq!(told.kind, FaultKind::Taken, "{told}");
    let told = one.raise(&moves.fixed(0), None, PRESENT + 9).expect_err("told");
    assert_eq!(told.kind, FaultKind::Taken, "{told}");
    assert_eq!(one.begin_mark(&moves.begin(0)).expect_err("a lease").kind, FaultKind::NoneFree);
}

/// A process is killed after it has taken the slot and before it has looked at the other places.
fn a_take_that_was_cut_short_is_no_proof_that_the_other_places_were_looked_at(moves: &Moves) {
    let mut store = moves.open();
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a fixed worker"), 1);
    store.raise(&moves.fixed(0), Some(1), PRESENT + 50).expect("in use");
    // The same request as today's, carried out up to the write of the slot.
    let alone = |token| Take { beside: Beside::default(), ..moves.take(moves.own(), 0, token) };
    store.take_slot(&alone(11)).expect("a slot");
    let raise = |store: &mut dyn Store| {
        let layout = moves.take(moves.own(), 0, 0).layout;
        let raise = RaisePool {
            key: moves.pool(moves.own()),
            layout,
            store: StoreIndex::ONLY,
            to: MARK + 1,
            token: 90,
        };
        store.raise_pool(&raise).expect("raised, so the lease is over");
    };
    raise(&mut *store);
    let late = Take { latest_mark: MARK + 9, ..moves.take(moves.own(), 0, 12) };
    let fault = store.take_slot(&late).expect_err("the fixed worker is in use");
    assert!(
        fault.to_string().contains("the fixed worker of `snowflake:tx 'orders' %` was in use"),
        "{fault}"
    );
}

/// Neither a slot that was taken, nor one that was renewed, is noted before the other places were looked at.
fn a_slot_is_noted_by_its_first_renewal_or_its_end(moves: &Moves) {
    let mut store = moves.open();
    let owner =
        |store: &mut dyn Store| store.slots(&moves.pool(moves.own())).expect("rows").slots[0].owner.clone();
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    assert_eq!(owner(&mut *store), "host:11");
    let own = moves.slot(moves.own(), 11, taken);
    let renewal = Renewal { own, to: Left { token: 12, mark: MARK + 1 }, lease_ms: LEASE_MS };
    store.renew_slots(&[renewal]).expect("an answer").marks.remove(0).expect("renewed");
    let noted = noted("host:11", moves.own());
    assert_eq!(owner(&mut *store), noted);
    let own = moves.slot(moves.own(), 11, taken);
    let own = OwnSlot { left: vec![Left { token: 12, mark: MARK + 1 }], ..own };
    assert_eq!(store.free_slots(&[Release { own, used: 1_001 }]).expect("an answer"), [true]);
    assert_eq!(owner(&mut *store), noted);
    // It stays so with the next process of the source.
    store.take_slot(&moves.take(moves.own(), 0, 13)).expect("a slot");
    assert_eq!(owner(&mut *store), keymill::store::noted("host:13", moves.own()));
}

/// An id holds its tick and not the epoch, so a tick that was used stays used when the epoch changes.
fn a_pool_of_another_epoch_counts(moves: &Moves) {
    let mut store = moves.open();
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    moves.free(&mut *store, moves.own(), 11, taken, 1_002);
    let later = Take { layout: "time:41@1ms,worker:2,seq:2 epoch LATER".into(), ..moves.take("p2", 0, 12) };
    assert_eq!(store.take_slot(&later).expect("a slot").start, 1_002);
}

fn a_slot_of_another_pool_begins_above_the_marks_of_the_sources_own_pool_and_back(moves: &Moves) {
    let mut store = moves.open();
    let own = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    let fault = store.take_slot(&moves.take("shared", 0, 12)).expect_err("a lease of the own pool");
    assert_eq!(fault.kind, FaultKind::NoneFree, "{fault}");
    moves.free(&mut *store, moves.own(), 11, own, 1_001);
    let shared = store.take_slot(&moves.take("shared", 0, 13)).expect("a slot");
    assert_eq!((shared.slot, shared.start), (0, 1_001));
    let fault = store.take_slot(&moves.take(moves.own(), 0, 14)).expect_err("a lease of the other pool");
    assert_eq!(fault.kind, FaultKind::NoneFree, "{fault}");
    moves.free(&mut *store, "shared", 13, shared, 1_002);
    let back = store.take_slot(&moves.take(moves.own(), 0, 15)).expect("a slot");
    assert_eq!((back.slot, back.start), (0, 1_002));
    assert_eq!(store.begin_mark(&moves.begin(0)).expect_err("a lease").kind, FaultKind::NoneFree);
}

fn a_slot_that_notes_no_source_is_compared_with_the_fixed_worker(moves: &Moves) {
    let mut store = moves.open();
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 1);
    store.raise(&moves.fixed(0), Some(1), 900).expect("raised");
    // A process that knows no other places leases the worker, and leaves no note.
    let unaware = Take { beside: Beside::default(), ..moves.take(moves.own(), 0, 11) };
    let taken = store.take_slot(&unaware).expect("a slot");
    let own = OwnSlot { owner: "host:11".into(), ..moves.slot(moves.own(), 11, taken) };
    assert_eq!(store.free_slots(&[Release { own, used: 600 }]).expect("an answer"), [true]);
    let taken = store.take_slot(&moves.take(moves.own(), 0, 12)).expect("a slot");
    assert_eq!((taken.slot, taken.start), (0, 901));
}

fn a_worker_that_was_leased_is_raised_by_repair_and_stays_so(moves: &Moves) {
    let mut store = moves.open();
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 1);
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    let (before, after) = store.repair_mark(&moves.begin(0), 5_000, true).expect("a dry run");
    assert_eq!((before.map(|row| row.mark.next), after.mark.next), (Some(2), 5_000));
    store.repair_mark(&moves.begin(0), 5_000, false).expect("repaired");
    // The process that leases it is told, and no kind of worker begins below.
    let own = moves.slot(moves.own(), 11, taken);
    let renewal = Renewal { own, to: Left { token: 12, mark: 1_050 }, lease_ms: LEASE_MS };
    let told = store.renew_slots(&[renewal]).expect("an answer").marks.remove(0).expect_err("told");
    assert_eq!(told.kind, FaultKind::Taken, "{told}");
    for pool in [moves.own(), "another"] {
        let early = store.take_slot(&moves.take(pool, 0, 13)).expect_err("it begins later");
        assert_eq!(early.kind, FaultKind::NoneFree, "{early}");
    }
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 5_000);
}

fn a_repaired_worker_begins_after_a_look_at_the_other_places(moves: &Moves) {
    let (mut one, mut two) = (moves.open(), moves.open());
    // Leased, and no process was ever given the number.
    let taken = one.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    let (before, after) = two.repair_mark(&moves.begin(0), 500, false).expect("repaired");
    assert_eq!((before, after.mark.next), (None, 500));
    assert_eq!(two.begin_mark(&moves.begin(0)).expect("a mark"), taken.mark, "above the ids of the lease");
    // Never lower, and its process is told.
    let lower = two.repair_mark(&moves.begin(0), 1_001, false).expect_err("it stands higher");
    assert_eq!(lower.kind, FaultKind::Refused, "{lower}");
    assert_eq!(two.raise(&moves.fixed(0), Some(taken.mark), 1_200).expect("raised"), taken.mark);
    for typed in ["once", "twice"] {
        two.repair_mark(&moves.begin(0), 1_500, false)
            .unwrap_or_else(|fault| panic!("typed {typed}: {fault}"));
    }
    let told = two.raise(&moves.fixed(0), Some(1_200), 1_210).expect_err("told");
    assert_eq!(told.kind, FaultKind::Taken, "{told}");
    assert_eq!(two.begin_mark(&moves.begin(0)).expect("a mark"), 1_500);
}

fn a_fixed_worker_whose_row_was_put_back_begins_above_the_pool(moves: &Moves) {
    let mut store = moves.open();
    // It was current before the leases.
    let taken = store.take_slot(&moves.take(moves.own(), 0, 11)).expect("a slot");
    moves.free(&mut *store, moves.own(), 11, taken, 1_002);
    store.raise(&moves.fixed(0), Some(0), 900).expect("a current row");
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 1_002);
    // A repair of the pool counts for the fixed worker too.
    let raise = RaisePool {
        key: moves.pool(moves.own()),
        layout: "time:41@1ms,worker:2,seq:2 epoch E".into(),
        store: StoreIndex::ONLY,
        to: 3_000,
        token: 77,
    };
    store.raise_pool(&raise).expect("raised");
    assert_eq!(store.begin_mark(&moves.begin(0)).expect("a mark"), 3_000);
}

/// How many ids a step takes: more than its layout has in the time it takes.
const BURST: usize = 3_000;

fn no_id_comes_twice_while_a_source_moves_from_place_to_place(moves: &Moves) {
    let url = match &moves.bench.place {
        Place::Memory(_) => format!("memory:{}", unique("moves")),
        _ => crate::banks::url(&moves.bench).expect("a server"),
    };
    let keeper = Mill::open(&url).expect("a mill");
    keeper.init(&["snowflake:tx", "snowflake:tx?worker=0"], Change::Apply).expect("the tables");
    let (name, shared) = (unique("moving"), unique("shared"));
    let of = |options: &str| format!("snowflake:{name}?deadline=5m&{options}");
    let (plain, split) = ("layout=time:41@1ms,worker:5,seq:2", "layout=time:41@1ms,dc-worker:2+3,seq:2");
    let pool = format!("{plain}&slots=0-0&pool={shared}");
    let leased = format!("{plain}&slots=0-0");
    let fixed = format!("{plain}&worker=0");
    let steps = [
        fixed.clone(),
        format!("{split}&worker=0+0"),
        leased.clone(),
        fixed.clone(),
        pool.clone(),
        leased.clone(),
        pool,
        fixed,
        leased,
    ];
    let mut ids = HashSet::new();
    for (at, step) in steps.iter().enumerate() {
        let mill = Mill::open(&url).expect("a mill");
        let source = mill.source(&of(step)).expect("a source");
        for _ in 0..BURST {
            let id = source.next().expect("an id");
            assert!(ids.insert(id), "step {at}, {step}: {id} came twice");
        }
        mill.close();
    }
}

/// Defines each function as a test for each store.
macro_rules! moves {
    ($($name:ident)*) => {
        moves!(@ memory, Bench::memory(Kind::Segment), $($name)*);
        moves!(@ sqlite, Bench::sqlite(Kind::Segment), $($name)*);
        moves!(@ mariadb, Bench::mariadb(Kind::Segment), $($name)*);
        moves!(@ tidb, Bench::tidb(Kind::Segment), $($name)*);
        moves!(@ postgres, Bench::postgres(Kind::Segment), $($name)*);
        moves!(@ redis, Bench::redis(Kind::Segment), $($name)*);
    };
    (@ $module:ident, $bench:expr, $($name:ident)*) => {
        mod $module {
            use super::*;
            $(
                #[test]
                fn $name() {
                    super::$name(&Moves::new($bench))
                }
            )*
        }
    };
}

moves! {
    a_fixed_worker_does_not_begin_while_another_process_leases_it_and_then_begins_at_its_mark
    a_lease_passes_over_a_fixed_worker_in_use_and_ends_one_that_is_not
    a_take_that_was_cut_short_is_no_proof_that_the_other_places_were_looked_at
    a_slot_is_noted_by_its_first_renewal_or_its_end
    a_pool_of_another_epoch_counts
    a_slot_of_another_pool_begins_above_the_marks_of_the_sources_own_pool_and_back
    a_slot_that_notes_no_source_is_compared_with_the_fixed_worker
    a_worker_that_was_leased_is_raised_by_repair_and_stays_so
    a_repaired_worker_begins_after_a_look_at_the_other_places
    a_fixed_worker_whose_row_was_put_back_begins_above_the_pool
    no_id_comes_twice_while_a_source_moves_from_place_to_place
}
