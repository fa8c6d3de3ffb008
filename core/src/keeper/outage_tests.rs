//! Tests of an outage: callers are served from memory, and the keeper's thread sleeps.

use crate::store::{RowStore, SlotStore};
use std::sync::Arc;

use super::executor::execute;
use super::{Keeper, KeptSource};
use crate::callers::waker::ReadyQueue;
use crate::config::MillConfig;
use crate::planner::{Batch, Now};
use crate::request::reservation::{Fault, FaultKind};
use crate::store::memory::{Memory, MemoryStore};
use crate::time::{Clock, ManualClock};

/// A process with one source, whose store is down when the test says so.
struct Process {
    keeper: Keeper,
    ready: Arc<ReadyQueue>,
    source: KeptSource,
    clock: Arc<ManualClock>,
    store: MemoryStore,
    down: Option<FaultKind>,
    wakes: u64,
    tries: u64,
}

impl Process {
    fn of(spec: &str) -> Process {
        let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec");
        let ready = Arc::new(ReadyQueue::default());
        let clock = Arc::new(ManualClock::new(1_795_249_800_123));
        let mut keeper = Keeper::new(1, ready.clone());
        let source = keeper.open(0, Arc::new(spec), Clock::Manual(clock.clone())).expect("a source");
        let store = MemoryStore::new(Memory::new());
        Process { keeper, ready, source, clock, store, down: None, wakes: 0, tries: 0 }
    }

    fn now(&self) -> Now {
        Clock::Manual(self.clock.clone()).now()
    }

    /// What the keeper's thread does when it wakes.
    fn wake(&mut self) {
        self.wakes += 1;
        while let Some(batch) = self.keeper.poll(self.now(), 1) {
            let (index, ask) = match batch {
                Batch::One(index, ask) => (index, ask),
                Batch::Renew(indexes, renewals) => {
                    let answer = self.store.renew_slots(&renewals);
                    self.keeper.renewed(&indexes, answer, self.now());
                    continue;
                }
                other => panic!("one source: {other:?}"),
            };
            self.tries += 1;
            let answer = match self.down {
                Some(kind) => Err(Fault::new(kind, "down")),
                None => execute(&mut self.store, &ask),
            };
            self.keeper.complete(index, answer, self.now());
        }
    }

    /// Takes so many ids each millisecond; the keeper wakes where it is woken.
    fn take(&mut self, each: u64, ms: u64) {
        for _ in 0..ms {
            self.clock.advance(1);
            if self.keeper.wake_at(self.now()).is_some_and(|at| at <= self.clock.boot_ms()) {
                self.wake();
            }
            for _ in 0..each {
                let taken = self.source.try_next();
                if !self.ready.is_empty() {
                    self.wake();
                }
                assert!(
                    taken.is_ok() || self.down.is_none(),
                    "{}: an id from memory: {taken:?}",
                    self.source.spec().text
                );
            }
        }
    }

    /// How often it is woken in six seconds in which the store answers so, and how often it asks the store.
    fn wakes_while(&mut self, kind: FaultKind, each: u64) -> (u64, u64) {
        self.down = Some(kind);
        (self.wakes, self.tries) = (0, 0);
        self.take(each, 6_000);
        (self.wakes, self.tries)
    }
}

#[test]
fn the_keeper_sleeps_through_an_outage_while_ids_come_from_memory() {
    for kind in [FaultKind::Unavailable, FaultKind::Unknown, FaultKind::Refused, FaultKind::WentBackwards] {
        for (spec, each) in [
            ("segment:s?min_step=200000", 20),
            ("segment:s?min_step=100&buffer=60s", 20),
            ("snowflake:f?worker=1", 20),
            ("snowflake:f?worker=1&layout=uid", 1),
        ] {
            let mut process = Process::of(spec);
            process.take(each, 4_000);
            let (wakes, tries) = process.wakes_while(kind, each);
            assert!(tries < 20, "{spec} {kind:?}: the store was asked {tries} times");
            assert!(wakes <= 4 * tries + 10, "{spec} {kind:?}: {wakes} wakes for {tries} tries");
        }
    }
}

