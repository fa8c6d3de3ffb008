//! The generator under the loom model checker: every interleaving and every weak-memory outcome of small runs.
//!
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=3 cargo test --release -p keymill --lib snowflake::loom
//! --target-dir target/loom`. Time is a loom atomic, so the checker also explores where a clock move falls.

use ::loom::sync::Arc;
use ::loom::thread;

use super::generator::{ClockBack, Core, LAPSED, Refusal, Time};
use crate::layout::Layout;
use crate::process::sync::{AtomicU64, Ordering};
use crate::time::Stamp;

/// A clock that the model moves.
struct Clock(AtomicU64);

impl Clock {
    fn read(&self) -> u64 {
        // ordering: SeqCst — a clock is seen alike by all; pairs with itself in `advance`.
        self.0.load(Ordering::SeqCst)
    }
    fn advance(&self, ms: u64) {
        // ordering: SeqCst — as above.
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Time for Clock {
    fn coarse_stamp(&self) -> Stamp {
        Stamp::of_ms(self.read() as i64)
    }
    fn wall_ms(&self) -> i64 {
        self.read() as i64
    }
    fn boot_ms(&self) -> u64 {
        self.read()
    }
}

struct Rig {
    core: Core,
    clock: Clock,
}

impl Rig {
    /// At tick 1, with a mark of 0 ticks or as given, and budgets that keep the fast path open.
    fn new(seq_bits: u32, lead: u64, mark: u64) -> Arc<Rig> {
        let layout = Layout::parse(&format!("time:5@1ms,worker:1,seq:{seq_bits}"), "1970-01-01").unwrap();
        let core = Core::new(layout, Some(0), ClockBack::Borrow, lead, 0).unwrap();
        let clock = Clock(AtomicU64::new(1));
        if mark > 0 {
            core.start(0, &clock).unwrap();
            core.raise_mark(mark, &clock);
        }
        core.prime(2, 1);
        Arc::new(Rig { core, clock })
    }

    /// Position by position the layout without its worker bit.
    fn tick(id: u64, seq_bits: u32) -> u64 {
        id >> (seq_bits + 1)
    }

    fn some(&self, calls: usize) -> Vec<u64> {
        (0..calls).filter_map(|_| self.core.next(&self.clock).ok()).collect()
    }
}

fn all_differ(mut ids: Vec<u64>) {
    assert!(ids.iter().all(|id| *id > 0));
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "an id was issued twice");
}

fn rise(ids: &[u64]) {
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "ids of one thread fell: {ids:?}");
}

#[test]
fn ids_differ_while_the_clock_moves() {
    ::loom::model(|| {
        let rig = Rig::new(3, 3, 20);
        let first = rig.core.next(&rig.clock).unwrap();
        let (a, b) = (rig.clone(), rig.clone());
        let a = thread::spawn(move || a.some(2));
        let b = thread::spawn(move || b.some(1));
        rig.clock.advance(3);
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        rise(&a);
        rise(&b);
        assert_eq!(a.len() + b.len(), 3);
        let after = rig.core.next(&rig.clock).unwrap();
        assert_eq!(Rig::tick(after, 3), 4, "the clock was not followed");
        all_differ([vec![first, after], a, b].concat());
    });
}

#[test]
fn batches_and_single_ids_differ() {
    ::loom::model(|| {
        let rig = Rig::new(2, 3, 20);
        let (a, b) = (rig.clone(), rig.clone());
        let a = thread::spawn(move || a.some(2));
        let b = thread::spawn(move || {
            let mut out = [0; 3];
            let count = b.core.take(&mut out, &b.clock).unwrap_or(0);
            out[..count].to_vec()
        });
        rig.clock.advance(1);
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        rise(&a);
        rise(&b);
        all_differ([a, b].concat());
    });
}

#[test]
fn no_id_leads_beyond_the_mark_while_it_is_raised() {
    ::loom::model(|| {
        // One bit of sequence: two ids a tick, so three calls reach the mark at tick 3.
        let rig = Rig::new(1, 8, 3);
        let a = rig.clone();
        let a = thread::spawn(move || a.some(2));
        let before = rig.some(1);
        assert!(before.iter().all(|id| Rig::tick(*id, 1) < 3), "beyond the stored mark: {before:?}");
        rig.core.raise_mark(5, &rig.clock);
        let ids = [before, a.join().unwrap()].concat();
        assert!(ids.iter().all(|id| Rig::tick(*id, 1) < 5));
        all_differ(ids);
    });
}

#[test]
fn a_start_is_seen_whole_or_not_at_all() {
    ::loom::model(|| {
        let rig = Rig::new(3, 3, 0);
        let (a, b) = (rig.clone(), rig.clone());
        let a = thread::spawn(move || a.some(2));
        let b = thread::spawn(move || b.some(1));
        rig.core.start(7, &rig.clock).unwrap_or(());
        rig.core.start(0, &rig.clock).unwrap();
        rig.core.raise_mark(20, &rig.clock);
        let ids = [a.join().unwrap(), b.join().unwrap()].concat();
        assert!(ids.iter().all(|id| Rig::tick(*id, 3) >= 2), "before the start: {ids:?}");
        all_differ(ids);
    });
}

