//! Tests of a snowflake's mark over the life of a process: ids, an idle minute, ids again, an end, and a successor whose clock
//! is behind.

use crate::store::RowStore;
use std::collections::HashSet;
use std::sync::Arc;

use super::{Keeper, KeptSource};
use crate::callers::waker::ReadyQueue;
use crate::config::MillConfig;
use crate::error::Code;
use crate::planner::{Answer, Ask, Batch, Now};
use crate::store::memory::{Memory, MemoryStore};
use crate::time::{Clock, ManualClock};

const BEGIN: i64 = 1_795_249_800_123;

/// A process with one snowflake, on a clock that the test moves.
struct Process {
    keeper: Keeper,
    ready: Arc<ReadyQueue>,
    source: KeptSource,
    clock: Arc<ManualClock>,
    store: MemoryStore,
    /// How often the mark was written.
    writes: u64,
    ids: Vec<u64>,
}

impl Process {
    fn start(spec: &str, memory: &Arc<Memory>, wall_ms: i64) -> Process {
        let spec = MillConfig::parse("memory:").and_then(|config| config.spec(spec)).expect("a spec");
        let (ready, clock) = (Arc::new(ReadyQueue::default()), Arc::new(ManualClock::new(wall_ms)));
        let mut keeper = Keeper::new(1, ready.clone());
        let source = keeper.open(0, Arc::new(spec), Clock::Manual(clock.clone())).expect("a source");
        let store = MemoryStore::new(memory.clone());
        Process { keeper, ready, source, clock, store, writes: 0, ids: Vec::new() }
    }

    fn now(&self) -> Now {
        Clock::Manual(self.clock.clone()).now()
    }

    /// What the keeper's thread does when it wakes.
    fn wake(&mut self) {
        while let Some(batch) = self.keeper.poll(self.now(), 1) {
            let Batch::One(index, Ask::Raise { key, expect, to, .. }) = batch else {
                panic!("a snowflake asks for marks only: {batch:?}")
            };
            self.writes += u64::from(to > 0);
            let answer = self.store.raise(&key, expect, to).map(Answer::Raised);
            self.keeper.complete(index, answer, self.now());
        }
    }

    /// Lets time pass. The keeper runs when a source is queued and when a timer is due, and at no other time.
    fn pass(&mut self, ms: u64) {
        let end = self.clock.boot_ms() + ms;
        loop {
            if !self.ready.is_empty() {
                self.wake();
            }
            let now = self.clock.boot_ms();
            let timer = self.keeper.wake_at(self.now()).map_or(end, |at| at.max(now + 1));
            if timer >= end {
                self.clock.advance(end - now);
                return;
            }
            self.clock.advance(timer - now);
            self.wake();
        }
    }

    fn call(&mut self) {
        if let Ok(id) = self.source.try_next() {
            self.ids.push(id);
        }
        if !self.ready.is_empty() {
            self.wake();
        }
    }

    fn close(&mut self) {
        let last = self.keeper.close();
        for ask in last.raise {
            let Ask::Raise { key, expect, to, .. } = ask else { panic!("{ask:?}") };
            self.store.raise(&key, expect, to).expect("raised");
        }
        self.store.give_back_all(&last.give_back).expect("given back");
    }
}

/// Ids for 5 s, an idle minute, an id a second for ten minutes.
fn live(process: &mut Process) {
    for _ in 0..50 {
        process.call();
        process.pass(100);
    }
    process.pass(60_000);
    for _ in 0..600 {
        process.call();
        process.pass(1_000);
    }
    // The last one is covered as every other is: by the keeper that it wakes.
    process.call();
}

/// How many ids a successor repeats whose clock is five minutes behind.
fn repeated(spec: &str, closes: bool) -> usize {
    let memory = Memory::new();
    let mut first = Process::start(spec, &memory, BEGIN);
    live(&mut first);
    assert!(first.ids.len() > 500, "{spec}: {} ids", first.ids.len());
    if closes {
        first.close();
    }
    let mut second = Process::start(spec, &memory, BEGIN + 300_000);
    for _ in 0..200 {
        second.call();
        second.pass(1_000);
    }
    assert_eq!(
        second.source.callers().posted_error().map(|error| error.code),
        Some(Code::ClockBehind),
        "{spec}"
    );
    let before: HashSet<u64> = first.ids.into_iter().collect();
    second.ids.iter().filter(|id| before.contains(id)).count()
}

