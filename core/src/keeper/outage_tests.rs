//! Tests of an outage: callers are served from memory, and the keeper's thread sleeps.

use std::sync::Arc;

use super::{Keeper, KeptSource};
use crate::base::reservation::{Fault, FaultKind};
use crate::base::waker::ReadyQueue;
use crate::config::MillConfig;
use crate::planner::{Answer, Ask, Batch, Now};
use crate::store::Store;
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
            let Batch::One(slot, ask) = batch else { panic!("one source: {batch:?}") };
            self.tries += 1;
            let answer = match (self.down, ask) {
                (Some(kind), _) => Err(Fault::new(kind, "down")),
                (None, Ask::Reserve(request)) => self.store.reserve(&request).map(Answer::Reserved),
                (None, Ask::Raise { key, expect, to }) => {
                    self.store.raise(&key, expect, to).map(Answer::Raised)
                }
                (None, Ask::Take(take)) => self.store.take_slot(&take).map(Answer::Taken),
            };
            self.keeper.complete(slot, answer, self.now());
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