#[test]
fn every_id_is_below_the_mark_that_close_returns() {
    ::loom::model(|| {
        let rig = Rig::new(2, 3, 20);
        let (a, b) = (rig.clone(), rig.clone());
        let a = thread::spawn(move || a.some(2));
        let b = thread::spawn(move || b.some(1));
        let mark = rig.core.end(1 << 63 | 1 << 61).unwrap();
        let ids = [a.join().unwrap(), b.join().unwrap()].concat();
        assert!(ids.iter().all(|id| Rig::tick(*id, 2) < mark), "{ids:?} reach {mark}");
        assert_eq!(rig.core.next(&rig.clock), Err(Refusal::Closed));
        all_differ(ids);
    });
}

#[test]
fn positions_beyond_the_cap_are_given_back_without_repeating_any() {
    ::loom::model(|| {
        // Without a lead, and with two ids a tick: both are gone, so the next caller takes a position too many, while the
        // clock moves on and others take what is above it.
        let rig = Rig::new(1, 0, 20);
        rig.clock.advance(1);
        rig.core.prime(2, 2);
        let first = rig.some(2);
        assert_eq!(first.len(), 2);
        let a = rig.clone();
        let a = thread::spawn(move || a.some(1));
        rig.clock.advance(1);
        let mut ids = [first, rig.some(1), a.join().unwrap()].concat();
        // Whatever was given back is taken again here.
        ids.extend(rig.some(2));
        assert!(ids.iter().all(|id| Rig::tick(*id, 1) <= 3));
        all_differ(ids);
    });
}

/// A leased worker is replaced while another thread takes ids: each id has a position of its worker's own time. The first worker has
/// the ticks below 20, the second those from 300 on; both are in one process, so no position comes twice.
fn a_worker_is_replaced_while(taking: fn(&Rig) -> Vec<u64>) {
    ::loom::model(move || {
        let layout = Layout::parse("time:20@1ms,worker:1,seq:3", "1970-01-01").unwrap();
        let core = Core::new(layout, None, ClockBack::Borrow, 5_000, 0).unwrap();
        let clock = Clock(AtomicU64::new(1));
        core.begin((0, 0), 0, i64::MAX, &clock).unwrap();
        core.raise_mark(20, &clock);
        core.prime(2, 1);
        let rig = Arc::new(Rig { core, clock });
        let first = rig.core.next(&rig.clock).unwrap();
        let other = rig.clone();
        let taker = thread::spawn(move || taking(&other));
        rig.core.end(LAPSED);
        // No earlier owner used a tick from 300 on, and this process is to use those below 10000.
        rig.core.begin((1, 9), 300, i64::MAX, &rig.clock).unwrap();
        rig.core.raise_mark(10_000, &rig.clock);
        let taken = taker.join().unwrap();
        rise(&taken);
        let after = rig.core.next(&rig.clock).unwrap();
        assert_eq!(rig.core.layout().unpack(after).worker, 1);
        let ids = [vec![first, after], taken].concat();
        let fields: Vec<_> = ids.iter().map(|id| rig.core.layout().unpack(*id)).collect();
        for unpacked in &fields {
            let owned = if unpacked.worker == 0 { 0..20 } else { 300..10_000 };
            assert!(owned.contains(&unpacked.tick), "{unpacked:?} belongs to another process");
        }
        all_differ(fields.iter().map(|unpacked| unpacked.tick << 3 | unpacked.seq).collect());
    });
}

/// A worker is stopped while another thread takes ids, and the next worker may use the same ticks: what is issued with the first
/// worker was counted before the stop, so its mark covers it, and no position comes twice.
///
/// A worker that is read after the count is noticed only while `begin` does not read the old worker itself: loom orders a store
/// against the last access of the atomic alone.
#[test]
fn no_id_of_a_stopped_worker_is_counted_after_the_stop() {
    ::loom::model(|| {
        let layout = Layout::parse("time:20@1ms,worker:1,seq:3", "1970-01-01").unwrap();
        let core = Core::new(layout, None, ClockBack::Borrow, 50_000, 0).unwrap();
        let clock = Clock(AtomicU64::new(1));
        core.begin((0, 0), 0, i64::MAX, &clock).unwrap();
        core.raise_mark(20_000, &clock);
        // Limits beyond the tick, as `MAX_BUDGET` allows them.
        core.prime(30, 1);
        let rig = Arc::new(Rig { core, clock });
        let first = rig.core.next(&rig.clock).unwrap();
        let other = rig.clone();
        let taker = thread::spawn(move || other.some(2));
        rig.core.end(LAPSED);
        let stop = rig.core.position();
        rig.core.begin((1, 9), 0, i64::MAX, &rig.clock).unwrap();
        rig.core.raise_mark(20_000, &rig.clock);
        let taken = taker.join().unwrap();
        let after = rig.core.next(&rig.clock).unwrap();
        let positions: Vec<_> = [vec![first, after], taken]
            .concat()
            .into_iter()
            .map(|id| {
                let unpacked = rig.core.layout().unpack(id);
                let position = unpacked.tick << 3 | unpacked.seq;
                assert_eq!(
                    unpacked.worker == 0,
                    position < stop,
                    "{unpacked:?} was counted on the other side of {stop}"
                );
                position
            })
            .collect();
        all_differ(positions);
    });
}

#[test]
fn a_worker_is_replaced_while_ids_are_taken_one_by_one() {
    a_worker_is_replaced_while(|rig| rig.some(1));
}

#[test]
fn a_worker_is_replaced_while_a_batch_is_taken() {
    a_worker_is_replaced_while(|rig| {
        let mut ids = [0; 2];
        let count = rig.core.take(&mut ids, &rig.clock).unwrap_or(0);
        ids[..count].to_vec()
    });
}