#[test]
fn a_source_whose_check_is_postponed_is_served_when_the_store_is_back() {
    for spec in ["segment:s?min_step=1000&buffer=10s", "snowflake:f?worker=1"] {
        let mut process = Process::of(spec);
        process.take(1, 4_000);
        process.wakes_while(FaultKind::Unavailable, 1);
        process.down = None;
        process.take(1, 6_000);
        let before = process.tries;
        process.take(1, 20_000);
        assert!(process.tries > before, "{spec}: it is asked for as ever");
        assert_eq!(process.keeper.failures(), 0, "{spec}");
    }
}

#[test]
fn a_caller_who_finds_nothing_during_the_backoff_is_served_at_the_next_try() {
    let mut process = Process::of("segment:s?step=100");
    process.take(1, 50);
    process.down = Some(FaultKind::Unavailable);
    // The last of them finds nothing, and wakes the keeper while the store may not be asked.
    for _ in 0..200 {
        let _ = process.source.try_next();
        if !process.ready.is_empty() {
            process.wake();
        }
    }
    process.down = None;
    for _ in 0..200 {
        process.clock.advance(1);
        if process.keeper.wake_at(process.now()).is_some_and(|at| at <= process.clock.boot_ms()) {
            process.wake();
        }
    }
    assert!(process.source.try_next().is_ok(), "the keeper asked by itself");
}

#[test]
fn a_process_whose_clock_is_a_year_ahead_leases_by_the_clock_of_the_store() {
    let (memory, mut process) = (Memory::new(), Process::of("snowflake:tx"));
    let right = Arc::new(ManualClock::new(process.clock.wall_ms()));
    memory.set_clock(Clock::Manual(right.clone()));
    process.store = MemoryStore::new(memory);
    process.clock.set_wall(right.wall_ms() + 365 * 86_400_000);
    assert!(process.source.try_next().is_err(), "nothing is leased yet");
    process.wake();
    let layout = process.source.spec().snowflake.expect("a snowflake").layout;
    for second in 0..100 {
        let id = process.source.try_next().unwrap_or_else(|e| panic!("after {second} s: {e}"));
        let time_ms = layout.wall_ms_of(layout.unpack(id).tick);
        assert!(time_ms.abs_diff(right.wall_ms()) < 5_000, "after {second} s: {time_ms}");
        let rows = process.store.slots(&process.source.spec().key.clone()).expect("the rows");
        let mark_ms = layout.wall_ms_of(rows.slots[0].mark);
        assert!(mark_ms.abs_diff(right.wall_ms()) < 60_000, "after {second} s: {mark_ms}");
        process.clock.advance(1_000);
        right.advance(1_000);
        process.wake();
    }
}

/// The worker of each is fixed.
const FIXED: [&str; 3] =
    ["snowflake:tx?worker=5", "snowflake:tx?worker=ordinal:tx-7", "snowflake:tx?worker=ip:10.0.0.9"];

/// A process, and the clock of its store, which showed the same until now.
fn with_clock_of_the_store(spec: &str) -> (Process, Arc<ManualClock>) {
    let (process, right, _) = on_a_store_with_a_clock(spec);
    (process, right)
}

fn on_a_store_with_a_clock(spec: &str) -> (Process, Arc<ManualClock>, Arc<Memory>) {
    let (memory, mut process) = (Memory::new(), Process::of(spec));
    let right = Arc::new(ManualClock::new(process.clock.wall_ms()));
    memory.set_clock(Clock::Manual(right.clone()));
    process.store = MemoryStore::new(memory.clone());
    (process, right, memory)
}