const SPECS: [&str; 12] = [
    "snowflake:f?worker=1&layout=uid&max_lead=500ms",
    "snowflake:f?worker=1&layout=sonyflake&max_lead=5ms",
    "snowflake:f?worker=1&layout=time:34@4s,worker:10,seq:18",
    "snowflake:f?worker=1&layout=time:33@10s,worker:10,seq:18",
    "snowflake:f?worker=1&layout=uid&max_lead=1s",
    "snowflake:f?worker=1&layout=uid&max_lead=2s",
    "snowflake:f?worker=1&layout=uid",
    "snowflake:f?worker=1&layout=sonyflake&max_lead=10ms",
    "snowflake:f?worker=1&layout=sonyflake",
    "snowflake:f?worker=1&layout=twitter&max_lead=1ms",
    "snowflake:f?worker=1&layout=twitter",
    "snowflake:f?worker=1&layout=js53&max_lead=60s",
];

#[test]
fn a_successor_of_a_killed_process_repeats_no_id_whatever_the_tick_and_the_lead() {
    for spec in SPECS {
        assert_eq!(repeated(spec, false), 0, "{spec}");
    }
}

#[test]
fn a_successor_of_a_closed_process_repeats_no_id_whatever_the_tick_and_the_lead() {
    for spec in SPECS {
        assert_eq!(repeated(spec, true), 0, "{spec}");
    }
}

#[test]
fn a_close_raises_a_mark_that_the_store_did_not_hear_of() {
    for spec in SPECS {
        let memory = Memory::new();
        let mut process = Process::start(spec, &memory, BEGIN);
        for _ in 0..3 {
            process.call();
            process.pass(20_000);
        }
        // The id of a moment in which the keeper sleeps.
        let id = process.source.try_next().expect(spec);
        process.close();
        let row = process.store.look(&process.source.spec().key).expect("an answer").expect("a row");
        let layout = process.source.spec().snowflake.expect(spec).layout;
        assert_eq!(row.mark.next, layout.unpack(id).tick + 1, "{spec}");
    }
}

#[test]
fn a_start_and_a_close_in_turn_leave_the_mark_where_it_is() {
    for spec in SPECS {
        let memory = Memory::new();
        let mut marks = Vec::new();
        for _ in 0..50 {
            let mut process = Process::start(spec, &memory, BEGIN);
            process.call();
            process.pass(1);
            process.close();
            marks.push(
                process.store.look(&process.source.spec().key).expect("an answer").map(|row| row.mark.next),
            );
        }
        let layout = spec_of(spec).snowflake.expect(spec).layout;
        let tick = layout.tick_at(BEGIN).unsigned_abs();
        assert!(marks.iter().flatten().all(|mark| *mark <= tick + 2), "{spec}: {marks:?}");
    }
}

fn spec_of(text: &str) -> crate::spec::Spec {
    MillConfig::parse("memory:").and_then(|config| config.spec(text)).expect("a spec")
}

#[test]
fn a_steady_source_writes_its_mark_a_few_times_a_second_at_most() {
    for spec in SPECS {
        let memory = Memory::new();
        let mut process = Process::start(spec, &memory, BEGIN);
        process.call();
        process.pass(20_000);
        let before = process.writes;
        for _ in 0..20_000 {
            process.call();
            process.pass(1);
        }
        let writes = process.writes - before;
        assert!(writes <= 4 * 20, "{spec}: {writes} writes in 20 s");
    }
}

#[test]
fn callers_of_a_killed_processs_successor_wait_for_a_second_and_a_tick_at_most() {
    for (spec, most_ms) in
        [("sonyflake&max_lead=5ms", 1_100), ("twitter&max_lead=1ms", 1_100), ("uid&max_lead=500ms", 3_000)]
    {
        let memory = Memory::new();
        let spec = format!("snowflake:f?worker=1&layout={spec}");
        let mut first = Process::start(&spec, &memory, BEGIN);
        for _ in 0..100 {
            first.call();
            first.pass(100);
        }
        let mut second = Process::start(&spec, &memory, first.clock.wall_ms());
        let mut waited = 0;
        while second.ids.is_empty() {
            second.call();
            second.pass(10);
            waited += 10;
            assert!(waited <= most_ms, "{spec}");
        }
        assert!(second.ids[0] > *first.ids.last().expect("ids"), "{spec}");
    }
}
