//! What many processes with leased workers ask of one store, and how long their first ids take: all of them start at once and then hold
//! their leases, in virtual time.
//!
//! Keeper, planner, generator and the rules of the store are those that ship. The store serves one statement after the other; a request
//! for a worker is a transaction of [`TAKE`] statements. Transactions that meet at one slot are not in this picture:
//! `core/src/store/model/slot_rows.rs` has a test of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use keymill::keeper::{Keeper, KeptSource};
use keymill::planner::{Answer, Ask, Batch, Now, SourceIndex};
use keymill::simulation::{MillConfig, ReadyQueue};
use keymill::store::memory::{Memory, MemoryStore};
use keymill::store::{Fault, Renewed, SlotStore};
use keymill::time::{Clock, ManualClock};

use super::store::{MS, Micros, SECOND};

/// From a process to the store.
const WAY: Micros = 300;
/// The store's time for a statement.
const SERVICE: Micros = 100;
/// Statements of a request for a worker: begin, the pool's rows, the clock, the change, commit.
const TAKE: u64 = 5;
/// 2026-11-21.
const BEGIN_MS: i64 = 1_795_218_600_000;
/// So long the processes are watched after the last one has its first id.
const WATCHED: Micros = 60 * SECOND;

/// What a number of processes asked.
#[derive(Clone, Copy, Debug)]
pub struct Crowd {
    /// From the start until the last one has an id.
    pub worst_first_id_ms: f64,
    /// Half of them have their first id by then.
    pub median_first_id_ms: f64,
    /// After that: statements a second, on average and in the busiest second.
    pub statements: (f64, u64),
    /// The longest time for which a renewal waited, and its way.
    pub worst_renewal_ms: f64,
}

enum Event {
    /// The keeper wakes.
    Wake(usize),
    /// A request arrives at the store.
    Arrive(usize, Micros, Batch),
    /// Its answer arrives.
    Taken(usize, SourceIndex, Result<Answer, Fault>),
    Renewed(usize, Vec<SourceIndex>, Micros, Renewed),
}

/// By time, and in the order in which they were added.
#[derive(Default)]
struct Events(BTreeMap<(Micros, u64), Event>, u64);

impl Events {
    fn add(&mut self, at: Micros, event: Event) {
        self.1 += 1;
        self.0.insert((at, self.1), event);
    }
}

struct Process {
    keeper: Keeper,
    source: KeptSource,
    clock: Arc<ManualClock>,
    has_id: bool,
    /// One request at a time.
    asking: bool,
    /// A wake-up that was planned for this time; others are stale.
    wakes_at: Micros,
}