impl Process {
    /// Ten ids a second for so long. Each is so far ahead of the store's clock, and so is the mark.
    fn follows(&mut self, right: &ManualClock, ahead_ms: i64, seconds: u64) {
        let layout = self.source.spec().snowflake.expect("a snowflake").layout;
        let spec = self.source.spec().text.clone();
        for tenth in 0..seconds * 10 {
            self.wake();
            let id = self.source.try_next().unwrap_or_else(|e| panic!("{spec}: after {tenth}/10 s: {e}"));
            let time_ms = layout.wall_ms_of(layout.unpack(id).tick);
            assert!(
                time_ms.abs_diff(right.wall_ms() + ahead_ms) < 5_000,
                "{spec}: after {tenth}/10 s: {time_ms}"
            );
            self.wake();
            let row = self.store.look(&self.source.spec().key.clone()).expect("an answer").expect("a row");
            let mark_ms = layout.wall_ms_of(row.mark.next);
            assert!(
                mark_ms.abs_diff(right.wall_ms() + ahead_ms) < 10_000,
                "{spec}: after {tenth}/10 s: {mark_ms}"
            );
            self.clock.advance(100);
            right.advance(100);
        }
    }
}

const YEAR_MS: i64 = 365 * 86_400_000;

#[test]
fn a_fixed_worker_that_starts_with_a_clock_a_year_ahead_begins_ten_minutes_ahead_of_the_store() {
    for spec in FIXED {
        let (mut process, right) = with_clock_of_the_store(spec);
        process.clock.set_wall(right.wall_ms() + YEAR_MS);
        assert!(process.source.try_next().is_err(), "{spec}: no mark is stored yet");
        process.follows(&right, 600_000, 60);
        // Set right, it is ten minutes behind the ids.
        process.clock.set_wall(right.wall_ms());
        for _ in 0..601 {
            process.wake();
            process.clock.advance(1_000);
            right.advance(1_000);
        }
        process.follows(&right, 0, 60);
    }
}

#[test]
fn a_fixed_worker_with_a_wrong_clock_begins_above_the_ids_that_one_with_a_clock_ahead_issued_beyond_its_mark()
{
    for spec in FIXED {
        let (mut process, right, memory) = on_a_store_with_a_clock(spec);
        process.clock.set_wall(right.wall_ms() + 590_000);
        assert!(process.source.try_next().is_err(), "{spec}: no mark is stored yet");
        process.follows(&right, 590_000, 60);
        // The keeper does not wake any more: a process in an outage.
        for _ in 0..30 {
            process.clock.advance(100);
            right.advance(100);
        }
        let last = process.source.try_next().expect(spec);

        let mut next = Process::of(spec);
        next.store = MemoryStore::new(memory);
        next.clock.set_wall(right.wall_ms() + YEAR_MS);
        assert!(next.source.try_next().is_err(), "{spec}: no mark is stored yet");
        let mut first = None;
        for _ in 0..100 {
            next.wake();
            first = first.or(next.source.try_next().ok());
            next.clock.advance(100);
        }
        assert!(first.expect(spec) > last, "{spec}: {first:?} after {last}");
    }
}

#[test]
fn a_fixed_worker_whose_clock_jumps_by_a_year_stores_no_mark_of_it_before_the_store_shows_it_too() {
    for spec in FIXED {
        let (mut process, right) = with_clock_of_the_store(spec);
        assert!(process.source.try_next().is_err(), "{spec}: no mark is stored yet");
        process.follows(&right, 0, 60);
        let tries = process.tries;
        process.clock.set_wall(right.wall_ms() + YEAR_MS);
        process.follows(&right, 0, 60);
        assert!(process.tries - tries < 400, "{spec}: {} tries in a minute", process.tries - tries);
        // Both clocks had been wrong, and are set right.
        right.set_wall(right.wall_ms() + YEAR_MS);
        for _ in 0..50 {
            process.wake();
            process.source.try_next().unwrap_or_else(|e| panic!("{spec}: {e}"));
            process.clock.advance(100);
            right.advance(100);
        }
        process.follows(&right, 0, 60);
    }
}