/// Runs this many processes with leases of this length.
///
/// # Panics
/// If a process gets no worker, or two get one.
#[must_use]
pub fn crowd(processes: usize, lease: &str) -> Crowd {
    let memory = Memory::new();
    let store_clock = Arc::new(ManualClock::new(BEGIN_MS));
    memory.set_clock(Clock::Manual(store_clock.clone()));
    let mut store = MemoryStore::new(memory);
    // 16384 workers.
    let text = format!("snowflake:tx?layout=time:41@1ms,worker:14,seq:8&lease={lease}");
    let spec = MillConfig::parse("memory:").and_then(|config| config.spec(&text)).expect("a spec");
    let spec = Arc::new(spec);
    let layout = spec.snowflake.expect("a snowflake").layout;

    let mut events = Events::default();
    let mut all: Vec<Process> = (0..processes)
        .map(|index| {
            let clock = Arc::new(ManualClock::new(BEGIN_MS));
            let mut keeper = Keeper::new(index as u64, Arc::new(ReadyQueue::default()));
            let source = keeper.open(0, spec.clone(), Clock::Manual(clock.clone())).expect("a source");
            Process { keeper, source, clock, has_id: false, asking: false, wakes_at: 0 }
        })
        .collect();
    for index in 0..processes {
        events.add(0, Event::Wake(index));
    }

    let mut workers = BTreeSet::new();
    let mut first_ids = Vec::new();
    let (mut free_at, mut statements, mut worst_renewal): (Micros, Vec<Micros>, Micros) = (0, Vec::new(), 0);
    let mut end = Micros::MAX;
    while let Some(((now, _), event)) = events.0.pop_first() {
        if now > end {
            break;
        }
        let index = match event {
            Event::Wake(index) if all[index].wakes_at != now => continue,
            Event::Wake(index) => index,
            Event::Arrive(index, sent, batch) => {
                let cost = if matches!(batch, Batch::Renew(..)) { 1 } else { TAKE };
                free_at = free_at.max(now) + cost * SERVICE;
                // Each statement of a transaction is a round trip of its own.
                let back = free_at + WAY + (cost - 1) * 2 * WAY;
                statements.extend((0..cost).map(|_| now));
                store_clock.set_wall(BEGIN_MS + (now / MS) as i64);
                let event = match batch {
                    Batch::One(slot, Ask::Take(take)) => {
                        Event::Taken(index, slot, store.take_slot(&take).map(Answer::Taken))
                    }
                    // The store's rules would look through all of the rows for each.
                    Batch::Renew(slots, renewals) => {
                        let marks = renewals.iter().map(|renewal| Ok(renewal.to.mark)).collect();
                        let now_ms = (BEGIN_MS as u64) + now / MS;
                        Event::Renewed(index, slots, sent, Renewed { marks, now_ms })
                    }
                    other => unreachable!("a leased source asks for {other:?}"),
                };
                events.add(back, event);
                continue;
            }
            Event::Taken(index, slot, answer) => {
                let moment = all[index].now(now);
                all[index].asking = false;
                all[index].keeper.complete(slot, answer, moment);
                index
            }
            Event::Renewed(index, slots, sent, renewed) => {
                let moment = all[index].now(now);
                all[index].asking = false;
                all[index].keeper.renewed(&slots, Ok(renewed), moment);
                worst_renewal = worst_renewal.max(now - sent);
                index
            }
        };
        let process = &mut all[index];
        let moment = process.now(now);
        if !process.has_id
            && let Ok(id) = process.source.try_next()
        {
            process.has_id = true;
            assert!(workers.insert(layout.unpack(id).worker), "two processes have one worker");
            first_ids.push(now);
            if first_ids.len() == processes {
                end = now + WATCHED;
            }
        }
        if !process.asking
            && let Some(batch) = process.keeper.poll(moment, 1)
        {
            process.asking = true;
            events.add(now + WAY, Event::Arrive(index, now, batch));
        }
        if !process.asking
            && let Some(wake_ms) = process.keeper.wake_at(moment)
        {
            // Not before that millisecond.
            process.wakes_at = now / MS * MS + (wake_ms.saturating_sub(moment.boot_ms) * MS).max(MS);
            events.add(process.wakes_at, Event::Wake(index));
        }
    }
    assert_eq!(first_ids.len(), processes, "every process has an id");
    let last = end - WATCHED;
    statements.retain(|at| *at >= last);
    let mut seconds = vec![0u64; (WATCHED / SECOND) as usize + 1];
    for at in &statements {
        seconds[((at - last) / SECOND) as usize] += 1;
    }
    Crowd {
        worst_first_id_ms: last as f64 / 1000.0,
        median_first_id_ms: first_ids[processes / 2] as f64 / 1000.0,
        statements: (
            statements.len() as f64 / (WATCHED / SECOND) as f64,
            seconds.iter().copied().max().unwrap_or(0),
        ),
        worst_renewal_ms: worst_renewal as f64 / 1000.0,
    }
}

impl Process {
    fn now(&self, at: Micros) -> Now {
        let passed = (self.clock.wall_ms() - BEGIN_MS) as u64;
        self.clock.advance(at / MS - passed);
        Now { boot_ms: self.clock.boot_ms(), wall_ms: self.clock.wall_ms() }
    }
}

/// The table: processes × lease on one store.
#[must_use]
pub fn table() -> String {
    let mut out = format!(
        "leased workers: all processes start at once, {WAY} us a way, {SERVICE} us a statement, {TAKE} statements for a worker; then idle\n\
         processes  lease  first id: median ms  worst ms  then statements/s  busiest second  worst renewal ms\n"
    );
    for (processes, lease) in
        [(100, "30s"), (1_000, "30s"), (10_000, "10s"), (10_000, "30s"), (10_000, "60s")]
    {
        let measured = crowd(processes, lease);
        let _ = writeln!(
            out,
            "{processes:>9} {lease:>6} {:>20.1} {:>9.1} {:>18.1} {:>15} {:>17.1}",
            measured.median_first_id_ms,
            measured.worst_first_id_ms,
            measured.statements.0,
            measured.statements.1,
            measured.worst_renewal_ms
        );
    }
    out
}