#[test]
fn a_step_of_ten_minutes_goes_into_the_mark_of_a_fixed_worker_at_once() {
    for spec in FIXED {
        let (mut process, right) = with_clock_of_the_store(spec);
        assert!(process.source.try_next().is_err(), "{spec}: no mark is stored yet");
        process.follows(&right, 0, 60);
        process.clock.set_wall(right.wall_ms() + 600_000);
        // Only the process shows it.
        process.wake();
        process.source.try_next().expect(spec);
        process.wake();
        let layout = process.source.spec().snowflake.expect("a snowflake").layout;
        let id = process.source.try_next().expect(spec);
        let time_ms = layout.wall_ms_of(layout.unpack(id).tick);
        assert!(time_ms - right.wall_ms() > 590_000, "{spec}: {time_ms}");
    }
}

#[test]
fn a_clock_that_was_a_little_wrong_before_it_jumped_keeps_no_process_from_its_worker() {
    let (mut first, right, memory) = on_a_store_with_a_clock(FIXED[0]);
    assert!(first.source.try_next().is_err(), "no mark is stored yet");
    first.follows(&right, 0, 2);
    // Killed. The next process begins with a clock that is four minutes late, and then most of a day early.
    let mut next = Process::of(FIXED[0]);
    next.store = MemoryStore::new(memory);
    next.clock.set_wall(right.wall_ms() - 240_000);
    assert!(next.source.try_next().is_err(), "its mark is ahead");
    next.wake();
    next.clock.set_wall(right.wall_ms() + 70_000_000);
    for _ in 0..300 {
        next.wake();
        next.clock.advance(100);
        right.advance(100);
    }
    next.follows(&right, 0, 20);
}

/// A mill whose store refuses connections from the start, and sources that callers begin to wait for later.
#[test]
fn a_source_that_is_first_used_while_nothing_listens_says_so_within_a_second() {
    const KINDS: [&str; 3] = ["segment:s", "snowflake:tx", "business:b"];
    for first in KINDS {
        let ready = Arc::new(ReadyQueue::default());
        let clock = Arc::new(ManualClock::new(1_795_249_800_123));
        let mut keeper = Keeper::new(1, ready.clone());
        let config = MillConfig::parse("memory:").expect("a mill");
        let mut open = |index, text: &str| {
            let spec = Arc::new(config.spec(text).expect("a spec"));
            keeper.open(index, spec, Clock::Manual(clock.clone())).expect("a source")
        };
        let mut used = vec![(open(0, first), 0)];
        // One every 700 ms, and in the end a crowd.
        let later = |n: usize| if n < 9 { 700 * n as u64 } else { 7_000 };
        for n in 1..30 {
            used.push((open(n, &format!("{}{n}", KINDS[n % 3])), later(n)));
        }
        let mut told: Vec<Option<u64>> = vec![None; used.len()];
        let refused = || Fault::new(FaultKind::Unavailable, "nothing listens").of_unreached_server();
        for ms in 0..9_000 {
            let now = Clock::Manual(clock.clone()).now();
            for (at, (source, from)) in used.iter().enumerate() {
                if ms < *from || told[at].is_some() {
                    continue;
                }
                if source.try_next().expect_err("no store").is_told_at_once {
                    told[at] = Some(ms - from);
                }
            }
            if ready.is_empty() && keeper.wake_at(now).is_none_or(|at| at > now.boot_ms) {
                clock.advance(1);
                continue;
            }
            while let Some(batch) = keeper.poll(now, 4) {
                match batch {
                    Batch::One(index, _) | Batch::Bank(index, _) => {
                        keeper.complete(index, Err(refused()), now);
                    }
                    Batch::Several(indexes, _) => {
                        for index in indexes {
                            keeper.complete(index, Err(refused()), now);
                        }
                    }
                    Batch::Renew(..) => panic!("nothing is leased"),
                }
            }
            clock.advance(1);
        }
        for (at, (source, _)) in used.iter().enumerate() {
            let text = &source.spec().text;
            let told = told[at].unwrap_or_else(|| panic!("{text} after {first}: never"));
            let expected = if at == 0 { 300..1_000 } else { 0..10 };
            assert!(expected.contains(&told), "{text} after {first}: after {told} ms");
        }
    }
}
